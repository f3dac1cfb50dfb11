"""torch.autocast("tpu") and the gradient scaler."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, assert_same
from torch import nn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_chooses_dtypes(dtype):
    x, w = torch.randn(4, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype=dtype):
        assert torch.is_autocast_enabled(DEVICE) and torch.get_autocast_dtype(DEVICE) == dtype
        assert (x @ w).dtype == dtype
        assert F.linear(x, w).dtype == dtype
        assert F.conv1d(x[None], w[:, :, None]).dtype == dtype
        assert (x @ w).softmax(-1).dtype == torch.float32
        assert F.layer_norm(x @ w, (4,)).dtype == torch.float32
        assert F.cross_entropy(x @ w, torch.zeros(4, dtype=torch.int64, device=DEVICE)).dtype == torch.float32
        assert (x + w).dtype == torch.float32
        with torch.autocast(DEVICE, enabled=False):
            assert (x @ w).dtype == torch.float32
    assert (x @ w).dtype == torch.float32


def test_default_dtype_is_bfloat16():
    with torch.autocast(DEVICE):
        assert torch.mm(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE)).dtype == torch.bfloat16


def test_unsupported_dtype_warns_and_switches_off():
    with pytest.warns(UserWarning, match="tpu"):
        with torch.autocast(DEVICE, dtype=torch.int8):
            pass


def test_gradients_come_back_in_float32():
    def run(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
        x = torch.randn(5, 8).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    for actual, expected in zip(run(DEVICE), run("cpu")):
        assert actual.dtype == torch.float32
        assert_same(actual, expected, rtol=0.05, atol=0.01)


def test_scaler():
    def run(device):
        torch.manual_seed(0)
        model = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4, device=device)).square().mean()
            scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return [torch.tensor(scaler.get_scale()), *(p.detach() for p in model.parameters())]

    for actual, expected in zip(run(DEVICE), run("cpu")):
        assert_same(actual, expected, rtol=1e-4, atol=1e-5)


def test_supported_dtypes():
    assert {torch.bfloat16, torch.float16} <= set(torch.tpu.get_amp_supported_dtype()) and torch.tpu.is_bf16_supported()
