"""Checker of the pad: a cell is read before anything was put there, or before it has arrived."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.frame import Frame
from warploom.emulator.machine.places import Lanes
from warploom.sanitizer.context import Context
from warploom.sanitizer.happens_before.access import InFlight, flights_of
from warploom.sanitizer.report.findings import at
from warploom.sanitizer.report.words import actor
from warploom.sanitizer.rules import ERROR, Rule

from .rows import SPACE

RULES = (
    Rule("pad-not-waited", "-", ERROR, "A cell is read or written before a pad store to it is complete",
         "pad.put is asynchronous.", "0.0", "commit it and wait for its group, then synchronise"),
    Rule("pad-never-written", "-", ERROR, "A cell is read that nothing was put into", "It holds anything.", "0.0",
         "put a value there first"),
)  # fmt: skip


@dataclass(eq=False)
class LastPut:
    """The latest pad store to each cell, by (CTA's rank, cell)."""

    flights: dict[tuple[int, int], InFlight] = field(default_factory=dict)


class PadCells(Observer):
    """See the module's docstring."""

    rules = tuple(rule.id for rule in RULES)

    def __init__(self, context: Context) -> None:
        self.context = context

    def issued(self, operation: AsyncOperation) -> None:
        for flight in flights_of(operation):
            last = self.context.state(flight.cta).notes(LastPut).flights
            for target in operation.targets:
                if isinstance(target, Lanes) and target.space == SPACE:
                    key = (flight.cta.rank, int(target.index[0]))
                    self._check(operation.issuer.frame, flight.warp, last.get(key))
                    last[key] = flight

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if place.space != SPACE:
            return
        last = self.context.state(frame.cta).notes(LastPut).flights
        for lane, cell in zip(place.lanes.tolist(), place.index.tolist(), strict=True):
            flight, warp = last.get((frame.cta.rank, cell)), frame.first_warp + lane // 32
            self._check(frame, warp, flight)
            if flight is None and not self.context.findings.seen("pad-never-written", (frame.operation,)):
                words = f"{actor(frame.cta, warp)} reads cell {cell} with {at(frame.operation)}"
                self.context.findings.add("pad-never-written", words, (frame.operation,), frame.cta, warp)

    def _check(self, frame: Frame, warp: int, earlier: InFlight | None) -> None:
        """True if the warp knows that an earlier store to the cell is complete."""
        state = self.context.state(frame.cta)
        if earlier is None or earlier.done & state.clocks[state.me(frame.cta, warp)].known:
            return
        codes = (frame.operation, earlier.code)
        if not self.context.findings.seen("pad-not-waited", codes):
            words = (
                f"{actor(frame.cta, warp)} uses with {at(codes[0])} a cell of {at(codes[1])}, which may be in flight"
            )
            self.context.findings.add("pad-not-waited", words, codes, frame.cta, warp)
