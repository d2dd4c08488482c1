"""The type and the instruction of an operator: the rules for mixed types, without registers.

Integers of different widths: the narrower is extended by its own signedness, and the result has the wider type.
Integers of the same width and different signedness may be added, multiplied and combined bitwise; the result is
unsigned. To compare, divide or shift them right would be ambiguous, so these are refused. Floats do not mix with other
types.
"""

from __future__ import annotations

from ..isa import dtypes
from ..isa.dtypes import DType, Kind
from .trace import Trace

BITWISE = ("&", "|", "^", "<<", ">>", "//", "%")
"""Operators that exist for integers only."""
SIGN_MATTERS = ("//", "%", "<", "<=", ">", ">=", "/")
"""Operators whose result depends on the signedness of the operands."""
CONSTANT_FIRST = ("+", "*", "&", "|", "^", "-")
"""Operators whose instruction takes a constant as its first operand."""
_UNSIGNED = {"b8": dtypes.u8, "b16": dtypes.u16, "b32": dtypes.u32, "b64": dtypes.u64}


def arithmetic(dtype: DType) -> DType:
    """The type of an operator's arithmetic: untyped bits count as unsigned."""
    return _UNSIGNED.get(dtype.name, dtype)


def integers_only(trace: Trace, dtype: DType, symbol: str) -> None:
    """Raise TraceError for a float operand of an integer operator."""
    if dtype.is_float:
        raise trace.error(
            f"`{symbol}` needs integers",
            got=f"a register of type {dtype}",
            hint="read the bits with x.view(u32), or convert with x.to(s32)",
        )


def common(trace: Trace, mine: DType, theirs: DType, symbol: str) -> DType:
    """The type of an operation on two registers. Raises TraceError if there is none."""
    if mine is theirs:
        return mine
    if mine.is_float or theirs.is_float:
        both = mine.is_float and theirs.is_float
        raise trace.error(
            f"`{symbol}` between {mine} and {theirs}",
            expected="registers of one floating-point type" if both else "two integers, or two floats of one type",
            got=f"{mine} and {theirs}",
            hint="convert one: x.to(f32)"
            if both
            else "convert the integer with x.to(f32), or the float with x.to(s32)",
        )
    mine, theirs = arithmetic(mine), arithmetic(theirs)
    mixed = mine.is_signed != theirs.is_signed and symbol in SIGN_MATTERS
    if mine.bits != theirs.bits:
        wider, narrower = (mine, theirs) if mine.bits > theirs.bits else (theirs, mine)
        if mixed and narrower.is_signed:  # a sign-extended value has no unsigned reading
            raise _two_meanings(trace, mine, theirs, symbol)
        return wider
    if mixed:
        raise _two_meanings(trace, mine, theirs, symbol)
    return theirs if mine.is_signed else mine


def _two_meanings(trace: Trace, mine: DType, theirs: DType, symbol: str) -> Exception:
    return trace.error(
        f"`{symbol}` between a signed and an unsigned integer has two meanings",
        got=f"{mine} and {theirs}",
        hint="say which with x.view(s32) or x.view(u32)",
    )


def strength_reduced(symbol: str, other: object, dtype: DType) -> tuple[str, object]:
    """`x // 2^n` is `x >> n` and `x % 2^n` is `x & (2^n - 1)` for unsigned x.

    ptxas does not do this: it divides by a reciprocal in floating point, some fifteen instructions for `% 32`.
    """
    plain = isinstance(other, int) and not isinstance(other, bool) and other > 0 and not other & (other - 1)
    if symbol not in ("//", "%") or not plain or arithmetic(dtype).kind is not Kind.UNSIGNED:
        return symbol, other
    assert isinstance(other, int)
    if other >> dtype.bits:
        return symbol, other  # refused with other constants
    return (">>", other.bit_length() - 1) if symbol == "//" else ("&", other - 1)


def opcode(trace: Trace, symbol: str, dtype: DType) -> str:
    """The instruction of an operator on a type.

    Float sums and products are rounded one by one (`.rn`), so that ptxas does not contract them into fma and both
    machines agree.
    """
    kind = arithmetic(dtype)
    if kind.is_float:
        words = {"+": "add", "-": "sub", "*": "mul"}
        plain = kind.name in ("f32", "f64")
        if plain:
            words["/"] = "div"
        if symbol not in words:
            raise trace.error(f"`{symbol}` does not exist for {dtype}", expected=f"one of {' '.join(words)}")
        return f"{words[symbol]}{'.rn' if plain else ''}.{kind}"
    if symbol == "/":
        raise trace.error(f"`/` is not an integer operation, and the register is {dtype}", hint="use // or x.to(f32)")
    if symbol in ("//", "%") and kind.is_signed:
        raise trace.error(
            f"`{symbol}` on a signed register: Python rounds down, the GPU rounds toward zero",
            hint=f"use ptx.inst.{'div' if symbol == '//' else 'rem'}.{kind}(d, a, b), or a u{kind.bits} view",
        )
    words = {"+": "add", "-": "sub", "*": "mul.lo", "//": "div", "%": "rem", ">>": "shr"}
    if symbol in words:
        return f"{words[symbol]}.{kind}"
    return f"{ {'&': 'and', '|': 'or', '^': 'xor', '<<': 'shl'}[symbol] }.b{kind.bits}"
