"""torch.save, torch.load, pickle and state dicts."""

import io
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from conftest import DEVICE, assert_same, python_output


def round_trip(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float64])
def test_save_and_load(dtype):
    x = torch.randint(0, 2, (3, 4)).to(dtype).to(DEVICE)
    y = round_trip(x)
    assert y.device == x.device and y.dtype == dtype and torch.equal(y.cpu(), x.cpu())
    assert round_trip(x, map_location="cpu").device.type == "cpu"
    assert round_trip(x.cpu(), map_location=DEVICE).is_tpu


def test_views_keep_sharing():
    x = torch.arange(12.0, device=DEVICE).view(3, 4)
    a, b = round_trip([x, x[1:, 2:].t()])
    assert b.stride() == (1, 4) and torch.equal(b.cpu(), x[1:, 2:].t().cpu())
    a.zero_()
    assert b.abs().sum().item() == 0


def test_models_and_optimizers():
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)).to(DEVICE)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.ones(4, 4, device=DEVICE) * torch.arange(4.0, device=DEVICE)[:, None]).square().sum().backward()
        optimizer.step()

    model, optimizer = make()
    step(model, optimizer)
    saved = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, weights_only=True)
    step(model, optimizer)

    other, other_optimizer = make()
    other.load_state_dict(saved["model"])
    other_optimizer.load_state_dict(saved["optimizer"])
    step(other, other_optimizer)
    for a, b in zip(model.parameters(), other.parameters()):
        assert_same(a, b)


def test_a_cpu_checkpoint_loads_into_a_device_model():
    torch.manual_seed(0)
    on_cpu = torch.nn.Linear(3, 3)
    there = torch.nn.Linear(3, 3, device=DEVICE)
    there.load_state_dict(round_trip(on_cpu.state_dict()))
    assert there.weight.is_tpu
    assert_same(there.weight, on_cpu.weight)


@pytest.mark.parametrize("mmap", [False, True])
def test_where_a_file_goes(tmp_path, mmap):
    path, x = tmp_path / "x.pt", torch.arange(5.0)
    torch.save({"x": x.to(DEVICE)}, path)
    places = {
        "cpu": "cpu", DEVICE: "tpu", torch.device("cpu"): "cpu", torch.device("meta"): "meta", None: "tpu",
        lambda storage, location: storage: "cpu", lambda storage, location: storage.cpu(): "cpu",
    }  # fmt: skip
    for where, device in [*places.items(), ({"tpu:0": "cpu"}, "cpu")]:
        y = torch.load(path, map_location=where, mmap=mmap, weights_only=True)["x"]
        assert y.device.type == device and (device == "meta" or torch.equal(y.cpu(), x))
    torch.save({"x": x}, path)
    assert torch.load(path, map_location={"cpu": "tpu:0"}, mmap=mmap)["x"].is_tpu


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path, m = tmp_path / "m.safetensors", torch.nn.Linear(3, 4).to(DEVICE)
    safetensors.save_file(m.state_dict(), path)
    n = torch.nn.Linear(3, 4).to(DEVICE)
    n.load_state_dict(safetensors.load_file(path))
    assert_same(n.weight, m.weight)
    safetensors.load_model(n, path)
    assert n.weight.is_tpu and torch.equal(n.bias, m.bias)
    assert torch.equal(safetensors.load(safetensors.save(m.state_dict()))["bias"], m.bias.cpu())


def test_pickle():
    x = torch.randn(3, device=DEVICE)
    y = pickle.loads(pickle.dumps(x))
    assert y.is_tpu and torch.equal(x.cpu(), y.cpu())
    p = pickle.loads(pickle.dumps(torch.nn.Parameter(x)))
    assert isinstance(p, torch.nn.Parameter) and p.is_tpu


def double(shared):
    shared.copy_(shared.to(DEVICE).mul(2))


def test_processes_share_what_is_on_the_cpu():
    spawn = torch.multiprocessing.get_context("spawn")
    shared = torch.arange(3.0).share_memory_()
    process = spawn.Process(target=double, args=(shared,))
    process.start()
    process.join(300)
    assert process.exitcode == 0 and shared.tolist() == [0, 2, 4]


def test_processes_do_not_share_what_is_on_the_device():
    for value in (torch.ones(3, device=DEVICE), torch.nn.Linear(2, 2).to(DEVICE), torch.ones(3, device=DEVICE).untyped_storage()):
        with pytest.raises(RuntimeError, match="can't be shared between processes.*send tensor.cpu"):
            ForkingPickler.dumps(value)


def test_a_file_from_the_device_says_so_where_there_is_none(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.ones(2, device=DEVICE), path)
    out = python_output(
        f"import torch; print(torch.load({str(path)!r}, map_location='cpu').tolist())", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    assert out == "[1.0, 1.0]"
