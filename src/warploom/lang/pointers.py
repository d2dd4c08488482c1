"""Addresses: memory operands, tensor-map operands, the pointers of a kernel's arrays, load and store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..asm import nodes
from ..isa import dtypes
from ..isa.dtypes import DType
from .arrays import RegisterArray
from .emit import Operand, issue
from .trace import Trace
from .values import Register, new

if TYPE_CHECKING:
    from .tile import ArrayHandle


class Address(Operand):
    """A memory operand `[register+offset]`. Made by `ptx.addr`."""

    def __init__(self, base: Register, offset: int = 0) -> None:
        self.trace = base.trace
        self.base, self.offset = base, offset
        self.origin = base.origin
        self.code = ("[", base.code)

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return nodes.Address(self.base.node, self.offset)

    def __add__(self, offset: int) -> Address:
        return Address(self.base, self.offset + offset)

    def __repr__(self) -> str:
        return f"Address({self.base.name}+{self.offset})"


def addr(pointer: Register | Operand, offset: int = 0) -> Operand:
    """A pointer as a memory operand, `[pointer+offset]`; `offset` is a Python int in bytes.

    A pointer is a 64-bit register (global or generic) or a 32-bit one (shared). Shared-memory addresses of `smem` are
    already memory operands and are returned unchanged.
    """
    trace = Trace.current()
    if not isinstance(offset, int):
        raise trace.error(
            "the offset of ptx.addr is part of the instruction, so it must be a Python int",
            got=repr(offset),
            hint="add a register to the pointer: ptx.addr(pointer + offset)",
        )
    if not isinstance(pointer, Register):
        if isinstance(pointer, Operand) and hasattr(pointer, "shift"):
            return pointer.shift(offset)
        raise trace.error("ptx.addr takes a pointer in a register", got=repr(pointer))
    if pointer.dtype.is_float or pointer.dtype.bits not in (32, 64):
        raise trace.error("a pointer has 32 or 64 bits and is an integer", got=repr(pointer))
    return Address(pointer, offset)


class TensorMap(Operand):
    """The tensor map of one of the kernel's arrays, made by `A.tma_desc()`.

    On its own, as an operand, it is the address of the 128-byte map. With coordinates (innermost first), it is an
    operand of tensor copies: `ptx.tensor_address(map, (x, y))`. `box`: elements of one copy, innermost first.
    """

    def __init__(self, register: Register, array: ArrayHandle, box: tuple[int, ...]) -> None:
        self.trace = register.trace
        self.register, self.array, self.box = register, array, box
        self.code = ("[", register.code)
        self.origin = frozenset((array.name,))

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return nodes.Address(self.register.node) if kind == "address" else self.register.node

    @property
    def tile_axes(self) -> tuple[int, int]:
        """The two dimensions that a tile covers: the innermost, and the other one in which the box is longer than 1.
        Raises TraceError for a box that is longer than 1 in three dimensions."""
        wide = [axis for axis, extent in enumerate(self.box) if axis and extent > 1]
        if len(wide) > 1:
            raise self.trace.error(
                f"the box of {self.array.name} extends over more than two dimensions",
                expected="a box with 1 in all but the innermost and one other dimension",
                got=self.box,
            )
        return 0, wide[0] if wide else 1

    def moved(self, coordinates: Sequence[Register | int], steps: Sequence[Register | int]) -> list[Register | int]:
        """The coordinates, moved by `steps` elements along the two `tile_axes`."""
        found = list(coordinates)
        for axis, step in zip(self.tile_axes, steps, strict=True):
            if isinstance(step, Register) or step:
                found[axis] = found[axis] + step
        return found

    def __repr__(self) -> str:
        return f"TensorMap({self.array.name})"


class TensorAddress(Operand):
    """`[map, {x, y, ...}]`."""

    def __init__(self, trace: Trace, tensor_map: TensorMap, coordinates: Sequence[Register | int]) -> None:
        self.trace = trace
        self.origin = tensor_map.origin
        self.code = ("[", "map", *[c.code if isinstance(c, Register) else "#int" for c in coordinates])
        elements = [c.node if isinstance(c, Register) else nodes.Integer(int(c)) for c in coordinates]
        self._node = nodes.TensorAddress(nodes.Address(tensor_map.register.node), tuple(elements))

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return self._node


def tensor_address(
    tensor_map: TensorMap, coordinates: Sequence[Register | int], *, four_rows: bool = False
) -> TensorAddress:
    """A tensor map with the coordinates of a box, in elements, innermost first; numbers or 32-bit registers.

    four_rows: for .tile::gather4 and scatter4, a column and four rows of a matrix.
    """
    trace = Trace.current()
    if not isinstance(tensor_map, TensorMap):
        raise trace.error(
            "a tensor copy needs the tensor map of an array", got=repr(tensor_map), hint="pass A.tma_desc()"
        )
    if isinstance(coordinates, (Register, int)):
        coordinates = (coordinates,)
    rank = tensor_map.array.rank
    if four_rows and (rank, tensor_map.box[-1]) != (2, 1):
        raise trace.error(
            "a gather and a scatter of four rows take the tensor map of a matrix, with a box of one row",
            expected="Tile(M, N, dtype, box=(columns, 1))", got=f"{tensor_map.array!r}, box {tensor_map.box}",
        )  # fmt: skip
    if len(coordinates) != (rank := 5 if four_rows else rank):
        raise trace.error(
            f"{tensor_map.array.name} takes a column and four rows"
            if four_rows
            else f"{tensor_map.array.name} has {rank} dimensions",
            expected=f"{rank} coordinates, innermost first",
            got=len(coordinates),
        )
    for value in coordinates:
        if isinstance(value, Register) and (value.dtype.is_float or value.dtype.bits != 32):
            raise trace.error("a coordinate is a 32-bit integer", got=repr(value), hint="convert it with x.to(u32)")
        if not isinstance(value, (Register, int)) or (isinstance(value, int) and not -(1 << 31) <= value < 1 << 31):
            raise trace.error("a coordinate is a 32-bit integer", got=repr(value))
    return TensorAddress(trace, tensor_map, coordinates)


def global_ptrs(*arrays: ArrayHandle) -> tuple[Register, ...]:
    """The addresses of arrays in global memory, u64 registers (ld.param.u64, cvta.to.global.u64 in the prologue)."""
    return tuple(array.pointer() for array in arrays)


# -- loads and stores ------------------------------------------------------------------------------------------------


def _memory_type(dtype: DType) -> str:
    """The type in ld and st for a register of a type: floats by name, everything else as bits."""
    if dtype.name in ("f32", "f64") or dtype.is_integer:
        return dtype.name
    return f"b{dtype.bits}"


def load(dtype: DType, address: Operand, *, space: str = "", vector: int = 1, cache: str = "", pred: Any = None) -> Any:
    """Load from memory (one ld) into a new register, or with `vector` 2 or 4 into a RegisterArray.

    `space` is "global", "shared", …; by default "shared" for addresses made by `smem`, "global" for others. `cache` is
    a cache operator in front of the type, such as "nc" or "L1::no_allocate".
    """
    trace = Trace.current()
    dtype = dtypes.of(dtype)
    words = [
        "ld",
        space or _space_of(address),
        *filter(None, cache.split(".")),
        *([f"v{vector}"] if vector > 1 else []),
    ]
    opcode = ".".join([*words, _memory_type(dtype)])
    if vector == 1:
        result: Any = Register(trace, dtype)
    else:
        result = RegisterArray([Register(trace, dtype) for _ in range(vector)])
    issue(opcode, result, address, pred=pred, trace=trace)
    return result


def store(
    address: Operand, value: Any, *, space: str = "", cache: str = "", pred: Any = None, dtype: DType | None = None
) -> None:
    """Store a register, a number (with `dtype`), or 2 or 4 registers to memory (one st). `space` as in `load`."""
    trace = Trace.current()
    if isinstance(value, (int, float)):
        if dtype is None:
            raise trace.error("storing a Python number needs its type", got=value, hint="pass dtype=, or a register")
        value = new(trace, dtypes.of(dtype), value)
    several = isinstance(value, (list, tuple, RegisterArray))
    first = value[0] if several else value
    if not isinstance(first, Register):
        raise trace.error("store takes registers or a number", got=repr(value))
    words = [
        "st",
        space or _space_of(address),
        *filter(None, cache.split(".")),
        *([f"v{len(value)}"] if several else []),
    ]
    issue(".".join([*words, _memory_type(first.dtype)]), address, value, pred=pred, trace=trace)


def _space_of(address: object) -> str:
    return "shared" if hasattr(address, "shift") else "global"
