"""Random work on the device by several threads at once, for as long as wanted.

    python tests/soak.py --seconds 600 --threads 4 --seed 0

Every result is compared with the CPU's. Tensors pass between threads and die in others; eager modes change under the work; hooks and
functions of autograd raise; calls are wrong; memory runs out; the main thread, which works too, is interrupted over and over. In the end
everything is given back, memory has stayed flat, and the process leaves with work in flight.

Who is told of an index out of range: the call that made it, if its program ran at once; else one synchronisation, of whichever thread
(as on CUDA, where an error belongs to the device). While calls are deferred or blocking, a region or a wait is everybody's.
"""

import argparse
import collections
import gc
import os
import queue
import random
import re
import signal
import sys
import threading
import time
import traceback

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "tpu"
MODES = [torch.tpu.EagerMode.DEFER_NEVER] * 3 + [torch.tpu.EagerMode.DEFER_AND_FUSE] * 2 + [torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING]
SHAPES = [(4, 6), (3, 5), (16, 16), (1, 7), (64, 64)]
OUT_OF_RANGE = re.compile("out of (range|bounds)")
MIB = 1 << 20


class Planned(Exception):
    """Raised on purpose."""


class Raises(torch.autograd.Function):
    """The identity, which raises in forward or in backward."""

    @staticmethod
    def forward(context, x, where):
        context.where = where
        if where == "forward":
            raise Planned(where)
        return x * 1

    @staticmethod
    def backward(context, gradient):
        raise Planned(context.where)


def compiled_elementwise(x):
    return (x * 2 + 1).tanh() * x


def compiled_product(x):
    return F.softmax(x @ x.t(), -1) @ x


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Soak:
    def __init__(self, seconds: float, threads: int, seed: int) -> None:
        self.seconds, self.threads, self.seed = seconds, threads, seed
        self.counts: collections.Counter = collections.Counter()
        self.problems: list[str] = []
        self.passed_on: queue.Queue = queue.Queue(maxsize=32)
        self.lock = threading.Lock()
        self.mode, self.switches = MODES[0], 0  # switches: odd while the mode is being changed
        self.armed = False  # may the main thread be interrupted?
        self.large = torch.zeros(80 * MIB, dtype=torch.uint8)
        self.compiled = [torch.compile(f, backend="tpu", dynamic=False) for f in (compiled_elementwise, compiled_product)]

    # ---- work: each piece makes its own tensors -----------------------------------------------------------------

    def pair(self, r: random.Random, shape=None) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(r.randrange(1 << 30))
        host = torch.randn(shape or r.choice(SHAPES), generator=generator)
        return host.to(DEVICE), host

    def same(self, actual: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4, equal_nan=True)

    def arithmetic(self, r: random.Random) -> None:
        (x, h), c = self.pair(r), r.choice([0.5, 2.0, -1.0])
        for _ in range(r.randrange(1, 8)):
            f = r.choice([lambda t: t * c + t, torch.tanh, torch.neg, lambda t: t.clamp(-1, 1), lambda t: t / (t.abs() + 1),
                          lambda t: t - t.mean(-1, keepdim=True), lambda t: torch.where(t > 0, t, t * c)])
            x, h = f(x), f(h)
        self.same(x, h)

    def products(self, r: random.Random) -> None:
        x, h = self.pair(r)
        for _ in range(r.randrange(1, 4)):
            x, h = (torch.tanh(t @ t.t() @ t * 0.01) for t in (x, h))  # small, so that rounding stays so
        self.same(x, h)

    def views(self, r: random.Random) -> None:
        x, h = self.pair(r, r.choice([(4, 6), (16, 16)]))
        for _ in range(r.randrange(1, 6)):
            view = r.choice([lambda t: t.t(), lambda t: t[1:], lambda t: t[:, ::2], lambda t: t[-1], lambda t: t.diagonal(), lambda t: t])
            write = r.choice([lambda v: v.add_(1), lambda v: v.mul_(0.5), lambda v: v.copy_(v.clone().neg()), lambda v: v.zero_(),
                              lambda v: v.fill_(2.5)])
            write(view(x)), write(view(h))
        self.same(x, h)

    def indexing(self, r: random.Random) -> None:
        (x, h), rows = self.pair(r, (16, 16)), torch.tensor([r.randrange(16) for _ in range(5)])
        f = r.choice([lambda t, i: t[i], lambda t, i: t.index_add(0, i, t[:5]), lambda t, i: t.gather(1, i.expand(16, 5)),
                      lambda t, i: t[t > 0], lambda t, i: t.index_put((i,), t[0]), lambda t, i: t.sort(-1)[0],
                      lambda t, i: F.embedding(i, t), lambda t, i: t.masked_fill(t < 0, 1.0).cumsum(0), lambda t, i: t.topk(3)[0]])
        self.same(f(x, rows.to(DEVICE)), f(h, rows))

    def backward(self, r: random.Random) -> None:
        (x, h), (w, v) = self.pair(r, (4, 6)), self.pair(r, (5, 6))
        for t in (x, h, w, v):
            t.requires_grad_()
        for a, b in ((x, w), (h, v)):
            F.layer_norm(F.gelu(F.linear(a, b)), (5,), eps=0.1).square().sum().backward()  # small gradients, so that rounding stays so
        self.same(x.grad, h.grad)
        self.same(w.grad, v.grad)

    def training(self, r: random.Random) -> None:
        host = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        ours = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        ours.load_state_dict(host.state_dict())
        ours.to(DEVICE)
        options = r.choice([{"foreach": True}, {"fused": True}, {}])
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, **options) for m in (ours, host)]
        (x, h), target = self.pair(r, (8, 6)), torch.tensor([r.randrange(3) for _ in range(8)])
        for _ in range(2):
            losses = []
            for model, data, labels, optimizer in zip((ours, host), (x, h), (target.to(DEVICE), target), optimizers):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            assert abs(losses[0] - losses[1]) < 1e-3, losses
        for p, q in zip(ours.parameters(), host.parameters()):
            torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-2, atol=1e-3)

    def graphs(self, r: random.Random) -> None:
        i = r.randrange(2)
        x, h = self.pair(r, r.choice([(4, 6), (16, 16)]))
        self.same(self.compiled[i](x), (compiled_elementwise, compiled_product)[i](h))

    def transfers(self, r: random.Random) -> None:
        _, h = self.pair(r)
        h = h.to(r.choice([torch.float32, torch.bfloat16, torch.float64, torch.int32]))
        x = h.to(DEVICE, non_blocking=r.random() < 0.5)
        y = torch.empty_like(x).copy_(x.t().contiguous().t())
        assert torch.equal(y.cpu(), h) and x.flatten()[0].item() == h.flatten()[0].item() and x.tolist() == h.tolist()

    def random_numbers(self, r: random.Random) -> None:
        seed = r.randrange(1 << 30)
        a, b = (torch.rand(16, 16, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed)) for _ in range(2))
        assert torch.equal(a.cpu(), b.cpu()) and 0 <= a.min().item() <= a.max().item() < 1
        assert F.dropout(a, 0.5).shape == a.shape

    def hand_over(self, r: random.Random) -> None:
        (x, h), write = self.pair(r), r.random() < 0.5
        if write:
            x.add_(1), h.add_(1)
        try:
            self.passed_on.put_nowait((x * 2, h * 2))
        except queue.Full:
            pass

    def take_over(self, r: random.Random) -> None:
        try:
            x, h = self.passed_on.get_nowait()
        except queue.Empty:
            return
        if r.random() < 0.7:
            self.same(x + 1, h + 1)

    def synchronize(self, r: random.Random) -> None:
        torch.tpu.synchronize()

    # ---- what goes wrong ----------------------------------------------------------------------------------------

    def raising(self, r: random.Random) -> None:
        x, _ = self.pair(r, (4, 6))
        x.requires_grad_()
        where = r.choice(["forward", "backward", "hook", "module hook"])
        try:
            if where == "module hook":
                model = nn.Linear(6, 6).to(DEVICE)
                model.register_forward_hook(self.raise_planned)
                model(x)
            elif where == "hook":
                y = x * 2
                y.register_hook(self.raise_planned)
                (y.tanh() @ y.t()).sum().backward()
            else:
                Raises.apply(x.tanh(), where).sum().backward()
        except Planned:
            self.count("planned exceptions")
        else:
            raise AssertionError(f"the exception in {where} was lost")
        torch.zeros((), requires_grad=True).backward()  # PyTorch keeps what a failed backward has queued until the next one

    @staticmethod
    def raise_planned(*_):
        raise Planned("hook")

    def out_of_range(self, r: random.Random) -> None:
        x, _ = self.pair(r, (16, 16))
        self.count("indices out of range")
        x[torch.tensor([3, 16 + r.randrange(5)]).to(DEVICE)]  # told here or later

    def wrong_shape(self, r: random.Random) -> None:
        x, _ = self.pair(r, (4, 6))
        try:
            r.choice([lambda: x @ x, lambda: x + x.t(), lambda: x.view(5), lambda: torch.cat([x, x.t()])])()
        except RuntimeError as error:
            if OUT_OF_RANGE.search(str(error)):
                raise
            self.count("wrong shapes")
        else:
            raise AssertionError("a wrong shape was taken")

    def too_large(self, r: random.Random) -> None:
        try:
            self.large.to(DEVICE)
        except torch.OutOfMemoryError:
            self.count("out of memory")
        else:
            raise AssertionError("80 MiB went into 64")

    # ---- threads ------------------------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    PIECES = [arithmetic] * 4 + [products] * 2 + [views] * 3 + [indexing] * 3 + [backward] * 2 + [training, graphs, graphs, transfers] + \
        [random_numbers, hand_over, hand_over, take_over, take_over, take_over, synchronize, raising, out_of_range, wrong_shape, too_large]

    def piece(self, r: random.Random) -> None:
        work, switches = r.choice(self.PIECES), self.switches
        try:
            work(self, r)
            self.count("operations")
        except KeyboardInterrupt:
            raise
        except Exception as error:
            if self.is_told(error, work, switches):
                self.count("told of an index")
            else:
                with self.lock:
                    self.problems.append(f"{work.__name__} in {self.mode}: {traceback.format_exc()}")

    def is_told(self, error: Exception, work, switches: int) -> bool:
        if not OUT_OF_RANGE.search(str(error)):
            return False
        strict = self.mode is MODES[0] and switches == self.switches and not switches % 2
        return work.__name__ in ("out_of_range", "synchronize") or not strict

    def thread(self, number: int) -> None:
        r = random.Random(f"{self.seed} {number}")
        while time.monotonic() < self.end and len(self.problems) < 5:
            self.piece(r)

    def switch(self, r: random.Random) -> None:
        self.switches += 1
        self.mode = r.choice(MODES)
        try:
            torch.tpu.eager_mode = self.mode
        except (IndexError, RuntimeError) as error:
            if not OUT_OF_RANGE.search(str(error)):
                raise
            self.count("told of an index")
        self.switches += 1
        self.count("modes changed")

    def interrupt(self) -> None:
        r = random.Random(self.seed)
        while time.monotonic() < self.end:
            time.sleep(r.uniform(0.02, 0.4))
            os.kill(os.getpid(), signal.SIGINT)

    def on_interrupt(self, *_) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def main_thread(self) -> None:
        """Works too, and is interrupted."""
        r = random.Random(f"{self.seed} main")
        last_switch = time.monotonic()
        while time.monotonic() < self.end and len(self.problems) < 5:
            if time.monotonic() - last_switch > 0.5:
                self.switch(r)
                last_switch = time.monotonic()
            try:
                self.armed = True
                self.piece(r)
                self.armed = False
            except KeyboardInterrupt:
                self.armed = False
                self.count("interrupts")
            self.watch()

    def watch(self) -> None:
        """Resident memory after a while."""
        if not self.resident and time.monotonic() > self.end - 0.6 * self.seconds:
            self.resident, self.programs = resident(), torch.tpu.compile_cache_stats().compilations

    # ---- the whole ----------------------------------------------------------------------------------------------

    def settle(self) -> tuple[int, int]:
        gc.collect()
        torch.tpu.empty_cache()
        for _ in range(3):
            try:
                torch.tpu.synchronize()
            except (IndexError, RuntimeError) as error:
                assert OUT_OF_RANGE.search(str(error)), error
                self.count("told of an index")
        return torch.tpu.memory_allocated(), torch.tpu.memory_stats()["allocation.all.current"]

    def run(self) -> None:
        r = random.Random(self.seed)
        self.resident = self.programs = 0
        for shape in ((4, 6), (16, 16)):
            for f in self.compiled:
                f(torch.ones(shape, device=DEVICE))  # an interrupt amid PyTorch's own compiling is not ours to survive
        before = self.settle()
        self.end = time.monotonic() + self.seconds
        signal.signal(signal.SIGINT, self.on_interrupt)
        workers = [threading.Thread(target=self.thread, args=(i,)) for i in range(self.threads - 1)]
        interrupter = threading.Thread(target=self.interrupt)
        for t in [*workers, interrupter]:
            t.start()
        self.main_thread()
        for t in [*workers, interrupter]:
            t.join()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.passed_on = queue.Queue()
        torch.tpu.eager_mode = MODES[0]
        after, grown = self.settle(), (resident() - self.resident) / MIB
        programs = torch.tpu.compile_cache_stats().compilations - self.programs  # threads that share regions make ever new ones
        if after[1] != before[1] or after[0] != before[0]:
            self.problems.append(f"bytes and arrays in use: {before} became {after}")
        if grown > 32 + 0.4 * programs:
            self.problems.append(f"resident memory grew by {grown:.0f} MiB while {programs} programs were compiled")
        if self.counts["told of an index"] > self.counts["indices out of range"]:
            self.problems.append("more failures were told than there were")
        print(dict(self.counts), f"resident MiB: {self.resident / MIB:.0f} {resident() / MIB:.0f}", f"in use: {before} {after}",
              f"programs: {torch.tpu.compile_cache_stats().loaded}, of which {programs} since then")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    soak = Soak(**vars(parser.parse_args()))
    soak.run()
    print(*soak.problems, sep="\n")
    x = torch.randn(512, 512, device=DEVICE)
    for _ in range(20):
        x = torch.tanh(x @ x)
    sys.exit(bool(soak.problems))  # with that in flight


if __name__ == "__main__":
    main()
