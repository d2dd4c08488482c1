"""Races in tensor memory: which accesses to its cells must be ordered, and how. PTX ISA 9.7.16.6.

Every access is made by an asynchronous operation. Between two accesses to a cell, one of two things must hold. Either
the later one's thread knows that the earlier operation is complete (its own wait, or a commit that was waited for), or
the hardware keeps the two in order (`PIPELINED`), and then the thread must know that the earlier one was issued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import BarrierUse, CompletedWait, Observer
from ...emulator.machine.mbarrier import Event, MBarrier
from ...emulator.machine.tensor_memory import Cells, Columns
from ...isa import effects
from ...isa.tensor_memory import COLUMNS, LANES, QUARTER
from ..happens_before.access import ASYNC, Access, InFlight, flights_of
from ..happens_before.state import record_of
from ..happens_before.view import View
from ..report.findings import at
from ..report.words import actor, deed, side
from ..rules import ERROR, WARNING
from ..shadow.shadow import distinct

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.finding import Finding
    from ...emulator.machine.frame import Frame, Issuer
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ...errors import EmulationError
    from ..context import Context
    from ..happens_before.state import ClusterState

MMA, COPY, SHIFT, LOAD, STORE = "mma", "cp", "shift", "ld", "st"
DONE, ISSUED, UNLISTED, STORED, UNORDERED = "done", "issued", "unlisted", "stored", "unordered"
"""How an earlier access and a later one are ordered. UNLISTED: on today's chips, but not by the ISA's list; STORED: the
later thread knows that the loaded values were stored, and so had been loaded."""
NOT_WAITED = "the loaded values were stored before, so it is complete; by the ISA only tcgen05.wait::ld orders the two"


@dataclass(eq=False)
class Shadow:
    """Tensor memory of one CTA: the last write of each cell, and the set of its readers since, as numbers."""

    last: np.ndarray = field(default_factory=lambda: np.zeros((LANES, COLUMNS), np.int32))
    readers: np.ndarray = field(default_factory=lambda: np.zeros((LANES, COLUMNS), np.int32))


@dataclass(eq=False)
class Notes:
    """The checker's state for a cluster.

    Attributes:
        shadows: by the CTA's rank.
        issued: flight -> the epoch in which its warp issued it.
        let_go: flights whose warp has executed fence::before_thread_sync since.
        offered: warp -> operations (bits) that relaxed waits told of.
        taken: warp -> operations (bits) that it knew of, or was offered, at a fence::after_thread_sync.
        unreleased: flights whose warp has told of them by relaxed arrivals alone, without fence::before_thread_sync.
    """

    shadows: dict[int, Shadow] = field(default_factory=dict)
    issued: dict[InFlight, int] = field(default_factory=dict)
    let_go: set[InFlight] = field(default_factory=set)
    offered: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    unreleased: set[InFlight] = field(default_factory=set)

    def of(self, cta: Cta) -> Shadow:
        return self.shadows.setdefault(cta.rank, Shadow())


def kind_of(flight: InFlight) -> str:
    """MMA, COPY, SHIFT, LOAD or STORE."""
    return flight.code.row.form.key.split(".")[1].split("_")[0]


class TensorCells(Observer):
    """See the module's docstring."""

    rules = (
        "tensor-memory-race", "tensor-memory-overwritten", "tensor-memory-uninitialised", "tensor-memory-order",
        "missing-tensor-fence", "freed-columns-in-use", "tensor-address-of-another-warp",
    )  # fmt: skip
    only_with = "tcgen05"

    def __init__(self, context: Context) -> None:
        self.context = context
        self._forgiven: dict[InFlight, set[tuple[str, tuple[Operation, ...], bool]]] = {}
        """Loads that were too late for someone: the warnings, and whether their values had been stored by then."""
        opcodes = (operation.instruction.opcode for operation in context.machine.code.operations)
        self._fenced = any(opcode.startswith("tcgen05.fence") for opcode in opcodes)

    # -- operations ------------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        if not any(isinstance(one, Cells) for one in (*operation.sources, *operation.targets)):
            return
        for flight in flights_of(operation):
            state = self.context.state(flight.cta)
            clock, notes = state.clocks[flight.me], state.notes(Notes)
            view = View.of(clock)
            notes.issued[flight] = clock.epoch
            self._check_quarter(flight)
            read = state.of_flight(flight, False, ASYNC)
            write = state.of_flight(flight, True, ASYNC)
            for source in operation.sources:
                if isinstance(source, Cells):
                    self._read(state, notes.of(source.cta), source, read, view)
            for target in operation.targets:
                if isinstance(target, Cells):
                    self._write(state, notes.of(target.cta), target, write, view)

    def _check_quarter(self, flight: InFlight) -> None:
        """A warp may name only the lanes of its own quarter. Chips ignore which one it names; lane 0 is a custom."""
        quarters = LANES // QUARTER
        own = flight.warp % quarters
        for cells in (*flight.operation.sources, *flight.operation.targets):
            named = cells.named if isinstance(cells, Cells) else None
            if named is None or named // QUARTER == own:
                continue
            if not self.context.strict and named // QUARTER % quarters in (0, own):
                continue
            severity = ERROR if self.context.strict else WARNING
            if not self.context.findings.seen("tensor-address-of-another-warp", (flight.code,), severity):
                self.context.findings.add(
                    "tensor-address-of-another-warp",
                    f"{actor(flight.cta, flight.warp)} passes lane {named} to {at(flight.code)}; its own are "
                    f"{own * QUARTER} to {own * QUARTER + QUARTER - 1}, which it accesses instead",
                    (flight.code,), flight.cta, flight.warp, severity,
                )  # fmt: skip

    def _read(self, state: ClusterState, shadow: Shadow, cells: Cells, number: int, view: View) -> None:
        now = state.accesses[number]
        last = shadow.last[cells.lanes, cells.columns]
        for earlier in distinct(last):
            if earlier == 0:
                self._uninitialised(cells, last, now)
            else:
                self._judge(state, cells, last == earlier, state.accesses[earlier], now, view)
        before = shadow.readers[cells.lanes, cells.columns]
        numbers = distinct(before)
        table = np.zeros(max(numbers) + 1, np.int32)
        for old in numbers:
            table[old] = state.readers.add(self._without(state, old, now), number)
        shadow.readers[cells.lanes, cells.columns] = table[before]

    @staticmethod
    def _without(state: ClusterState, old: int, now: Access) -> int:
        """A set of readers without those that are complete whenever the new one is: earlier ones of its own chain."""
        new = now.flight
        assert new is not None
        kept = []
        for number in state.readers.sets[old]:
            other = state.accesses[number].flight
            assert other is not None
            same = other.me == new.me and other.operation.issuer.lane_of_warp == new.operation.issuer.lane_of_warp
            if not (same and kind_of(other) == kind_of(new) and other.operation.pipeline == new.operation.pipeline):
                kept.append(number)
        return state.readers.number(tuple(kept))

    def _write(self, state: ClusterState, shadow: Shadow, cells: Cells, number: int, view: View) -> None:
        """Cells that were read since the last write are judged by their readers, which came after that write."""
        now = state.accesses[number]
        readers = shadow.readers[cells.lanes, cells.columns]
        last = np.where(readers == 0, shadow.last[cells.lanes, cells.columns], 0)
        for earlier in distinct(last):
            if earlier and state.accesses[earlier].flight is not now.flight:
                self._judge(state, cells, last == earlier, state.accesses[earlier], now, view)
        for group in distinct(readers):
            for reader in state.readers.sets[group]:
                if state.accesses[reader].flight is not now.flight:
                    self._judge(state, cells, readers == group, state.accesses[reader], now, view)
        shadow.last[cells.lanes, cells.columns] = number
        shadow.readers[cells.lanes, cells.columns] = 0

    # -- order -----------------------------------------------------------------------------------------------------

    def _order(self, state: ClusterState, earlier: Access, now: Access, view: View) -> str:
        """The order of two accesses to a cell, one of them a write."""
        if earlier.bit & (view.known | state.notes(Notes).taken.get(now.me, 0)):
            return DONE
        first, second = earlier.flight, now.flight
        assert first is not None and second is not None
        by, then = first.operation.issuer, second.operation.issuer
        same = first.me == second.me and by.lane_of_warp == then.lane_of_warp
        if not earlier.writes and _is_stored(first, view):
            return STORED
        if not same and view.c[first.me] < state.notes(Notes).issued[first]:
            return UNORDERED
        pair = (kind_of(first), kind_of(second))
        if pair == (MMA, MMA):
            if first.operation.pipeline == second.operation.pipeline:
                return ISSUED
            return UNLISTED if now.writes and (earlier.writes or same) else UNORDERED
        if pair in ((COPY, MMA), (SHIFT, MMA), (MMA, SHIFT), (SHIFT, SHIFT)):
            return ISSUED
        if pair == (SHIFT, COPY) and second.code.row.modifiers["shape"] == "4x256b":
            return ISSUED
        if pair == (COPY, SHIFT) and same:  # a product of the thread in between follows the one and precedes the other
            made = (one for one in state.notes(Notes).issued if first.number < one.number < second.number)
            lanes = (one.operation.issuer.lane_of_warp for one in made if one.me == first.me and kind_of(one) == MMA)
            return ISSUED if by.lane_of_warp in lanes else UNORDERED
        if pair == (MMA, COPY) and not earlier.writes:
            return UNLISTED if same else UNORDERED
        return UNORDERED

    def _judge(
        self, state: ClusterState, cells: Cells, hits: np.ndarray, earlier: Access, now: Access, view: View
    ) -> None:
        how = self._order(state, earlier, now, view)
        if how == DONE and earlier.me != now.me:
            self._check_fences(state, earlier, now)
        if how in (ISSUED, DONE):
            return
        assert earlier.flight is not None and now.flight is not None
        rule = "tensor-memory-overwritten" if now.writes and not earlier.writes else "tensor-memory-race"
        if how == UNLISTED:
            rule = "tensor-memory-order"
        codes = (now.code, earlier.code)
        own = how == STORED and earlier.me == now.me and kind_of(now.flight) == STORE  # a late wait tells nobody else
        harmless = (own or self._is_harmless(earlier, how == STORED, rule, codes)) and not self.context.strict
        severity = WARNING if harmless or how == UNLISTED else ERROR
        if self.context.findings.seen(rule, codes, severity):
            return
        place = _place(cells, hits)
        missing = NOT_WAITED if how == STORED else _missing(earlier.flight)
        if how == UNLISTED:
            missing = "the ISA does not list the two as ordered; today's chips keep the order"
        self.context.findings.add(
            rule, f"{deed(now)} {place}, and {deed(earlier)} the same cells before; {missing}", codes, now.cta,
            now.warp, severity, (side(now, place), side(earlier, place, before=True)), place, missing,
        )  # fmt: skip

    def _uninitialised(self, cells: Cells, last: np.ndarray, now: Access) -> None:
        assert now.flight is not None
        idle = kind_of(now.flight) == LOAD and _is_of_64_rows(last) and not self.context.strict
        severity = WARNING if idle else ERROR
        if self.context.findings.seen("tensor-memory-uninitialised", (now.code,), severity):
            return
        place = _place(cells, last == 0)
        self.context.findings.add(
            "tensor-memory-uninitialised", f"{deed(now)} {place}, which nothing has written since the allocation",
            (now.code,), now.cta, now.warp, severity, sides=(side(now, place),), address=place,
        )  # fmt: skip

    # -- loads that nobody waits for -------------------------------------------------------------------------------

    def _is_harmless(self, earlier: Access, stored: bool, rule: str, codes: tuple[Operation, ...]) -> bool:
        """Whether a load's values were stored before, or nobody has stored them or waited for them and never will."""
        flight = earlier.flight
        assert flight is not None
        known = self.context.state(flight.cta).clocks[flight.me].known
        if not stored and (kind_of(flight) != LOAD or flight.stored >= 0 or flight.done & known):
            return False
        self._forgiven.setdefault(flight, set()).add((rule, codes, stored))
        return True

    def _is_needed(self, flight: InFlight, waited: bool = False) -> None:
        """A load's values are used. If its warp waits for them it relies on no register, and this wait is too late."""
        for rule, codes, stored in self._forgiven.pop(flight, ()) if not flight.replaced else ():
            if waited or not stored:
                self.context.findings.raise_to_error(rule, codes, "; its tcgen05.wait::ld is late" if stored else "")

    def stopped(self, error: EmulationError) -> None:
        for flight in list(self._forgiven):
            self._is_needed(flight)

    def report(self) -> list[Finding]:
        for flight in [one for one in self._forgiven if one.stored >= 0]:
            self._is_needed(flight)
        return []

    # -- fences ----------------------------------------------------------------------------------------------------

    def fenced(self, frame: Frame, places: object) -> None:
        for fence in frame.operation.effects:
            if not isinstance(fence, effects.Fences) or not fence.kind.startswith("thread_sync:"):
                continue
            state = self.context.state(frame.cta)
            notes = state.notes(Notes)
            for clock in state.of_frame(frame):
                if fence.direction == "acquire":
                    offered = notes.offered.pop(clock.me, 0)
                    if offered:
                        clock.learn(offered & sum(flight.all for flight in notes.issued))
                    notes.taken[clock.me] = notes.taken.get(clock.me, 0) | clock.known | offered
                else:
                    notes.let_go.update(flight for flight in notes.issued if flight.me == clock.me)

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        if isinstance(wait.what, MBarrier) and wait.what.phase and not frame.operation.order.acquires:
            state = self.context.state(frame.cta)
            offered, known = state.notes(Notes).offered, record_of(wait.what).previous.told(True).known
            offered.update({clock.me: offered.get(clock.me, 0) | known for clock in state.of_frame(frame)})
        for operation, _ in wait.operations:
            for flight in flights_of(operation):
                self._is_needed(flight, waited=True)

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        if event.what != "arrive":
            return
        state = self.context.state(event.by.frame.cta)
        notes, warps = state.notes(Notes), {clock.me for clock, _ in state.clocks_of(event.by)}
        if event.by.operation.order.sem == "relaxed":
            mine = (one for one in notes.issued if one.me in warps and one not in notes.let_go)
            notes.unreleased.update(one for one in mine if kind_of(one) in (LOAD, STORE))
        elif notes.unreleased:
            notes.unreleased = {one for one in notes.unreleased if one.me not in warps}

    def _check_fences(self, state: ClusterState, earlier: Access, now: Access) -> None:
        """According to the ISA, each side of a hand-over between threads also needs a tcgen05 fence."""
        notes, first, lacks = state.notes(Notes), earlier.flight, []
        assert first is not None
        needed = self.context.strict or first in notes.unreleased
        if kind_of(first) in (LOAD, STORE) and first not in notes.let_go:
            lacks.append(f"fence::before_thread_sync by {actor(earlier.cta, earlier.warp)}")
        if not earlier.bit & notes.taken.get(now.me, 0):
            lacks.append(f"fence::after_thread_sync by {actor(now.cta, now.warp)}")
        codes, severity = (now.code, earlier.code), ERROR if needed else WARNING
        lacks = lacks if needed or self._fenced else []  # a kernel without any relies on release and acquire
        if lacks and not self.context.findings.seen("missing-tensor-fence", codes, severity):
            self.context.findings.add(
                "missing-tensor-fence",
                f"{at(now.code)} follows {at(earlier.code)} of another warp without tcgen05.{' and '.join(lacks)}",
                codes, now.cta, now.warp, severity,
            )  # fmt: skip

    # -- columns ---------------------------------------------------------------------------------------------------

    def made(self, kind: str, what: object, by: Issuer) -> None:
        if isinstance(what, Columns):
            shadow = self.context.state(what.cta).notes(Notes).of(what.cta)
            shadow.last[:, what.start : what.end] = 0
            shadow.readers[:, what.start : what.end] = 0

    def unmade(self, kind: str, what: object, by: Issuer) -> None:
        """Columns are freed: no operation may still use them."""
        if not isinstance(what, Columns):
            return
        state = self.context.state(what.cta)
        shadow = state.notes(Notes).of(what.cta)
        clock = state.clock_of(by)
        view = View.of(clock)
        warp = clock.me % state.per_cta
        columns = slice(what.start, what.end)
        numbers = [one for one in distinct(shadow.last[:, columns]) if one]
        for group in distinct(shadow.readers[:, columns]):
            numbers += state.readers.sets[group]
        for number in numbers:
            access = state.accesses[number]
            codes = (by.operation, access.code)
            assert access.flight is not None
            if access.bit & clock.known:
                continue
            stored = _is_stored(access.flight, view)
            works = self._is_harmless(access, stored, "freed-columns-in-use", codes)
            severity = WARNING if works and not self.context.strict else None
            if self.context.findings.seen("freed-columns-in-use", codes, severity):
                continue
            self.context.findings.add(
                "freed-columns-in-use",
                f"{actor(what.cta, warp)} frees {what.count} columns from {what.start} with "
                f"{at(by.operation)}, and {deed(access)} some of them; "
                + (NOT_WAITED if stored else _missing(access.flight)),
                codes, what.cta, warp, severity,
                fix="tcgen05.wait::ld after the load, then a barrier, then tcgen05.dealloc" if stored else "",
            )  # fmt: skip


def _is_stored(flight: InFlight, view: View) -> bool:
    """True if the loaded values were stored before some signal that has arrived here, of any lane and scope: a complete
    load is complete for all threads."""
    return 0 <= flight.stored <= view.weak[flight.me]


def _is_of_64_rows(last: np.ndarray) -> bool:
    """Whether the lanes that nothing has written are those that a product of 64 rows leaves out: a warp's upper 16."""
    half = QUARTER // 2
    return len(last) == QUARTER and bool(last[:half].all()) and not last[half:].any()


def _place(cells: Cells, hits: np.ndarray) -> str:
    """The first affected cell, and the CTA that owns the tensor memory."""
    lane, column = (int(at[0]) for at in np.nonzero(hits))
    lanes = np.arange(LANES)[cells.lanes]
    rank = f" of cluster rank {cells.cta.rank}" if cells.cta.cluster.size > 1 else ""
    return f"lane {int(lanes[lane])}, column {cells.columns.start + column} of tensor memory{rank}"


def _missing(flight: InFlight) -> str:
    """Why the warp does not know that an operation is complete."""
    kind = kind_of(flight)
    if kind in (LOAD, STORE):
        return f"nothing that this warp waited for implies that it is complete (tcgen05.wait::{kind}, then a barrier)"
    return "nothing that this warp waited for implies that it is complete (tcgen05.commit, and a wait for its mbarrier)"
