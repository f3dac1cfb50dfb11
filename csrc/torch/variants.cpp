// Forms of operators that PyTorch has kernels for on each device, though their plain forms are composed: out=, fused, and those of
// forward-mode derivatives.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_eig.h>
#include <ATen/ops/mvlgamma.h>
#include <ATen/ops/narrow_copy.h>
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
  m.impl("dot", dot<kDot>);
  m.impl("vdot", dot<kVdot>);
  m.impl("glu_jvp", glu_jvp);
  m.impl("glu_backward_jvp", glu_backward_jvp);
}

}  // namespace tt
