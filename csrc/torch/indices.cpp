#include "torch/indices.h"

#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>

#include "torch/device.h"

namespace tt {
namespace {

bool is_mask(const at::Tensor& t) { return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte); }

void check_shape(const at::Tensor& self, const at::Tensor& mask, int64_t first, size_t position) {
  for (int64_t d = 0; d < mask.dim(); d++)
    TORCH_CHECK_INDEX(first + d < self.dim() && mask.size(d) == self.size(first + d), "The shape of the mask ", mask.sizes(),
                      " at index ", d, " does not match the shape of the indexed tensor ", self.sizes(), " at index ",
                      static_cast<int64_t>(position) + d);
}

}  // namespace

c10::IValue resolve_indices(const at::Tensor& self, const c10::IValue& indices) {
  const auto list = indices.toListRef();
  bool any = false;
  for (const auto& v : list)
    any |= !v.isNone() && v.toTensor().defined() && (is_mask(v.toTensor()) || v.toTensor().device().type() != kType);
  if (!any) return {};
  c10::List<std::optional<at::Tensor>> out;
  int64_t dim = 0;
  for (size_t i = 0; i < list.size(); i++) {
    if (list[i].isNone() || !list[i].toTensor().defined()) {
      out.push_back(std::nullopt);
      dim++;
      continue;
    }
    const at::Tensor t = list[i].toTensor();
    if (!is_mask(t)) {
      out.push_back(t.device().is_cpu() ? t.to(device0()) : t);
      dim++;
      continue;
    }
    if (t.scalar_type() == at::kByte)
      TORCH_WARN("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
    check_shape(self, t, dim, i);
    if (t.device().type() == kType) check(tt_device_flush(device(), TT_FLUSH_DATA));
    const at::Tensor at_true = at::nonzero(t.cpu());
    for (int64_t d = 0; d < t.dim(); d++) out.push_back(at_true.select(1, d).to(device0()));
    // A 0-dim mask selects all or nothing of a new dimension, which the caller made.
    if (t.dim() == 0) out.push_back(at::zeros({at_true.size(0)}, at::kLong).to(device0()));
    dim += std::max<int64_t>(t.dim(), 1);
  }
  return out;
}

}  // namespace tt
