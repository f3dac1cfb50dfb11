"""torch.tpu's own functions: devices, streams, events, modes and counters."""

import pytest
import torch
from conftest import DEVICE


def test_devices():
    assert torch.tpu.is_available() and torch.tpu.device_count() == 1 and torch.tpu.current_device() == 0
    torch.tpu.set_device(0)
    torch.tpu.set_device("tpu")
    torch.accelerator.set_device_index(0)
    with torch.tpu.device(0), torch.tpu.device("tpu:0"), torch.tpu.device(None):
        assert torch.ones(1, device=DEVICE).device.index == 0
    with torch.tpu.device_of(torch.ones(1)), torch.tpu.device_of(torch.ones(1, device=DEVICE)):
        pass
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name() and properties.multi_processor_count == 1
    torch.tpu.init()
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total == properties.total_memory
    assert torch.tpu.is_initialized() and torch.tpu._initialized and torch.get_device_module() is torch.tpu


def test_streams_and_events():
    assert torch.tpu.current_stream() == torch.accelerator.current_stream()
    stream = torch.tpu.Stream()
    assert isinstance(stream, torch.Stream) and stream.device.type == DEVICE
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    assert isinstance(start, torch.tpu.Event) and not isinstance(torch.Event("cpu"), torch.tpu.Event)
    with torch.tpu.stream(stream):
        start.record()
        x = torch.randn(256, 256, device=DEVICE)
        y = x @ x
        end.record()
    torch.tpu.current_stream().wait_stream(stream)
    stream.synchronize()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0 and stream.query()
    y.record_stream(torch.tpu.current_stream())
    with torch.tpu.stream(None):
        torch.tpu.default_stream().synchronize()
    event = torch.Event(DEVICE)
    event.record()
    event.wait()
    with torch.Stream(DEVICE):
        assert torch.allclose(y.cpu(), x.cpu() @ x.cpu(), atol=1e-3)


@pytest.mark.parametrize("mode", torch.tpu.EagerMode)
def test_eager_modes(mode):
    before = torch.tpu.eager_mode
    with torch.tpu.set_eager_mode(mode):
        assert torch.tpu.eager_mode is mode
        assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2, 2]
    assert torch.tpu.eager_mode is before
    torch.tpu.eager_mode = mode
    assert torch.tpu.eager_mode is mode
    torch.tpu.eager_mode = before
    with pytest.raises(TypeError, match="expected a torch.tpu.EagerMode"):
        torch.tpu.eager_mode = "strict"


def test_counters():
    torch.tpu.reset_op_coverage()
    x = torch.ones(3, 5, device=DEVICE)
    before = torch.tpu._get_cache_stats()
    for _ in range(4):
        (x * 2).sum()
    torch.tpu.synchronize()
    after, counts = torch.tpu._get_cache_stats(), torch.tpu.op_coverage()
    assert sum(c.native for name, c in counts.items() if "mul" in name) == 4
    assert all(count.fallback == 0 for count in counts.values())
    assert after.num_cache_reqs - before.num_cache_reqs >= 8 and after.num_compilations - before.num_compilations <= 2


def test_tables_for_the_documentation():
    from torch_tpu import _C

    assert {"family", "name"} <= set(_C._op_table()[0]) and len(_C._op_table()) > 100
    names = [row["name"] for row in _C._env_table()]
    assert "TPU_LIBRARY_PATH" in names and all(row["description"] for row in _C._env_table())
