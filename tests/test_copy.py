"""Data gets to the device and back unchanged, whatever its dtype and layout."""

import copy

import numpy
import pytest
import torch
from conftest import DEVICE, assert_same, check

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


def sample(dtype, *shape):
    if dtype == torch.bool:
        return torch.randint(2, shape).bool()
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0, 100, shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 3), (2, 3, 4, 5)])
def test_round_trip(dtype, shape):
    x = sample(dtype, *shape)
    there = x.to(DEVICE)
    back = there.cpu()
    assert there.device == torch.device("tpu:0") and there.dtype == dtype and there.shape == x.shape
    assert back.dtype == dtype and back.stride() == x.stride()
    view = torch.uint8 if dtype.itemsize == 1 and dtype != torch.bool else dtype
    assert torch.equal(back.view(view), x.view(view))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_layouts_survive(dtype):
    x = sample(dtype, 4, 5, 6)
    for view in (x.permute(2, 0, 1), x[1:3], x[:, ::2], x[..., 2], x.transpose(0, 2)[1:], x.expand(3, 4, 5, 6)):
        there = view.to(DEVICE)
        assert there.stride() == view.to("cpu", copy=True).stride()
        assert torch.equal(there.cpu(), view)
        there = x.to(DEVICE)
    assert torch.equal(x.to(DEVICE).permute(2, 0, 1)[1:, ::2].cpu(), x.permute(2, 0, 1)[1:, ::2])


@pytest.mark.parametrize("source", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
@pytest.mark.parametrize("target", [torch.float64, torch.int8, torch.bool, torch.float16, torch.complex64])
def test_copy_converts(source, target):
    x = sample(source, 3, 4)
    expected = torch.zeros(3, 4, dtype=target).copy_(x)
    assert torch.equal(torch.zeros(3, 4, dtype=target, device=DEVICE).copy_(x).cpu(), expected)
    assert torch.equal(torch.zeros(3, 4, dtype=target).copy_(x.to(DEVICE)), expected)
    assert torch.equal(x.to(DEVICE).to(target).cpu(), expected)
    assert torch.equal(x.to(DEVICE, target).cpu(), expected)


def test_copy_into_views_and_broadcast():
    def write(x, y, row):
        x = x.clone()
        x[1:3, ::2].copy_(y)
        x.t()[4].copy_(row)
        x[0] = 7
        return x

    check(write, torch.randn(4, 6), torch.randn(2, 3), torch.randn(4))


def test_copy_from_the_cpu_into_a_view():
    x = torch.zeros(4, 4, device=DEVICE)
    x[:, 1].copy_(torch.arange(4.0))
    x[2, 2:] = torch.tensor([8.0, 9.0])
    assert x.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 8, 9], [0, 3, 0, 0]]
    out = torch.zeros(4)
    out.copy_(x[2])
    assert out.tolist() == [0, 2, 8, 9]


def test_a_copy_is_a_snapshot():
    source = torch.ones(1000)
    there = source.to(DEVICE, non_blocking=True)
    source.zero_()
    assert there.sum().item() == 1000
    back = there.cpu()
    there.zero_()
    assert back.sum().item() == 1000
    back.fill_(3)
    assert there.sum().item() == 0


def test_same_device_is_no_copy():
    x = torch.ones(3, device=DEVICE)
    assert x.to(DEVICE) is x and x.to("tpu:0") is x and x.tpu() is x
    y = x.to(DEVICE, copy=True)
    y.add_(1)
    assert x.sum().item() == 3


def test_deepcopy_and_clone():
    x = torch.randn(3, 4, device=DEVICE)
    for y in (copy.deepcopy(x), x.clone(), x.detach().clone()):
        y.zero_()
    assert x.abs().sum().item() > 0
    model = torch.nn.Linear(3, 2).to(DEVICE)
    twin = copy.deepcopy(model)
    assert_same(twin.weight, model.weight)
    assert twin.weight.data_ptr() != model.weight.data_ptr()


def test_python_values():
    x = torch.tensor([[1.5, -2.0]], device=DEVICE)
    assert x.tolist() == [[1.5, -2.0]] and x[0, 1].item() == -2.0 and float(x[0, 0]) == 1.5
    assert int(torch.tensor(7, device=DEVICE)) == 7 and bool(torch.tensor(True, device=DEVICE))
    assert repr(x) == "tensor([[ 1.5000, -2.0000]], device='tpu:0')"
    assert [v.item() for v in x[0]] == [1.5, -2.0]
    with pytest.raises(TypeError):
        x.numpy()
    assert numpy.array_equal(x.cpu().numpy(), numpy.array([[1.5, -2.0]], dtype=numpy.float32))
    assert torch.from_numpy(numpy.arange(3)).to(DEVICE).tolist() == [0, 1, 2]


def test_modules_move_with_their_ties():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = torch.nn.Embedding(5, 3)
            self.outside = torch.nn.Linear(3, 5, bias=False)
            self.outside.weight = self.inside.weight
            self.register_buffer("count", torch.zeros(1))

    model = Tied()
    parameters = list(model.parameters())
    model.to(DEVICE)
    assert model.outside.weight is model.inside.weight and model.count.is_tpu
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert model.tpu().inside.weight.is_tpu and not model.cpu().inside.weight.is_tpu


def test_large_copies():
    x = torch.randn(3_000_001)
    assert torch.equal(x.to(DEVICE).cpu(), x)
