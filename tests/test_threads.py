"""Any thread may use the device; waiting leaves Python to the others and can be interrupted."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from conftest import DEVICE, assert_same


def test_many_threads_at_once():
    def work(n):
        x = torch.full((16, 16), float(n), device=DEVICE)
        for _ in range(50):
            x = (x @ torch.eye(16, device=DEVICE)).add_(1)
        return x.sum().item()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [256.0 * (n + 50) for n in range(16)]


def test_tensors_cross_threads():
    made = []

    def make():
        made.append(torch.arange(8.0, device=DEVICE) * 2)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert_same(made[0] + 1, torch.arange(8.0) * 2 + 1)


def test_one_tensor_written_by_many_threads_stays_whole():
    x = torch.zeros(1000, device=DEVICE)

    def work(_):
        for _ in range(20):
            x.add_(1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert x.min().item() == x.max().item()  # each write is of the whole tensor


def test_backward_in_threads():
    weight = torch.ones(8, 8, device=DEVICE)

    def work(n):
        w = weight.clone().requires_grad_()
        (w * n).sum().backward()
        return w.grad.sum().item()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [64.0 * n for n in range(8)]


def test_precision_and_modes_belong_to_the_thread_that_set_them():
    from torch_tpu import _C

    seen = []
    with torch.tpu.precision(torch.tpu.Precision.HIGHEST):
        assert _C._precision() == (2, 2)
        thread = threading.Thread(target=lambda: seen.append(_C._precision()))
        thread.start()
        thread.join()
        with torch.tpu.precision("high"):
            assert _C._precision() == (1, 1)
    assert seen == [(0, 0)] and _C._precision() == (0, 0)


def test_waiting_lets_other_threads_run():
    x = torch.randn(1024, 1024, device=DEVICE)
    ticks, stop = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    for _ in range(20):
        x = torch.tanh(x @ x)
    torch.tpu.synchronize()
    stop.set()
    thread.join()
    assert ticks > 10


def test_a_wait_can_be_interrupted():
    code = """if True:
        import signal, torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts out ignoring it
        x = torch.randn(2048, 2048, device="tpu")
        (x @ x).sum().item()
        print("ready", flush=True)
        try:
            while True:
                for _ in range(50):
                    x = torch.tanh(x @ x)
                torch.tpu.synchronize()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120)[0].strip() == "interrupted"
    finally:
        process.kill()


def test_a_process_ends_cleanly_with_work_in_flight():
    code = """if True:
        import torch
        x = torch.randn(512, 512, device="tpu")
        for _ in range(20):
            x = torch.tanh(x @ x)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr
