"""Storages, which PyTorch would reach by their addresses: what is done to them is done, or refused, as on the CPU."""

import pytest
import torch
from conftest import DEVICE

WORKS = {
    "tolist": lambda s: s.tolist(),
    "item": lambda s: s[3],
    "set": lambda s: s.__setitem__(3, 7),
    "set several": lambda s: s.__setitem__(slice(0, 2), 3),
    "fill_": lambda s: s.fill_(3).tolist(),
    "copy_": lambda s: s.copy_(torch.arange(8, dtype=torch.uint8).untyped_storage()).tolist(),
    "clone": lambda s: s.clone().tolist(),
    "cpu": lambda s: s.cpu().tolist(),
    "bytes": lambda s: bytes(s),
    "float": lambda s: s.float().tolist(),
    "byteswap": lambda s: s.byteswap(torch.int16),
    "complex byteswap": lambda s: s.byteswap(torch.complex64),
    "resize_": lambda s: s.resize_(4).tolist(),
}


@pytest.mark.parametrize("name", WORKS)
def test_as_on_the_cpu(name):
    answers = []
    for device in ("cpu", DEVICE):
        t = torch.arange(8, dtype=torch.uint8).to(device)
        answers += [(WORKS[name](t.untyped_storage()), t.untyped_storage().tolist())]
    assert answers[0] == answers[1]


def test_parts_are_refused():
    storage = torch.arange(8.0, device=DEVICE).untyped_storage()
    with pytest.raises(NotImplementedError, match="slice a tensor"):
        storage[2:4]
    assert torch.arange(8.0).untyped_storage()[2:4].tolist() == [0, 0]
