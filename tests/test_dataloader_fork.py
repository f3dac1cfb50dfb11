"""DataLoader workers, pinned memory and fork."""

import multiprocessing
import os

import pytest
import torch
from conftest import DEVICE, python_output
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Squares(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor([float(index) ** 2]), index + torch.randint(1, (1,)).item()


@pytest.mark.parametrize("context", [None, "fork", "spawn", "forkserver"])
def test_workers_after_the_device_was_used(context):
    torch.ones(2, device=DEVICE).sum().item()
    loader = DataLoader(Squares(), batch_size=5, num_workers=2 if context else 0, multiprocessing_context=context)
    total = torch.zeros(1, device=DEVICE)
    for values, _ in loader:
        total += values.to(DEVICE).sum()
    assert total.item() == sum(n * n for n in range(20))


def test_pin_memory():
    loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=5, pin_memory=True)
    assert sum(batch.to(DEVICE, non_blocking=True).sum().item() for (batch,) in loader) == 45


def test_workers_may_seed_and_ask():
    out = python_output("""
        import torch
        from torch.utils.data import DataLoader

        class Ask(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i):
                torch.manual_seed(i)
                return int(torch.tpu.is_available()), torch.tpu.device_count(), int(torch.tpu._is_in_bad_fork())

        torch.ones(1, device="tpu").item()
        print(*[torch.stack(list(batch)).tolist() for batch in DataLoader(Ask(), batch_size=2, num_workers=2)])
    """)
    assert out.count("[1, 1]") >= 2


def in_child(function) -> str:
    """Runs the function in a forked child; gives what it returned or the error's text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = str(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_a_forked_child_gets_a_clear_error():
    x = torch.ones(3, device=DEVICE)
    torch.tpu.synchronize()
    for function in (
        lambda: torch.ones(2, device=DEVICE).sum().item(),
        lambda: (x + 1).tolist(),
        lambda: torch.tpu.synchronize(),
        lambda: x.cpu(),
    ):
        answer = in_child(function)
        assert answer.startswith("RuntimeError") and "fork" in answer and "spawn" in answer, answer
    assert in_child(torch.tpu._is_in_bad_fork) == "True" and in_child(torch.tpu.is_initialized) == "False"
    assert in_child(lambda: (torch.ones(2) + 1).tolist()) == "[2.0, 2.0]"
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_child_forked_before_first_use_can_use_the_device():
    out = python_output("""
        import os, torch
        torch.manual_seed(0); torch.tpu.is_available(); torch.tpu.memory_allocated()
        child = os.fork()
        total = (torch.ones(3, device="tpu") * (2 if child else 3)).sum().item()
        os.write(1, f"{total}\\n".encode())  # at once: the other one writes as well
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """)
    assert sorted(out.split()) == ["6.0", "9.0"]


def test_tensors_go_to_spawned_processes():
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(total, (torch.arange(4.0),)) == 6.0


def total(x):
    return x.to(DEVICE).sum().item()

