"""Random numbers: seeds, states, generators, and the shape of the distributions."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, assert_same, python_output, to_device


def draw(generator=None):
    return torch.randn(1000, device=DEVICE, generator=generator).cpu()


def test_seeds_repeat():
    torch.manual_seed(5)
    a, b = draw(), draw()
    torch.manual_seed(5)
    assert torch.equal(a, draw()) and torch.equal(b, draw()) and not torch.equal(a, b)
    torch.tpu.manual_seed(6)
    c = draw()
    torch.tpu.manual_seed_all(6)
    assert torch.equal(c, draw()) and torch.tpu.initial_seed() == 6
    torch.tpu.seed()
    assert not torch.equal(c, draw())


def test_seeds_repeat_across_processes():
    code = "import torch; torch.manual_seed(9); print(torch.rand(4, device='tpu').tolist())"
    assert python_output(code) == python_output(code)


def test_states():
    torch.manual_seed(1)
    draw()
    state = torch.tpu.get_rng_state()
    a, b = draw(), draw()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    torch.tpu.set_rng_state(state)
    assert torch.equal(a, draw()) and torch.equal(b, draw())
    states = torch.tpu.get_rng_state_all()
    c = draw()
    torch.tpu.set_rng_state_all(states)
    assert torch.equal(c, draw())
    with pytest.raises(Exception):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_generators():
    a, b = torch.Generator(DEVICE).manual_seed(3), torch.Generator(DEVICE).manual_seed(3)
    first = draw(a)
    assert torch.equal(first, draw(b)) and a.device.type == DEVICE and a.initial_seed() == 3
    torch.manual_seed(0)
    before = torch.tpu.get_rng_state()
    draw(a)
    assert torch.equal(before, torch.tpu.get_rng_state())  # a generator's draws leave the default alone
    state = a.get_state()
    c = draw(a)
    a.set_state(state)
    assert torch.equal(c, draw(a))
    assert torch.equal(draw(a.clone_state()), draw(a))
    assert torch.tpu.default_generators[0] is torch.tpu.default_generators[0]
    with pytest.raises(RuntimeError):
        draw(torch.Generator("cpu"))


def test_fork_rng():
    torch.manual_seed(4)
    with torch.random.fork_rng(device_type=DEVICE):
        inside = draw()
    torch.manual_seed(4)
    assert torch.equal(inside, draw())


def test_dead_results_still_count():
    torch.manual_seed(2)
    draw()
    expected = draw()
    torch.manual_seed(2)
    torch.randn(1000, device=DEVICE)
    assert torch.equal(expected, draw())


def test_cpu_numbers_are_left_alone():
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    draw()
    assert torch.equal(expected, torch.randn(3))


COUNT = 200_000

# name: (draw, mean, standard deviation, least, largest)
DISTRIBUTIONS = {
    "rand": (lambda: torch.rand(COUNT, device=DEVICE), 0.5, 12**-0.5, 0, 1),
    "randn": (lambda: torch.randn(COUNT, device=DEVICE), 0, 1, -7, 7),
    "randn bfloat16": (lambda: torch.randn(COUNT, device=DEVICE, dtype=torch.bfloat16).float(), 0, 1, -7, 7),
    "uniform_": (lambda: torch.empty(COUNT, device=DEVICE).uniform_(-3, 5), 1, 8 * 12**-0.5, -3, 5),
    "normal_": (lambda: torch.empty(COUNT, device=DEVICE).normal_(2, 3), 2, 3, -20, 20),
    "bernoulli_": (lambda: torch.empty(COUNT, device=DEVICE).bernoulli_(0.25), 0.25, 0.1875**0.5, 0, 1),
    "bernoulli": (lambda: torch.full((COUNT,), 0.75, device=DEVICE).bernoulli(), 0.75, 0.1875**0.5, 0, 1),
    "exponential_": (lambda: torch.empty(COUNT, device=DEVICE).exponential_(2), 0.5, 0.5, 0, 20),
    "randint": (lambda: torch.randint(-2, 8, (COUNT,), device=DEVICE).float(), 2.5, (99 / 12) ** 0.5, -2, 7),
    "random_": (lambda: torch.empty(COUNT, device=DEVICE).random_(0, 4), 1.5, 1.25**0.5, 0, 3),
    "dropout": (lambda: F.dropout(torch.ones(COUNT, device=DEVICE), 0.2), 1, 0.5, 0, 1.25),
    "multinomial": (
        lambda: torch.tensor([1.0, 0, 3], device=DEVICE).multinomial(COUNT, replacement=True).float(), 1.5, 0.75**0.5, 0, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    function, mean, deviation, least, largest = DISTRIBUTIONS[name]
    x = function()
    assert x.device.type == DEVICE
    x = x.cpu().double()
    tolerance = 5 / COUNT**0.5  # five standard errors
    assert abs(x.mean().item() - mean) < tolerance * deviation + 1e-3
    assert abs(x.std().item() - deviation) < 2 * tolerance * deviation + 2e-3
    assert least <= x.min().item() and x.max().item() <= largest
    autocorrelation = ((x[1:] - mean) * (x[:-1] - mean)).mean().item() / deviation**2
    assert abs(autocorrelation) < tolerance + 1e-3


def test_randperm_and_sampling_without_replacement():
    assert torch.randperm(1000, device=DEVICE).cpu().sort().values.tolist() == list(range(1000))
    picked = torch.ones(50, device=DEVICE).multinomial(50).cpu()
    assert sorted(picked.tolist()) == list(range(50))


def test_initialisers():
    weight = torch.empty(200, 300, device=DEVICE)
    torch.nn.init.kaiming_uniform_(weight)
    assert abs(weight.std().item() - (2 / 300) ** 0.5) < 1e-3
    torch.nn.init.trunc_normal_(weight, std=0.02)
    assert weight.abs().max().item() <= 2
    torch.nn.init.orthogonal_(square := torch.empty(8, 8, device=DEVICE))
    torch.testing.assert_close((square @ square.T).cpu(), torch.eye(8), atol=1e-4, rtol=1e-4)


def test_states_under_fake_tensors():
    """They are the generator's own: saving and putting back works where tensors have no contents."""
    torch.manual_seed(3)
    wanted = torch.tpu.get_rng_state()
    with torch._subclasses.FakeTensorMode():
        state = torch.tpu.get_rng_state()
        with pytest.raises(RuntimeError, match="must have contents"):
            torch.tpu.set_rng_state(torch.zeros(16, dtype=torch.uint8))
    assert torch.equal(state, wanted)


def distance(x, y):
    """Kolmogorov and Smirnov's statistic of two samples, scaled: above 2.2 with a probability of one in ten thousand."""
    x, y = x.double().sort().values, y.double().sort().values
    at = torch.cat([x, y])
    gap = torch.searchsorted(x, at, right=True) / len(x) - torch.searchsorted(y, at, right=True) / len(y)
    return gap.abs().max().item() * (len(x) * len(y) / (len(x) + len(y))) ** 0.5


SAMPLED = {
    "gamma": (torch._standard_gamma, [(0.05,), (1.0,), (7.0,), (1e5,)]),
    "poisson": (torch.poisson, [(0.0,), (0.1,), (9.9,), (10.0,), (1e4,)]),
    "binomial": (torch.binomial, [(10.0, 0.9), (100.0, 0.5), (1e5, 0.7), (5.0, 0.0), (5.0, 1.0), (0.0, 0.3)]),
    "dirichlet": (lambda a, b: torch._sample_dirichlet(torch.stack([a, b], -1))[..., 0], [(0.3, 5.0), (1.0, 1.0)]),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_distributions_that_are_sampled_in_loops(name):
    function, cases = SAMPLED[name]
    for case in cases:
        parameters = [torch.full((5000,), p) for p in case]
        assert distance(function(*to_device(parameters)).cpu(), function(*parameters)) < 2.2, case
        assert function(*[p[:0].to(DEVICE) for p in parameters]).shape == (0,)
        assert function(*[p[0].double().to(DEVICE) for p in parameters]).dtype == torch.float64


def test_a_negative_rate_is_refused():
    with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
        torch.poisson(torch.tensor([1.0, -1.0], device=DEVICE))
        torch.tpu.synchronize()


def test_gradients_of_samples():
    """The CPU interpolates: it is right to some 1e-4."""
    for alpha in (1e-3, 0.5, 3.0, 30.0, 1e5):
        a = torch.full((200,), alpha, dtype=torch.float64)
        x = torch._standard_gamma(a)
        assert_same(torch._standard_gamma_grad(*to_device([a, x])), torch._standard_gamma_grad(a, x), rtol=2e-3, atol=1e-9)
    for alpha, beta in ((0.3, 0.5), (1.0, 1.0), (30.0, 20.0), (0.05, 4.0), (2000.0, 3000.0)):
        a, total = torch.full((200,), alpha, dtype=torch.float64), torch.full((200,), alpha + beta, dtype=torch.float64)
        x = torch.distributions.Beta(a, total - a).sample()
        assert_same(torch._dirichlet_grad(*to_device([x, a, total])), torch._dirichlet_grad(x, a, total), rtol=2e-3, atol=1e-9)
