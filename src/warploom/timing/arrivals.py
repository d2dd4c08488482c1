"""Counters on which the CTAs of a grid arrive: what the last one does.

Where CTAs share sums, each adds one to a counter, and the CTA that finds there that all others have come adds up the
sums. The first clusters of a grid are never last. So `Comparisons` finds out with what the kernel compares the counter,
by a run that finds a mark there, and another recording finds the value of the last arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..asm.nodes import Integer, Register
from ..emulator.machine.events import Observer
from ..emulator.machine.scopes import DeclaredRegister
from .queues import Word

if TYPE_CHECKING:
    from ..emulator.machine.frame import Frame
    from ..emulator.machine.machine import Machine
    from ..emulator.machine.operation import Operation

FIRST_MARK, APART = 0x2CA7_0000, 0x100
"""Marks of counters: numbers that a kernel computes in no other way."""
MOST_ARRIVALS = 1 << 16


def marks(counters: Sequence[Word]) -> dict[Word, int]:
    """A mark for each counter."""
    return {word: FIRST_MARK + at * APART for at, word in enumerate(counters)}


class Comparisons(Observer):
    """Finds out with what marks are compared: `last` has each counter's value before the last arrival."""

    def __init__(self, machine: Machine, marked: Mapping[Word, int]) -> None:
        operations = machine.code.operations
        self.places = {one.pc for one in operations if one.instruction.opcode.startswith("setp.")}
        self.last: dict[Word, int] = {}
        self._marked = {mark: word for word, mark in marked.items()}

    def executed(self, frame: Frame) -> None:
        operation = frame.operation
        if operation.bound is None or not frame.active.any():
            return
        a, b = (self._value(frame, operation, name) for name in "ab")
        for one, other in ((a, b), (b, a)):
            if one is None or other is None:
                continue
            for ahead in (-1, 0, 1):
                word = self._marked.get(one - ahead)
                if word is not None and 0 < other - ahead < MOST_ARRIVALS:
                    self.last.setdefault(word, other - ahead)

    def _value(self, frame: Frame, operation: Operation, name: str) -> int | None:
        """An operand in the first lane that executes; None if it is not an integer of 32 bits."""
        assert operation.bound is not None
        operand = operation.bound.operands.get(name)
        if isinstance(operand, Register):
            found = operation.scope.find(operand.name)
            if not isinstance(found, DeclaredRegister) or found.row.bits != 32:
                return None
            bank = frame.registers.bank_as(32, np.dtype(np.uint32))
            return int(bank[found.row.index, frame.columns][frame.active.argmax()])
        return operand.value if isinstance(operand, Integer) else None
