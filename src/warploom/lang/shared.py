"""Shared memory: arrays, mbarriers and operand tiles, laid out consecutively in one variable named `smem`.

Offsets are computed here, at allocation, in the order of the calls; `kernel.protocol()` lists them. Up to 48 KiB the
variable is static; above that it is `.extern` and the launch sets the size. Indexing gives an address: constant
(`[smem+1040]`) for a Python int, computed (mad.lo.u32) for a register.
"""

from __future__ import annotations

from typing import Any

from ..asm import nodes
from ..isa import arch as isa_arch
from ..isa import dtypes
from ..isa.dtypes import DType
from .emit import Operand, issue
from .protocol import Buffer
from .source import assigned_name
from .trace import Trace
from .values import Register

SYMBOL = "smem"
Index = int | Register


# -- allocation ----------------------------------------------------------------------------------------------------


def assigned_to(trace: Trace) -> str:
    """The variable that the user's line assigns to (`sA = smem...`), for names in the protocol; "" if there is none."""
    frame = trace.location.frame()
    return assigned_name(frame) if frame is not None else ""


def allocate(kind: str, size: int, align: int, name: str, detail: str, count: int = 1) -> Buffer:
    """Reserve bytes of shared memory. Raises TraceError if the kernel's target does not have enough."""
    trace = Trace.current()
    limit = isa_arch.get(trace.arch).shared_per_cta
    offset = -(-trace.protocol.shared_bytes // align) * align
    if offset + size > limit:
        raise trace.error(
            f"a CTA has at most {limit} bytes of shared memory on {trace.arch}",
            expected=f"at most {limit - offset} bytes here, after the {offset} already taken",
            got=f"{size} bytes",
            hint="use fewer stages or a smaller tile",
            code="shared-memory-full",
        )
    buffer = Buffer(kind, name or assigned_to(trace) or kind, offset, size, align, detail, count)
    return trace.protocol.add_buffer(buffer)


def base_register(trace: Trace, offset: int) -> Register:
    """A u32 register with the address of `offset`, computed in the prologue (mov.u32, add.u32)."""

    def make() -> Register:
        result = Register(trace, dtypes.u32, constant=True)
        if offset == 0:
            trace.emit("mov.u32", result.node, nodes.Symbol(SYMBOL))
        else:
            trace.emit("add.u32", result.node, base_register(trace, 0).node, nodes.Integer(offset))
        return result

    return trace.once(("smem", offset), make)


class SharedAddress(Operand):
    """An address in this CTA's shared memory: an offset from `smem`, or a register plus an offset.

    As an address operand it is `[smem+16]` or `[%r1+16]`; as a value operand it is a u32 register. `address + n` moves
    it by n bytes, n an int or a register.
    """

    def __init__(self, trace: Trace, offset: int, base: Register | None = None) -> None:
        self.trace = trace
        self.offset = offset
        self.base = base
        self.code: Any = "smem"

    def shift(self, amount: Index) -> SharedAddress:
        """This address plus an amount of bytes."""
        if isinstance(amount, Register):
            start = self.register()
            return SharedAddress(self.trace, 0, start + amount)
        return SharedAddress(self.trace, self.offset + amount, self.base)

    __add__ = shift

    def register(self) -> Register:
        """The address as a u32 register."""
        if self.base is None:
            return base_register(self.trace, self.offset)
        return self.base + self.offset if self.offset else self.base

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        """The address as an operand: inside brackets for the kind "address", in a register otherwise."""
        if kind != "address":
            return self.register().node
        if self.base is None:
            return nodes.Address(nodes.Symbol(SYMBOL), self.offset)
        return nodes.Address(self.base.node, self.offset)

    def __repr__(self) -> str:
        return f"SharedAddress({self.base.name if self.base is not None else SYMBOL}+{self.offset})"


def indexed(trace: Trace, start: int, index: Index, stride: int, count: int, what: str) -> tuple[int, Register | None]:
    """Offset and base register of element `index` of an array at `start`."""
    if isinstance(index, Register):
        if index.dtype.is_float:
            raise trace.error(f"{what} is indexed by an integer", got=repr(index))
        result = Register(trace, dtypes.u32)
        issue("mad.lo.u32", result, unsigned(index), stride, base_register(trace, start), trace=trace)
        return 0, result
    if isinstance(index, bool) or not isinstance(index, int):
        raise trace.error(f"{what} is indexed by a Python int or a register", got=repr(index))
    if not -count <= index < count:
        raise trace.error(f"the index is outside {what}", expected=f"0 to {count - 1}", got=index)
    return start + index % count * stride, None


def unsigned(index: Register) -> Register:
    """An index as u32: the same register if it has 32 bits, otherwise a cvt."""
    if index.dtype.bits != 32:
        return index.to(dtypes.u32)
    if index.dtype is dtypes.u32:
        return index
    return Register(index.trace, dtypes.u32, name=index.name, constant=index.constant)


# -- arrays ----------------------------------------------------------------------------------------------------------


class SharedArray:
    """A row-major array in shared memory; `array[i, j]` is the address of an element, indices ints or registers."""

    def __init__(self, trace: Trace, buffer: Buffer, dtype: DType, shape: tuple[int, ...]) -> None:
        self.trace, self.buffer, self.dtype, self.shape = trace, buffer, dtype, shape

    @property
    def bytes(self) -> int:
        return self.buffer.size

    def __getitem__(self, index: Index | tuple[Index, ...]) -> SharedAddress:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self.shape):
            raise self.trace.error("too many indices", expected=f"at most {len(self.shape)}", got=len(indices))
        offset, base = self.buffer.offset, None
        stride = self.bytes
        for position, extent in zip(indices, self.shape, strict=False):
            stride //= extent
            if base is None:
                offset, base = indexed(self.trace, offset, position, stride, extent, self.buffer.name)
            elif isinstance(position, Register):
                moved = Register(self.trace, dtypes.u32)
                issue("mad.lo.u32", moved, unsigned(position), stride, base, trace=self.trace)
                base = moved
            else:
                offset += indexed(self.trace, 0, position, stride, extent, self.buffer.name)[0]
        return SharedAddress(self.trace, offset, base)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SharedArray({self.buffer.name}, {' x '.join(map(str, self.shape))} {self.dtype})"


def array(dtype: DType, shape: int | tuple[int, ...], align: int = 16, name: str = "") -> SharedArray:
    """An uninitialised array in shared memory; `align` in bytes, a power of two."""
    trace = Trace.current()
    dtype = dtypes.of(dtype)
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not shape or not all(isinstance(extent, int) and extent > 0 for extent in shape):
        raise trace.error("a shared array needs positive Python ints as its shape", got=repr(shape))
    size = dtype.bytes
    for extent in shape:
        size *= extent
    buffer = allocate("array", size, max(align, dtype.bytes), name, f"{dtype} {' x '.join(map(str, shape))}")
    buffer.row_bytes = shape[-1] * dtype.bytes if len(shape) > 1 else 0
    return SharedArray(trace, buffer, dtype, shape)


# -- mbarriers -------------------------------------------------------------------------------------------------------


class BarrierAddress(SharedAddress):
    """The address of one mbarrier, with its position in the protocol."""

    def __init__(self, trace: Trace, offset: int, base: Register | None, buffer: Buffer, index: int | None) -> None:
        super().__init__(trace, offset, base)
        self.buffer, self.index = buffer, index


class BarrierArray:
    """Mbarriers in shared memory, 8 bytes each; `barriers[i]` is the address of one, `i` an int or a register."""

    def __init__(self, trace: Trace, buffer: Buffer) -> None:
        self.trace, self.buffer = trace, buffer

    def __getitem__(self, index: Index) -> BarrierAddress:
        if isinstance(index, int) and not isinstance(index, bool) and index >= self.buffer.count:
            raise self.trace.error(
                f"the index is outside {self.buffer.name}", expected=f"0 to {self.buffer.count - 1}", got=index
            )
        offset, base = indexed(self.trace, self.buffer.offset, index, 8, self.buffer.count, self.buffer.name)
        known = (offset - self.buffer.offset) // 8 if base is None else None
        return BarrierAddress(self.trace, offset, base, self.buffer, known)

    def __len__(self) -> int:
        return self.buffer.count

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"BarrierArray({self.buffer.name}, {len(self)})"


def mbarrier(n: int = 1, name: str = "") -> BarrierArray:
    """`n` mbarriers, uninitialised; see `ptx.mbarrier.init`."""
    trace = Trace.current()
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise trace.error("smem.mbarrier takes the number of barriers, a positive Python int", got=repr(n))
    return BarrierArray(trace, allocate("mbarrier", 8 * n, 8, name, "mbarrier", n))
