"""Nested tensors: the jagged layout, and what attention needs of the strided one, as on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

PARTS = [torch.randn(n, 8, generator=torch.Generator().manual_seed(n)) for n in (3, 5, 1)]


def jagged(device, grad=False):
    return torch.nested.nested_tensor([t.to(device) for t in PARTS], layout=torch.jagged, requires_grad=grad)


def attention(device):
    x = jagged(device, True)
    q = x.unflatten(-1, [2, 4]).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2)
    out.values().pow(2).sum().backward()
    return [out.values(), x.grad.values()]


def feed_forward(device):
    x, w = jagged(device, True), torch.full((4, 8), 0.3, device=device, requires_grad=True)
    out = F.gelu(F.linear(F.layer_norm(x, (8,)), w))
    out.values().pow(2).sum().backward()
    return [out.values(), x.grad.values(), w.grad]


def padded(device):
    x = jagged(device, True)
    dense = x.to_padded_tensor(0.5)
    (dense * dense).sum().backward()
    return [dense, x.grad.values()]


def strided(device):
    x = torch.nested.nested_tensor([t.to(device) for t in PARTS])
    return [*x.unbind(), *torch.softmax(x, -1).unbind(), *(x * 2).unbind(), x.to_padded_tensor(0.0), *F.linear(x, torch.ones(4, 8, device=device)).unbind()]


CASES = {
    "values": lambda d: [jagged(d).values(), jagged(d).offsets()],
    "unbind": lambda d: list(jagged(d).unbind()),
    "moved": lambda d: [jagged("cpu").to(d).values(), jagged(d).cpu().values()],
    "from_jagged": lambda d: list(torch.nested.nested_tensor_from_jagged(torch.cat(PARTS).to(d), torch.tensor([0, 3, 8, 9]).to(d)).unbind()),
    "matmul": lambda d: [(jagged(d) @ torch.ones(8, 4, device=d)).values()],
    "softmax": lambda d: [F.softmax(jagged(d), -1).values(), F.softmax(jagged(d), 1).values()],
    "reduced": lambda d: [jagged(d).sum(1), jagged(d).mean(1), jagged(d).amax(1)],
    "attention": attention,
    "feed forward": feed_forward,
    "padded": padded,
    "strided": strided,
    "jagged from padding": lambda d: [torch.ops.aten._padded_dense_to_jagged_forward(torch.arange(90.0, device=d).reshape(3, 5, 6), [torch.tensor([0, 3, 8, 9], device=d)], n) for n in (9, None)],
    "jagged to padding": lambda d: [torch.ops.aten._jagged_to_padded_dense_forward(x.to(d), [torch.tensor(o, device=d)], [n], 0.5) for n in (2, 5) for x, o in ((torch.ones(9, 2), [0, 3, 8, 9]), (torch.ones(0, 2), [0, 0]), (torch.arange(4.0), [0, 0, 4]))],
    "from padding": lambda d: list(torch._nested_from_padded_and_nested_example(torch.arange(120.0, device=d).reshape(3, 5, 8), torch.nested.nested_tensor([t.to(d) for t in PARTS])).unbind()),
    "normalized": lambda d: list(F.layer_norm(torch.nested.nested_tensor([t.to(d) for t in PARTS]), (8,), torch.arange(8.0, device=d), torch.ones(8, device=d)).unbind()),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name):
    with torch.tpu.set_cpu_fallback("error"):
        assert_same(CASES[name]("tpu"), CASES[name]("cpu"), rtol=1e-5, atol=1e-5)


def test_what_strided_ones_cannot_do_says_so():
    x = torch.nested.nested_tensor([t.to("tpu") for t in PARTS])
    with pytest.raises(NotImplementedError, match=r"Use layout=torch\.jagged"):
        x.sum(-1)
