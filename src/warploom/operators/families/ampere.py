"""GPUs of sm_80 to sm_89: the kernel of rung 6 multiplies bf16, and array operations do the rest (`bind_ampere`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...collective.epilogue.spec import Fusion, Product
from ...isa import arch as arches
from ...isa.dtypes import bf16, f32
from ...kernels.fields import Numbers, ProductConfiguration, Requirement
from ...plural import counted
from ..spec.gpu import HOPPER, Gpu
from ..spec.problem import Problem
from .estimate import Estimate
from .family import KernelFamily

TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (32, 64))
TILE_K = 64
PART = 16
"""A warp's part of a tile is a multiple of PART x PART."""
MACS, MHZ, FILL_BYTES, MEMORY = 1024, 1410.0, 47.0, 2.0e6
"""An A100 by its data sheet and white paper: multiply-adds per cycle of a multiprocessor, its clock, bytes per cycle
from L2 to one multiprocessor (5120 for 108 of them), bytes per microsecond from memory."""
START_US = 3.0
ASSUMED = "an A100's data sheet; no kernel was timed on such a GPU"
REGISTERS = 100
"""Approximate registers of a thread besides its accumulators (ptxas: 84 to 126)."""


@dataclass(frozen=True)
class AmpereConfig(ProductConfiguration):
    """Tile in elements, stages of TILE_K, and warps along both sides of the tile."""

    family: ClassVar[str] = "ampere"
    numbers: ClassVar[Mapping[str, Numbers]] = {"tile_m": PART, "tile_n": PART, "stages": 2}
    tile_m: int = 128
    tile_n: int = 128
    stages: int = 3
    warps_m: int = 2
    warps_n: int = 2

    @property
    def threads(self) -> int:
        """32 for each warp."""
        return self.warps_m * self.warps_n * 32

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at a time."""
        return self.tile_m, self.tile_n

    def shared_bytes(self, *of: Any) -> int:
        """Bytes of shared memory, independent of the product."""
        return self.stages * (self.tile_m + self.tile_n) * TILE_K * bf16.bytes

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        limit, tile = arches.get(Ampere.arch).shared_per_cta, (self.tile_m, self.tile_n)
        whole = not (self.tile_m % (PART * self.warps_m) or self.tile_n % (PART * self.warps_n))
        return [
            (whole, "the warps do not divide the tile", f"a warp tile that is a multiple of {PART} x {PART}", tile),
            (self.shared_bytes() <= limit, "the shared memory", f"at most {limit} bytes", self.shared_bytes()),
            (self.threads <= 1024, "the threads", "at most 1024", self.threads),
        ]


class Ampere(KernelFamily):
    """`kernels.ladder.r06_ampere_multistage`."""

    name, arch, config = AmpereConfig.family, "sm_80", AmpereConfig

    def takes(self, problem: Problem) -> bool:
        """Products of bf16 with a bf16 or f32 result and any epilogue, except array scales."""
        product = problem.product
        return product.a is product.b is bf16 and product.out in (bf16, f32) and not problem.fusion.scales

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[AmpereConfig]:
        """Each tile whose stages fit the GPU; none for Hopper, which has its own kernels."""
        if gpu.number >= HOPPER:
            return []
        limit = arches.get(gpu.arch).shared_per_cta
        return [each for tile in TILES if (each := AmpereConfig(*tile)).shared_bytes() <= limit]

    def goes_first(self, config: AmpereConfig, problem: Problem, gpu: Gpu) -> bool:
        """The rung's own tile, which was timed (on an H200), if every multiprocessor gets one."""
        tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
        return config == AmpereConfig() and tiles >= gpu.sms

    def estimate(self, config: AmpereConfig, problem: Problem, gpu: Gpu) -> Estimate:
        """The longer of multiplying and filling on the busiest multiprocessor, or the memory time."""
        tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
        accumulators = config.tile_m * config.tile_n // config.threads
        resident = max(1, min(
            arches.get(self.arch).shared_per_sm // config.shared_bytes(),
            65536 // (config.threads * (accumulators + REGISTERS)),
        ))  # fmt: skip
        tensor = config.tile_m * config.tile_n * problem.k / MACS
        bytes_ = (config.tile_m + config.tile_n) * problem.k * bf16.bytes
        fill = bytes_ / FILL_BYTES
        rounds, mhz = -(-tiles // gpu.sms), float(gpu.clock_mhz or MHZ)
        busy, memory = rounds * max(tensor, fill) / mhz, problem.bytes / problem.count / MEMORY
        time = max(busy, memory) + START_US
        useful = problem.m * problem.n * problem.k / MACS / gpu.sms / mhz
        bound = "memory" if memory > busy else "fill" if fill > tensor else "tensor cores"
        return Estimate(
            time, float(-(-tiles // (gpu.sms * resident))), tiles / (rounds * gpu.sms), useful / time,
            rounds * bytes_ / (time * mhz), 0.0, mhz, bound, ASSUMED,
        )  # fmt: skip

    def build(self, problem: Problem, config: AmpereConfig, pads_to_16b: bool) -> Any:
        """The kernel; if rows of D are not multiples of 16 bytes, they are in separate memory."""
        from ...kernels.ladder import r06_ampere_multistage as rung

        out = problem.product.out if problem.fusion.empty else f32
        warps = config.warps_m, config.warps_n
        return rung.build(rung.Config(config.tile_m, config.tile_n, TILE_K, config.stages, warps, out))

    def describe(self, config: AmpereConfig) -> str:
        return (f"Ampere: tiles of {config.tile_m} x {config.tile_n}, {config.stages} stages, "
                f"{config.warps_m} x {counted(config.warps_n, 'warp')}; nothing is fused")  # fmt: skip
