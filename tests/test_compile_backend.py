"""torch.compile(backend="tpu"): options, random numbers, optimizers, and what is compiled when."""

import copy
import gc
import re
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same, compiled, run_python
from host_operator import on_the_host
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from torch_tpu.compile_backend import TpuCompileDebug

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.4), nn.Linear(8, 3))


# ---- options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, text",
    [
        ({"fullgraf": True}, "known options are .*async_compile.*bucket_size"),
        ({"async_compile": 1}, "'async_compile' takes a value of type bool"),
        ({"num_dynamic_buckets": 9}, "between 1 and 8"),
        ({"bucket_size": 0}, "at least 1"),
        ({"debug_callback": 3}, "takes a function"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(Exception, match=text) as raised:
        compiled(lambda x: x + 1, options=options)(torch.ones(2, device="tpu"))
    assert isinstance(raised.value, RuntimeError)


def test_wrong_mode():
    with pytest.raises(Exception, match="Unrecognized mode=quick"):
        compiled(lambda x: x + 1, mode="quick")(torch.ones(2, device="tpu"))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_modes(mode):
    assert compiled(lambda x: x + 1, mode=mode)(torch.ones(2, device="tpu")).tolist() == [2, 2]


def test_debug_callback_and_names():
    seen = []
    f = compiled(lambda x: (x * x).sin().sum(), options={"debug_callback": lambda d: seen.append(copy.copy(d)), "name": "squares"})
    f(torch.ones(3, device="tpu", requires_grad=True)).backward()
    forward, both = seen
    assert isinstance(forward, TpuCompileDebug)
    assert "sin" in forward.pre_autograd_fx_code and "aten.sin" in forward.post_autograd_fx_forward_code
    assert "module @squares_forward" in forward.stablehlo_forward_text and not forward.stablehlo_backward_text
    assert "aten.cos" in both.post_autograd_fx_backward_readable and "module @squares_backward" in both.stablehlo_backward_text
    assert len(both.compiled_executables) == 2 and both.compiled_executables[0].info()["results"] >= 1


def test_compiling_in_the_background():
    f = compiled(lambda x: (x @ x).relu() + F.dropout(x, 0.5), options={"async_compile": True})
    g = lambda x: (x @ x).relu() + F.dropout(x, 0.5)  # noqa: E731
    x = torch.randn(16, 16, device="tpu")
    for i in range(200):
        torch.manual_seed(i)
        a = f(x)
        torch.manual_seed(i)
        torch.testing.assert_close(a, g(x))
        if i and counters["tpu"]["interpreted"] < i:
            break
        torch.tpu.synchronize()
    assert 1 <= counters["tpu"]["interpreted"] < 200
    assert counters["tpu"]["programs"] == 1


def test_logs():
    code = """
        import torch
        from host_operator import on_the_host
        f = torch.compile(lambda x: x.sin() + on_the_host(x)[0], backend="tpu")
        f(torch.eye(3, device="tpu"))  # here it is found that this needs the host
        f(torch.eye(3, device="tpu"))
        """
    err = run_python(code, TORCH_LOGS="output_code,graph_breaks").stderr
    assert "the graph is split at tpu_tests.on_the_host.default" in err
    assert "a program of" in err and "StableHLO of graph0_part" in err and "stablehlo.sine" in err
    assert "StableHLO" not in run_python(code).stderr


# ---- which backend ---------------------------------------------------------------------------------------------------------


def test_default_backend():
    m = nn.Linear(3, 3).to("tpu")
    x = torch.randn(2, 3, device="tpu")
    torch.testing.assert_close(torch.compile(m)(x), m(x))
    assert counters["tpu"]["graphs"] == 1
    assert torch.compile(lambda: torch.ones(2, device="tpu") + 1)().tolist() == [2, 2]
    assert counters["tpu"]["graphs"] == 2


def test_other_devices_keep_their_backend():
    calls = []
    original = torch._TorchCompileInductorWrapper.__call__.__wrapped__
    assert original is not torch._TorchCompileInductorWrapper.__call__
    f = torch.compile(lambda x: x + 1, backend=lambda gm, inputs: calls.append(gm) or gm.forward)
    f(torch.ones(2))
    assert len(calls) == 1 and counters["tpu"]["graphs"] == 0


# ---- random numbers -------------------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_eager():
    def f(x):
        return F.dropout(x, 0.5) + torch.rand_like(x), torch.randn(3, device=x.device), torch.randint(0, 9, (4,), device=x.device)

    x = torch.ones(50, device="tpu")
    c = compiled(f)
    for seed in (0, 1):
        torch.manual_seed(seed)
        a = [*f(x), *f(x), torch.rand(2, device="tpu")]
        torch.manual_seed(seed)
        b = [*c(x), *c(x), torch.rand(2, device="tpu")]
        for p, q in zip(a, b):
            assert torch.equal(p, q)
        assert not torch.equal(b[0], b[3])
    assert counters["tpu"]["splits"] == 0


def test_state_of_the_generator():
    c = compiled(lambda x: F.dropout(x, 0.5))
    x = torch.ones(100, device="tpu")
    c(x)
    state = torch.tpu.get_rng_state()
    a = c(x)
    torch.tpu.set_rng_state(state)
    assert torch.equal(a, c(x))
    with torch.random.fork_rng(device_type="tpu"):
        c(x)
    torch.tpu.set_rng_state(state)
    assert torch.equal(a, c(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_repeats_its_random_numbers(reentrant):
    def f(x, w):
        return checkpoint(lambda t: F.dropout(F.dropout((t @ w).sin(), 0.3) * t, 0.5), x, use_reentrant=reentrant).sum() + F.dropout(x, 0.5).sum()

    x, w = (torch.randn(8, 8, device="tpu", requires_grad=True) for _ in range(2))
    c = compiled(f)
    for i in range(3):
        results = []
        for function in (f, c):
            torch.manual_seed(i)
            x.grad = w.grad = None
            out = function(x, w)
            out.backward()
            results.append((out, x.grad, w.grad))
        torch.testing.assert_close(results[0], results[1])


# ---- models ------------------------------------------------------------------------------------------------------------------


def train(model, loss_fn, optimizer, x, y, steps=4):
    losses = []
    for i in range(steps):
        torch.manual_seed(i)
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_with_buffers_and_dropout():
    torch.manual_seed(0)
    a = mlp().to("tpu")
    b = copy.deepcopy(a)
    x, y = torch.randn(5, 6, device="tpu"), torch.tensor([0, 1, 2, 0, 1], device="tpu")
    eager = train(a, F.cross_entropy, torch.optim.SGD(a.parameters(), lr=0.1, momentum=0.9), x, y)
    other = train(compiled(b), F.cross_entropy, torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9), x, y)
    assert eager == pytest.approx(other, rel=1e-5)
    for p, q in zip(a.state_dict().values(), b.state_dict().values()):
        torch.testing.assert_close(p, q)
    a.eval(), b.eval()
    torch.testing.assert_close(compiled(b)(x), a(x))


def test_modes_of_gradient():
    m = nn.Linear(3, 3).to("tpu")
    c, x = compiled(m), torch.randn(2, 3, device="tpu")
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            out = c(x)
            torch.testing.assert_close(out, m(x))
            assert out.requires_grad == (mode is torch.enable_grad)
            assert out.is_inference() == (mode is torch.inference_mode)


def test_autocast_around_a_compiled_function():
    m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to("tpu")
    c, x = compiled(m), torch.randn(4, 8, device="tpu")
    with torch.autocast("tpu", dtype=torch.bfloat16):
        out = c(x)
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out, m(x), rtol=0.02, atol=0.02)
    out.float().sum().backward()
    assert m[0].weight.grad.dtype == torch.float32


def test_tied_weights_and_state_dict():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(7, 4)
            self.out = nn.Linear(4, 7, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, i):
            return self.out(self.emb(i))

    m = Tied().to("tpu")
    c, i = compiled(m), torch.tensor([1, 4], device="tpu")
    c(i).sum().backward()
    g = m.emb.weight.grad.clone()
    m.zero_grad()
    m(i).sum().backward()
    torch.testing.assert_close(g, m.emb.weight.grad)
    m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})
    torch.testing.assert_close(c(i), m(i))


def test_weights_replaced_between_calls():
    m = nn.Linear(3, 3).to("tpu")
    c, x = compiled(m), torch.randn(2, 3, device="tpu")
    c(x)
    with torch.no_grad():
        m.weight.zero_()  # a splat
        m.bias.fill_(2)
    torch.testing.assert_close(c(x), torch.full((2, 3), 2.0, device="tpu"))
    m.weight.data = torch.randn(3, 3, device="tpu").t()
    torch.testing.assert_close(c(x), m(x))


def test_hooks_and_double_use():
    m = nn.Linear(4, 4).to("tpu")
    seen = []
    m.register_forward_hook(lambda mod, args, out: out * 2)
    x = torch.randn(2, 4, device="tpu", requires_grad=True)
    x.register_hook(lambda g: seen.append(g.shape))
    c = compiled(m)
    torch.testing.assert_close(c(c(x)), m(m(x)))
    c(x).sum().backward()
    assert len(seen) == 1


# ---- sizes, guards, programs -------------------------------------------------------------------------------------------------


def test_sizes_share_a_program_up_to_the_bound():
    c = compiled(lambda x: (x.softmax(-1) @ x.t()).sum(1) * x.shape[0], dynamic=True, options={"bucket_size": 16})
    for sizes, programs in (((3, 5, 8, 13, 4), 1), ((17, 20, 32), 2), ((5, 31), 2)):
        for n in sizes:
            x = torch.randn(n, 6, device="tpu")
            torch.testing.assert_close(c(x), (x.softmax(-1) @ x.t()).sum(1) * n, rtol=1e-4, atol=1e-4)
        assert counters["tpu"]["programs"] == counters["tpu"]["bounded"] == programs
    assert counters["tpu"]["graphs"] == 1


def test_each_size_is_compiled_once_where_there_is_no_bounded_form():
    c = compiled(lambda x: (x.softmax(-1) @ x.t()).sum(1) * (x.shape[0] // 2), dynamic=True)
    for _ in range(3):
        for n in (3, 5, 8, 13, 4):
            x = torch.randn(n, 6, device="tpu")
            torch.testing.assert_close(c(x), (x.softmax(-1) @ x.t()).sum(1) * (n // 2))
    assert counters["tpu"]["programs"] == 5 and counters["tpu"]["bounded"] == 0
    assert counters["tpu"]["graphs"] == 1


def test_precision_is_that_of_the_call():
    c, x = compiled(lambda x: x @ x), torch.randn(4, 4, device="tpu")
    for _ in range(2):
        c(x)
        with torch.tpu.precision("highest"):
            c(x)
    assert counters["tpu"]["programs"] == 2


def test_recompiles_when_guards_fail():
    c = compiled(lambda x, k: x * k)
    x = torch.ones(2, device="tpu")
    assert c(x, 2).tolist() == [2, 2] and c(x, 3).tolist() == [3, 3] and c(x, 2).tolist() == [2, 2]
    assert c(x.double(), 2).dtype == torch.float64


def test_a_number_that_changes_is_no_new_program():
    c = compiled(lambda x, lr: x - x * lr, dynamic=True)
    x = torch.ones(4, device="tpu")
    for i in range(2, 12):
        torch.testing.assert_close(c(x, i / 10), x - x * (i / 10))
    assert counters["tpu"]["programs"] <= 3


def test_graphs_are_freed():
    m = nn.Linear(300, 300).to("tpu")
    c = compiled(m)
    c(torch.ones(1, 300, device="tpu"))
    gone = weakref.ref(m)
    torch._dynamo.reset()
    del m, c
    gc.collect()
    torch.tpu.synchronize()
    assert gone() is None


@pytest.mark.parametrize("splits", [False, True])
def test_programs_are_unloaded_with_their_functions(splits):
    def compiles(number):
        def function(x):
            return (on_the_host(x * number) if splits else x * number).sin() + x

        compiled(function)(torch.ones(8, device="tpu", requires_grad=True)).sum().backward()
        del function
        torch._dynamo.reset()
        gc.collect()
        torch.tpu.synchronize()
        gc.collect()
        return torch.tpu.compile_cache_stats().loaded, torch.tpu.memory_stats()["allocation.all.current"]

    with torch.tpu.set_cpu_fallback("silent"):
        loaded = [compiles(2.0 + i) for i in range(5)]
    assert loaded[2] == loaded[3] == loaded[4]
    assert bool(counters["tpu"]["splits"]) == splits


def test_failed_index_checks_are_told():
    c = compiled(lambda w, i: F.embedding(i, w))
    w = torch.randn(4, 2, device="tpu")
    c(w, torch.tensor([0, 3], device="tpu"))
    with pytest.raises(IndexError):
        c(w, torch.tensor([0, 9], device="tpu"))
        torch.tpu.synchronize()
    assert c(w, torch.tensor([1], device="tpu")).shape == (1, 2)


def test_a_deferred_call_before_a_graph():
    torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
    try:
        c = compiled(lambda x: x.exp())
        for i in range(3):
            x = torch.full((3,), float(i), device="tpu") * 2 + torch.arange(3, device="tpu")
            torch.testing.assert_close(c(x).cpu(), (torch.full((3,), float(i)) * 2 + torch.arange(3)).exp())
    finally:
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_NEVER


# ---- optimizers ----------------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adam_for_loop": (torch.optim.Adam, {"lr": 0.01, "foreach": False}),
    "adam_fused": (torch.optim.Adam, {"lr": 0.01, "fused": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
    "nadam": (torch.optim.NAdam, {}),
    "adamax": (torch.optim.Adamax, {}),
    "radam": (torch.optim.RAdam, {}),
    "adadelta": (torch.optim.Adadelta, {}),
    "asgd": (torch.optim.ASGD, {}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizer(name):
    cls, options = OPTIMIZERS[name]
    start = [torch.randn(3, 4), torch.randn(5), torch.randn(2, 2)]
    sides = []
    for device, wrap in (("cpu", lambda f: f), ("tpu", compiled)):
        parameters = [nn.Parameter(p.to(device, copy=True)) for p in start]
        optimizer = cls(parameters, **options)
        step = wrap(optimizer.step)
        for i in range(8):
            for p in parameters:
                p.grad = (p.detach() + i).sin()
            step()
            optimizer.param_groups[0]["lr"] *= 0.9
        sides.append([p.detach().cpu() for p in parameters])
    torch.testing.assert_close(sides[1], sides[0], rtol=1e-5, atol=1e-5)


def test_an_optimizer_updates_in_place():
    parameters = [nn.Parameter(torch.randn(64, 64, device="tpu")) for _ in range(3)]
    optimizer = torch.optim.AdamW(parameters)
    for p in parameters:
        p.grad = torch.ones_like(p)
    step = compiled(lambda: optimizer.step())
    for _ in range(3):
        step()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    step()
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() - before < 64 * 64 * 4


# ---- operators of others -----------------------------------------------------------------------------------------------------


@torch.library.custom_op("tt_test::on_the_host", mutates_args=())
def on_the_host(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().cpu().numpy() * 3).to(x.device)


@on_the_host.register_fake
def _(x):
    return torch.empty_like(x)


on_the_host.register_autograd(lambda ctx, g: g * 3)


@torch.library.custom_op("tt_test::add_to", mutates_args=("x",))
def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y.cpu().to(x.device))


def test_custom_operators():
    def f(x, y):
        z = on_the_host(x * 2) + 1
        add_to(y, z.detach())
        return z.sin() * y

    x, y = torch.randn(4, device="tpu", requires_grad=True), torch.zeros(4, device="tpu")
    x2, y2 = x.detach().clone().requires_grad_(), y.clone()
    c = compiled(f)
    for _ in range(3):
        a, b = f(x, y), c(x2, y2)
        torch.testing.assert_close(a, b)
        a.sum().backward()
        b.sum().backward()
    torch.testing.assert_close(x.grad, x2.grad)
    torch.testing.assert_close(y, y2)


# ---- documentation --------------------------------------------------------------------------------------------------------------


def test_examples_of_the_guide():
    guide = (Path(__file__).parent.parent / "docs" / "compile.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", guide, re.S)
    assert len(blocks) >= 4
    exec("\n".join(blocks), {})


def test_parts_make_their_own_constants_and_sizes():
    """A graph that is split hands on neither CPU constants nor what is computed from sizes."""
    def f(x, small):
        n = x.shape[1]
        split = on_the_host(small)[0]
        table = torch.arange(3).view(3, 1).repeat(1, 2).to(x.device)
        return x[:, : n - 1] * split[0], table + split[1], x.sum(1) + (torch.arange(n, device=x.device) * 2 - 2 * n).sum(), n * 3

    c = compiled(f)
    small = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    for n in (5, 9, 17, 33, 6):
        x = torch.randn(2, n)
        there = x.to("tpu")
        torch._dynamo.mark_dynamic(there, 1, min=3, max=64)
        assert_same(c(there, small.to("tpu")), f(x, small), rtol=1e-4, atol=1e-4)
    assert counters["tpu"]["splits"] and counters["tpu"]["programs"] <= 4  # those of the first call too, when the split was found
