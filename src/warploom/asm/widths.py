"""The registers, constants and names that fit where an instruction names a type.

PTX ISA 6.1 (compatible types), 6.6 (addresses of variables), 9.4.1 (registers wider than the type), 4.5 (constants).
That ptxas accepts no constant for 16-bit floats, and only `.b` registers for the packed and alternate floating-point
types, was tried with 13.0.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..isa import dtypes
from ..isa.dtypes import Kind
from ..isa.instructions.schema import Match, OperandSpec
from .nodes import Float, Integer

SUMS_OF_ANY_WIDTH = {"mapa", "getctarank"}
"""Instructions that extend the sum of a register and a constant from the width of the register: ptxas 13.0."""
FRAGMENTS = {"mma", "wmma"}
"""Instructions that do not round a constant to the type of a fragment: ptxas 13.0."""
_PLAIN_FLOATS = {"f16", "f32", "f64"}
_WIDENING = {*_PLAIN_FLOATS, "f16x2"}
RELAXED = {"ld", "ldu", "st", "cvt", "suld", "sust", "sured"}
"""Instructions whose data registers may be wider than their type."""


def may_widen(base: str, modifiers: Iterable[str]) -> bool:
    """True if an instruction takes registers wider than its types. `cvt` does if none of them is an alternate
    floating-point type (bf16, tf32, the eight-bit ones and narrower): ptxas 13.0."""
    words = tuple(modifiers)
    types = [dtypes.ALL[word] for word in words if word in dtypes.ALL] if base == "cvt" else []
    plain = all(one.is_integer or one.kind is Kind.BITS or one.name in _WIDENING for one in types)
    return base in RELAXED and plain and "async" not in words


def is_relaxed(widens: bool, needed: str) -> bool:
    """True if a register of this type may be wider, in an instruction that takes wider ones."""
    wanted = dtypes.ALL.get(needed)
    return widens and wanted is not None and (not wanted.is_float or needed in _WIDENING)


def fits(declared: str, needed: str, relaxed: bool = False) -> bool:
    """True if a register of the declared type fits where an instruction names a type."""
    if needed in ("", declared):
        return True
    wanted, have = dtypes.ALL.get(needed), dtypes.ALL.get(declared)
    if have is None or wanted is None:
        return have is not None and (have.kind is Kind.BITS)
    if Kind.PREDICATE in (have.kind, wanted.kind):
        return have.kind is wanted.kind
    if wanted.is_float:
        wide_enough = have.bits >= wanted.register_bits if relaxed else have.bits == wanted.register_bits
        # A fundamental type takes its own registers; the others (bf16, tf32, f16x2 …) take only raw bits.
        return have.kind is Kind.BITS and wide_enough
    if have.is_float and wanted.kind is not Kind.BITS:
        return False
    if relaxed:
        return have.bits >= wanted.bits
    return have.bits == _held_in(wanted)


def _held_in(wanted: dtypes.DType) -> int:
    """Bits of the register if it may not be wider. 8-bit parts of a mov are in 8-bit registers."""
    return wanted.bits if wanted is dtypes.b8 else wanted.register_bits


def accepted(needed: str, relaxed: bool = False) -> str:
    """The registers that fit a type, in words."""
    wanted = dtypes.ALL.get(needed)
    if wanted is None:
        return "a .b register"
    if wanted.kind is Kind.PREDICATE:
        return "a .pred register"
    width = f"{_held_in(wanted)} bits" + (" or more" if relaxed else "")
    if wanted.is_float:
        own = f".{needed} or " if needed in _PLAIN_FLOATS else ""
        return f"a {own}.b register of {width}"
    if wanted.kind is Kind.BITS:
        return f"a register of {width}"
    return f"an integer or .b register of {width}"


def addresses(declared: str, space: str = "", needed: str = "") -> bool:
    """True if a register may hold an address, which has 32 bits in tensor memory and 32 or 64 elsewhere.

    `needed`: the only type that an instruction takes there (mma's addresses in tensor memory are .b32)."""
    have = dtypes.ALL.get(declared)
    if have is None or needed:
        return have is None or declared == needed
    return have.bits in ((32,) if space == "tensor" else (32, 64)) and (have.is_integer or have.kind is Kind.BITS)


def constant_misfit(constant: Integer | Float, needed: str, exact: bool = False) -> str | None:
    """The expected operand if a constant does not fit, or None if it fits. `exact`: a double is not rounded to f32."""
    wanted = dtypes.ALL.get(needed)
    if wanted is None:
        return None
    if wanted.is_float:
        if needed not in ("f32", "f64"):
            return f"a .{needed} value in a register: PTX has no constants of this type"
        if exact and needed == "f32" and isinstance(constant, Float) and constant.bits == 64:
            return "a constant of 32 bits such as 0f3F800000"
        return "a floating-point constant such as 0f3F800000 or 1.0" if isinstance(constant, Integer) else None
    if isinstance(constant, Integer):
        return None
    if wanted.kind is not Kind.BITS:
        return "an integer constant"
    return None if wanted.bits == constant.bits else f"a constant of {wanted.bits} bits"


def name_misfit(row: Match, spec: OperandSpec, kind: str, space: str) -> str | None:
    """The expected operand if a name does not fit, or None if it fits.

    kind, space: the name's meaning: a "variable" and its state space, a "function", a "label".
    """
    own = row.variables_of(spec)
    wanted = dtypes.ALL[row.type_of(spec)]
    if kind == "label":
        return "the name of a variable or a function"
    if own != "any":
        return None if kind == "variable" and space == own else f"a .{own} variable"
    if not (wanted.is_integer or wanted.kind is Kind.BITS):
        return f"a .{wanted.name} register"
    if space == "global" and wanted.bits == 32:
        return "64 bits for the address of a .global variable"
    return None
