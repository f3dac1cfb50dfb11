"""`import torch` alone brings the device, at next to no cost, and never fails because of it."""

import json
import re
import types

import torch
from conftest import python_output, run_python


def test_torch_alone_brings_the_device():
    out = python_output("""
        import torch
        x = torch.arange(4.0, device="tpu")
        print(x.device, x.is_tpu, (x + 1).tolist())
    """)
    assert out == "tpu:0 True [1.0, 2.0, 3.0, 4.0]"


def test_import_loads_no_plugin_and_starts_no_thread():
    threads_of_torch = python_output("import os, torch; print(len(os.listdir('/proc/self/task')))",
                                     TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    out = python_output("""
        import os, torch
        torch.manual_seed(1); torch.tpu.manual_seed_all(2); torch.tpu.memory_allocated()
        assert torch.tpu.is_available() and torch.tpu.device_count() == 1 and torch.accelerator.device_count() == 1
        assert not torch.tpu.is_initialized()
        maps = open("/proc/self/maps").read()
        print([word for word in ("pjrt", "libtpu", "xla_cpu") if word in maps.lower().replace("torch_tpu", "")])
        print(len(os.listdir("/proc/self/task")))
        torch.ones(1, device="tpu").item()
        assert torch.tpu.is_initialized()
    """)
    assert out == "[]\n" + threads_of_torch


def test_import_is_cheap():
    # The package is timed in the process that has just timed PyTorch: a busy machine slows both down. The least of a few
    # runs, since what is asked for is what it takes, not what else the machine was doing.
    code = """
        import json, resource, sys, time
        memory = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = time.process_time()
        import torch
        torch_time, torch_memory, modules = time.process_time() - start, memory(), set(sys.modules)
        start = time.process_time()
        import torch_tpu
        torch_tpu.register()
        print(json.dumps([(time.process_time() - start) / torch_time, memory() - torch_memory,
                          sorted(name for name in set(sys.modules) - modules if "torch" not in name)]))
    """
    runs = [json.loads(python_output(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) for _ in range(3)]
    assert min(share for share, _, _ in runs) < 0.15
    assert min(memory for _, memory, _ in runs) < 20
    assert len(runs[0][2]) < 10, runs[0][2]  # little beside the package itself


def test_importing_the_package_first_works_too():
    assert python_output("import torch_tpu; import torch; print(torch.zeros(2, device='tpu').sum().item())") == "0.0"


def test_autoload_can_be_switched_off():
    out = python_output(
        """
        import torch
        print(hasattr(torch, "tpu"))
        import torch_tpu
        torch_tpu.register(); torch_tpu.register()
        print(torch.ones(3, device="tpu").sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out == "False\n3.0"


def test_a_broken_extension_gives_one_warning():
    done = run_python("""
        import sys
        class Broken:
            def find_spec(self, name, path=None, target=None):
                if name == "torch_tpu._C":
                    raise ImportError("undefined symbol: _ZN3c10")
        sys.meta_path.insert(0, Broken())
        import torch
        print(torch.ones(2).sum().item(), hasattr(torch, "tpu"))
    """)
    assert done.returncode == 0 and done.stdout.strip() == "2.0 False"
    assert done.stderr.count("RuntimeWarning") == 1 and "undefined symbol" in done.stderr


def test_another_accelerator_keeps_its_place(monkeypatch):
    import torch_tpu

    cuda = types.SimpleNamespace(version=types.SimpleNamespace(cuda="13.0", hip=None))
    monkeypatch.setattr("os.path.exists", lambda path: path == "/dev/nvidiactl")
    monkeypatch.setattr(torch_tpu, "_machine_has_tpu", lambda: False)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    assert torch_tpu._another_accelerator_rules(cuda)
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/some/plugin.so")
    assert not torch_tpu._another_accelerator_rules(cuda)
    monkeypatch.delenv("TPU_LIBRARY_PATH")
    monkeypatch.setattr(torch_tpu, "_machine_has_tpu", lambda: True)
    assert not torch_tpu._another_accelerator_rules(cuda)
    monkeypatch.setattr(torch_tpu, "_machine_has_tpu", lambda: False)
    cpu_only = types.SimpleNamespace(version=types.SimpleNamespace(cuda=None, hip=None))
    assert not torch_tpu._another_accelerator_rules(cpu_only)


def test_finding_a_tpu_on_the_pci_bus(tmp_path):
    from torch_tpu import _machine_has_tpu

    def add(name, vendor, kind):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")

    assert not _machine_has_tpu(str(tmp_path / "missing"))
    add("0000:00:01.0", "0x1ae0", "0x020000")  # Google's network card
    add("0000:00:02.0", "0x10de", "0x120000")
    assert not _machine_has_tpu(str(tmp_path))
    add("0000:00:05.0", "0x1ae0", "0x120000")
    assert _machine_has_tpu(str(tmp_path))


def test_versions_and_names():
    import torch_tpu

    assert re.fullmatch(r"\d+\.\d+\.\d+", torch_tpu.__version__)
    assert torch.backends.tpu.version == torch_tpu.__version__ and torch.backends.tpu.is_available()
    assert torch.accelerator.current_accelerator().type == "tpu" and torch.accelerator.is_available()
    for name in torch.tpu.__all__:
        assert getattr(torch.tpu, name) is not None
    assert not hasattr(torch.tpu, "pallas") and not hasattr(torch.tpu, "distributed")
