"""DEFER_AND_FUSE: operators are collected and compiled together; what comes out is what Strict gives."""

import copy
import io
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import DEVICE, assert_same, python_output, run_python
from test_memory import resident_bytes
from torch import nn
from torch.nn import functional as F

Mode = torch.tpu.EagerMode
STEPS = int(os.environ.get("TORCH_TPU_TEST_DEFER_STEPS", "300"))
"""Steps of the long loops. 10000 takes minutes."""


@pytest.fixture
def defer():
    with torch.tpu.set_eager_mode(Mode.DEFER_AND_FUSE):
        yield


class Watch:
    """What was added to the statistics inside."""

    def __enter__(self):
        torch.tpu.synchronize()
        self.before = torch.tpu.fusion_stats()
        return self

    def __exit__(self, *exception):
        after = torch.tpu.fusion_stats()
        for name in ("recorded", "dropped", "regions", "programs"):
            setattr(self, name, getattr(after, name) - getattr(self.before, name))
        counts = {name: n - self.before.reasons[name] for name, n in after.reasons.items()}
        self.reasons = {name: n for name, n in counts.items() if n}


# ---- modes and statistics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", [Mode.DEFER_NEVER, Mode.DEFER_NEVER_AND_LAUNCH_BLOCKING])
def test_modes_nest(outer):
    x = torch.arange(4.0).to(DEVICE)
    with torch.tpu.set_eager_mode(outer):
        a = x * 2
        with Watch() as outside:
            b = a + 1
        with torch.tpu.set_eager_mode(Mode.DEFER_AND_FUSE), Watch() as inside:
            c = b * b
            with torch.tpu.set_eager_mode(outer):
                d = c - a
                assert torch.tpu.eager_mode is outer
            assert torch.tpu.eager_mode is Mode.DEFER_AND_FUSE
            e = d.exp()
        f = e + c  # what was collected is there
        assert torch.tpu.eager_mode is outer
        expected = (x.cpu() * 2 + 1) ** 2
        assert_same(f, (expected - x.cpu() * 2).exp() + expected)
    assert outside.recorded == 0
    assert inside.recorded == 2 and inside.reasons == {"mode": 1}


def test_the_environment_sets_the_mode():
    code = """
        import torch
        print(torch.tpu.eager_mode.name, torch.tpu.is_initialized(), sum(torch.tpu.fusion_stats()[:4]), end=" ")
        x = (torch.ones(3, device="tpu") * 2 + 1).sum().item()
        print(x, torch.tpu.fusion_stats().recorded > 0, torch.tpu.eager_mode.name)
    """
    assert python_output(code, TORCH_TPU_DEFER_AND_FUSE="1") == "DEFER_AND_FUSE False 0 9.0 True DEFER_AND_FUSE"
    assert python_output(code, TORCH_TPU_DEFER_AND_FUSE="0") == "DEFER_NEVER False 0 9.0 False DEFER_NEVER"


def test_statistics_are_public():
    stats = torch.tpu.fusion_stats()
    assert isinstance(stats, torch.tpu.FusionStats) and stats._fields == ("recorded", "dropped", "regions", "programs", "reasons")
    assert set(stats.reasons) == {
        "item", "copy", "synchronize", "event", "data", "resize", "repeat", "list", "size", "memory", "mode"
    }  # fmt: skip
    assert sum(stats.reasons.values()) == stats.regions
    assert {"FusionStats", "fusion_stats"} <= set(torch.tpu.__all__)


# ---- where a region ends ----------------------------------------------------------------------------------------


def event_record(x):
    torch.Event(DEVICE).record()


def stream_query(x):
    torch.tpu.current_stream().query()


def resize(x):
    x.resize_(20)
    x.resize_(6)


def save(x):
    buffer = io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    assert_same(torch.load(buffer), x)


def load(x):
    model = nn.Linear(6, 1, bias=False).to(DEVICE)
    model.load_state_dict({"weight": x.view(1, 6)})
    assert_same(model.weight.detach().view(6), x)


READERS = {
    "item": (lambda x: x.sum().item(), "item"),
    "element": (lambda x: float(x[2]), "item"),
    "bool": (lambda x: bool(x.sum() > 0), "item"),
    "print": (lambda x: repr(x), None),
    "cpu": (lambda x: x.cpu(), "copy"),
    "to": (lambda x: x.to("cpu", torch.float64), "copy"),
    "tolist": (lambda x: x.tolist(), None),
    "copy_": (lambda x: torch.empty(6).copy_(x), "copy"),
    "nonzero": (lambda x: x.nonzero(), "data"),
    "masked_select": (lambda x: x.masked_select(x > 3), "data"),
    "mask": (lambda x: x[x > 3], "data"),
    "repeat_interleave": (lambda x: x.repeat_interleave(torch.arange(6, device=DEVICE)), "data"),
    "synchronize": (lambda x: torch.tpu.synchronize(), "synchronize"),
    "stream": (lambda x: torch.tpu.current_stream().synchronize(), "synchronize"),
    "query": (stream_query, "event"),
    "event": (event_record, "event"),
    "resize": (resize, "resize"),
    "save": (save, "copy"),
    "load": (load, "copy"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_ends_a_region(name, defer):
    read, reason = READERS[name]
    x = torch.arange(6.0).to(DEVICE)
    with Watch() as nothing:
        y = (x * 2 + 1).sqrt()
    assert nothing.regions == 0 and nothing.recorded == 3
    with torch.tpu.set_eager_mode(Mode.DEFER_NEVER):
        expected = read((x * 2 + 1).sqrt())
    y = (x * 2 + 1).sqrt()
    before = torch.tpu.fusion_stats()
    actual = read(y)
    after = torch.tpu.fusion_stats()
    assert after.regions > before.regions
    ended = {r for r in after.reasons if after.reasons[r] > before.reasons[r]}
    assert ended & {"item", "copy"} if reason is None else reason in ended
    if isinstance(expected, torch.Tensor):
        assert_same(actual, expected)
    else:
        assert actual == expected
    assert_same(y, (x.cpu()[: 6] * 2 + 1).sqrt())


def test_what_ends_no_region(defer):
    x = torch.arange(6.0).to(DEVICE)
    with Watch() as watch:
        y = (x * 2).view(2, 3).t()
        z = y.detach().clone().requires_grad_()
        assert z.shape == (3, 2) and z.is_contiguous() is False and y.data_ptr() and z.dtype is torch.float32
        w = copy.copy(z) + torch.empty_like(y).fill_(2)
        w.zero_()
        torch.tpu.memory_allocated(), torch.tpu.fusion_stats(), torch.tpu.op_coverage()
    assert watch.regions == 0


def test_numpy_says_what_strict_says(defer):
    x = torch.ones(2, device=DEVICE) + 1
    with pytest.raises(TypeError) as deferred:
        x.numpy()
    with torch.tpu.set_eager_mode(Mode.DEFER_NEVER), pytest.raises(TypeError) as strict:
        x.numpy()
    assert str(deferred.value) == str(strict.value)


def test_memory_pressure():
    code = """
        import torch
        MIB = 1 << 20
        x = torch.ones(256, 1024).to("tpu")              # 1 MiB
        kept = []
        for n in range(40):                               # more than fits, but all but 8 are dropped
            y = x * (n + 2.5) + 1
            if n % 5 == 0: kept.append(y)
        del y
        assert [k[0, 0].item() for k in kept] == [n + 3.5 for n in range(0, 40, 5)]
        stats = torch.tpu.fusion_stats()
        assert stats.reasons["memory"] > 0, stats
        assert torch.tpu.max_memory_allocated() <= 16 * MIB
        try:
            more = [x * (n + 2.5) for n in range(20)]
            torch.tpu.synchronize()
        except torch.OutOfMemoryError as error:
            assert "TORCH_TPU_HBM_LIMIT" in str(error)
        else:
            raise AssertionError("no failure")
        more = None
        torch.tpu.synchronize()
        print((x + 1).sum().item())
    """
    assert python_output(code, TORCH_TPU_DEFER_AND_FUSE="1", TORCH_TPU_HBM_LIMIT="16MiB") == str(2.0 * 256 * 1024)


# ---- fusing ---------------------------------------------------------------------------------------------------------


def test_views_and_writes_through_them_are_fused(defer):
    def run(x):
        x[1:3] += 10
        x.t()[0].mul_(2)
        x[:, 1:].copy_(x[:, :-1].clone())
        y = x.view(-1)[::2]
        y.add_(x.flatten()[1::2])
        x[x.shape[0] - 1, 0] = 7
        return x.as_strided((2, 2), (4, 1), 1).exp()

    x = torch.arange(16.0).view(4, 4)
    on_device = x.to(DEVICE)
    with Watch() as watch:
        result = run(on_device)
        torch.tpu.synchronize()
    assert watch.regions == 1 and watch.recorded >= 8
    assert_same(result, run(x))
    assert_same(on_device, x)


def test_what_is_deleted_is_never_computed(defer):
    x = torch.randn(1 << 18).to(DEVICE)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    with Watch() as watch:
        y = x.exp()
        del y
        z = (x * 2).sin().sum()
        torch.tpu.synchronize()
    assert watch.recorded == 4 and watch.dropped == 1 and watch.regions == 1
    assert torch.tpu.max_memory_allocated() - before < 4096  # x * 2 and its sine are in no memory either
    assert_same(z, (x.cpu() * 2).sin().sum(), rtol=1e-4, atol=1e-2)


def test_a_deferred_value_is_a_snapshot(defer):
    x = torch.zeros(4, device=DEVICE)
    rows = []
    for n in range(5):
        rows.append(x * 10)
        x += n
    assert_same(torch.stack(rows)[:, 0], torch.tensor([0.0, 0, 10, 30, 60]))


def test_exceptions_leave_the_device_usable(defer):
    x = torch.ones(2, 3, device=DEVICE)
    y = x * 2
    with pytest.raises(RuntimeError):
        y @ y
    z = y + 1
    with pytest.raises(IndexError, match="out of range|out of bounds"):
        y.index_select(0, torch.tensor([0, 5], device=DEVICE))
        torch.tpu.synchronize()
    torch.tpu.synchronize()  # told once
    assert_same(z, torch.full((2, 3), 3.0))
    with pytest.raises(ZeroDivisionError):
        w = z * 3
        1 / 0
    assert_same(w - z, torch.full((2, 3), 6.0))


# ---- training --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, bias=False, batch_first=True)
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm(x)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))


def transformer():
    return nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), Block(16), nn.Linear(16, 8))


def convolutions():
    return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(1, 2), nn.LazyBatchNorm1d())


def dropping():
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 8), nn.Dropout(0.1))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adam foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "Adam one by one": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
}


def train(make, optimizer, device, steps=6, read_losses=False):
    """State and last loss of a training."""
    torch.manual_seed(3)
    model = make()
    batches = [torch.randn(6, 4, 8) for _ in range(3)]
    model(batches[0])
    model.to(device)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    torch.manual_seed(4)
    batches = [b.to(device) for b in batches]
    for n in range(steps):
        optimizer.zero_grad()
        output = model(batches[n % 3]).flatten()
        loss = F.mse_loss(output, batches[(n + 1) % 3].flatten().repeat(3)[: output.numel()])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if read_losses:
            loss.item()
    return {**model.state_dict(), "loss": loss.detach()}


def same_everywhere(make, optimizer, compare_cpu=True, **options):
    with torch.tpu.set_eager_mode(Mode.DEFER_NEVER):
        strict = train(make, optimizer, DEVICE, **options)
    with torch.tpu.set_eager_mode(Mode.DEFER_AND_FUSE), Watch() as watch:
        deferred = train(make, optimizer, DEVICE, **options)
        torch.tpu.synchronize()
    assert watch.recorded > 5 * watch.regions
    assert strict.keys() == deferred.keys()
    for name in strict:
        assert_same(deferred[name], strict[name], rtol=2e-5, atol=2e-6)
    if compare_cpu:
        cpu = train(make, optimizer, "cpu", **options)
        for name in cpu:
            assert_same(deferred[name], cpu[name], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("read_losses", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(optimizer, read_losses):
    same_everywhere(mlp, optimizer, read_losses=read_losses)


def test_a_transformer():
    same_everywhere(transformer, "AdamW")


def test_running_statistics():
    same_everywhere(convolutions, "SGD")


def test_dropout():
    same_everywhere(dropping, "SGD", compare_cpu=False)


def test_hooks_and_backward_on_other_threads(defer):
    x = torch.randn(4, 4).to(DEVICE).requires_grad_()
    seen = []
    y = x * 3
    y.register_hook(lambda g: seen.append(g.sum().item()))  # reads on autograd's thread
    y.register_hook(lambda g: g * 2)

    class Module(nn.Module):
        def forward(self, x):
            return x.square()

    module = Module()
    module.register_full_backward_hook(lambda m, i, o: (i[0] + 1,))
    module(y).sum().backward()
    assert_same(x.grad, (2 * (x.detach().cpu() * 3) + 1) * 2 * 3, rtol=1e-4, atol=1e-4)
    assert seen == [pytest.approx((2 * x.detach().cpu() * 3 + 1).sum().item(), rel=1e-3, abs=1e-3)]
    errors = []

    def backward():
        try:
            z = x.detach().requires_grad_()
            with torch.tpu.set_eager_mode(Mode.DEFER_AND_FUSE):
                (z * z).sum().backward()
            assert_same(z.grad, 2 * z.detach().cpu())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=backward) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_without_gradients(defer):
    x = torch.randn(4, 4)
    model = nn.Linear(4, 2)
    expected = model(x).detach()
    model.to(DEVICE)
    with torch.inference_mode():
        inferred = model(x.to(DEVICE))
    with torch.no_grad():
        plain = model(x.to(DEVICE))
        model.weight.mul_(2)
    assert inferred.is_inference() and not plain.requires_grad
    assert_same(inferred, expected, rtol=1e-4, atol=1e-5)
    assert_same(plain, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad(), torch.autograd.set_detect_anomaly(False):
        assert_same(model.weight / 2, model.weight.cpu() / 2)


def test_threads(defer):
    def work(n):
        x = torch.full((16, 16), float(n), device=DEVICE)
        for i in range(40):
            x = (x @ torch.eye(16, device=DEVICE)).add_(1)
            if i % 8 == n % 8:
                assert x[0, 0].item() == n + i + 1
        return x.sum().item()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [256.0 * (n + 40) for n in range(16)]


# ---- long loops ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_loop_that_reads_nothing(optimizer, defer):
    """A few programs, and no more later; memory stays as it is."""
    torch.manual_seed(0)
    model = mlp().to(DEVICE)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    data, target = torch.randn(32, 8).to(DEVICE), torch.randn(32, 8).to(DEVICE)
    first = F.mse_loss(model(data), target).item()

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            loss = F.mse_loss(model(data), target)
            loss.backward()
            optimizer.step()
        return loss.detach()

    steps(STEPS // 3)
    programs, resident = torch.tpu.fusion_stats().programs, resident_bytes()
    live = []
    for _ in range(4):
        loss = steps(STEPS // 6)
        torch.tpu.current_stream()  # no reader
        live.append(torch.tpu.memory_allocated())
    assert torch.tpu.fusion_stats().programs == programs
    assert max(live) - min(live) < 1 << 20
    assert resident_bytes() - resident < 64 << 20
    assert loss.item() < first


def test_a_loop_that_reads_each_step(defer):
    model = transformer().to(DEVICE)
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    data = torch.randn(4, 4, 8).to(DEVICE)
    programs = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        programs.append(torch.tpu.fusion_stats().programs)
    assert programs[3] == programs[-1]


def test_regions_are_the_same_in_every_process():
    code = """
        import torch
        from test_defer import mlp, train
        train(mlp, "AdamW", "tpu", steps=60)
        x = torch.ones(8, device="tpu")
        for _ in range(2000):
            x = (x * 1.25).sigmoid()
        torch.tpu.synchronize()
        print(torch.tpu.fusion_stats())
    """
    path = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *filter(None, sys.path)])
    one, another = (python_output(code, TORCH_TPU_DEFER_AND_FUSE="1", PYTHONPATH=path) for _ in range(2))
    assert one == another and "'repeat': 0" not in one


def test_the_rest_of_the_suite_in_this_mode():
    """What reaches most: gradients, optimizers, indices, errors."""
    if torch.tpu.eager_mode is Mode.DEFER_AND_FUSE:
        pytest.skip("the whole suite runs in this mode already")
    files = ["test_autograd.py", "test_optim.py", "test_dynamic_shapes.py", "test_amp.py"]
    code = f"""
        import os, pytest
        os.chdir({os.path.dirname(os.path.abspath(__file__))!r})
        raise SystemExit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *{files!r}]))
    """
    done = run_python(code, timeout=600, TORCH_TPU_DEFER_AND_FUSE="1")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
