"""Integers of 8 and 16 bits inside a function of scores or masks: torch computes them in their own type."""

from __future__ import annotations

from typing import Any

from ...isa.dtypes import DType, s8, s16, u8
from ...lang.predicate import Predicate
from ...lang.values import Register

_BITS = 32


def common(*operands: tuple[DType | None, Any]) -> DType | None:
    """The type of a result of values, each with its narrow type and what holds it; None if it has 32 bits.

    Bools and Python's numbers take the other operand's type.
    """
    kinds = {narrow for narrow, held in operands if isinstance(held, Register)}
    if not kinds or None in kinds:
        return None
    return kinds.pop() if len(kinds) == 1 else s16


def wrapped(found: Register, narrow: DType) -> Register:
    """An s32 as it is in a narrow type."""
    if narrow is u8:
        return found & 255
    bits = _BITS - 8 * narrow.bytes
    return (found << bits) >> bits


def narrow_of(dtype: DType, held: Register | Predicate) -> DType | None:
    """The narrow type of an element of an array."""
    return dtype if isinstance(held, Register) and dtype in (u8, s8, s16) else None
