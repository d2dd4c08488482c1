"""Combine partial results of warps and of CTAs: each is a normalised O and the logarithm of its sum (LSE).

    O = sum of w O_part, w = exp(LSE_part - LSE), LSE = log sum of exp(LSE_part)          in the order of the parts

warps   exchange parts in shared memory, some columns of O at a time; each thread adds up 4 columns of some rows.
CTAs    exchange parts in global memory. Each writes its part and increments a counter. The last to arrive reads all
        parts, several at a time to hide latency, the only cost. The counter wraps to 0, ready for the next launch.

A part whose rows have seen no key has LSE -inf and weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from ...collective.mma.fragment import ACC_REGS, HALF_ROWS, pack
from ...collective.mma.warp import BLOCK_N
from ...collective.tile.roles import WARP
from ...isa.dtypes import f32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_config import LOG2_E
from .attention_decode_config import ROWS, Decode, DecodeConfig
from .attention_decode_warp import DecodeWarp, RowAddresses
from .attention_decode_work import Segment, WorkPartition

BARRIER = 1
VECTOR = 4


@dataclass
class OutputVector:
    """Four columns of a row that one thread adds up.

    Attributes:
        row: index of the row in the CTA.
        column: first column of O.
        exists: true if the row and the column exist.
    """

    row: Register
    column: Register
    exists: Predicate


class SplitCombine:
    """See the module's docstring.

    Args:
        of, config, work: the kernel's problem, configuration and work.
        workspace: f32, 2 `config.block_elements(of)` for each CTA.
        counters: u32, one for each key head and chunk of rows of each sequence; 0 before and after every launch.
        out: addresses of the rows of O.
        lse: (B, H, R) f32.
        sinks: (H,) f32, or None.
    """

    def __init__(
        self, of: Decode, config: DecodeConfig, work: WorkPartition, workspace: ArrayHandle | None,
        counters: ArrayHandle | None, out: RowAddresses, lse: ArrayHandle, sinks: ArrayHandle | None,
    ) -> None:  # fmt: skip
        self.of, self.config, self.work = of, config, work
        self.workspace, self.counters, self.out, self.lse, self.sinks = workspace, counters, out, lse, sinks
        self.sums = smem.array(f32, (config.warps, config.used_rows, config.exchange_columns + of.padding), name="sums")
        self.logarithms = smem.array(f32, (config.slices, config.tile_m), name="logarithms")
        self.arrived = smem.array(u32, 1, name="arrived")
        self.threads = WARP * config.warps

    def initialise(self) -> None:
        """Nothing: counters are zero between launches."""

    def meet(self) -> None:
        """Synchronise all consumer warps."""
        ptx.bar.sync(BARRIER, self.threads)

    def run(self, warp: DecodeWarp, segment: Segment, logarithms: Sequence[Register]) -> None:
        """Store the rows of a segment, or share them with its other CTAs. All consumer threads call this."""
        vectors, values = self._warps(warp, segment, logarithms)
        with ptx.if_(segment.shared):
            self._share(segment, vectors, values)
        with ptx.else_():
            for vector, part in zip(vectors, values, strict=True):
                with ptx.if_(vector.exists):
                    self._store(segment, vector, part, self._logarithm(vector.row)[0])

    # -- warps -------------------------------------------------------------------------------------------------------

    def _warps(
        self, warp: DecodeWarp, segment: Segment, logarithms: Sequence[Register]
    ) -> tuple[list[OutputVector], list[RegisterArray]]:
        vectors: list[OutputVector] = []
        values: list[RegisterArray] = []
        thread = ptx.special.tid.x()
        self.meet()  # the previous segment has been read
        for row, logarithm in zip(warp.rows, logarithms, strict=True):
            place = self.logarithms[warp.slice // ROWS, row]
            ptx.store(place, logarithm, pred=(warp.lane & 3) == 0)
        for first in range(0, self.of.columns, self.config.exchange_columns):
            columns = min(self.config.exchange_columns, self.of.columns - first)
            if first:
                self.meet()  # the previous columns have been read
            self._write(warp, first, columns)
            self.meet()
            across = columns // VECTOR
            used = self.config.row_blocks * self.config.used_rows
            for begin in range(0, used * across, self.threads):
                number = thread + begin
                row, column = number // across, number % across * VECTOR
                exists = (row < used) & (row + segment.row < self.work.rows)
                vector = OutputVector(row, column + first, exists & (column + first < self.of.value_dim))
                vectors.append(vector)
                values.append(reg.array(f32, VECTOR, init=0.0))
                with ptx.if_(vector.exists):
                    self._add_warps(row, column, values[-1])
        return vectors, values

    def _write(self, warp: DecodeWarp, first: int, columns: int) -> None:
        """Write `columns` columns of a warp's O to the exchange."""
        number, used = ptx.special.tid.x() // WARP, self.config.used_rows
        with ptx.if_((warp.lane >> 2) < used) if used < HALF_ROWS else nullcontext():
            (self._write_narrow if self.of.fp8_kv else self._write_wide)(warp, number, first, columns)

    def _write_wide(self, warp: DecodeWarp, number: Register, first: int, columns: int) -> None:
        """`_write` for atoms that hold 8 adjacent columns each."""
        column = (warp.lane & 3) << 1
        for half in range(-(-self.config.used_rows // HALF_ROWS)):
            place = self.sums[number, (warp.lane >> 2) + HALF_ROWS * half, column].register()
            for atom in range(columns // BLOCK_N):
                at = (first // BLOCK_N + atom) * ACC_REGS + 2 * half
                ptx.store(ptx.addr(place, atom * BLOCK_N * f32.bytes), warp.out[at : at + 2], space="shared")

    def _write_narrow(self, warp: DecodeWarp, number: Register, first: int, columns: int) -> None:
        """`_write` for two atoms that hold the even and the odd of 16 columns: a lane has four adjacent columns."""
        for half in range(-(-self.config.used_rows // HALF_ROWS)):
            place = self.sums[number, (warp.lane >> 2) + HALF_ROWS * half, (warp.lane & 3) << 2].register()
            for chunk in range(columns // (2 * BLOCK_N)):
                even = (first // BLOCK_N + 2 * chunk) * ACC_REGS + 2 * half
                odd = even + ACC_REGS
                four = [warp.out[at] for at in (even, odd, even + 1, odd + 1)]
                ptx.store(ptx.addr(place, 2 * chunk * BLOCK_N * f32.bytes), RegisterArray(four), space="shared")

    def _logarithm(self, row: Register) -> tuple[Register, list[Register]]:
        """The logarithm of a row's sum over all warps, and the weight of each warp's O."""
        parts = [ptx.load(f32, self.logarithms[part, row]) for part in range(self.config.slices)]
        top = parts[0]
        for part in parts[1:]:
            top = ptx.math.max(top, part)
        base = finite(top)
        weights = [exp(part - base) for part in parts]
        total = weights[0]
        for weight in weights[1:]:
            total = total + weight
        factor = inverse(total)
        return base + log(total), [weight * factor for weight in weights]

    def _add_warps(self, row: Register, column: Register, into: RegisterArray) -> None:
        _, weights = self._logarithm(row)
        block, inside = row // ROWS, row % ROWS
        for part, weight in enumerate(weights):
            theirs = ptx.load(f32, self.sums[block * self.config.slices + part, inside, column], vector=VECTOR)
            for own, other in zip(into, theirs, strict=True):
                own.set(ptx.math.fma(weight, other, own))

    # -- CTAs --------------------------------------------------------------------------------------------------------

    def _share(self, segment: Segment, vectors: list[OutputVector], values: list[RegisterArray]) -> None:
        first, last = segment.owners
        block = self._block(self.work.shares.cta, first)
        for vector, part in zip(vectors, values, strict=True):
            with ptx.if_(vector.exists):
                logarithm, _ = self._logarithm(vector.row)
                ptx.store(ptx.addr(self._place(block, vector)), part)
                ptx.store(ptx.addr(self._row_place(block, vector.row)), logarithm, pred=vector.column == 0)
        parts = last - first + 1
        with ptx.if_(self._is_last(segment, parts)):
            for vector in vectors:
                with ptx.if_(vector.exists):
                    self._add_parts(segment, vector, first, parts)

    def _block(self, cta: Register, first: Register) -> Register:
        """Address of a CTA's part. A CTA has two: one for the head and rows that it begins, one for those of an earlier
        CTA."""
        assert self.workspace is not None
        number = cta * 2 + ptx.select(cta == first, reg.scalar(u32, init=1), 0)
        return self.workspace.pointer() + number.to(u64) * (self.config.block_elements(self.of) * f32.bytes)

    def _place(self, block: Register, vector: OutputVector) -> Register:
        return block + ((vector.row * self.of.columns + vector.column) * f32.bytes).to(u64)

    def _row_place(self, block: Register, row: Register) -> Register:
        return block + ((row + self.config.tile_m * self.of.columns) * f32.bytes).to(u64)

    def _is_last(self, segment: Segment, parts: Register) -> Predicate:
        """True if all other CTAs have arrived; uniform across the consumer threads."""
        assert self.counters is not None
        self.meet()
        with ptx.if_(ptx.special.tid.x() == 0):
            place = self.counters.pointer() + (segment.number * u32.bytes).to(u64)
            ptx.store(self.arrived[0], ptx.atomic.inc(ptx.addr(place), parts - 1, order="acq_rel"))
        self.meet()
        is_last: Predicate = ptx.load(u32, self.arrived[0]) == parts - 1
        return is_last

    def _add_parts(self, segment: Segment, vector: OutputVector, first: Register, parts: Register) -> None:
        """Combine all CTAs' parts of an output vector, several at a time, and store the result."""
        top, total = reg.scalar(f32, init=-math.inf), reg.scalar(f32, init=0.0)
        sums = reg.array(f32, VECTOR, init=0.0)
        for begin in ptx.range(0, parts, self.config.splits_per_read, unroll=False):
            found = []
            for at in range(self.config.splits_per_read):
                exists = begin + at < parts
                block = self._block(first + ptx.select(exists, begin + at, 0), first)
                logarithm = ptx.load(f32, ptx.addr(self._row_place(block, vector.row)))
                loaded = ptx.load(f32, ptx.addr(self._place(block, vector)), vector=VECTOR)
                found.append((ptx.select(exists, logarithm, -math.inf), loaded))
            self._add_found(found, top, total, sums)
        self._store(segment, vector, *_finished(top, total, sums))

    def _combined(self, found: Sequence[tuple[Register, RegisterArray]]) -> tuple[RegisterArray, Register]:
        """Parts of four columns, (logarithm, columns) each, added up, and the logarithm of all."""
        top, total = reg.scalar(f32, init=-math.inf), reg.scalar(f32, init=0.0)
        sums = reg.array(f32, VECTOR, init=0.0)
        self._add_found(found, top, total, sums)
        return _finished(top, total, sums)

    def _add_found(
        self, found: Sequence[tuple[Register, RegisterArray]], top: Register, total: Register, sums: RegisterArray
    ) -> None:
        """Add parts to `sums` and their weights to `total`, both relative to e^top."""
        newest = top
        for logarithm, _ in found:
            newest = ptx.math.max(newest, logarithm)
        base = finite(newest)
        factor = exp(top - base)
        total *= factor
        for own in sums:
            own.set(own * factor)
        for logarithm, loaded in found:
            weight = exp(logarithm - base)
            total += weight
            for own, other in zip(sums, loaded, strict=True):
                own.set(ptx.math.fma(weight, other, own))
        top.set(newest)

    # -- the result --------------------------------------------------------------------------------------------------

    def _store(self, segment: Segment, vector: OutputVector, values: RegisterArray, logarithm: Register) -> None:
        """Store four columns of a complete row; with column 0, also its logarithm."""
        row = vector.row + segment.row
        query = row // self.out.group
        head = segment.head * self.out.group + (row - query * self.out.group)
        if self.sinks is not None:
            sink = ptx.load(f32, ptx.addr(self.sinks.pointer() + head.to(u64) * f32.bytes))
            base = finite(ptx.math.max(logarithm, sink))
            total = exp(logarithm - base) + exp(sink - base)
            factor = exp(logarithm - base) * inverse(total)
            for value in values:
                value.set(value * factor)
            logarithm = base + log(total)
        words = [pack(values[at : at + 2], self.of.dtype) for at in (0, 2)]
        place = self.out.of(segment, row) + (vector.column * self.of.dtype.bytes).to(u64)
        ptx.store(ptx.addr(place), RegisterArray(words))
        _, heads, queries = self.lse.shape
        line = (segment.sequence * heads + head).to(u64) * queries + query
        ptx.store(ptx.addr(self.lse.pointer() + line * f32.bytes), logarithm, pred=vector.column == 0)


def _finished(top: Register, total: Register, sums: RegisterArray) -> tuple[RegisterArray, Register]:
    """The normalised columns and their logarithm."""
    factor = inverse(total)
    for own in sums:
        own.set(own * factor)
    return sums, finite(top) + log(total)


def finite(value: Register) -> Register:
    """The value, or 0 for -inf, because -inf - -inf is NaN."""
    return ptx.select(value == -math.inf, 0.0, value)


def exp(value: Register) -> Register:
    """e^value, with the 2 ulp error of ex2."""
    return ptx.math.ex2(value * LOG2_E)


def log(value: Register) -> Register:
    """The natural logarithm."""
    return ptx.math.lg2(value) * (1 / LOG2_E)


def inverse(total: Register) -> Register:
    """1 / total, and 0 for 0."""
    return ptx.select(total == 0.0, 0.0, ptx.math.rcp(total))
