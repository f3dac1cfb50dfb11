#include "torch/precision.h"

#include <ATen/Context.h>
#include <ATen/ThreadLocalPythonObjects.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/python_headers.h>

#include <atomic>
#include <mutex>

extern "C" {
#include "hlo/hlo.h"
}

namespace tt {
namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

// ---- the context -------------------------------------------------------------------------------------------------

// PyTorch carries these objects to the threads of the autograd engine. Ours is the small int that Python keeps one of.
const std::string kContext = "tpu_precision";
std::atomic<bool> context_used{false};  // by any thread, ever: until then nothing needs to be looked up

// ---- settings ----------------------------------------------------------------------------------------------------

struct Setting {
  const char* op;
  std::atomic<Float32Precision> value;
};
Setting settings[] = {{"all", Float32Precision::NONE}, {"matmul", Float32Precision::NONE}, {"conv", Float32Precision::NONE}};

Setting& setting(const std::string& op) {
  for (Setting& s : settings)
    if (op == s.op) return s;
  C10_THROW_ERROR(ValueError, "torch.backends.tpu has no fp32_precision for '" + op + "'");
}

// -1: says nothing.
int precision_from(Float32Precision p) {
  switch (p) {
    case Float32Precision::IEEE: return HLO_PRECISION_HIGHEST;
    case Float32Precision::TF32: return HLO_PRECISION_HIGH;
    case Float32Precision::BF16: return HLO_PRECISION_DEFAULT;
    default: return -1;
  }
}

// PyTorch's own default, "highest", is not a wish: only a call of torch.set_float32_matmul_precision is, and that writes the
// settings of two backends. What was set for one backend alone says nothing of ours.
int precision_from_pytorch() {
  const at::Context& context = at::globalContext();
  const auto cuda = context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL);
  const auto mkldnn = context.float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL);
  if (cuda == mkldnn && cuda != Float32Precision::BF16) {
    if (const int p = precision_from(cuda); p >= 0) return p;
  } else if (cuda == Float32Precision::TF32 && mkldnn == Float32Precision::BF16) {
    return HLO_PRECISION_DEFAULT;
  }
  return precision_from(context.float32Precision(Float32Backend::GENERIC, Float32Op::ALL));
}

}  // namespace

void warn_of_passes(int precision) {
  static std::once_flag high, highest;
  if (precision != HLO_PRECISION_HIGH && precision != HLO_PRECISION_HIGHEST) return;
  const bool is_high = precision == HLO_PRECISION_HIGH;
  std::call_once(is_high ? high : highest, [&] {
    TORCH_WARN("<TorchTpu/Performance/> float32 products at precision \"", is_high ? "high" : "highest", "\" take ",
               is_high ? 3 : 6, " passes of a TPU's matrix unit instead of 1. If bfloat16 products are exact enough, leave "
               "torch.tpu.precision at \"default\", or call torch.set_float32_matmul_precision(\"medium\").");
  });
}

int context_precision() {
  using at::impl::ThreadLocalPythonObjects;
  if (!context_used.load(std::memory_order_relaxed) || !ThreadLocalPythonObjects::contains(kContext)) return -1;
  const PyObject* number = ThreadLocalPythonObjects::get(kContext)->ptr(getPyInterpreter());
  static PyObject* const numbers[] = {PyLong_FromLong(0), PyLong_FromLong(1), PyLong_FromLong(2)};
  for (int p = 0; p < 3; p++)
    if (number == numbers[p]) return p;
  return -1;
}

void set_context_precision(int precision) {
  using at::impl::ThreadLocalPythonObjects;
  if (precision < 0) return ThreadLocalPythonObjects::erase(kContext);
  TORCH_CHECK_VALUE(precision <= HLO_PRECISION_HIGHEST, "precision: expected 0, 1 or 2, got ", precision);
  context_used = true;
  ThreadLocalPythonObjects::set(kContext, std::make_shared<c10::SafePyObject>(PyLong_FromLong(precision), getPyInterpreter()));
}

int precision_of(Product product) {
  int p = context_precision();
  if (p < 0) p = precision_from(settings[product == Product::Matmul ? 1 : 2].value);
  if (p < 0) p = precision_from(settings[0].value);
  if (p < 0) p = precision_from_pytorch();
  if (p < 0) p = HLO_PRECISION_DEFAULT;
  warn_of_passes(p);
  return p;
}

std::string backend_precision(const std::string& op) { return at::precision2str(setting(op).value); }

void set_backend_precision(const std::string& op, const std::string& value) {
  TORCH_CHECK_VALUE(value == "none" || value == "ieee" || value == "tf32" || value == "bf16",
                    "fp32_precision: expected 'none', 'ieee', 'tf32' or 'bf16', got '", value, "'");
  setting(op).value = at::str2precision(value);
}

}  // namespace tt
