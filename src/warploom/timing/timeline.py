"""The record of a replayed run: what happened when, on which row, and what ended each wait.

A `Timeline` holds events in the order of their starts. Those of warps follow each other on a row of their own (`cta`,
`warp`); those of engines (copies, matrix groups, stores) overlap and name the event that issued them. A wait names the
event that ended it: an arrival, a copy whose bytes came, a matrix group, or the last warp at a barrier. So
`events[events[wait].cause]` is where an arrow to the wait begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

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
        cta: linear number of the CTA in the grid; warp: in the CTA, -1 for what a CTA's barriers do.
        role: of the warp: "producer", "consumer 0"; "" where the author named none.
        what: in words: "TMA load 64 x 128 into ring.a[2]", "wait full[2]".
        opcode: of the instruction; "" for a run of several.
        pc: index of the (last) instruction among the kernel's; -1 for none.
        file, line: where the author wrote it; ptx_line: in the text; 0 where not known.
        barrier: name of the mbarrier or "bar 1", "cluster"; phase: its number from 0; -1 where there is none.
        stage: index of the barrier or of the tile in its ring; -1 where there is none.
        cause: number of the event that ended it; -1 where nothing did (it passed at once).
        issuer: number of the event in which the issuing instruction stands, for engines' events; else -1.
        bytes, flops: that it moves or computes; instructions: that a run issues.
        busy: (start, end) on the tensor pipe, of a matrix event, and of a run with products of single warps; read: when
            a store's source was read; -1 otherwise.
        group: of operations that were committed together; -1 for none.
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
        kernel: its name.
        clock_mhz: of the SM, that the prediction found: `microseconds(clocks)` uses it.
        events: in order of their starts.
        grid, block, cluster: of the launch.
        sm: by CTA, the SM that it ran on.
        complete: False where events after `limit` were left out.
        shared_bytes: of a CTA; residents: CTAs that an SM holds at a time.
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
        """What each warp does, by (cta, warp): events that follow each other."""
        found: dict[tuple[int, int], list[Event]] = {}
        for event in self.events:
            if event.kind in (RUN, WAIT):
                found.setdefault((event.cta, event.warp), []).append(event)
        return found

    def of_kind(self, *kinds: str) -> Iterator[Event]:
        return (event for event in self.events if event.kind in kinds)

    def waits(self) -> dict[str, dict[str, float]]:
        """Clocks that each role waits, by what for: {"consumer 0": {"full": 812.0}}; of all its warps."""
        found: dict[str, dict[str, float]] = {}
        for event in self.of_kind(WAIT):
            causes = found.setdefault(event.role or f"warp {event.warp}", {})
            causes[event.barrier or event.what] = causes.get(event.barrier or event.what, 0.0) + event.clocks
        return found

    # -- as data -----------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Plain values: the events as columns, a list for each attribute, which packs well."""
        names = [one.name for one in fields(Event) if one.name != "number"]
        head = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "events"}
        columns = {name: [getattr(event, name) for event in self.events] for name in names}
        return {"version": VERSION, **head, "count": len(self.events), "columns": columns}

    def to_json(self, path: str | Path | None = None) -> str:
        """The text, written to `path` too where it is given."""
        text = json.dumps(self.as_dict())
        if path is not None:
            Path(path).write_text(text)
        return text

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Timeline:
        """What `as_dict` gave."""
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
        return cls.from_dict(json.loads(text))
