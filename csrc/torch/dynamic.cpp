// Operators whose result's shape depends on data: the count is computed on the device and read once, then the result has
// a known size.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero_static.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor_split_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "torch/device.h"
#include "torch/kernel.h"
#include "torch/typed.h"

namespace tt {
namespace {

// A number that a shape depends on.
template <typename T>
T read_for_shape(const at::Tensor& number) {
  check(tt_device_flush(device(), TT_FLUSH_DATA));
  return number.item<T>();
}

at::Tensor nonzero_of(const at::Tensor& given) {
  // Asked once: whether a denormal is zero differs from program to program.
  const at::Tensor self = given.is_floating_point() || given.is_complex() ? given.ne(0) : given;
  const int64_t count = self.numel() ? read_for_shape<int64_t>(at::count_nonzero(self)) : 0;
  // The layout of CPU's result: one dimension's coordinates after the other.
  const at::Tensor rows = count && self.dim() ? at::nonzero_static(self, count).t().contiguous() : empty({count, self.dim()}, at::kLong);
  return rows.as_strided({count, self.dim()}, {1, count});
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
              out.scalar_type());
  at::assert_no_overlap(out, self);
  write_out(nonzero_of(self), out);
  return out;
}

at::Tensor select_masked(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto [mask_all, self_all] = at::expand_outplace(mask, self);
  const at::Tensor at_true = nonzero_of(mask_all->reshape({-1})).select(1, 0);
  return at::index_select(self_all->reshape({-1}), 0, at_true);
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "masked_select(): self and result must have the same scalar type");
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  write_out(select_masked(self, mask), out);
  return out;
}

// The positions 0, 1, ... each as often as `repeats` says: position i is where the running sum first exceeds it.
at::Tensor repeat_positions(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt, "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) return at::empty_like(repeats);
  TORCH_CHECK(!read_for_shape<bool>(repeats.lt(0).any()), "repeats can not be negative");
  const at::Tensor ends = repeats.cumsum(0);
  const int64_t total = read_for_shape<int64_t>(ends[-1]);
  TORCH_CHECK(!output_size || *output_size == total, "allocated size does not match required size");
  return at::searchsorted(ends, at::arange(total, ends.options()), /*out_int32=*/false, /*right=*/true).to(repeats.scalar_type());
}

using Solutions = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Residuals are there only where every matrix has full rank, which two of the drivers find out.
Solutions least_squares(const at::Tensor& self, const at::Tensor& b, std::optional<double> rcond,
                        std::optional<c10::string_view> driver) {
  using Kernel = Typed<Solutions(const at::Tensor&, const at::Tensor&, std::optional<double>, std::optional<c10::string_view>)>;
  static const Kernel kernel(binding_behind("linalg_lstsq"));
  auto [solution, residuals, rank, values] = kernel(self, b, rcond, driver);
  const int64_t n = self.size(-1);
  solution = solution.narrow(-2, 0, n);
  if (b.dim() == 1 || b.sizes() == self.sizes().slice(0, self.dim() - 1)) solution = solution.squeeze(-1);
  if (residuals.numel() && rank.numel() && read_for_shape<int64_t>(rank.min()) < n) residuals = empty({0}, residuals.scalar_type());
  return {solution, residuals, rank, values};
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> least_squares_out(
    const at::Tensor& self, const at::Tensor& b, std::optional<double> rcond, std::optional<c10::string_view> driver,
    at::Tensor& solution, at::Tensor& residuals, at::Tensor& rank, at::Tensor& values) {
  const auto [x, r, k, s] = least_squares(self, b, rcond, driver);
  const std::pair<at::Tensor&, const at::Tensor&> results[] = {{solution, x}, {residuals, r}, {rank, k}, {values, s}};
  for (const auto& [out, result] : results) write_out(result, out);
  return {solution, residuals, rank, values};
}

// ---- unique: the row gives arrays with room for all, and how many count ------------------------------------------------

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

at::Tensor or_empty(const at::Tensor& t) { return t.defined() ? t : empty({0}, at::kLong); }

// The first dimension cut to the number that was found.
Three cut(const Four& found) {
  const auto& [values, inverse, counts, total] = found;
  const int64_t n = read_for_shape<int64_t>(total);
  const auto first = [n](const at::Tensor& t) { return t.size(0) == n ? t : t.narrow(0, 0, n).clone(); };
  return {first(values), or_empty(inverse), counts.defined() ? first(counts) : or_empty(counts)};
}

Three distinct(const at::Tensor& self, bool sorted, bool return_inverse, bool return_counts) {
  static const Typed<Four(const at::Tensor&, bool, bool, bool)> kernel(binding_behind("_unique2"));
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "\"unique\" not implemented for '", self.scalar_type(), "'");
  if (self.numel() == 0)
    return {empty({0}, self.scalar_type()), empty(return_inverse ? self.sizes() : c10::IntArrayRef{0}, at::kLong), empty({0}, at::kLong)};
  return cut(kernel(self, sorted, return_inverse, return_counts));
}

std::tuple<at::Tensor, at::Tensor> distinct_two(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = distinct(self, sorted, return_inverse, false);
  return {values, inverse};
}

// Along a dimension without elements nothing is unique; beside it there must be none like it.
bool is_empty_along(const at::Tensor& self, int64_t dim) {
  int64_t zeros = 0;
  for (const int64_t size : self.sizes()) zeros += size == 0;
  if (self.size(dim) != 0) {
    TORCH_CHECK(zeros == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
    return false;
  }
  TORCH_CHECK(zeros == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
  return true;
}

template <class Run>
Three unique_along(const at::Tensor& self, int64_t dim, Run run) {
  if (is_empty_along(self, dim)) return {empty(self.sizes(), self.scalar_type()), empty({0}, at::kLong), empty({0}, at::kLong)};
  auto sizes = self.movedim(dim, 0).sizes().vec();
  auto [rows, inverse, counts] = cut(run());
  sizes[0] = rows.size(0);
  return {rows.view(sizes).movedim(0, dim), inverse, counts};
}

Three distinct_along(const at::Tensor& self, int64_t dim, bool sorted, bool return_inverse, bool return_counts) {
  static const Typed<Four(const at::Tensor&, int64_t, bool, bool, bool)> kernel(binding_behind("unique_dim"));
  return unique_along(self, dim, [&] { return kernel(self, dim, sorted, return_inverse, return_counts); });
}

Three runs_along(const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  static const Typed<Four(const at::Tensor&, int64_t, bool, bool)> kernel(binding_behind("unique_dim_consecutive"));
  return unique_along(self, dim, [&] { return kernel(self, dim, return_inverse, return_counts); });
}

Three runs(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  static const Typed<Four(const at::Tensor&, bool, bool, std::optional<int64_t>)> kernel(binding_behind("unique_consecutive"));
  if (dim && self.dim() > 1) return runs_along(self, *dim, return_inverse, return_counts);
  if (self.numel() == 0)
    return {empty({0}, self.scalar_type()), empty(return_inverse ? self.sizes() : c10::IntArrayRef{0}, at::kLong), empty({0}, at::kLong)};
  return cut(kernel(self, return_inverse, return_counts, dim));
}

// ---- bincount ----------------------------------------------------------------------------------------------------

at::Tensor count_bins(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), /*includeBool=*/false), "\"bincount\" not implemented for '",
                              self.scalar_type(), "'");
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto [low, high] = at::aminmax(self);
  TORCH_CHECK(read_for_shape<int64_t>(low) >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(high.item<int64_t>() + 1, minlength);
  const auto type = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  const auto options = self.options().dtype(type);
  const at::Tensor amounts = weighted ? weights->to(type) : at::ones({1}, options).expand({self.size(0)});
  return at::zeros({bins}, options).index_add(0, self.to(at::kLong), amounts);
}

// ---- tensor_split: PyTorch's own wants the places in CPU memory ---------------------------------------------------------

std::vector<at::Tensor> split_at_places(const at::Tensor& self, const at::Tensor& places, int64_t dim) {
  if (places.device().type() == kType) check(tt_device_flush(device(), TT_FLUSH_DATA));
  return at::native::tensor_split(self, places.cpu(), dim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero_of);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", select_masked);
  m.impl("masked_select.out", masked_select_out);
  m.impl("repeat_interleave.Tensor", repeat_positions);
  m.impl("linalg_lstsq", least_squares);
  m.impl("linalg_lstsq.out", least_squares_out);
  m.impl("_unique2", distinct);
  m.impl("_unique", distinct_two);
  m.impl("unique_dim", distinct_along);
  m.impl("unique_consecutive", runs);
  m.impl("unique_dim_consecutive", runs_along);
  m.impl("bincount", count_bins);
  m.impl("tensor_split.tensor_indices_or_sections", split_at_places);
}

// Its parts are differentiable views, so it goes above autograd.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("tensor_split.tensor_indices_or_sections", split_at_places); }

}  // namespace tt
