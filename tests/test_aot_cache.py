"""AOTAutograd's cache: what was traced once is taken from there, and gives the same; what can't be kept, or isn't wanted, is traced.

A second process is played by forgetting everything that was compiled, except in the tests that need a real one.
"""

import gc
import pickle
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same, compiled, python_output
from host_operator import on_the_host
from torch import fx, nn
from torch._dynamo.utils import counters
from torch._functorch import config
from torch.utils.checkpoint import checkpoint

import torch_tpu
from torch_tpu._partition import share_equal_nodes

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The cache is on, and empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with config.patch(enable_autograd_cache=True):
        yield tmp_path / "aotautograd"


def entries(folder: Path) -> list[Path]:
    return [p for p in folder.glob("*/*") if p.is_file()]


def again(run):
    """run() in what might be another process, and what the cache did."""
    torch._dynamo.reset()
    counters.clear()
    result = run()
    return result, {name.removeprefix("autograd_cache_"): n for name, n in counters["aot_autograd"].items() if "cache" in name}


def wave(*sizes, grad=False):
    return torch.linspace(-2, 2, torch.Size(sizes).numel()).sin().reshape(sizes).to("tpu").requires_grad_(grad)


# ---- functions that can be kept: each gives what it gives eagerly, traced and from the cache ---------------------------------


def writes(x, y):
    y.add_(x)
    y[1:].mul_(2)
    return y.t(), x + y


def draws(x, y):
    return F.dropout(x * y, 0.5), torch.rand(3, device=x.device)


def shares_results(x, y):
    z = x * y
    return z, z.view(-1)[2:], x + 1, x + 1


def checkpointed(x, y):
    return checkpoint(lambda a, b: F.dropout((a @ b.t()).tanh(), 0.3).exp(), x, y, use_reentrant=False)


def host_parts(x, y):
    return on_the_host(x[:, :4] @ x[:, :4].t())[0] + y[:, 0]


def with_constant(x, y):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], device=x.device), torch.arange(4) * 2


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad


def own_function(x, y):
    return Cube.apply(x) + y


def branches(x, y):
    return torch.cond(x.max() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))


@torch.library.custom_op("aot_cache_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


def own_operator(x, y):
    with torch.no_grad():
        return twice(x) + y


def loops(x, y):
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, row: (carry + row, carry * row), y[0], x)


def with_tokens(x, y):
    square = x @ x.t() + 3 * torch.eye(4, device=x.device)
    return torch.linalg.cholesky(square), torch.linalg.solve(square, y)


CASES = {with_tokens: True, writes: False, draws: False, shares_results: True, checkpointed: True, host_parts: False, with_constant: True,
         own_function: True, branches: False, own_operator: False, loops: False}


@pytest.mark.parametrize("function, has_grad", CASES.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_kept_or_not_the_results_are_eager_ones(function, has_grad):
    def run(f):
        torch.manual_seed(7)
        x, y = wave(4, 5, grad=has_grad), wave(4, 5)
        out = f(x, y)
        if has_grad:
            sum(t.float().sum() for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad).backward()
        return out, y, x.grad, torch.tpu.get_rng_state()

    expected = run(function)
    for _ in range(2):
        actual, did = again(lambda: run(compiled(function)))
        assert_same(actual, expected, rtol=2e-5, atol=2e-5)
    assert did == {"hit": 1} or did.get("bypass") == 1 and "saved" not in did, did
    assert (did == {"hit": 1}) == (counters["tpu"]["loaded"] > 0)
    if function in (writes, draws, shares_results, host_parts, with_constant, own_operator):
        assert did == {"hit": 1} and not counters["tpu"]["graphs"]


def test_aliases_of_results_stay():
    def run():
        z, part, a, b = compiled(shares_results)(wave(4, 5), wave(4, 5))
        part.zero_()
        a.zero_()
        return z, b

    first, _ = again(run)
    second, did = again(run)
    assert did == {"hit": 1}
    assert_same(second, first)
    assert not second[0].reshape(-1)[2:].any() and second[1].any()


def test_arguments_that_share_memory_have_an_entry_of_their_own():
    def f(a, b):
        a.add_(1)
        b.mul_(2)
        return a + b

    def run(overlap, function):
        base = wave(12)
        a, b = base[:8], base[4:] if overlap else wave(8)
        return function(a, b), a, b

    for wanted in ("saved", "hit"):
        for overlap in (False, True):
            result, did = again(lambda: run(overlap, compiled(f)))
            assert did[wanted] == 1
            assert_same(result, run(overlap, f))


@pytest.mark.parametrize("has_grad", [False, True])
def test_sizes_that_vary(has_grad):
    def run():
        f, out = compiled(lambda t: t.softmax(1) @ t.transpose(1, 2) * t.shape[1]), []
        for n in (5, 9, 17):
            t = wave(2, n, 4, grad=has_grad)
            torch._dynamo.mark_dynamic(t, 1, min=2, max=32)
            out.append(f(t))
            if has_grad:
                out[-1].sum().backward()
                out.append(t.grad)
        return out

    first, did = again(run)
    programs = counters["tpu"]["programs"]
    second, did = again(run)
    assert did == {"hit": 1} and counters["tpu"]["programs"] == programs
    assert_same(second, first)


def test_models_train_the_same():
    def run():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.4), nn.Linear(8, 3)).to("tpu")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        f, step = compiled(lambda x: model(x).square().mean()), compiled(optimizer.step)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = f(wave(5, 6))
            loss.backward()
            step()
            losses.append(loss.item())
        return losses, list(model.state_dict().values())

    first, did = again(run)
    assert did["miss"] == did["saved"]
    second, did = again(run)
    assert did["hit"] and "miss" not in did and not counters["tpu"]["graphs"]
    assert_same(second, first, rtol=0, atol=0)


def test_a_second_process_traces_nothing(folder):
    script = """
        import sys, torch
        from torch._dynamo.utils import counters
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).to("tpu")
        f = torch.compile(model, backend="tpu")
        f(torch.ones(2, 4, device="tpu")).sum().backward()
        c = counters["aot_autograd"]
        heavy = [m for m in ("torch._inductor.lowering", "torch._inductor.pattern_matcher", "torch._inductor.codegen.wrapper") if m in sys.modules]
        print(c["autograd_cache_miss"], c["autograd_cache_hit"], counters["tpu"]["graphs"], counters["tpu"]["loaded"],
              torch.tpu.compile_cache_stats().compilations > 0, heavy)
    """
    env = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder.parent),
           "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": str(folder.parent / "programs")}
    assert python_output(script, **env) == "1 0 2 0 True []"
    assert python_output(script, **env) == "0 1 0 2 False []"


# ---- when it must not, or can't -------------------------------------------------------------------------------------------


def run_simple(**options):
    return compiled(lambda x: (x * 2).sin(), options=options or None)(wave(3))


@pytest.mark.parametrize("change", ["options", "name", "version", "lowering", "tag", "default_dtype", "build"])
def test_what_changes_the_key(change, monkeypatch):
    again(run_simple)
    options = {"options": {"bucket_size": 64}, "name": {"name": "other"}}.get(change, {})
    if change == "version":
        monkeypatch.setattr(torch_tpu, "__version__", "9.9")
    if change == "lowering":
        monkeypatch.setenv("TORCH_TPU_EMULATE_MXU", "1")
    if change == "build":
        target, build = torch_tpu._C._cache_identify()
        monkeypatch.setattr(torch_tpu._C, "_cache_identify", lambda: (target, build + 1))
    if change == "default_dtype":
        torch.set_default_dtype(torch.float64)
    try:
        with torch.compiler.config.patch(cache_key_tag="other" if change == "tag" else ""):
            result, did = again(lambda: run_simple(**options))
    finally:
        torch.set_default_dtype(torch.float32)
    assert did == {"miss": 1, "saved": 1}
    assert_same(result.float(), (wave(3) * 2).sin())
    assert again(lambda: run_simple(**options))[1] == {"hit": 1} or change in ("tag", "default_dtype")


def damage(content: bytes, how: str) -> bytes:
    if how == "torn":
        return content[: len(content) // 2]
    if how == "nothing":
        return b""
    if how == "another":
        return pickle.dumps({"not": "an entry"})
    return content.replace(b"GraphModule", b"GraphModulf") if how == "graph" else content[::-1]


@pytest.mark.parametrize("how", ["torn", "nothing", "another", "graph", "reversed"])
def test_damaged_entries_are_traced_anew(folder, how):
    expected, _ = again(run_simple)
    for entry in entries(folder):
        content = entry.read_bytes()
        entry.write_bytes(damage(content, how))
        assert entry.read_bytes() != content
    result, did = again(run_simple)
    assert_same(result, expected)
    assert did.get("miss", 0) + did.get("bypass", 0) == 1 and "hit" not in did
    for entry in entries(folder):
        entry.unlink()
    assert again(run_simple)[1] == {"miss": 1, "saved": 1}


@pytest.mark.parametrize("how", ["disabled", "off", "not_serializable", "callback"])
def test_not_wanted(folder, how):
    options = {"not_serializable": {"serializable": False}, "callback": {"debug_callback": lambda _: None}}.get(how, {})
    with config.patch(enable_autograd_cache=how != "off"), torch.compiler.config.patch(force_disable_caches=how == "disabled"):
        for _ in range(2):
            result, did = again(lambda: run_simple(**options))
            assert did == {} and counters["tpu"]["graphs"] == 1
    assert_same(result, (wave(3) * 2).sin())
    assert not entries(folder)


def test_a_folder_that_cannot_be_written(folder):
    folder.write_text("a file where a folder should be")
    result, did = again(run_simple)
    assert_same(result, (wave(3) * 2).sin())
    assert "hit" not in did


def test_artifacts_travel(folder, tmp_path, monkeypatch):
    torch.compiler._cache.CacheArtifactManager.clear()
    again(run_simple)
    data, info = torch.compiler.save_cache_artifacts()
    assert info.aot_autograd_artifacts
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert again(run_simple)[1] == {"miss": 1, "saved": 1}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "third"))
    torch.compiler.load_cache_artifacts(data)
    assert again(run_simple)[1] == {"hit": 1}


def test_async_compile_from_the_cache():
    def run():
        f = compiled(lambda x: (x * 3).cos(), options={"async_compile": True})
        return [f(wave(6)) for _ in range(3)]

    first, _ = again(run)
    second, did = again(run)
    assert did == {"hit": 1}
    assert_same(second, first)


def test_forward_alone_makes_no_program_for_backward():
    def run():
        return compiled(lambda x: x.sin().square())(wave(5, grad=True))

    for _ in range(2):
        result, _ = again(run)
        assert counters["tpu"]["programs"] == 1
        result.sum().backward()
        assert counters["tpu"]["programs"] == 2


def test_the_collector_is_as_it_was():
    run_simple()
    assert gc.isenabled()
    gc.disable()
    try:
        again(run_simple)
        assert not gc.isenabled()
    finally:
        gc.enable()

    def fails(x):
        raise RuntimeError("on purpose")

    with pytest.raises(Exception, match="on purpose"):
        compiled(fails)(wave(3))
    assert gc.isenabled()


# ---- the pass before the partitioner ---------------------------------------------------------------------------------------


def traced(function, *sizes):
    fakes = [torch.empty(s) for s in sizes]
    return fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*fakes)


def targets(module):
    return [str(n.target) for n in module.graph.nodes if n.op == "call_function"]


def test_equal_nodes_become_one():
    def f(x):
        return (x.sin() + x.sin()) * torch.cat([x, x]).sum() * torch.cat([x, x]).sum()

    module = traced(f, (4,))
    share_equal_nodes(module.graph)
    assert targets(module) == ["aten.sin.default", "aten.add.Tensor", "aten.cat.default", "aten.sum.default", "aten.mul.Tensor", "aten.mul.Tensor"]
    x = torch.randn(4)
    torch.testing.assert_close(fx.GraphModule(module, module.graph)(x), f(x))


@pytest.mark.parametrize(
    "function, count",
    [
        (lambda x: (x + 1, x + 1), 2),  # results of their own
        (lambda x: (x * 0.0, (x * -0.0).sum() + (x * 0).sum()), 6),  # other numbers
        (lambda x: aten.rand_like(x) - aten.rand_like(x), 3),
        (lambda x: aten.empty.memory_format([4]).fill_(1) + aten.empty.memory_format([4]).fill_(2), 5),
        (lambda x: (x.sin().sum(), x.mul_(2).sum(), x.sin().sum()), 6),  # a write between
    ],
)
def test_what_stays_apart(function, count):
    module = traced(function, (4,))
    share_equal_nodes(module.graph)
    assert len(targets(module)) == count, targets(module)
