"""What goes wrong is said at the call, in PyTorch's words where it has them, and tells what to do."""

import re

import pytest
import torch
from conftest import DEVICE, assert_same, run_python
from host_operator import on_the_host

# ---- plugins --------------------------------------------------------------------------------------------------

USE = """
    import torch
    print(torch.tpu.is_available())
    try:
        torch.ones(2, device="tpu").tolist()
    except RuntimeError as error:
        print("error:", error)
    print((torch.ones(2) + 1).tolist())
"""


@pytest.mark.parametrize("content", [None, b"this is no library", b""])
def test_a_missing_or_broken_plugin_is_named(tmp_path, content):
    path = tmp_path / "plugin.so"
    if content is not None:
        path.write_bytes(content)
    done = run_python(USE, TPU_LIBRARY_PATH=str(path))
    assert done.returncode == 0, done.stderr
    assert "error:" in done.stdout and str(path) in done.stdout and done.stdout.rstrip().endswith("[2.0, 2.0]")


def test_a_library_that_is_no_plugin_is_named():
    import torch._C

    path = next(line.split()[-1] for line in open("/proc/self/maps") if "libc10.so" in line)
    done = run_python(USE, TPU_LIBRARY_PATH=path)
    assert done.returncode == 0, done.stderr
    assert "error:" in done.stdout and "GetPjrtApi" in done.stdout


# ---- devices --------------------------------------------------------------------------------------------------


def test_devices_that_do_not_exist():
    with pytest.raises((RuntimeError, ValueError), match="9"):
        torch.ones(2, device="tpu:9")
    with pytest.raises((RuntimeError, ValueError)):
        torch.tpu.set_device(3)
    with pytest.raises(ValueError, match="tpu device"):
        torch.tpu.synchronize("cpu")
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.tpu.get_device_properties(5)


def test_mixed_devices():
    with pytest.raises(RuntimeError, match="same device|expected device|Expected all tensors"):
        torch.ones(2, device=DEVICE) + torch.ones(2)
    assert (torch.ones(2, device=DEVICE) + torch.tensor(2.0)).tolist() == [3.0, 3.0]  # 0-dim CPU tensors are numbers


# ---- the same errors as on the CPU ----------------------------------------------------------------------------

# A call, and what the message must tell, on either device.
WRONG_CALLS = {
    "broadcast": (lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d), "size of tensor|broadcast"),
    "mm shapes": (lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d), "multiplied|reduction dim"),
    "mm dtypes": (
        lambda d: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d, dtype=torch.int64)), "same dtype",
    ),
    "view": (lambda d: torch.ones(2, 3, device=d).view(4), "invalid for input of size 6"),
    "transposed view": (lambda d: torch.ones(2, 3, device=d).t().view(6), "view size is not compatible"),
    "dim": (lambda d: torch.ones(2, 3, device=d).sum(dim=2), "Dimension out of range"),
    "softmax dim": (lambda d: torch.softmax(torch.ones(2, device=d), dim=4), "Dimension out of range"),
    "cat": (lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]), "Sizes of tensors must match"),
    "expand": (lambda d: torch.ones(2, 3, device=d).expand(3, 3), "expanded size"),
    "in-place broadcast": (lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)), "output with shape"),
    "in-place dtype": (lambda d: torch.ones(3, device=d, dtype=torch.int64).add_(1.5), "cast|[Pp]romotion"),
    "overlapping write": (lambda d: torch.ones(1, device=d).expand(3).add_(1), "single memory location"),
    "negative size": (lambda d: torch.ones(-1, device=d), "negative dimension"),
    "item": (lambda d: torch.ones(2, device=d).item(), "cannot be converted to Scalar"),
    "bool of many": (lambda d: bool(torch.ones(2, device=d)), "ambiguous"),
    "leaf in place": (lambda d: torch.ones(2, device=d, requires_grad=True).add_(1), "leaf Variable"),
    "embedding index dtype": (lambda d: torch.embedding(torch.ones(3, 2, device=d), torch.ones(2, device=d)), "indices"),
    "pads that cut too much": (lambda d: torch.nn.functional.pad(torch.ones(3, device=d), (-4, 2)), "non-negative"),
    "mm of bools": (lambda d: torch.mm(torch.ones(2, 2, device=d).bool(), torch.ones(2, 2, device=d).bool()), "not implemented for 'Bool'"),
    "conv channels": (
        lambda d: torch.conv2d(torch.ones(1, 3, 8, 8, device=d), torch.ones(4, 2, 3, 3, device=d)), "channel",
    ),
    "index out of range": (lambda d: torch.ones(3, device=d)[5], "out of bounds"),
    "squeeze": (lambda d: torch.ones(2, device=d).squeeze(3), "Dimension out of range"),
    "linear": (
        lambda d: torch.nn.functional.linear(torch.ones(2, 3, device=d), torch.ones(4, 5, device=d)), "shapes|sizes|linear",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls_raise_what_the_cpu_raises(name):
    call, words = WRONG_CALLS[name]
    with pytest.raises(Exception, match=words) as expected:
        call("cpu")
    with pytest.raises(type(expected.value), match=words):
        call(DEVICE)


X, PICK = torch.arange(20.0).reshape(5, 4), torch.tensor([1, 7, 9])
ROW, TARGET = torch.tensor([[1, 7, 0, 0]]), torch.tensor([0, 1, 2, 7, 9])
# Numbers of which some lie outside: known only when the program runs.
WRONG_NUMBERS = {
    "index": lambda x, i, _: x[i],
    "index, negative": lambda x, i, _: x[-i],
    "index, two": lambda x, i, _: x[i % 5, i],
    "index_put": lambda x, i, _: x.index_put_((i,), torch.ones(4, device=x.device)),
    "gather": lambda x, _, row: x.gather(0, row),
    "gather, negative": lambda x, _, row: x.gather(1, -row),
    "index_select": lambda x, i, _: x.index_select(0, i),
    "take": lambda x, i, _: x.take(i * 10),
    "put": lambda x, i, _: x.put_(i * 10, torch.ones(3, device=x.device)),
    "scatter": lambda x, _, row: x.scatter_(0, row, 1.0),
    "scatter_add": lambda x, _, row: x.scatter_add_(0, row, torch.ones(1, 4, device=x.device)),
    "scatter_reduce": lambda x, _, row: x.scatter_reduce_(0, row, torch.ones(1, 4, device=x.device), "amax"),
    "index_add": lambda x, i, _: x.index_add_(0, i, torch.ones(3, 4, device=x.device)),
    "index_add, a vector": lambda x, i, _: x[:, 0].index_add_(0, i, torch.ones(3, device=x.device)),
    "index_copy": lambda x, i, _: x.index_copy_(0, i, torch.ones(3, 4, device=x.device)),
    "index_fill": lambda x, i, _: x.index_fill_(0, i, 1.0),
    "index_reduce": lambda x, i, _: x.index_reduce_(0, i, torch.ones(3, 4, device=x.device), "prod"),
    "embedding": lambda x, i, _: torch.nn.functional.embedding(i, x),
    "embedding_bag": lambda x, i, _: torch.nn.functional.embedding_bag(i, x, torch.tensor([0], device=x.device)),
    "nll_loss": lambda x, *_: torch.nn.functional.nll_loss(x, TARGET.to(x.device)),
    "multi_margin_loss": lambda x, *_: torch.nn.functional.multi_margin_loss(x, TARGET.to(x.device)),
    "multilabel_margin_loss": lambda x, _, row: torch.nn.functional.multilabel_margin_loss(x[:1], row),
    "max_unpool": lambda x, _, row: torch.nn.functional.max_unpool2d(x[None, :1, :4, None], 77 * (row == 7)[None, ..., None], (2, 1)),
    "cholesky_inverse": lambda x, *_: torch.cholesky_inverse(x[:4] * 0),
    "searchsorted": lambda x, i, _: torch.searchsorted(x[0, :3], x[0, :3], sorter=i),
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_numbers_raise_what_the_cpu_raises(name):
    """In the same words, to which the number is added where they don't tell it."""
    with pytest.raises(Exception) as expected:
        WRONG_NUMBERS[name](X.clone(), PICK, ROW)
    with pytest.raises(type(expected.value), match=f"^{re.escape(str(expected.value))}"):
        WRONG_NUMBERS[name](X.to(DEVICE, copy=True), PICK.to(DEVICE), ROW.to(DEVICE))
        torch.tpu.synchronize()


def test_assertions():
    for good in (torch.ones(1), torch.tensor(3), torch.tensor(True)):
        torch._assert_async(good.to(DEVICE))
    for call in (lambda d: torch._assert_async(torch.zeros(1, device=d)), lambda d: torch._assert_async(torch.zeros(1, device=d), "x is 0")):
        with pytest.raises(RuntimeError) as expected:
            call("cpu")
        with pytest.raises(RuntimeError, match=f"^{re.escape(str(expected.value))}"):
            call(DEVICE)
            torch.tpu.synchronize()


def test_what_is_told_late_names_its_operator():
    table, index = torch.ones(3, 2, device=DEVICE), torch.tensor([0, 7], device=DEVICE)
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        table.gather(0, index[:, None])
        with pytest.raises(RuntimeError, match=r"index 7 is out of bounds for dimension 0 with size 3\n\(aten::gather, which ran asynch"):
            torch.tpu.synchronize()


def test_an_index_out_of_range_is_reported_at_the_latest_when_synchronizing():
    table, index = torch.ones(3, 2, device=DEVICE), torch.tensor([0, 7], device=DEVICE)
    with pytest.raises(IndexError, match="out of range|out of bounds"):
        table[index]
        torch.tpu.synchronize()


def test_an_index_out_of_range_is_reported_at_once_when_blocking():
    table, index = torch.ones(3, 2, device=DEVICE), torch.tensor([0, 7], device=DEVICE)
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):
        with pytest.raises(IndexError):
            torch.nn.functional.embedding(index, table)


def test_work_goes_on_after_an_error():
    x = torch.ones(2, 3, device=DEVICE)
    with pytest.raises(RuntimeError):
        x @ x
    assert (x + 1).sum().item() == 12


# ---- operators without a lowering -----------------------------------------------------------------------------


def missing_operator():
    return on_the_host(torch.eye(2, device=DEVICE))


def test_fallback_error():
    with torch.tpu.set_cpu_fallback("error"):
        with pytest.raises(NotImplementedError, match="tpu_tests::on_the_host"):
            missing_operator()
    assert torch.tpu.get_cpu_fallback() != "error"


def test_fallback_silent_is_counted():
    torch.tpu.reset_op_coverage()
    with torch.tpu.set_cpu_fallback("silent"):
        result = missing_operator()
    assert result.device.type == DEVICE and result.tolist() == [[2.0, 1.0], [1.0, 2.0]]
    assert any("on_the_host" in name and count.fallback == 1 for name, count in torch.tpu.op_coverage().items())


def test_fallback_warns_once():
    done = run_python(
        """
        import torch
        from host_operator import on_the_host
        for _ in range(3):
            on_the_host(torch.eye(2, device="tpu"))
        """,
        TORCH_TPU_CPU_FALLBACK="warn",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("on_the_host' has no TPU lowering") == 1


# ---- what is not there ----------------------------------------------------------------------------------------


def test_what_is_not_implemented_says_so():
    with pytest.raises(NotImplementedError, match="SparseCore"):
        torch.tpu.Stream(pinned="sparse")
    with pytest.raises(AttributeError, match="does not exist in this version"):
        torch.tpu.distributed


def test_settings_refuse_nonsense():
    with pytest.raises(ValueError):
        torch.tpu.set_cpu_fallback("perhaps")
    with pytest.raises(TypeError):
        torch.tpu.eager_mode = 1
    with pytest.raises((ValueError, KeyError)):
        torch.tpu.precision("medium-rare")
    with pytest.raises(ValueError):
        torch.backends.tpu.matmul.fp32_precision = "fp8"
    with pytest.raises(TypeError):
        torch.tpu.allow_excess_precision = 1


def test_variables_that_make_no_sense_are_named_and_ignored():
    done = run_python(
        "import torch; print(torch.ones(1, device='tpu').item())",
        TORCH_TPU_CPU_FALLBACK="perhaps",
        TORCH_TPU_HBM_LIMIT="lots",
    )
    assert done.returncode == 0 and done.stdout.strip() == "1.0"
    assert "TORCH_TPU_CPU_FALLBACK" in done.stderr or "TORCH_TPU_HBM_LIMIT" in done.stderr


def test_running_out_of_memory():
    done = run_python(
        """
        import torch
        keep = []
        try:
            for _ in range(100):
                keep.append(torch.randn(1024, 1024, device="tpu") + 1)
                torch.tpu.synchronize()
        except torch.OutOfMemoryError as error:
            print(len(keep) < 20, error)
        del keep
        print((torch.ones(1000, device="tpu") + 1).sum().item())
        """,
        TORCH_TPU_HBM_LIMIT="64MiB",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True") and done.stdout.rstrip().endswith("2000.0")


def test_numbers_in_cpu_tensors():
    """Where PyTorch takes a 0-dim tensor of the CPU beside tensors of a device."""
    x, number = torch.arange(-2.0, 4.0).view(2, 3), torch.tensor(-5.0)
    functions = {
        "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
        "masked_fill_": lambda x, n: x.clone().t().masked_fill_(x.t() > 0, n),
        "where": lambda x, n: torch.where(x > 0, x, n),
        "fill_": lambda x, n: x.clone().fill_(n),
        "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1], device=x.device), n),
        "pow": lambda x, n: x.pow(n),
        "clamp": lambda x, n: x.clamp(min=n),
        "addcmul": lambda x, n: torch.addcmul(x, x, n),
        "index_put": lambda x, n: x.index_put((torch.tensor([1], device=x.device),), n),
        "full": lambda x, n: torch.full_like(x, n),
        "setitem": lambda x, n: x.clone().__setitem__((slice(None), 1), n),
    }
    for function in functions.values():
        assert_same(function(x.to(DEVICE), number), function(x, number))
