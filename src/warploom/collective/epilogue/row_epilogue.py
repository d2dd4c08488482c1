"""The steps of a `Fusion` for a thread that holds consecutive columns of one row, as from tensor memory.

Elements for the row are loaded once. Elements for the columns are the same in all lanes of a warp: one broadcast per
column. Of a gate and an addend, a thread reads as many bytes of its row as it stores at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import DType, b16, b32, f16, f16x2, f32, u64
from ...lang import ptx, reg
from ...lang.emit import Operand
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import load_as_f32, pack, unpack
from .apply import Epilogue

WORD_BYTES = 4


class RowEpilogue:
    """The epilogue of one thread's row of one tile.

    Args:
        epilogue: the epilogue, after `begin`.
        row: the thread's row; exists: whether D has it.
        column: the tile's first column.
    """

    def __init__(self, epilogue: Epilogue, row: Register, column: Register, exists: Predicate) -> None:
        self.epilogue, self.column, fusion = epilogue, column, epilogue.fusion
        args = epilogue.args
        self._biases = [self._of_row("bias", row, exists)] if fusion.bias == "row" else []
        self._factors = [self._of_row("scale_a", row, exists)] if fusion.scales == "row" else []
        if epilogue.factor is not None:
            self._factors = [each * epilogue.factor for each in self._factors] or [epilogue.factor]
        self._addresses = [address_of(array, row, column) for array in epilogue.operands]
        self._wanted: list[Predicate | None] = [None] * len(self._addresses)
        if fusion.addend:
            self._wanted[-1] = args["beta"] != 0.0  # C is not read if beta is 0

    def _of_row(self, name: str, row: Register, exists: Predicate) -> Register:
        return _element(self.epilogue.args[name], row, exists)

    def _of_column(self, name: str, at: int, inside: Predicate) -> Register:
        array: ArrayHandle = self.epilogue.args[name]
        first, begin = self.column, self.epilogue.vectors_from
        address = array.pointer() + (first if begin is None else first + begin).to(u64) * array.dtype.bytes
        return load_as_f32(array.dtype, address, at, inside)

    def piece(self, values: Sequence[Register], at: int, inside: Predicate) -> list[Register]:
        """The results of consecutive columns, from the tile's column `at`; either all are inside D, or none."""
        operands = []
        for array, address, wanted in zip(self.epilogue.operands, self._addresses, self._wanted, strict=True):
            there = inside if wanted is None else inside & wanted
            operands.append(load_piece(array.dtype, address, at, len(values), there))
        return [
            self._element(value, at + index, inside, [operand[index] for operand in operands])
            for index, value in enumerate(values)
        ]

    def _element(self, value: Register, at: int, inside: Predicate, operands: Sequence[Register]) -> Register:
        epilogue, fusion = self.epilogue, self.epilogue.fusion
        factors, biases = list(self._factors), list(self._biases)
        if fusion.scales == "row":
            factors.append(self._of_column("scale_b", at, inside))
        if fusion.bias == "column":
            biases.append(self._of_column("bias", at, inside))
        x = epilogue.finished(value.to(f32), factors, biases, operands)
        if epilogue.largest is not None:
            ptx.inst.max.NaN.f32(epilogue.largest, epilogue.largest, ptx.math.abs(x), pred=inside)
        return x if epilogue.scale_out is None else x * epilogue.scale_out


class ColumnEpilogue:
    """The epilogue of one thread's column of a tile that is computed transposed; its rows come one after the other.

    Args:
        epilogue: the epilogue, after `begin`.
        row: the first row; column: the thread's column; exists: whether D has it.
    """

    def __init__(self, epilogue: Epilogue, row: Register, column: Register, exists: Predicate) -> None:
        self.epilogue, self.row, self.column, fusion = epilogue, row, column, epilogue.fusion
        self._biases = [_element(epilogue.args["bias"], column, exists)] if fusion.bias == "column" else []
        self._factors = [_element(epilogue.args["scale_b"], column, exists)] if fusion.scales == "row" else []

    def element(self, value: Register, number: int, inside: Predicate) -> Register:
        """The result `number` rows after the first; rows must be requested in order."""
        epilogue, fusion, row = self.epilogue, self.epilogue.fusion, self.row + number
        factors = [epilogue.factor] if epilogue.factor is not None else []
        biases = list(self._biases)
        if fusion.scales == "row":
            factors += [_element(epilogue.args["scale_a"], row, inside), *self._factors]
        if fusion.bias == "row":
            biases.append(_element(epilogue.args["bias"], row, inside))
        operands = []
        for array in epilogue.operands:
            there = inside
            if fusion.addend and array is epilogue.args["C"]:
                there = inside & (epilogue.args["beta"] != 0.0)
            operands.append(load_as_f32(array.dtype, address_of(array, row, self.column), 0, there))
        if fusion.empty:
            return value
        x = epilogue.finished(value.to(f32), factors, biases, operands)
        if epilogue.largest is not None:
            ptx.inst.max.NaN.f32(epilogue.largest, epilogue.largest, ptx.math.abs(x), pred=inside)
        return x if epilogue.scale_out is None else x * epilogue.scale_out


def _element(array: ArrayHandle, index: Register, inside: Predicate) -> Register:
    """An element of a vector as f32."""
    return load_as_f32(array.dtype, array.pointer() + index.to(u64) * array.dtype.bytes, 0, inside)


def address_of(array: ArrayHandle, row: Register, column: Register) -> Register:
    """The address of an element of a matrix whose rows are contiguous."""
    pitch = array.row_stride() if array.spec.order == "rows" else array.shape[1]
    return array.pointer() + (row.to(u64) * pitch + column) * array.dtype.bytes


def load_piece(dtype: DType, address: Register, at: int, count: int, inside: Predicate) -> list[Register]:
    """`count` elements at index `at` after an address in global memory, as f32; zeros if not `inside`."""
    if count == 1:
        return [load_as_f32(dtype, address, at, inside)]
    words = [reg.scalar(b32, init=0) for _ in range(count * dtype.bytes // WORD_BYTES)]
    vector = f"v{len(words)}." if len(words) > 1 else ""
    ptx.inst(f"ld.global.{vector}b32", words if vector else words[0], ptx.addr(address, at * dtype.bytes), pred=inside)
    return [element for word in words for element in elements_of(word, dtype)]


def elements_of(word: Register, dtype: DType) -> tuple[Register, ...]:
    """The elements of four bytes as f32, in memory order."""
    if dtype is f32:
        return (word.view(f32),)
    if dtype.bits == 16:
        return unpack(word, dtype)
    halves = [reg.scalar(b16), reg.scalar(b16)]
    ptx.inst.mov.b32(halves, word)
    pairs = [reg.scalar(f16x2) for _ in halves]
    for pair, half in zip(pairs, halves, strict=True):
        ptx.inst(f"cvt.rn.f16x2.{dtype}x2", pair, half)
    return tuple(element for pair in pairs for element in unpack(pair, f16))


def words_of(values: Sequence[Register], dtype: DType) -> list[Register]:
    """Consecutive results as words of four bytes, rounded to nearest even."""
    if dtype.bits == 32:
        return list(values)
    if dtype.bits == 16:
        return [pack(values[i : i + 2], dtype) for i in range(0, len(values), 2)]
    words = []
    for i in range(0, len(values), 4):
        halves, word = [reg.scalar(b16), reg.scalar(b16)], reg.scalar(b32)
        for half, first in zip(halves, (i, i + 2), strict=True):
            ptx.inst(f"cvt.rn.satfinite.{dtype}x2.f32", half, values[first + 1], values[first])
        ptx.inst.mov.b32(word, halves)
        words.append(word)
    return words


def store_element(address: Operand, value: Register, dtype: DType, inside: Predicate) -> None:
    """Store one result, rounded to nearest even; the value is f32 or s32."""
    if dtype.bits > 8:
        ptx.store(address, value.to(dtype), pred=inside)
        return
    pair = reg.scalar(b16)
    ptx.inst(f"cvt.rn.satfinite.{dtype}x2.f32", pair, reg.scalar(f32, init=0.0), value)
    ptx.inst.st.global_.b8(address, pair, pred=inside)
