"""Copies between registers and tensor memory: tcgen05.ld and tcgen05.st of any number of registers (PTX ISA
9.7.16.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..isa.dtypes import DType
from ..isa.instructions.tcgen05 import MOST_REGISTERS, REGISTERS_OF_X1
from .arrays import RegisterArray
from .emit import issue
from .tensor_address import TensorAddress
from .trace import Trace
from .values import Register

_SPLIT = "16x32bx2"


def pieces(count: int, each: int = 1) -> Iterator[tuple[int, int]]:
    """(first, number) of the powers of two that `count` registers, a multiple of `each`, are split into."""
    at = 0
    while at < count:
        size = MOST_REGISTERS
        while size > count - at:
            size //= 2
        size = max(size, each)
        yield at, size
        at += size


def _shape(trace: Trace, split: int | None, shape: str) -> str:
    if split is not None:
        return _SPLIT
    known = [name for name in REGISTERS_OF_X1 if name != _SPLIT]
    if shape not in known:
        hint = "it is what split= makes" if shape == _SPLIT else None
        raise trace.error("tcgen05.ld and tcgen05.st have no such shape", expected=", ".join(known), got=shape,
                          hint=hint)  # fmt: skip
    return shape


def load(
    address: TensorAddress, count: int, dtype: DType, *, shape: str = "32x32b", packed: bool = False,
    split: int | None = None,
) -> RegisterArray:  # fmt: skip
    """tcgen05.ld of `count` new registers, with one instruction per power of two."""
    trace = address.trace
    shape = _shape(trace, split, shape)
    registers = [Register(trace, dtype) for _ in range(count)]
    for first, size in _moves(trace, count, shape):
        issue(
            _opcode("ld", shape, size, ".pack::16b" * packed), RegisterArray(registers[first : first + size]),
            _at(address, first, shape, packed), *(() if split is None else (split,)), trace=trace,
        )  # fmt: skip
    return RegisterArray(registers)


def store(
    address: TensorAddress, values: RegisterArray | Sequence[Register], *, shape: str = "32x32b", packed: bool = False,
    split: int | None = None,
) -> None:  # fmt: skip
    """tcgen05.st of registers, with one instruction per power of two."""
    trace = address.trace
    shape = _shape(trace, split, shape)
    held = list(values)
    for first, size in _moves(trace, len(held), shape):
        part = RegisterArray(held[first : first + size])
        where = _at(address, first, shape, packed)
        words = _opcode("st", shape, size, ".unpack::16b" * packed)
        if split is None:
            issue(words, where, part, trace=trace)
        else:
            issue(words, where, split, part, trace=trace)


def _opcode(what: str, shape: str, size: int, tail: str) -> str:
    return f"tcgen05.{what}.sync.aligned.{shape}.x{size // REGISTERS_OF_X1[shape]}{tail}.b32"


def _moves(trace: Trace, count: int, shape: str) -> list[tuple[int, int]]:
    each = REGISTERS_OF_X1[shape]
    if count < 1 or count % each:
        raise trace.error(f"a thread moves registers in multiples of {each} with .{shape}", got=count)
    return list(pieces(count, each))


_COLUMNS_OF_X1 = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}


def _at(address: TensorAddress, register: int, shape: str, packed: bool) -> TensorAddress:
    """The address for the instruction that begins with register `register`."""
    columns = register // REGISTERS_OF_X1[shape] * _COLUMNS_OF_X1[shape]
    return address + (columns * 2 if packed else columns)
