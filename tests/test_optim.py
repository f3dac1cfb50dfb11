"""Optimizers take the CPU's steps, and a new learning rate compiles nothing."""

import pytest
import torch
from conftest import DEVICE, assert_same
from torch import nn

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW one by one": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.01),
}


def train(make, device, steps=6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    data = torch.randn(16, 4).to(device)
    optimizer = make(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_the_cpu(name):
    for actual, expected in zip(train(OPTIMIZERS[name], DEVICE), train(OPTIMIZERS[name], "cpu")):
        assert_same(actual, expected, rtol=1e-4, atol=1e-5)


def test_lbfgs():
    def run(device):
        torch.manual_seed(0)
        x = nn.Parameter(torch.randn(4).to(device))
        optimizer = torch.optim.LBFGS([x], max_iter=5)

        def closure():
            optimizer.zero_grad()
            loss = (x - 3).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return x

    assert_same(run(DEVICE), run("cpu"), rtol=1e-4, atol=1e-4)


def test_clipping_and_schedules():
    def run(device):
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
        norms = []
        for _ in range(5):
            optimizer.zero_grad(set_to_none=False)
            (model(torch.ones(2, 4, device=device)).square().sum() * 10).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            schedule.step()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        return [torch.stack(norms).detach(), *(p.detach() for p in model.parameters()), model.weight.grad]

    for actual, expected in zip(run(DEVICE), run("cpu")):
        assert_same(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["SGD momentum", "AdamW"])
def test_later_steps_compile_nothing(name):
    torch.manual_seed(0)
    model = nn.Linear(4, 4).to(DEVICE)
    optimizer = OPTIMIZERS[name](model.parameters())
    data = torch.randn(2, 4).to(DEVICE)

    def step(rate):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        torch.tpu.synchronize()  # where regions end, so that all steps are alike in every mode

    for n in range(3):
        step(0.1 / (n + 1))
    before = torch.tpu._get_cache_stats().num_compilations
    for n in range(10):
        step(0.01 / (n + 1))
    assert torch.tpu._get_cache_stats().num_compilations == before


def test_averaged_model():
    model = nn.Linear(3, 3).to(DEVICE)
    average = torch.optim.swa_utils.AveragedModel(model)
    with torch.no_grad():
        model.weight.add_(1)
    average.update_parameters(model)
    assert_same(average.module.weight, model.weight)
