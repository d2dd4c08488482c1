"""How a small-M product is computed, and which way is chosen for a problem.

The rule of `choose` rests on facts measured on an H200 with a first version of these kernels: with one CTA on each
multiprocessor and all its shared memory in flight as stages, weights are read at nine tenths of the read ceiling; K is
split in two where there are not enough tiles for all multiprocessors; wider tiles pay where tokens are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...collective.tile.sizes import TRANSPOSED_BYTES, exchange_width, owned
from ...errors import ArgumentError
from ...isa.dtypes import DType, bf16, e4m3, e5m2, f16, f32
from ...isa.instructions.wgmma import FLOAT_N
from .description import SHARED_BYTES, TILE_K_BYTES, Fusion, Product
from .fields import Configuration, check_fields

OPERANDS: tuple[DType, ...] = (bf16, f16, e4m3, e5m2)
OUTPUTS: tuple[DType, ...] = (bf16, f16, f32)
GROUP_ROWS = 64
"""Rows of weights of one consumer: those of a wgmma."""
MOST_TOKENS = 256
SHARED_OF_SM = 228 << 10
"""Shared memory of a multiprocessor of sm_90; each CTA on it takes 1 KiB for itself."""
RESERVED = 1 << 10
BARRIER_BYTES = 512
"""What barriers and flags take at most, whatever the number of stages."""
TRIGGERS = ("off", "end", "start", "loads")
SPLITS = ("cluster", "last", "stream")
MOST_STAGES = 24
MOST_SPLIT = 64
"""Parts of K that a workspace is made for; each is a copy of D in f32."""
_NUMBERS = dict.fromkeys(("tokens", "rows", "k_tiles", "stages", "split", "ctas_per_sm"), 1) | {"prefetch": 0}
FEW_TOKENS = 32
"""Tokens up to which a stage is little more than its weights, and D little enough to be stored by elements."""
PREFETCHED = 6
"""Stages of weights brought into L2 ahead of the dependency; more cost time (measured on an H200)."""
LEAST_STAGES = 4
"""Of each part where K is cut into many."""
MOST_IN_CLUSTER = 4
"""Parts of K in a cluster where there are many tiles: short CTAs leave and come more smoothly (measured: 3 to 5 % at
N = 28672), and larger clusters leave multiprocessors without work."""
MOST_PARTS = 8
"""With few tokens; half as many with more, for the last to arrive reads the sums of all."""


@dataclass(frozen=True)
class SmallMConfig(Configuration):
    """How D = A Wᵀ with few rows of A is computed.

    Attributes:
        tokens: rows of A of a CTA, the n of its wgmmas: a multiple of 8 to 256. Larger M takes several.
        rows: rows of W of a CTA: 64 for each consumer; 64 or 128.
        k_tiles: pieces of 128 bytes of k in one stage: 1, 2 or 4.
        stages: of the ring.
        split: parts of K, each a CTA's.
        split_by: who adds the parts up. "cluster": the CTAs of a cluster, each some of the tokens, which the others
            send it. "last": the last of them to arrive, from a workspace in global memory. "stream": as "last", but
            all tiles together are cut into as many pieces as there are CTAs (stream-K), and `split` is 1.
        ctas_per_sm: how many CTAs are to fit a multiprocessor, 1 to 4. Those of the next kernel count too.
        trigger: "off": an ordinary launch. Else the kernel starts while the one before it in the stream ends
            (programmatic dependent launch), and lets the next one start when it "start"s, after its last "loads", or
            when it "end"s.
        constant_weights: the caller's promise that no kernel still running writes the weights: they are loaded before
            the kernel before this one has ended.
        prefetch: without that promise, the stages whose weights are brought into L2 instead; 0 for none.
        wide: D is stored 16 bytes at a time: it has 16-bit elements, and N is a multiple of 8. Pays if tokens are many.
    """

    family: ClassVar[str] = "small_m"
    tokens: int = 16
    rows: int = 64
    k_tiles: int = 2
    stages: int = 6
    split: int = 1
    split_by: str = "cluster"
    ctas_per_sm: int = 1
    trigger: str = "start"
    constant_weights: bool = False
    prefetch: int = 0
    wide: bool = False

    @property
    def groups(self) -> int:
        """Consumer warpgroups."""
        return self.rows // GROUP_ROWS

    @property
    def threads(self) -> int:
        """The consumers' warpgroups and the producer's warp."""
        return 128 * self.groups + 32

    @property
    def pdl(self) -> bool:
        """Launched with programmatic stream serialisation."""
        return self.trigger != "off"

    @property
    def clustered(self) -> bool:
        """The parts of K are CTAs of a cluster."""
        return self.split > 1 and self.split_by == "cluster"

    @property
    def by_last(self) -> bool:
        """The parts of K meet in a workspace."""
        return self.split > 1 and self.split_by == "last"

    @property
    def streamed(self) -> bool:
        """The tiles are one long row of stages, of which each CTA has a piece."""
        return self.split_by == "stream"

    @property
    def shared_workspace(self) -> bool:
        """A call takes a workspace and counters."""
        return self.by_last or self.streamed

    @property
    def stage_bytes(self) -> int:
        """Of the weights' and the activations' tile of one stage."""
        return (self.rows + self.tokens) * self.k_tiles * TILE_K_BYTES

    @property
    def exchange_bytes(self) -> int:
        """Shared memory into which the other CTAs of a cluster send their sums."""
        if not self.clustered:
            return 0
        width = exchange_width(self.tokens // 2, self.split)
        pieces = self.tokens // 2 // width
        most = max(len(owned(pieces, self.split, rank)) for rank in range(self.split))
        return (self.split - 1) * most * width * 4 * 128 * self.groups

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at one time."""
        return self.tokens, self.rows

    def shared_bytes(self, *of: object) -> int:
        """Bytes of shared memory of a CTA, barriers rounded up, whatever the product."""
        return self.stages * self.stage_bytes + self._fixed_bytes

    @property
    def _fixed_bytes(self) -> int:
        """All but the stages."""
        turned = TRANSPOSED_BYTES * self.groups if self.wide and self.streamed else 0
        return self.exchange_bytes + turned + BARRIER_BYTES

    def tiles(self, m: int, n: int) -> int:
        """Tiles of D."""
        return -(-m // self.tokens) * -(-n // self.rows)

    def ctas(self, n: int, sms: int) -> int:
        """CTAs along grid x."""
        tiles = -(-n // self.rows)
        return min(sms * self.ctas_per_sm, tiles * 4) if self.streamed else tiles * self.split

    def workspace(self, m: int, n: int, sms: int) -> tuple[tuple[int, int], int]:
        """What "last" and "stream" need of the caller: the shape of an f32 workspace, whatever it contains, and how
        many u32 counters, at first zero."""
        tiles = self.tiles(m, n)
        blocks = 2 * self.ctas(n, sms) * -(-m // self.tokens) if self.streamed else tiles * self.split
        return (blocks * self.groups, GROUP_ROWS * self.tokens), tiles * self.groups

    def filled(self) -> SmallMConfig:
        """The same with as many stages as shared memory holds."""
        room = min(SHARED_BYTES, SHARED_OF_SM // self.ctas_per_sm - RESERVED) - self._fixed_bytes
        return replace(self, stages=max(1, min(MOST_STAGES, room // self.stage_bytes)))

    def fits_registers(self, product: Product, fusion: Fusion | None = None) -> bool:
        """Always: its accumulators are few enough for any end that it has."""
        return True

    def check(self, product: Product, fusion: Fusion | None = None) -> None:
        """Raise ArgumentError where no kernel can be built from this."""
        check_fields(self, _NUMBERS, ("constant_weights", "wide"), {"split_by": SPLITS, "trigger": TRIGGERS})
        problem = self._problem(product, fusion)
        if problem is not None:
            what, expected, got = problem
            raise ArgumentError(f"the small-M configuration {self.name()} cannot be built: {what}", expected=expected,
                                got=got, code="configuration")  # fmt: skip

    def _problem(self, product: Product, fusion: Fusion | None = None) -> tuple[str, str, object] | None:
        room = min(SHARED_BYTES, SHARED_OF_SM // self.ctas_per_sm - RESERVED)
        checks: list[tuple[bool, str, str, object]] = [
            (self.tokens in FLOAT_N, "its tokens", "a multiple of 8 to 256",
             self.tokens),
            (self.rows in (64, 128), "its rows of weights", "64 or 128", self.rows),
            (self.k_tiles in (1, 2, 4), "its pieces of k in a stage", "1, 2 or 4", self.k_tiles),
            (self.prefetch >= 0, "what it prefetches", "a number of stages", self.prefetch),
            (self.stages >= 2, "its ring", "at least 2 stages", self.stages),
            (self.split >= 1 and (not self.clustered or self.split <= min(8, self.tokens // 2)), "its parts of K",
             f"at least 1, in a cluster at most {min(8, self.tokens // 2)}", self.split),
            (self.split <= MOST_SPLIT, "its parts of K", f"at most {MOST_SPLIT}", self.split),
            (not self.streamed or self.split == 1, "its parts of K", "1 where tiles are streamed", self.split),
            (self.split_by in SPLITS, "how its parts are added up", " or ".join(SPLITS), self.split_by),
            (self.ctas_per_sm in (1, 2, 3, 4), "its CTAs on a multiprocessor", "1 to 4", self.ctas_per_sm),
            (self.trigger in TRIGGERS, "its trigger", ", ".join(TRIGGERS), self.trigger),
            (product.a in OPERANDS and product.b in OPERANDS, "its operands", ", ".join(map(str, OPERANDS)),
             (str(product.a), str(product.b))),
            (product.a == product.b or product.a.bits == product.b.bits == 8, "its operands",
             "one type, or two of eight bits", (str(product.a), str(product.b))),
            (not self.wide or product.out.bits == 16, "its wide stores", "an output of 16 bits", str(product.out)),
            (product.out in OUTPUTS, "its output", ", ".join(map(str, OUTPUTS)), str(product.out)),
            ((product.a_major, product.b_major) == ("K", "K"), "its layouts", "both operands contiguous in k",
             (product.a_major, product.b_major)),
            (self.shared_bytes() <= room, "its shared memory", f"at most {room} bytes", self.shared_bytes()),
        ]  # fmt: skip
        return next(((what, expected, got) for right, what, expected, got in checks if not right), None)


@dataclass(frozen=True)
class SmallMGrid:
    """The grid rule: one CTA for each tile and part of K; where tiles are streamed, as many as the machine holds."""

    product: Product
    config: SmallMConfig

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z. Raises ArgumentError for a workspace that is too small, or too many stages."""
        config, m, n = self.config, dims["M"], dims["N"]
        if config.shared_workspace:
            (blocks, _), counters = config.workspace(m, n, machine.sms)
            for what, needed in (("blocks", blocks), ("places", counters)):
                if dims[what] < needed:
                    raise ArgumentError(
                        f"the {'workspace' if what == 'blocks' else 'counters'} of {config.name()} are too few",
                        expected=f"at least {needed} for M = {m}, N = {n} (SmallMConfig.workspace)",
                        got=dims[what],
                    )
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

    All of shared memory is in flight, as the stages of one CTA on each multiprocessor or of two. By tiles of 64 rows of
    weights, with few tokens (up to 32):

        no more than half as many as multiprocessors   K in two parts, or, where they are fewer still, in more
        no more than multiprocessors                   K in two parts, two CTAs on each multiprocessor
        more                                           K in four parts, two CTAs on each multiprocessor

    With more tokens, two CTAs have too few stages each, and every tile brings its own copy of the tokens: tiles of 128
    rows where these are enough for all multiprocessors, else 64 rows as above with one CTA on each.

    Args:
        m, n, k: sizes of D and of the sum.
        sms: multiprocessors.
        constant_weights: the caller's promise (see `SmallMConfig`); without it the first weights are only brought
            into L2 before the kernel in front has ended, and that where the launch is one wave.
    """
    tokens = min(-(-m // 8) * 8, MOST_TOKENS if m > 128 else 128)
    few, across = tokens <= FEW_TOKENS, -(-m // tokens)
    tiles = -(-n // GROUP_ROWS) * across
    rows, per_sm, split, split_by = GROUP_ROWS, 1, 1, "cluster"
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
        tokens=tokens, rows=rows, k_tiles=k_tiles, split=split, split_by=split_by, ctas_per_sm=per_sm,
        trigger="start", constant_weights=constant_weights, prefetch=PREFETCHED if tiles <= sms else 0,
        wide=not few and n % 8 == 0 and product.out.bits == 16,
    )  # fmt: skip
    return config.filled()
