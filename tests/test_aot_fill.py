"""A compile cache that is filled where there is no TPU: a process that has one compiles nothing. The mock plugin stands for both the
compiler and the TPU; libtpu, where it is installed, is asked for the same programs."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import pytest

from torch_tpu import aot
from torch_tpu.aot import _fill

TRAINING = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)).to("tpu")
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
loss_of = torch.compile(lambda x, y: F.cross_entropy(net(x), y))

def train():
    x, y = torch.randn(8, 16).to("tpu"), torch.randint(0, 4, (8,)).to("tpu")
    loss = loss_of(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    return loss.item()

for _ in range(3):
    train()
"""

EAGER = """
import torch
import torch.nn.functional as F

table, x = torch.randn(10, 16, device="tpu"), torch.randn(4, 16).to("tpu")
rows = F.embedding(torch.tensor([1, 2, 9], device="tpu"), table)     # checks its indices
x.t()[1:3] += rows.sum() * 3                                         # a view is written
with torch.autocast("tpu"):
    y = F.conv2d(torch.randn(2, 3, 8, 8, device="tpu"), torch.randn(4, 3, 3, 3, device="tpu"), padding=1)
values, places = (x @ x.t()).sort(dim=1)
best = F.scaled_dot_product_attention(x[None], x[None], x[None]).bernoulli().cumsum(-1)
print(float(y.float().mean()), best.cpu().shape, int(places.sum()), bool((values > 0).any()))
"""

WHOLE_STEP = """
import torch
import torch.nn.functional as F

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to("tpu")
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

@torch.tpu.compile_step
def step(x, y):
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss

for _ in range(3):
    print(step(torch.randn(8, 16).to("tpu"), torch.randint(0, 4, (8,)).to("tpu")).item())
"""

LOOP = """
import torch

net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))).to("tpu")
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(12):
    loss = net(torch.ones(4, 8, device="tpu")).tanh().square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 4 == 3:
        print(loss.item())
"""

STATISTICS = """
import json, torch
s = torch.tpu.compile_cache_stats()
print(json.dumps({"compilations": s.compilations, "programs": len(s.programs), "hits": s.tier3.hits, "dropped": s.tier3.dropped}))
"""


def run(*command, **environment):
    for name in ("TORCH_TPU_TIER2_COMPILATION_CACHE", "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", "WORLD_SIZE"):
        environment.setdefault(name, "")
    return subprocess.run(
        [sys.executable, *map(str, command)], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )


def fill(script, cache, library, *more, topology="mock:1x1", arguments=(), **environment):
    on = ("--topology", topology, "--cache", cache, "--library", library, "--jobs", 1, *more)
    return run("-m", "torch_tpu", "aot", "fill", *on, script, *arguments, TT_MOCK_OTHER_PLATFORM="1", **environment)


def on_tpu(script, cache, library, **environment):
    """The script in a process that has the mock's device, and what its cache counted."""
    counted = script.with_name("counted.py")
    counted.write_text(script.read_text() + STATISTICS)
    environment |= {"TT_MOCK_OTHER_PLATFORM": "1", "TPU_LIBRARY_PATH": library}
    done = run(counted, TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT=str(cache), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "text, environment",
    [
        (TRAINING, {}),
        (WHOLE_STEP, {}),
        (EAGER, {}),
        (EAGER, {"TORCH_TPU_INTERNAL_XLA_OPTIONS": "some_option=3", "XLA_FLAGS": "--xla_some_flag=1"}),
        (LOOP, {"TORCH_TPU_DEFER_AND_FUSE": "1"}),
    ],
    ids=["compiled", "whole step", "eager", "options", "deferred"],
)
def test_a_process_with_a_tpu_compiles_nothing(mock, tmp_path, text, environment):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(text)
    done = fill(script, cache, mock, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(list(cache.glob("*.ttx")))
    assert count > 2 and f"{count} of {count} programs are in" in done.stdout
    told = on_tpu(script, cache, mock, **environment)
    assert told["compilations"] == 0 and told["dropped"] == 0
    assert told["hits"] == told["programs"] == count  # and no program is there in vain


def test_what_is_there_is_not_compiled_again(mock, tmp_path):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(EAGER)
    assert "nothing has contents" in fill(script, cache, mock).stderr
    times = {p.name: p.stat().st_mtime_ns for p in cache.glob("*.ttx")}
    again = fill(script, cache, mock)
    assert again.returncode == 0 and ": 0 new" in again.stdout
    damaged = next(cache.glob("*.ttx"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert ": 1 new" in fill(script, cache, mock).stdout
    assert times.keys() == {p.name for p in cache.glob("*.ttx")}


def test_a_remote_store_is_filled(mock, tmp_path):
    pytest.importorskip("fsspec")
    script, address = tmp_path / "script.py", f"file://{tmp_path}/store"
    script.write_text(LOOP)
    done = fill(script, address, mock, XDG_CACHE_HOME=str(tmp_path / "here"))
    assert done.returncode == 0, done.stderr
    count = len(list((tmp_path / "store").iterdir()))
    told = on_tpu(script, address, mock, XDG_CACHE_HOME=str(tmp_path / "there"))
    assert told["compilations"] == 0 and told["hits"] == told["programs"] == count


def test_other_devices_and_other_options_have_other_programs(mock, tmp_path):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(LOOP)
    fill(script, cache, mock, topology="mock:2x1")  # a host with two chips
    count = len(list(cache.glob("*.ttx")))
    assert on_tpu(script, cache, mock)["hits"] == 0
    fill(script, cache, mock, XLA_FLAGS="--xla_some_flag=1")
    assert len(list(cache.glob("*.ttx"))) > count
    assert on_tpu(script, cache, mock, XLA_FLAGS="--xla_some_flag=2")["hits"] == 0


def test_a_refused_program_is_told_and_the_others_are_stored(mock, tmp_path):
    good = "module { func.func public @main(%a: tensor<4xi32>) -> tensor<4xi32> { return %a : tensor<4xi32> } }"
    programs = [_fill.Wanted(n, t, "a=1") for n, t in (("good", good), ("bad", "nonsense"), ("abort", "// mock: abort\n" + good))]
    heard = []
    filled = _fill.store(programs, ["mock:1x1", "mock:2x2"], str(tmp_path / "cache"), 2, mock, tell=heard.append)
    by_name = {(f.name, f.topology): f for f in filled}
    assert len(filled) == len(heard) == 6 and {n for (n, _), f in by_name.items() if f.ok} == {"good"}
    assert "cannot parse" in by_name["bad", "mock:1x1"].reason and "SIGABRT" in by_name["abort", "mock:2x2"].reason
    assert len(list((tmp_path / "cache").glob("*.ttx"))) == 2  # one for each topology
    with pytest.raises(aot.AotError, match="can't be opened"), pytest.warns(RuntimeWarning):
        _fill.store(programs, ["mock:1x1"], "nowhere://cache", 1, mock)


def test_what_a_rehearsal_cannot_know_ends_it(mock, tmp_path):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text("import torch\nx = torch.ones(4, device='tpu') * 2\nx[x > 1].sum()\n")
    done = fill(script, cache, mock)
    assert done.returncode == 2 and "a size that depends on data" in done.stderr and "ended with status 1" in done.stderr
    assert list(cache.glob("*.ttx"))  # what was asked for before that
    script.write_text("import sys; print(sys.argv[1:])")
    done = fill(script, tmp_path / "other", mock, arguments=("--steps", "3"))
    assert done.returncode == 2 and "asked for no program" in done.stderr and "['--steps', '3']" in done.stdout
    assert fill(script, cache, tmp_path / "absent.so").returncode == 2


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="libtpu is not installed: pip install libtpu")
def test_libtpu_fills_a_cache(tmp_path):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(textwrap.dedent(TRAINING))
    library = aot.find_library()
    done = fill(script, cache, library, "--topology", "v5e:2x2", topology="v6e:1x1")
    assert done.returncode == 0, done.stdout + done.stderr
    count = done.stdout.count("v6e:1x1  ")
    assert count > 10 and len(list(cache.glob("*.ttx"))) == 2 * count
    assert f"{2 * count} of {2 * count} programs are in {cache}: 0 new" in fill(script, cache, library, "--topology", "v5e:2x2", topology="v6e:1x1").stdout
