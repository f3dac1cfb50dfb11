// Operators without a row run on the CPU, with one warning each that names them. They are counted.
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "torch/device.h"
#include "torch/kernel.h"

extern "C" {
#include "base/env.h"
}

namespace tt {
namespace {

std::mutex lock;
std::unordered_map<std::string, uint64_t> counts;

Fallback from_environment() {
  const std::string mode = tt_env_string(TT_ENV_TORCH_TPU_CPU_FALLBACK);
  return mode == "error" ? Fallback::Error : mode == "silent" ? Fallback::Silent : Fallback::Warn;
}
std::atomic<Fallback>& mode() {
  static std::atomic<Fallback> m{from_environment()};
  return m;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note_fallback(op);
  at::native::cpu_fallback(op, stack);
}

}  // namespace

void note_fallback(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallback_mode() != Fallback::Error, "operator '", name,
      "' is not implemented for device tpu. It can run on the CPU instead: set TORCH_TPU_CPU_FALLBACK=warn or silent");
  bool first = false;
  {
    std::lock_guard<std::mutex> guard(lock);
    first = counts[name]++ == 0;
  }
  if (first && fallback_mode() == Fallback::Warn)
    TORCH_WARN("<TorchTpu/Performance/> operator '", name, "' has no TPU lowering and runs on the CPU. "
               "TORCH_TPU_CPU_FALLBACK=silent hides this, =error raises instead.");
}

std::vector<std::pair<std::string, uint64_t>> fallback_counts() {
  std::lock_guard<std::mutex> guard(lock);
  return {counts.begin(), counts.end()};
}
void reset_fallback_counts() {
  std::lock_guard<std::mutex> guard(lock);
  counts.clear();
}
Fallback fallback_mode() { return mode(); }
void set_fallback_mode(Fallback m) { mode() = m; }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace tt
