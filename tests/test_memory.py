"""Device memory is counted, given back, and does not leak."""

import gc
import os

import pytest
import torch
from conftest import DEVICE

MIB = 1024 * 1024


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def settle():
    gc.collect()
    torch.tpu.synchronize()
    torch.tpu.empty_cache()  # what malloc keeps for later is no leak


def test_memory_is_counted_and_given_back():
    def near(bytes_, expected):  # numbers that programs take are kept for the next call
        return abs(bytes_ - expected) < 4096

    settle()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    x = torch.randn(1024, 1024, device=DEVICE)
    settle()
    assert near(torch.tpu.memory_allocated() - before, 4 * MIB)
    y = x.view(-1)
    del x
    settle()
    assert near(torch.tpu.memory_allocated() - before, 4 * MIB)
    del y
    settle()
    assert near(torch.tpu.memory_allocated(), before)
    assert torch.tpu.max_memory_allocated() - before >= 4 * MIB
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == torch.tpu.memory_allocated()


def test_uninitialised_and_constant_tensors_cost_nothing():
    settle()
    before = torch.tpu.memory_allocated()
    keep = [torch.empty(1024, 1024, device=DEVICE), torch.zeros(1024, 1024, device=DEVICE), torch.full((MIB,), 3.5, device=DEVICE)]
    settle()
    assert torch.tpu.memory_allocated() - before < MIB
    assert keep[2].sum().item() == 3.5 * MIB


def test_accelerator_says_the_same():
    x = torch.randn(256, 256, device=DEVICE)
    settle()
    assert torch.accelerator.memory_allocated() == torch.tpu.memory_allocated() > 0
    assert torch.accelerator.max_memory_allocated() == torch.tpu.max_memory_allocated()
    free, total = torch.tpu.mem_get_info()
    assert 0 <= free <= total
    torch.tpu.empty_cache()
    torch.accelerator.empty_cache()
    del x


def test_a_hundred_thousand_operators_leave_memory_flat():
    x, one = torch.zeros(64, device=DEVICE), torch.ones(64, device=DEVICE)

    def run(count):
        nonlocal x
        for _ in range(count // 4):
            x = x + one
            x.mul_(0.5)
            x = x.view(8, 8).t().reshape(64)
            x.add_(one[0])
        settle()

    run(10_000)
    before, allocated = resident_bytes(), torch.tpu.memory_allocated()
    run(100_000)
    assert resident_bytes() - before < 8 * MIB
    assert torch.tpu.memory_allocated() == allocated


def test_training_leaves_memory_flat():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(16, 32, device=DEVICE)

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        settle()

    run(50)
    before, allocated = resident_bytes(), torch.tpu.memory_allocated()
    run(300)
    assert resident_bytes() - before < 8 * MIB
    assert torch.tpu.memory_allocated() == allocated


@pytest.mark.parametrize("size", [0, 1])
def test_tiny_storages(size):
    a, b = torch.empty(size, device=DEVICE), torch.empty(size, device=DEVICE)
    assert a.untyped_storage().nbytes() == 4 * size
    assert (a.data_ptr() == b.data_ptr()) == (size == 0)
