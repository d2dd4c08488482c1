"""The configuration of a small-M product, and its choice for a problem.

The rule of `choose` follows from measurements on an H200 with a first version of these kernels. With one CTA per SM and
all its shared memory in flight as stages, weights are read at nine tenths of the read ceiling. K is split in two if
there are fewer tiles than SMs. Wider tiles pay if there are many tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...collective.tile.sizes import TRANSPOSED_BYTES, WARPGROUP_ROWS, exchange_bytes
from ...errors import ArgumentError
from ...isa.dtypes import DType, bf16, f16, f32
from ...isa.instructions.wgmma import FLOAT_N
from ..fields import Numbers, ProductConfiguration, Requirement
from .description import TILE_K_BYTES, Fusion, Product, along_k, few_row_operands, shared_capacity

OUTPUTS: tuple[DType, ...] = (bf16, f16, f32)
MOST_TOKENS = 256
BARRIER_BYTES = 512
"""Bytes of barriers and flags, at most, for any number of stages."""
TRIGGERS = ("off", "start")
SPLITS = ("cluster", "last", "stream")
MOST_STAGES = 24
MOST_SPLIT = 64
"""Splits of K that a workspace supports; each is a copy of D in f32."""
MOST_SCALED_TOKENS = 192
"""Tokens, at most, of 128 rows with scales of rows: the scales are loaded before the products and stay in registers.
This is what ptxas 13.0 fits into the registers of three warpgroups without a spill."""
FEW_TOKENS = 32
"""Tokens up to which a stage is little more than its weights, and D is small enough to be stored by elements."""
PREFETCHED = 6
"""Stages of weights prefetched into L2 before the dependency; more cost time (measured on an H200)."""
LEAST_STAGES = 4
"""Stages of each split, at least, if K is split into many."""
MOST_IN_CLUSTER = 4
"""Splits of K in a cluster if there are many tiles. Short CTAs start and finish more evenly (measured: 3 to 5 % at
N = 28672), and larger clusters leave SMs idle."""
MOST_PARTS = 8
"""Splits of K with few tokens; half as many with more, because the last CTA to arrive reads the sums of all."""


@dataclass(frozen=True)
class SmallMConfig(ProductConfiguration):
    """How D = A Wᵀ with few rows of A is computed.

    Attributes:
    tokens: rows of A per CTA, the n of its wgmmas: a multiple of 8, at most 256. A larger M takes several CTAs.
    rows: rows of W per CTA: 64 per consumer; 64 or 128.
    k_tiles: k-tiles of 128 bytes per stage: 1, 2 or 4.
    stages: stages of the ring.
    split_k: splits of K, one per CTA.
    split_by: how the partial sums are added. "cluster": the CTAs of a cluster each add some of the tokens, which
        the others send. "last": the last CTA to arrive adds them, from a workspace in global memory. "stream": as
        "last", but all tiles together are divided into one piece per CTA (stream-K), and `split_k` is 1.
    ctas_per_sm: CTAs that must fit on an SM, 1 to 4. Those of the next kernel count too.
    trigger: "off": an ordinary launch. "start": programmatic dependent launch: the kernel starts while the previous
        one in the stream ends, and lets the next one start at its own start.
    constant_weights: the caller's promise that no running kernel writes the weights: they are loaded before the
        previous kernel has completed.
    prefetch: without that promise, the number of stages whose weights are prefetched into L2; 0 for none.
    vector_store: D is stored 16 bytes at a time; needs 16-bit elements and N a multiple of 8. Pays if there are
            many tokens.
    """

    family: ClassVar[str] = "small_m"
    former: ClassVar[Mapping[str, str]] = {"split": "split_k", "wide": "vector_store"}
    numbers: ClassVar[Mapping[str, Numbers]] = {
        "tokens": FLOAT_N, "rows": (64, 128), "k_tiles": (1, 2, 4), "stages": 2, "split_k": range(1, MOST_SPLIT + 1),
        "ctas_per_sm": (1, 2, 3, 4), "prefetch": 0,
    }  # fmt: skip
    words: ClassVar[Mapping[str, Sequence[str]]] = {"split_by": SPLITS, "trigger": TRIGGERS}
    tokens: int = 16
    rows: int = 64
    k_tiles: int = 2
    stages: int = 6
    split_k: int = 1
    split_by: str = "cluster"
    ctas_per_sm: int = 1
    trigger: str = "start"
    constant_weights: bool = False
    prefetch: int = 0
    vector_store: bool = False

    @property
    def consumers(self) -> int:
        """Consumer warpgroups."""
        return self.rows // WARPGROUP_ROWS

    @property
    def threads(self) -> int:
        """Threads of a CTA: the consumer warpgroups and the producer's warp."""
        return 128 * self.consumers + 32

    @property
    def pdl(self) -> bool:
        """True if launched with programmatic stream serialisation."""
        return self.trigger != "off"

    @property
    def clustered(self) -> bool:
        """True if the splits of K are the CTAs of a cluster."""
        return self.split_k > 1 and self.split_by == "cluster"

    @property
    def by_last(self) -> bool:
        """True if the splits of K meet in a workspace."""
        return self.split_k > 1 and self.split_by == "last"

    @property
    def streamed(self) -> bool:
        """True if the tiles form one sequence of stages, of which each CTA has a piece."""
        return self.split_by == "stream"

    @property
    def shared_workspace(self) -> bool:
        """True if a call takes a workspace and counters."""
        return self.by_last or self.streamed

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: the weights' and the activations' tile."""
        return (self.rows + self.tokens) * self.k_tiles * TILE_K_BYTES

    @property
    def exchange_bytes(self) -> int:
        """Bytes of shared memory into which the other CTAs of a cluster send their partial sums."""
        return exchange_bytes(self.tokens // 2, self.split_k if self.clustered else 1, self.consumers)

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at a time."""
        return self.tokens, self.rows

    def shared_bytes(self, *of: object) -> int:
        """Bytes of shared memory per CTA, barriers rounded up, independent of the product."""
        return self.stages * self.stage_bytes + self._fixed_bytes

    @property
    def _fixed_bytes(self) -> int:
        """Bytes of everything but the stages."""
        turned = TRANSPOSED_BYTES * self.consumers if self.vector_store and self.streamed else 0
        return self.exchange_bytes + turned + BARRIER_BYTES

    def tiles(self, m: int, n: int) -> int:
        """The number of tiles of D."""
        return -(-m // self.tokens) * -(-n // self.rows)

    def ctas(self, n: int, sms: int) -> int:
        """CTAs along grid x."""
        tiles = -(-n // self.rows)
        return min(sms * self.ctas_per_sm, tiles * 4) if self.streamed else tiles * self.split_k

    def workspace(self, m: int, n: int, sms: int) -> tuple[tuple[int, int], int]:
        """The memory that "last" and "stream" require from the caller: the shape of an f32 workspace, whatever it
        contains, and the number of u32 counters, initially zero."""
        tiles = self.tiles(m, n)
        blocks = 2 * self.ctas(n, sms) * -(-m // self.tokens) if self.streamed else tiles * self.split_k
        return (blocks * self.consumers, WARPGROUP_ROWS * self.tokens), tiles * self.consumers

    def filled(self) -> SmallMConfig:
        """This configuration with as many stages as shared memory holds."""
        room = shared_capacity(self.ctas_per_sm) - self._fixed_bytes
        return replace(self, stages=max(1, min(MOST_STAGES, room // self.stage_bytes)))

    def fits_registers(self, product: Product, fusion: Fusion | None = None) -> bool:
        """True if ptxas is known not to spill with this epilogue."""
        return self.consumers == 1 or fusion is None or fusion.scales != "row" or self.tokens <= MOST_SCALED_TOKENS

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        room, most = shared_capacity(self.ctas_per_sm), min(8, self.tokens // 2)
        return [
            (not self.clustered or self.split_k <= most, "the splits of K", f"in a cluster at most {most}",
             self.split_k),
            (not self.streamed or self.split_k == 1, "the splits of K", '1 with split_by="stream"', self.split_k),
            *few_row_operands(product),
            along_k(product),
            (not self.vector_store or product.out.bits == 16, "wide stores", "an output of 16 bits", product.out),
            (product.out in OUTPUTS, "the output type", ", ".join(map(str, OUTPUTS)), product.out),
            (self.shared_bytes() <= room, "the shared memory", f"at most {room} bytes", self.shared_bytes()),
        ]  # fmt: skip


def check_workspace(config: Any, dims: Mapping[str, int], sms: int) -> None:
    """Raise ArgumentError if a configuration's splits of K meet in a workspace, and a call's is too small."""
    if not config.shared_workspace:
        return
    (blocks, _), counters = config.workspace(dims["M"], dims["N"], sms)
    for what, needed in (("blocks", blocks), ("places", counters)):
        if dims[what] < needed:
            raise ArgumentError(
                f"the {'workspace' if what == 'blocks' else 'counters'} of {config.name()} are too few",
                expected=f"at least {needed} for M = {dims['M']}, N = {dims['N']} ({type(config).__name__}.workspace)",
                got=dims[what],
            )


@dataclass(frozen=True)
class SmallMGrid:
    """The grid rule: one CTA per tile and split of K; if tiles are streamed, as many as the GPU holds."""

    product: Product
    config: SmallMConfig

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z. Raises ArgumentError for a workspace that is too small, or too many stages."""
        config, m, n = self.config, dims["M"], dims["N"]
        check_workspace(config, dims, machine.sms)
        ctas = config.ctas(n, machine.sms)
        stages = -(-dims["K"] // (config.k_tiles * self.product.tile_k)) * -(-n // config.rows)
        if config.streamed and stages * ctas >= 1 << 32:
            raise ArgumentError(
                f"{config.name()} counts its stages in 32 bits",
                expected="fewer than 2^32 stages times CTAs",
                got=stages * ctas,
                hint='use another split_by than "stream" for weights of this size',
            )
        return (ctas, -(-m // config.tokens), 1)


def choose(
    m: int, n: int, k: int, sms: int, product: Product = Product(), *,  # noqa: B008 - frozen
    constant_weights: bool = False,
) -> SmallMConfig:  # fmt: skip
    """The configuration for a problem, by a rule.

    All of shared memory is in flight, as the stages of one or two CTAs per SM. With few tokens (up to 32), by the
    number of tiles of 64 rows of weights:

        at most half as many as SMs     K in two splits, or in more if the tiles are fewer still
        at most as many as SMs          K in two splits, two CTAs per SM
        more                            K in four splits, two CTAs per SM

    With more tokens, each of two CTAs has too few stages, and every tile loads its own copy of the tokens. The tiles
    are then 128 rows if these suffice for all SMs, otherwise 64 rows as above with one CTA per SM.

    Args:
    m, n, k: sizes of D and of the sum.
    sms: SMs.
    constant_weights: the caller's promise (see `SmallMConfig`). Without it, the first weights are only prefetched
        into L2 before the previous kernel has completed, and only if the launch is one wave.
    """
    tokens = min(-(-m // 8) * 8, MOST_TOKENS if m > 128 else 128)
    few, across = tokens <= FEW_TOKENS, -(-m // tokens)
    tiles = -(-n // WARPGROUP_ROWS) * across
    rows, per_sm, split, split_by = WARPGROUP_ROWS, 1, 1, "cluster"
    k_tiles = 2 if tokens <= 64 else 1
    depth = max(1, -(-k // (k_tiles * product.tile_k)) // LEAST_STAGES)
    if tiles <= sms // 2:
        split = max(1, min(sms // tiles, depth, MOST_PARTS if few else MOST_PARTS // 2))
        split_by = "cluster" if split == 2 else "last"
    elif few:
        split, per_sm = min(depth, 2 if tiles <= sms else MOST_IN_CLUSTER), 2
    elif -(-n // 128) * across >= sms * 0.95:
        rows, k_tiles = 128, 1
    elif tokens > 64 and product.a.bits == 16 and tiles <= sms:
        rows, split = 128, 2
    config = SmallMConfig(
        tokens=tokens, rows=rows, k_tiles=k_tiles, split_k=split, split_by=split_by, ctas_per_sm=per_sm,
        trigger="start", constant_weights=constant_weights, prefetch=PREFETCHED if tiles <= sms else 0,
        vector_store=not few and n % 8 == 0 and product.out.bits == 16,
    )  # fmt: skip
    return config.filled()
