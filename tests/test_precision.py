"""The precision of float32 products: who chooses it, where it reaches, and what it is worth."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import DEVICE, python_output, run_python
from torch_tpu import _C

DOCS = Path(__file__).resolve().parent.parent / "docs"
sys.path.insert(0, str(DOCS))
import precision as cases  # noqa: E402

MEDIUM, HIGH, HIGHEST = (0, 0), (1, 1), (2, 2)


def emulated(code: str) -> str:
    return python_output(code, TORCH_TPU_EMULATE_MXU="1", PYTHONWARNINGS="ignore")


# ---- what the passes are worth, computed on the CPU as a TPU would -------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", DOCS / "precision.py", "--json"],
        env={**os.environ, "TORCH_TPU_EMULATE_MXU": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", cases.CASES)
def test_errors_are_within_their_bounds_and_in_order(measured, name):
    results = measured[name]
    for precision in cases.PRECISIONS:
        assert results[precision]["of_bound"] <= 1, (precision, results)
    errors = [results[p]["error"] for p in cases.PRECISIONS]
    # Each part adds 8 bits: the error falls by about 2^-8, and at highest ends at what float32 sums lose.
    assert errors[0] > 2.0**-12 and 2.0**-21 < errors[1] < errors[0] * 2.0**-6 and errors[2] < errors[1] * 2.0**-4
    assert errors[2] < 2 * results["float32"]["error"]


def test_the_table_in_the_documentation_is_what_is_measured(measured):
    text = (DOCS / "precision.md").read_text()
    for line in cases.table(measured).splitlines()[2:]:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        documented = next(row for row in text.splitlines() if row.startswith(f"| {name} |"))
        for ours, theirs in zip(cells, documented.strip("|").split("|")[1:], strict=True):
            if ours.startswith("2^"):
                assert abs(float(ours[2:]) - float(theirs.strip()[2:])) < 1, (line, documented)  # float32 sums differ by machine


def test_one_product_reaches_the_bound():
    """1 + 2^-8 lies in the middle of two bfloat16 numbers and becomes 1."""
    out = emulated("""
        import torch
        x = torch.full((1, 1), 1 + 2.0**-8, device="tpu")
        for p in ("medium", "high", "highest"):
            with torch.tpu.precision(p):
                print((x @ x).item(), torch.nn.functional.conv1d(x[None], x[None]).item())
    """)
    exact = (1 + 2.0**-8) ** 2
    expected = {"medium": 1.0, "high": exact - 2.0**-16, "highest": exact}
    assert [tuple(map(float, line.split())) for line in out.splitlines()] == [(e, e) for e in expected.values()]
    assert exact - 1 == pytest.approx(cases.PRODUCT_BOUND["medium"], rel=1e-3)


def test_what_is_not_finite_is_as_in_float32():
    out = emulated("""
        import torch
        inf, nan = float("inf"), float("nan")
        x = torch.tensor([[inf, 1.0], [-inf, 1.0], [nan, 1.0], [inf, -inf], [3e38, 1.0], [0.0, 1.0]])
        y = torch.tensor([[2.0, 0.3, 0.0], [1.0, 1.0, 1.0]])
        for p in ("medium", "high", "highest"):
            with torch.tpu.precision(p):
                torch.testing.assert_close((x.to("tpu") @ y.to("tpu")).cpu(), x @ y, equal_nan=True, rtol=2**-7, atol=0)
        print("same")
    """)
    assert out == "same"


def test_other_dtypes_are_left_alone():
    out = emulated("""
        import torch
        torch.manual_seed(0)
        for dtype in (torch.float64, torch.complex128, torch.int64, torch.bfloat16):
            x = torch.randn(9, 9, dtype=dtype) if dtype != torch.int64 else torch.randint(-99, 99, (9, 9))
            for p in ("medium", "highest"):
                with torch.tpu.precision(p):
                    torch.testing.assert_close((x.to("tpu") @ x.to("tpu")).cpu(), x @ x)
        z = torch.randn(9, 9, dtype=torch.complex64)
        with torch.tpu.precision("medium"):
            coarse = ((z.to("tpu") @ z.to("tpu")).cpu() - z @ z).abs().max()
        with torch.tpu.precision("highest"):
            fine = ((z.to("tpu") @ z.to("tpu")).cpu() - z @ z).abs().max()
        print(1e-3 < coarse.item() < 1e-1 and fine.item() < 1e-5)
    """)
    assert out == "True"


def test_products_of_lists():
    out = emulated("""
        import torch
        x = torch.randn(32, 32, device="tpu")
        for p in ("medium", "highest"):
            with torch.tpu.precision(p):
                print(torch.equal(torch._foreach_mm([x, x], [x, x.t()])[1].cpu(), (x @ x.t()).cpu()))
    """)
    assert out.split() == ["True", "True"]


def test_deferred_products_are_the_same_bits():
    out = emulated("""
        import torch
        x = torch.randn(32, 32, device="tpu")
        def work():
            with torch.tpu.precision("medium"): a = x @ x
            with torch.tpu.precision("high"): b = x @ x
            with torch.tpu.precision("highest"): c = x @ x
            return a.cpu(), b.cpu(), c.cpu()
        strict = work()
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            deferred = work()
        print(all(map(torch.equal, strict, deferred)), torch.equal(strict[0], strict[1]))
    """)
    assert out == "True False"


def test_without_emulation_the_cpu_computes_in_float32():
    x = torch.randn(64, 64)
    results = []
    for p in cases.PRECISIONS:
        with torch.tpu.precision(p):
            results.append((x.to(DEVICE) @ x.to(DEVICE)).cpu())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    torch.testing.assert_close(results[0], x @ x)


# ---- who chooses --------------------------------------------------------------------------------------------------


@pytest.fixture
def settings():
    before = torch.backends.tpu.fp32_precision
    yield
    torch.backends.tpu.fp32_precision = before
    torch.backends.tpu.matmul.fp32_precision = torch.backends.tpu.conv.fp32_precision = "none"


def test_backend_settings(settings):
    tpu = torch.backends.tpu
    assert (tpu.fp32_precision, tpu.matmul.fp32_precision, tpu.conv.fp32_precision) == ("none",) * 3
    tpu.fp32_precision = "tf32"
    assert _C._precision() == HIGH
    tpu.conv.fp32_precision = "ieee"
    assert _C._precision() == (1, 2) and tpu.conv.fp32_precision == "ieee"
    tpu.matmul.fp32_precision = "bf16"
    assert _C._precision() == (0, 2)
    with torch.tpu.precision("high"):
        assert _C._precision() == HIGH


def test_pytorchs_settings():
    """In a process of its own: these settings cannot be taken back."""
    out = python_output("""
        import torch
        from torch_tpu import _C
        seen = [_C._precision()]                                        # PyTorch's default says nothing
        assert torch.get_float32_matmul_precision() == "highest"
        for p in ("highest", "high", "medium", "highest"):
            torch.set_float32_matmul_precision(p)
            assert torch.get_float32_matmul_precision() == p
            seen.append(_C._precision())
        print([p[0] for p in seen], all(m == c for m, c in seen))
    """, PYTHONWARNINGS="ignore")
    assert out == "[0, 2, 1, 0, 2] True"
    out = python_output("""
        import torch
        from torch_tpu import _C
        seen = []
        for p in ("ieee", "tf32", "bf16", "none"):
            torch.backends.fp32_precision = p
            seen.append(_C._precision()[0])
        torch.backends.cuda.matmul.fp32_precision = "ieee"              # another backend's
        seen.append(_C._precision()[0])
        print(seen)
    """, PYTHONWARNINGS="ignore")
    assert out == "[2, 1, 0, 0, 0]"


def test_contexts_nest_and_are_left_by_exceptions():
    outer = torch.tpu.precision("high")
    with outer:
        with torch.tpu.precision(torch.tpu.Precision.MEDIUM):
            assert _C._precision() == MEDIUM
        with outer:  # the same object again
            assert _C._precision() == HIGH
        with pytest.raises(ZeroDivisionError), torch.tpu.precision("HIGHEST"):
            assert _C._precision() == HIGHEST
            1 / 0
        assert _C._precision() == HIGH
    assert _C._context_precision() == -1


class Spy(torch.autograd.Function):
    seen: list = []

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        import threading

        Spy.seen.append((_C._precision(), threading.current_thread() is threading.main_thread()))
        return grad


@pytest.mark.parametrize("own_thread", [True, False])
def test_the_context_reaches_backward(own_thread):
    """On the caller's thread, as torch_tpu sets it up, and on autograd's own for the device."""
    with torch.autograd.set_multithreading_enabled(own_thread):
        context_reaches_backward(own_thread)


def context_reaches_backward(own_thread):
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    Spy.seen.clear()
    with torch.tpu.precision("highest"):
        inside, outside = Spy.apply(x), Spy.apply(x)
        inside.sum().backward()
    outside.sum().backward()
    with torch.tpu.precision("high"):
        torch.autograd.grad(Spy.apply(x).sum(), x)
    assert [seen[0] for seen in Spy.seen] == [HIGHEST, MEDIUM, HIGH]
    assert [on_main for _, on_main in Spy.seen] == [not own_thread] * 3


def test_the_context_reaches_checkpoints_and_nested_backward():
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(2, device=DEVICE, requires_grad=True)
    Spy.seen.clear()
    with torch.tpu.precision("high"):
        checkpoint(lambda t: Spy.apply(t).sum(), x, use_reentrant=True).backward()
    assert [seen[0] for seen in Spy.seen] == [HIGH]


def test_only_products_have_the_precision_in_their_key():
    a = torch.randn(17, 17, device=DEVICE)

    def compiled(work):
        before = torch.tpu._get_cache_stats().num_compilations
        work()
        torch.tpu.synchronize()
        return torch.tpu._get_cache_stats().num_compilations - before

    compiled(lambda: (a + a, a @ a))
    with torch.tpu.precision("highest"):
        assert compiled(lambda: a + a) == 0
        assert compiled(lambda: a @ a) == 1
        assert compiled(lambda: a @ a) == 0


def test_compiled_graphs_have_the_precision_of_the_call():
    out = emulated("""
        import torch
        x = torch.randn(32, 32, device="tpu")
        eager = lambda: torch.relu(x @ x)
        compiled = torch.compile(eager, backend="tpu")
        seen = []
        for p in ("medium", "highest", "medium"):
            with torch.tpu.precision(p):
                seen.append(compiled().cpu())
                assert torch.equal(seen[-1], eager().cpu()), p
        print(torch.equal(seen[0], seen[2]), torch.equal(seen[0], seen[1]))
    """)
    assert out == "True False"


def test_one_warning_for_high_and_one_for_highest():
    done = run_python("""
        import torch, warnings
        x = torch.ones(2, 2, device="tpu")
        def caught(p, again=x):
            with warnings.catch_warnings(record=True) as all:
                warnings.simplefilter("always")
                torch.set_float32_matmul_precision(p)
                again @ again
                with torch.tpu.precision(p): again @ again
            return [str(w.message) for w in all if "<TorchTpu/Performance/>" in str(w.message)]
        assert caught("medium") == []
        for p in ("high", "highest"):
            first = caught(p)
            assert len(first) == 1 and first[0].startswith("<TorchTpu/Performance/>") and f'"{p}"' in first[0], first
        assert caught("high") == caught("highest") == []
    """)
    assert done.returncode == 0, done.stderr


def test_excess_precision_makes_programs_anew():
    x = torch.randn(33, device=DEVICE, dtype=torch.bfloat16)
    assert torch.tpu.allow_excess_precision is False
    first = (x * 3 + x).cpu()
    before = torch.tpu._get_cache_stats().num_compilations
    torch.tpu.allow_excess_precision = True
    try:
        assert torch.tpu.allow_excess_precision is True
        torch.testing.assert_close((x * 3 + x).cpu(), first, rtol=2**-6, atol=2**-6)
        after = torch.tpu._get_cache_stats().num_compilations
        assert after - before == 2
    finally:
        torch.tpu.allow_excess_precision = False
    assert torch.equal((x * 3 + x).cpu(), first) and torch.tpu._get_cache_stats().num_compilations == after
