"""From accumulators to the elements of D: the steps of a `Fusion` in a thread's registers.

A thread's fragment (`mma.fragment`) has two indices along one dimension of D, 8 apart, and two adjacent indices of
every 8 along the other. Usually the two are rows and the many are columns; if the product is computed transposed, as
for few rows of A, it is the other way round. Vector elements for the two indices are loaded once per block of 64. Those
for the many indices are loaded in batches of as many atoms as spare registers allow. A gate or an addend is loaded when
its element is stored. Nothing outside D is read: vectors have no more elements than D has rows or columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...isa.dtypes import f32, u32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import HALF_ROWS, first_column, first_row, load_as_f32, thread_of_warpgroup
from ..tile.roles import WARP
from ..tile.sizes import ACC_ATOM_N
from .activations import FUNCTIONS
from .spec import Fusion

SPARE_REGS = 64
"""Registers for values loaded ahead, by default."""
_PAIR = range(2)


class Ahead(Protocol):
    """Vectors that were loaded before a tile's main loop, such as `tile_vectors.TileVectors`."""

    def release(self) -> None: ...

    def near(self, row: Register) -> list[Register]: ...

    def along(self, name: str, first: int, atoms: int) -> list[list[Register]]: ...


class Epilogue:
    """The steps of one kernel's epilogue.

    Args:
        fusion: the steps.
        D: the output, for its sizes.
        args: the other arguments by name, as `arguments.epilogue_arguments` lists them: handles and registers.
        spare: registers that loaded values may take: those of a consumer's thread that hold neither accumulators nor
            addresses nor counters.
        pdl: every consumer waits for the previous kernel before it reads (griddepcontrol.wait).
    """

    def __init__(
        self, fusion: Fusion, D: ArrayHandle, args: Mapping[str, Any], *, spare: int = SPARE_REGS, pdl: bool = False
    ) -> None:
        fusion.check(D.dtype)
        self.fusion, self.D, self.args, self.spare, self.pdl = fusion, D, args, spare, pdl
        self.factor: Register | None = None
        self.scale_out: Register | None = None
        self.vectors_from: Register | None = None
        """First element of the vectors along the columns; in a grouped product, the group's first."""
        self.ahead: Ahead | None = None
        """The vectors of the present tile, if they were loaded before its main loop."""
        self.largest: Register | None = None
        self._begun = False
        elements = (("gate", fusion.gate), ("C", fusion.addend))
        self.operands: Sequence[ArrayHandle] = [args[name] for name, there in elements if there]
        """Arrays like D that are read element by element: the gate, then C."""

    def begin(self) -> None:
        """Load the factors of the whole product. All threads of a consumer call this once, before its first tile."""
        fusion, args = self.fusion, self.args
        if self.pdl:
            ptx.griddepcontrol.wait()
        factors = [args["alpha"]] if fusion.alpha else []
        if fusion.scales == "tensor":
            factors += [_number(args[name]) for name in ("scale_a", "scale_b")]
        self.factor = _product(factors)
        self.scale_out = _number(args["scale_out"]) if fusion.scale_out else None
        self.largest = reg.scalar(f32, init=0.0) if fusion.amax else None
        self._begun = True

    def block(self, row: Register, column: Register) -> EpilogueBlock:
        """The thread's part of the block of 64 rows at (row, column)."""
        if not self._begun:
            raise self.D.trace.error(
                "an epilogue is used before it begins",
                expected="begin() of the store, by every consumer before its first tile",
                consequence="the factors of the whole product would be missing",
            )
        return EpilogueBlock(self, row, column).load_near()

    def finished(
        self, x: Register, factors: list[Register], biases: Sequence[Register], operands: Sequence[Register]
    ) -> Register:
        """An element before the output's scale: factors, bias, activation, and its elements of the operands.

        The last factor and the bias are one fma.
        """
        last = factors.pop() if factors and biases else None
        for factor in factors:
            x = x * factor
        for bias in biases:
            x = x + bias if last is None else ptx.math.fma(x, last, bias)
        if self.fusion.activation is not None:
            x = FUNCTIONS[self.fusion.activation](x)
        if self.fusion.gate:
            x = x * operands[0]
        if self.fusion.addend:
            x = ptx.math.fma(operands[-1], self.args["beta"], x)
        return x

    def batch(self, atoms: int, step: int) -> int:
        """The number of atoms loaded together: as many as fit the spare registers, in multiples of `step`."""
        each = self.registers_per_atom()
        if not each:
            return atoms
        return min(atoms, max(self.spare // each // step, 1) * step)

    def registers_per_atom(self) -> int:
        """Registers that hold the operands of one atom of 8 columns."""
        vectors = (self.fusion.scales == "row") + (self.fusion.bias == "column")
        return 2 * vectors + 2 * max(self.D.dtype.bytes // 2, 1) * len(self.operands)

    def first_row(self, array: ArrayHandle, row: Register) -> Register:
        """The row of an operand that matches D's `row`. For C, the row after its last if beta is 0, so that TMA fills
        zeros and reads nothing."""
        if not self.fusion.addend or array is not self.args["C"]:
            return row
        return ptx.select(self.args["beta"] == 0.0, self.D.shape[0], row)

    def finish(self) -> None:
        """Update `amax` with the largest |x| of the warp; once, after the last tile.

        For floats without a sign, the larger value has the larger bits.
        """
        if self.largest is None:
            return
        most = reg.scalar(u32)
        ptx.inst.redux.sync.max.u32(most, self.largest.view(u32), -1)
        address = ptx.addr(self.args["amax"].pointer())
        ptx.inst.red.relaxed.gpu.global_.max.u32(address, most, pred=(ptx.special.tid.x() & 31) == 0)


@dataclass
class Loaded:
    """The operands of a thread's two indices of one atom.

    Attributes:
        inside: whether the indices exist; empty for a transposed product, which has too many for registers.
        scale, bias: their elements of the vectors.
    """

    inside: list[Predicate] = field(default_factory=list)
    scale: list[Register] = field(default_factory=list)
    bias: list[Register] = field(default_factory=list)


class EpilogueBlock:
    """One thread's part of a block of 64: two indices 8 apart ("near"), and two of each atom along the other dimension.

    The near indices are rows, or columns if the product is computed transposed.

    Attributes:
        warp_near: the first near index of the thread's warp.
        near, along: the thread's first index of each kind.
        has_near: whether its two near indices exist.
    """

    def __init__(self, epilogue: Epilogue, row: Register, column: Register, *, transposed: bool = False) -> None:
        self.epilogue, self.fusion, self.transposed = epilogue, epilogue.fusion, transposed
        rows, columns = epilogue.D.shape[-2:]
        near, along, extent, self.extent = (column, row, columns, rows) if transposed else (row, column, rows, columns)
        if transposed:
            lane, thread = ptx.special.tid.x() & (WARP - 1), thread_of_warpgroup()
        else:
            thread = thread_of_warpgroup()
            lane = thread & (WARP - 1)
        self.warp_near, self.near = first_row(thread, near, lane)
        self.has_near = [self.near + half * HALF_ROWS < extent for half in _PAIR]
        self.along = first_column(lane, along)
        scales = self.fusion.scales == "row"
        vectors = (
            ("scale_a" if transposed else "scale_b", "scale", scales),
            ("bias", "bias", self.fusion.bias == ("row" if transposed else "column")),
        )
        self._vectors = [(name, what) for name, what, there in vectors if there]

    # -- loads -----------------------------------------------------------------------------------------------------

    def load_near(self) -> EpilogueBlock:
        """Load the vector elements of the near indices; `Epilogue.begin` has loaded the factors of the whole
        product."""
        fusion, factor = self.fusion, self.epilogue.factor
        near_bias, near_scale = ("column", "scale_b") if self.transposed else ("row", "scale_a")
        self._near_bias = self._near_elements("bias") if fusion.bias == near_bias else []
        self._near_factor = self._near_elements(near_scale) if fusion.scales == "row" else []
        if factor is not None:
            self._near_factor = [each * factor for each in self._near_factor] or [factor] * 2
        return self

    def _near_elements(self, name: str) -> list[Register]:
        """One element of a vector for each of the near indices."""
        if self.epilogue.ahead is not None:
            return self.epilogue.ahead.near(self.near)
        array: ArrayHandle = self.epilogue.args[name]
        address = self._address(array, self.near)
        return [load_as_f32(array.dtype, address, half * HALF_ROWS, there) for half, there in enumerate(self.has_near)]

    def _address(self, array: ArrayHandle, index: Register) -> Register:
        """The address of an element of a vector, computed as in the kernels that were measured."""
        size = array.dtype.bytes
        if self.transposed:
            return array.pointer() + index.to(u64) * size
        result = reg.scalar(u64)
        ptx.inst.mad.wide.u32(result, index, size, array.pointer())
        return result

    def exists(self, atom: int, j: int) -> Predicate:
        """True if the index along the other dimension exists."""
        return self.along + (atom * ACC_ATOM_N + j) < self.extent

    def load(self, first: int, atoms: int) -> list[Loaded]:
        """Start loading the operands of atoms, from the tile's atom `first`."""
        result = [Loaded() for _ in range(atoms)]
        if self.epilogue.ahead is not None:
            for name, what in self._vectors:
                for loaded, elements in zip(result, self.epilogue.ahead.along(name, first, atoms), strict=True):
                    setattr(loaded, what, elements)
            return result
        if not self.transposed and (self._vectors or self.fusion.amax):
            for atom, loaded in enumerate(result, first):
                loaded.inside = [self.exists(atom, j) for j in _PAIR]
        for name, what in self._vectors:
            array: ArrayHandle = self.epilogue.args[name]
            begin = self.epilogue.vectors_from
            address = self._address(array, self.along if begin is None else self.along + begin)
            for atom, loaded in enumerate(result, first):
                elements = []
                for j in _PAIR:
                    inside = loaded.inside[j] if loaded.inside else self.exists(atom, j)
                    elements.append(load_as_f32(array.dtype, address, atom * ACC_ATOM_N + j, inside))
                setattr(loaded, what, elements)
        return result

    # -- steps -----------------------------------------------------------------------------------------------------

    def apply(
        self, loaded: Loaded, values: RegisterArray, operands: Sequence[Sequence[Register]] = ()
    ) -> list[Register]:
        """The results of an atom's four accumulators; `operands`: the same four elements of each operand."""
        return [
            self.element(value, *divmod(at, 2), loaded, [elements[at] for elements in operands])
            for at, value in enumerate(values)
        ]

    def element(
        self, value: Register, half: int, j: int, loaded: Loaded, operands: Sequence[Register] = ()
    ) -> Register:
        """The result of one accumulator: near index `half`, index `j` of its atom, its elements of the operands.

        The factor of the row comes first. The last factor and the bias are one fma.
        """
        x = value.to(f32)
        factors = [*self._near_factor[half : half + 1], *loaded.scale[j : j + 1]]
        if self.transposed:
            factors.reverse()
        biases = [*self._near_bias[half : half + 1], *loaded.bias[j : j + 1]]
        x = self.epilogue.finished(x, factors, biases, operands)
        if self.epilogue.largest is not None:
            size, most = ptx.math.abs(x), self.epilogue.largest
            ptx.inst.max.NaN.f32(most, most, size, pred=self.has_near[half] & loaded.inside[j])
        return x if self.epilogue.scale_out is None else x * self.epilogue.scale_out


def _number(array: ArrayHandle) -> Register:
    """The single f32 of an array."""
    return ptx.load(f32, ptx.addr(array.pointer()))


def _product(factors: Sequence[Register]) -> Register | None:
    if not factors:
        return None
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result
