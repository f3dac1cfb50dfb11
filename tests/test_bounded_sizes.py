"""One program for many sizes: the sizes vary from call to call, and what lies beyond them in memory is NaN.

The device's options are read once, so the tests run this file again as a program in a process of its own."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from conftest import python_output
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

EVERYTHING = bool(os.environ.get("TORCH_TPU_TEST_EVERYTHING"))
PARTS = 4
LENGTHS = (2, 3, 4, 5, 6, 7, 9, 8, 1)  # times what the sample has
EXACT = 4  # of them get programs of their own: a family takes five members
DTYPES = (torch.float32, torch.int64, torch.bool)


def stretched(sample, dim, times):
    """The sample with every tensor that is as long as the first one along `dim` repeated along it. None: nothing to vary."""
    if not isinstance(sample.input, torch.Tensor) or sample.input.dim() <= dim or sample.input.layout != torch.strided:
        return None
    size = sample.input.shape[dim]
    if size < 2:
        return None

    def longer(t):
        if not isinstance(t, torch.Tensor) or t.dim() <= dim or t.shape[dim] != size:
            return t
        return t.detach().repeat([times if d == dim else 1 for d in range(t.dim())])

    return tree_map(longer, (sample.input, *sample.args)), tree_map(longer, sample.kwargs)


def run(op, args, kwargs):
    try:
        return op(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - both devices must refuse
        return error


def difference(op, call):
    """What is wrong with one call. None: nothing; NotImplemented: it can't be compared."""
    expected = run(op, *call)
    if isinstance(expected, Exception):
        return NotImplemented
    actual = run(op, *tree_map(lambda t: t.to("tpu") if isinstance(t, torch.Tensor) else "tpu" if t == "cpu" else t, call))
    if isinstance(actual, NotImplementedError):
        return NotImplemented
    if isinstance(actual, Exception):
        return str(actual)
    for a, e in zip(tree_flatten(actual)[0], tree_flatten(expected)[0], strict=True):
        if not isinstance(e, torch.Tensor):
            continue
        try:
            torch.testing.assert_close(a.cpu(), e, equal_nan=True, rtol=1e-4, atol=1e-4)
        except AssertionError as error:
            return str(error).splitlines()[0]
    return None


def differences(op, sample, dim):
    """Of lengths that share a program. Where the first ones, which don't, are different, it is not about sizes."""
    for i, times in enumerate(LENGTHS):
        call = stretched(sample, dim, times)
        wrong = NotImplemented if call is None else difference(op, call)
        if wrong is NotImplemented or (wrong and i < EXACT):
            return
        if wrong:
            yield f"{op.name} along {dim}, {times} times: {wrong}"


RANDOM = ("dropout", "bernoulli", "multinomial", "normal", "rand", "uniform", "cauchy", "exponential", "geometric", "log_normal")
UNCHECKED = ("batch_norm", "instance_norm", "group_norm")  # the CPU writes beyond statistics of another length
MEMORY = ("empty", "new_empty", "resize", "as_strided")


def sweep(part):
    count, found = 0, []
    for op in op_db[part :: PARTS if EVERYTHING else 10 * PARTS]:
        if any(word in op.name for word in RANDOM + MEMORY + UNCHECKED) or "rrelu" in op.name:
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype), 3 if EVERYTHING else 2))
            for sample, dim in itertools.product(samples, (0, 1)):
                count += 1
                found += differences(op, sample, dim)
    print(f"{count} calls, {torch.tpu.compile_cache_stats().compilations} programs")
    print(*dict.fromkeys(found), sep="\n")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", ("0", "1"))
def test_operators_do_not_see_beyond_sizes(part, mode):
    if mode == "1" and not EVERYTHING and part:
        pytest.skip("a part of the operators will do for a second mode")
    environment = {**os.environ, "TORCH_TPU_INTERNAL_BOUNDED_SIZES": "poison", "TORCH_TPU_DEFER_AND_FUSE": mode,
                   "TORCH_TPU_CPU_FALLBACK": "silent"}
    done = subprocess.run([sys.executable, __file__, str(part)], env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip().count("\n") == 0, done.stdout




@pytest.mark.parametrize("mode", ("0", "1"))
def test_a_model_over_many_lengths_needs_few_programs(mode):
    output = python_output(
        """
        import copy, torch
        torch.manual_seed(0)
        layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 16)
        model = torch.nn.Sequential(*layers)
        there = copy.deepcopy(model).to("tpu")
        for n in range(5, 205, 4):
            x = torch.randn(3, n, 16)
            def loss(m, x):
                y = m(x)
                scores = torch.softmax(y @ y.transpose(1, 2), -1)
                return torch.cat([scores @ y, x], -1).square().mean()
            torch.testing.assert_close(loss(there, x.to("tpu")).cpu(), loss(model, x))
        print(torch.tpu.compile_cache_stats().compilations)
        """,
        TORCH_TPU_DEFER_AND_FUSE=mode,
        TORCH_TPU_INTERNAL_BOUNDED_SIZES="poison",
    )
    assert int(output) < (20 if mode == "1" else 120)


def test_a_window_that_varies_gets_programs_of_its_own():
    python_output(
        """
        import torch
        x, w = torch.randn(2, 4, 4, 4), torch.randn(4, 4, 3, 3)
        for n in (1, 2, 5, 8, 3, 10, 4, 6, 7):
            pool = lambda t: torch.nn.functional.max_pool2d(t, n, 1, n // 2)
            for f in (lambda x, w: torch.nn.functional.conv2d(x, w, padding=n, dilation=n), lambda x, w: pool(x.repeat(1, 1, 4, 4))):
                torch.testing.assert_close(f(x.to("tpu"), w.to("tpu")).cpu(), f(x, w), rtol=1e-4, atol=1e-4)
        """,
        TORCH_TPU_INTERNAL_BOUNDED_SIZES="poison",
    )


def test_gradients_over_many_lengths():
    python_output(
        """
        import copy, torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 50))
        there = copy.deepcopy(model).to("tpu")
        for n in (5, 9, 14, 20, 7, 33, 21, 34, 40):
            ids = torch.randint(50, (3, n))
            for m, x in ((model, ids), (there, ids.to("tpu"))):
                m.zero_grad()
                torch.nn.functional.cross_entropy(m(x).flatten(0, 1), x.flatten()).backward()
            for a, b in zip(there.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5)
        """,
        TORCH_TPU_INTERNAL_BOUNDED_SIZES="poison",
    )


def test_a_size_that_comes_often_gets_its_own_program():
    output = python_output(
        """
        import torch
        def compilations(): return torch.tpu.compile_cache_stats().compilations
        tensors = [torch.arange(float(n), device="tpu") for n in range(4, 12)]
        for x in tensors: assert torch.equal((x * 3).cpu(), x.cpu() * 3)
        before = compilations()
        for i in range(20000): y = tensors[7] * 3
        assert torch.equal(y.cpu(), tensors[7].cpu() * 3)
        print(compilations() - before)
        """,
        TORCH_TPU_INTERNAL_BOUNDED_SIZES="on",
    )
    assert output == "1"


if __name__ == "__main__":
    sweep(int(sys.argv[1]))
