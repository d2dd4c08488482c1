"""Logic and shifts, PTX ISA 9.7.8. A shift by the width or more gives the result of shifting bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...isa import dtypes
from ...isa.dtypes import Kind
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import computed, elementwise

HANDLERS = Handlers()


@HANDLERS.add("and", "or", "xor")
def binary(d: Decode) -> Step:
    operation = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[d.match.form.base]
    if not (d.negated("a") or d.negated("b")):
        return elementwise(d, operation, "a", "b")
    first, second, out = d.predicate("a"), d.predicate("b"), d.destination("d")

    def predicates(frame: Frame) -> None:
        operation(first(frame), second(frame), out=frame.values[out], where=frame.mask)

    return predicates


@HANDLERS.add("not")
def invert(d: Decode) -> Step:
    if not d.negated("a"):
        return elementwise(d, np.invert, "a")
    read, out = d.predicate("a"), d.destination("d")

    def predicate(frame: Frame) -> None:
        np.logical_not(read(frame), out=frame.values[out], where=frame.mask)

    return predicate


@HANDLERS.add("cnot")
def is_zero(d: Decode) -> Step:
    return computed(d, "a", lambda a: a == 0)


# -- lop3 --------------------------------------------------------------------------------------------------------

# The sixteen functions of two inputs, by truth table: bit 2b + c of the index is the value for those b and c.
_OF_TWO: tuple[Callable[[np.ndarray, np.ndarray], Any], ...] = (
    lambda b, c: np.uint32(0),
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: np.uint32(0xFFFFFFFF),
)


def of_three(table: int) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """The function with a truth table (bit 4a + 2b + c): where a is 0 its low half, else its high half."""
    low, high = table & 15, table >> 4 & 15
    zero, one = _OF_TWO[low], _OF_TWO[high]
    if low == high:
        return lambda a, b, c: zero(b, c)
    if low == 0:
        return lambda a, b, c: a & one(b, c)
    if high == 0:
        return lambda a, b, c: ~a & zero(b, c)
    if high == 15:
        return lambda a, b, c: a | zero(b, c)
    if low == 15:
        return lambda a, b, c: ~a | one(b, c)
    if low ^ high == 15:
        return lambda a, b, c: a ^ zero(b, c)
    return lambda a, b, c: (a & one(b, c)) | (~a & zero(b, c))


@HANDLERS.add("lop3")
def logic3(d: Decode) -> Step:
    return computed(d, "abc", of_three(d.constant("table")))


@HANDLERS.add("lop3.predicate")
def logic3_predicate(d: Decode) -> Step:
    function = of_three(d.constant("table"))
    combine = {"or": np.logical_or, "and": np.logical_and}[d.modifier("bool")]
    a, b, c = d.source("a"), d.source("b"), d.source("c")
    out, p, q = d.destination("d"), d.destination("p"), d.predicate("q")

    def step(frame: Frame) -> None:
        v = frame.values
        result = function(v[a], v[b], v[c])
        truth = combine(result != 0, q(frame))
        frame.write(out, result)
        frame.write(p, truth)

    return step


# -- shifts ------------------------------------------------------------------------------------------------------


@HANDLERS.add("shl", "shr")
def shift(d: Decode) -> Step:
    """NumPy's shifts beyond the width give zeros or sign bits, like PTX's; amounts must have the type of the value."""
    operation = np.left_shift if d.match.form.base == "shl" else np.right_shift
    kind = d.type("a")
    same = dtypes.ALL[("s" if kind.kind is Kind.SIGNED else "u") + str(kind.bits)]
    a, out = d.source("a"), d.destination("d")
    if kind.bits == 32:
        b = d.source("b", same)  # an amount of 2^31 or more is negative as s32, which NumPy treats as too large

        def step(frame: Frame) -> None:
            v = frame.values
            operation(v[a], v[b], out=v[out], where=frame.mask)

        return step
    b = d.source("b")
    most = np.uint32(kind.bits)

    def resized(frame: Frame) -> None:
        v = frame.values
        operation(v[a], np.minimum(v[b], most).astype(same.numpy), out=v[out], where=frame.mask)

    return resized


@HANDLERS.add("shf")
def funnel(d: Decode) -> Step:
    left = d.modifier("direction") == "l"
    wrap = d.modifier("mode") == "wrap"

    def result(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        amount = ((c & np.uint32(31)) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = np.left_shift(b.astype(np.uint64), np.uint64(32)) | a
        return np.right_shift(np.left_shift(both, amount), np.uint64(32)) if left else np.right_shift(both, amount)

    return computed(d, "abc", result)
