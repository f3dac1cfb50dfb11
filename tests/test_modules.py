"""Modules that move: shared weights, gradients, buffers and optimizers go along, in every setting that PyTorch has for it."""

import copy

import pytest
import torch
from conftest import DEVICE
from torch import nn

SETTINGS = [(False, False), (False, True), (True, True)]  # (True, False) makes new parameters everywhere: none stays shared


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.emb.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("positions", torch.arange(4.0))

    def forward(self, i):
        return self.head(self.norm(self.emb(i)) + self.positions)

    def is_tied(self):
        return self.head.weight is self.emb.weight and len(list(self.parameters())) == 3


@pytest.fixture(params=SETTINGS, ids=str)
def setting(request):
    overwrite, swap = request.param
    torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
    torch.__future__.set_swap_module_params_on_conversion(swap)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)
    torch.__future__.set_swap_module_params_on_conversion(False)


def devices(module):
    return {t.device.type for t in [*module.parameters(), *module.buffers()]}


def test_shared_weights_stay_shared(setting):
    m = Tied()
    for move in (lambda: m.to(DEVICE), lambda: m.half(), lambda: m.float().cpu(), lambda: m.tpu(), lambda: m.to_empty(device=DEVICE)):
        move()
        assert m.is_tied() and len(devices(m)) == 1
    assert devices(m) == {"tpu"}


def test_parameters_stay_the_ones_of_the_optimizer(setting):
    m, x = Tied(), torch.tensor([1, 2, 5])
    reference = copy.deepcopy(m)
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.5, momentum=0.9) for n in (m, reference)]
    m.emb.weight.grad, reference.emb.weight.grad = torch.ones(7, 4), torch.ones(7, 4)
    names = [id(p) for p in m.parameters()]
    m.to(DEVICE)
    assert [id(p) for p in m.parameters()] == names and m.emb.weight.grad.is_tpu
    for _ in range(2):
        for n, optimizer, i in zip((m, reference), optimizers, (x.to(DEVICE), x), strict=True):
            n(i).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(m.emb.weight.cpu(), reference.emb.weight, rtol=1e-4, atol=1e-4)


def test_copies_and_contexts():
    m = Tied().to(DEVICE)
    n = copy.deepcopy(m)
    assert n.is_tied() and devices(n) == {"tpu"} and n.emb.weight is not m.emb.weight
    with torch.device(DEVICE):
        assert devices(Tied()) == {"tpu"} and Tied().is_tied()
    with torch.device("meta"):
        empty = Tied()
    empty.load_state_dict(m.state_dict(), assign=True)
    assert devices(empty) == {"tpu"} and torch.equal(empty.head.weight, m.head.weight)


@pytest.mark.parametrize("made", ["orthogonal", "weight_norm", "spectral_norm"])
def test_parametrizations(made):
    layer = getattr(nn.utils.parametrizations, made)(nn.Linear(3, 3)).to(DEVICE).eval()
    reference, x = copy.deepcopy(layer).cpu(), torch.randn(2, 3)
    torch.testing.assert_close(layer(x.to(DEVICE)).cpu(), reference(x), rtol=1e-4, atol=1e-4)
    layer(x.to(DEVICE)).sum().backward()
    reference(x).sum().backward()
    for p, q in zip(layer.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-4)


def test_tensors_of_two_devices_are_swapped():
    here, there = torch.zeros(2), torch.ones(2, device=DEVICE)
    torch.utils.swap_tensors(here, there)
    assert here.is_tpu and here.tolist() == [1, 1] and there.device.type == "cpu" and there.tolist() == [0, 0]


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = torch.utils._pytree.tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Wrapper, function(*args, **kwargs))


def test_wrapped_weights_move():
    x = Wrapper(torch.arange(6.0, device=DEVICE).view(2, 3))
    assert (x @ x.t()).relu().to("cpu").inner.tolist() == [[5, 14], [14, 50]]
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(Wrapper(layer.weight.detach()))
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.to(DEVICE)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert layer.weight.inner.is_tpu and layer(x).inner.is_tpu


def test_modes_see_every_operator():
    seen = []

    class Seeing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function._schema.name)
            return function(*args, **(kwargs or {}))

    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with Seeing():
        (x * 2).sin().sum().backward()
    assert {"aten::mul", "aten::sin", "aten::sum", "aten::cos"} <= set(seen) and x.grad.is_tpu
