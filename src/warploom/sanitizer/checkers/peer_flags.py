"""Flags between GPUs that stay set from one launch to the next.

A wait for a value that is already there does not wait. So a GPU that raises a flag again after another GPU has read it
must find it reset; flags that only count up get another value each time. The second raise is reported: it happens
under every schedule, while a wait that passes too early may still find the right data.

If a warp writes more than flags with one instruction (a line of data that carries its flag), the flag is the word
that changes; the other words may repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context


@dataclass
class FlagStore:
    """The last strong store to an address: its GPU, launch and instruction, and which GPU read it."""

    device: int
    call: int
    code: Operation
    read_by: int | None = None


class PeerFlags(Observer):
    """See the module's docstring."""

    rules = ("peer-flag-stale",)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._raised: dict[tuple[Region, int], FlagStore] = {}

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        machine = self.context.machine
        if machine.calls == 1 or len(machine.devices) == 1 or place.space != "global":
            return
        if not frame.operation.order.strong:
            return
        device = frame.cta.device.index
        raised: dict[int, list[tuple[FlagStore, int, int] | None]] = {}
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
                    self._raised[key] = FlagStore(device, frame.cta.cluster.call, frame.operation)
        for words in raised.values():
            for word in words if None not in words else ():
                known, lane, index = word  # type: ignore[misc]
                self._report(known, frame, place, lane, index)

    copied = accessed

    @staticmethod
    def _stays(known: FlagStore, frame: Frame, place: Lanes, index: int, value: np.generic) -> bool:
        """True if a store in a later launch leaves the flag as another GPU has read it."""
        cta = frame.cta
        if known.read_by is None or known.device != cta.device.index or known.call == cta.cluster.call:
            return False
        holds = place.region.as_type(np.dtype(f"u{place.size}"))[index]
        return bool(holds == np.asarray(value).view(f"u{place.size}"))

    def _report(self, known: FlagStore, frame: Frame, place: Lanes, lane: int, index: int) -> None:
        code, warp = frame.operation, frame.first_warp + lane // 32
        where = f"`{place.region.name}` at byte {index * place.size}"
        message = (
            f"{actor(frame.cta, warp)} raises the flag {where} with {at(code)}, but it is still set from the previous "
            f"launch, when GPU {known.read_by} read it: a wait for it there ends before this store"
        )
        self.context.findings.add("peer-flag-stale", message, (code, known.code), frame.cta, warp, address=where)
