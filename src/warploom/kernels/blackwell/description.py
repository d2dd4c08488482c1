"""The configurations of the Blackwell GEMMs; a `Product` and a `Fusion` describe what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...collective.epilogue.spec import TILE_K_BYTES, Fusion, Product
from ...collective.tile.sizes import EPILOGUE_WARPS, ROLE_THREADS
from ...isa import arch
from ...isa.dtypes import s8
from ..fields import Numbers, ProductConfiguration, Requirement

TARGET = "sm_100a"
ROWS = 128
"""Rows per CTA: the lanes of tensor memory."""
COLUMNS = 512
"""Columns of tensor memory."""
MOST_TOKENS = 128
"""Rows of A whose sums fit the registers of a thread of the small-M kernel."""
BESIDE = 1024
"""Bytes of shared memory besides the ring: barriers, responses of the launch queue, the address of tensor memory, and
padding that aligns the ring."""


@dataclass(frozen=True)
class Config(ProductConfiguration):
    """Tile in elements; tile_m is 128, or 256 for CTA pairs; stages of the ring; accumulators in tensor memory."""

    family: ClassVar[str] = "blackwell"
    numbers: ClassVar[Mapping[str, Numbers]] = {"tile_m": (ROWS, 2 * ROWS), "tile_n": range(16, 257, 16)}
    tile_m: int = 256
    tile_n: int = 256
    stages: int = 6
    buffers: int = 2

    @property
    def group(self) -> int:
        """CTAs that multiply together."""
        return self.tile_m // ROWS

    @property
    def ctas_per_tile(self) -> int:
        return self.group

    @property
    def columns(self) -> int:
        """Columns of B that each CTA loads."""
        return self.tile_n // self.group

    @property
    def threads(self) -> int:
        """Threads of a CTA: a warpgroup of single-warp roles, and the epilogue's."""
        return ROLE_THREADS

    @property
    def readers(self) -> int:
        """Readers of each response of the launch queue: load, schedule and epilogue in every CTA, multiply in the
        leader."""
        return self.group * (2 + EPILOGUE_WARPS) + 1

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA or a pair computes at a time."""
        return self.tile_m, self.tile_n

    @property
    def stage_bytes(self) -> int:
        """Bytes of one CTA's part of a stage."""
        return (ROWS + self.columns) * TILE_K_BYTES

    def shared_bytes(self, *of: object) -> int:
        """Bytes of shared memory per CTA, independent of the product."""
        return self.stages * self.stage_bytes + BESIDE

    def workspace(self, m: int, n: int, sms: int) -> int:
        """Bytes of global memory that a launch needs besides its arrays: none."""
        return 0

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        product.check()
        step = 16 * self.group if product.a is s8 else 16
        panel = 64 // product.b.bytes if product.b_major == "MN" else 8
        room, columns = arch.get(TARGET).shared_per_cta, self.tile_n * self.buffers
        return [
            (self.tile_n % step == 0, "the columns", f"multiples of {step} to 256", self.tile_n),
            (self.columns % panel == 0, "the columns of a CTA, of a B read along them", f"a multiple of {panel}",
             self.columns),
            (columns <= COLUMNS, "the accumulators", f"at most {COLUMNS} columns of tensor memory", columns),
            (self.shared_bytes() <= room, "the shared memory", f"at most {room} bytes", self.shared_bytes()),
        ]  # fmt: skip


GROUPED = Config(tile_m=ROWS, tile_n=256, stages=4)
"""For groups of many rows."""
SMALL_GROUPS = Config(tile_m=ROWS, tile_n=64, stages=8, buffers=4)
"""For groups of few rows, whose matrices are read once: more tiles for more SMs."""


@dataclass(frozen=True)
class SmallMConfig(ProductConfiguration):
    """Rows of A per tile, CTAs of a cluster that split K, stages of the ring; 128 rows of B."""

    family: ClassVar[str] = "blackwell_small_m"
    former: ClassVar[Mapping[str, str]] = {"split": "split_k"}
    numbers: ClassVar[Mapping[str, Numbers]] = {
        "tokens": range(16, MOST_TOKENS + 1, 16), "split_k": (1, 2, 4, 8), "stages": 2,
    }  # fmt: skip
    tokens: int = 16
    split_k: int = 4
    stages: int = 8

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return ROLE_THREADS

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a cluster computes at a time."""
        return self.tokens, ROWS

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return (ROWS + self.tokens) * TILE_K_BYTES

    def shared_bytes(self, *of: object) -> int:
        """Bytes of shared memory per CTA: the ring, and partial sums of the other CTAs of the cluster."""
        return self.stages * self.stage_bytes + self.tokens * ROWS * 4 * (self.split_k > 1) + BESIDE

    def workspace(self, m: int, n: int, sms: int) -> int:
        """Bytes of global memory that a launch needs besides its arrays: none."""
        return 0

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        product.check()
        room, panel = arch.get(TARGET).shared_per_cta, 64 // product.a.bytes
        return [
            (product.a_major == "K" or self.tokens % panel == 0, "the rows of an A that is read along them",
             f"a multiple of {panel}", self.tokens),
            (self.split_k == 1 or product.a is not s8, "the splits of K", "1 for integers", self.split_k),
            (self.shared_bytes() <= room, "the shared memory", f"at most {room} bytes", self.shared_bytes()),
        ]  # fmt: skip
