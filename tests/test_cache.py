"""The compile cache across processes: each program compiled once, nothing damaged ever used, nobody blocked by the dead.

Most tests run in a helper process that has imported torch but not touched the device, and forks the processes that do:
importing torch eight times would take longer than all of the rest. Full numbers:

    TT_CACHE_PROCESSES=8 TT_CACHE_KILLS=200 TT_CACHE_DAMAGES=1000 pytest tests/test_cache.py
"""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from conftest import python_output, run_python

PROCESSES = int(os.environ.get("TT_CACHE_PROCESSES", "4"))
KILLS = int(os.environ.get("TT_CACHE_KILLS", "10"))
DAMAGES = int(os.environ.get("TT_CACHE_DAMAGES", "40"))

# What the forked processes do: operators of several kinds (in place, checked indices, several results), compared with the CPU.
HELPER = """
import json, os, random, signal, sys, time, traceback
import torch
import torch.nn.functional as F

def work(device="tpu", seed=0):
    torch.manual_seed(seed)
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    x, w = x.to(device), w.to(device)
    y = x.clone()
    y.add_(1).mul_(2)
    z = torch.addmm(w[0], x, w) + y
    values, indices = z.sort(dim=1)
    parts = [y, z.softmax(1), F.layer_norm(z, (16,)), values, indices.float(), F.embedding(indices[:2] % 8, x), (x.t() + 1)]
    try:
        F.embedding(torch.tensor([99]).to(device), x).cpu()
        raise SystemExit("an index out of range went unnoticed")
    except (IndexError, RuntimeError):
        pass
    if device == "tpu":
        try:
            torch.tpu.synchronize()
        except (IndexError, RuntimeError):
            pass
    return [p.cpu() for p in parts], [p.stride() for p in parts]

def check(expected):
    results, strides = work()
    assert strides == expected[1], (strides, expected[1])
    for a, b in zip(results, expected[0]):  # torch.testing imports half of PyTorch
        assert a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-4, atol=1e-4), (a, b)

def stats():
    s = torch.tpu.compile_cache_stats()
    tier = s.tier3 or s.tier2
    return {"compilations": s.compilations, "programs": len(s.programs), **(tier._asdict() if tier else {})}

def start(function, *arguments):
    "Runs the function in a child; gives the child and the end of a pipe where its answer will be."
    end, out = os.pipe()
    child = os.fork()
    if child:
        os.close(out)
        return child, end
    code = 1
    try:
        answer = function(*arguments)
        os.write(out, json.dumps(answer if answer is not None else stats()).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)

def finish(child, end):
    with open(end) as f:
        text = f.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"exit status {status}"
    return json.loads(text)

def run(function, *arguments):
    return finish(*start(function, *arguments))

expected = work("cpu")
"""
PRELOAD = "import torch._dynamo\n"  # PyTorch's meta kernels import it: better here than in each child


def helper(code: str, root=None, prelude=PRELOAD + HELPER, **environment) -> str:
    environment.setdefault("TORCH_TPU_TIER2_COMPILATION_CACHE", None)
    environment.setdefault("WORLD_SIZE", None)
    return python_output(
        prelude + textwrap.dedent(code),
        timeout=600,
        TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT=str(root) if root else None,
        **environment,
    )


def command(*arguments, **environment):
    """python -m torch_tpu cache ..., where no plugin can be loaded."""
    return subprocess.run(
        [sys.executable, "-m", "torch_tpu", "cache", *map(str, arguments)],
        env={**os.environ, "TPU_LIBRARY_PATH": "/nowhere/plugin.so", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with the programs of the helper's work."""
    root = tmp_path_factory.mktemp("cache")
    helper("run(check, expected)", root)
    return root


# ---- once ---------------------------------------------------------------------------------------------------------


def test_off_by_default():
    out = helper("""
        s = run(lambda: (check(expected), torch.tpu.compile_cache_stats())[1]._asdict())
        assert s["tier2"] is None and s["tier3"] is None and s["compilations"] == len(s["programs"]) > 5, s
        print("ok")
    """)
    assert out == "ok"


def test_a_new_process_compiles_nothing(tmp_path):
    out = helper(
        """
        first, second = run(check, expected), run(check, expected)
        assert first["compilations"] == first["stores"] == first["misses"] > 5, first
        assert second["compilations"] == second["misses"] == second["stores"] == second["notes_written"] == 0, second
        assert second["hits"] == second["programs"] == first["programs"] and second["notes_read"] > 0, second
        assert second["bytes_read"] > 0 and second["dropped"] == 0
        print("ok")
        """,
        tmp_path,
    )
    assert out == "ok"


START_AT_ONCE = f"""
    children = [start(check, expected) for _ in range({PROCESSES})]
    answers = [finish(*c) for c in children]
    programs = answers[0]["programs"]
    assert all(a["programs"] == programs for a in answers)
    assert sum(a["compilations"] for a in answers) == programs, answers
    assert sum(a["stores"] for a in answers) == programs, answers
    assert sum(a["dropped"] for a in answers) == 0
    print(sum(a["waits"] for a in answers) > 0)
"""


def test_processes_that_start_at_once_compile_each_program_once(tmp_path):
    assert helper(START_AT_ONCE, tmp_path) == "True"


def test_the_same_in_shared_memory():
    name = f"test-{os.getpid()}"
    folder = f"/dev/shm/torch_tpu-{os.geteuid()}-{name}"
    try:
        assert helper(START_AT_ONCE, TORCH_TPU_TIER2_COMPILATION_CACHE=name) == "True"
        assert os.stat(folder).st_mode & 0o777 == 0o700
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_when_shared_memory_is_used(monkeypatch):
    from torch_tpu import _C

    for world, setting, name in [("1", "", None), ("8", "", "default"), ("8", "disabled", None), ("1", "mine", "mine")]:
        monkeypatch.setenv("WORLD_SIZE", world)
        assert _C._cache_tier2_folder(setting) == (name and f"/dev/shm/torch_tpu-{os.geteuid()}-{name}")


def test_the_plugin_s_options_are_part_of_the_key(filled):
    out = helper("print(run(check, expected)['hits'])", filled, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert out == "0"


# ---- damage and death ----------------------------------------------------------------------------------------------


def test_damaged_entries_are_compiled_anew(tmp_path):
    out = helper(
        f"""
        root = os.environ["TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT"]
        random.seed(1)

        def damage(path, others):
            data = bytearray(open(path, "rb").read())
            kind = random.randrange(6)
            if kind <= 1:  # flipped bits
                for _ in range(random.choice((1, 1, 8))):
                    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            elif kind == 2:
                del data[random.randrange(len(data)):]
            elif kind == 3:
                data += random.randbytes(random.randrange(1, 100))
            elif kind == 4:  # another program's
                data = open(random.choice([o for o in others if o != path]), "rb").read()
            else:
                data = random.choice((b"", random.randbytes(len(data)), bytes(len(data))))
            open(path, "wb").write(data)

        run(check, expected)
        tried = 0
        while tried < {DAMAGES}:
            paths = sorted(os.path.join(root, n) for n in os.listdir(root) if n.endswith(".ttx"))
            chosen = random.sample(paths, min(len(paths), {DAMAGES} - tried))
            good = {{p: open(p, "rb").read() for p in chosen}}
            for p in chosen:
                damage(p, paths)
                while open(p, "rb").read() == good[p]:  # two flips may undo each other
                    damage(p, paths)
            answer = run(check, expected)
            assert answer["dropped"] == len(chosen), (answer, len(chosen))
            assert answer["compilations"] + answer["notes_written"] == len(chosen), answer
            tried += len(chosen)
        assert run(check, expected)["compilations"] == 0
        print(tried)
        """,
        tmp_path,
    )
    assert out == str(DAMAGES)
    assert command("verify", "--root", tmp_path).returncode == 0


def test_killed_processes_leave_a_whole_cache(tmp_path):
    out = helper(
        f"""
        import shutil
        from torch_tpu import _C
        root = os.environ["TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT"]
        random.seed(2)

        def fill():
            while True:
                check(expected)

        began = time.monotonic()
        run(check, expected)
        whole = time.monotonic() - began
        found = 0
        for i in range({KILLS}):
            shutil.rmtree(root, ignore_errors=True)  # some die before they make it
            victims = [start(fill)[0] for _ in range(2)]
            time.sleep(random.random() * whole)
            for child in victims:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            entries = _C._cache_scan(root, True) if os.path.isdir(root) else []
            assert not [e for e in entries if e[-1]], entries
            found += len(entries)
            if i % 10 == 9:
                run(check, expected)  # nobody waits for the dead
        assert found
        print("ok")
        """,
        tmp_path / "cache",
    )
    assert out == "ok"


def _lock_all(path):
    """Locks every byte of the lock file, as a process that compiles everything would."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    F_OFD_SETLK = 37
    fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return fd


WAITER = """
    import signal, torch, torch._dynamo
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts with it ignored
    x = torch.ones(3).to("tpu")
    print("started", flush=True)
    try:
        print((x + 1).tolist(), torch.tpu.compile_cache_stats().tier3.waits, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def _start_waiter(root):
    env = {**os.environ, "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": str(root)}
    code = [sys.executable, "-c", textwrap.dedent(WAITER)]
    process = subprocess.Popen(code, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "started\n"
    time.sleep(1)
    assert process.poll() is None  # it waits
    return process


def test_waiting_for_another_process_can_be_interrupted(tmp_path):
    lock = _lock_all(tmp_path / "lock")
    process = _start_waiter(tmp_path)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert time.monotonic() - began < 10
    os.close(lock)


def test_a_killed_process_blocks_nobody(tmp_path):
    code = f"""
        import sys, time
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_cache import _lock_all
        fd = _lock_all({str(tmp_path / "lock")!r})
        print("locked", flush=True)
        time.sleep(600)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    process = _start_waiter(tmp_path)
    holder.kill()
    holder.wait()
    assert process.communicate(timeout=60)[0] == "[2.0, 2.0, 2.0] 1\n"


# ---- remembered checks ----------------------------------------------------------------------------------------------


def test_refused_calls_are_refused_again(tmp_path):
    out = helper(
        """
        def refused():
            x = torch.ones(3, 4).to("tpu")
            messages = []
            for bad in (lambda: x @ x, lambda: x + torch.ones(5).to("tpu"), lambda: torch.cat([x, x.t()])):
                try:
                    bad()
                    messages.append("accepted")
                except RuntimeError as error:
                    messages.append(str(error))
            return messages

        first, second = run(refused), run(refused)
        assert first == second and "accepted" not in first, (first, second)
        print("ok")
        """,
        tmp_path,
    )
    assert out == "ok"


def test_a_warm_start_imports_no_compiler_of_pytorch_s(filled):
    out = helper(
        """
        def imported():
            check(expected)
            assert torch.tpu.compile_cache_stats().compilations == 0
            return [name for name in ("torch._dynamo", "sympy") if name in sys.modules]

        print(run(imported))
        """,
        filled,
        prelude=HELPER,
    )
    assert out == "[]"


# ---- remote stores ----------------------------------------------------------------------------------------------------


def test_a_remote_store_serves_other_hosts(tmp_path):
    address = f"file://{tmp_path}/remote"
    for host, compiled in (("one", True), ("two", False), ("two", False)):
        out = helper("print(run(check, expected)['compilations'] > 0)", address, XDG_CACHE_HOME=str(tmp_path / host))
        assert out == str(compiled)
    assert len(os.listdir(tmp_path / "remote")) > 5


def test_without_fsspec_there_is_one_warning(tmp_path):
    code = """
        import sys
        sys.modules["fsspec"] = None
        import torch
        x = torch.ones(3, device="tpu") + 1
        print((x * 3).tolist(), torch.tpu.compile_cache_stats().tier3)
    """
    done = run_python(code, TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT="gs://bucket/cache", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0 and done.stdout.strip() == "[6.0, 6.0, 6.0] None", done.stderr
    assert done.stderr.count("gs://bucket/cache is not used") == 1


def test_fsspec_is_not_imported_for_folders(tmp_path):
    code = """
        import sys, torch
        (torch.ones(3, device="tpu") + 1).tolist()
        print("fsspec" in sys.modules)
    """
    assert python_output(code, TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT=str(tmp_path)) == "False"


def test_a_failing_store_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from torch_tpu._cache_remote import Store

    store = Store("memory://test/cache")
    assert store.get("a") is None
    store.put("a", b"bytes")
    assert store.get("a") == b"bytes" and Store("memory://test/cache").get("a") == b"bytes"

    def fail(path):
        raise OSError("the network is gone")

    monkeypatch.setattr(store.fs, "cat_file", fail)
    with pytest.warns(RuntimeWarning, match="memory://test/cache is not used: OSError: the network is gone") as seen:
        assert store.get("a") is None and store.get("a") is None
        store.put("b", b"lost")
    assert len(seen) == 1
    monkeypatch.undo()
    assert Store("memory://test/cache").get("b") is None


# ---- statistics and the command line ---------------------------------------------------------------------------------


def test_statistics():
    for _ in range(2):
        (torch.ones(7, device="tpu") * 3).tolist()
    stats = torch.tpu.compile_cache_stats()
    assert stats.tier2 is None and stats.tier3 is None
    assert stats.requests >= stats.hits > 0 and stats.compilations > 0 and stats.compile_seconds > 0
    program = stats.programs[-1]
    assert program.source == "compiled" and program.compile_seconds > 0 and program.reads == 0 and program.last_read is None
    old = torch.tpu._get_cache_stats()
    assert old.num_compilations == stats.compilations
    assert old.peak_compilation_host_memory_bytes > 1 << 20
    assert len(old.per_entry_stats) == len(stats.programs)


MANY_PROGRAMS = """
import torch

torch.set_num_threads(1)
double = torch.compile(lambda x: (x * 2).sin(), backend="tpu", dynamic=False)
x = torch.arange(5.0)
for _ in range(2):
    for n in range(1, 60):
        a = torch.linspace(-1, 1, 2 * n).reshape(2, n)
        b = a.to("tpu", copy=True).requires_grad_()
        (b.cos() @ b.t().exp()).sum().backward()
        a.requires_grad_()
        (a.cos() @ a.t().exp()).sum().backward()
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(double(x.to("tpu")).cpu(), (x * 2).sin())
        assert torch.tpu.compile_cache_stats().loaded <= 40
assert torch.tpu.compile_cache_stats().unloaded > 50
"""


@pytest.mark.parametrize("defer", "01")
def test_programs_make_room_for_others(defer):
    python_output(MANY_PROGRAMS, TORCH_TPU_MAX_PROGRAMS="40", TORCH_TPU_DEFER_AND_FUSE=defer, TORCH_TPU_INTERNAL_BOUNDED_SIZES="off")


def test_the_command_line(tmp_path, filled):
    subprocess.run(["cp", "-a", f"{filled}/.", tmp_path], check=True)
    names = sorted(n for n in os.listdir(tmp_path) if n.endswith(".ttx"))
    listed = command("ls", "--root", tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] + ".ttx" for line in listed.stdout.splitlines()] == names
    assert "sort" in listed.stdout and "cpu, PJRT" in listed.stdout
    from_environment = command("stat", TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT=str(tmp_path))
    assert f"entries           {len(names)}," in from_environment.stdout
    assert command("verify", "--root", tmp_path).stdout == f"{len(names)} entries, 0 bad\n"

    (tmp_path / names[0]).write_bytes(b"garbage")
    (tmp_path / names[1]).write_bytes((tmp_path / names[2]).read_bytes())
    checked = command("verify", "--root", tmp_path)
    assert checked.returncode == 1 and f"{len(names)} entries, 2 bad" in checked.stdout
    assert "it is too short" in checked.stdout and "it has another key" in checked.stdout
    assert command("verify", "--root", tmp_path, "--delete").returncode == 1
    assert command("verify", "--root", tmp_path).stdout == f"{len(names) - 2} entries, 0 bad\n"

    os.utime(tmp_path / names[5], (1e9, 1e9))
    assert command("prune", "--root", tmp_path, "--older-than", "7d").stdout.startswith("removed 1 entries")
    assert command("prune", "--root", tmp_path, "--max-size", "10KiB").returncode == 0
    assert 0 < sum(p.stat().st_size for p in tmp_path.glob("*.ttx")) <= 10 << 10


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["ls"], "which cache?"),
        (["ls", "--root", "/nowhere"], "there is no folder /nowhere"),
        (["prune", "--root", "/tmp"], "--max-size"),
        (["prune", "--root", "/tmp", "--max-size", "2 GB"], "'2 GB' is not a size"),
        (["prune", "--root", "/tmp", "--older-than", "week"], "'week' is not an age"),
    ],
)
def test_the_command_line_says_what_is_wrong(arguments, message):
    done = command(*arguments)
    assert done.returncode and message in done.stderr
