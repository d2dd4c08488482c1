"""The description a Hopper GEMM is built from: the product, what its epilogue fuses, and how it is tiled.

    Product   types and layouts of A, B and D                         what is computed
    Fusion    scales, alpha, beta, bias, activation, gate, residual   what happens to it before it is stored
    Config    schedule, tile, stages, cluster, raster                     how

All three are frozen and hashable, and together form the key of a built kernel. Sizes are arguments of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...collective.epilogue.spec import ACTIVATIONS, SCALES, TILE_K_BYTES, Fusion, Product
from ...collective.tile.sizes import cluster_tile, fits
from ...isa import arch
from ...isa.dtypes import DType, bf16, e4m3, e5m2, f16
from ...isa.instructions.wgmma import FLOAT_N
from ...isa.swizzle import Swizzle
from ..fields import Numbers, ProductConfiguration, Requirement

_LIMITS = arch.get("sm_90a")
SHARED_BYTES = _LIMITS.shared_per_cta
"""Shared memory limit of a CTA, in bytes."""
FEW_ROW_OPERANDS: tuple[DType, ...] = (bf16, f16, e4m3, e5m2)
"""Types of A and B of the kernels for few rows."""
PANEL = Swizzle.B128.span // 2
"""Columns of 16 bits in a panel of the widest swizzle."""
BOX = 64
"""Rows of a store box; its columns fill 128 bytes."""
KERNEL_SCHEDULES = ("cooperative", "ping_pong", "staggered")
RING_BARRIER_BYTES = 1024
"""Bytes reserved for the ring's barriers, before the aligned store boxes."""
MOST_ACCUMULATORS = 208
"""Accumulators per thread, at most, with up to two consumers."""
MOST_OF_FUSED = {
    ("cooperative", False): (192, 176), ("cooperative", True): (176, 160), ("ping_pong", False): (192, 176),
    ("staggered", False): (192, 192), ("staggered", True): (192, 160),
}  # fmt: skip
"""Accumulators per thread, at most, with a fused epilogue, by kernel schedule and split tail (whose code has the
epilogue twice). First number: a light epilogue. Second: two vectors along the columns or the maximum. An eight-bit D
has at most 160 with those, a gate or C. A staggered consumer with a gate or C spills at any size, because its stores
are between wgmmas in flight; so does a split tail with a gate, C or the maximum. Tried with ptxas 13.0:
`tests/operators/test_fits.py`."""
SPILLED_WITH_ACTIVATION = (112, 120)
"""Accumulators per thread of two cooperative consumers with which an activation spills for some numbers of store boxes,
alone or with a gate, though more do not: tiles of 128 x 224 and 128 x 240. Tried with ptxas 13.0."""
MOST_TRANSPOSED_ACCUMULATORS = 192
"""The same without fusion, if an operand is MN-major."""
MOST_ACCUMULATORS_OF_THREE = 96
"""Accumulators per thread, at most, with three consumers: ptxas gives each of 512 threads 128 registers."""
MOST_CONSUMERS = 3
_TAIL_BARRIERS = 2
SHALLOW = (16, 32)
"""Values of `tile_k` besides 0."""
_PLAIN = Fusion()


def shared_capacity(ctas_per_sm: int) -> int:
    """Bytes of shared memory per CTA with `ctas_per_sm` CTAs on an SM."""
    return min(SHARED_BYTES, _LIMITS.shared_per_sm // ctas_per_sm - _LIMITS.shared_reserved)


def few_row_operands(product: Product) -> list[Requirement]:
    """What the kernels for few rows require of the operands."""
    types = product.a, product.b
    known, same = all(each in FEW_ROW_OPERANDS for each in types), product.a == product.b
    return [
        (known, "the operand types", ", ".join(map(str, FEW_ROW_OPERANDS)), types),
        (same or product.a.bits == product.b.bits == 8, "the operand types", "one type, or two of eight bits", types),
        *([] if product.a.bits == 16 else [along_k(product)]),
    ]  # fmt: skip


def along_k(product: Product) -> Requirement:
    """That both operands are contiguous along K."""
    other = [f"{name} contiguous along {axis}" for name, axis, major in
             (("a", "M", product.a_major), ("b", "N", product.b_major)) if major != "K"]  # fmt: skip
    usual = {"a": "a row-major array of M x K", "b": "w.T of a row-major array w of N x K"}
    wanted = " and ".join(f"{each[0]} contiguous along K, such as {usual[each[0]]}" for each in other)
    return not other, "it reads operands along K", wanted, " and ".join(other)


@dataclass(frozen=True)
class Config(ProductConfiguration):
    """How a product is computed.

    Attributes:
        kernel_schedule: "cooperative": the consumers share a tile. "ping_pong": each consumer has its own tile, and
            they alternate. "staggered": cooperative, and a consumer stores the first half of its rows while it
            multiplies the other half.
        tile_m: rows of a CTA's tile (in ping-pong, of a consumer's tile): 64, 128, 192 or 256.
        tile_n: columns of the tile: a multiple of 8, at most 256; a multiple of 16 if B is multicast to two CTAs.
        consumers: consumer warpgroups.
        stages: stages of the ring.
        epi_stages: store boxes per consumer.
        ctas: CTAs per cluster, 1 or 2.
        multicast: the operand that the cluster's CTAs share: "b" (their tiles are adjacent along M) or "a".
        group: height of a raster band, in cluster tiles.
        pdl: programmatic dependent launch.
        split_tail: if the last wave is at most half full, two CTAs compute each of its tiles, with half of K each.
        constant_weights: the caller's promise that no running kernel writes B: a second producer loads B while the
            previous kernel ends. Needs one CTA per cluster and pdl.
        tile_k: k per stage; 0: 128 bytes. If both operands are MN-major, it may be 16 or 32: rows of k that a box has
            outside the tensor cost TMA several times as much as those inside, which matters for a short K.
        evict_first: tell L2 to evict D before A and B, which a D larger than L2 would otherwise replace.
    """

    family: ClassVar[str] = "hopper_large"
    former: ClassVar[Mapping[str, str]] = {"form": "kernel_schedule", "slots": "epi_stages", "shared": "multicast"}
    numbers: ClassVar[Mapping[str, Numbers]] = {
        "tile_n": FLOAT_N, "consumers": range(1, MOST_CONSUMERS + 1), "stages": 2, "ctas": (1, 2),
        "tile_k": (0, *SHALLOW),
    }  # fmt: skip
    words: ClassVar[Mapping[str, Sequence[str]]] = {"kernel_schedule": KERNEL_SCHEDULES, "multicast": ("a", "b")}
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
    tile_k: int = 0
    evict_first: bool = False

    @property
    def rows(self) -> int:
        """Rows of a tile that one consumer computes."""
        return self.tile_m if self.kernel_schedule == "ping_pong" else self.tile_m // self.consumers

    @property
    def accumulators(self) -> int:
        """Accumulator registers per thread."""
        return self.rows * self.tile_n // 128

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        return 128 * (1 + self.consumers)

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at a time."""
        return self.tile_m, self.tile_n

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """Rows and columns that the CTAs of a cluster compute at a time."""
        return cluster_tile((self.tile_m, self.tile_n), self.ctas, self.multicast)

    def stage_k(self, product: Product) -> int:
        """Elements of k per stage."""
        return self.tile_k or product.tile_k

    def boxes(self, product: Product) -> int:
        """Store boxes of a consumer's part of a tile."""
        return self.rows // BOX * -(-self.tile_n * product.out.bytes // TILE_K_BYTES)

    def stage_bytes(self, product: Product) -> int:
        """Bytes of one stage: both operands' tiles."""
        return (self.tile_m + self.tile_n) * self.stage_k(product) * product.a.bytes

    def shared_bytes(self, product: Product, fusion: Fusion = _PLAIN) -> int:
        """Bytes of shared memory: the ring and its barriers (rounded up), the store boxes, and the barriers of gate and
        C. If the epilogue has both a gate and C, the boxes are doubled."""
        ring = self.stages * self.stage_bytes(product)
        beside = fusion.gate + fusion.addend
        count = self.consumers * self.epi_stages
        boxes = count * BOX * TILE_K_BYTES * max(1, beside)
        behind = (count if beside else 0) + (_TAIL_BARRIERS if self.split_tail else 0)
        return ring + RING_BARRIER_BYTES + boxes + behind * 8

    def fits_registers(self, product: Product, fusion: Fusion = _PLAIN) -> bool:
        """True if ptxas is known not to spill with this epilogue; see `MOST_OF_FUSED`. A pinned configuration may
        exceed this: the build reports a spill."""
        if fusion.empty:
            return self.accumulators <= MOST_TRANSPOSED_ACCUMULATORS or (product.a_major, product.b_major) == ("K", "K")
        vectors, beside = (fusion.scales == "row") + (fusion.bias == "column"), fusion.gate or fusion.addend
        light, heavy = MOST_OF_FUSED[self.kernel_schedule, self.split_tail]
        if (self.kernel_schedule == "staggered" and beside) or (self.split_tail and (beside or fusion.amax)):
            return False
        two_together = self.kernel_schedule == "cooperative" and self.consumers == 2
        if two_together and fusion.activation and self.accumulators in SPILLED_WITH_ACTIVATION:
            return False
        most = heavy if vectors > 1 or fusion.amax else light
        if product.out.bits == 8 and (vectors > 1 or beside or fusion.amax):
            most = min(most, 160)
        return self.accumulators <= most

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        pair = (self.ctas, self.consumers)
        shared_rows = self.tile_n if self.multicast == "b" else self.tile_m
        most = MOST_ACCUMULATORS if self.consumers < 3 else MOST_ACCUMULATORS_OF_THREE
        size = self.shared_bytes(product, fusion)
        majors = product.a_major, product.b_major
        sharing = 1 if self.kernel_schedule == "ping_pong" else self.consumers
        return [
            (self.rows and self.rows % 64 == 0, "the rows of the tile", f"a multiple of {64 * sharing}", self.tile_m),
            (product.b_major == "K" or self.tile_n % 16 == 0, "an MN-major B is read 32 bytes of columns at a time",
             "a multiple of 16", self.tile_n),
            (not self.tile_k or majors == ("MN", "MN"),
             "stages of less than 128 bytes of k are for operands that are both MN-major",
             "tile_k 0, or 16 or 32 of them", (self.tile_k, *majors)),
            (not self.split_tail or not self.tile_k, "the split tail exchanges sums in a ring of whole stages",
             "tile_k 0", self.tile_k),
            (self.kernel_schedule != "staggered" or self.rows == 128,
             "a staggered consumer has two blocks of 64 rows", "128 rows per consumer", self.rows),
            (product.a.is_float or self.tile_n <= 32 or self.tile_n % 16 == 0,
             "an integer wgmma has no such number of columns", "8, 16, 24, or a multiple of 16", self.tile_n),
            (not self.constant_weights or (self.ctas == 1 and self.pdl),
             "constant weights are loaded early only by unclustered CTAs with dependent launch", "ctas 1 and pdl",
             (self.ctas, self.pdl)),
            (not self.split_tail or (self.kernel_schedule != "ping_pong" and pair == (2, 2)),
             "the split tail needs two CTAs of two consumers that share a tile", "2 CTAs, 2 consumers",
             (self.kernel_schedule, *pair)),
            (self.kernel_schedule != "ping_pong" or self.consumers == 2, "ping-pong needs exactly two consumers",
             "2 consumers", self.consumers),
            (shared_rows % (8 * self.ctas) == 0,
             "the multicast operand is split into slices of 8 rows", f"a multiple of {8 * self.ctas}", shared_rows),
            (self.accumulators <= most, "the accumulators do not fit the registers", f"at most {most} per thread",
             self.accumulators),
            (size <= SHARED_BYTES, "its shared memory", f"at most {SHARED_BYTES} bytes", size),
            (fits(self.tile_n, product.out), "a row of its tile is stored in units of 16 bytes",
             f"a multiple of {16 // product.out.bytes}", self.tile_n),
            ("MN" not in majors or product.a.bits == 16, "eight-bit and tf32 operands must be K-major", "K", majors),
        ]  # fmt: skip


__all__ = ["ACTIVATIONS", "KERNEL_SCHEDULES", "SCALES", "TILE_K_BYTES", "Config", "Fusion", "Product"]
