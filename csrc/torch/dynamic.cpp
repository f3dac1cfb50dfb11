// Operators whose result's shape depends on data: the count is computed on the device and read once, then the result has
// a known size.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero_static.h>
#include <torch/library.h>

#include "torch/device.h"

namespace tt {
namespace {

at::Tensor nonzero_of(const at::Tensor& self) {
  const int64_t count = self.numel() ? at::count_nonzero(self).item<int64_t>() : 0;
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

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero_of);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", select_masked);
  m.impl("masked_select.out", masked_select_out);
}

}  // namespace tt
