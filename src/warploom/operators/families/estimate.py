"""What the model says about a configuration, and the rates that all kernel families share.

    cycles   waves x (k-tiles x max(tensor core, fill) + exposed end) + first fill + last store
    clock    falls a little with activity and with energy; most of it is a property of the card, not of the kernel: at
             most what the card's highest clock allows (`Gpu.clock_mhz`)
    memory   bytes of A, B and D at the rate that memory gives

The constants were fitted to one prototype's readings on an H200 (seven tiles on sixteen shapes, which are in
`tests/operators/readings.py`). They order configurations; they do not predict microseconds to a percent. `warploom
tune` measures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..spec.gpu import Gpu

TENSOR_TILE = 32
"""Elements of an output tile that a multiprocessor's tensor core advances by one k-tile of 128 bytes in a cycle."""
FILL_BYTES = 58.0
"""Bytes per cycle that L2 gives one multiprocessor when all ask."""
SMEM_BYTES = 128
"""Bytes per cycle that the tensor core reads from shared memory."""
MOST_MHZ = 1760.0
"""The clock inside a kernel of an H200 without the power limit."""
H200_MHZ = 1980
"""The highest clock of an H200, to which the constants in cycles belong; assumed of a GPU that does not report its."""
MEMORY = 4.35e6
"""Bytes per microsecond that a product reads and writes at best."""


@dataclass(frozen=True)
class Estimate:
    """The model's estimate for one configuration.

    Attributes:
        time_us: microseconds.
        waves: waves of tiles, each as long as its longest tile.
        wave_efficiency: share of the tile slots that are used.
        activity: share of the time in which tensor cores do useful multiplications.
        fill: bytes per cycle that are loaded into each multiprocessor.
        exposed: share of the time spent in epilogues alone.
        clock_mhz: assumed.
        bound: "tensor cores", "fill" or "memory".
        assumed: what the figures rest on, if not measurements of an H200.
        correction: the factor on the arithmetic time that gives `time_us` (`correction`).
        of_groups: for which sizes of groups `waves` and `wave_efficiency` are; "" without groups.
    """

    time_us: float
    waves: float
    wave_efficiency: float
    activity: float
    fill: float
    exposed: float
    clock_mhz: float
    bound: str
    assumed: str = ""
    correction: float = 1.0
    of_groups: str = ""

    def times(self, count: int) -> Estimate:
        """The estimate for that many launches."""
        return replace(self, time_us=self.time_us * count)

    def corrected_to(self, time_us: float) -> Estimate:
        """The estimate with another time."""
        return replace(self, time_us=time_us, correction=self.correction * time_us / self.time_us)


def of_h200_clock(gpu: Gpu) -> float:
    """A GPU's highest clock, in that of an H200."""
    return (gpu.clock_mhz or H200_MHZ) / H200_MHZ


def narrowness(tile_n: int) -> float:
    """How much longer an MMA takes than its multiplications: it reads 64 rows of A however few columns it has."""
    return max(1.0, (64 + tile_n) * 32 / SMEM_BYTES / (tile_n / 2))
