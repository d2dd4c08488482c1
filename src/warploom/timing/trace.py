"""Makes the events of a `Timeline` while a replay runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..emulator.machine.units import REMOTE, UMMA
from . import recording as kinds
from .recording import Recording
from .timeline import ARRIVE, BARRIER, COLUMNS, COPY, MATRIX, RUN, STORE, WAIT, Event

if TYPE_CHECKING:
    from .instance import Actor, Instance
    from .runs import Cost

COLUMN_BYTES = 128 * 4
"""Bytes of one column of tensor memory: 128 lanes of 32 bits."""


class Trace:
    """Events in the order in which the replay produces them; `finish` sorts them and renumbers references.

    limit: the most events that are kept.
    """

    def __init__(self, recording: Recording, limit: int = 1_000_000) -> None:
        self.recording, self.limit = recording, limit
        self.events: list[Event] = []
        self.left_out = 0
        self.marks = recording.marks
        self.times: dict[tuple[int, int, int], float] = {}
        """Times at which warps reached the recording's marks, by CTA, warp and step."""
        self._began: dict[tuple[int, int], float] = {}
        self._latest: dict[tuple[int, int, int], int] = {}

    def _add(self, kind: str, start: float, end: float, cta: int, warp: int, pc: int, **more: Any) -> int:
        if len(self.events) >= self.limit:
            self.left_out += 1
            return -1
        number = len(self.events)
        facts = self.recording.pcs[pc] if pc >= 0 else None
        role = self.recording.roles.get(warp, "") if warp >= 0 else ""
        event = Event(number, kind, start, end, cta, warp, role, pc=pc, **more)
        if facts is not None:
            event.file, event.line, event.ptx_line = facts.file, facts.line, facts.ptx_line
            event.opcode = event.opcode or facts.opcode
        self.events.append(event)
        return number

    def _cta(self, instance: Instance, cta: int) -> int:
        """Return the CTA of an instance: instances of the recorded cluster are numbered consecutively."""
        return cta + instance.number * len(instance.sms)

    @property
    def end(self) -> float:
        """Clocks until the latest event's end."""
        return max((event.end for event in self.events), default=0.0)

    def reached(self, actor: Actor) -> None:
        """Record the time if a warp of the first cluster reaches a marked step."""
        steps = self.marks.get((actor.cta, actor.warp))
        if steps and actor.at in steps and actor.instance.number == 0:
            self.times.setdefault((actor.cta, actor.warp, actor.at), actor.time)

    def run(self, actor: Actor, start: float, end: float, pc: int, cost: Cost) -> int:
        cta = self._cta(actor.instance, actor.cta)
        tensor = next((clocks for pipe, clocks in cost.pipes if pipe == "tensor"), 0.0)
        added = self._latest[cta, actor.warp, 0] = self._add(
            RUN, start, end, cta, actor.warp, pc, what="instructions", instructions=round(cost.instructions),
            flops=round(cost.flops), busy=(max(start, end - tensor), end) if tensor else (-1.0, -1.0),
        )  # fmt: skip
        return added

    def wait(
        self, actor: Actor, what: str, start: float, end: float, pc: int, cause: int, kind: int, payload: Any,
        endless: bool = False,
    ) -> None:  # fmt: skip
        """Add a wait of a warp; `endless`: it never ends."""
        cta, barrier, phase, stage = self._cta(actor.instance, actor.cta), "", -1, -1
        if kind == kinds.WAIT:
            of = self.recording.phases[payload]
            barrier, phase, stage = of.name, of.number, of.stage
        elif kind == kinds.PASS:
            barrier = what
        self._add(
            WAIT, start, end, cta, actor.warp, pc, what=f"wait for {what}" + ", for ever" * endless, barrier=barrier,
            phase=phase, stage=stage, cause=cause,
        )  # fmt: skip

    def arrive(self, actor: Actor, time: float, pc: int, payload: int) -> int:
        of = self.recording.phases[payload]
        return self._add(
            ARRIVE, time, time, self._cta(actor.instance, actor.cta), actor.warp, pc, what=f"arrive {of.name}",
            barrier=of.name, phase=of.number, stage=of.stage,
        )  # fmt: skip

    def meet(self, actor: Actor, pc: int, payload: int) -> int:
        of = self.recording.meetings[payload].name
        return self._add(
            ARRIVE, actor.time, actor.time, self._cta(actor.instance, actor.cta), actor.warp, pc, what=f"arrive {of}",
            barrier=of,
        )  # fmt: skip

    def hold(self, actor: Actor, pc: int, columns: int) -> None:
        words = f"takes {columns} columns" if columns > 0 else f"gives back {-columns} columns"
        self._add(
            COLUMNS, actor.time, actor.time, self._cta(actor.instance, actor.cta), actor.warp, pc, what=words,
            bytes=columns * COLUMN_BYTES,
        )  # fmt: skip

    def completed(self, instance: Instance, phase: int, time: float, cause: int) -> None:
        of = self.recording.phases[phase]
        key = instance.number, hash((of.name, of.stage, of.cta))
        start = self._began.get(key, instance.start)
        self._began[key] = time
        self._add(
            BARRIER, start, time, self._cta(instance, of.cta), -1, -1, what=of.name, barrier=of.name,
            phase=of.number, stage=of.stage, cause=cause,
        )  # fmt: skip

    def operation(self, actor: Actor, index: int, start: float, begin: float, read: float, done: float) -> int:
        operation = self.recording.operations[index]
        cta = self._cta(actor.instance, operation.cta)
        kind = MATRIX if operation.flops else STORE if operation.stores else COPY
        if operation.engine == REMOTE.engine or (operation.engine == UMMA.engine and not operation.flops):
            kind = ARRIVE  # a remote arrival, or the arrival of tcgen05.commit
        first = self.recording.phases[operation.phases[0]] if operation.phases else None
        return self._add(
            kind, done if kind == ARRIVE else start, done, cta, operation.warp, operation.pc,
            what=operation.text, opcode=operation.text, bytes=operation.bytes, flops=operation.flops,
            issuer=self._latest.get((cta, operation.warp, 0), -1), barrier=first.name if first else "",
            phase=first.number if first else -1, stage=first.stage if first else -1,
            busy=(begin, read) if kind == MATRIX else (-1.0, -1.0), read=read if kind == STORE else -1.0,
            group=operation.group,
        )  # fmt: skip

    def finish(self) -> list[Event]:
        """Return the events sorted by start, with `cause` and `issuer` renumbered."""
        order = sorted(range(len(self.events)), key=lambda at: (self.events[at].start, at))
        place = {before: after for after, before in enumerate(order)}
        place[-1] = -1
        found = [self.events[at] for at in order]
        for number, event in enumerate(found):
            event.number, event.cause, event.issuer = number, place[event.cause], place[event.issuer]
        return found
