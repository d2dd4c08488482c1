"""The problem an attention kernel solves (`Attention`) and its tiling (`Config`), with their register and memory use.

Each thread of a consumer warpgroup (64 queries) holds S in keys / 2 registers, O in value_dim / 2 and P twice in
keys / 4. Shared memory holds `query_stages` blocks of queries, also used to store O, and rings of keys and of values.

In 8 bits, P takes keys / 8 registers, twice, or once with `pv_first`. P V has `promoted_columns` / 2 registers of its
own before it is added to O: wgmma's accumulator keeps 13 bits, in which one term is lost among thousands of its size. O
is wider than the queries, so it has its own shared memory. So have the transposed values, with keys contiguous as wgmma
requires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...collective.tile.sizes import ACC_ATOM_N
from ...errors import ArgumentError
from ...isa.dtypes import DType, bf16, e4m3
from ...isa.swizzle import Swizzle
from ..fields import Configuration, check_fields
from .attention_functions import Function
from .description import PANEL, SHARED_BYTES

QUERY_ROWS = 64
"""Queries of a consumer warpgroup."""
PANEL_BYTES = Swizzle.B128.span
"""Bytes of a panel's row in shared memory. Tiles are padded to whole panels; TMA fills the padding with zeros."""
STEP_BYTES = 32
"""Bytes along k of one wgmma; products are padded to multiples of this."""
REGISTERS = {1: (24, 240, 240), 2: (24, 240, 168), 3: (32, 160, 128)}
"""Registers per thread by number of consumers: of the producer, of a consumer, at launch."""
LOG2_E = math.log2(math.e)
"""Scores are multiplied by it, because the GPU has 2^x."""
SPARE_REGISTERS = 52
"""Registers beyond the accumulators with which an 8-bit consumer keeps at most 64 bytes in memory under a function, or
at both edges of packed sequences."""
SPARE_FOR_BOTH = 32
"""The same under functions of scores and of masks, beside one register more for each score."""
TRANSPOSE_WARPS = 3
"""Warps of the producer's warpgroup that transpose values, if needed."""
L2_BYTES = 32 << 20
"""Most bytes of keys and values in a section of heads, so that they stay in the L2 cache of an H100 or H200."""
MOST_SEQUENCES = 512
"""Most sequences of different lengths in one launch: their block counts are added up in shared memory."""
RESERVE_BYTES = 2200
"""Shared memory reserved for barriers and for the alignment of tiles."""


def _up(value: int, to: int) -> int:
    return -(-value // to) * to


class Padded:
    """Head dimensions as padded in shared memory and in products."""

    dtype: DType
    head_dim: int
    value_dim: int

    @property
    def kv_dtype(self) -> DType:
        """The type of K and V in memory."""
        return self.dtype

    @property
    def out_dtype(self) -> DType:
        """The type of O."""
        return self.dtype

    @property
    def panel(self) -> int:
        """Elements of K and V in a panel of shared memory."""
        return PANEL_BYTES // self.kv_dtype.bytes

    @property
    def step(self) -> int:
        """Columns of K and V to whose multiples products are padded."""
        return STEP_BYTES // self.kv_dtype.bytes

    @property
    def depth(self) -> int:
        """k of Q Kᵀ."""
        return _up(self.head_dim, self.step)

    @property
    def columns(self) -> int:
        """n of P V."""
        return _up(self.value_dim, self.step)

    @property
    def key_columns(self) -> int:
        """Columns of a tile of keys in shared memory."""
        return _up(self.head_dim, self.panel)

    @property
    def value_columns(self) -> int:
        """Columns of a tile of values in shared memory."""
        return _up(self.value_dim, self.panel)


@dataclass(frozen=True)
class Attention(Padded):
    """The properties compiled into a kernel; lengths, strides and scalars are run-time arguments.

    Attributes:
        dtype: type of Q, K, V and P: bf16, f16 or e4m3.
        head_dim: columns of Q and K.
        value_dim: columns of V and O.
        scaled: e4m3 only: each head of Q, of K and of V has a scale factor; else V has one factor for all.
        fast_accumulation: e4m3 only: the tensor core adds up P V of all tiles, with its 13 bits (see
            `Config.promoted_columns`).
        window_right: keys beyond a diagonal are masked: causal, or a window with a right edge.
        window_left: keys before a diagonal are masked: a window with a left edge.
        softcap: scores s become cap tanh(s / cap).
        sinks: each head has one more score, which is added to every row's sum and has no value.
        varlen: sequences of different lengths, packed in arrays of one batch.
        score_mod, mask_mod: functions of scores and of masks (`attention_functions.Function`).
        block_mask: lists say which tiles of keys a block of queries sees; `mask_mod` applies to partly visible tiles.
    """

    dtype: DType = bf16
    head_dim: int = 128
    value_dim: int = 128
    window_right: bool = False
    window_left: bool = False
    softcap: bool = False
    sinks: bool = False
    varlen: bool = False
    score_mod: Function | None = None
    mask_mod: Function | None = None
    block_mask: bool = False
    scaled: bool = False
    fast_accumulation: bool = False

    @property
    def fp8(self) -> bool:
        """True if Q, K, V and P have 8 bits."""
        return self.dtype is e4m3

    @property
    def has_functions(self) -> bool:
        """True if the kernel contains a function of scores or of masks."""
        return self.score_mod is not None or self.mask_mod is not None

    @property
    def has_both_functions(self) -> bool:
        """True if the kernel contains a function of scores and one of masks."""
        return self.score_mod is not None and self.mask_mod is not None

    @property
    def register_limited(self) -> bool:
        """True if a function of scores has too few registers beside the accumulators of 128 keys. Then ptxas keeps some
        in memory, or computes a score after the other: tiles of 64 keys are up to 1.3 times as fast
        (nvidia-h200/attention-functions-tiles.json)."""
        return self.score_mod is not None and not self.fp8 and 96 < max(self.depth, self.columns) <= 128

    @property
    def out_dtype(self) -> DType:
        return bf16 if self.fp8 else self.dtype

    @property
    def query_columns(self) -> int:
        """Columns of a block of queries in shared memory, wide enough for O if it has the same type."""
        return self.key_columns if self.fp8 else max(self.key_columns, self.value_columns)

    @property
    def out_columns(self) -> int:
        """Columns of O in its own shared memory."""
        return _up(self.value_dim, PANEL)


@dataclass(frozen=True)
class Config(Configuration):
    """The tiling of an attention kernel.

    Attributes:
        tile_n: keys per tile.
        consumers: consumer warpgroups, with 64 queries each.
        key_stages, value_stages: stages of the two rings; the ring of transposed values has `value_stages`.
        query_stages: 2 to overlap the start of the next block of queries with this block's epilogue.
        guarded: use the softmax that keeps a row's first maximum; else the exact one.
        ping_pong: consumers take turns issuing products.
        promoted_columns: for 8 bits, columns of P V that are accumulated in separate registers and then promoted: added
            to O in f32. 0: O itself is the accumulator, and loses precision over thousands of keys.
        raise_all_maxima: a recomputed tile raises every maximum that it exceeds. Else it raises only maxima that it
            exceeds by more than `attention_softmax.growth`, and rows just below that threshold cause another
            recomputation.
        pv_first: P V of a tile, with all columns promoted, is issued before S of the next and added to O beside it. P
            has one buffer, which leaves registers for more keys; only other consumers' products overlap the softmax.
        rounded_row_sum: bf16: O is divided by a sum of rounded P, so that a key with all the weight gives its value
            exactly.
    """

    tile_n: int = 128
    consumers: int = 2
    key_stages: int = 3
    value_stages: int = 2
    query_stages: int = 2
    guarded: bool = True
    ping_pong: bool = True
    promoted_columns: int = 0
    raise_all_maxima: bool = False
    pv_first: bool = False
    rounded_row_sum: bool = True

    family: ClassVar[str] = "attention"
    former: ClassVar[Mapping[str, str]] = {
        "keys": "tile_n", "query_slots": "query_stages", "ordered": "ping_pong", "apart": "promoted_columns",
        "renewed": "raise_all_maxima", "values_first": "pv_first", "weighed": "rounded_row_sum",
    }  # fmt: skip

    def check(self, of: Attention) -> None:
        """Raise ArgumentError if no kernel can be built, regardless of memory and registers."""
        check_fields(self, {"promoted_columns": 0})
        step = STEP_BYTES // of.dtype.bytes
        if self.consumers not in REGISTERS or self.tile_n % step:
            raise ArgumentError(
                "this configuration of attention cannot be built",
                expected=f"1 to {max(REGISTERS)} consumers, and tile_n in multiples of {step}",
                got=self.name(),
                code="configuration",
            )
        promoted = self.promoted_columns
        if promoted and (not of.fp8 or of.columns % promoted or promoted % ACC_ATOM_N):
            raise ArgumentError(
                "only 8-bit products of P and V are accumulated separately, in equal parts of whole atoms of columns",
                expected=f"promoted_columns=0, or for e4m3 a multiple of {ACC_ATOM_N} that divides {of.columns}",
                got=f"{self.name()} for {of.dtype}", code="configuration",
            )  # fmt: skip
        if self.value_stages == 1 and not self.pv_first:
            raise ArgumentError(
                "a tile's values are let go only when the next tile's have arrived", expected="value_stages of at "
                "least 2, or pv_first", got=self.name(), consequence="the kernel would wait for ever",
                code="configuration",
            )  # fmt: skip
        if self.pv_first and self.promoted_columns != of.columns:
            raise ArgumentError(
                "P V can be issued before S of the next tile only if it has registers of its own",
                expected=f"promoted_columns={of.columns}",
                got=self.name(),
                code="configuration",
            )

    @property
    def tile_m(self) -> int:
        """Queries per CTA."""
        return QUERY_ROWS * self.consumers

    def shared_bytes(self, of: Attention) -> int:
        """Bytes of shared memory for the tiles."""
        queries = self.query_stages * self.tile_m * of.query_columns
        rings = self.key_stages * of.key_columns + self.value_stages * of.value_columns
        counted = 4 * (MOST_SEQUENCES + 1) if of.varlen else 0
        own = self.tile_m * of.out_columns * of.out_dtype.bytes if of.fp8 else 0
        transposed = self.value_stages * of.columns * self.transposed_keys if of.fp8 else 0
        return (queries + self.tile_n * rings) * of.dtype.bytes + own + transposed + counted

    @property
    def transposed_keys(self) -> int:
        """Keys per tile of transposed values in shared memory, padded to whole panels of 128 or 64 bytes."""
        half = PANEL_BYTES // 2
        return _up(self.tile_n, half if self.tile_n % PANEL_BYTES == half else PANEL_BYTES)

    def accumulators(self, of: Attention) -> int:
        """Registers per thread for S, O, one or two copies of P, and the separate product (`promoted_columns`)."""
        p = self.tile_n * of.dtype.bytes // 8 * (1 if self.pv_first else 2)
        return self.tile_n // 2 + p + (of.columns + self.promoted_columns) // 2


@dataclass(frozen=True)
class OnePerSm:
    """The grid rule: one CTA per multiprocessor, but at most one per block of `rows` queries."""

    rows: int

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        blocks = -(-dims["S"] // self.rows) * dims["B"] * dims["H"]
        return (max(1, min(blocks, machine.sms)), 1, 1)


def default(of: Attention, block: tuple[int, int] | None = None) -> Config:
    """The configuration for a head dimension, with as many stages as fit.

    block: queries and keys of a mask's block; if both are multiples of 64, a block is a whole number of tiles.
    """
    chosen = _fp8(of) if of.fp8 else replace(_widest(of), raise_all_maxima=of.dtype is bf16)
    if of.has_functions and not of.fp8:
        chosen = _for_functions(chosen, of)
    if block is not None and not any(size % QUERY_ROWS for size in block):
        consumers = 2 if block[0] % (2 * QUERY_ROWS) == 0 else 1
        wide = block[1] % 128 == 0 and max(of.depth, of.columns) <= (64 if of.fp8 else 128) and not of.register_limited
        keys = 128 if wide else 64
        chosen = replace(chosen, consumers=consumers, tile_n=keys)
    if of.fp8 and (of.has_functions or (of.varlen and of.window_left)):
        chosen = _with_spare(chosen, of)
    if of.dtype is bf16:
        chosen = replace(chosen, rounded_row_sum=chosen.consumers < 3 and _has_room_for_more_sums(of))
    while chosen.shared_bytes(of) > SHARED_BYTES - RESERVE_BYTES:
        stages = chosen.key_stages - 1
        chosen = replace(chosen, key_stages=stages, value_stages=min(chosen.value_stages, stages))
    return chosen


def _for_functions(chosen: Config, of: Attention) -> Config:
    """Smaller tiles for a kernel with a function of scores or masks, which needs registers of its own. With these a
    causal mask of documents and a slope for each head spill at most a few registers
    (`tests/operators/test_attention_registers.py`)."""
    columns = max(of.depth, of.columns)
    if columns <= 64:
        return replace(chosen, consumers=2, tile_n=128)
    if of.register_limited:
        return replace(chosen, tile_n=64, key_stages=4, value_stages=4)
    if 96 < columns <= 128:
        return replace(chosen, tile_n=112)
    return replace(chosen, tile_n=80) if 128 < columns <= 192 else chosen


def _has_room_for_more_sums(of: Attention) -> bool:
    """False where `Config.rounded_row_sum` would keep more registers in memory than without it: 4 to 120 bytes. (It
    fits three consumers, but they are 0.92 to 0.94 times as fast with it, nvidia-h200/attention-rounded-sums.json.)"""
    columns = max(of.depth, of.columns)
    if of.has_both_functions:
        return columns <= 64 or 96 < columns <= 192
    return not of.varlen or columns <= 96


def _with_spare(chosen: Config, of: Attention) -> Config:
    """Fewer keys, if functions, or both edges of a packed sequence, would find too few registers; half as many under a
    block mask, so that a block stays a whole number of tiles."""
    both, most = of.has_both_functions, REGISTERS[chosen.consumers][1]

    def needed(config: Config) -> int:
        return config.accumulators(of) + (SPARE_FOR_BOTH + config.tile_n // 2 if both else SPARE_REGISTERS)

    while needed(chosen) > most and chosen.tile_n > STEP_BYTES:
        chosen = replace(chosen, tile_n=chosen.tile_n // 2 if of.block_mask else chosen.tile_n - STEP_BYTES)
    return chosen


def _widest(of: Attention) -> Config:
    if max(of.depth, of.columns) <= 64 and not (of.window_right or of.varlen):  # the latter spill with three consumers
        return Config(tile_n=96, consumers=3, key_stages=4, value_stages=4)
    if max(of.depth, of.columns) <= 64:
        return Config(tile_n=128, key_stages=4, value_stages=4)
    if max(of.depth, of.columns) <= 128:
        return Config(tile_n=112) if of.varlen and of.window_left else Config()
    if of.columns <= 128 and of.depth <= 192:
        return Config(tile_n=128, key_stages=2, query_stages=1)
    if max(of.depth, of.columns) <= 192:
        return Config(tile_n=96, key_stages=2, query_stages=1)
    return Config(tile_n=64, key_stages=2, query_stages=1)


def _fp8(of: Attention) -> Config:
    fast, first = of.fast_accumulation, Config(raise_all_maxima=True)
    if max(of.depth, of.columns) > 128:
        return replace(first, tile_n=64, key_stages=2, query_stages=1, promoted_columns=0 if fast else 32)
    if fast:
        return replace(first, tile_n=96 if of.columns <= 96 else 128, value_stages=3, ping_pong=False)
    chosen = replace(first, key_stages=4, value_stages=3, ping_pong=False, promoted_columns=of.columns)
    if max(of.depth, of.columns) <= 64:
        return chosen
    if of.columns <= 64 or of.varlen:  # with `pv_first`, causal 128 and 64 spill, and packed sequences spill more
        return replace(chosen, tile_n=96)
    return replace(chosen, key_stages=3, pv_first=True)


def section(of: Attention, causal: bool, length: int, heads: int, kv_heads: int) -> int:
    """The number of heads whose blocks are interleaved, longest first.

    If all blocks are equally long, it is best to compute one head after the other. Otherwise take as many heads as
    have keys and values that fit the L2 cache together.
    """
    if not causal:
        return 1
    one = max(1, length * (of.head_dim + of.value_dim) * of.dtype.bytes)
    return max(1, L2_BYTES // one) * max(1, heads // kv_heads)
