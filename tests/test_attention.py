"""nn.MultiheadAttention and nn.TransformerEncoder in evaluation, where they call kernels of their own, as on the CPU."""

import copy

import pytest
import torch
from conftest import assert_same

pytestmark = pytest.mark.usefixtures("native")

B, L, D, H = 3, 5, 8, 2
PADDING = torch.arange(L) >= torch.tensor([3, 5, 4])[:, None]
CAUSAL = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)


def both(module, *given, **named):
    """The results of the module on each device, without gradients."""
    there = copy.deepcopy(module).to("tpu")
    known = {}

    def moved(t):
        return known.setdefault(id(t), t.to("tpu")) if isinstance(t, torch.Tensor) else t

    with torch.no_grad():
        return there(*map(moved, given), **{k: moved(v) for k, v in named.items()}), module(*given, **named)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("named", [
    {}, {"need_weights": False}, {"average_attn_weights": False}, {"key_padding_mask": PADDING}, {"attn_mask": CAUSAL},
    {"key_padding_mask": PADDING, "attn_mask": CAUSAL, "need_weights": False}, {"attn_mask": CAUSAL.expand(B * H, L, L)},
], ids=lambda n: "+".join(n) or "plain")  # fmt: skip
def test_multihead_attention(named, dtype):
    module = torch.nn.MultiheadAttention(D, H, batch_first=True).eval().to(dtype)
    x, other = torch.randn(B, L, D).to(dtype), torch.randn(B, L, D).to(dtype)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for given in ((x, x, x), (x, other, other), (x, other, x)):
        assert_same(*both(module, *given, **named), **tolerance)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("mask", [{}, {"src_key_padding_mask": PADDING}, {"mask": CAUSAL}], ids=lambda m: "+".join(m) or "plain")
def test_transformer_encoder(mask, activation, norm_first):
    """With padding and the norm behind, the layers see nested tensors; what was padded comes out as zeros."""
    layer = torch.nn.TransformerEncoderLayer(D, H, 16, activation=activation, batch_first=True, norm_first=norm_first)
    encoder = torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(D), enable_nested_tensor=not norm_first).eval()
    assert_same(*both(encoder, torch.randn(B, L, D), **mask), rtol=1e-5, atol=1e-5)


def test_attention_refuses_what_the_cpu_refuses():
    def call(device, width=D, heads=H, rows=3 * D):
        x = torch.ones(B, L, D, device=device)
        w, b = torch.ones(rows, D, device=device), torch.ones(rows, device=device)
        return torch._native_multi_head_attention(x, x, x, width, heads, w, b, torch.ones(D, D, device=device), b[:D])

    for wrong in ({"width": 4}, {"heads": 3}, {"rows": 5}):
        with pytest.raises(RuntimeError) as expected:
            call("cpu", **wrong)
        with pytest.raises(RuntimeError) as actual:
            call("tpu", **wrong)
        assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]
    with pytest.raises(RuntimeError, match="left-aligned|left aligned"):
        torch._nested_tensor_from_mask(torch.ones(1, 3, D, device="tpu"), torch.tensor([[False, True, True]], device="tpu"))
