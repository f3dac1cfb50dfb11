"""Chips: what one of each kind can do at most, for estimates. The numbers are Google's own."""

import dataclasses
import math
import re

GB, TB = 1e9, 1e12
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip.

    hbm_bytes; hbm_bandwidth in bytes per second; bf16_flops per second; ici_bandwidth: bytes per second over all of its
    links in one direction; ``source`` says where the numbers are from.
    """

    name: str
    hbm_bytes: float
    hbm_bandwidth: float
    bf16_flops: float
    ici_bandwidth: float
    source: str

    def share(self, devices_per_chip: float) -> "Chip":
        """What one of a chip's devices has, where a chip is several devices."""
        n = devices_per_chip
        return dataclasses.replace(
            self,
            hbm_bytes=self.hbm_bytes / n,
            hbm_bandwidth=self.hbm_bandwidth / n,
            bf16_flops=self.bf16_flops / n,
            ici_bandwidth=self.ici_bandwidth / n,
        )


# "HBM capacity", "HBM bandwidth", "Peak compute per chip (bf16)" and "Inter-chip interconnect bandwidth" of these pages.
# The newer ones tell the latter for both directions together ("bidirectional"): half of it is meant here.
_DOCS = "https://docs.cloud.google.com/tpu/docs/"
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v4", 32 * GIB, 1228 * GB, 275 * TB, 300 * GB, _DOCS + "v4"),
        Chip("v5e", 16 * GB, 819 * GB, 197 * TB, 200 * GB, _DOCS + "v5e"),
        Chip("v5p", 95 * GIB, 2765 * GB, 459 * TB, 600 * GB, _DOCS + "v5p"),
        Chip("v6e", 32 * GB, 1638 * GB, 918 * TB, 400 * GB, _DOCS + "v6e"),
        Chip("tpu7x", 192 * GIB, 7380 * GB, 2307 * TB, 600 * GB, _DOCS + "tpu7x"),
    )
}


def chip_of(topology: str) -> Chip | None:
    """The chip that a topology's name begins with ("v6e:2x4" -> v6e); None: not in the table."""
    return CHIPS.get(topology.partition(":")[0])


def chip_count(topology: str) -> int | None:
    """How many chips a name tells of ("v6e:2x4" -> 8); None: it doesn't tell."""
    sizes = topology.partition(":")[2]
    return math.prod(map(int, sizes.split("x"))) if re.fullmatch(r"\d+(x\d+)*", sizes) else None
