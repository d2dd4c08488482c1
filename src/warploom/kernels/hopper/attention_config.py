"""What an attention kernel is for (`Attention`) and how it is tiled (`Config`), by arithmetic alone.

A consumer warpgroup holds, of 64 queries: S in keys / 2 registers of a thread, O in value_dim / 2, P twice in keys / 4.
Shared memory holds the queries (`query_slots` blocks, in which O leaves again), and rings of keys and of values.

Of eight bits P takes keys / 8 registers, twice, and a product of P and V has `apart` / 2 of its own before O: sums of
such products keep 13 bits, in which a term is lost among thousands of its size. O, which is wider than the queries,
has its own shared memory, and so have the values that a wgmma can read: keys next to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...errors import ArgumentError
from ...isa.dtypes import DType, bf16, e4m3
from ..fields import Configuration, check_fields
from .attention_functions import Function
from .description import SHARED_BYTES

QUERY_ROWS = 64
"""Queries of a consumer warpgroup."""
PANEL_BYTES = 128
"""Of a row of a panel in shared memory: tiles are padded to whole ones, with zeros by TMA."""
PANEL = PANEL_BYTES // 2
"""The same in 16-bit elements."""
STEP_BYTES = 32
"""Of k of one wgmma: to which the products are padded."""
REGISTERS = {1: (24, 240, 240), 2: (24, 240, 168), 3: (32, 160, 128)}
"""Registers of a thread by number of consumers: of the producer, of a consumer, at launch."""
TURNERS = 3
"""Warps of the producer's warpgroup that transpose values, where they have to be."""
L2_BYTES = 32 << 20
"""Keys and values that a section of heads may have, so that they stay in the L2 cache of an H100 or H200."""
MOST_SEQUENCES = 512
"""Sequences of one launch that have different lengths: their blocks are added up in shared memory."""
RESERVE_BYTES = 2200
"""Of it what is left for barriers and for the alignment of tiles."""


def _up(value: int, to: int) -> int:
    return -(-value // to) * to


class Padded:
    """What head dimensions become in shared memory and in products."""

    dtype: DType
    head_dim: int
    value_dim: int

    @property
    def cached(self) -> DType:
        """Of K and V in memory."""
        return self.dtype

    @property
    def result(self) -> DType:
        """Of O."""
        return self.dtype

    @property
    def panel(self) -> int:
        """Elements of K and V in a panel of shared memory."""
        return PANEL_BYTES // self.cached.bytes

    @property
    def step(self) -> int:
        """Columns of K and V of which products take whole multiples."""
        return STEP_BYTES // self.cached.bytes

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
    """What is in the text of a kernel; lengths, strides and numbers are not.

    Attributes:
        dtype: of Q, K, V and P: bf16, f16 or e4m3.
        head_dim: of Q and K.
        value_dim: of V and O.
        scaled: of e4m3: each head of Q, of K and of V has a factor; else V has one for all.
        above: keys are masked from a diagonal on: causal, or a window with a right edge.
        below: keys are masked before a diagonal: a window with a left edge.
        softcap: scores s become cap tanh(s / cap).
        sinks: a score of each head that takes part in every row's sum and has no value.
        varlen: sequences of different lengths, one after the other in arrays of one batch.
        score_mod, mask_mod: functions of scores and of masks (`attention_functions.Function`).
        lists: which tiles of keys a block of queries sees is told by lists; `mask_mod` is for tiles seen in part.
    """

    dtype: DType = bf16
    head_dim: int = 128
    value_dim: int = 128
    above: bool = False
    below: bool = False
    softcap: bool = False
    sinks: bool = False
    varlen: bool = False
    score_mod: Function | None = None
    mask_mod: Function | None = None
    lists: bool = False
    scaled: bool = False

    @property
    def narrow(self) -> bool:
        """Whether Q, K, V and P are of eight bits."""
        return self.dtype is e4m3

    @property
    def result(self) -> DType:
        return bf16 if self.narrow else self.dtype

    @property
    def query_columns(self) -> int:
        """Columns of a block of queries in shared memory, where O of the same type fits, too."""
        return self.key_columns if self.narrow else max(self.key_columns, self.value_columns)

    @property
    def out_columns(self) -> int:
        """Columns of O in shared memory of its own."""
        return _up(self.value_dim, PANEL)


@dataclass(frozen=True)
class Config(Configuration):
    """How a kernel is tiled.

    Attributes:
        keys: of a tile.
        consumers: warpgroups, with 64 queries each.
        key_stages, value_stages: of the two rings; that of transposed values has as many.
        query_slots: 2 to begin the next block of queries under the end of the last one.
        guarded: the softmax that keeps a row's first maximum; else the exact one.
        ordered: consumers take turns in issuing products.
        apart: columns of P V that are multiplied into registers of their own and added to O in f32, for eight bits; 0:
            O itself is the accumulator, and loses what thousands of keys add to it.
        renewed: a tile that is computed again raises every maximum that it can; else only those that it raises by
            more than `attention_softmax.growth`, and rows just below that have the next tile computed again, too.
    """

    keys: int = 128
    consumers: int = 2
    key_stages: int = 3
    value_stages: int = 2
    query_slots: int = 2
    guarded: bool = True
    ordered: bool = True
    apart: int = 0
    renewed: bool = False

    family: ClassVar[str] = "attention"

    def check(self, of: Attention) -> None:
        """Raise ArgumentError where no kernel can be built of it, whatever memory and registers there are."""
        numbers = {
            "keys": 1,
            "consumers": 1,
            "key_stages": 1,
            "value_stages": 1,
            "query_slots": 1,
            "apart": 0,
        }
        check_fields(self, numbers, ("guarded", "ordered", "renewed"), {})
        step = STEP_BYTES // of.dtype.bytes
        if self.consumers not in REGISTERS or self.keys % step:
            raise ArgumentError(
                "this configuration of attention cannot be built",
                expected=f"1 to {max(REGISTERS)} consumers, and keys in multiples of {step}",
                got=self.name(),
                code="configuration",
            )

    @property
    def rows(self) -> int:
        """Queries of a CTA."""
        return QUERY_ROWS * self.consumers

    def shared_bytes(self, of: Attention) -> int:
        """Shared memory of the tiles."""
        queries = self.query_slots * self.rows * of.query_columns
        rings = self.key_stages * of.key_columns + self.value_stages * of.value_columns
        counted = 4 * (MOST_SEQUENCES + 1) if of.varlen else 0
        own = self.rows * of.out_columns * of.result.bytes if of.narrow else 0
        turned = self.value_stages * of.columns * self.turned_keys if of.narrow else 0
        return (queries + self.keys * rings) * of.dtype.bytes + own + turned + counted

    @property
    def turned_keys(self) -> int:
        """Keys of a tile of transposed values in shared memory: whole panels, or whole halves of narrower ones."""
        half = PANEL_BYTES // 2
        return _up(self.keys, half if self.keys % PANEL_BYTES == half else PANEL_BYTES)

    def accumulators(self, of: Attention) -> int:
        """Registers of a thread for S, O, two P, and products apart from O."""
        return self.keys // 2 + self.keys * of.dtype.bytes // 4 + (of.columns + self.apart) // 2


@dataclass(frozen=True)
class OnePerSm:
    """The grid rule: a CTA on each multiprocessor, or fewer where there are fewer blocks of `rows` queries."""

    rows: int

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        blocks = -(-dims["S"] // self.rows) * dims["B"] * dims["H"]
        return (max(1, min(blocks, machine.sms)), 1, 1)


def default(of: Attention, block: tuple[int, int] | None = None) -> Config:
    """The configuration for a head dimension, with as many stages as fit.

    block: queries and keys of a block of a mask; where they are multiples of 64, tiles are whole parts of it.
    """
    chosen = _widest(of)
    if block is not None and not any(size % QUERY_ROWS for size in block):
        consumers = 2 if block[0] % (2 * QUERY_ROWS) == 0 else 1
        wide = block[1] % 128 == 0 and max(of.depth, of.columns) <= (64 if of.narrow else 128)
        keys = 128 if wide else 64
        chosen = replace(chosen, consumers=consumers, keys=keys)
    while chosen.shared_bytes(of) > SHARED_BYTES - RESERVE_BYTES:
        stages = chosen.key_stages - 1
        chosen = replace(chosen, key_stages=stages, value_stages=min(chosen.value_stages, stages))
    return chosen


def _widest(of: Attention) -> Config:
    if of.narrow:
        return _narrow(of)
    if max(of.depth, of.columns) <= 64 and not of.above:
        return Config(keys=96, consumers=3, key_stages=4, value_stages=4)
    if max(of.depth, of.columns) <= 64:
        return Config(keys=128, key_stages=4, value_stages=4)
    if max(of.depth, of.columns) <= 128:
        return Config()
    if of.columns <= 128 and of.depth <= 192:
        return Config(keys=128, key_stages=2, query_slots=1)
    if max(of.depth, of.columns) <= 192:
        return Config(keys=96, key_stages=2, query_slots=1)
    return Config(keys=64, key_stages=2, query_slots=1)


def _narrow(of: Attention) -> Config:
    if max(of.depth, of.columns) <= 64:
        return Config(key_stages=4, value_stages=3, ordered=False, apart=of.columns, renewed=True)
    if max(of.depth, of.columns) <= 128:
        return Config(keys=96, key_stages=4, value_stages=3, ordered=False, apart=of.columns, renewed=True)
    return Config(keys=64, key_stages=2, query_slots=1, apart=32, renewed=True)


def section(of: Attention, causal: bool, length: int, heads: int, kv_heads: int) -> int:
    """Heads whose blocks are computed next to each other, the longest first.

    Where all blocks are equally long one head after the other is best; else as many as have their keys and values in
    the L2 cache together.
    """
    if not causal:
        return 1
    one = max(1, length * (of.head_dim + of.value_dim) * of.dtype.bytes)
    return max(1, L2_BYTES // one) * max(1, heads // kv_heads)
