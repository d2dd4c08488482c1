"""Extended precision integer arithmetic with the carry flag, PTX ISA 9.7.2.

The flag is a predicate of each thread that no text names. A subtraction adds the complement, as in ptxas: afterwards
the flag is set if there was no borrow.
"""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import high_half

HANDLERS = Handlers()

_UNSIGNED = {32: dtypes.u32, 64: dtypes.u64}


@HANDLERS.add("add.cc", "addc", "sub.cc", "subc", "mad.cc", "madc")
def with_carry(d: Decode) -> Step:
    words = d.instruction.modifiers
    base = words[0]
    kind = _UNSIGNED[d.type("a").bits]
    signed = d.type("a").is_signed
    reads = base in ("addc", "subc", "madc")
    writes = "cc" in words
    subtracts = base in ("sub", "subc")
    flag = d.code.hidden("carry", dtypes.pred)
    a, b, out = d.source("a", kind), d.source("b", kind), d.destination("d", kind)
    c = d.source("c", kind) if d.has("c") else None
    high = "hi" in words
    number = kind.numpy.type

    def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if not high:
            return np.multiply(x, y)
        if signed:
            as_signed = np.dtype(f"i{kind.bytes}")
            half = high_half(np.asarray(x).view(as_signed), np.asarray(y).view(as_signed), kind.bits, True)
            return np.asarray(half).astype(as_signed).view(kind.numpy)
        return np.asarray(high_half(x, y, kind.bits, False)).astype(kind.numpy)

    def step(frame: Frame) -> None:
        v = frame.values
        x, y = (v[a], v[b]) if c is None else (product(v[a], v[b]), v[c])
        carry_in = v[flag].astype(kind.numpy) if reads else number(0)
        if subtracts:
            borrow_in = number(1) - carry_in if reads else number(0)
            first = np.subtract(x, y)
            result = np.subtract(first, borrow_in)
            carry = ~(np.less(x, y) | np.less(first, borrow_in))
        else:
            first = np.add(x, y)
            result = np.add(first, carry_in)
            carry = np.less(first, x) | np.less(result, first)
        frame.write(out, result)
        if writes:
            frame.write(flag, carry)

    return step
