"""Constants: numbers in PTX spelling, and constant expressions. PTX ISA 4.5."""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable

from .nodes import Float, Integer

_LIMIT = 1 << 64


def read_number(text: str) -> Integer | Float | None:
    """The constant of a number token, or None if it is not a PTX number.

    A decimal must be zero or a normal double: ptxas 13.0 refuses subnormal ones, too.
    """
    prefix = text[:2].lower()
    if not text.isascii() or "_" in text:
        return None  # allowed in Python's numbers, not in PTX's
    digits = text[:-1] if text.endswith("U") else text
    try:
        if prefix == "0f":
            return Float(int(text[2:], 16), 32, text) if len(text) == 10 else None
        if prefix == "0d":
            return Float(int(text[2:], 16), 64, text) if len(text) == 18 else None
        if prefix in ("0x", "0b"):
            return _integer(digits[2:], 16 if prefix == "0x" else 2, text)
        if digits.isdigit():
            return _integer(digits, 8 if digits[0] == "0" else 10, text)
        decimal = float(text)
        wrong = abs(decimal) < sys.float_info.min and re.search("[1-9]", re.split("[eE]", text)[0])
        return None if math.isinf(decimal) or wrong else Float(double_bits(decimal), 64, text)
    except ValueError:
        return None


def _integer(digits: str, base: int, text: str) -> Integer | None:
    """The lower 64 bits, or None for an overflow: ptxas 13.0 sees one where bit 63 is set before a further digit."""
    value = int(digits, base)
    if value < _LIMIT:
        return Integer(value, text)
    value = 0
    for digit in digits:
        if value >= _LIMIT >> 1:
            return None
        value = (value * base + int(digit, base)) % _LIMIT
    return Integer(value, text)


def double_bits(value: float) -> int:
    """The 64 bits of a double."""
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def number(constant: Float) -> float:
    """The value of a floating-point constant."""
    form, code = ("<I", "<f") if constant.bits == 32 else ("<Q", "<d")
    return float(struct.unpack(code, struct.pack(form, constant.raw))[0])


def negate(constant: Integer | Float) -> Integer | Float:
    """The negated constant."""
    text = "-" + constant.text if constant.text else ""
    if isinstance(constant, Integer):
        return Integer(-constant.value, text)
    return Float(constant.raw ^ (1 << (constant.bits - 1)), constant.bits, text)


def _divide(a: int, b: int) -> int:
    """Division as in C: rounds towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a or b))),
    "&&": (2, lambda a, b: int(bool(a and b))),
    "|": (3, lambda a, b: a | b),
    "^": (4, lambda a, b: a ^ b),
    "&": (5, lambda a, b: a & b),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    ">": (7, lambda a, b: int(a > b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: (a << (b & 63)) & (_LIMIT - 1)),
    ">>": (8, lambda a, b: a >> (b & 63)),
    "+": (9, lambda a, b: a + b),
    "-": (9, lambda a, b: a - b),
    "*": (10, lambda a, b: a * b),
    "/": (10, _divide),
    "%": (10, lambda a, b: a - b * _divide(a, b)),
}
"""Binary operators of constant expressions: binding strength, and function."""

_TRUTH = ("||", "&&", "==", "!=", "<", ">", "<=", ">=")
_OF_UNSIGNED = ("%", "&", "|", "^")


class Unsigned(int):
    """The value of an integer constant of type .u64; an `int` is of type .s64."""


def wrapped(value: int, unsigned: bool) -> int:
    """An integer modulo 2^64, as a .u64 or .s64."""
    value %= _LIMIT
    if unsigned:
        return Unsigned(value)
    return value - _LIMIT if value >= _LIMIT >> 1 else value


def combined(operator: str, a: int, b: int) -> int:
    """The value of a binary operator by the types of PTX ISA 4.5.5: mixed operands and those of % & | ^ are .u64."""
    compute = BINARY[operator][1]
    if operator in ("<<", ">>"):
        return wrapped(compute(a, b), isinstance(a, Unsigned))
    unsigned = operator in _OF_UNSIGNED or isinstance(a, Unsigned) or isinstance(b, Unsigned)
    found = compute(a % _LIMIT, b % _LIMIT) if unsigned else compute(a, b)
    return found if operator in _TRUTH else wrapped(found, unsigned)


CASTS = {".u64": True, ".s64": False}
"""Casts in constant expressions: whether they make a .u64."""
FLOATING: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
}
"""Binary operators of constant expressions of decimals; comparisons give integers."""
