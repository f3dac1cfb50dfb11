"""Training steps in which one call of the plugin fails: run in a process of its own, whose plugin is the mock before a real one.

``python -c "import faults; faults.main(modes, most)"`` tries faults of every kind in some modes, ``most`` of each kind (0: all), and
prints what happened. A fault is told once, by an exception at the call or at the next synchronisation, or it is made good, so that the
step is right all the same. After it the device works, nothing leaks, and a step from a saved state gives the same bits as ever.
"""

import collections
import copy
import ctypes
import gc
import os
import re
import sys

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "tpu"
KINDS = {"compile": 2, "execute": 4, "result": 5, "from_host": 6, "to_host": 7, "await": 8}  # csrc/pjrt/mock/mock.h
INTERNAL, RESOURCE_EXHAUSTED = 13, 8  # PJRT's error codes
WHERE = re.compile(r"aten::|copy to the (device|host)|graph\d+_|region_\d")  # a message says what failed


class Mock:
    """The mock's controls."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["TPU_LIBRARY_PATH"])

    def __getattr__(self, name: str):
        return getattr(self.library, f"tt_mock_{name}")

    def counts(self) -> dict[str, int]:
        return {name: self.count(number) for name, number in KINDS.items()}


class Net(nn.Module):
    """A little of everything: lookups, a convolution, attention, norms, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.convolution = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + F.relu(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(F.dropout(x, 0.1, self.training))


class Training:
    """One step from a saved state. Its outcome is the loss and everything that the step wrote, as bits."""

    def __init__(self, mode: str) -> None:
        torch.manual_seed(0)
        self.tokens, self.targets = torch.randint(11, (2, 6)), torch.randint(11, (12,))
        self.model = Net().to(DEVICE)
        first, second = list(self.model.parameters())[:4], list(self.model.parameters())[4:]
        self.optimizers = [torch.optim.AdamW(first, foreach=True), torch.optim.AdamW(second, fused=True)]
        self.forward = torch.compile(self.model, backend="tpu") if mode.startswith("compiled") else self.model
        self.untouched = torch.arange(6.0, device=DEVICE) * 2
        self.slow = torch.eye(512, device=DEVICE) if mode == "queued" else None
        self.run()
        self.saved = copy.deepcopy([m.state_dict() for m in (self.model, *self.optimizers)], {})
        self.saved = [_to_cpu(s) for s in self.saved]

    def run(self) -> float:
        if self.slow is not None:  # what comes behind it is queued
            self.slow @ self.slow
        tokens, targets = self.tokens.to(DEVICE), self.targets.to(DEVICE)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = F.cross_entropy(self.forward(tokens).flatten(0, 1), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def restore(self) -> None:
        for target, saved in zip((self.model, *self.optimizers), self.saved):
            target.load_state_dict(copy.deepcopy(saved))
        self.model.zero_grad()
        torch.manual_seed(1)

    def outcome(self, loss: float) -> list:
        return [loss, *_flat(_to_cpu([m.state_dict() for m in (self.model, *self.optimizers)]))]

    def check_untouched(self) -> None:
        assert self.untouched.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def _to_cpu(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {k: _to_cpu(v) for k, v in value.items()}
    return [_to_cpu(v) for v in value] if isinstance(value, list) else value


def _flat(value) -> list:
    if isinstance(value, torch.Tensor):
        return value.reshape(-1).double().tolist()
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in _flat(v)] if isinstance(value, list) else [value]


def _settle() -> None:
    gc.collect()
    torch.tpu.synchronize()


class Trial:
    """Makes calls fail, one after another, and compares what follows with what a step without a fault gives."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.mock = Mock()
        self.training = Training(mode)
        self.told: collections.Counter = collections.Counter()
        self.complaints: list[str] = []
        for _ in range(3):  # regions and compiled graphs need some steps until they are the same each time
            self.training.restore()
            self.expected = self.training.outcome(self.training.run())
        self.alive = self.measure()
        before = self.mock.counts()
        self.training.restore()
        prepared = self.mock.counts()
        self.chill()
        self.training.run()
        torch.tpu.synchronize()
        self.calls = {k: n - prepared[k] for k, n in self.mock.counts().items()}
        assert prepared["from_host"] > before["from_host"]

    def measure(self) -> dict[str, int]:
        _settle()
        return {"buffers": self.mock.live_buffers(), "objects": self.mock.live_objects() - self.programs(),
                "bytes": torch.tpu.memory_allocated(), "values": torch.tpu.memory_stats()["allocation.all.current"]}

    def programs(self) -> int:
        return torch.tpu.compile_cache_stats().loaded

    def chill(self) -> None:
        if self.mode == "compiled cold":
            torch._dynamo.reset()

    def failing_step(self, kind: str, n: int, code: int) -> list[Exception]:
        raised, loss = [], None
        self.chill()
        self.mock.fail_code(code)
        self.mock.fail_nth(KINDS[kind], n)
        try:
            loss = self.training.run()
        except Exception as error:
            raised.append(error.with_traceback(None))
        try:
            torch.tpu.synchronize()
        except Exception as error:
            raised.append(error.with_traceback(None))
        self.mock.fail_nth(KINDS[kind], 0)
        try:
            if not raised and self.training.outcome(loss) != self.expected:
                self.complain(kind, n, "nothing was told, and the step is wrong")
        except Exception as error:  # a program that ran at once, whose failure the plugin tells with its results
            raised.append(error.with_traceback(None))
            if kind != "result" or self.mode == "blocking":
                self.complain(kind, n, f"told only when read: {error}")
        return raised

    def complain(self, kind: str, n: int, what: str) -> None:
        self.complaints.append(f"{self.mode}, call {n} of kind {kind}: {what}")

    def check_message(self, kind: str, n: int, code: int, error: Exception) -> None:
        text = str(error)
        if "mock: " not in text or not WHERE.search(text):
            self.complain(kind, n, f"unclear message: {type(error).__name__}: {text}")
        if (code == RESOURCE_EXHAUSTED) != isinstance(error, torch.OutOfMemoryError):
            self.complain(kind, n, f"an exception of another type: {type(error).__name__}: {text}")

    def one(self, kind: str, n: int, code: int, again: bool = False) -> None:
        self.training.restore()
        torch.tpu.synchronize()
        raised = self.failing_step(kind, n, code)
        if len(raised) > 1:
            self.complain(kind, n, f"told {len(raised)} times: {[str(e) for e in raised]}")
        for error in raised:
            self.check_message(kind, n, code, error)
        self.told[f"{kind} {'told' if raised else 'made good'}"] += 1
        del raised
        try:
            self.training.check_untouched()
            self.training.restore()
            outcome = self.training.outcome(self.training.run())
            if outcome != self.expected:
                self.complain(kind, n, "the next step is wrong")
            alive = self.measure()
            if alive != self.alive and not again:  # a step that ended elsewhere has programs of its own, which keep their numbers
                self.alive = alive
                self.one(kind, n, code, again=True)
            elif alive != self.alive:
                self.complain(kind, n, f"leaks: {self.alive} became {alive}")
                self.alive = alive
        except Exception as error:
            self.complain(kind, n, f"afterwards: {type(error).__name__}: {error}")

    def all(self, most: int, seed: int = 0) -> None:
        for kind, count in self.calls.items():
            if self.mode in ("cold", "cached cold") and kind != "compile":  # the others are the same as ever
                continue
            chosen = range(1, count + 1)
            if most and count > most:  # the first, the last, and some between
                chosen = sorted({1, count, *(1 + (seed + i) * (count - 1) // most % count for i in range(most))})
            for n in chosen:
                self.one(kind, n, RESOURCE_EXHAUSTED if n % 3 == 0 else INTERNAL)


EAGER = {"blocking": torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING, "deferred": torch.tpu.EagerMode.DEFER_AND_FUSE}


def main(modes: str, most: int) -> None:
    complaints = []
    for mode in modes.split(","):
        torch.tpu.eager_mode = EAGER.get(mode, torch.tpu.EagerMode.DEFER_NEVER)
        Mock().delay_us(KINDS["execute"], 200 if mode == "queued" else 0)
        torch._dynamo.reset()
        trial = Trial(mode)
        trial.all(most)
        complaints += trial.complaints
        print(mode, "calls:", trial.calls, "faults:", dict(trial.told))
    print(*complaints, sep="\n")
    sys.exit(bool(complaints))
