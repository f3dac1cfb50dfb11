// Index tensors made ready for a program: how many elements a mask selects is data, so it is read before a program can be made.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace tt {

// A `Tensor?[] indices` argument over `self` with every bool or uint8 mask replaced by the index tensors of its true
// elements, and index tensors on the CPU moved to the device, as PyTorch does it. None if nothing needs to change.
c10::IValue resolve_indices(const at::Tensor& self, const c10::IValue& indices);

}  // namespace tt
