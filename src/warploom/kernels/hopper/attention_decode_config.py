"""What a decode kernel is for (`Decode`) and how it is tiled (`DecodeConfig`), by arithmetic alone.

Everything counts for bytes in flight: a stage is a tile of keys and its values, and all shared memory is stages on
their way (100 KiB of them reach the memory's rate: benchmarks/results/nvidia-h200/few-rows.json has the same kernel
shape for weights). A warp multiplies 16 rows with 16 keys of each tile by mma.sync, so its work is a fraction of the
time in which a tile arrives, and no warp waits for another before the end.
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
"""Rows of a warp: the m of mma.sync."""
WARP_KEYS = 16
"""Keys of a tile that a warp multiplies: the k of the second product."""
MOST_ROWS = 16
"""Queries of a sequence in one call."""
EXCHANGE_STEP = 32
"""Columns between rows of the exchange are in other banks where these are whole."""
MOST_STAGES = 12
MOST_LOADERS = 4
FEW_TOKENS = 4096
"""Keys of a multiprocessor: where it reads no more, ends and beginnings cost more than two stages lose in rate."""
FEW_PAGED_TOKENS = 512
"""The same of pages, and of CTAs of two blocks, where no more was timed."""
PAGED_BYTES = 96 * 1024
"""Tiles of pages that are on their way at a time: with more, copies of parts of pages wait for each other."""
MORE_LOADERS = 8
"""Where lanes of `MOST_LOADERS` warps would start more than one copy of a tile each."""


@dataclass(frozen=True)
class Decode(Padded):
    """What is in the text of a kernel; lengths, strides and numbers are not.

    Attributes:
        dtype: of Q, K, V, P and O: bf16 or f16.
        head_dim: of Q and K.
        value_dim: of V and O.
        paged: K and V are pages, and a table says which pages a sequence has.
        narrow: K and V are e4m3, and are multiplied as f16, as Q and P are.
        scaled: each sequence and key head has a factor for K and one for V; else V has one for all.
        below: keys are masked before a window of the newest.
        softcap: scores s become cap tanh(s / cap).
        sinks: a score of each head that takes part in every row's sum and has no value.
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
        """Of all operands of products."""
        return f16 if self.narrow else self.dtype

    @property
    def panels(self) -> int:
        """Of a tile of keys and one of values together: each is a copy of its own."""
        return (self.key_columns + self.value_columns) // self.panel

    @property
    def padding(self) -> int:
        """Columns between rows of the exchange, so that threads of other rows write to other banks: four rows at a
        time, 8 bytes from each thread, or two rows, 16 bytes."""
        return 16 if self.narrow else 8


@dataclass(frozen=True)
class DecodeConfig(Configuration):
    """How a kernel is tiled.

    Attributes:
        blocks: of 16 rows of a CTA: 1 or 2. Rows are the queries of all heads that share a key head; where there are
            more, another CTA reads the same keys.
        keys: of a tile.
        copy_rows: keys of one copy by TMA: a page's part, that divides pages and tiles; `keys` without pages.
        stages: of the ring.
        value_steps: of 32 bytes of each value that a warp holds in registers at a time.
        pdl: the kernel starts while the one before it in the stream ends.
        early: barriers are made and tensor maps fetched before that one has ended.
        ahead: a page's number is read while the tile before is still on its way.
        loaders: warps that load. The lanes of one start their copies one after the other. They share out the panels of
            a tile, and where there are fewer panels than warps, its keys.
        several: tiles that a CTA should have before another one gets any, where there are few: fewer CTAs meet then.
        together: parts of other CTAs that are read at a time.
        exchanged: columns of O that the warps exchange in one round.
        residents: CTAs for which a multiprocessor's registers are enough: 2 so that the next kernel's CTA can begin
            under this one's end, where shared memory lets it.
        constant_lengths: a promise of the caller: `lengths` and `table` are not written by the kernel in front. Then
            they are read before it has ended, and the first tiles brought into L2; K, V and Q are read after it.
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
    constant_lengths: bool = False

    family: ClassVar[str] = "attention_decode"

    def check(self, page: int | None = None, of: Decode | None = None) -> None:
        """Raise ArgumentError where no kernel can be built of it, none that reads pages of that many keys, or none
        whose warps share out the panels of `of`."""
        numbers = {"blocks": 1, "keys": WARP_KEYS, "copy_rows": 1, "stages": 1, "value_steps": 1}
        numbers |= {"loaders": 1, "several": 1, "together": 1, "exchanged": 1, "residents": 1}
        check_fields(self, numbers, ("pdl", "early", "ahead", "constant_lengths"), {})
        odd = self.keys % WARP_KEYS or self.exchanged % EXCHANGE_STEP
        if odd or self.keys % self.copy_rows or (page and page % self.copy_rows):
            raise ArgumentError(
                "this configuration of attention_decode cannot be built",
                expected=f"keys in multiples of {WARP_KEYS}, exchanged in multiples of {EXCHANGE_STEP}; copy_rows that "
                "divide keys and pages",
                got=self.name() + (f", pages of {page}" if page else ""), code="configuration"
            )  # fmt: skip
        if of is not None and not self.shared_evenly(of):
            panels = of.panels
            raise ArgumentError(
                "warps that load share out a tile evenly",
                expected=f"up to {panels} loaders, or {panels} times a divisor of {self.copies}", got=self.loaders,
            )  # fmt: skip

    def shared_evenly(self, of: Decode) -> bool:
        """Whether the warps that load have equal shares of a tile: of its panels, or of the keys of one."""
        alone = self.loaders % of.panels == 0 and self.copies * of.panels % self.loaders == 0
        return self.loaders <= of.panels or alone

    @property
    def rows(self) -> int:
        """Rows of a CTA."""
        return ROWS * self.blocks

    @property
    def slices(self) -> int:
        """Warps that share a tile's keys."""
        return self.keys // WARP_KEYS

    @property
    def warps(self) -> int:
        """That multiply."""
        return self.slices * self.blocks

    @property
    def promised(self) -> bool:
        """Whether there is something to do before the kernel in front has ended that needs the lengths."""
        return self.pdl and self.constant_lengths

    @property
    def threads(self) -> int:
        """Of a CTA: those that load are more."""
        return 32 * (self.warps + self.loaders)

    @property
    def registers(self) -> int:
        """Of a thread, at most."""
        return registers_for(get("sm_90a"), self.threads, self.residents)

    @property
    def copies(self) -> int:
        """Places in memory that a tile of keys comes from."""
        return self.keys // self.copy_rows

    def exchange_bytes(self, of: Decode) -> int:
        """Shared memory in which the warps' sums meet: a round's columns of O, and the logarithms."""
        return self.warps * ROWS * (self.exchanged + of.padding + 1) * 4

    def tile_bytes(self, of: Decode) -> int:
        """Of keys and their values."""
        return self.keys * (of.key_columns + of.value_columns) * of.cached.bytes

    def shared_bytes(self, of: Decode) -> int:
        """Shared memory of the tiles and of the exchange."""
        return self.stages * self.tile_bytes(of) + self.exchange_bytes(of)

    def block_elements(self, of: Decode) -> int:
        """f32 of one CTA's sums for others in global memory: O, then the logarithms."""
        return self.rows * (of.columns + 1)


def decode_config(of: Decode, rows: int, page: int | None = None, tokens: int | None = None) -> DecodeConfig:
    """The configuration that was fastest on an H200, with as many stages as fit.

    benchmarks/results/nvidia-h200/attention-decode-candidates.json has the times. What was not timed (head dimensions
    above 128, two blocks, more of pages) keeps what a simpler rule gave it.

    rows: of a key head. page: keys of a page. tokens: keys that a multiprocessor reads, of all heads and sequences
    together, so far as the room for them tells; None: many.
    """
    widest = max(of.depth, of.columns)
    blocks = 1 if rows <= ROWS or widest > 128 else 2
    timed = widest <= 128 and blocks == 1
    keys = 128 if of.narrow and timed else 64  # eight bits come in half the time: more warps
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


DECODE_RESERVE_BYTES = RESERVE_BYTES + 4 * 1025
"""Shared memory for barriers, alignment, and the tiles before each sequence."""
