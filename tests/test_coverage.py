"""Every overload of ATen that has a kernel for the CPU runs on the device, or is listed here with a reason."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from conftest import DEVICE, assert_same

pytestmark = pytest.mark.usefixtures("native")

COMPOSED = "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"
OF_THE_CPU = "a kernel of the CPU's own, which only the CPU's operators call"
QUANTIZED = "quantized tensors are the CPU's: the device has fake quantisation and int8 products"
SPARSE = "sparse layouts: what isn't a product runs on the CPU"
TESTS = "PyTorch's tests of its dispatcher"
KNOWN = {
    "_make_dep_token": "a tensor in CPU memory by contract", "_functional_assert_async.msg": "with such a token",
    "from_file": "a file that is mapped into memory", "_nested_compute_contiguous_strides_offsets": "of sizes, which are in CPU memory",
    "_fused_sdp_choice": "attention has an entry of its own for devices like this one",
    **dict.fromkeys(("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward", "mkldnn_rnn_layer",
        "mkldnn_rnn_layer_backward", "to_mkldnn", "_cummax_helper", "_cummin_helper", "_compute_linear_combination", "_compute_linear_combination.out",
        "_transform_bias_rescale_qkv", "_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu", "_dyn_quant_matmul_4bit", "_dyn_quant_pack_4bit_weight",
        "_slow_conv2d_forward", "_slow_conv2d_forward.output", "_slow_conv2d_backward.grad_input", "_slow_conv2d_backward.output_mask", "slow_conv3d_forward",
        "slow_conv3d_forward.output", "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv_transpose2d.out", "slow_conv_transpose3d", "slow_conv_transpose3d.out"), OF_THE_CPU),
    **dict.fromkeys(("_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_make_per_channel_quantized_tensor", "_make_per_tensor_quantized_tensor", "dequantize.self",
        *(f"quantized_{cell}.{form}" for cell in ("gru", "lstm") for form in ("data", "data_legacy", "input", "input_legacy"))), QUANTIZED),
    **dict.fromkeys(("_spdiags", "_validate_compressed_sparse_indices", "sspaddmm.out"), SPARSE),
    "_scaled_mm_v2": "blocks of scales", "_scaled_mm_v2.out": "blocks of scales",
    **dict.fromkeys(("_foobar", "_test_functorch_fallback", "_test_optional_filled_intlist", "_test_optional_floatlist", "_test_optional_intlist"), TESTS),
}  # fmt: skip


def test_every_overload_of_the_cpus():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::") and has(n, "CPU")]
    missing = {n.removeprefix("aten::") for n in names if not any(has(n, key) for key in ("PrivateUse1", *COMPOSED))}
    assert not missing - KNOWN.keys()
    assert not KNOWN.keys() - missing, "these are there now: take them out"


def shifted(device):
    x = torch.arange(1, 7, device=device)
    x <<= 2
    x >>= torch.tensor(1, device=device)
    return x


def tangent(function, *shape):
    """The forward-mode derivative, at a place and in a direction that are the same on both devices."""
    def call(d):
        x, dx = (torch.linspace(-1, n, 24).reshape(shape).to(d) for n in (1, 2))
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(x, dx))).tangent

    return call




CASES = {
    "shifts in place": shifted,
    "mvlgamma_": lambda d: torch.linspace(3, 5, 4, device=d).mvlgamma_(2),
    "mvlgamma, out": lambda d: torch.mvlgamma(torch.linspace(3, 5, 4, device=d), 3, out=torch.empty(0, device=d)),
    "narrow_copy, out": lambda d: torch.ops.aten.narrow_copy.out(torch.arange(9, device=d), 0, 2, 3, out=torch.empty(0, dtype=torch.long, device=d)),
    "pooling, out": lambda d: torch.ops.aten.adaptive_avg_pool2d.out(torch.arange(16.0, device=d).reshape(1, 4, 4), [2, 2], out=torch.empty(0, device=d)),
    "add_relu": lambda d: torch.ops.aten._add_relu.Tensor(torch.linspace(-1, 1, 5, device=d), torch.ones(5, device=d), alpha=0.5),
    "glu, forward mode": tangent(torch.nn.functional.glu, 4, 6),
    "glu's gradient, forward mode": tangent(lambda x: torch.ops.aten.glu_backward(x[:, :3] * 2, x, 1), 4, 6),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name):
    assert_same(CASES[name](DEVICE), CASES[name]("cpu"))
