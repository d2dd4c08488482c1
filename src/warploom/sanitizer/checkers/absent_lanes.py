"""Shuffles that take the value of a lane that does not execute them: the result is undefined (PTX ISA 9.7.9.6).

Whether anything depends on the value is left to a second run (`runtime.unwritten`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.registers import WARP
from ...plural import counted
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ..context import Context

RULE = "shuffle-from-absent-lane"


class AbsentLanes(Observer):
    """See the module's docstring."""

    rules = (RULE,)

    def __init__(self, context: Context) -> None:
        self.context = context

    def shuffled(self, frame: Frame, absent: np.ndarray) -> None:
        lane = int(np.flatnonzero(absent)[0])
        warp = frame.first_warp + lane // WARP
        present = np.flatnonzero(np.broadcast_to(frame.active, absent.shape)[lane // WARP * WARP :][:WARP])
        self.context.findings.add(
            RULE,
            f"{actor(frame.cta, warp)} gives lane {lane % WARP} by {at(frame.operation)} the value of a lane that does "
            f"not execute it, or that the membermask leaves out: it has {counted(len(present), 'lane')}, "
            f"from {present[0]} to {present[-1]}",
            (frame.operation,), frame.cta, warp,
        )  # fmt: skip
