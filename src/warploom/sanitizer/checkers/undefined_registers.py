"""Registers that the path taken has not written, where their value decides something.

Of the registers that some path leaves unwritten (`undefined_values`), and of those calculated from them, each thread
has a mark. A marked register that is copied or calculated with marks the result: compilers move such instructions in
front of the branch that makes them matter. A shuffle gives a lane the mark of the lane that it reads. One in an
address, or that a branch goes by, is an error; one that is stored is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.registers import WARP
from ...emulator.ops.warp import source_lanes
from ..report.findings import at
from ..report.words import actor
from ..undefined_values import Step, undefined_values

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ..context import Context

RULE = "undefined-register-used"


class UndefinedRegisters(Observer):
    """See the module's docstring."""

    rules = (RULE,)

    def __init__(self, context: Context) -> None:
        self.context = context
        code = context.machine.code
        self._slice = code.fact("undefined values", lambda: undefined_values(code))
        self._steps = self._slice.steps
        self.idle = not self._steps
        self._marks: WeakKeyDictionary[Cta, np.ndarray] = WeakKeyDictionary()

    def executed(self, frame: Frame) -> None:
        step = self._steps.get(frame.operation.pc)
        if step is None:
            return
        whole = self._marks.get(frame.cta)
        if whole is None:
            lanes = len(frame.cta.warps) * WARP
            whole = self._marks[frame.cta] = np.ones((len(self._slice.rows), lanes), np.bool_)
        start = frame.first_warp * WARP
        marks = whole[:, start : start + frame.lanes]
        operation, mask = frame.operation, frame.mask
        if operation.guard >= 0:
            holds = frame.values[operation.guard] != operation.guard_negated
            mask = (holds | marks[step.guard] if step.guard >= 0 else holds) & mask
        self._report(frame, step.addresses, "in an address", marks, mask)
        self._report(frame, step.decides, "to decide what is done", marks, mask)
        self._report(frame, step.stored, "to store it", marks, mask)
        if not step.writes:
            return
        result = self._result(frame, step, marks)
        if mask is True:
            marks[list(step.writes)] = result
        else:
            for number in step.writes:
                np.copyto(marks[number], result, where=mask)

    def _result(self, frame: Frame, step: Step, marks: np.ndarray) -> np.ndarray | bool:
        """Of which threads the results are not defined."""
        result: np.ndarray | bool = marks[step.guard] if step.guard >= 0 else False
        if step.word == "shfl":
            return result | self._shuffled(frame, step, marks)
        if step.word:
            return result | self._chosen(frame, step, marks)
        for number in step.reads:
            result = result | marks[number]
        return result

    @staticmethod
    def _chosen(frame: Frame, step: Step, marks: np.ndarray) -> np.ndarray | bool:
        """As `_result`, of a choice: the source that is not taken does not matter."""
        marked = [marks[number] if number >= 0 else np.False_ for number, _ in step.sources]
        values = [frame.values[slot] if slot >= 0 else np.False_ for _, slot in step.sources]
        if step.word == "selp":
            picked = values[2]
            return np.where(picked, marked[0], marked[1]) | marked[2]
        decided = step.word == "or"  # the value of one source that settles the result
        a, b = ((value == decided) & ~mark for value, mark in zip(values, marked, strict=True))
        return (marked[0] | marked[1]) & ~(a | b)

    @staticmethod
    def _shuffled(frame: Frame, step: Step, marks: np.ndarray) -> np.ndarray:
        """As `_result`, of a shuffle: what counts is the lane that the value comes from."""
        shape = (frame.warps, WARP)
        moved, by, to = (
            np.broadcast_to(marks[number] if number >= 0 else np.False_, (frame.lanes,)).reshape(shape)
            for number, _ in step.sources
        )
        values = (np.broadcast_to(frame.values[slot], (frame.lanes,)).astype(np.int64) for _, slot in step.sources[1:])
        source, _ = source_lanes(step.mode, *(value.reshape(shape) for value in values))
        return (np.take_along_axis(moved, source, axis=1) | by | to).reshape(-1)

    def _report(
        self, frame: Frame, numbers: Sequence[int], what: str, marks: np.ndarray, mask: np.ndarray | bool
    ) -> None:
        for number in numbers:
            bad = marks[number] & mask
            if not bad.any() or self.context.findings.seen(RULE, (frame.operation,)):
                continue
            lane = int(np.flatnonzero(bad)[0])
            warp = frame.first_warp + lane // WARP
            self.context.findings.add(
                RULE,
                f"{actor(frame.cta, warp)} uses {self._slice.names[number]} {what} with {at(frame.operation)}, and on "
                f"the way that it took (thread {warp * WARP + lane % WARP}) nothing has written that register, or "
                "only what was calculated from such a one",
                (frame.operation,), frame.cta, warp, "warning" if what == "to store it" else None,
            )  # fmt: skip
