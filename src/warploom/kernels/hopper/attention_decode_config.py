"""The problem a decode kernel solves (`Decode`) and its tiling (`DecodeConfig`), with their memory use.

The tiling maximises bytes in flight: a stage is a tile of keys and its values, and all shared memory is stages
(100 KiB of them reach the rate of memory: benchmarks/results/nvidia-h200/few-rows.json has the same kernel shape for
weights). A warp multiplies 16 rows by 16 keys of each tile with mma.sync, which takes a fraction of the time in which
a tile arrives. No warp waits for another before the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ...errors import ArgumentError
from ...isa.arch import get
from ...isa.dtypes import DType, bf16, e4m3, f16
from ...isa.launch import registers_for
from ..fields import Configuration, check_fields
from .attention_config import RESERVE_BYTES, Padded
from .description import SHARED_BYTES

ROWS = 16
"""Rows per warp: m of mma.sync."""
WARP_KEYS = 16
"""Keys of a tile that one warp multiplies: k of the second product."""
MOST_ROWS = 16
"""Most queries per sequence in one call."""
EXCHANGE_STEP = 32
"""Columns are exchanged in multiples of this, so that the padding between rows avoids bank conflicts."""
MOST_STAGES = 12
MOST_PRODUCER_WARPS = 4
FEW_TOKENS = 4096
"""Keys per multiprocessor up to which 2 stages are faster: prologue and epilogue cost more than the lower rate."""
FEW_PAGED_TOKENS = 512
"""`FEW_TOKENS` for pages and for CTAs of two blocks, where no larger number was timed."""
PAGED_BYTES = 96 * 1024
"""Bytes of paged tiles in flight: with more, copies of parts of pages wait for each other."""
CLUSTER_TILES = {8: 8, 4: 8, 2: 16}
"""By CTAs of a cluster, most tiles of a CTA for which a cluster per key head is faster than equal shares of all. The
first that fits is taken."""
PREFETCH, FEW_PREFETCH, FEW_PREFETCH_TOKENS = 5, 3, 2048
"""Tiles that a CTA prefetches before the previous kernel has ended, and fewer for up to that many keys per
multiprocessor (attention-fields-decode.json). Pages of 8-bit keys were not timed with any."""
SPREAD = 4
"""Tiles from one prefetched tile to the next."""
HEAD_ALIGNED_BYTES = 3 << 20
"""Bytes of keys and values per multiprocessor up to which `head_aligned` is faster: fewer parts of heads are exchanged,
but 4 of 132 multiprocessors may have no share, with which the rest reads 1 % slower (attention-decode-shares.json)."""
FEW_ROWS = 4
"""Rows up to which the exchange between warps is so small that two CTAs with three stages each fit a multiprocessor."""
MORE_PRODUCER_WARPS = 8
"""Producer warps used if lanes of `MOST_PRODUCER_WARPS` warps would start more than one copy of a tile each."""


@dataclass(frozen=True)
class Decode(Padded):
    """The properties compiled into a kernel; lengths, strides and scalars are run-time arguments.

    Attributes:
        dtype: type of Q, K, V, P and O: bf16 or f16.
        head_dim: columns of Q and K.
        value_dim: columns of V and O.
        paged: K and V are pages, and a table lists each sequence's pages.
        fp8_kv: K and V are e4m3 and are converted to f16 for the products; Q and P are f16.
        scaled: each sequence and key head has a factor for K and one for V; else V has one factor for all.
        window_left: keys before a window of the newest keys are masked.
        softcap: scores s become cap tanh(s / cap).
        sinks: each head has one more score, which is added to every row's sum and has no value.
    """

    dtype: DType = bf16
    head_dim: int = 128
    value_dim: int = 128
    paged: bool = False
    fp8_kv: bool = False
    scaled: bool = False
    window_left: bool = False
    softcap: bool = False
    sinks: bool = False

    @property
    def kv_dtype(self) -> DType:
        return e4m3 if self.fp8_kv else self.dtype

    @property
    def mma_dtype(self) -> DType:
        """The type of all operands of the products."""
        return f16 if self.fp8_kv else self.dtype

    @property
    def panels(self) -> int:
        """Panels of a tile of keys and a tile of values together; each panel is a separate copy."""
        return (self.key_columns + self.value_columns) // self.panel

    @property
    def padding(self) -> int:
        """Padding columns between rows of the exchange, so that different rows are in different banks: four rows at a
        time with 8 bytes per thread, or two rows with 16 bytes."""
        return 16 if self.fp8_kv else 8


@dataclass(frozen=True)
class DecodeConfig(Configuration):
    """The tiling of a decode kernel.

    Attributes:
        row_blocks: blocks of 16 rows per CTA: 1 or 2. Rows are the queries of all heads that share a key head. If there
            are more, other CTAs read the same keys.
        tile_n: keys per tile.
        copy_rows: keys per TMA copy: a part of a page that divides pages and tiles; `tile_n` without pages.
        stages: stages of the ring.
        value_steps: 32-byte steps of each value that a warp holds in registers at a time.
        pdl: the kernel starts while the previous kernel in the stream finishes.
        early_prologue: barriers are initialised and tensor maps prefetched before the previous kernel has ended.
        prefetch_page_index: a page's number is read while the previous tile is still in flight.
        producer_warps: several, since the lanes of one warp start their copies one after the other. They divide a
            tile's panels among them, or its keys if there are fewer panels than warps.
        min_tiles_per_cta: if there are few tiles, a CTA gets this many before another gets any, so fewer CTAs share a
            head.
        splits_per_read: splits (parts of other CTAs) that are read at a time when they are combined.
        exchange_columns: columns of O that the warps exchange at a time.
        ctas_per_sm: CTAs per multiprocessor that the registers must allow: with 2, the next kernel's CTA can start
            during this one's epilogue, if shared memory allows.
        cluster: CTAs that share a key head as a cluster and combine their parts in shared memory; a head on more tiles
            than CTAs gives each several. 0: all CTAs share all tiles equally, and combine in global memory.
        prefetch: tiles that a CTA prefetches into L2 before the previous kernel has ended, by lengths that may be
            old; 0: none, or with `constant_lengths` a ring's worth.
        head_aligned: shares of tiles begin where heads do, if all sequences have the same length and few CTAs are left
            without a share (`attention_decode_work`).
        used_rows: rows of a block that exist at most.
        constant_lengths: the caller guarantees that the previous kernel does not write `lengths` and `table`. They are
            then read before it has ended, and some tiles prefetched into L2; K, V and Q are read after it.
    """

    row_blocks: int = 1
    tile_n: int = 64
    copy_rows: int = 64
    stages: int = 6
    value_steps: int = 8
    pdl: bool = True
    early_prologue: bool = False
    prefetch_page_index: bool = False
    producer_warps: int = 1
    min_tiles_per_cta: int = 1
    splits_per_read: int = 8
    exchange_columns: int = 64
    ctas_per_sm: int = 1
    cluster: int = 0
    prefetch: int = 0
    head_aligned: bool = False
    used_rows: int = ROWS
    constant_lengths: bool = False

    family: ClassVar[str] = "attention_decode"
    former: ClassVar[Mapping[str, str]] = {
        "blocks": "row_blocks", "keys": "tile_n", "early": "early_prologue", "ahead": "prefetch_page_index",
        "loaders": "producer_warps", "several": "min_tiles_per_cta", "together": "splits_per_read",
        "exchanged": "exchange_columns", "residents": "ctas_per_sm", "prefetched": "prefetch",
        "aligned": "head_aligned",
    }  # fmt: skip

    def check(self, page: int | None = None, of: Decode | None = None, rows: int = 1) -> None:
        """Raise ArgumentError if no kernel can be built, if it cannot read pages of `page` keys, if its producer
        warps cannot divide the panels of `of` evenly, or if a key head has more rows than the exchange."""
        check_fields(self, {"tile_n": WARP_KEYS, "cluster": 0, "prefetch": 0})
        odd = self.tile_n % WARP_KEYS or self.exchange_columns % EXCHANGE_STEP
        odd = odd or self.used_rows > ROWS or (self.row_blocks > 1 and self.used_rows < ROWS)
        if odd or self.tile_n % self.copy_rows or (page and page % self.copy_rows):
            raise ArgumentError(
                "this configuration of attention_decode cannot be built",
                expected=f"tile_n in multiples of {WARP_KEYS}, exchange_columns in multiples of {EXCHANGE_STEP}; "
                "copy_rows that divide tile_n and pages",
                got=self.name() + (f", pages of {page}" if page else ""), code="configuration"
            )  # fmt: skip
        if min(rows, ROWS) > self.used_rows:
            raise ArgumentError(
                "the warps exchange fewer rows than a key head has", expected=f"used_rows={min(rows, ROWS)} or more",
                got=self.name(), consequence="the other rows would be lost", code="configuration",
            )  # fmt: skip
        if of is not None and not self.clusters(of):
            raise ArgumentError(
                "a cluster's CTAs must divide the columns of O evenly, four at a time",
                expected=f"2, 4, 8 or 16 CTAs for {of.value_dim} columns", got=self.cluster, code="configuration",
            )  # fmt: skip
        if of is not None and not self.shared_evenly(of):
            panels = of.panels
            raise ArgumentError(
                "producer warps must divide a tile evenly",
                expected=f"up to {panels} producer_warps, or {panels} times a divisor of {self.copies}",
                got=self.producer_warps,
            )  # fmt: skip

    def shared_evenly(self, of: Decode) -> bool:
        """True if the producer warps divide a tile evenly: its panels, or the keys of each panel."""
        alone = self.producer_warps % of.panels == 0 and self.copies * of.panels % self.producer_warps == 0
        return self.producer_warps <= of.panels or alone

    def clusters(self, of: Decode) -> bool:
        """True if there is no cluster, or one whose CTAs divide the columns of O evenly."""
        return self.cluster in (0, 2, 4, 8, 16) and of.value_dim % (4 * max(1, self.cluster)) == 0

    @property
    def tile_m(self) -> int:
        """Rows per CTA."""
        return ROWS * self.row_blocks

    @property
    def slices(self) -> int:
        """Warps that share a tile's keys."""
        return self.tile_n // WARP_KEYS

    @property
    def warps(self) -> int:
        """Consumer warps."""
        return self.slices * self.row_blocks

    @property
    def promised(self) -> bool:
        """True if the kernel reads the lengths before the previous kernel has ended."""
        return self.pdl and self.constant_lengths

    @property
    def provisional(self) -> bool:
        """True if the kernel prefetches by lengths that may be old."""
        return self.pdl and bool(self.prefetch) and not (self.constant_lengths or self.cluster)

    @property
    def threads(self) -> int:
        """Threads per CTA: consumers and producer warps."""
        return 32 * (self.warps + self.producer_warps)

    @property
    def registers(self) -> int:
        """Most registers per thread."""
        return registers_for(get("sm_90a"), self.threads, self.ctas_per_sm)

    @property
    def copies(self) -> int:
        """Copies per tile of keys, each from its own place in memory."""
        return self.tile_n // self.copy_rows

    def exchange_bytes(self, of: Decode) -> int:
        """Bytes of shared memory for the exchange between warps: `exchange_columns` of O, and the logarithms."""
        received = self.tile_m * (of.columns + self.cluster) if self.cluster else 0
        return (self.warps * self.used_rows * (self.exchange_columns + of.padding + 1) + received) * 4

    def tile_bytes(self, of: Decode) -> int:
        """Bytes of a tile of keys and its values."""
        return self.tile_n * (of.key_columns + of.value_columns) * of.kv_dtype.bytes

    def shared_bytes(self, of: Decode) -> int:
        """Bytes of shared memory for the tiles and the exchange."""
        return self.stages * self.tile_bytes(of) + self.exchange_bytes(of)

    def block_elements(self, of: Decode) -> int:
        """f32 elements of a CTA's part in global memory: O, then the logarithms."""
        return self.tile_m * (of.columns + 1)


def decode_config(of: Decode, rows: int, page: int | None = None, tokens: int | None = None) -> DecodeConfig:
    """The configuration that was fastest on an H200, with as many stages as fit.

    benchmarks/results/nvidia-h200/attention-decode-candidates.json and attention-fields-decode.json have the times.
    Cases that were not timed (head dimensions above 128, two blocks, more pages) use a simpler rule.

    rows: rows per key head. page: keys per page. tokens: keys that a multiprocessor reads, over all heads and
    sequences, estimated from their capacity; None: many.
    """
    widest = max(of.depth, of.columns)
    blocks = 1 if rows <= ROWS or widest > 128 else 2
    timed = widest <= 128 and blocks == 1
    small = of.fp8_kv or (widest <= 64 and page is None)
    keys = 128 if small and timed else 64  # small tiles arrive in half the time: use more warps
    copy_rows = keys if page is None else math.gcd(page, keys)
    chosen = DecodeConfig(
        row_blocks=blocks, tile_n=keys, copy_rows=copy_rows, stages=MOST_STAGES, value_steps=8 if widest <= 192 else 2,
        early_prologue=page is not None or not of.fp8_kv, prefetch_page_index=page is not None,
        producer_warps=min(MOST_PRODUCER_WARPS, keys // copy_rows),
    )  # fmt: skip
    scattered = timed and not of.fp8_kv and chosen.copies * of.panels > 32 * MOST_PRODUCER_WARPS
    if scattered:
        chosen = replace(chosen, producer_warps=MORE_PRODUCER_WARPS)
    while not chosen.shared_evenly(of):
        chosen = replace(chosen, producer_warps=chosen.producer_warps - 1)
    in_one_round = min(128, -(-of.columns // EXCHANGE_STEP) * EXCHANGE_STEP)
    if tokens is not None and tokens * chosen.tile_bytes(of) // keys <= HEAD_ALIGNED_BYTES:
        chosen = replace(chosen, head_aligned=True)
    if timed and not scattered and not (of.fp8_kv and page):
        short = tokens is not None and tokens <= FEW_PREFETCH_TOKENS
        chosen = replace(chosen, early_prologue=True, prefetch=FEW_PREFETCH if short else PREFETCH)
        if rows <= FEW_ROWS and widest > 64 and not of.fp8_kv and chosen.copies <= MOST_PRODUCER_WARPS:
            return replace(chosen, stages=3, used_rows=FEW_ROWS, exchange_columns=in_one_round,
                           splits_per_read=20, ctas_per_sm=2, value_steps=4, prefetch=chosen.prefetch + (not short),
                           producer_warps=min(2, chosen.producer_warps))  # fmt: skip
    most = FEW_TOKENS if timed and page is None else FEW_PAGED_TOKENS
    if tokens is not None and tokens <= most and not of.fp8_kv:
        few = replace(chosen, stages=2, splits_per_read=16, exchange_columns=in_one_round)
        if few.shared_bytes(of) <= SHARED_BYTES // 2 - DECODE_RESERVE_BYTES:
            return few
    if timed and (page is None or of.fp8_kv):
        chosen = replace(chosen, exchange_columns=in_one_round)
    elif timed and not scattered:
        chosen = replace(chosen, stages=PAGED_BYTES // chosen.tile_bytes(of), exchange_columns=EXCHANGE_STEP)
    while chosen.shared_bytes(of) > SHARED_BYTES - DECODE_RESERVE_BYTES:
        chosen = replace(chosen, stages=chosen.stages - 1)
    return chosen


def clustered(of: Decode, chosen: DecodeConfig, heads: int, keys: int, sms: int) -> DecodeConfig:
    """The configuration with a cluster for each of all sequences' key heads, if the heads are few and short; else
    `chosen`.

    A cluster's CTAs need free multiprocessors next to each other, so clusters of 4 and 8 take up to half of all.
    nvidia-h100/attention-decode-clusters.json has the times; it has no pages, e4m3, heads above 128 or rows above 16.

    keys: capacity of a sequence. sms: multiprocessors.
    """
    if of.paged or of.fp8_kv or max(of.depth, of.columns) > 128 or chosen.row_blocks > 1:
        return chosen
    alone = replace(
        chosen, tile_n=64, copy_rows=64, prefetch=0, head_aligned=False, used_rows=ROWS, splits_per_read=16,
        ctas_per_sm=1, value_steps=8,
    )  # fmt: skip
    for cluster, tiles in CLUSTER_TILES.items():
        room = sms if cluster == 2 else sms // 2
        found = replace(alone, cluster=cluster, stages=2 if keys <= 2 * cluster * alone.tile_n else 3)
        short = keys <= tiles * cluster * alone.tile_n
        if heads * cluster <= room and short and found.clusters(of):
            return found
    return chosen


DECODE_RESERVE_BYTES = RESERVE_BYTES + 4 * 1025
"""Bytes of shared memory for barriers, alignment and the prefix sums of tiles per sequence."""
