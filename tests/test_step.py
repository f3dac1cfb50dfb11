"""torch.tpu.compile_step: a whole training step as one program does what the step does, and leaves the same behind."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensor

CALLS = 6


@pytest.fixture(autouse=True)
def no_counts():
    counters.clear()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(8, 16, bias=False)  # the next layer takes the mean away, so a bias would have no gradient but noise
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + x.shape[0]  # another tensor at the same place
        return self.out(F.relu(self.norm(self.inside(x))))


def data(device, size=12):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(size, 8, generator=generator).to(device), torch.randint(0, 4, (size,), generator=generator).to(device)


def state_of(model, *optimizers):
    tensors = {name: t for name, t in model.state_dict().items()}
    tensors.update((f"{name}.grad", p.grad) for name, p in model.named_parameters() if p.grad is not None)
    for i, optimizer in enumerate(optimizers):
        for k, state in optimizer.state_dict()["state"].items():
            tensors.update((f"{i}.{k}.{key}", v) for key, v in state.items() if isinstance(v, torch.Tensor))
    return {name: t.detach().cpu() for name, t in tensors.items()}


def assert_same(got, wanted):
    assert got.keys() == wanted.keys()
    assert not any(isinstance(t, FakeTensor) for t in got.values())
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, rtol=2e-4, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")


def run(device, make_optimizer, make_step, compiled, calls=CALLS, between=None, size=12):
    """The losses of some calls, and what is there afterwards."""
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = make_optimizer(model.parameters())
    step = make_step(model, optimizer)
    if compiled:
        step = torch.tpu.compile_step(step)
    losses = []
    for i in range(calls):
        losses.append(step(*data(device, size)).item())
        if between:
            between(i, model, optimizer)
    return losses, state_of(model, optimizer), step


def compare(make_optimizer, make_step, **options):
    wanted, state, _ = run("cpu", make_optimizer, make_step, False, **options)
    got, got_state, step = run("tpu", make_optimizer, make_step, True, **options)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert_same(got_state, state)
    return step


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def plain(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": sgd,
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": adamw,
    "adamw one by one": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=0.1),
    "capturable": lambda p: torch.optim.Adam(p, lr=1e-2, capturable=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "asgd": lambda p: torch.optim.ASGD(p, lr=1e-2),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    if name == "capturable":  # not on the CPU
        wanted, state, _ = run("tpu", OPTIMIZERS[name], plain, False)
        got, got_state, step = run("tpu", OPTIMIZERS[name], plain, True)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        assert_same(got_state, state)
    else:
        step = compare(OPTIMIZERS[name], plain)
    assert len(step.traces) == 1
    assert counters["tpu"]["programs"] == 1


def accumulating(model, optimizer):
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return step


def test_gradients_are_accumulated():
    step = compare(sgd, accumulating)
    assert len(step.traces) == 1


def test_gradients_that_are_cleared_between_calls_or_not():
    def between(i, model, optimizer):
        if i % 2:
            optimizer.zero_grad()

    step = compare(sgd, accumulating, between=between)
    assert len(step.traces) == 2


def test_gradients_are_cleared_at_the_end():
    def make(model, optimizer):
        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    compare(adamw, make)


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
def test_a_learning_rate_that_a_scheduler_changes(make_optimizer):
    schedulers = {}

    def between(i, model, optimizer):
        if i == 0:
            schedulers[0] = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        schedulers[0].step()

    step = compare(make_optimizer, plain, between=between)
    assert len(step.traces) == 1

    def once(i, model, optimizer):
        if i == 3:
            optimizer.param_groups[0]["lr"] = 0.003

    step = compare(make_optimizer, plain, between=once)
    assert len(step.traces) == 2


def test_other_settings_of_an_optimizer():
    def between(i, model, optimizer):
        if i == 3:
            optimizer.param_groups[0]["weight_decay"] = 0.5

    assert len(compare(adamw, plain, between=between).traces) == 2


def test_training_and_evaluation():
    def make(model, optimizer):
        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            if model.training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return loss

        return step

    step = compare(sgd, make, between=lambda i, model, _: model.train(i % 2 == 0))
    assert len(step.traces) == 2


def test_modules_and_optimizers_of_a_branch_that_comes_later():
    """The first trace that meets them puts them back too, and depends on them."""

    def steps(device, compiled):
        torch.manual_seed(0)
        first, second = Net().to(device), Net().to(device)
        optimizers = adamw(first.parameters()), adamw(second.parameters())

        def step(x, y):
            model, optimizer = (first, optimizers[0]) if x.shape[0] < 12 else (second, optimizers[1])
            return plain(model, optimizer)(x, y)

        step = torch.tpu.compile_step(step) if compiled else step
        losses = []
        for i, size in enumerate((9, 9, 12, 12, 12, 9, 12)):
            second.train(i != 6)
            losses.append(step(*data(device, size)).item())
        return losses, state_of(first, optimizers[0]) | {"second." + k: v for k, v in state_of(second, optimizers[1]).items()}

    wanted, state = steps("cpu", False)
    got, got_state = steps("tpu", True)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert_same(got_state, state)


def test_clipping_averaging_and_autocast():
    averages = []

    def make(model, optimizer):
        average = copy.deepcopy(model)
        averages.append(average)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x).float(), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            with torch.no_grad():
                for a, p in zip(average.parameters(), model.parameters(), strict=True):
                    a.lerp_(p, 0.1)
            return loss

        return step

    wanted, state, _ = run("tpu", sgd, make, False)
    got, got_state, _ = run("tpu", sgd, make, True)
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
    assert got_state.keys() == state.keys()
    for name, value in state.items():
        torch.testing.assert_close(got_state[name], value, rtol=2e-2, atol=2e-2)
    for name, value in state_of(averages[0]).items():
        torch.testing.assert_close(state_of(averages[1])[name], value, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("reentrant", [False, True])
def test_two_optimizers_and_a_checkpointed_part(dropout, reentrant):
    """With dropout, which the second forward repeats, there is only the device itself to compare with."""

    def steps(device, compiled):
        torch.manual_seed(0)
        first, second = Net().to(device), nn.Linear(4, 1).to(device)
        noisy = nn.Sequential(nn.Dropout(dropout), first, nn.Dropout(dropout))
        optimizers = sgd(first.parameters()), adamw(second.parameters())

        def step(x):
            for o in optimizers:
                o.zero_grad()
            x = x.detach().requires_grad_() if reentrant else x
            hidden = F.dropout(torch.utils.checkpoint.checkpoint(noisy, x, use_reentrant=reentrant), dropout)
            loss = second(hidden).square().mean()
            loss.backward()
            for o in optimizers:
                o.step()
            return {"loss": loss, "hidden": [hidden.detach(), 3]}

        step = torch.tpu.compile_step(step) if compiled else step
        results = [step(data(device)[0]) for _ in range(CALLS)]
        assert results[-1]["hidden"][1] == 3
        return [r["loss"].item() for r in results], state_of(first, optimizers[0]) | state_of(second, optimizers[1])

    wanted, state = steps("tpu" if dropout else "cpu", False)
    got, got_state = steps("tpu", True)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert_same(got_state, state)
    assert counters["tpu"]["splits"] == 1  # for the numbers of AdamW


def test_dropout_draws_anew_at_each_call_as_it_does_without():
    def make(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(F.dropout(x, 0.5)), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    wanted, state, _ = run("tpu", sgd, make, False)
    got, got_state, _ = run("tpu", sgd, make, True)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert_same(got_state, state)


def test_states_that_are_loaded_are_used():
    saved = {}

    def between(i, model, optimizer):
        if i == 2:
            saved["model"], saved["optimizer"] = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        if i == 4:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])

    compare(adamw, plain, between=between, calls=8)


def test_a_parameter_of_other_contents_is_used():
    def between(i, model, optimizer):
        if i == 2:
            model.out.bias.data = torch.ones_like(model.out.bias)
        if i == 3:
            model.norm.running_mean = torch.full_like(model.norm.running_mean, 2.0)

    compare(sgd, plain, between=between)


def test_other_shapes_and_numbers():
    torch.manual_seed(0)
    weight = torch.ones(4, device="tpu", requires_grad=True)

    @torch.tpu.compile_step
    def step(x, factor=2, *, extra=None):
        weight.grad = None
        loss = (x @ weight * factor).sum() + (0 if extra is None else extra["bias"].sum())
        loss.backward()
        return loss, weight.grad

    for size in (3, 3, 5, 3, 5):
        for factor in (1, 2):
            loss, gradient = step(torch.ones(size, 4, device="tpu"), factor)
            assert loss.item() == size * 4 * factor
            assert gradient is weight.grad and gradient.tolist() == [size * factor] * 4
    loss, _ = step(torch.ones(3, 4, device="tpu"), extra={"bias": torch.ones(7, device="tpu")})
    assert loss.item() == 31
    assert len(step.traces) == 5


def test_arguments_and_results_that_are_written_or_handed_on():
    weight = torch.ones(3, device="tpu")

    @torch.tpu.compile_step
    def step(x, total):
        weight.add_(x)
        total.add_(weight.sum())
        return weight, x, weight[1:]

    total = torch.zeros((), device="tpu")
    for i in range(4):
        x = torch.full((3,), float(i), device="tpu")
        first, second, part = step(x, total)
        assert first is weight and second is x
        assert part.tolist() == weight[1:].tolist()
    assert weight.tolist() == [7.0] * 3
    assert total.item() == 3 * (1 + 2 + 4 + 7)


# ---- what can't be ------------------------------------------------------------------------------------------------------------


def fails(make, message):
    """The first call works; the second one fails, and nothing has changed."""
    torch.manual_seed(0)
    model = Net().to("tpu")
    optimizer = adamw(model.parameters())
    step = torch.tpu.compile_step(make(model, optimizer))
    step(*data("tpu"))
    before, number = state_of(model, optimizer), getattr(model, "calls", None)
    with pytest.raises(RuntimeError, match=message):
        step(*data("tpu"))
    after = state_of(model, optimizer)
    assert after.keys() == before.keys() and all(torch.equal(after[k], before[k]) for k in before)
    assert getattr(model, "calls", None) == number
    assert optimizer.param_groups[0]["lr"] == 1e-2 and optimizer.param_groups[0]["capturable"] is False
    plain(model, optimizer)(*data("tpu"))  # and all of it works without


def test_reading_a_value():
    def make(model, optimizer):
        def step(x, y):
            loss = plain(model, optimizer)(x, y)
            return loss if loss > 0 else -loss

        return step

    fails(make, "the step reads a tensor's value")


def test_counting_in_python():
    def make(model, optimizer):
        model.calls = 0

        def step(x, y):
            model.calls += 1
            return plain(model, optimizer)(x, y)

        return step

    fails(make, "the step changes 'calls' of a module or an optimizer from 1 to 2")


def test_a_scheduler_in_the_step():
    def make(model, optimizer):
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def step(x, y):
            loss = plain(model, optimizer)(x, y)
            scheduler.step()
            return loss

        return step

    torch.manual_seed(0)
    model = Net().to("tpu")
    optimizer = sgd(model.parameters())
    step = torch.tpu.compile_step(make(model, optimizer))
    step(*data("tpu"))
    with pytest.raises(RuntimeError, match="the step changes 'lr'"):
        step(*data("tpu"))


def test_the_gradient_of_an_argument():
    @torch.tpu.compile_step
    def step(x):
        x.square().sum().backward()

    x = torch.ones(3, device="tpu", requires_grad=True)
    step(x)
    with pytest.raises(RuntimeError, match="leaves a gradient at one of its arguments"):
        step(x)
    assert x.grad.tolist() == [2.0] * 3

    @torch.tpu.compile_step
    def other(x):
        inside = x.detach().requires_grad_()
        inside.square().sum().backward()
        return inside.grad

    for _ in range(3):
        assert other(x).tolist() == [2.0] * 3


def test_new_state_at_each_call():
    model = Net().to("tpu")

    class Hoarder(torch.optim.Optimizer):
        def step(self):
            for p in self.param_groups[0]["params"]:
                self.state[p][str(len(self.state[p]))] = p.grad

    optimizer = Hoarder(model.parameters(), {})
    step = torch.tpu.compile_step(plain(model, optimizer))
    with pytest.raises(RuntimeError, match="makes new state in each of its first 3 calls"):
        for _ in range(CALLS):
            step(*data("tpu"))


def test_a_tensor_that_is_kept_in_a_list_is_told():
    kept = []
    model = Net().to("tpu")
    steps = plain(model, adamw(model.parameters())), plain(model, sgd(model.parameters()))

    def keeps(x, y):
        kept.append(steps[0](x, y))
        return kept[-1]

    for step, told in ((keeps, True), (steps[1], False)):
        step = torch.tpu.compile_step(step)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                step(*data("tpu"))
        assert any("keeps a tensor that it makes" in str(w.message) for w in caught) == told


def test_an_error_in_the_step_is_the_steps_own():
    def make(model, optimizer):
        calls = []

        def step(x, y):
            calls.append(0)
            if len(calls) > 1:
                raise KeyError("the user's own")
            return plain(model, optimizer)(x, y)

        return step

    model = Net().to("tpu")
    optimizer = adamw(model.parameters())
    step = torch.tpu.compile_step(make(model, optimizer))
    step(*data("tpu"))
    with pytest.raises(KeyError, match="the user's own"):
        step(*data("tpu"))
