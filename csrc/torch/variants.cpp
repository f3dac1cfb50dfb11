// Forms of operators that PyTorch has kernels for on each device, though their plain forms are composed: out=, fused, and those of
// forward-mode derivatives.
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_eig.h>
#include <ATen/ops/mvlgamma.h>
#include <ATen/ops/narrow_copy.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <torch/library.h>

#include "torch/kernel.h"
#include "torch/typed.h"

namespace tt {
namespace {

using at::Scalar;
using at::Tensor;

Tensor& give(const Tensor& result, Tensor& out) {
  write_out(result, out);
  return out;
}

Tensor& mvlgamma_out(const Tensor& x, int64_t p, Tensor& out) { return give(at::mvlgamma(x, p), out); }
Tensor& narrow_out(const Tensor& x, int64_t dim, int64_t start, int64_t length, Tensor& out) {
  return give(at::narrow_copy(x, dim, start, length), out);
}
Tensor& pool2d_out(const Tensor& x, at::IntArrayRef size, Tensor& out) { return give(at::_adaptive_avg_pool2d(x, size), out); }
Tensor& pool3d_out(const Tensor& x, at::IntArrayRef size, Tensor& out) { return give(at::_adaptive_avg_pool3d(x, size), out); }
Tensor& pool3d_backward_out(const Tensor& grad, const Tensor& x, Tensor& out) {
  return give(at::_adaptive_avg_pool3d_backward(grad, x), out);
}
Tensor& eigenvalues_out(const Tensor& x, Tensor& out) { return give(std::get<0>(at::linalg_eig(x)), out); }

Tensor add_relu(const Tensor& x, const Tensor& y, const Scalar& alpha) { return at::relu(at::add(x, y, alpha)); }
Tensor& add_relu_out(const Tensor& x, const Tensor& y, const Scalar& alpha, Tensor& out) { return give(add_relu(x, y, alpha), out); }
Tensor& add_relu_(Tensor& x, const Tensor& y, const Scalar& alpha) { return x.copy_(add_relu(x, y, alpha)); }
Tensor add_relu_scalar(const Tensor& x, const Scalar& y, const Scalar& alpha) { return at::relu(at::add(x, y, alpha)); }
Tensor& add_relu_scalar_(Tensor& x, const Scalar& y, const Scalar& alpha) { return x.copy_(add_relu_scalar(x, y, alpha)); }

// glu = a * s(b), with s the logistic function, whose derivative is s (1 - s).
Tensor glu_jvp(const Tensor& glu, const Tensor& x, const Tensor& dx, int64_t dim) {
  const auto halves = x.chunk(2, dim), d = dx.chunk(2, dim);
  const Tensor s = halves[1].sigmoid();
  return d[0] * s + glu * (1 - s) * d[1];
}

// The derivative of grad * [s, a s (1 - s)].
Tensor glu_backward_jvp(const Tensor& grad_x, const Tensor& grad, const Tensor& x, const Tensor& dgrad, const Tensor& dx, int64_t dim) {
  const auto halves = x.chunk(2, dim), d = dx.chunk(2, dim);
  const Tensor s = halves[1].sigmoid(), slope = s * (1 - s), ds = slope * d[1];
  const Tensor first = dgrad * s + grad * ds;
  return at::cat({first, slope * (dgrad * halves[0] + grad * d[0]) + grad * halves[0] * (1 - 2 * s) * ds}, dim);
}

// Nothing is done to real numbers, not even where a write would be refused.
Tensor& conj_physical_(Tensor& self) {
  static const Typed<Tensor&(Tensor&)> kernel(binding_behind("conj_physical_"));
  return self.is_complex() ? kernel(self) : self;
}

// An element that expanded dimensions repeat is zero if it is in any of its places.
template <const char* name>
Tensor& triangle_(Tensor& self, int64_t diagonal) {
  static const Typed<Tensor&(Tensor&, int64_t)> kernel(binding_behind(name));
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes) return kernel(self, diagonal);
  Tensor once = self, kept = at::ones(self.sizes(), self.options().dtype(at::kBool));
  kernel(kept, diagonal);
  for (int64_t d = 0; d < self.dim(); d++) {
    if (self.stride(d) || self.size(d) < 2) continue;
    once = once.narrow(d, 0, 1);
    kept = kept.all(d, /*keepdim=*/true);
  }
  once.masked_fill_(kept.logical_not(), 0);
  return self;
}
constexpr char kTril[] = "tril_", kTriu[] = "triu_";

// What is written into a part of an otherwise same tensor. PyTorch keeps the strides, with what is between the elements.
template <const char* name>
void write_into(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const Binding& row = binding_behind(name);
  const Tensor self = (*stack)[stack->size() - op.schema().arguments().size()].toTensor();
  if (self.is_contiguous() && self.storage_offset() == 0) row.run_boxed(stack);
  else run_as<c10::DispatchKey::CompositeExplicitAutogradNonFunctional>(op, stack);
}
constexpr char kSlice[] = "slice_scatter", kSelect[] = "select_scatter", kDiagonal[] = "diagonal_scatter",
               kStrided[] = "as_strided_scatter", kCopy[] = "copy";

// PyTorch passes ZeroTensors on to these two.
template <const char* name>
Tensor dot(const Tensor& self, const Tensor& other) {
  static const Typed<Tensor(const Tensor&, const Tensor&)> kernel(binding_behind(name));
  const auto with_memory = [](const Tensor& t) { return t._is_zerotensor() ? t.clone() : t; };
  return kernel(with_memory(self), with_memory(other));
}
constexpr char kDot[] = "dot", kVdot[] = "vdot";

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mvlgamma.out", mvlgamma_out);
  m.impl("narrow_copy.out", narrow_out);
  m.impl("adaptive_avg_pool2d.out", pool2d_out);
  m.impl("adaptive_avg_pool3d.out", pool3d_out);
  m.impl("adaptive_avg_pool3d_backward.grad_input", pool3d_backward_out);
  m.impl("linalg_eigvals.out", eigenvalues_out);
  m.impl("_add_relu.Tensor", add_relu);
  m.impl("_add_relu.out", add_relu_out);
  m.impl("_add_relu_.Tensor", add_relu_);
  m.impl("_add_relu.Scalar", add_relu_scalar);
  m.impl("_add_relu_.Scalar", add_relu_scalar_);
  m.impl("conj_physical_", conj_physical_);
  m.impl("tril_", triangle_<kTril>);
  m.impl("triu_", triangle_<kTriu>);
  m.impl("slice_scatter", torch::CppFunction::makeFromBoxedFunction<&write_into<kSlice>>());
  m.impl("select_scatter", torch::CppFunction::makeFromBoxedFunction<&write_into<kSelect>>());
  m.impl("diagonal_scatter", torch::CppFunction::makeFromBoxedFunction<&write_into<kDiagonal>>());
  m.impl("as_strided_scatter", torch::CppFunction::makeFromBoxedFunction<&write_into<kStrided>>());
  m.impl("copy", torch::CppFunction::makeFromBoxedFunction<&write_into<kCopy>>());
  m.impl("dot", dot<kDot>);
  m.impl("vdot", dot<kVdot>);
  m.impl("glu_jvp", glu_jvp);
  m.impl("glu_backward_jvp", glu_backward_jvp);
}

}  // namespace tt
