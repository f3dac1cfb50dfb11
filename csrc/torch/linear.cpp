// The derivative of linear. Below autograd it is one operator here, which PyTorch composes of t and addmm for other devices. PyTorch's
// formula for the one operator keeps input and weight whatever is asked for, so that a later write to either is refused and the inputs
// of frozen layers stay in memory; it is wrong for complex numbers and has no forward mode. This one keeps what others keep.
#include <ATen/ops/linear.h>
#include <ATen/ops/linear_backward.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/linear_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

namespace tt {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

Tensor as_rows(const Tensor& x) { return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2); }

struct LinearBackward final : torch::autograd::Node {
  SavedVariable input, weight;  // each only where the other has a gradient

  std::string name() const override { return "LinearBackward0"; }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Tensor& grad = grads[0];
    variable_list out(3);
    if (!grad.defined()) return out;
    const std::array<bool, 3> wanted{task_should_compute_output(0), task_should_compute_output(1), task_should_compute_output(2)};
    if (wanted[0] && wanted[1]) {
      std::tie(out[0], out[1], out[2]) = at::linear_backward(input.unpack(), grad, weight.unpack(), wanted);
      return out;
    }
    if (wanted[0]) out[0] = at::linear(grad, weight.unpack().t());
    if (wanted[1]) out[1] = as_rows(grad).t().mm(as_rows(input.unpack()));
    if (wanted[2]) out[2] = as_rows(grad).sum(0);
    return out;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    input.reset_data();
    weight.reset_data();
  }

  // Compiled autograd: what the node depends on, and apply on stand-ins for it.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(input, false);
    args.collect(weight, false);
  }
  variable_list apply_with_saved(const variable_list& grads, torch::dynamo::autograd::SwapSavedVariables& saved) override {
    saved.before(input);
    saved.before(weight);
    variable_list out = apply(variable_list(grads));
    saved.after(input);
    saved.after(weight);
    return out;
  }
};

// What the formulas above are for: real matrices, and a number of bias for each column.
bool is_plain(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  using torch::autograd::isFwGradDefined;
  return input.layout() == at::kStrided && weight.layout() == at::kStrided && !input.is_complex() && weight.dim() == 2 &&
         (!bias.defined() || bias.dim() <= 1) && !isFwGradDefined(input) && !isFwGradDefined(weight) && !isFwGradDefined(bias);
}

Tensor linear(c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight, const std::optional<Tensor>& given_bias) {
  static const Tensor none;
  const Tensor& bias = given_bias ? *given_bias : none;
  if (!is_plain(input, weight, bias)) return at::native::linear(input, weight, given_bias);
  c10::intrusive_ptr<LinearBackward> node;
  if (torch::autograd::compute_requires_grad(input, weight, bias)) {
    node = c10::make_intrusive<LinearBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
    if (node->should_compute_output(1)) node->input = SavedVariable(input, false);
    if (node->should_compute_output(0)) node->weight = SavedVariable(weight, false);
  }
  Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    result = at::_ops::linear::redispatch(keys & c10::after_autograd_keyset, input, weight, given_bias);
  }
  if (node) torch::autograd::set_history(result, node);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("linear", linear); }

}  // namespace tt
