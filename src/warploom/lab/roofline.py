"""Calculators: the speed limits of a product, and the losses of its tiles. Formulas, no measurements.

    arithmetic intensity   FLOP for each byte that must cross HBM: 2 M N K / (bytes of A, B and D)
    ridge point            intensity at which both roofs meet: peak / bandwidth
    attainable             min(peak, intensity x bandwidth)          Williams, Waterman, Patterson, CACM 52(4), 2009
    tile efficiency        M N / (area of all tiles, including the parts beyond the edge)
    wave efficiency        tiles / (waves x tiles at a time)
    L2 traffic             bytes that a raster order fetches from HBM, with a cache that evicts the least recently used

Peaks are FLOP per clock and SM of the tensor core (NVIDIA H100 white paper, table 2; A100 white paper, table 3) times
SMs and the highest clock.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import ArgumentError
from ..isa.launch import occupancy as occupancy
from ..runtime.machine import A100, B200, H100, H200

FLOP_PER_CLOCK = {
    "sm_90a": {"bf16": 4096, "f16": 4096, "tf32": 2048, "e4m3": 8192, "e5m2": 8192, "s8": 8192, "f32": 256},
    "sm_100a": {"bf16": 8192, "f16": 8192, "tf32": 4096, "e4m3": 16384, "e5m2": 16384, "s8": 16384, "f32": 256},
    "sm_80": {"bf16": 2048, "f16": 2048, "tf32": 1024, "s8": 4096, "f32": 128},
}
"""Multiplications and additions per SM and clock, without sparsity; f32 is without tensor cores."""
MEMORY_BANDWIDTH = {"B200": 8.0e12, "H200": 4.8e12, "H100": 3.35e12, "A100": 2.039e12}
"""Bytes per second of HBM, data sheets (H100 SXM, A100 80 GB). Nothing was timed on a B200."""
CLOCK = {"B200": 1.85e9, "H200": 1.98e9, "H100": 1.98e9, "A100": 1.41e9}
"""Highest SM clock, Hz."""
L2_BYTES = {"B200": 126 << 20, "H200": 60 << 20, "H100": 50 << 20, "A100": 40 << 20}
SMS = {machine.name: machine.sms for machine in (B200(), H200(), H100(), A100())}
ARCH = {machine.name: machine.arch for machine in (B200(), H200(), H100(), A100())}


@dataclass(frozen=True)
class Roofline:
    """The two roofs of a GPU for one type.

    Attributes:
        peak: FLOP/s of the tensor cores at `clock`.
        bandwidth: bytes/s of HBM.
    """

    peak: float
    bandwidth: float
    clock: float

    @classmethod
    def of(cls, machine: str = "H200", dtype: str = "bf16", clock: float | None = None) -> Roofline:
        """The roofs of a known GPU; clock in Hz, its highest by default. Raises ArgumentError for an unknown one."""
        if machine not in SMS:
            raise ArgumentError(
                f"unknown machine {machine!r}", expected=", ".join(SMS), got=repr(machine), code="unknown-name"
            )
        rates = FLOP_PER_CLOCK[ARCH[machine]]
        if dtype not in rates:
            raise ArgumentError(f"{machine} has no tensor core for {dtype}", expected=", ".join(rates), got=dtype)
        hertz = clock or CLOCK[machine]
        return cls(SMS[machine] * rates[dtype] * hertz, MEMORY_BANDWIDTH[machine], hertz)

    @property
    def ridge(self) -> float:
        """FLOP per byte above which the tensor cores are the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP/s at that many FLOP per byte."""
        return min(self.peak, intensity * self.bandwidth)


def intensity(m: int, n: int, k: int, operand_bytes: int = 2, out_bytes: int = 2) -> float:
    """FLOP for each byte of A, B and D, each moved once."""
    return 2 * m * n * k / ((m * k + n * k) * operand_bytes + m * n * out_bytes)


def activity(tflops: float, clock_hz: float, sms: int, dtype: str = "bf16", arch: str = "sm_90a") -> float:
    """Share of the tensor cores' peak at this clock. The clock must be the kernel's own."""
    return tflops * 1e12 / (sms * FLOP_PER_CLOCK[arch][dtype] * clock_hz)


@dataclass(frozen=True)
class Waves:
    """How a grid of tiles maps to the SMs.

    Attributes:
        rows, columns: tiles of D.
        at_a_time: number of tiles that run at the same time.
        tile_efficiency: share of the tiles' area that is in D.
        wave_efficiency: share of the slots of all waves that have a tile.
    """

    rows: int
    columns: int
    at_a_time: int
    tile_efficiency: float
    wave_efficiency: float

    @property
    def tiles(self) -> int:
        return self.rows * self.columns

    @property
    def waves(self) -> float:
        """Number of full waves plus the fraction of the last."""
        return self.tiles / self.at_a_time

    @property
    def efficiency(self) -> float:
        """The product of both: the share of its peak that a kernel reaches with these tiles if all else is perfect."""
        return self.tile_efficiency * self.wave_efficiency


def waves(m: int, n: int, tile_m: int, tile_n: int, at_a_time: int, row_tiles: int = 0) -> Waves:
    """Tiles of a product and their waves; `at_a_time` is SMs x CTAs per SM. row_tiles: 0: those that cover m rows."""
    rows, columns = row_tiles or -(-m // tile_m), -(-n // tile_n)
    tiles = rows * columns
    slots = math.ceil(tiles / at_a_time) * at_a_time
    return Waves(rows, columns, at_a_time, m * n / (tiles * tile_m * tile_n), tiles / slots)


# -- L2 traffic ----------------------------------------------------------------------------------------------------

Order = Callable[[int, int], Iterator[tuple[int, int]]]
"""(rows, columns) of the grid of tiles -> (row, column) of each, in the order of computation."""


def along_rows(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row by row."""
    return ((row, column) for row in range(rows) for column in range(columns))


def grouped(height: int) -> Order:
    """Bands of `height` rows, each traversed column by column, every other one backwards."""

    def order(rows: int, columns: int) -> Iterator[tuple[int, int]]:
        for number, first in enumerate(range(0, rows, height)):
            for step in range(columns):
                column = step if number % 2 == 0 else columns - 1 - step
                for row in range(first, min(first + height, rows)):
                    yield row, column

    return order


def hilbert(bits: int) -> Order:
    """Bands of squares with a side of 2^bits, each along a Hilbert curve; incomplete squares by columns.

    The order that the threads of `collective` compute.
    """
    side, curve = 1 << bits, [(0, 0)]
    for level in range(bits):
        last = (1 << level) - 1
        first = [(y, x) for x, y in curve]
        middle = [(x, y + last + 1) for x, y in curve] + [(x + last + 1, y + last + 1) for x, y in curve]
        curve = first + middle + [(2 * last + 1 - y, last - x) for x, y in curve]

    def order(rows: int, columns: int) -> Iterator[tuple[int, int]]:
        for first in range(0, rows, side):
            height = min(side, rows - first)
            squares = columns // side if height == side else 0
            yield from ((first + row, square * side + column) for square in range(squares) for row, column in curve)
            yield from ((first + row, column) for column in range(squares * side, columns) for row in range(height))

    return order


ORDERS: dict[str, Order] = {
    "along rows": along_rows,
    "grouped 4": grouped(4),
    "grouped 8": grouped(8),
    "grouped 16": grouped(16),
    "hilbert 8": hilbert(3),
}


def l2_traffic(
    m: int,
    n: int,
    k: int,
    tile_m: int,
    tile_n: int,
    order: Order,
    at_a_time: int,
    cache_bytes: int = 50 << 20,
    operand_bytes: int = 2,
    chunk_k: int = 512,
) -> int:
    """Bytes of A and B that come from HBM if the tiles of a wave advance through k together.

    A model: all tiles of a wave are at the same k; a block of A or B of `chunk_k` columns is fetched if it is not in
    the cache; the cache holds whole blocks and evicts the least recently used. Stores of D pass through without
    occupying space. It ranks orders; it does not predict a counter.
    """
    rows, columns = -(-m // tile_m), -(-n // tile_n)
    tiles = list(order(rows, columns))
    size = {"a": tile_m * min(chunk_k, k) * operand_bytes, "b": tile_n * min(chunk_k, k) * operand_bytes}
    held: OrderedDict[tuple[str, int, int], None] = OrderedDict()
    used = fetched = 0
    for start in range(0, len(tiles), at_a_time):
        wave = tiles[start : start + at_a_time]
        a_rows, b_columns = dict.fromkeys(row for row, _ in wave), dict.fromkeys(column for _, column in wave)
        for step in range(-(-k // chunk_k)):
            for key in [*(("a", row, step) for row in a_rows), *(("b", column, step) for column in b_columns)]:
                if key in held:
                    held.move_to_end(key)
                    continue
                held[key] = None
                fetched += size[key[0]]
                used += size[key[0]]
                while used > cache_bytes:
                    used -= size[held.popitem(last=False)[0][0]]
    return fetched
