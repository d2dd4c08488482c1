"""Constants that an instruction accepts only in a range: barrier numbers, thread counts, register counts, sizes.

The ranges are those that ptxas 13.0 enforces; tests/asm/test_spellings.py compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..isa.instructions.schema import Form, Match
from .constants import number
from .nodes import Float, Integer, Operand, Vector

NAMED_BARRIERS = range(16)
"""Barriers of a CTA (PTX ISA 9.7.13.1)."""
WARP = 32
SETMAXNREG = range(24, 257, 8)
"""Register counts of setmaxnreg (PTX ISA 9.7.19.5)."""
CP_ASYNC_BYTES = {"ca": (4, 8, 16), "cg": (16,)}
"""Bytes of one cp.async by cache operator (PTX ISA 9.7.9.25.3.1)."""
BULK_BYTES = 16
"""A bulk copy moves multiples of this (PTX ISA 9.7.9.25.4.1)."""

RANGED = frozenset({"bar", "barrier", "setmaxnreg", "cp", "createpolicy"})
"""Instructions whose constants are checked below, besides those whose rows have `ranges`."""
SINGLE_ONLY = "cvt.rna.tf32.f32"
"""The row whose constant must be written with 32 bits."""


def depends_on_constants(row: Match) -> bool:
    """True if an instruction may be valid with one constant and invalid with another."""
    return bool(row.form.ranges) or row.form.base in RANGED or row.form.key == SINGLE_ONLY


def in_ranges(form: Form, operands: Mapping[str, Operand]) -> bool:
    """True if the constant operands are in the row's own `ranges`."""
    found = ((_part(operands, name), allowed) for name, (allowed, _) in form.ranges.items())
    return all(not isinstance(operand, Integer) or operand.value in allowed for operand, allowed in found)


def _part(operands: Mapping[str, Operand], name: str) -> Operand | None:
    """An operand, or for a name such as "ids.1" the element of that number of an operand in braces."""
    name, _, number_ = name.partition(".")
    operand = operands.get(name)
    if not number_ or not isinstance(operand, Vector):
        return operand
    return operand.elements[int(number_)] if int(number_) < len(operand.elements) else None


def out_of_range(row: Match, operands: dict[str, Operand]) -> Iterator[tuple[str, str, float]]:
    """(what, expected, got) for each constant operand that ptxas rejects."""
    base, modifiers, key = row.form.base, row.modifiers, row.form.key

    def constant(name: str) -> int | None:
        operand = _part(operands, name)
        return operand.value if isinstance(operand, Integer) else None

    def within(name: str, what: str, allowed: Sequence[int], expected: str) -> Iterator[tuple[str, str, int]]:
        value = constant(name)
        if value is not None and value not in allowed:
            yield what, expected, value

    for name, (allowed, words) in row.form.ranges.items():
        value = constant(name)
        if value is not None and value not in allowed:
            yield f"operand `{name}`", words, value
    if base in ("bar", "barrier") and key.split(".")[0] == base:
        barrier = constant("a")
        if barrier is not None and barrier % (1 << 32) not in NAMED_BARRIERS:
            yield "the barrier's number", "0 to 15", barrier
        threads = constant("b")
        if threads is not None and threads % WARP:
            yield "the number of threads at a barrier", f"a multiple of {WARP}", threads
    elif key == "createpolicy.fractional":
        fraction = operands.get("fraction")
        if isinstance(fraction, Float) and not 0 < (share := number(fraction)) <= 1:
            yield "the fraction of a cache policy", "more than 0 and at most 1", share
    elif key == SINGLE_ONLY:
        source = operands.get("a")
        if isinstance(source, Float) and source.bits != 32:
            yield "the number to be converted", "a constant such as 0f3F800000", number(source)
    elif key == "createpolicy.range":
        primary, total = constant("primary_size"), constant("total_size")
        if primary is not None and total is not None and primary % (1 << 32) > total % (1 << 32):
            yield "the primary size of a cache policy", f"at most the total size, {total}", primary
    elif base == "setmaxnreg":
        yield from within("count", "the number of registers", SETMAXNREG, "a multiple of 8 from 24 to 256")
    elif key.startswith("cp_async.copy"):
        sizes = CP_ASYNC_BYTES[modifiers.get("cache") or "ca"]
        yield from within("size", "the bytes of a cp.async", sizes, " or ".join(map(str, sizes)))
        most = constant("size") or 0
        yield from within("src_size", "the bytes read by a cp.async", range(most + 1), f"0 to {most}")
    elif base == "cp" and (size := constant("size")) is not None and size % BULK_BYTES:
        yield "the bytes of a bulk copy", f"a multiple of {BULK_BYTES}", size
