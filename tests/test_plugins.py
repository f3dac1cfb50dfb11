"""The same program on every PJRT CPU plugin that the development environment holds."""

import sysconfig
from pathlib import Path

import pytest
from conftest import python_output

SITE = Path(sysconfig.get_path("purelib"))
PLUGINS = {
    "lammps-jax-pjrt-cpu": "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
    "fastatomstruct-xla-cpu": "fastatomstruct_xla_cpu/libpjrt_cpu.so",
    "xla-cpu-pjrt": "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
}
PROGRAM = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(36, 8), torch.nn.Softmax(-1))
    twin = __import__("copy").deepcopy(model).to("tpu")
    x = torch.randn(3, 1, 8, 8)
    for m, d in ((model, "cpu"), (twin, "tpu")):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            m(x.to(d)).square().sum().backward()
            optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(p, q.cpu(), rtol=1e-3, atol=1e-4)
    info = torch.backends.tpu.plugin_info()
    print(info["path"], info["platform"], info["api"])
"""


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_runs_the_same_program(name):
    path = SITE / PLUGINS[name]
    assert path.exists(), f"{name} is not installed: run `make setup`"
    assert python_output(PROGRAM, TPU_LIBRARY_PATH=str(path)).split()[0] == str(path)


def test_a_plugin_is_found_without_being_named():
    found = python_output("import torch; print(torch.backends.tpu.plugin_info()['path'])", TPU_LIBRARY_PATH=None)
    assert found in {str(SITE / path) for path in PLUGINS.values()}
