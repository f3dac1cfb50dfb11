"""Random programs (differential.py) do on the device what they do on the CPU."""

import os

import differential
import planted_faults
import pytest

EVERYTHING = bool(os.environ.get("TORCH_TPU_TEST_EVERYTHING"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(20 if EVERYTHING else 1))
def test_programs_are_the_same(seed):
    assert differential.explore(1000 if EVERYTHING else 150, seed, differential.MODES) > 100


@pytest.mark.parametrize("line", ["x1.add_(1)", "x1 = x0.mT", "x1 = x1.to(torch.int64)", "x0.t_()", "x1.mul_(0)", "x0.nope()"])
def test_a_difference_is_told(line):
    """What one device does more than the other is seen: in values, layouts, dtypes, versions, errors."""
    start = ["x0 = leaf(torch.float32, (2, 3), 1)", "x1 = x0[:, 1:]"]
    expected, actual = differential.run_on("cpu", [*start, "x1"]), differential.run_on("tpu", [*start, line])
    assert differential.difference(actual, expected, [*start, line], set())


@pytest.mark.parametrize("name", planted_faults.FAULTS)
def test_faults_can_be_planted(name):
    file, sound, fault = planted_faults.FAULTS[name]
    assert (planted_faults.ROOT / file).read_text().count(sound) == 1 and sound != fault
