// Nested tensors with the strided layout: a buffer of ours and sizes in CPU memory. PyTorch has kernels for them that call
// operators on the parts, which it offers another device (HPU) as they are. (The jagged layout is written in Python over dense
// tensors and needs nothing here, but attention makes strided ones of them.)
#include <torch/library.h>

#include "torch/kernel.h"

namespace tt {
namespace {

// The CPU's own kernels that do not look into the buffer either.
constexpr const char* kOnParts[] = {"_nested_tensor_storage_offsets", "bmm", "to_padded_tensor"};

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "operator '", op.operator_name(), "' is not implemented for nested tensors with the strided layout "
                              "on device tpu. Use layout=torch.jagged, or move them to the CPU");
}

}  // namespace

// Each is named: a fallback for the key comes after PyTorch's composite kernels, which know nothing of parts.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  for (const char* name : kOnParts) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_as<c10::DispatchKey::NestedTensorCPU>>());
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) == 0 && op && op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorHPU))
      m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_as<c10::DispatchKey::NestedTensorHPU>>());
  }
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

}  // namespace tt
