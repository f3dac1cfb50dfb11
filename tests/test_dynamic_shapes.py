"""Operators whose result's shape depends on data run on the device, with CPU's results and layouts."""

import pytest
import torch
from conftest import check


pytestmark = pytest.mark.usefixtures("native")


MASK = torch.tensor([[True, False, True], [False, False, True]])


def test_nonzero():
    check(lambda m: m.nonzero(), MASK)
    check(lambda m: m.nonzero().stride(), MASK)
    check(lambda m: m.nonzero(as_tuple=True), MASK)
    check(lambda m: m.nonzero(), torch.zeros(2, 0))
    check(lambda m: m.nonzero(), torch.tensor(3.0))
    check(lambda m: m.nonzero(), torch.zeros(4))


def test_masked_select():
    x = torch.arange(6.0).view(2, 3)
    check(lambda x, m: x.masked_select(m), x, MASK)
    check(lambda x, m: x.masked_select(m), x, MASK[0])
    check(lambda x, m: x[m], x, MASK)
    check(lambda x, m: x[:, m], x, MASK[0])


def test_mask_assignment():
    def assign(x, m):
        x = x.clone()
        x[m] = torch.tensor([10.0, 20.0, 30.0]).to(x.device)
        return x

    check(assign, torch.arange(6.0).view(2, 3), MASK)


def test_repeat_interleave():
    repeats = torch.tensor([2, 0, 3])
    check(lambda r: torch.repeat_interleave(r), repeats)
    check(lambda x, r: x.repeat_interleave(r, dim=1), torch.arange(6.0).view(2, 3), repeats)
    check(lambda x, r: x.repeat_interleave(r, dim=1, output_size=5), torch.arange(6.0).view(2, 3), repeats)
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        torch.repeat_interleave(torch.tensor([1, -1]).to("tpu"))
