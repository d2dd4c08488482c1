"""Registers that were not written on the path taken, if an address or a branch depends on their value.

Each thread has a mark, with a bit for each byte, for registers that some path leaves unwritten (`undefined_values`)
and for those computed from them. Copying a marked register, or computing with it, marks the result, because compilers
hoist such instructions above the branch that makes them matter. A shuffle gives a lane the mark of the lane that it
reads. A marked register in an address or a branch condition is an error; storing one is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.registers import WARP, Mask
from ...emulator.ops.warp import source_lanes
from ..report.findings import at
from ..report.words import actor
from ..undefined_values import Step, undefined_values

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ..context import Context

RULE = "undefined-register-used"
ALL = np.uint16(0xFFFF)
"""No byte is defined, in a register of any width."""


class UndefinedRegisters(Observer):
    """See the module's docstring."""

    rules = (RULE,)

    def __init__(self, context: Context) -> None:
        self.context = context
        code = context.machine.code
        self._slice = code.fact("undefined values", lambda: undefined_values(code))
        self._steps = self._slice.steps
        self.places = self._steps
        self.idle = not self._steps
        self._marks: WeakKeyDictionary[Cta, np.ndarray] = WeakKeyDictionary()

    def executed(self, frame: Frame) -> None:
        step = self._steps[frame.operation.pc]
        whole = self._marks.get(frame.cta)
        if whole is None:
            lanes = len(frame.cta.warps) * WARP
            whole = self._marks[frame.cta] = np.full((len(self._slice.rows), lanes), ALL)
        start = frame.first_warp * WARP
        marks = whole[:, start : start + frame.lanes]
        operation, mask = frame.operation, frame.mask
        if operation.guard >= 0:
            holds = frame.values[operation.guard] != operation.guard_negated
            mask = (holds | (marks[step.guard] != 0) if step.guard >= 0 else holds) & mask
        self._report(frame, step.addresses, "in an address", marks, mask)
        self._report(frame, step.decides, "to decide what is done", marks, mask)
        self._report(frame, step.stored, "to store it", marks, mask)
        if not step.writes:
            return
        result = self._result(frame, step, marks)
        for number in step.writes:
            made = result if not step.moves else result | _moved(step, number, marks)
            if mask is True:
                marks[number] = made
            else:
                np.copyto(marks[number], made, where=mask)

    def _result(self, frame: Frame, step: Step, marks: np.ndarray) -> np.ndarray | np.uint16:
        """The marks of the results; for an instruction that only moves bytes, those of the guard alone."""
        result: np.ndarray | np.uint16 = _spread(marks[step.guard]) if step.guard >= 0 else np.uint16(0)
        if step.moves:
            return result
        if step.word == "shfl":
            return result | self._shuffled(frame, step, marks)
        if step.word:
            return result | self._chosen(frame, step, marks)
        for number in step.reads:
            result = result | _spread(marks[number], step.element)
        return result

    @staticmethod
    def _chosen(frame: Frame, step: Step, marks: np.ndarray) -> np.ndarray:
        """Like `_result`, for a selection: the source that is not selected does not matter."""
        marked = [marks[number] if number >= 0 else np.uint16(0) for number, _ in step.sources]
        values = [frame.values[slot] if slot >= 0 else np.False_ for _, slot in step.sources]
        if step.word == "selp":
            return np.where(values[2], marked[0], marked[1]) | _spread(marked[2])
        decided = step.word == "or"  # the value of one source that determines the result
        a, b = ((value == decided) & (mark == 0) for value, mark in zip(values, marked, strict=True))
        return np.where(a | b, np.uint16(0), _spread(marked[0] | marked[1]))

    @staticmethod
    def _shuffled(frame: Frame, step: Step, marks: np.ndarray) -> np.ndarray:
        """Like `_result`, for a shuffle: the lane that the value comes from counts."""
        shape = (frame.warps, WARP)
        moved, by, to = (
            np.broadcast_to(marks[number] if number >= 0 else np.uint16(0), (frame.lanes,)).reshape(shape)
            for number, _ in step.sources
        )
        values = (np.broadcast_to(frame.values[slot], (frame.lanes,)).astype(np.int64) for _, slot in step.sources[1:])
        source, _ = source_lanes(step.mode, *(value.reshape(shape) for value in values))
        return (np.take_along_axis(moved, source, axis=1) | _spread(by | to)).reshape(-1)

    def _report(self, frame: Frame, numbers: Sequence[int], what: str, marks: np.ndarray, mask: Mask) -> None:
        for number in numbers:
            bad = (marks[number] != 0) & mask
            if not bad.any() or self.context.findings.seen(RULE, (frame.operation,)):
                continue
            lane = int(np.flatnonzero(bad)[0])
            warp = frame.first_warp + lane // WARP
            self.context.findings.add(
                RULE,
                f"{actor(frame.cta, warp)} uses {self._slice.names[number]} {what} with {at(frame.operation)}, and on "
                f"the path taken by thread {warp * WARP + lane % WARP} nothing has written that register, or it was "
                "only computed from such a register",
                (frame.operation,), frame.cta, warp, "warning" if what == "to store it" else None,
            )  # fmt: skip


def _spread(mark: np.ndarray | np.uint16, element: int = 0) -> np.ndarray:
    """Marks of results computed from all bytes, or from elements of that many bytes."""
    if not element:
        return np.where(mark != 0, ALL, np.uint16(0))
    result = np.zeros_like(mark)
    for low in range(0, 16, element):
        piece = np.uint16(((1 << element) - 1) << low)
        result |= np.where(mark & piece, piece, np.uint16(0))
    return result


def _moved(step: Step, number: int, marks: np.ndarray) -> np.ndarray | np.uint16:
    """The marks of a register whose bytes come from others."""
    result: np.ndarray | np.uint16 = np.uint16(0)
    for source, first, written, to, count in step.moves:
        if written == number:
            result = result | ((marks[source] >> first & ((1 << count) - 1)) << to).astype(np.uint16)
    return result
