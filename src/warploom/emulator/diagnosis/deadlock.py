"""The report of a deadlock: who waits, for what, what is missing, and what has arrived so far.

Threads that wait for the same thing at the same place share one line: warps as ranges, CTAs as a list. A barrier has
the name its author gave it. If it belongs to the waiting CTA, its rank is omitted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ...errors import DeadlockError, SourceLocation
from ..engines.expected_bytes import byte_count_mismatch
from ..machine.machine import FULL, Cta, Fragment, Machine, Warp
from ..machine.mbarrier import MBarrier
from ..machine.wait import Wait
from ..machine.ways_out import exit_place, how_it_left
from .phases import came_in, told

DEADLOCK = "deadlock: no thread can run and no copy is in flight"
Words = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Reason, what is missing, what came, what came only in the previous phase, and who of that has exited."""
SHOWN = 4
"""CTAs, and groups of arrivals, that are listed individually."""


@dataclass(frozen=True)
class Blocked:
    """Threads that wait for the same thing at the same place.

    Attributes:
        who: role and warps; ctas: their CTAs.
        reason: what they wait for; missing: what is still missing; came: what has arrived so far.
        before: what arrived in the previous phase but not in this one; left: the warps of that which have exited.
    """

    who: str
    reason: str
    missing: str
    came: tuple[str, ...]
    before: tuple[str, ...]
    location: SourceLocation | None
    text: str
    ctas: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.who} in {self.where()}",
            f"waits for {self.reason}" + (f": {self.missing}" * bool(self.missing)),
            f"at      {self.location or ''}  {self.text}",
        ]
        if self.came or self.missing:
            first, *rest = self.came or ("nothing",)
            lines += [f"so far  {first}", *(f"        {one}" for one in rest)]
        lines += [f"before  {one}, not in this phase" for one in self.before]
        lines += [f"left    {one}" for one in self.left]
        return "\n      ".join(lines)

    def what(self) -> str:
        """What they wait for, followed by what has arrived."""
        lines = [f"waits for {self.reason}" + (f": {self.missing}" * bool(self.missing))]
        lines += [f"so far: {one}" for one in self.came or ("nothing",) * bool(self.missing)]
        lines += [f"in the previous phase: {one}, not in this one" for one in self.before]
        lines += self.left
        return "\n".join(lines)

    def where(self) -> str:
        """The CTAs, in words."""
        if len(self.ctas) <= SHOWN:
            return ", ".join(self.ctas)
        return f"{len(self.ctas)} CTAs, the first of them {self.ctas[0]}"


@dataclass
class _Line:
    """A line under construction: warps and their lanes by CTA."""

    warps: dict[Cta, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    waits: list[tuple[MBarrier, Cta, int]] = field(default_factory=list)
    text: str = ""


def report_deadlock(machine: Machine, spinning: bool) -> DeadlockError:
    """The error for a machine in which no thread can continue. `spinning`: some threads poll, but nothing changes."""
    lines: dict[tuple[object, ...], _Line] = defaultdict(_Line)
    only_barriers = True
    for cta, warp, fragment in _fragments(machine):
        wait = fragment.wait
        only_barriers &= wait is not None and not wait.spins
        operation = machine.code.operations[fragment.pc]
        about = _about(fragment)
        words = _mbarrier_words(cta, about) if about else _other_words(wait)
        location = operation.instruction.location
        # Each copy of an unrolled line waits with other registers, but counts as one place.
        line = lines[(*words, location, operation.instruction.opcode if location else operation.text)]
        line.text = line.text or operation.text
        line.warps[cta][warp.index] = fragment.lanes
        line.waits += [(barrier, cta, warp.index) for barrier, _ in about]
    blocked = [_blocked(key, line) for key, line in lines.items()]
    blocked.sort(key=lambda one: not (one.came and one.missing))  # a partly satisfied wait is nearest to the cause
    polls = spinning and not only_barriers
    extra, left_out = _not_run(machine, polls)
    first = blocked[0] if blocked else None
    error = DeadlockError(
        ("the kernel polls for ever" if polls else DEADLOCK) + extra,
        where=f"{first.location or ''}  {first.text}" if first else None,
        blocked=tuple(map(str, blocked)) + tuple(f"in flight: {line}" for line in machine.engine.describe_pending()),
        consequence=None if left_out else "the kernel hangs on hardware",
        hint=left_out or _advice(machine, [wait for line in lines.values() for wait in line.waits], polls),
    )
    error.waits = tuple(blocked)
    error.location = first.location if first else None
    return error


def _not_run(machine: Machine, polls: bool) -> tuple[str, str]:
    """The clusters of the grid that did not start, in words, and advice if the run left them out and some thread polls.

    Only such a thread can wait for another cluster: barriers belong to one.
    """
    missing, in_all = machine.clusters_in_all - machine.started, machine.clusters_in_all
    if missing <= 0:
        return "", ""
    if not polls or machine.to_run == in_all:
        return f"; {missing} more of the grid's clusters had not started", ""
    together = min(in_all, machine.places * len(machine.devices))
    return f"; only {machine.started} of the grid's {in_all} clusters ran, and it may wait for the others", (
        "run all that wait for each other, as at a barrier of the whole grid: "
        f"clusters={together} in Python, --clusters {together} on the command line"
    )


def _fragments(machine: Machine) -> list[tuple[Cta, Warp, Fragment]]:
    return [
        (cta, warp, fragment)
        for cluster in machine.resident
        for cta in cluster.ctas
        for warp in cta.warps
        for fragment in warp.fragments
    ]


def _about(fragment: Fragment) -> list[tuple[MBarrier, int | None]]:
    """The mbarriers a fragment waits for, with the parity it names."""
    about = fragment.wait.about() if fragment.wait is not None and fragment.wait.about is not None else ()
    return [(barrier, parity) for barrier, parity in about if isinstance(barrier, MBarrier)]


def _mbarrier_words(cta: Cta, about: list[tuple[MBarrier, int | None]]) -> Words:
    """The words for an mbarrier; the same in every CTA."""
    barrier, parity = about[0]
    name = barrier.name if barrier.cta is not cta else cta.machine.code.name_shared(barrier.offset)
    also = f" and {len(about) - 1} more" if len(about) > 1 else ""
    phase = f"phase {barrier.phase}" + ("" if parity is None else f" (parity {parity})")
    now = came_in(barrier.log.get(barrier.phase, []))
    before = came_in(barrier.log.get(barrier.phase - 1, []))
    lost = told(entry for key, entry in before.items() if key not in now) if now else ()
    return (
        f"mbarrier {name}, {phase}{also}",
        barrier.missing(),
        told(now.values()),
        lost,
        _left(barrier) if lost else (),
    )


def _left(barrier: MBarrier) -> tuple[str, ...]:
    """The warps that arrived in the previous phase, but not in this one, and have exited."""
    here, earlier = (
        [event for event in barrier.log.get(phase, []) if event.what == "arrive"]
        for phase in (barrier.phase, barrier.phase - 1)
    )
    came = {(event.by.frame.cta, warp) for event in here for warp, _ in event.warps}
    goals = {event.by.operation.pc for event in (*here, *earlier)}
    words: dict[str, dict[Cta, set[int]]] = defaultdict(lambda: defaultdict(set))
    for event in earlier:
        cta = event.by.frame.cta
        for warp, _ in event.warps:
            if (cta, warp) not in came and cta.warps[warp].exited:
                gone = cta.warps[warp]
                words[f"exited{exit_place(gone)}{how_it_left(gone, goals)}"][cta].add(warp)
    return tuple(
        f"{cta.describe_warps(sorted(warps))} of {cta.describe()} {'has' if len(warps) == 1 else 'have'} {how}"
        for how, places in words.items()
        for cta, warps in list(places.items())[:SHOWN]
    )


def _other_words(wait: Wait | None) -> Words:
    """The words for any other wait; barriers of a CTA or a cluster keep who has arrived."""
    if wait is None:
        return "its turn", "", (), (), ()
    events = [event for barrier, _ in (wait.about() if wait.about else ()) for event in getattr(barrier, "log", ())]
    return wait.describe(), "", told(came_in(events).values()), (), ()


def _blocked(key: tuple[object, ...], line: _Line) -> Blocked:
    reason, missing, came, before, left, location, _ = key
    warps = {warp: lanes for found in line.warps.values() for warp, lanes in found.items()}
    return Blocked(
        _threads(warps, next(iter(line.warps))),
        str(reason), str(missing), came, before, location, line.text,  # type: ignore[arg-type]
        tuple(cta.describe() for cta in line.warps), left,  # type: ignore[arg-type]
    )  # fmt: skip


def _threads(warps: dict[int, int], cta: Cta) -> str:
    """Warps by role and as ranges; threads for partial warps."""
    whole = [warp for warp, lanes in warps.items() if lanes in (FULL, cta.warps[warp].alive)]
    parts = [cta.describe_warps(whole)] if whole else []
    for warp, lanes in sorted(warps.items()):
        if warp not in whole:
            role, count = cta.machine.code.role(warp), lanes.bit_count()
            one = f"thread {warp * 32 + lanes.bit_length() - 1}" if count == 1 else f"{count} threads of warp {warp}"
            parts.append(f"{role} ({one})" if role else one)
    return ", ".join(parts)


def _apart(machine: Machine) -> str:
    """The instruction at which some threads of a warp wait for the others; "" if there is none."""
    return next(
        (machine.code.operations[fragment.pc].instruction.opcode for _, _, fragment in _fragments(machine)
         if fragment.wait is not None and fragment.wait.kind == "convergence"), ""
    )  # fmt: skip


def _polled(machine: Machine) -> str:
    """The instruction by which threads poll memory; "" if all wait for barriers or for other threads."""
    return next(
        (machine.code.operations[fragment.pc].text.rstrip(";") for _, _, fragment in _fragments(machine)
         if fragment.wait is not None and fragment.wait.spins and not _about(fragment)), ""
    )  # fmt: skip


def _advice(machine: Machine, waits: list[tuple[MBarrier, Cta, int]], polls: bool) -> str | None:
    """Advice by the state of the barriers, or by the word that threads poll: the rest of their warp waits for them."""
    polled = _polled(machine) if polls else ""
    found = _hint(waits, "" if polled else _apart(machine))
    if found is None and polled:
        return f"nothing changes what `{polled}` reads: find the thread that should, and what it waits for"
    return found


def _hint(waits: list[tuple[MBarrier, Cta, int]], apart: str) -> str | None:
    """Advice, if the state of the barriers allows one. `waits`: barriers, each with a waiting warp.

    apart: an instruction that only part of a warp has reached.
    """
    for barrier, _, _ in waits:
        expected, delivered = (_sum(barrier, what) for what in ("expect", "complete"))
        if barrier.pending == 0 and barrier.tx:
            guessed, boxes = barrier.cta.machine.guessed, byte_count_mismatch(barrier)
            if guessed and boxes is not None and boxes.instead:
                return f"{guessed} contains a wrong guess of a box: {boxes}"
            return (
                f"phase {barrier.phase} of {_local(barrier)} expects {expected} bytes but gets {delivered}: "
                "expect exactly the bytes of all its copies"
            )
    for barrier, cta, warp in waits:
        if barrier.phase == 0 and not barrier.log.get(0):
            others = {id(other): other for other, _, _ in waits if other is not barrier and other.phase == 0}
            if others and not any(_came_to(other, cta, warp) for other in others.values()):
                names = dict.fromkeys(_local(other) for other in (barrier, *others.values()))
                return (
                    f"{' and '.join(list(names)[:2])} are in their first phase, and each side waits for the other. One "
                    "must pass first: wait for a free stage with parity 1, which passes on a new barrier"
                )
    for barrier, _, _ in waits:
        came = _sum(barrier, "arrive")
        if came and barrier.pending:
            return (
                f"{_local(barrier)} is initialised for {barrier.expected} arrivals a phase but got {came}: let the "
                "missing threads arrive, or change the count of mbarrier.init"
            )
    for barrier, _, _ in waits:
        if barrier.pending and not barrier.log.get(barrier.phase):
            name, phase = _local(barrier), barrier.phase
            nobody = f"no thread has arrived on {name} in phase {phase}: find out where those that should arrive are"
            return f"{_together(apart)}; {nobody}" if apart else nobody
    return _together(apart) if apart else None


def _together(opcode: str) -> str:
    return f"all threads of a warp execute {opcode} together: none of them may branch around it"


def _came_to(barrier: MBarrier, cta: Cta, warp: int) -> bool:
    """True if a warp has done anything to a barrier in the phases that are recorded."""
    return any(
        event.by.frame.cta is cta and event.by.frame.first_warp + (event.by.lane or 0) // 32 == warp
        for events in barrier.log.values()
        for event in events
    )


def _local(barrier: MBarrier) -> str:
    """A barrier's name within its CTA."""
    return barrier.cta.machine.code.name_shared(barrier.offset)


def _sum(barrier: MBarrier, what: str) -> int:
    return sum(event.amount for event in barrier.log.get(barrier.phase, []) if event.what == what)
