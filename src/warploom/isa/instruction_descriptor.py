"""The instruction descriptor of tcgen05.mma: 32 bits with the shape and the types of an MMA.

Bit layouts: PTX ISA 9.7.16.4.2, tables 42 to 44; shapes: 9.7.16.2.1, table 39. ptxas sees neither, because the
descriptor is a register, so both the code that makes one and the code that runs one check here. Not run on hardware;
the constants in tests/isa/test_instruction_descriptor.py are those of Triton's and CUTLASS's kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import ArgumentError, InvalidOperandError

_HALF = {"f16": 0, "bf16": 1}
_TF32 = {"tf32": 2}
_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_BYTES = {"u8": 0, "s8": 1}
_FP4 = {"e2m1": 1}


@dataclass(frozen=True)
class Kind:
    """The operand types of a `.kind::name`.

    Attributes:
        operands: code of each type of A and B.
        results: code of each type of D.
        k: extent in k of a dense MMA, 32 bytes of A's rows; a sparse MMA has twice that.
        scales: code of each type of scale factors; empty for kinds without them.
    """

    name: str
    operands: Mapping[str, int]
    results: Mapping[str, int]
    k: int
    scales: Mapping[str, int] = field(default_factory=dict)

    @property
    def scaled(self) -> bool:
        return bool(self.scales)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("f16", _HALF, {"f16": 0, "f32": 1}, 16),
        Kind("tf32", _TF32, {"f32": 1}, 8),
        Kind("f8f6f4", _NARROW, {"f16": 0, "f32": 1}, 32),
        Kind("i8", _BYTES, {"s32": 2}, 32),
        Kind("mxf8f6f4", _NARROW, {"f32": 1}, 32, {"ue8m0": 1}),
        Kind("mxf4", _FP4, {"f32": 1}, 64, {"ue8m0": 1}),
        Kind("mxf4nvf4", _FP4, {"f32": 1}, 64, {"ue8m0": 1, "ue4m3": 0}),
    )
}
"""All kinds of MMA."""
SHIFTS = (0, 8, 16, 32)
"""Distances by which `.ws` may shift the columns of a reused B, by code."""
WIDE_K = 96
"""The other extent in k of the 4-bit kinds, on sm_103a."""


class Field(NamedTuple):
    """A bit field of a descriptor."""

    low: int
    width: int

    def put(self, value: int) -> int:
        return value << self.low

    def get(self, bits: int) -> int:
        return bits >> self.low & (1 << self.width) - 1

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low


_COMMON = {
    "sparse": Field(2, 1), "a": Field(7, 3), "b": Field(10, 3), "negate_a": Field(13, 1), "negate_b": Field(14, 1),
    "mn_major_a": Field(15, 1), "mn_major_b": Field(16, 1), "n": Field(17, 6),
}  # fmt: skip
_PLAIN = {
    **_COMMON, "selector": Field(0, 2), "saturate": Field(3, 1), "d": Field(4, 2), "m": Field(24, 5),
    "max_shift": Field(30, 2),
}  # fmt: skip
_SCALED = {
    **_COMMON, "scale_b_id": Field(4, 2), "scale": Field(23, 1), "m": Field(27, 2), "scale_a_id": Field(29, 2),
}  # fmt: skip
_FP4_FIELDS = {**_SCALED, "b": Field(10, 2), "wide_k": Field(31, 1)}


def fields_of(kind: str) -> Mapping[str, Field]:
    """The fields of a kind's descriptor by name; other bits are reserved."""
    if not KINDS[kind].scaled:
        return _PLAIN
    return _FP4_FIELDS if kind in ("mxf4", "mxf4nvf4") else _SCALED


@dataclass(frozen=True)
class InstructionDescriptor:
    """The shape and types of one tcgen05.mma.

    Attributes:
        kind: name in KINDS.
        m, n: extents; of the whole pair for `.cta_group::2`.
        a, b, d: types; d is always f32 if A and B have scale factors.
        sparse: whether A is sparse.
        mn_major_a, mn_major_b: whether A and B are contiguous along m and n rather than k ("transposed").
        negate_a, negate_b: whether A and B are negated.
        saturate: whether integer sums saturate.
        selector: the part of the metadata that a sparse MMA reads.
        max_shift: of `.ws`, in columns.
        scale: the type of scale factors.
        scale_a_id, scale_b_id: the bytes of the scale factors' cells that the MMA uses.
        wide_k: whether k is 96.
        reserved: reserved bits that are set.
    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str = "f32"
    sparse: bool = False
    mn_major_a: bool = False
    mn_major_b: bool = False
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    selector: int = 0
    max_shift: int = 0
    scale: str = ""
    scale_a_id: int = 0
    scale_b_id: int = 0
    wide_k: bool = False
    reserved: int = 0

    @property
    def k(self) -> int:
        """The extent in k."""
        return WIDE_K if self.wide_k else KINDS[self.kind].k * (2 if self.sparse else 1)

    def encode(self) -> int:
        """The 32 bits. Raises ArgumentError for a type or an extent that they cannot hold."""
        kind = KINDS.get(self.kind)
        if kind is None:
            raise ArgumentError("unknown kind of tcgen05.mma", expected=", ".join(KINDS), got=self.kind)
        for name, codes in (("a", kind.operands), ("b", kind.operands), ("d", kind.results)):
            if getattr(self, name) not in codes:
                raise ArgumentError(
                    f"matrix {name.upper()} of .kind::{kind.name} cannot be {getattr(self, name)}",
                    expected=" or ".join(codes),
                    got=getattr(self, name),
                )
        if self.d == "f16" and "bf16" in (self.a, self.b):
            raise ArgumentError(
                "products of bf16 are not added up in f16", expected="d f32, or a and b f16", got=self.d
            )
        if kind.scaled and self.scale not in kind.scales:
            raise ArgumentError(
                f"the scale factors of .kind::{kind.name} cannot be {self.scale or 'missing'}",
                expected=" or ".join(kind.scales),
            )
        step = 128 if kind.scaled else 16
        if self.n % 8 or not 0 < self.n <= 256 or self.m % step or not 0 < self.m <= 256:
            raise ArgumentError(
                f"an instruction descriptor of .kind::{kind.name} cannot hold this shape",
                expected=f"n a multiple of 8 up to 256, m a multiple of {step} up to 256",
                got=f"m {self.m}, n {self.n}",
            )
        if self.max_shift not in SHIFTS:
            raise ArgumentError("B cannot be shifted that far", expected="0, 8, 16 or 32 columns", got=self.max_shift)
        values = {
            "sparse": self.sparse, "a": kind.operands[self.a], "b": kind.operands[self.b], "d": kind.results[self.d],
            "negate_a": self.negate_a, "negate_b": self.negate_b, "mn_major_a": self.mn_major_a,
            "mn_major_b": self.mn_major_b, "n": self.n // 8, "m": self.m // step, "selector": self.selector,
            "saturate": self.saturate, "max_shift": SHIFTS.index(self.max_shift), "wide_k": self.wide_k,
            "scale": kind.scales.get(self.scale, 0), "scale_a_id": self.scale_a_id, "scale_b_id": self.scale_b_id,
        }  # fmt: skip
        fields, bits = fields_of(self.kind), self.reserved
        for name, value in values.items():
            place = fields.get(name)
            if place is None:
                if value and name != "d":
                    raise ArgumentError(f"the descriptor of .kind::{kind.name} has no field {name}", got=value)
                continue
            if place.put(int(value)) & ~place.mask:
                raise ArgumentError(f"{name} of an instruction descriptor has {place.width} bits", got=value)
            bits |= place.put(int(value))
        return bits


def decode(kind: str, bits: int) -> InstructionDescriptor:
    """The fields of a descriptor, as read by an instruction of a kind.

    Raises InvalidOperandError for a type code that the kind lacks. Reserved bits go to `reserved`.
    """
    known, fields, bits = KINDS[kind], fields_of(kind), int(bits)
    got = {name: place.get(bits) for name, place in fields.items()}

    def named(name: str, codes: Mapping[str, int]) -> str:
        for word, code in codes.items():
            if code == got[name]:
                return word
        raise InvalidOperandError(
            f"the instruction descriptor {bits:#010x} of .kind::{kind} has code {got[name]} for the type of {name}",
            expected=", ".join(f"{code} ({word})" for word, code in codes.items()),
            got=str(got[name]),
            hint="the descriptor was made for another kind, or its fields are shifted",
        )

    used = 0
    for place in fields.values():
        used |= place.mask
    return InstructionDescriptor(
        kind=kind,
        m=got["m"] * (128 if known.scaled else 16),
        n=got["n"] * 8,
        a=named("a", known.operands),
        b=named("b", known.operands),
        d="f32" if known.scaled else named("d", known.results),
        sparse=bool(got["sparse"]),
        mn_major_a=bool(got["mn_major_a"]),
        mn_major_b=bool(got["mn_major_b"]),
        negate_a=bool(got["negate_a"]),
        negate_b=bool(got["negate_b"]),
        saturate=bool(got.get("saturate", 0)),
        selector=got.get("selector", 0),
        max_shift=SHIFTS[got.get("max_shift", 0)],
        scale=named("scale", known.scales) if known.scaled else "",
        scale_a_id=got.get("scale_a_id", 0),
        scale_b_id=got.get("scale_b_id", 0),
        wide_k=bool(got.get("wide_k", 0)),
        reserved=bits & ~used & 0xFFFFFFFF,
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def extents(
    kind: str, group: int = 1, sparse: bool = False, ws: bool = False
) -> tuple[tuple[int, ...], range | tuple[int, ...]]:
    """The values of m and of n that an MMA may have; ((), ()) if there is no such instruction."""
    scaled = KINDS[kind].scaled
    if ws:
        if scaled or group == 2:
            return (), ()
        return (32, 64, 128), (64, 128) if sparse else (64, 128, 256)
    if group == 1:
        columns = (8, 16, 24, *range(32, 257, 16)) if kind == "i8" else range(8, 257, 8)
        return (128,) if scaled else (64, 128), columns
    columns = range(32, 257, 32) if kind == "i8" else range(16, 257, 16)
    return (256,) if scaled and sparse else (128, 256), columns


def shapes(kinds: Iterable[str], group: int = 1, sparse: bool = False, ws: bool = False) -> str:
    """The values of m and n in words, ".kind::f16: m 64 or 128, n 8 to 256 in steps of 8"; kinds that have the same
    ones together."""
    alike: dict[str, list[str]] = {}
    for kind in kinds:
        rows, columns = extents(kind, group, sparse, ws)
        if isinstance(columns, range):
            told = f"{columns[0]} to {columns[-1]} in steps of {columns.step}"
        else:
            told = ", ".join(map(str, columns[:5])) + (f" ... {columns[-1]}" if len(columns) > 5 else "")
        if rows:
            alike.setdefault(f"m {' or '.join(map(str, rows))}, n {told}", []).append(f".kind::{kind}")
    return "; ".join(f"{', '.join(names)}: {shape}" for shape, names in alike.items())


def kinds_with(operand: str = "", result: str = "") -> tuple[str, ...]:
    """The kinds that multiply elements of a type, or whose D has a type. f32 is multiplied as tf32."""
    operand = "tf32" if operand == "f32" else operand
    return tuple(
        kind.name for kind in KINDS.values()
        if (not operand or operand in kind.operands) and (not result or result in kind.results)
    )  # fmt: skip


def wrong_shape(descriptor: InstructionDescriptor, group: int = 1, ws: bool = False) -> tuple[str, str, str] | None:
    """The error in an MMA's shape, as (what, expected, got); None if the ISA supports the shape.

    Args:
        descriptor: the MMA's descriptor.
        group: 1, or 2 for a CTA pair.
        ws: whether the instruction is `.ws`.
    """
    kind = descriptor.kind
    rows, columns = extents(kind, group, descriptor.sparse, ws)
    of = f"tcgen05.mma{'.ws' * ws}{'.sp' * descriptor.sparse}.cta_group::{group}.kind::{kind}"
    if not rows:
        return f"{of} does not exist", "another kind, or no .ws", of
    if descriptor.m not in rows or descriptor.n not in columns:
        told = shapes((kind,), group, descriptor.sparse, ws)
        return f"{of} has no such shape", told, f"m {descriptor.m}, n {descriptor.n}"
    if kind == "f16" and descriptor.d == "f16" and (descriptor.a, descriptor.b) != ("f16", "f16"):
        return f"type of D of {of}", "f32, or A and B of f16", f"f16 from {descriptor.a} and {descriptor.b}"
    if descriptor.wide_k and (descriptor.sparse or (group == 2 and descriptor.m != 256)):
        return f"k of {of}", "96 for dense products of 128 rows, of a pair 256", f"96, m {descriptor.m}"
    if descriptor.mn_major_b and kind in ("f8f6f4", "i8", "mxf8f6f4") and descriptor.n % (16 * group):
        return f"n of {of} with an MN-major B", f"a multiple of {16 * group}", str(descriptor.n)
    return None
