"""Products of groups of rows with a matrix each, whose ends are known only at run time: mixtures of experts."""

import pytest
import torch
from conftest import assert_same, check, compiled

ENDS = {  # of 4 groups
    "even": [80, 160, 240, 320],
    "ragged": [1, 130, 131, 320],
    "empty ones": [0, 128, 128, 320],
    "one": [0, 0, 320, 320],
    "at tiles": [128, 256, 256, 320],
}
ROWS, K, N = 320, 16, 24


def matrices(a_dim, b_dim, dtype=torch.float32, transposed=False):
    a = torch.randn(4, ROWS if b_dim == 3 else 32, K).to(dtype) if a_dim == 3 else torch.randn(*((ROWS, K) if b_dim == 3 else (32, ROWS))).to(dtype)
    b = torch.randn(4, K, N).to(dtype) if b_dim == 3 else torch.randn(*((K, ROWS) if a_dim == 3 else (ROWS, N))).to(dtype)
    if transposed:
        a, b = (t.transpose(-1, -2).contiguous().transpose(-1, -2) for t in (a, b))
    return a, b


def ends_of(a_dim, b_dim, ends):
    return None if a_dim == b_dim == 3 else torch.tensor(ends, dtype=torch.int32)


def product(a, b, offs):
    return torch.nn.functional.grouped_mm(a, b, offs=offs)


@pytest.mark.parametrize("dims", [(2, 3), (3, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("transposed", [False, True])
def test_float32(dims, ends, transposed):
    check(product, *matrices(*dims, transposed=transposed), ends_of(*dims, ends), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [(2, 3), (3, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dims, dtype):
    check(product, *matrices(*dims, dtype), ends_of(*dims, ENDS["ragged"]), rtol=2e-2, atol=2e-2)


def test_groups_do_not_see_each_other():
    """What is not finite stays in its own group."""
    for dims in ((2, 3), (2, 2)):
        a, b = matrices(*dims)
        a[(5, slice(None)) if dims == (2, 3) else (slice(None), 5)] = float("inf")
        if dims == (2, 2):
            b[200] = float("nan")
        check(product, a, b, ends_of(*dims, ENDS["ragged"]), rtol=1e-4, atol=1e-4)


def test_rows_after_the_last_group_are_zero():
    a, b = matrices(2, 3)
    y = product(a.to("tpu"), b.to("tpu"), torch.tensor([3, 3, 9, 140], dtype=torch.int32, device="tpu")).cpu()
    assert_same(y[:140], product(a, b, torch.tensor([3, 3, 9, 140], dtype=torch.int32))[:140], rtol=1e-4, atol=1e-4)
    assert not y[140:].any()


def test_few_rows():
    for rows in (1, 2, 7):
        a, b = torch.randn(rows, K), torch.randn(4, K, N)
        check(product, a, b, torch.tensor([0, 1, 1, rows], dtype=torch.int32), rtol=1e-4, atol=1e-4)
    assert product(torch.zeros(0, K, device="tpu"), b.to("tpu"), torch.zeros(4, dtype=torch.int32, device="tpu")).shape == (0, N)


def loss(a, b, offs):
    return product(a, b, offs).square().sum()


def test_gradients_compiled_and_not(fresh_dynamo):
    a, b = matrices(2, 3)
    offs = torch.tensor(ENDS["ragged"], dtype=torch.int32)
    expected = torch.autograd.grad(loss(a.requires_grad_(), b.requires_grad_(), offs), (a, b))
    there = [t.detach().to("tpu").requires_grad_() for t in (a, b)]
    for function in (loss, compiled(loss)):
        assert_same(torch.autograd.grad(function(*there, offs.to("tpu")), there), expected, rtol=1e-4, atol=1e-3)
    assert torch._dynamo.utils.counters["tpu"]["splits"] == 0


def test_one_program_for_many_numbers_of_rows(fresh_dynamo):
    f, b = compiled(product), torch.randn(4, K, N)
    for rows in (40, 200, 3, 128, 129, 256):
        a, offs = torch.randn(rows, K), torch.tensor([1, rows // 2, rows // 2, rows], dtype=torch.int32)
        there = a.to("tpu")
        torch._dynamo.mark_dynamic(there, 0, min=2, max=256)
        assert_same(f(there, b.to("tpu"), offs.to("tpu")), product(a, b, offs), rtol=1e-4, atol=1e-4)
    assert torch._dynamo.utils.counters["tpu"]["programs"] == 1


@pytest.mark.parametrize("wrong", [
    lambda a, b, o: (a, b[:3], o), lambda a, b, o: (a, b, o.long()), lambda a, b, o: (a, b, None), lambda a, b, o: (a[:, :8], b, o),
    lambda a, b, o: (a.to(torch.bfloat16), b, o), lambda a, b, o: (a[0], b, o)])
def test_what_does_not_fit_is_refused(wrong):
    a, b = (t.to("tpu") for t in matrices(2, 3))
    with pytest.raises(RuntimeError):
        product(*wrong(a, b, torch.tensor(ENDS["even"], dtype=torch.int32, device="tpu")))
