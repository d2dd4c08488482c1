"""The mbarrier object: arrivals and transaction bytes that complete phases. PTX ISA 9.7.13.15.

A phase is complete when no arrival and no byte is pending; then the next begins with the expected count. The
transaction count may be temporarily negative: a copy may complete before its bytes are expected.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...errors import InvalidOperandError
from . import shared_address as shared
from .async_operation import AsyncOperation
from .frame import Issuer
from .registers import WARP
from .slots import Slot

if TYPE_CHECKING:
    from .frame import Frame
    from .machine import Cluster, Cta

MAXIMUM_COUNT = (1 << 20) - 1
MAXIMUM_TX = (1 << 20) - 1
KEPT_PHASES = 3
"""Number of phases that the log keeps."""
_COUNT_BITS = 20
_NO_COMPLETE = 1 << _COUNT_BITS
_PHASE_SHIFT = 24


@dataclass(eq=False, slots=True)
class Event:
    """An event at a barrier: "arrive", "expect" or "complete", the amount, and the issuer.

    `operation`: the operation whose signal it is; None if an instruction does it directly. `warps`: the issuer's warps,
    each with how many of its threads take part.
    """

    what: str
    amount: int
    by: Issuer
    description: str = ""
    operation: AsyncOperation | None = None
    warps: tuple[tuple[int, int], ...] = ()

    @classmethod
    def now(cls, what: str, amount: int, by: Issuer, description: str = "", of: AsyncOperation | None = None) -> Event:
        """An event whose issuer acts now, unless it is the signal `of` an operation."""
        return cls(what, amount, by, description, of, by.warps() if of is None else ((by.thread // WARP, 1),))

    def __str__(self) -> str:
        if self.what == "arrive":
            times = f" ×{self.amount}" if self.amount != 1 else ""
            return f"arrived{times}: {self.by.short()}"
        verb = "expected" if self.what == "expect" else "completed"
        by = self.description or self.by.short()
        return f"{verb} {self.amount} bytes: {by}"


@dataclass(eq=False)
class MBarrier:
    """State of one barrier.

    Attributes:
        cta, offset: its location.
        phase: number of completed phases (unbounded; hardware keeps its parity).
        expected: arrivals each phase needs; pending: arrivals missing in the current phase.
        tx: expected bytes minus delivered ones.
        log: events of the latest phases, by phase.
        mark: for use by the observer that tracks the order of events.
        asked: (instruction, warp) of a try_wait that has not blocked -> the phase in which it did not.
    """

    cta: Cta
    offset: int
    expected: int
    pending: int
    initialised_by: Issuer
    phase: int = 0
    tx: int = 0
    log: dict[int, list[Event]] = field(default_factory=dict)
    mark: Any = None
    asked: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return shared.name(self.cta, self.offset)

    # -- operations ----------------------------------------------------------------------------------------------

    def arrive(self, count: int, by: Issuer, completes: bool = True) -> int:
        """Arrive `count` times. Returns the previous state as a token. `completes` False: it must not end the phase."""
        if not 1 <= count <= MAXIMUM_COUNT:
            self._error(by, f"an arrival on {self.name} has count {count}", code="mbarrier-count",
                        expected=f"1 to {MAXIMUM_COUNT}", got=count)  # fmt: skip
        if count > self.pending:
            for listener in self.cta.machine.events.refused:
                listener("surplus-arrival", self, by)
            self._error(
                by,
                f"{self.name} gets {count} arrival{'s' if count > 1 else ''} in phase {self.phase}, but only "
                f"{self.pending} of {self.expected} are still missing",
                code="too-many-arrivals",
                expected=f"{self.pending} of {self.expected}",
                consequence="the pending count underflows, and later phases complete at the wrong time",
                got=f"so far in this phase: {self._events(self.phase)}",
                hint="give mbarrier.init the number of arrivals of each phase; before arriving for the next phase, "
                "wait for this one with its parity",
            )
        token = self.token(completes)
        self._note("arrive", count, by)
        self.pending -= count
        if not completes and self.pending == 0 and self.tx == 0:
            self._error(by, f"an arrival with .noComplete completes phase {self.phase} of {self.name}",
                        code="completed-by-no-complete", got=f"phase {self.phase}")  # fmt: skip
        self._check()
        return token

    def drop(self, count: int, by: Issuer, completes: bool = True) -> int:
        """Arrive and leave: the expected count of later phases falls by `count`."""
        if count > self.expected:
            what = f"{self.name} expects {self.expected} arrivals and {count} are dropped"
            self._error(by, what, code="mbarrier-count", expected=self.expected, got=count)
        self.expected -= count
        return self.arrive(count, by, completes)

    def expect_tx(self, amount: int, by: Issuer) -> None:
        """Expect bytes in the current phase."""
        self._note("expect", amount, by)
        self.tx += amount
        self._check_tx(by)

    def complete_tx(self, amount: int, by: Issuer, description: str = "") -> None:
        """Deliver bytes."""
        self._note("complete", amount, by, description)
        self.tx -= amount
        self._check_tx(by)
        self._check()

    def add_pending(self, count: int, by: Issuer) -> None:
        """Make the current phase wait for `count` more arrivals (cp.async.mbarrier.arrive without .noinc)."""
        if self.pending + count > MAXIMUM_COUNT:
            self._error(by, f"{self.name} has more than {MAXIMUM_COUNT} pending arrivals", code="mbarrier-count")
        self.pending += count

    # -- waiting -------------------------------------------------------------------------------------------------

    def token(self, completes: bool = True) -> int:
        """The 64-bit state that an arrival returns: phase and pending count (the encoding is ours)."""
        return (self.phase << _PHASE_SHIFT) | (0 if completes else _NO_COMPLETE) | self.pending

    def passed_parity(self, parity: int) -> bool:
        """True if the phase of that parity is complete: on a new barrier at once for parity 1, False for 0."""
        return (self.phase & 1) != (parity & 1)

    def passed_token(self, token: int, by: Issuer) -> bool:
        """True if the phase that a state names is complete. Raises InvalidOperandError for a state of an old phase."""
        phase = token >> _PHASE_SHIFT
        if not self.phase - 1 <= phase <= self.phase:
            self._error(
                by,
                f"the state passed for {self.name} is of phase {phase}, but the barrier is in phase {self.phase}",
                expected="a state of the current or the preceding phase",
                code="mbarrier-state",
                got=f"phase {phase}",
                hint="a state belongs to one barrier and one phase; use it before the barrier moves on",
            )
        return phase < self.phase

    def missing(self) -> str:
        """What the current phase still lacks, as a clause."""
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.expected} arrivals missing")
        if self.tx > 0:
            parts.append(f"{self.tx} bytes missing")
        elif self.tx < 0:
            parts.append(f"{-self.tx} bytes delivered that nobody expected (expect_tx)")
        return ", ".join(parts) or "nothing missing"

    def describe_wait(self, phase: int | None, parity: int | None) -> str:
        """For the deadlock report: which phase of which barrier, what is missing, what arrived."""
        which = f"phase {self.phase}" if parity is None else f"phase {self.phase} (parity {parity & 1})"
        if phase is not None:
            which = f"phase {phase}"
        return f"{self.name}, {which}: {self.missing()}; so far: {self._events(self.phase)}"

    def digest(self) -> Hashable:
        asked = tuple(sorted(key for key, phase in self.asked.items() if phase == self.phase))
        return (self.phase, self.expected, self.pending, self.tx, asked)

    # -- inside --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.expected
            self.log.pop(self.phase - KEPT_PHASES, None)
            machine = self.cta.machine
            for listener in machine.events.met:
                listener(self, None)
            machine.progress()

    def _check_tx(self, by: Issuer) -> None:
        if not -MAXIMUM_TX <= self.tx <= MAXIMUM_TX:
            expected = f"-{MAXIMUM_TX} to {MAXIMUM_TX} at any time"
            what = f"the byte count of {self.name} is {self.tx}"
            self._error(by, what, code="mbarrier-count", expected=expected, got=self.tx)

    def _note(self, what: str, amount: int, by: Issuer, description: str = "") -> None:
        machine = self.cta.machine
        event = Event.now(what, amount, by, description, machine.engine.signalling)
        self.log.setdefault(self.phase, []).append(event)
        for listener in machine.events.arrived:
            listener(self, event)

    def _events(self, phase: int) -> str:
        counted: dict[str, int] = {}
        for event in self.log.get(phase, []):
            counted[str(event)] = counted.get(str(event), 0) + 1
        shown = [text + (f" ({times} times)" if times > 1 else "") for text, times in list(counted.items())[:6]]
        if len(counted) > 6:
            shown.append(f"and {len(counted) - 6} more")
        return "; ".join(shown) or "nothing"

    def _error(self, by: Issuer, what: str, **parts: object) -> NoReturn:
        by.error(InvalidOperandError, what, **parts)


def phases_of(tokens: np.ndarray) -> np.ndarray:
    """The states of the same phases, with all other fields cleared."""
    return tokens >> _PHASE_SHIFT << _PHASE_SHIFT


# -- the barriers of a CTA ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class MBarriers:
    """The valid barriers of a CTA, by offset, and the offsets of invalidated ones."""

    valid: dict[int, MBarrier] = field(default_factory=dict)
    invalidated: set[int] = field(default_factory=set)

    def digest(self) -> Hashable:
        return (tuple(sorted((at, one.digest()) for at, one in self.valid.items())), tuple(sorted(self.invalidated)))


MBARRIERS = Slot("mbarriers", lambda cta: MBarriers())


def mbarriers_of(cta: Cta) -> dict[int, MBarrier]:
    """The valid barriers of a CTA, by offset."""
    return MBARRIERS.of(cta).valid


def was_invalidated(cta: Cta, offset: int) -> bool:
    """True if the latest event at a barrier there was mbarrier.inval."""
    return offset in MBARRIERS.of(cta).invalidated


def find(by: Issuer, cta: Cta, offset: int) -> MBarrier:
    """The barrier at an offset of a CTA's shared memory. Raises InvalidOperandError if none is valid."""
    found = mbarriers_of(cta).get(offset)
    if found is None:
        how = "has been invalidated" if was_invalidated(cta, offset) else "has not been initialised"
        for listener in cta.machine.events.refused:
            listener("mbarrier-missing", (cta, offset), by)
        by.error(
            InvalidOperandError,
            f"the mbarrier at {shared.name(cta, offset)} {how}",
            code="no-mbarrier",
            got=how,
            consequence="undefined behaviour: the bytes hold no valid barrier",
            hint="before the first use, let one thread run mbarrier.init, then let all users pass a barrier",
        )
    return found


def initialise(by: Issuer, cta: Cta, offset: int, count: int) -> MBarrier:
    """mbarrier.init.

    Raises InvalidOperandError for a count out of range or a barrier that is still valid, unless its bytes stay the same
    (nobody has used it, and the count is the same) and an observer reports that.
    """
    if not 1 <= count <= MAXIMUM_COUNT:
        by.error(
            InvalidOperandError,
            f"mbarrier.init of {shared.name(cta, offset)} with count {count}",
            code="mbarrier-count",
            got=count,
            expected=f"1 to {MAXIMUM_COUNT}",
        )
    barriers = mbarriers_of(cta)
    if offset in barriers:
        made = barriers[offset]
        heard = cta.machine.events.made_again
        if heard and made.phase == made.tx == 0 and count == made.pending == made.expected:
            for report in heard:
                report(made, by)
            return made
        for listener in cta.machine.events.refused:
            listener("mbarrier-initialised-twice", made, by)
        by.error(
            InvalidOperandError,
            f"the mbarrier at {shared.name(cta, offset)} is initialised a second time",
            code="mbarrier-made-twice",
            got=f"the first time by {made.initialised_by.short()}",
            hint="run mbarrier.inval first, or let only one thread initialise it",
        )
    barriers[offset] = MBarrier(cta, offset, count, count, by)
    for listener in cta.machine.events.made:
        listener("mbarrier", barriers[offset], by)
    return barriers[offset]


def invalidate(by: Issuer, cta: Cta, offset: int) -> None:
    """mbarrier.inval."""
    barrier = find(by, cta, offset)
    barriers = MBARRIERS.of(cta)
    del barriers.valid[offset]
    barriers.invalidated.add(offset)
    for listener in cta.machine.events.unmade:
        listener("mbarrier", barrier, by)


def arrivals_in_flight(cluster: Cluster) -> list[AsyncOperation]:
    """Operations on other CTAs' barriers that have not arrived yet, oldest first.

    They are not asynchronous operations of the ISA but memory operations of their thread: later releases of that
    thread order them, so each arrives after the previous ones.
    """
    queue = REMOTE_ARRIVALS.of(cluster).queue
    queue[:] = [operation for operation in queue if not operation.done]
    return queue


@dataclass(eq=False)
class RemoteArrivals:
    """See `arrivals_in_flight`."""

    queue: list[AsyncOperation] = field(default_factory=list)

    def digest(self) -> Hashable:
        return tuple(operation.digest() for operation in self.queue if not operation.done)


REMOTE_ARRIVALS = Slot("remote arrivals", lambda cluster: RemoteArrivals())


def locate(frame: Frame, space: str, address: int, lane: int, remote: bool = False) -> tuple[Cta, int]:
    """CTA and offset of a barrier operand, checked for alignment and range."""
    cta, offset = shared.place(frame, space, address, lane, "the mbarrier", remote)
    shared.check_range(frame, cta, offset, 8, 8, lane, "the mbarrier")
    return cta, offset


def pending_count(token: int, by: Issuer) -> int:
    """mbarrier.pending_count: the pending arrivals before the arrival that returned this state."""
    if not token & _NO_COMPLETE:
        by.error(
            InvalidOperandError,
            "mbarrier.pending_count takes a state from an arrival with .noComplete",
            code="mbarrier-state",
            got=f"state {token:#x}",
        )
    return token & (_NO_COMPLETE - 1)
