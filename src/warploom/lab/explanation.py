"""A product before it runs: roofs, tiles, waves, occupancy, L2 traffic, and the chosen kernel.

All of it is computed (`lab.roofline` has the formulas); nothing here is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import operators as library
from ..driver import toolchain
from ..errors import ArgumentError, WarploomError
from ..isa.dtypes import f32, tf32
from ..isa.launch import Occupancy
from ..operators.families import family_of, from_text
from ..operators.families.ampere import TILES as AMPERE_TILES
from ..operators.families.grouped import row_tiles_of
from ..operators.select import kernel_of
from ..operators.spec.problem import Problem, fused_words
from ..operators.spec.validation import check_together
from . import roofline
from .roofline import ORDERS, Roofline, Waves

MOST_STEPS = 1_000_000
"""Tiles times k pieces up to which the raster orders are simulated through the cache: some seconds."""
TILES = ((64, 64), (128, 128), (128, 192), (128, 256), (256, 128), (256, 192))


@dataclass(frozen=True)
class Explained:
    """The result of an explanation.

    Attributes:
        config: the library's choice, or the requested one.
        waves: for each tile in `TILES`, and for the chosen one.
        registers: of a thread at launch; None without ptxas.
        traffic: bytes from HBM for A and B by raster order, with the chosen tile; empty for a product of more than
            `MOST_STEPS`, and for groups, whose tiles have an order of their own.
        library: the result of `operators.explain`, as text and as data; "" and None if a configuration was requested.
    """

    problem: Problem
    machine: str
    roof: Roofline
    config: Any
    tiles: dict[tuple[int, int], Waves]
    occupancy: Occupancy
    registers: int | None
    traffic: dict[str, int]
    library: str
    library_data: dict[str, Any] | None

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.problem.flops / self.problem.bytes

    @property
    def bound(self) -> str:
        """The lower roof."""
        return "tensor cores" if self.intensity >= self.roof.ridge else "memory"

    @property
    def least_us(self) -> float:
        """Microseconds under both roofs."""
        return max(self.problem.flops / self.roof.peak, self.problem.bytes / self.roof.bandwidth) * 1e6

    @property
    def chosen(self) -> Waves:
        """Waves of the chosen tile."""
        return self.tiles[self.config.output_tile]

    def data(self) -> dict[str, Any]:
        """As a dict for JSON."""
        return {
            "problem": _as_dict(self.problem),
            "machine": self.machine,
            "flops": self.problem.flops,
            "bytes": self.problem.bytes,
            "intensity": round(self.intensity, 2),
            "ridge": round(self.roof.ridge, 2),
            "bound": self.bound,
            "peak_tflops": round(self.roof.peak / 1e12, 1),
            "bandwidth_tbs": self.roof.bandwidth / 1e12,
            "least_us": round(self.least_us, 2),
            "config": self.config.name(),
            "occupancy": {**vars(self.occupancy), "resident": self.occupancy.resident, "limit": self.occupancy.limit,
                          "threads": self.config.threads, "register_count": self.registers},
            "tiles": [
                {"tile": list(tile), "tiles": each.tiles, "waves": round(each.waves, 3),
                 "tile_efficiency": round(each.tile_efficiency, 4), "wave_efficiency": round(each.wave_efficiency, 4)}
                for tile, each in self.tiles.items()
            ],
            "l2_traffic_bytes": self.traffic,
            "library": self.library_data,
        }  # fmt: skip


def _as_dict(problem: Problem) -> dict[str, Any]:
    """A product's sizes, types as arrays have them (f32 for tf32), layout and fused operations."""
    operand = f32 if problem.product.a is tf32 else problem.product.a
    return {
        "m": problem.m, "n": problem.n, "k": problem.k, "dtype": operand.name, "out": problem.product.out.name,
        "layout": problem.layout, "fused": fused_words(problem.fusion),
        **({"groups": problem.groups} if problem.groups else {}),
    }  # fmt: skip


def explain(problem: Problem, machine: str = "H200", config: str = "") -> Explained:
    """Explain a product. config: a configuration of a kernel by name; "" for the library's choice.

    Raises ArgumentError for an unknown machine, type or configuration.
    """
    product = problem.product
    roof = Roofline.of(machine, product.a.name)
    check_together(problem)
    if config:
        text, data, chosen = "", None, from_text(config)
        family = family_of(chosen, problem)
        if family.arch != roofline.ARCH[machine]:
            raise ArgumentError(f"this configuration is not one of {machine}'s kernels", got=config,
                                expected=f"one of {roofline.ARCH[machine]}", code="wrong-gpu")  # fmt: skip
        family.check(chosen, problem)
    else:
        text, data, chosen = _library(problem, machine)
    rows, columns = chosen.output_tile
    sms = roofline.SMS[machine]
    tiles = {
        (tile_m, tile_n): _waves(problem, tile_m, tile_n, sms)
        for tile_m, tile_n in sorted({*(AMPERE_TILES if roofline.ARCH[machine] == "sm_80" else TILES), (rows, columns)})
    }
    at_a_time = max(1, sms // chosen.ctas_per_tile)
    tiles[rows, columns] = _waves(problem, rows, columns, at_a_time)
    registers = _registers(problem, chosen)
    shared = chosen.shared_bytes(product, problem.fusion)
    per_thread = registers or min(65536 // chosen.threads // 8 * 8, 248)
    return Explained(
        problem, machine, roof, chosen, tiles,
        roofline.occupancy(roofline.ARCH[machine], chosen.threads, per_thread, shared), registers,
        {
            name: roofline.l2_traffic(
                problem.m, problem.n, problem.k, rows, columns, order, at_a_time,
                roofline.L2_BYTES[machine], product.a.bytes,
            )
            for name, order in ORDERS.items()
            if not problem.groups and tiles[rows, columns].tiles * -(-problem.k // 512) <= MOST_STEPS
        },
        text, data,
    )  # fmt: skip


def _waves(problem: Problem, tile_m: int, tile_n: int, at_a_time: int) -> Waves:
    """The tiles of a product; of groups, as many as the model expects."""
    row_tiles = row_tiles_of(problem, tile_m) if problem.groups else 0
    return roofline.waves(problem.m, problem.n, tile_m, tile_n, at_a_time, row_tiles)


def _registers(problem: Problem, config: Any) -> int | None:
    """The registers that ptxas gives a thread; None without ptxas, or if the kernel is not built."""
    if toolchain.ptxas() is None:
        return None
    try:
        return kernel_of(problem, config).resources().registers
    except WarploomError:
        return None


def _library(problem: Problem, machine: str) -> tuple[str, dict[str, Any], Any]:
    """(the library's own explanation, the same as data, its configuration)."""
    gpu = library.Gpu(
        f"NVIDIA {machine}", roofline.ARCH[machine], roofline.SMS[machine],
        memory_gbps=round(roofline.MEMORY_BANDWIDTH[machine] / 1e9), clock_mhz=round(roofline.CLOCK[machine] / 1e6),
    )  # fmt: skip
    found = library.explain(problem, gpu)
    return found.text(), found.data(), found.choice.config
