"""The problem a decode kernel solves (`Decode`) and its tiling (`DecodeConfig`), with their memory use.

The tiling maximises bytes in flight: a stage is a tile of keys and its values, and all shared memory is stages
(100 KiB of them reach the rate of memory: benchmarks/results/nvidia-h200/few-rows.json has the same kernel shape for
weights). A warp multiplies 16 rows by 16 keys of each tile with mma.sync, which takes a fraction of the time in which
a tile arrives. No warp waits for another before the end.
"""

from __future__ import annotations

import math
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
MOST_LOADERS = 4
FEW_TOKENS = 4096
"""Keys per multiprocessor up to which 2 stages are faster: prologue and epilogue cost more than the lower rate."""
FEW_PAGED_TOKENS = 512
"""`FEW_TOKENS` for pages and for CTAs of two blocks, where no larger number was timed."""
PAGED_BYTES = 96 * 1024
"""Bytes of paged tiles in flight: with more, copies of parts of pages wait for each other."""
CLUSTER_TILES = {8: 8, 4: 8, 2: 16}
"""By CTAs of a cluster, most tiles of a CTA for which a cluster per key head is faster than equal shares of all. The
first that fits is taken."""
PREFETCHED, FEW_PREFETCHED, FEW_PREFETCHED_TOKENS = 5, 3, 2048
"""Tiles that a CTA prefetches before the previous kernel has ended, and fewer for up to that many keys per
multiprocessor (attention-fields-decode.json). Pages of 8-bit keys were not timed with any."""
SPREAD = 4
"""Tiles from one prefetched tile to the next."""
ALIGNED_BYTES = 3 << 20
"""Bytes of keys and values per multiprocessor up to which `aligned` is faster: fewer parts of heads are exchanged, but
4 of 132 multiprocessors may have no share, with which the rest reads 1 % slower (attention-decode-shares.json)."""
FEW_ROWS = 4
"""Rows up to which the exchange between warps is so small that two CTAs with three stages each fit a multiprocessor."""
MORE_LOADERS = 8
"""Loaders used if lanes of `MOST_LOADERS` warps would start more than one copy of a tile each."""


@dataclass(frozen=True)
class Decode(Padded):
    """The properties compiled into a kernel; lengths, strides and scalars are run-time arguments.

    Attributes:
        dtype: type of Q, K, V, P and O: bf16 or f16.
        head_dim: columns of Q and K.
        value_dim: columns of V and O.
        paged: K and V are pages, and a table lists each sequence's pages.
        narrow: K and V are e4m3 and are converted to f16 for the products; Q and P are f16.
        scaled: each sequence and key head has a factor for K and one for V; else V has one factor for all.
        below: keys before a window of the newest keys are masked.
        softcap: scores s become cap tanh(s / cap).
        sinks: each head has one more score, which is added to every row's sum and has no value.
    """

    dtype: DType = bf16
    head_dim: int = 128
    value_dim: int = 128
    paged: bool = False
    narrow: bool = False
    scaled: bool = False
    below: bool = False
    softcap: bool = False
    sinks: bool = False

    @property
    def cached(self) -> DType:
        return e4m3 if self.narrow else self.dtype

    @property
    def multiplied(self) -> DType:
        """The type of all operands of the products."""
        return f16 if self.narrow else self.dtype

    @property
    def panels(self) -> int:
        """Panels of a tile of keys and a tile of values together; each panel is a separate copy."""
        return (self.key_columns + self.value_columns) // self.panel

    @property
    def padding(self) -> int:
        """Padding columns between rows of the exchange, so that different rows are in different banks: four rows at a
        time with 8 bytes per thread, or two rows with 16 bytes."""
        return 16 if self.narrow else 8


@dataclass(frozen=True)
class DecodeConfig(Configuration):
    """The tiling of a decode kernel.

    Attributes:
        blocks: blocks of 16 rows per CTA: 1 or 2. Rows are the queries of all heads that share a key head. If there are
            more, other CTAs read the same keys.
        keys: keys per tile.
        copy_rows: keys per TMA copy: a part of a page that divides pages and tiles; `keys` without pages.
        stages: stages of the ring.
        value_steps: 32-byte steps of each value that a warp holds in registers at a time.
        pdl: the kernel starts while the previous kernel in the stream finishes.
        early: barriers are initialised and tensor maps prefetched before the previous kernel has ended.
        ahead: a page's number is read while the previous tile is still in flight.
        loaders: producer warps, since the lanes of one warp start their copies one after the other. They divide a
            tile's panels among them, or its keys if there are fewer panels than warps.
        several: if there are few tiles, a CTA gets this many before another gets any, so fewer CTAs share a head.
        together: parts of other CTAs that are read at a time.
        exchanged: columns of O that the warps exchange at a time.
        residents: CTAs per multiprocessor that the registers must allow: with 2, the next kernel's CTA can start during
            this one's epilogue, if shared memory allows.
        cluster: CTAs that share a key head as a cluster and combine their parts in shared memory; a head on more tiles
            than CTAs gives each several. 0: all CTAs share all tiles equally, and combine in global memory.
        prefetched: tiles that a CTA prefetches into L2 before the previous kernel has ended, by lengths that may be
            old; 0: none, or with `constant_lengths` a ring's worth.
        aligned: shares of tiles begin where heads do, if all sequences have the same length and few CTAs are left
            without a share (`attention_decode_work`).
        used_rows: rows of a block that exist at most.
        constant_lengths: the caller guarantees that the previous kernel does not write `lengths` and `table`. They are
            then read before it has ended, and some tiles prefetched into L2; K, V and Q are read after it.
    """

    blocks: int = 1
    keys: int = 64
    copy_rows: int = 64
    stages: int = 6
    value_steps: int = 8
    pdl: bool = True
    early: bool = False
    ahead: bool = False
    loaders: int = 1
    several: int = 1
    together: int = 8
    exchanged: int = 64
    residents: int = 1
    cluster: int = 0
    prefetched: int = 0
    aligned: bool = False
    used_rows: int = ROWS
    constant_lengths: bool = False

    family: ClassVar[str] = "attention_decode"

    def check(self, page: int | None = None, of: Decode | None = None, rows: int = 1) -> None:
        """Raise ArgumentError if no kernel can be built, if it cannot read pages of `page` keys, if its loaders
        cannot divide the panels of `of` evenly, or if a key head has more rows than the exchange."""
        check_fields(self, {"keys": WARP_KEYS, "cluster": 0, "prefetched": 0})
        odd = self.keys % WARP_KEYS or self.exchanged % EXCHANGE_STEP
        odd = odd or self.used_rows > ROWS or (self.blocks > 1 and self.used_rows < ROWS)
        if odd or self.keys % self.copy_rows or (page and page % self.copy_rows):
            raise ArgumentError(
                "this configuration of attention_decode cannot be built",
                expected=f"keys in multiples of {WARP_KEYS}, exchanged in multiples of {EXCHANGE_STEP}; copy_rows that "
                "divide keys and pages",
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
                "loaders must divide a tile evenly",
                expected=f"up to {panels} loaders, or {panels} times a divisor of {self.copies}", got=self.loaders,
            )  # fmt: skip

    def shared_evenly(self, of: Decode) -> bool:
        """True if the loaders divide a tile evenly: its panels, or the keys of each panel."""
        alone = self.loaders % of.panels == 0 and self.copies * of.panels % self.loaders == 0
        return self.loaders <= of.panels or alone

    def clusters(self, of: Decode) -> bool:
        """True if there is no cluster, or one whose CTAs divide the columns of O evenly."""
        return self.cluster in (0, 2, 4, 8, 16) and of.value_dim % (4 * max(1, self.cluster)) == 0

    @property
    def rows(self) -> int:
        """Rows per CTA."""
        return ROWS * self.blocks

    @property
    def slices(self) -> int:
        """Warps that share a tile's keys."""
        return self.keys // WARP_KEYS

    @property
    def warps(self) -> int:
        """Consumer warps."""
        return self.slices * self.blocks

    @property
    def promised(self) -> bool:
        """True if the kernel reads the lengths before the previous kernel has ended."""
        return self.pdl and self.constant_lengths

    @property
    def provisional(self) -> bool:
        """True if the kernel prefetches by lengths that may be old."""
        return self.pdl and bool(self.prefetched) and not (self.constant_lengths or self.cluster)

    @property
    def threads(self) -> int:
        """Threads per CTA: consumers and loaders."""
        return 32 * (self.warps + self.loaders)

    @property
    def registers(self) -> int:
        """Most registers per thread."""
        return registers_for(get("sm_90a"), self.threads, self.residents)

    @property
    def copies(self) -> int:
        """Copies per tile of keys, each from its own place in memory."""
        return self.keys // self.copy_rows

    def exchange_bytes(self, of: Decode) -> int:
        """Bytes of shared memory for the exchange between warps: `exchanged` columns of O, and the logarithms."""
        received = self.rows * (of.columns + self.cluster) if self.cluster else 0
        return (self.warps * self.used_rows * (self.exchanged + of.padding + 1) + received) * 4

    def tile_bytes(self, of: Decode) -> int:
        """Bytes of a tile of keys and its values."""
        return self.keys * (of.key_columns + of.value_columns) * of.cached.bytes

    def shared_bytes(self, of: Decode) -> int:
        """Bytes of shared memory for the tiles and the exchange."""
        return self.stages * self.tile_bytes(of) + self.exchange_bytes(of)

    def block_elements(self, of: Decode) -> int:
        """f32 elements of a CTA's part in global memory: O, then the logarithms."""
        return self.rows * (of.columns + 1)


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
    small = of.narrow or (widest <= 64 and page is None)
    keys = 128 if small and timed else 64  # small tiles arrive in half the time: use more warps
    copy_rows = keys if page is None else math.gcd(page, keys)
    chosen = DecodeConfig(
        blocks=blocks, keys=keys, copy_rows=copy_rows, stages=MOST_STAGES, value_steps=8 if widest <= 192 else 2,
        early=page is not None or not of.narrow, ahead=page is not None, loaders=min(MOST_LOADERS, keys // copy_rows),
    )  # fmt: skip
    scattered = timed and not of.narrow and chosen.copies * of.panels > 32 * MOST_LOADERS
    if scattered:
        chosen = replace(chosen, loaders=MORE_LOADERS)
    while not chosen.shared_evenly(of):
        chosen = replace(chosen, loaders=chosen.loaders - 1)
    in_one_round = min(128, -(-of.columns // EXCHANGE_STEP) * EXCHANGE_STEP)
    if tokens is not None and tokens * chosen.tile_bytes(of) // keys <= ALIGNED_BYTES:
        chosen = replace(chosen, aligned=True)
    if timed and not scattered and not (of.narrow and page):
        short = tokens is not None and tokens <= FEW_PREFETCHED_TOKENS
        chosen = replace(chosen, early=True, prefetched=FEW_PREFETCHED if short else PREFETCHED)
        if rows <= FEW_ROWS and widest > 64 and not of.narrow and chosen.copies <= MOST_LOADERS:
            return replace(chosen, stages=3, used_rows=FEW_ROWS, exchanged=in_one_round, together=20, residents=2,
                           value_steps=4, prefetched=chosen.prefetched + (not short),
                           loaders=min(2, chosen.loaders))  # fmt: skip
    most = FEW_TOKENS if timed and page is None else FEW_PAGED_TOKENS
    if tokens is not None and tokens <= most and not of.narrow:
        few = replace(chosen, stages=2, together=16, exchanged=in_one_round)
        if few.shared_bytes(of) <= SHARED_BYTES // 2 - DECODE_RESERVE_BYTES:
            return few
    if timed and (page is None or of.narrow):
        chosen = replace(chosen, exchanged=in_one_round)
    elif timed and not scattered:
        chosen = replace(chosen, stages=PAGED_BYTES // chosen.tile_bytes(of), exchanged=EXCHANGE_STEP)
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
    if of.paged or of.narrow or max(of.depth, of.columns) > 128 or chosen.blocks > 1:
        return chosen
    alone = replace(
        chosen, keys=64, copy_rows=64, prefetched=0, aligned=False, used_rows=ROWS, together=16, residents=1,
        value_steps=8,
    )  # fmt: skip
    for cluster, tiles in CLUSTER_TILES.items():
        room = sms if cluster == 2 else sms // 2
        found = replace(alone, cluster=cluster, stages=2 if keys <= 2 * cluster * alone.keys else 3)
        short = keys <= tiles * cluster * alone.keys
        if heads * cluster <= room and short and found.clusters(of):
            return found
    return chosen


DECODE_RESERVE_BYTES = RESERVE_BYTES + 4 * 1025
"""Bytes of shared memory for barriers, alignment and the prefix sums of tiles per sequence."""
