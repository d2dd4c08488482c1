"""What a finished Hopper GEMM is built from: the product, what is fused into its end, and how it is tiled.

    Product   types and layouts of A, B and D                         what is computed
    Fusion    scales, alpha, beta, bias, activation, gate, residual   what happens to it before it is stored
    Config    schedule, tile, stages, cluster, raster                     how

All three are frozen and hashable: together they are the key of a built kernel. Sizes are arguments of the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...collective.epilogue.spec import ACTIVATIONS, SCALES, TILE_K_BYTES, Fusion, Product
from ...collective.tile.sizes import cluster_tile, fits
from ...errors import ArgumentError
from ...isa import arch
from ...isa.instructions.wgmma import FLOAT_N
from .fields import Configuration, check_fields

SHARED_BYTES = arch.get("sm_90a").shared_per_cta
"""Shared memory that a CTA may have."""
BOX = 64
"""Rows of a store box; its columns fill 128 bytes."""
KERNEL_SCHEDULES = ("cooperative", "ping_pong", "staggered")
RING_BARRIERS = 1024
"""Bytes up to the store boxes, which are aligned, that the ring's barriers take."""
MOST_ACCUMULATORS = 208
"""Of a thread of two consumers."""
MOST_OF_FUSED = {
    ("cooperative", False): (208, 192), ("cooperative", True): (176, 160), ("ping_pong", False): (208, 192),
    ("staggered", False): (208, 192), ("staggered", True): (192, 160),
}  # fmt: skip
"""The same with a fused epilogue, by kernel schedule and split tail (whose text has the epilogue twice): with little,
and with two vectors along the columns, a gate, C or the maximum (160 then for an eight-bit D). A staggered consumer
with a gate or C spills at any size, because its stores stand between wgmmas in flight; so does a split tail with a
gate, C or the maximum. Tried with ptxas 13.0: `tests/operators/test_fits.py`."""
MOST_OF_THREE = 96
"""Of a thread of three consumers: ptxas gives 512 threads 128 registers each."""
MOST_CONSUMERS = 3
_TAIL_BARRIERS = 2
_NUMBERS = dict.fromkeys(("tile_m", "tile_n", "consumers", "stages", "epi_stages", "ctas", "group"), 1)
_WORDS = {"kernel_schedule": KERNEL_SCHEDULES, "multicast": ("a", "b")}
_PLAIN = Fusion()


@dataclass(frozen=True)
class Config(Configuration):
    """How a product is computed.

    Attributes:
        kernel_schedule: "cooperative": the consumers share a tile; "ping_pong": each has its own and they take turns;
            "staggered": cooperative, and the first half of a consumer's rows is stored while its other half is
            multiplied.
        tile_m: rows of a CTA's tile, of a consumer's in ping-pong. 64, 128, 192 or 256.
        tile_n: its columns: a multiple of 8 to 256; of 16 where B is multicast to two CTAs.
        consumers: warpgroups that multiply.
        stages: of the ring.
        epi_stages: store boxes for each consumer.
        ctas: of a cluster; 1 or 2.
        multicast: the operand that the cluster's CTAs share: "b" (their tiles stand below each other) or "a".
        group: height of a raster band, in cluster tiles.
        pdl: programmatic dependent launch.
        split_tail: what is left over after the last full wave, if it is no more than half a wave, is computed by two
            CTAs each, half of K by either.
        constant_weights: the caller's promise that no kernel still running writes B: a second producer loads it while
            the kernel before this one ends. For one CTA, with pdl.
    """

    family: ClassVar[str] = "hopper_large"
    kernel_schedule: str = "cooperative"
    tile_m: int = 128
    tile_n: int = 256
    consumers: int = 2
    stages: int = 4
    epi_stages: int = 2
    ctas: int = 2
    multicast: str = "b"
    group: int = 8
    pdl: bool = True
    split_tail: bool = False
    constant_weights: bool = False

    @property
    def rows(self) -> int:
        """Rows of one consumer."""
        return self.tile_m if self.kernel_schedule == "ping_pong" else self.tile_m // self.consumers

    @property
    def accumulators(self) -> int:
        """Registers of one thread for its part of the tile."""
        return self.rows * self.tile_n // 128

    @property
    def threads(self) -> int:
        """Of a CTA: a producer warpgroup and the consumers."""
        return 128 * (1 + self.consumers)

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at one time."""
        return self.tile_m, self.tile_n

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """Rows and columns that the CTAs of a cluster compute at one time."""
        return cluster_tile((self.tile_m, self.tile_n), self.ctas, self.multicast)

    def shared_bytes(self, product: Product, fusion: Fusion = _PLAIN) -> int:
        """Bytes of shared memory: the ring and its barriers (rounded up), the store boxes, a second array's boxes where
        a gate and C come with the result, and their barriers."""
        ring = self.stages * (self.tile_m + self.tile_n) * TILE_K_BYTES
        beside = fusion.gate + fusion.addend
        count = self.consumers * self.epi_stages
        boxes = count * BOX * TILE_K_BYTES * max(1, beside)
        behind = (count if beside else 0) + (_TAIL_BARRIERS if self.split_tail else 0)
        return ring + RING_BARRIERS + boxes + behind * 8

    def fits_registers(self, product: Product, fusion: Fusion = _PLAIN) -> bool:
        """Whether ptxas is known to spill nothing of this with such an end; see `MOST_OF_FUSED`. What is pinned may try
        more: the build says if it spills."""
        if fusion.empty:
            return True
        vectors, beside = (fusion.scales == "row") + (fusion.bias == "column"), fusion.gate or fusion.addend
        light, heavy = MOST_OF_FUSED[self.kernel_schedule, self.split_tail]
        if (self.kernel_schedule == "staggered" and beside) or (self.split_tail and (beside or fusion.amax)):
            return False
        if vectors > 1 or beside or fusion.amax:
            return self.accumulators <= (min(heavy, 160) if product.out.bits == 8 else heavy)
        return self.accumulators <= light

    def check(self, product: Product, fusion: Fusion = _PLAIN) -> None:
        """Raise ArgumentError where no kernel can be built from this."""
        check_fields(self, _NUMBERS, ("pdl", "split_tail", "constant_weights"), _WORDS)
        problem = self._problem(product, fusion)
        if problem is not None:
            what, expected, got = problem
            raise ArgumentError(
                f"the configuration {self.name()} cannot be built: {what}",
                expected=expected,
                got=got,
                code="configuration",
            )

    def _problem(self, product: Product, fusion: Fusion = _PLAIN) -> tuple[str, str, object] | None:
        if self.consumers > MOST_CONSUMERS:
            return "its consumers", f"1 to {MOST_CONSUMERS}", self.consumers
        if self.rows % 64 or not self.rows or self.tile_n not in FLOAT_N:
            return "its tile", "64 rows times the consumers, columns in multiples of 8 to 256", (
                self.tile_m, self.tile_n)  # fmt: skip
        if product.b_major == "MN" and self.tile_n % 16:
            return "columns of a B that is contiguous along them are read 32 bytes at a time", (
                "a multiple of 16"), self.tile_n  # fmt: skip
        if self.kernel_schedule == "staggered" and self.rows != 128:
            return "a staggered consumer has two blocks of rows", "128 rows for each consumer", self.rows
        if not product.a.is_float and self.tile_n > 32 and self.tile_n % 16:
            return "a wgmma of integers does not have that many columns", "8, 16, 24, or a multiple of 16", self.tile_n
        if self.constant_weights and (self.ctas > 1 or not self.pdl):
            return "constant weights are loaded ahead by a CTA without a partner, in a dependent launch", (
                "ctas 1 and pdl"), (self.ctas, self.pdl)  # fmt: skip
        if self.split_tail and (self.kernel_schedule == "ping_pong" or (self.ctas, self.consumers) != (2, 2)):
            return "its tail is split between two CTAs of two consumers that share a tile", "2 CTAs, 2 consumers", (
                self.kernel_schedule, self.ctas, self.consumers)  # fmt: skip
        if self.kernel_schedule == "ping_pong" and self.consumers != 2:
            return "ping-pong needs exactly two consumers", "2 consumers", self.consumers
        shared_rows = self.tile_n if self.multicast == "b" else self.tile_m
        if self.ctas not in (1, 2) or shared_rows % (8 * self.ctas):
            return "what is multicast is cut into slices of 8 rows", f"a multiple of {8 * self.ctas}", shared_rows
        most = MOST_ACCUMULATORS if self.consumers < 3 else MOST_OF_THREE
        if self.accumulators > most:
            return "its accumulators do not fit the registers", f"at most {most} for each thread", self.accumulators
        if self.shared_bytes(product, fusion) > SHARED_BYTES:
            return "its shared memory", f"at most {SHARED_BYTES} bytes", self.shared_bytes(product, fusion)
        if not fits(self.tile_n, product.out):
            return (
                "a row of its tile is stored in whole 16 bytes",
                f"a multiple of {16 // product.out.bytes}",
                self.tile_n,
            )
        if self.stages < 2 or self.epi_stages < 1:
            return "its stages", "at least 2 stages and 1 store box", (self.stages, self.epi_stages)
        if "MN" in (product.a_major, product.b_major) and product.a.bits != 16:
            return "eight-bit and tf32 operands are contiguous in k", "K", (product.a_major, product.b_major)
        return None


__all__ = ["ACTIVATIONS", "KERNEL_SCHEDULES", "SCALES", "TILE_K_BYTES", "Config", "Fusion", "Product"]
