"""Fake quantisation: values, masks, gradients and observers are the CPU's."""

import pytest
import torch
from conftest import assert_same, check, to_device


pytestmark = pytest.mark.usefixtures("native")


FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPECIAL = torch.tensor([0.05, 0.15, 0.25, -0.35, 300.0, -300, float("inf"), -float("inf"), float("nan")])


def numbers(dtype):
    return torch.cat([torch.randn(19) * 8, SPECIAL]).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_per_tensor(dtype):
    x = numbers(dtype)
    for scale, zero_point, low, high in ((0.1, 0, -128, 127), (0.3, 100, 0, 255), (1.0, -3, -8, 7)):
        check(lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, scale, zero_point, low, high), x)
        check(lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, low, high), x, torch.tensor([scale]),
              torch.tensor([zero_point], dtype=torch.int32))
        for on in (0, 1):
            check(lambda x, s, z, e: torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, s, z, e, low, high),
                  x, torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int32), torch.tensor([on]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("points", [torch.int32, torch.float32])
def test_per_channel(dtype, points):
    x = numbers(dtype).view(4, 7)
    for axis in (0, 1):
        scale = torch.rand(x.size(axis)) + 0.1
        zero_point = torch.randint(-5, 5, (x.size(axis),)).to(points)
        check(lambda x, s, z: torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x, s, z, axis, -128, 127), x, scale, zero_point)


def gradients(function, *args):
    args = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
    out = function(*args)
    given = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape)
    inputs = [a for a in args if a.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, inputs, given, allow_unused=True)]


def test_gradients():
    x = numbers(torch.float32)[:24]
    check(lambda x: gradients(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), x), x)
    scale, zero_point = torch.tensor([0.2]), torch.tensor([1.0])
    learned = torch._fake_quantize_learnable_per_tensor_affine
    check(lambda *a: gradients(lambda x, s, z: learned(x, s, z, -16, 15, 0.5), *a), x, scale, zero_point)
    x = x.view(4, 6)
    scale, zero_point = torch.rand(6) + 0.1, torch.randn(6) * 3
    learned = torch._fake_quantize_learnable_per_channel_affine
    check(lambda *a: gradients(lambda x, s, z: learned(x, s, z, 1, -16, 15, 0.5), *a), x, scale, zero_point)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_observer(symmetric, per_row):
    rows = 3 if per_row else 1
    if per_row:  # buffers that are empty take their size at the first call
        check(lambda x, on, *state: torch.fused_moving_avg_obs_fake_quant(x, on, on, *state, 0.1, -128, 127, 0, True, symmetric),
              torch.randn(3, 8), torch.tensor([1]), *(torch.tensor([]) for _ in range(3)), torch.tensor([], dtype=torch.int32))
    state = [torch.full((rows,), float("inf")), torch.full((rows,), -float("inf")), torch.ones(rows), torch.zeros(rows, dtype=torch.int32)]
    device = to_device(state)
    for scale, observe, quantize in ((1.0, 1, 1), (3.0, 1, 0), (1e-6, 1, 1), (0.0, 1, 1), (2.0, 0, 1)):
        x = torch.randn(3, 8) * scale + scale
        results = []
        for tensors in (state, device):
            on = [torch.tensor([flag], device=tensors[0].device) for flag in (observe, quantize)]
            results.append(torch.fused_moving_avg_obs_fake_quant(x.to(tensors[0].device), *on, *tensors, 0.1, 0, 255, 0, per_row, symmetric))
        assert_same(results[1], results[0])
        assert_same(device, state)


def test_what_the_cpu_refuses():
    x = torch.randn(3).to("tpu")
    with pytest.raises(RuntimeError, match="zero_point"):
        torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)
    with pytest.raises(RuntimeError, match="quant_min"):
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 10, 5)
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        torch.fake_quantize_per_tensor_affine(x.long(), 0.1, 0, 0, 255)


# ---- integers and scales as plain tensors -------------------------------------------------------------------------------


def integers(*shape):
    return torch.randint(-128, 127, shape, dtype=torch.int8)


def test_products_of_narrow_types():
    check(torch._int_mm, integers(32, 32), integers(32, 16))
    scales = torch.tensor(0.5), torch.tensor(2.0)
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    for dtype in (torch.float32, torch.bfloat16):
        check(lambda a, b, s, t: torch._scaled_mm(a, b.t(), s, t, out_dtype=dtype), a, b, *scales)
    check(lambda a, b, s, t: torch._scaled_mm(a, b.t(), s, t, out_dtype=torch.bfloat16), a, b, torch.rand(16, 1), torch.rand(1, 16))
    check(lambda a, b, s, t, c: torch._scaled_mm(a, b.t(), s, t, bias=c, out_dtype=torch.bfloat16), a, b, *scales, torch.randn(16).bfloat16())
    x = torch.randn(4, 32).bfloat16()
    check(torch._weight_int8pack_mm, x, integers(16, 32), torch.rand(16).bfloat16(), rtol=2e-2, atol=2e-1)


def test_choosing_scales():
    with torch.tpu.set_cpu_fallback("silent"):
        x = torch.randn(64)
        assert torch._choose_qparams_per_tensor(x.to("tpu")) == torch._choose_qparams_per_tensor(x)
        check(lambda x: torch.choose_qparams_optimized(x, 64, 200, 0.16, 8), x)


def test_quantized_tensors_are_refused_in_so_many_words():
    x = torch.randn(3, 4)
    for attempt in (lambda: torch.quantize_per_tensor(x.to("tpu"), 0.1, 0, torch.qint8),
                    lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).to("tpu"),
                    lambda: torch._empty_affine_quantized((2,), scale=0.1, zero_point=0, dtype=torch.qint8, device="tpu")):
        with pytest.raises(NotImplementedError, match="can't be on device tpu"):
            attempt()
