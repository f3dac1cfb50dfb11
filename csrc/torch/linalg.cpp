// Factorisations that fail say so at the call, as on other devices, since callers catch it (and add to the diagonal, say). So these
// overloads look at their info codes once the row has run. In a capture there is nothing to look at: the row's own check stays.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_check_errors_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <torch/library.h>

#include "torch/device.h"
#include "torch/kernel.h"
#include "torch/typed.h"

extern "C" {
#include "eager/graph.h"
}

namespace tt {
namespace {

// The overload of a factorisation whose last result is info.
struct Checked final : c10::OperatorKernel {
  const char *name, *api;  // of the overload; what messages call it
  Checked(const char* overload, const char* words) : name(overload), api(words) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) const {
    const auto& arguments = op.schema().arguments();
    c10::IValue& flag = (*stack)[stack->size() - arguments.size() + static_cast<size_t>(*op.schema().argumentIndexWithName("check_errors"))];
    const bool check = flag.toBool() && !tt_capture_current();
    if (check) flag = false;
    binding_behind(name).run_boxed(stack);
    if (!check) return;
    const at::Tensor info = stack->back().toTensor();
    at::_linalg_check_errors(info, api, info.dim() == 0);
  }
};

void check_errors(const at::Tensor& info, c10::string_view api, bool is_matrix) {
  static const Typed<std::tuple<>(const at::Tensor&, c10::string_view, bool)> kernel(binding_behind("_linalg_check_errors"));
  if (tt_capture_current()) kernel(info, api, is_matrix);
  else at::compositeexplicitautograd::_linalg_check_errors(info, api, is_matrix);
}

at::Tensor cholesky(const at::Tensor& self, bool upper) {
  static const Typed<at::Tensor(const at::Tensor&, bool)> kernel(binding_behind("cholesky"));
  if (tt_capture_current()) return kernel(self, upper);
  auto [factor, info] = at::linalg_cholesky_ex(self, upper, /*check_errors=*/false);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  const auto checked = [&m](const char* name, const char* api) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Checked>(name, api)));
  };
  checked("linalg_cholesky_ex", "linalg.cholesky_ex");
  checked("linalg_cholesky_ex.L", "linalg.cholesky_ex");
  checked("linalg_inv_ex", "linalg.inv_ex");
  checked("linalg_inv_ex.inverse", "linalg.inv_ex");
  checked("linalg_lu_factor_ex", "torch.linalg.lu_factor_ex");
  checked("linalg_lu_factor_ex.out", "torch.linalg.lu_factor_ex");
  checked("linalg_ldl_factor_ex", "torch.linalg.ldl_factor_ex");
  checked("linalg_ldl_factor_ex.out", "torch.linalg.ldl_factor_ex");
  checked("_linalg_solve_ex", "torch.linalg.solve_ex");
  checked("_linalg_solve_ex.result", "torch.linalg.solve_ex");
  m.impl("_linalg_check_errors", check_errors);
  m.impl("cholesky", cholesky);
}

}  // namespace tt
