"""Checks that no ld.global.nc reads bytes that the grid itself has written.

Such a load may take a copy of the bytes from before the write out of the non-coherent cache; no barrier and no fence
orders it (PTX ISA 9.7.9.9). With .L1::no_allocate this is a warning, except in strict mode: published kernels poll
memory so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.finding import Side
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..report.findings import at
from ..report.words import actor
from ..rules import ERROR, WARNING
from ..shadow.global_shadow import unpack
from ..shadow.shadow import distinct

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ..context import Context

RULE = "non-coherent-load"


class NonCoherentLoads(Observer):
    """See the module's docstring."""

    rules = (RULE,)

    def __init__(self, context: Context) -> None:
        self.context = context
        operations = context.machine.code.operations
        self._loads = {one.pc for one in operations if one.bound and "nc" in one.instruction.modifiers}
        self.idle = not self._loads

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        code = frame.operation
        if code.pc not in self._loads or how != effects.READS or place.space != "global":
            return
        shadow = self.context.buffer(place.region)
        if not shadow.written:
            return
        granules = shadow.granules(place.index, place.size, place.count)
        before = shadow.last[granules]
        written = (number for number in distinct(before[before != 0]) if self._of_this_launch(frame, number))
        number = next(written, None)
        if number is None:
            return
        deed, hits = unpack(number, True), before == number
        earlier = self.context.operation(deed.pc)
        published = "L1::no_allocate" in code.instruction.modifiers
        severity = WARNING if published and not self.context.strict else ERROR
        if self.context.findings.seen(RULE, (code, earlier), severity):
            return
        offset = shadow.first_byte(granules, hits)
        warp = frame.first_warp + int(np.broadcast_to(place.lanes, hits.shape)[hits].flat[0] >> 5)
        what = f"`{shadow.region.name}` at byte {offset}"
        who = actor(frame.cta, warp)
        message = f"{who} reads {what} with {at(code)}, and the grid itself wrote it before with {at(earlier)}"
        sides = (
            Side(who, f"reads {what}", code.text, code.instruction.location),
            Side("the grid", f"wrote {what}", earlier.text, earlier.instruction.location),
        )
        self.context.findings.add(RULE, message, (code, earlier), frame.cta, warp, severity, sides, what)

    def _of_this_launch(self, frame: Frame, number: int) -> bool:
        """True if the grid made this write, and not a copy engine or an earlier launch on the same GPU."""
        deed, state = unpack(number, True), self.context.state(frame.cta)
        if self.context.of_stream(deed.pc):
            return False
        gpu, launch = self.context.launches.of(state, deed.actor)
        return gpu != frame.cta.device.index or launch == frame.cta.cluster.call
