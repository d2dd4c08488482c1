"""The timeline of a replayed run: its events, their rows, and the cause of the end of each wait.

A `Timeline` holds events in the order of their starts. Events of one warp do not overlap and share a row (`cta`,
`warp`). Events of engines (copies, matrix groups, stores) overlap and name the event that issued them. A wait names the
event
that ended it: an arrival, a copy whose bytes arrived, a matrix group, or the last warp at a barrier. So
`events[events[wait].cause]` is where an arrow to the wait begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

RUN, WAIT, ARRIVE, COPY, STORE, MATRIX, BARRIER, COLUMNS = (
    "run", "wait", "arrive", "copy", "store", "matrix", "barrier", "columns",
)  # fmt: skip
KINDS: Mapping[str, str] = {
    RUN: "a warp issues instructions, from one of the others to the next",
    WAIT: "a warp stands still: for a phase, a group, a meeting, or the value of a load; `cause` ended it",
    ARRIVE: "an arrival on an mbarrier takes effect, or bytes are announced; start and end are the same",
    COPY: "bytes are on their way to shared memory (TMA, bulk copy, cp.async) or between tensor memory and registers, "
    "from the issue to the signal",
    STORE: "bytes are on their way from shared memory; `read` is when they had left it",
    MATRIX: "a matrix product in flight, from its issue to its result; `busy` is the tensor core's part",
    BARRIER: "a phase of an mbarrier, from the one before to its completion; `cause` completed it",
    COLUMNS: "columns of tensor memory are taken, or given back where `bytes` is below 0; start and end are the same",
}
"""Kinds of events."""
VERSION = 2


@dataclass(slots=True)
class Event:
    """One event; times are clocks of the SM since the launch began.

    Attributes:
        number: its index in `Timeline.events`.
        kind: one of KINDS.
        start, end: clocks.
        cta: linear index of the CTA in the grid; warp: index in the CTA, -1 for events of a CTA's barriers.
        role: the warp's role: "producer", "consumer 0"; "" if the author named none.
        what: a description: "TMA load 64 x 128 into ring.a[2]", "wait full[2]".
        opcode: the instruction's opcode; "" for a run of several.
        pc: index of the (last) instruction in the kernel; -1 for none.
        file, line: position in the author's source; ptx_line: line in the PTX; 0 if unknown.
        barrier: name of the mbarrier or "bar 1", "cluster"; phase: its number from 0; -1 for none.
        stage: index of the barrier or of the tile in its ring; -1 for none.
        cause: number of the event that ended a wait; -1 if it passed at once.
        issuer: for events of engines, the number of the event that contains the issuing instruction; else -1.
        bytes, flops: bytes that it moves, FLOP that it computes; instructions: the number that a run issues.
        busy: (start, end) on the tensor pipe, for a matrix event or a run with products of single warps; read: when
            a store's source was read; -1 otherwise.
        group: operations that were committed together share a group; -1 for none.
    """

    number: int
    kind: str
    start: float
    end: float
    cta: int
    warp: int
    role: str = ""
    what: str = ""
    opcode: str = ""
    pc: int = -1
    file: str = ""
    line: int = 0
    ptx_line: int = 0
    barrier: str = ""
    phase: int = -1
    stage: int = -1
    cause: int = -1
    issuer: int = -1
    bytes: int = 0
    flops: int = 0
    instructions: int = 0
    busy: tuple[float, float] = (-1.0, -1.0)
    read: float = -1.0
    group: int = -1

    @property
    def clocks(self) -> float:
        return self.end - self.start


@dataclass
class Timeline:
    """Events of the CTAs that were replayed, usually those of one SM or one cluster.

    Attributes:
        kernel: the kernel's name.
        clock_mhz: the predicted SM clock, which `microseconds(clocks)` uses.
        events: events in order of their starts.
        grid, block, cluster: dimensions of the launch.
        sm: the SM of each CTA.
        complete: False if events after `limit` were left out.
        shared_bytes: shared memory per CTA; residents: resident CTAs per SM.
    """

    kernel: str
    clock_mhz: float
    events: list[Event] = field(default_factory=list)
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    sm: dict[int, int] = field(default_factory=dict)
    complete: bool = True
    shared_bytes: int = 0
    residents: int = 1

    @property
    def end(self) -> float:
        """Clocks from the launch to the last event's end."""
        return max((event.end for event in self.events), default=0.0)

    def microseconds(self, clocks: float) -> float:
        return clocks / self.clock_mhz

    def rows(self) -> dict[tuple[int, int], list[Event]]:
        """The runs and waits of each warp in order, by (cta, warp)."""
        found: dict[tuple[int, int], list[Event]] = {}
        for event in self.events:
            if event.kind in (RUN, WAIT):
                found.setdefault((event.cta, event.warp), []).append(event)
        return found

    def of_kind(self, *kinds: str) -> Iterator[Event]:
        return (event for event in self.events if event.kind in kinds)

    def waits(self) -> dict[str, dict[str, float]]:
        """Clocks that all warps of each role wait, by reason: {"consumer 0": {"full": 812.0}}."""
        found: dict[str, dict[str, float]] = {}
        for event in self.of_kind(WAIT):
            causes = found.setdefault(event.role or f"warp {event.warp}", {})
            causes[event.barrier or event.what] = causes.get(event.barrier or event.what, 0.0) + event.clocks
        return found

    # -- as data -----------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with the events as columns: a list per attribute, which compresses well."""
        names = [one.name for one in fields(Event) if one.name != "number"]
        head = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "events"}
        columns = {name: [getattr(event, name) for event in self.events] for name in names}
        return {"version": VERSION, **head, "count": len(self.events), "columns": columns}

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the JSON text, and write it to `path` if given."""
        text = json.dumps(self.as_dict())
        if path is not None:
            Path(path).write_text(text)
        return text

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Timeline:
        """Make a timeline from the values of `as_dict`. Raises ArgumentError for others."""
        try:
            return cls._from_columns(data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _not_a_timeline(f"{type(error).__name__}: {error}") from error

    @classmethod
    def _from_columns(cls, data: Mapping[str, Any]) -> Timeline:
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}")
        columns = dict(data["columns"])
        names = list(columns)
        events = []
        for number, values in enumerate(zip(*columns.values(), strict=True)):
            attributes = dict(zip(names, values, strict=True))
            attributes["busy"] = tuple(attributes["busy"])
            events.append(Event(number=number, **attributes))
        triples = {name: tuple(data[name]) for name in ("grid", "block", "cluster")}
        return cls(
            data["kernel"], data["clock_mhz"], events, **triples, complete=data["complete"],
            sm={int(cta): sm for cta, sm in data["sm"].items()}, shared_bytes=data["shared_bytes"],
            residents=data["residents"],
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Timeline:
        """Make a timeline from the text of `to_json`. Raises ArgumentError for any other."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise _not_a_timeline(f"no JSON: {error}") from error
        return cls.from_dict(data)


def _not_a_timeline(why: str) -> ArgumentError:
    return ArgumentError(
        "this is not a timeline", expected=f"what Timeline.to_json writes, version {VERSION}", got=why,
        hint='of what `warploom trace --json` prints, pass the value of "timeline"',
    )  # fmt: skip
