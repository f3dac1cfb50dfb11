"""Some seconds of the soak, and that a process which fails it says so (see soak.py)."""

import os
import random
import subprocess
import sys

import soak
from conftest import NO_CACHE


def test_threads_survive_random_work():
    done = subprocess.run([sys.executable, "-X", "faulthandler", soak.__file__, "--seconds", "12", "--seed", str(os.getpid())],
                          env={**NO_CACHE, **os.environ, "TORCH_TPU_HBM_LIMIT": "64MiB"}, capture_output=True, text=True, timeout=300)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    for what in ("operations", "interrupts", "planned exceptions", "indices out of range", "out of memory", "modes changed"):
        assert f"'{what}'" in done.stdout


def test_wrong_numbers_are_seen():
    class Wrong(soak.Soak):
        def same(self, actual, expected):
            super().same(actual + 0.01, expected)

    wrong = Wrong(1, 1, 0)
    for seed in range(30):
        wrong.piece(random.Random(seed))
    assert any("not close" in problem for problem in wrong.problems)
