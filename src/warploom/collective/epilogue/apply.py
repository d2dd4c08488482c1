"""From accumulators to what is stored: the steps of a `Fusion` in a thread's registers, on the way to `TmaStore`.

What belongs to a row is loaded once for each block of 64 rows, what belongs to a column batch by batch: as many groups
of 8 columns as the registers beside the accumulators hold, before the thread waits for its store slot. What belongs to
an element comes by TMA (`beside`). Nothing outside of D is read: vectors have no more elements than D rows or columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...isa.dtypes import DType, f32, u32
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .activations import FUNCTIONS
from .smem_tile import GROUP, own_thread
from .spec import Fusion

SPARE = 64
"""Registers for what is loaded ahead, where nothing else is said."""
_ALL_LANES = -1
_PAIR = range(2)
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
        self.vectors_from: Register | None = None
        """Where the vectors along the columns begin, in elements: those of a group, of a grouped product."""
        self.largest: Register | None = None
        self._begun = False
        elements = (("gate", fusion.gate), ("C", fusion.addend))
        self.beside: Sequence[ArrayHandle] = [given[name] for name, there in elements if there]

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
        vectors = (self.fusion.scales == "row") + (self.fusion.bias == "column")
        return 2 * vectors + 2 * max(self.D.dtype.bytes // 2, 1) * len(self.beside)

    def first_row(self, array: ArrayHandle, row: Register) -> Register:
        """Where the rows of a gate or of C begin: as in D; where beta is 0, those of C behind its last one."""
        if not self.fusion.addend or array is not self.given["C"]:
            return row
        return ptx.select(self.given["beta"] == 0.0, self.D.shape[0], row)

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
    """What the two columns of a thread in one group need.

    Attributes:
        inside: whether the columns exist.
        scale, bias: of the columns.
    """

    inside: list[Predicate] = field(default_factory=list)
    scale: list[Register] = field(default_factory=list)
    bias: list[Register] = field(default_factory=list)


class FusedBlock:
    """One thread's part of a block of 64 rows: two rows, two columns of each group of 8."""

    def __init__(self, end: FusedEnd, row: Register, column: Register) -> None:
        self.end, self.fusion, self.given = end, end.fusion, end.given
        self.rows, self.columns = end.D.shape
        thread = own_thread()
        lane = thread & 31
        self.row = row + ((thread >> 5) << 4) + (lane >> 2)
        self.has_row = [self.row + half * _HALF < self.rows for half in _PAIR]
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
        place = _at(array.pointer(), self.row, array.dtype.bytes)
        return [_one(array.dtype, place, half * _HALF, inside) for half, inside in enumerate(self.has_row)]

    def load(self, first: int, groups: int) -> list[Loaded]:
        """Begin to load what the groups from the tile's group `first` on need."""
        fusion, offsets = self.fusion, [(first + group) * GROUP for group in range(groups)]
        result = [Loaded() for _ in offsets]
        vectors = [
            (name, what) for name, what, there in
            (("scale_b", "scale", fusion.scales == "row"), ("bias", "bias", fusion.bias == "column")) if there
        ]  # fmt: skip
        if vectors or fusion.amax:
            for loaded, offset in zip(result, offsets, strict=True):
                loaded.inside = [self.column + (offset + j) < self.columns for j in _PAIR]
        for name, what in vectors:
            array: ArrayHandle = self.given[name]
            begin = self.end.vectors_from
            column = self.column if begin is None else self.column + begin
            place = _at(array.pointer(), column, array.dtype.bytes)
            for loaded, offset in zip(result, offsets, strict=True):
                elements = [_one(array.dtype, place, offset + j, inside) for j, inside in enumerate(loaded.inside)]
                setattr(loaded, what, elements)
        return result

    # -- steps -----------------------------------------------------------------------------------------------------

    def apply(self, loaded: Loaded, values: RegisterArray, beside: Sequence[Sequence[Register]] = ()) -> list[Register]:
        """The results of a group: two columns of the first row, two of the second."""
        results: list[Register] = []
        for at, accumulator in enumerate(values):
            half, j = divmod(at, 2)
            factors = [*self.row_factor[half : half + 1], *loaded.scale[j : j + 1]]
            biases = [*self.row_bias[half : half + 1], *loaded.bias[j : j + 1]]
            x = self._element(accumulator.to(f32), factors, biases, [elements[at] for elements in beside])
            if self.end.largest is not None:
                size, most = reg.scalar(f32), self.end.largest
                ptx.inst.abs.f32(size, x)
                ptx.inst.max.NaN.f32(most, most, size, pred=self.has_row[half] & loaded.inside[j])
            results.append(x if self.end.scale_out is None else x * self.end.scale_out)
        return results

    def _element(
        self, x: Register, factors: list[Register], biases: list[Register], beside: list[Register]
    ) -> Register:  # fmt: skip
        """One element, up to the addend."""
        last = factors.pop() if factors and biases else None
        for factor in factors:
            x = x * factor
        for bias in biases:
            x = x + bias if last is None else _fma(x, last, bias)
        if self.fusion.activation is not None:
            x = FUNCTIONS[self.fusion.activation](x)
        if self.fusion.gate:
            x = x * beside[0]
        if self.fusion.addend:
            x = _fma(beside[-1], self.given["beta"], x)
        return x


# -- elements ----------------------------------------------------------------------------------------------------------


def _one(dtype: DType, place: Register, index: int, inside: Predicate) -> Register:
    """Element `index` behind an address as f32; 0 where it does not exist.

    It is 0 first: a register that is only written under a guard would live through the main loop.
    """
    value = reg.scalar(dtype, init=0.0)
    kind = dtype.name if dtype is f32 else f"b{dtype.bits}"
    ptx.inst(f"ld.global.{kind}", value, ptx.addr(place, index * dtype.bytes), pred=inside)
    return value.to(f32)


def _number(array: ArrayHandle) -> Register:
    """The one f32 of an array."""
    return ptx.load(f32, ptx.addr(array.pointer()))


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
