// Sparse tensors: indices and values are dense tensors of ours. What PyTorch's kernels make of those two is done on the device,
// and so is what is simple beside them; the rest runs on the CPU, as operators without a row do.
#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "torch/device.h"
#include "torch/kernel.h"

namespace tt {
namespace {

using c10::IValue;
using torch::jit::Stack;

bool is_sparse(const at::Tensor& t) { return t.layout() != at::kStrided; }

// ---- there and back -------------------------------------------------------------------------------------------------

at::Tensor moved(const at::Tensor& t, c10::Device to) {
  if (!t.defined() || t.device() == to) return t;
  const auto options = t.options().device(to);
  if (t.layout() == at::kSparse)
    return at::_sparse_coo_tensor_unsafe(t._indices().to(to), t._values().to(to), t.sizes(), options, t.is_coalesced());
  if (t.layout() == at::kStrided) return t.to(to);
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(t);
  return at::_sparse_compressed_tensor_unsafe(compressed.to(to), plain.to(to), t.values().to(to), t.sizes(), options);
}

// `self` becomes what the CPU made of it.
void take_over(const at::Tensor& self, const at::Tensor& result) {
  const at::Tensor here = moved(result, device0());
  if (self.layout() == at::kStrided) {
    at::native::resize_output(self, here.sizes());
    self.copy_(here);
  } else if (self.layout() == at::kSparse) {
    auto* impl = at::sparse::get_sparse_impl(self);
    impl->raw_resize_(here.sparse_dim(), here.dense_dim(), here.sizes());
    impl->set_indices_and_values_unsafe(here._indices(), here._values());
    impl->set_coalesced(here.is_coalesced());
  } else {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(here);
    at::sparse_csr::get_sparse_csr_impl(self)->set_member_tensors(compressed, plain, here.values(), here.sizes());
  }
}

// The same with all tensors in it moved.
IValue moved_all(const IValue& v, c10::Device to) {
  if (v.isTensor()) return moved(v.toTensor(), to);
  if (v.isDevice()) return to;
  if (!v.isTensorList() && !v.isOptionalTensorList()) return v;
  const auto list = v.toList();
  c10::impl::GenericList out(list.elementType());
  for (const IValue& item : v.toListRef()) out.push_back(moved_all(item, to));
  return out;
}

bool is_written(const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

// Which argument a result is, or -1.
int alias_of(const c10::FunctionSchema& schema, const c10::Argument& result) {
  for (size_t i = 0; result.alias_info() && i < schema.arguments().size(); i++) {
    const auto& a = schema.arguments()[i];
    if (is_written(a) && a.alias_info()->beforeSets() == result.alias_info()->beforeSets()) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  note_fallback(op);
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const Stack given(stack->end() - static_cast<int64_t>(count), stack->end());
  Stack there;
  for (const IValue& v : given) {  // a tensor that comes twice, as `smm` has it, is one tensor there too
    const auto same = std::find_if(given.begin(), given.begin() + static_cast<int64_t>(there.size()),
                                   [&](const IValue& other) { return v.isTensor() && other.isTensor() && v.is(other); });
    const auto at = static_cast<size_t>(same - given.begin());
    there.push_back(at < there.size() ? there[at] : moved_all(v, at::kCPU));
  }
  torch::jit::drop(*stack, count);
  Stack results = there;
  op.callBoxed(&results);
  for (size_t i = 0; i < count; i++)
    if (is_written(schema.arguments()[i])) take_over(given[i].toTensor(), there[i].toTensor());
  for (size_t i = 0; i < results.size(); i++) {
    const int alias = alias_of(schema, schema.returns()[i]);
    stack->push_back(alias >= 0 ? given[static_cast<size_t>(alias)] : moved_all(results[i], device0()));
  }
}

namespace {

// ---- what the device does itself ---------------------------------------------------------------------------------------

at::Tensor there(const at::Tensor& t) { return moved(t, at::kCPU); }
const c10::Scalar& there(const c10::Scalar& s) { return s; }

// A call that the device has no way for.
template <class Op, class... Args>
at::Tensor on_cpu(const Op& op, const Args&... args) {
  note_fallback(op);
  return moved(op.call(there(args)...), device0());
}

// The sizes of a dense tensor with a COO tensor's sparse dimensions as one.
std::vector<int64_t> sizes_by_place(const at::Tensor& self) {
  std::vector<int64_t> sizes{1};
  for (int64_t d = 0; d < self.sparse_dim(); d++) sizes[0] *= self.size(d);
  const auto inner = self.sizes().slice(static_cast<size_t>(self.sparse_dim()));
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  return sizes;
}

// One number for each column of indices: its place in the sparse dimensions, row by row.
at::Tensor places_of(const at::Tensor& self) {
  at::Tensor places = self._indices().select(0, 0);
  for (int64_t d = 1; d < self.sparse_dim(); d++) places = places * self.size(d) + self._indices().select(0, d);
  return places;
}

at::Tensor coalesce(const at::Tensor& self) {
  if (self.is_coalesced()) return self;
  const auto made = [&](const at::Tensor& indices, const at::Tensor& values) {
    return at::_sparse_coo_tensor_unsafe(indices, values, self.sizes(), self.options(), true);
  };
  if (self._nnz() < 2) return made(self._indices().clone(), self._values().clone());
  if (self.sparse_dim() == 0) return made(self._indices().narrow(1, 0, 1).clone(), self._values().sum(0, true, self.scalar_type()));
  auto [places, inverse, counts] = at::_unique2(places_of(self), true, true);
  auto sizes = self._values().sizes().vec();
  sizes[0] = places.size(0);
  const at::Tensor values = at::zeros(sizes, self._values().options()).index_add(0, inverse, self._values());
  std::vector<at::Tensor> rows(static_cast<size_t>(self.sparse_dim()));
  for (int64_t d = self.sparse_dim() - 1; d > 0; d--) {
    rows[static_cast<size_t>(d)] = places.remainder(self.size(d));
    places = places.floor_divide(self.size(d));
  }
  rows[0] = places;
  return made(at::stack(rows), values);
}

at::Tensor coo_to_dense(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<bool>) {
  TORCH_CHECK(!dtype || *dtype == self.scalar_type(), "dtype argument is not supported by sparse_to_dense");
  const at::Tensor dense = at::zeros(self.sizes(), self._values().options());
  if (self._nnz() == 0) return dense;
  if (self.sparse_dim() == 0) return dense.add_(self._values().sum(0, false, self.scalar_type()));
  return dense.view(sizes_by_place(self)).index_add(0, places_of(self), self._values()).view(self.sizes());
}

// The values of a dense tensor where the mask has some.
at::Tensor masked_as(const at::Tensor& self, const at::Tensor& mask) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sparse_mask", "").typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ", self.sizes(),
              " but mask has size ", mask.sizes());
  if (is_sparse(self) || mask.layout() != at::kSparse || mask.sparse_dim() == 0 || mask._nnz() == 0)
    return on_cpu(op, self, mask);
  const at::Tensor values = self.reshape(sizes_by_place(mask)).index_select(0, places_of(mask));
  return at::_sparse_coo_tensor_unsafe(mask._indices().clone(), values, mask.sizes(), self.options().layout(at::kSparse),
                                       mask.is_coalesced());
}

// Products of a sparse matrix and a dense one: rows of the dense one, times the values, are added up.

bool is_simple_product(const at::Tensor& a, const at::Tensor& b) {
  return (a.layout() == at::kSparse || a.layout() == at::kSparseCsr) && a.dim() == 2 && a.dense_dim() == 0 && !is_sparse(b) &&
         b.dim() == 2 && a.size(1) == b.size(0) && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor none = at::zeros({a.size(0), b.size(1)}, b.options());
  if (a._nnz() == 0) return none;
  const bool is_coo = a.layout() == at::kSparse;
  const at::Tensor places = is_coo ? a._indices() : at::_convert_indices_from_csr_to_coo(a.crow_indices(), a.col_indices());
  const at::Tensor values = is_coo ? a._values() : a.values();
  return none.index_add(0, places.select(0, 0), b.index_select(0, places.select(0, 1)) * values.unsqueeze(1));
}

at::Tensor sparse_mm(const at::Tensor& self, const at::Tensor& mat2) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "").typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  return is_simple_product(self, mat2) ? product(self, mat2) : on_cpu(op, self, mat2);
}

at::Tensor sparse_addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const c10::Scalar& beta,
                        const c10::Scalar& alpha) {
  using Addmm = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const c10::Scalar&, const c10::Scalar&);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "").typed<Addmm>();
  if (is_simple_product(mat1, mat2) && !is_sparse(self) && self.scalar_type() == mat2.scalar_type()) {
    const at::Tensor scaled = product(mat1, mat2) * alpha;
    const bool drops_self = beta.equal(0);  // NaN in it doesn't count
    const auto sizes = at::infer_size(self.sizes(), scaled.sizes());
    TORCH_CHECK(scaled.sizes() == sizes, "addmm: Expected self to be expandable to ", scaled.sizes(), ", but got ", self.sizes());
    return drops_self ? scaled : scaled + self * beta;
  }
  return on_cpu(op, self, mat1, mat2, beta, alpha);
}

at::Tensor sparse_mv(const at::Tensor& self, const at::Tensor& vec) { return at::mm(self, vec.unsqueeze(1)).squeeze(1); }

// The product of dense matrices, computed where a CSR matrix has elements.
at::Tensor sampled_addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const c10::Scalar& beta,
                         const c10::Scalar& alpha) {
  using Addmm = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const c10::Scalar&, const c10::Scalar&);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sparse_sampled_addmm", "").typed<Addmm>();
  const bool fits = self.layout() == at::kSparseCsr && self.dim() == 2 && mat1.dim() == 2 && mat2.dim() == 2 && !is_sparse(mat1) &&
                    !is_sparse(mat2) && mat1.size(0) == self.size(0) && mat2.size(1) == self.size(1) && mat1.size(1) == mat2.size(0) &&
                    mat1.scalar_type() == self.scalar_type() && mat2.scalar_type() == self.scalar_type();
  if (!fits) return on_cpu(op, self, mat1, mat2, beta, alpha);
  const at::Tensor places = at::_convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices());
  const at::Tensor rows = mat1.index_select(0, places.select(0, 0)), columns = mat2.t().index_select(0, places.select(0, 1));
  const at::Tensor values = (rows * columns).sum(1) * alpha;
  return at::_sparse_compressed_tensor_unsafe(self.crow_indices().clone(), self.col_indices().clone(),
                                              beta.equal(0) ? values : values + self.values() * beta, self.sizes(), self.options());
}

// A product whose sums are other reductions, and for a gradient the element that each maximum or minimum is from (the number of
// elements where there is none).
std::tuple<at::Tensor, at::Tensor> mm_reduce(const at::Tensor& self, const at::Tensor& other, c10::string_view reduce) {
  using Reduce = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, c10::string_view);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_sparse_mm_reduce_impl", "").typed<Reduce>();
  const bool picks = reduce == "amax" || reduce == "amin";
  if (!is_simple_product(self, other) || self._nnz() == 0 || !(picks || reduce == "sum" || reduce == "mean")) {
    note_fallback(op);
    const auto [out, from] = op.call(moved(self, at::kCPU), moved(other, at::kCPU), reduce);
    return {moved(out, device0()), moved(from, device0())};
  }
  const at::Tensor places = at::_convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices()), rows = places.select(0, 0);
  const at::Tensor parts = other.index_select(0, places.select(0, 1)) * self.values().unsqueeze(1);
  const at::Tensor none = at::zeros({self.size(0), other.size(1)}, other.options());
  const at::Tensor out = reduce == "sum" ? none.index_add(0, rows, parts) : none.index_reduce(0, rows, parts, reduce, false);
  if (!picks || !(self.requires_grad() || other.requires_grad())) return {out, empty({0}, at::kLong)};
  const int64_t count = self._nnz();
  const at::Tensor last = at::full(none.sizes(), count, rows.options());
  const at::Tensor element = at::arange(count, rows.options()).unsqueeze(1);
  const at::Tensor from = element.where(parts.eq(out.index_select(0, rows)), at::scalar_tensor(count, rows.options()));
  return {out, last.index_reduce(0, rows, from, "amin", true)};
}

// ---- which is which ------------------------------------------------------------------------------------------------------

// Overloads whose CPU kernels work on any device: they look at a tensor's parts, or call an elementwise operator on the values.
#define TT_UNARY_OF_VALUES                                                                                                       \
  "abs", "abs_", "abs.out", "asin", "asin_", "asin.out", "asinh", "asinh_", "asinh.out", "atan", "atan_", "atan.out", "atanh",    \
      "atanh_", "atanh.out", "ceil", "ceil_", "ceil.out", "deg2rad", "deg2rad_", "deg2rad.out", "erf", "erf_", "erf.out",         \
      "erfinv", "erfinv_", "erfinv.out", "expm1", "expm1_", "expm1.out", "floor", "floor_", "floor.out", "frac", "frac_",         \
      "frac.out", "isinf", "isnan", "isneginf", "isneginf.out", "isposinf", "isposinf.out", "log1p", "log1p_", "log1p.out",       \
      "neg", "neg_", "neg.out", "rad2deg", "rad2deg_", "rad2deg.out", "relu", "relu_", "round", "round_", "round.out", "sgn",      \
      "sgn_", "sgn.out", "sign", "sign_", "sign.out", "signbit", "signbit.out", "sin", "sin_", "sin.out", "sinh", "sinh_",        \
      "sinh.out", "sqrt", "sqrt_", "sqrt.out", "tan", "tan_", "tan.out", "tanh", "tanh_", "tanh.out", "trunc", "trunc_", "trunc.out"

constexpr const char* kCoo[] = {
    TT_UNARY_OF_VALUES, "_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_values", "indices", "values", "is_coalesced",
    "sparse_dim", "dense_dim", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_", "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors", "copy_sparse_to_sparse_", "copy_", "clone", "empty.memory_format", "empty_like",
    "zero_", "zeros.out", "sum", "permute", "unsqueeze", "cat", "nan_to_num", "nan_to_num_", "nan_to_num.out", "_to_sparse_csr",
    "_to_sparse_csc"};
constexpr const char* kCsr[] = {
    TT_UNARY_OF_VALUES, "_nnz", "crow_indices", "col_indices", "ccol_indices", "row_indices", "values", "sparse_dim", "dense_dim",
    "empty.memory_format", "empty_like", "clone", "copy_", "resize_", "resize_as_sparse_", "zero_", "mul.Scalar", "mul_.Scalar",
    "sum", "_to_dense", "_to_sparse", "_to_sparse.sparse_dim", "select.int", "select_copy.int"};
// From a dense tensor: nonzero and indexing, which are ours.
constexpr const char* kToSparse[] = {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr",
                                     "_to_sparse_bsc"};

template <c10::DispatchKey Key, size_t N>
void use_cpu_kernels(torch::Library& m, const char* const (&names)[N]) {
  for (const char* name : names) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_as<Key>>());
}

// All others that the CPU has a kernel for. (A fallback for the key would come after PyTorch's composite ones.)
template <c10::DispatchKey Cpu, c10::DispatchKey Ours>
void run_rest_on_cpu(torch::Library& m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) == 0 && op && op->hasKernelForDispatchKey(Cpu) && !op->hasKernelForDispatchKey(Ours))
      m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  use_cpu_kernels<c10::DispatchKey::SparseCPU>(m, kCoo);
  m.impl("_coalesce", coalesce);
  m.impl("_to_dense", coo_to_dense);
  m.impl("sparse_mask", masked_as);
  m.impl("mm", sparse_mm);
  m.impl("addmm", sparse_addmm);
  m.impl("mv", sparse_mv);
  run_rest_on_cpu<c10::DispatchKey::SparseCPU, c10::DispatchKey::SparsePrivateUse1>(m);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  use_cpu_kernels<c10::DispatchKey::SparseCsrCPU>(m, kCsr);
  m.impl("mm", sparse_mm);
  m.impl("addmm", sparse_addmm);
  m.impl("sparse_sampled_addmm", sampled_addmm);
  m.impl("_sparse_mm_reduce_impl", mm_reduce);
  run_rest_on_cpu<c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrPrivateUse1>(m);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { use_cpu_kernels<c10::DispatchKey::CPU>(m, kToSparse); }

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }

}  // namespace tt
