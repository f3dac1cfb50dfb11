// Quantized tensors (qint8 and relatives) carry a quantizer that kernels of their own read; the device has none. What is made of
// plain integers and scales works as any other operator.
#include <torch/library.h>

#include <cmath>

#include "torch/kernel.h"

namespace tt {
namespace {

void no_quantized_tensors(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "operator '", op.operator_name(), "': quantized tensors (qint8, quint8, ...) can't be on device tpu. "
                              "Keep integers and their scales as plain tensors (torch.ops.quantized_decomposed, torchao), or quantize on "
                              "the CPU");
}

// With a scale for each row, buffers that are empty take their size at the first call.
void observe_and_quantize(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const Binding& row = binding_behind("_fused_moving_avg_obs_fq_helper");
  const c10::IValue* in = stack->data() + (stack->size() - op.schema().arguments().size());
  if (in[11].toBool() && in[3].toTensor().numel() == 0) {
    const double first[] = {INFINITY, -INFINITY, 1, 0};
    for (size_t i = 0; i < 4; i++) in[3 + i].toTensor().resize_({in[0].toTensor().size(in[10].toInt())}).fill_(first[i]);
  }
  row.run_boxed(stack);
}

// PyTorch's own read the elements through a pointer before any kernel is asked for.
constexpr const char* kOnCpu[] = {"choose_qparams_optimized", "fbgemm_linear_quantize_weight"};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_tensor.tensors", "quantize_per_channel",
                           "quantize_per_tensor_dynamic"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&no_quantized_tensors>());
  for (const char* name : kOnCpu) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  m.impl("_fused_moving_avg_obs_fq_helper", torch::CppFunction::makeFromBoxedFunction<&observe_and_quantize>());
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  for (const char* name : kOnCpu) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_quantized_tensors>()); }

}  // namespace tt
