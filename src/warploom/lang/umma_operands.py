"""The operands of a tcgen05.mma: its kind, its descriptors, and the checks that they fit together.

ptxas sees only registers, so errors in a shape, a type or a layout are reported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..isa import instruction_descriptor
from ..isa.dtypes import DType
from ..isa.instruction_descriptor import KINDS, InstructionDescriptor
from ..isa.instructions.tcgen05_mma import SCALE_VECTORS
from .accumulator import AccumulatorBuffer
from .operand_tile import OperandTile, TileSlice
from .tensor_address import TensorAddress
from .trace import Trace
from .values import Register

KIND_OF = {
    "f16": "f16", "bf16": "f16", "tf32": "tf32", "f32": "tf32", "s8": "i8", "u8": "i8",
    **dict.fromkeys(("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"), "f8f6f4"),
}  # fmt: skip
"""The kind of MMA by element type, without scale factors."""
_AS = {"f32": "tf32"}
"""The type as which the matrix unit reads an element."""


@dataclass(frozen=True)
class Scales:
    """The scale factors of an MMA.

    Attributes:
        a, b: their addresses in tensor memory (`memory.scales`).
        dtype: "ue8m0" or "ue4m3".
        block: elements of k that share a factor, 16 or 32.
        a_id, b_id: the byte of each cell that the MMA begins with, 0 to 3.
    """

    a: TensorAddress
    b: TensorAddress
    dtype: str = "ue8m0"
    block: int = 32
    a_id: int = 0
    b_id: int = 0

    @property
    def vector(self) -> str:
        return f"block{self.block}"


@dataclass(frozen=True)
class Operands:
    """The operands of the instruction."""

    kind: str
    a: Any
    b: Any
    idesc: Any


def describe(
    trace: Trace, d: Any, a: Any, b: Any, *, kind: str, scales: Scales | None, ws: bool, sparse: bool,
    selector: int, negate: tuple[bool, bool], given: Any = None,
) -> Operands:  # fmt: skip
    """Operands and instruction descriptor of an MMA. Raises TraceError if they do not fit together."""
    if not isinstance(d, AccumulatorBuffer):
        hint = "index it: acc[0]" if hasattr(d, "path") else "make one with memory.accumulator(m, n)"
        raise trace.error("d of a tcgen05.mma is an accumulator in tensor memory", got=repr(d), hint=hint)
    if len(negate) != 2:
        raise trace.error("negate= is for a and for b", expected="two of True and False", got=repr(negate))
    accumulator, group = d.of, d.of.memory.group
    dtype_b = stage_of(trace, "b", b).layout.dtype if not isinstance(b, Register) else None
    dtype_a = _dtype_a(trace, a, dtype_b)
    kind = _kind(trace, kind, dtype_a, dtype_b, scales)
    if given is None:
        if dtype_a is None or dtype_b is None:
            raise trace.error("the types of a and b are not known", hint="pass idesc=, or tiles instead of descriptors")
        named_a, named_b = (_AS.get(dtype.name, dtype.name) for dtype in (dtype_a, dtype_b))
        made = InstructionDescriptor(
            kind, accumulator.m, accumulator.n, named_a, named_b, accumulator.element.name, sparse=sparse,
            selector=selector,
            mn_major_a=_mn_major(a), mn_major_b=_mn_major(b), negate_a=bool(negate[0]), negate_b=bool(negate[1]),
            scale=scales.dtype if scales is not None else "", scale_a_id=scales.a_id if scales is not None else 0,
            scale_b_id=scales.b_id if scales is not None else 0,
        )  # fmt: skip
        given = _checked(trace, made, group, ws)
        rows = accumulator.path.rows
        depth = made.k * dtype_b.bits // (8 * dtype_b.bytes)
        _extent(trace, "a", a, rows, depth // 2 if sparse else depth)
        _extent(trace, "b", b, accumulator.n // group, depth)
        if scales is not None:
            _factors(trace, "a", scales.a, rows)
            _factors(trace, "b", scales.b, accumulator.n // accumulator.path.parts)
    a_operand = a if isinstance(a, TensorAddress) else shared_descriptor(trace, "a", a)
    return Operands(kind, a_operand, shared_descriptor(trace, "b", b), given)


def _kind(trace: Trace, kind: str, a: DType | None, b: DType | None, scales: Scales | None) -> str:
    if kind:
        if kind not in KINDS:
            raise trace.error("unknown kind of tcgen05.mma", expected=", ".join(KINDS), got=kind)
    elif b is None:
        raise trace.error("the kind of an MMA is derived from its tiles", hint="pass kind= with bare descriptors")
    else:
        found = KIND_OF.get(b.name)
        if found is None:
            raise trace.error(f"tcgen05.mma does not multiply {b}", expected=", ".join(KIND_OF), got=str(b))
        kind = found
        if scales is not None:
            narrow = a is not None and a.name == b.name == "e2m1"
            kind = ("mxf4" if scales.block == 32 and scales.dtype == "ue8m0" else "mxf4nvf4") if narrow else "mxf8f6f4"
    if KINDS[kind].scaled != (scales is not None):
        raise trace.error(
            f".kind::{kind} {'needs' if KINDS[kind].scaled else 'has no'} scale factors",
            expected="scales=ptx.tcgen05.Scales(...)" if KINDS[kind].scaled else "no scales=",
            got=repr(scales),
        )
    if scales is not None and scales.vector not in SCALE_VECTORS[kind]:
        blocks = [word for word in SCALE_VECTORS[kind] if word and word.startswith("block")]
        raise trace.error(
            f"a factor of .kind::{kind} is for {' or '.join(word.removeprefix('block') for word in blocks)} elements",
            got=f"block={scales.block}",
        )
    return kind


def _checked(trace: Trace, made: InstructionDescriptor, group: int, ws: bool) -> int:
    """The descriptor's bits. Raises TraceError for types that the kind lacks, and for unsupported shapes."""
    try:
        bits = made.encode()
    except ArgumentError as error:
        raise trace.error(error.what, expected=error.expected, got=error.got, code="matrix-shape") from None
    wrong = instruction_descriptor.wrong_shape(made, group, ws)
    if wrong is not None:
        what, expected, got = wrong
        raise trace.error(
            what,
            expected=expected,
            got=got,
            consequence="the instruction would be undefined: ptxas cannot see the shape, which is a register",
            code="matrix-shape",
        )
    return bits


# -- operands --------------------------------------------------------------------------------------------------------


def stage_of(trace: Trace, name: str, tile: Any) -> TileSlice:
    """One stage of a tile in shared memory."""
    if isinstance(tile, OperandTile):
        tile = tile[0]
    if not isinstance(tile, TileSlice):
        raise trace.error(
            f"{name} of a tcgen05.mma is a tile in shared memory"
            + (", an address in tensor memory" if name == "a" else "")
            + ", or a matrix descriptor",
            expected="smem.umma_tile(...), one of its stages or slices",
            got=repr(tile),
        )
    if tile.layout.unit != "tcgen05":
        raise trace.error(
            f"the descriptors of {tile.tile.buffer.name} are those of sm_90",
            expected="a tile of smem.umma_tile(...)",
            got="a tile for warpgroup MMAs",
            consequence="the matrix unit would read it with another swizzle",
        )
    return tile


def shared_descriptor(trace: Trace, name: str, tile: Any) -> Any:
    """The matrix descriptor of an operand in shared memory."""
    if isinstance(tile, Register):
        if tile.dtype.bits != 64 or tile.dtype.is_float:
            raise trace.error(f"{name} is a matrix descriptor of 64 bits", got=repr(tile))
        return tile
    return stage_of(trace, name, tile).descriptor()


def _dtype_a(trace: Trace, a: Any, otherwise: DType | None) -> DType | None:
    if isinstance(a, TensorAddress):
        return a.dtype or otherwise
    return stage_of(trace, "a", a).layout.dtype if not isinstance(a, Register) else otherwise


def _mn_major(tile: Any) -> bool:
    layout = getattr(tile, "layout", None)
    return layout is not None and layout.major == "MN"


def _extent(trace: Trace, name: str, tile: Any, rows: int, depth: int) -> None:
    """Check that a tile in shared memory has the rows of one CTA and the depth of one instruction."""
    if isinstance(tile, (TensorAddress, Register)):
        return
    tile = stage_of(trace, name, tile)
    if (tile.rows_count, tile.k_size) != (rows, depth):
        raise trace.error(
            f"{name} of this MMA is {rows} {'rows' if name == 'a' else 'columns'} in each CTA and {depth} deep",
            expected=f"{rows} x {depth}",
            got=f"{tile.rows_count} x {tile.k_size} of {tile.tile.buffer.name}",
            hint="slice it: tile[stage].k(i) is one instruction deep, tile[stage].rows(start, count) some rows",
            code="matrix-shape",
        )


def _factors(trace: Trace, name: str, where: Any, rows: int) -> None:
    """Check that the columns of scale factors are for as many rows of A or B as a CTA's product takes."""
    if not isinstance(where, TensorAddress):
        raise trace.error(f"the scale factors of {name} are at an address in tensor memory", got=repr(where),
                          expected="a buffer of memory.scales(rows)", hint="index it: factors[0]")  # fmt: skip
    if 0 < where.rows < rows:
        raise trace.error(
            f"this MMA takes the scale factors of {rows} {'rows of a' if name == 'a' else 'columns of b'} in each CTA",
            expected=f"memory.scales({rows})", got=f"scale factors of {where.rows}", code="matrix-shape",
            consequence="the columns after them would be taken for scale factors",
        )  # fmt: skip
