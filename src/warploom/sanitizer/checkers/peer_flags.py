"""Flags between GPUs that stay up from one launch to the next.

Whoever waits for a value that is already there does not wait. So a GPU that raises a flag again, which another GPU has
read, must find it lowered; flags that only grow get another value each time. It is the second raise that is reported:
it comes in every schedule, while a wait that is passed too early may still find the right data.

Where a warp writes more than flags with one instruction (a line of data that carries its flag with it), the flag is
what changes: the other words may come again as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..happens_before.flags import FLAGS
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context


@dataclass
class Raised:
    """The last strong store to an address: by which GPU, in which launch, with which instruction; and who read it."""

    device: int
    call: int
    code: Operation
    read_by: int | None = None


class PeerFlags(Observer):
    """See the module's docstring."""

    rules = ("peer-flag-stale",)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._raised: dict[tuple[Region, int], Raised] = {}

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        machine = self.context.machine
        if machine.calls == 1 or len(machine.devices) == 1 or place.space != "global":
            return
        if not frame.operation.order.strong or place.index.size > FLAGS:
            return
        device = frame.cta.device.index
        raised: dict[int, list[tuple[Raised, int, int] | None]] = {}
        for lane, first in zip(place.lanes.tolist(), place.index.tolist(), strict=True):
            for part in range(place.count):
                key = place.region, (first + part) * place.size
                known = self._raised.get(key)
                if how == effects.READS:
                    if known is not None and known.device != device:
                        known.read_by = device
                elif values is None or how != effects.WRITES:
                    self._raised.pop(key, None)
                else:
                    stays = known is not None and self._stays(known, frame, place, first + part, values[part, lane])
                    raised.setdefault(lane // 32, []).append((known, lane, first + part) if known and stays else None)
                    self._raised[key] = Raised(device, frame.cta.cluster.call, frame.operation)
        for words in raised.values():
            for word in words if None not in words else ():
                known, lane, index = word  # type: ignore[misc]
                self._report(known, frame, place, lane, index)

    copied = accessed

    @staticmethod
    def _stays(known: Raised, frame: Frame, place: Lanes, index: int, value: np.generic) -> bool:
        """Whether a store in a later launch leaves the flag as another GPU has read it."""
        cta = frame.cta
        if known.read_by is None or known.device != cta.device.index or known.call == cta.cluster.call:
            return False
        holds = place.region.as_type(np.dtype(f"u{place.size}"))[index]
        return bool(holds == np.asarray(value).view(f"u{place.size}"))

    def _report(self, known: Raised, frame: Frame, place: Lanes, lane: int, index: int) -> None:
        code, warp = frame.operation, frame.first_warp + lane // 32
        where = f"`{place.region.name}` at byte {index * place.size}"
        message = (
            f"{actor(frame.cta, warp)} raises the flag {where} with {at(code)}, and it is still up since the launch "
            f"before, when GPU {known.read_by} read it: a wait for it there ends before this one has come"
        )
        self.context.findings.add("peer-flag-stale", message, (code, known.code), frame.cta, warp, address=where)
