"""Gradients are the CPU's, through views, in-place operators, hooks, checkpoints and torch.func."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, assert_same, check, to_device
from torch import nn
from torch.utils.checkpoint import checkpoint


def gradients(function, *inputs):
    """The result and the gradients of its sum of squares."""
    inputs = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    result = function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    return [result.detach(), *torch.autograd.grad(result.square().sum(), wanted)]


FUNCTIONS = {
    "pointwise": (lambda x, y: (x * y).sigmoid() + x.exp() / (y.square() + 1), [(3, 4), (3, 4)]),
    "broadcast": (lambda x, y: x * y + y, [(3, 4), (4,)]),
    "matmul": (lambda x, y: x @ y, [(2, 3, 4), (4, 5)]),
    "softmax": (lambda x: x.softmax(-1).log(), [(3, 5)]),
    "views": (lambda x: x.t()[1:].reshape(-1)[::2].unfold(0, 2, 1), [(4, 6)]),
    "cat and split": (lambda x, y: torch.cat([a * 2 for a in torch.cat([x, y]).split(2)]), [(3, 2), (3, 2)]),
    "gather": (lambda x: x.gather(1, torch.tensor([[0, 2], [1, 1]], device=x.device)), [(2, 3)]),
    "index": (lambda x: x[torch.tensor([0, 0, 2], device=x.device)], [(3, 4)]),
    "norms": (lambda x: F.layer_norm(x, (6,)) + F.group_norm(x[None], 2)[0], [(4, 6)]),
    "conv": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), [(2, 3, 8, 8), (4, 3, 3, 3), (4,)]),
    "conv transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(1, 3, 4, 4), (3, 2, 3, 3)]),
    "max pool": (lambda x: F.max_pool2d(x, 2), [(2, 3, 6, 6)]),
    "average pool": (lambda x: F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 3), [(2, 3, 6, 6)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 2, 5, 4)] * 3),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2], device=x.device), reduction="none"), [(3, 4)]),
    "reductions": (lambda x: x.var(0) + x.mean(0) + x.amax(0) + x.logsumexp(0) + x.prod(0), [(4, 3)]),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.leaky_relu(x), [(5,)]),
    "where": (lambda x, y: torch.where(x > 0, x, y).clamp(-0.5, 0.5), [(8,), (8,)]),
    "cumsum": (lambda x: x.cumsum(0).flip(0).roll(1), [(6,)]),
    "sort": (lambda x: x.sort(descending=True).values * torch.arange(6.0, device=x.device), [(6,)]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), [(2, 3, 4), (2, 4, 5)]),
    "in place": (lambda x: (x * 2).add_(1).mul_(x).relu_(), [(5,)]),
    "write into a view": (lambda x, y: _write_into_view(x, y), [(4, 4), (2,)]),
}


def _write_into_view(x, y):
    z = x * 2
    z[1:3, 1] = y
    z.diagonal().mul_(3)
    return z


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function, shapes = FUNCTIONS[name]
    check(lambda *inputs: gradients(function, *inputs), *[torch.randn(s) for s in shapes], rtol=1e-4, atol=1e-5)


def test_gradcheck_in_double():
    x = torch.randn(3, 4, dtype=torch.float64, device=DEVICE, requires_grad=True)
    w = torch.randn(4, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: (x @ w).tanh().softmax(-1), (x, w))


def test_second_derivatives():
    def second(x):
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad((x**3).sin().sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    check(second, torch.randn(5), rtol=1e-4, atol=1e-4)


def test_accumulation_hooks_and_retained_graphs():
    def run(x):
        x = x.detach().requires_grad_()
        seen = []
        x.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        y = (x * 3).sum()
        y.backward(retain_graph=True)
        y.backward()
        return [x.grad, *seen]

    check(run, torch.randn(4))


def test_modifying_what_backward_needs_is_refused():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_gradient_of_the_wrong_device_is_refused():
    y = torch.ones(3, device=DEVICE, requires_grad=True) * 2
    with pytest.raises(RuntimeError):
        y.backward(torch.ones(3))


def test_custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    check(lambda x: gradients(Cube.apply, x), torch.randn(4))


def test_no_grad_inference_mode_and_detach():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        assert (x * 2).is_inference()
    y = x.detach()
    assert not y.requires_grad and y.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_repeats_dropout(reentrant):
    torch.manual_seed(1)
    block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).to(DEVICE)
    x = torch.randn(4, 8).to(DEVICE).requires_grad_()

    def run(function):
        torch.manual_seed(7)
        x.grad = None
        block.zero_grad()
        result = function()
        result.sum().backward()
        return [result.detach().cpu(), x.grad.cpu(), block[0].weight.grad.cpu()]

    plain = run(lambda: block(x))
    again = run(lambda: checkpoint(block, x, use_reentrant=reentrant))
    for a, b in zip(plain, again):
        torch.testing.assert_close(a, b)


def test_saved_tensors_on_cpu():
    def run(x):
        x = x.detach().requires_grad_()
        with torch.autograd.graph.save_on_cpu():
            y = (x.exp() * x).sum()
        y.backward()
        return x.grad

    check(run, torch.randn(5))


def test_torch_func():
    def loss(w, x):
        return (x @ w).tanh().sum()

    w, x = torch.randn(3, 2), torch.randn(5, 3)
    check(lambda w, x: torch.func.grad(loss)(w, x), w, x, rtol=1e-4, atol=1e-5)
    check(lambda w, x: torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x), w, x, rtol=1e-4, atol=1e-5)
    check(lambda w, x: torch.func.jacrev(lambda w: x @ w)(w), w, x, rtol=1e-4, atol=1e-5)
    check(lambda w, x: torch.func.jvp(lambda w: loss(w, x), (w,), (w,))[1], w, x, rtol=1e-4, atol=1e-5)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)), torch.randn(5, 6)),
    "convolutional": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)),
        torch.randn(4, 3, 8, 8),
    ),
    "transformer": lambda: (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), torch.randn(2, 5, 16)),
    "lstm": lambda: (FirstOutput(nn.LSTM(4, 8, batch_first=True)), torch.randn(2, 5, 4)),
}


class FirstOutput(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    torch.manual_seed(0)
    reference, x = MODELS[name]()
    model = copy.deepcopy(reference)
    model.to(DEVICE)
    actual = model(to_device(x))
    reference_result = reference(x)
    actual.square().mean().backward()
    reference_result.square().mean().backward()
    assert_same(actual, reference_result, rtol=1e-4, atol=1e-5)
    for (n, p), (_, q) in zip(model.named_parameters(), reference.named_parameters()):
        assert p.grad.is_tpu, n
        assert_same(p.grad, q.grad, rtol=1e-3, atol=1e-5)
    for (n, b), (_, c) in zip(model.named_buffers(), reference.named_buffers()):
        assert_same(b, c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("leading", [(), (2,), (2, 4)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_with_a_vector_as_weight(leading, bias):
    def gradients(device):
        torch.manual_seed(0)
        inputs = [torch.randn(*leading, 3), torch.randn(3)]
        if bias and len(leading) != 1:  # the CPU refuses it for matrices
            inputs.append(torch.randn(()))
        inputs = [t.to(device).requires_grad_() for t in inputs]
        result = torch.nn.functional.linear(*inputs)
        return result, torch.autograd.grad(result.square().sum(), inputs)

    assert_same(gradients("tpu"), gradients("cpu"))


@pytest.mark.parametrize("asking", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0)])
@pytest.mark.parametrize("written", [None, 0, 1, 2])
def test_linear_keeps_only_what_its_gradients_need(asking, written):
    def gradients(device):
        torch.manual_seed(0)
        inputs = [torch.randn(2, 4, 3), torch.randn(5, 3), torch.randn(5)]
        inputs = [(t.to(device).requires_grad_() if asks else t.to(device)) for t, asks in zip(inputs, asking, strict=True)]
        result = torch.nn.functional.linear(*inputs)
        if written is not None:
            inputs[written].detach().mul_(2)
        leaves = [t for t in inputs if t.requires_grad]
        try:
            return result, torch.autograd.grad(result.square().sum(), leaves)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return "refused"

    actual, expected = gradients("tpu"), gradients("cpu")
    assert (actual == "refused") == (expected == "refused")
    if expected != "refused":
        assert_same(actual, expected)


def test_frozen_linear_layers_do_not_keep_their_inputs():
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))).to("tpu").requires_grad_(False)
    x = torch.randn(64, 64, device="tpu", requires_grad=True)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    result = layers(x)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before == result.nbytes


@pytest.mark.parametrize("shapes", [((2, 4, 3), (5, 3), (5,)), ((4, 3), (5, 3), (4, 5)), ((2, 4, 3), (5, 3), (4, 5)), ((4, 3), (5, 3), ()), ((3,), (5, 3), (1,))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_linear_in_forward_mode_and_with_unusual_bias(shapes, dtype):
    def derivatives(device):
        torch.manual_seed(0)
        inputs = [torch.randn(shape, dtype=dtype).to(device) for shape in shapes]
        inputs = [t.requires_grad_() for t in inputs]
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(inputs[0], inputs[0].detach())
            tangent = torch.autograd.forward_ad.unpack_dual(torch.nn.functional.linear(dual, *inputs[1:])).tangent
        grads = torch.autograd.grad(torch.nn.functional.linear(*inputs).abs().square().sum(), inputs, create_graph=True)
        seconds = torch.autograd.grad(sum(g.abs().square().sum() for g in grads), inputs)
        with torch.inference_mode():
            return tangent, grads, seconds, torch.nn.functional.linear(*inputs)

    assert_same(derivatives("tpu"), derivatives("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"storage_offset": 0}, {"storage_offset": 10}])
def test_as_strided_reaches_beyond_the_view_that_it_is_asked_of(options):
    def gradients(device):
        part = torch.arange(20.0).to(device)[5:15].requires_grad_()
        result = torch.as_strided(part, (2, 2), (1, 2), **options)
        return result, torch.autograd.grad(result.square().sum(), part)

    assert_same(gradients("tpu"), gradients("cpu"))


ZEROS = torch._efficientzerotensor


@pytest.mark.parametrize(
    "use",
    [
        lambda d: ZEROS(3, device=d).cpu(), lambda d: torch.ones(3, device=d).copy_(ZEROS(3, device=d)),
        lambda d: torch.ones(2, 3, device=d).copy_(ZEROS(3)), lambda d: torch.ones(3).copy_(ZEROS(3, device=d)),
        lambda d: torch.ones(3, device=d) * ZEROS(3, device=d) + 1, lambda d: ZEROS(3, device=d).view(3, 1).clone(),
        lambda d: torch.dot(torch.ones(3, device=d), ZEROS(3, device=d)), lambda d: torch.vdot(ZEROS(3, device=d), ZEROS(3, device=d)),
        lambda d: torch.cat([ZEROS(3, device=d), torch.ones(3, device=d)]), lambda d: ZEROS(3, device=d).to(torch.float64),
    ],
)  # fmt: skip
def test_zeros_without_memory(use):
    assert_same(use("tpu").clone(), use("cpu").clone())


def test_zeros_without_memory_are_not_written():
    for target, source in [(ZEROS(3), torch.ones(3, device="tpu")), (ZEROS(3, device="tpu"), torch.ones(3))]:
        with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
            target.copy_(source)
