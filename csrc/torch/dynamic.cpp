// Operators whose result's shape depends on data: the count is computed on the device and read once, then the result has
// a known size.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero_static.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include "torch/device.h"
#include "torch/typed.h"

namespace tt {
namespace {

// A number that a shape depends on.
template <typename T>
T read_for_shape(const at::Tensor& number) {
  check(tt_device_flush(device(), TT_FLUSH_DATA));
  return number.item<T>();
}

at::Tensor nonzero_of(const at::Tensor& self) {
  const int64_t count = self.numel() ? read_for_shape<int64_t>(at::count_nonzero(self)) : 0;
  if (count == 0 || self.dim() == 0) return empty({count, self.dim()}, at::kLong);
  // The layout of CPU's result: one dimension's coordinates after the other.
  return at::nonzero_static(self, count).t().contiguous().t();
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
              out.scalar_type());
  const at::Tensor result = nonzero_of(self);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

at::Tensor select_masked(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto [mask_all, self_all] = at::expand_outplace(mask, self);
  const at::Tensor at_true = nonzero_of(mask_all->reshape({-1})).select(1, 0);
  return at::index_select(self_all->reshape({-1}), 0, at_true);
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "masked_select(): self and result must have the same scalar type");
  const at::Tensor result = select_masked(self, mask);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
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
  for (const auto& [out, result] : results) {
    at::native::resize_output(out, result.sizes());
    out.copy_(result);
  }
  return {solution, residuals, rank, values};
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
}

}  // namespace tt
