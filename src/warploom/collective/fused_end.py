"""From accumulators to what is stored: the steps of a `Fusion` in a thread's registers, on the way to `TmaStore`.

What belongs to a row is loaded once for each block of 64 rows, what belongs to a column or an element batch by batch:
as many groups of 8 columns as the registers beside the accumulators hold, before the thread waits for its store slot.
A thread has two neighbouring columns of a group in two rows, so it loads pairs. Nothing outside of D is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..isa.dtypes import DType, b16, b32, bf16, e4m3, e5m2, f16, f16x2, f32, u32
from ..lang import ptx, reg
from ..lang.arrays import RegisterArray
from ..lang.predicate import Predicate
from ..lang.tile import ArrayHandle
from ..lang.values import Register
from .activations import FUNCTIONS
from .fusion import Fusion
from .store_boxes import GROUP, own_thread

SPARE = 64
"""Registers for what is loaded ahead, where nothing else is said."""
_ALL_LANES = -1
_HALVES = range(2)
_HALF = 8
"""Rows between a thread's two."""


class FusedEnd:
    """A `tma_store.Transform`.

    Args:
        fusion: the steps.
        D: the output, for its sizes.
        given: the other arguments by name, as `fusion.fused_arguments` lists them: handles and registers.
        spare: registers that loaded values may take; what a consumer's thread has beside its accumulators, less 40.
        pdl: every consumer waits for the kernel before this one before it reads (griddepcontrol.wait).
    """

    def __init__(
        self, fusion: Fusion, D: ArrayHandle, given: Mapping[str, Any], *, spare: int = SPARE, pdl: bool = False
    ) -> None:
        fusion.check(D.dtype)
        self.fusion, self.D, self.given, self.spare, self.pdl = fusion, D, given, spare, pdl
        self.factor: Register | None = None
        self.scale_out: Register | None = None
        self.largest: Register | None = None
        self._begun = False

    def begin(self) -> None:
        """Factors of the whole product, and the maximum so far."""
        fusion, given = self.fusion, self.given
        if self.pdl:
            ptx.griddepcontrol.wait()
        factors = [given["alpha"]] if fusion.alpha else []
        if fusion.scales == "tensor":
            factors += [_number(given[name]) for name in ("scale_a", "scale_b")]
        self.factor = _product(factors)
        self.scale_out = _number(given["scale_out"]) if fusion.scale_out else None
        self.largest = reg.scalar(f32, init=0.0) if fusion.amax else None
        self._begun = True

    def block(self, row: Register, column: Register) -> FusedBlock:
        """The thread's part of a block of 64 rows: loads what belongs to its rows."""
        if not self._begun:
            raise self.D.trace.error(
                "a fused end is used before it begins",
                expected="begin() of the store, by every consumer before its first tile",
                consequence="the factors of the whole product would be missing",
            )
        return FusedBlock(self, row, column)

    def batch(self, groups: int, step: int) -> int:
        """How many groups are loaded together: as many as fit the spare registers, in steps."""
        each = self.registers_per_group()
        if not each:
            return groups
        return min(groups, max(self.spare // each // step, 1) * step)

    def registers_per_group(self) -> int:
        """Registers that take what one group of 8 columns needs."""
        fusion, size = self.fusion, self.D.dtype.bytes
        pairs = fusion.gate + fusion.addend
        bias = fusion.bias_type(self.D.dtype).bytes // 2 if fusion.bias == "column" else 0
        return 2 * (fusion.scales == "row") + bias + pairs * 2 * max(size // 2, 1)

    def finish(self) -> None:
        """The largest |x| of the warp goes to `amax`: of floats without sign the larger has the larger bits."""
        if self.largest is None:
            return
        most = reg.scalar(u32)
        ptx.inst.redux.sync.max.u32(most, self.largest.view(u32), _ALL_LANES)
        place = ptx.addr(self.given["amax"].pointer())
        ptx.inst.red.relaxed.gpu.global_.max.u32(place, most, pred=(ptx.special.tid.x() & 31) == 0)


@dataclass
class Loaded:
    """What one group of 8 columns needs; two columns of each row.

    Attributes:
        inside: whether the columns exist.
        scale, bias: of the columns.
        gate, addend: by the thread's two rows.
    """

    inside: Predicate | None = None
    scale: Pair | None = None
    bias: Pair | None = None
    gate: list[Pair] = field(default_factory=list)
    addend: list[Pair] = field(default_factory=list)


class FusedBlock:
    """One thread's part of a block of 64 rows: two rows, two columns of each group of 8."""

    def __init__(self, end: FusedEnd, row: Register, column: Register) -> None:
        self.end, self.fusion, self.given = end, end.fusion, end.given
        self.rows, self.columns = end.D.shape
        thread = own_thread()
        lane = thread & 31
        first = row + ((thread >> 5) << 4) + (lane >> 2)
        self.row = [first, first + _HALF]
        self.has_row = [mine < self.rows for mine in self.row]
        self.column = column + ((lane & 3) << 1)
        fusion = self.fusion
        self.row_bias = self._of_rows("bias") if fusion.bias == "row" else []
        self.row_factor = self._of_rows("scale_a") if fusion.scales == "row" else []
        if end.factor is not None:
            self.row_factor = [each * end.factor for each in self.row_factor] or [end.factor] * 2

    # -- loads -----------------------------------------------------------------------------------------------------

    def _of_rows(self, name: str) -> list[Register]:
        """One element of a vector for each of the thread's rows."""
        array: ArrayHandle = self.given[name]
        place = _at(array.pointer(), self.row[0], array.dtype.bytes)
        return [
            _one(array.dtype, place, half * _HALF * array.dtype.bytes, self.has_row[half]) for half in _HALVES
        ]  # fmt: skip

    def load(self, first: int, groups: int) -> list[Loaded]:
        """Begin to load what the groups from the tile's group `first` on need."""
        fusion, offsets = self.fusion, [(first + group) * GROUP for group in range(groups)]
        result = [Loaded() for _ in offsets]
        if not (fusion.amax or fusion.gate or fusion.addend or fusion.scales == "row" or fusion.bias == "column"):
            return result
        for loaded, offset in zip(result, offsets, strict=True):
            loaded.inside = self.column + offset < self.columns if offset else self.column < self.columns
        if fusion.scales == "row":
            for loaded, pair in zip(result, self._of_columns("scale_b", offsets, result), strict=True):
                loaded.scale = pair
        if fusion.bias == "column":
            for loaded, pair in zip(result, self._of_columns("bias", offsets, result), strict=True):
                loaded.bias = pair
        for name in ("gate", "addend"):
            if getattr(fusion, name):
                self._of_elements("C" if name == "addend" else name, offsets, result, name)
        return result

    def _of_columns(self, name: str, offsets: Sequence[int], result: Sequence[Loaded]) -> list[Pair]:
        array: ArrayHandle = self.given[name]
        size = array.dtype.bytes
        place = _at(array.pointer(), self.column, size)
        return [
            Pair.load(array.dtype, place, offset * size, loaded.inside)
            for offset, loaded in zip(offsets, result, strict=True)
        ]

    def _of_elements(self, name: str, offsets: Sequence[int], result: Sequence[Loaded], what: str) -> None:
        array: ArrayHandle = self.given[name]
        size = array.dtype.bytes
        pitch = self.columns * size
        start = _at(array.pointer(), self.column, size)
        for half in _HALVES:
            place = _at(start, self.row[half], pitch)
            for offset, loaded in zip(offsets, result, strict=True):
                assert loaded.inside is not None
                pair = Pair.load(array.dtype, place, offset * size, self.has_row[half] & loaded.inside)
                getattr(loaded, what).append(pair)

    # -- steps -----------------------------------------------------------------------------------------------------

    def apply(self, loaded: Loaded, values: RegisterArray) -> list[Register]:
        """The results of a group: two columns of the first row, two of the second."""
        scale = loaded.scale.values() if loaded.scale is not None else (None, None)
        bias = loaded.bias.values() if loaded.bias is not None else (None, None)
        results: list[Register] = []
        for half in _HALVES:
            gate = loaded.gate[half].values() if loaded.gate else (None, None)
            addend = loaded.addend[half].values() if loaded.addend else (None, None)
            for j in _HALVES:
                factors = [factor for factor in (*self.row_factor[half : half + 1], scale[j]) if factor is not None]
                sum_of = self.row_bias[half] if self.row_bias else bias[j]
                x = self._element(values[2 * half + j].to(f32), factors, sum_of, gate[j], addend[j])
                if self.end.largest is not None:
                    assert loaded.inside is not None
                    size = reg.scalar(f32)
                    ptx.inst.abs.f32(size, x)
                    most = self.end.largest
                    ptx.inst.max.NaN.f32(most, most, size, pred=self.has_row[half] & loaded.inside)
                results.append(x if self.end.scale_out is None else x * self.end.scale_out)
        return results

    def _element(
        self, x: Register, factors: list[Register], bias: Register | None, gate: Register | None,
        addend: Register | None,
    ) -> Register:  # fmt: skip
        """One element, up to the addend."""
        last = factors.pop() if factors and bias is not None else None
        for factor in factors:
            x = x * factor
        if bias is not None:
            x = x + bias if last is None else _fma(x, last, bias)
        if self.fusion.activation is not None:
            x = FUNCTIONS[self.fusion.activation](x)
        if gate is not None:
            x = x * gate
        if addend is not None:
            x = _fma(addend, self.given["beta"], x)
        return x


# -- pairs of neighbouring elements ------------------------------------------------------------------------------------


@dataclass
class Pair:
    """Two neighbouring elements as they were loaded; they become f32 where they are used."""

    dtype: DType
    words: Any

    @classmethod
    def load(cls, dtype: DType, place: Register, offset: int, inside: Predicate | None) -> Pair:
        """One load of both (ld.global.nc), where they exist."""
        address = ptx.addr(place, offset)
        if dtype is f32:
            return cls(dtype, ptx.load(f32, address, vector=2, cache="nc", pred=inside))
        return cls(dtype, ptx.load(b32 if dtype.bits == 16 else b16, address, cache="nc", pred=inside))

    def values(self) -> tuple[Register, Register]:
        """Both as f32."""
        if self.dtype is f32:
            return self.words[0], self.words[1]
        if self.dtype is bf16:
            return (self.words << 16).view(f32), (self.words & 0xFFFF0000).view(f32)
        word = self.words
        if self.dtype in (e4m3, e5m2):
            word = reg.scalar(f16x2)
            ptx.inst(f"cvt.rn.f16x2.{self.dtype}x2", word, self.words)
        low, high = reg.scalar(f16), reg.scalar(f16)
        ptx.inst.mov.b32([low, high], word)
        return low.to(f32), high.to(f32)


def _one(dtype: DType, place: Register, offset: int, inside: Predicate) -> Register:
    """One element as f32, where it exists."""
    return ptx.load(dtype, ptx.addr(place, offset), cache="nc", pred=inside).to(f32)


def _number(array: ArrayHandle) -> Register:
    """The one f32 of an array."""
    return ptx.load(f32, ptx.addr(array.pointer()), cache="nc")


def _at(pointer: Register, index: Register, size: int | Register) -> Register:
    """pointer + index * size (mad.wide.u32)."""
    result = reg.scalar(pointer.dtype)
    ptx.inst.mad.wide.u32(result, index, size, pointer)
    return result


def _fma(a: Register, b: Register, c: Register) -> Register:
    result = reg.scalar(f32)
    ptx.inst.fma.rn.f32(result, a, b, c)
    return result


def _product(factors: Sequence[Register]) -> Register | None:
    if not factors:
        return None
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result
