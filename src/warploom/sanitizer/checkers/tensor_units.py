"""The use of tcgen05 apart from races: allocations, commits that cover something, and issue by one thread.

PTX ISA 9.7.16.7, 9.7.16.10, 9.7.16.12.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.registers import WARP
from ...emulator.machine.tensor_memory import Cells, Columns, peer_of, tensor_memory_of
from ...isa import effects
from ..happens_before.access import InFlight, flights_of
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Issuer
    from ...emulator.machine.machine import Cta, Warp
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState


@dataclass(eq=False, slots=True)
class Allocation:
    """Columns of a CTA: the component of the warp that allocated them, its epoch then, and the completion bits of the
    operations that this CTA has issued since: whoever knows that one is complete knows of the allocation."""

    me: int
    epoch: int
    later: int = 0


@dataclass(eq=False)
class Notes:
    """The checker's state for a cluster.

    Attributes:
        threads: (CTA's rank, thread) -> its latest operation that a commit covers.
        allocated: of pairs.
        latest: of pairs: (CTA's rank, warp, instruction) -> the latest of its operations on tensor memory.
        last: CTA's rank -> its latest allocation.
    """

    threads: dict[tuple[int, int], InFlight] = field(default_factory=dict)
    allocated: dict[Columns, Allocation] = field(default_factory=dict)
    latest: dict[tuple[int, int, Operation], InFlight] = field(default_factory=dict)
    last: dict[int, Columns] = field(default_factory=dict)


class TensorUnits(Observer):
    """See the module's docstring."""

    rules = (
        "commit-by-another-thread", "product-by-several-lanes", "columns-not-freed", "growing-allocation",
        "pair-frees-before-peer-has-columns", "pair-frees-while-peer-uses-columns", "empty-multicast-commit",
    )  # fmt: skip
    only_with = "tcgen05"

    def __init__(self, context: Context) -> None:
        self.context = context

    # -- commits and products ----------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        issuer = operation.issuer
        state, code = self.context.state(issuer.frame.cta), issuer.operation
        notes = state.notes(Notes)
        commit = next((one for one in code.effects if isinstance(one, effects.Commits)), None)
        if commit is not None and commit.signals is not None and issuer.lane is not None:
            self._commits(state, notes, issuer)
        for flight in flights_of(operation):
            for columns, allocation in notes.allocated.items():
                if columns.cta is flight.cta and state.clocks[flight.me].weak[allocation.me] >= allocation.epoch:
                    allocation.later |= flight.done
            if notes.allocated and any(isinstance(one, Cells) for one in (*operation.sources, *operation.targets)):
                notes.latest[flight.cta.rank, flight.warp, flight.code] = flight
            if any(isinstance(how, effects.Signalled) for how in flight.starts.tracked):
                warps = issuer.frame.active_lanes // WARP  # a frame may hold several
                lanes = int(np.count_nonzero(warps == (issuer.lane or 0) // WARP))
                if lanes > 1:
                    self._several(lanes, flight)
                notes.threads[flight.cta.rank, issuer.thread] = flight

    def _commits(self, state: ClusterState, notes: Notes, issuer: Issuer) -> None:
        """A commit covers its own thread's operations, and nothing if there are none."""
        cta = issuer.frame.cta
        mine = notes.threads.get((cta.rank, issuer.thread))
        if mine is None or mine.done & state.clock_of(issuer).known:
            self._nothing_to_tell(issuer)
        if mine is not None:
            return
        others = [(thread, flight) for (rank, thread), flight in notes.threads.items() if rank == cta.rank]
        open_ones = [(thread, flight) for thread, flight in others if not flight.done & state.clock_of(issuer).known]
        if not open_ones:
            return
        thread, flight = open_ones[-1]
        codes = (issuer.operation, flight.code)
        if not self.context.findings.seen("commit-by-another-thread", codes):
            self.context.findings.add(
                "commit-by-another-thread",
                f"{issuer.who()} of {cta.describe()} commits with {at(issuer.operation)} but has issued nothing: the "
                f"arrival comes at once. {at(flight.code)} was issued by thread {thread}",
                codes, cta, issuer.thread // 32,
            )  # fmt: skip

    def _nothing_to_tell(self, issuer: Issuer) -> None:
        """A pair's commit while nothing is in flight: the other CTA may not be signalled."""
        code = issuer.operation
        if code.bound is None or not code.bound.match.form.key.endswith("multicast"):
            return
        if not self.context.findings.seen("empty-multicast-commit", (code,)):
            self.context.findings.add(
                "empty-multicast-commit",
                f"{issuer.who()} of {issuer.frame.cta.describe()} commits with {at(code)}, but all that it has issued "
                "is complete, as it knows",
                (code,), issuer.frame.cta, issuer.thread // 32,
            )  # fmt: skip

    def _several(self, lanes: int, flight: InFlight) -> None:
        if not self.context.findings.seen("product-by-several-lanes", (flight.code,)):
            self.context.findings.add(
                "product-by-several-lanes",
                f"{lanes} lanes of {actor(flight.cta, flight.warp)} execute "
                f"{at(flight.code)}, and each starts a separate operation",
                (flight.code,), flight.cta, flight.warp,
            )  # fmt: skip

    # -- columns -----------------------------------------------------------------------------------------------------

    def made(self, kind: str, what: object, by: Issuer) -> None:
        if not isinstance(what, Columns):
            return
        state = self.context.state(what.cta)
        notes, clock = state.notes(Notes), state.clock_of(what.by)
        clock.begin_epoch()
        if what.group > 1:
            notes.allocated[what] = Allocation(clock.me, clock.epoch)
        before = notes.last.get(what.cta.rank)
        notes.last[what.cta.rank] = what
        codes = (what.by.operation,)
        if before is None or before.count >= what.count or self.context.findings.seen("growing-allocation", codes):
            return
        self.context.findings.add(
            "growing-allocation",
            f"{what.cta.describe()} allocates {what.count} columns with {at(what.by.operation)} after {before.count}",
            codes, what.cta,
        )  # fmt: skip

    def unmade(self, kind: str, what: object, by: Issuer) -> None:
        """The CTA of a pair that frees columns must know that its peer has returned from its allocation, and is
        through with its columns."""
        if not isinstance(what, Columns) or what.group == 1 or (peer := peer_of(what.cta)) is None:
            return
        state = self.context.state(what.cta)
        notes, clock = state.notes(Notes), state.clock_of(by)
        mine = next((one for one in tensor_memory_of(peer).of(peer) if one.start == what.start), None)
        if mine is not None and mine in notes.allocated:
            self._returned(mine, notes.allocated[mine], what.cta, clock, by)
        for (rank, _, code), flight in notes.latest.items():
            told = flight.done & clock.known or 0 <= flight.stored <= clock.weak[flight.me]
            codes = (by.operation, code)
            if rank != peer.rank or told or self.context.findings.seen("pair-frees-while-peer-uses-columns", codes):
                continue
            self.context.findings.add(
                "pair-frees-while-peer-uses-columns",
                f"{what.cta.describe()} frees columns of the pair with {at(by.operation)}, and nothing that it waited "
                f"for implies that {at(code)} of CTA rank {rank} is complete",
                codes, what.cta,
            )  # fmt: skip

    def _returned(self, mine: Columns, allocation: Allocation, cta: Cta, clock: WarpClock, by: Issuer) -> None:
        codes = (by.operation, mine.by.operation)
        told = clock.weak[allocation.me] >= allocation.epoch or clock.known & allocation.later
        if told or self.context.findings.seen("pair-frees-before-peer-has-columns", codes):
            return
        self.context.findings.add(
            "pair-frees-before-peer-has-columns",
            f"{cta.describe()} frees columns of the pair with {at(by.operation)}, and nothing that it waited for "
            f"implies that CTA rank {mine.cta.rank} has returned from {at(mine.by.operation)}",
            codes, cta,
        )  # fmt: skip

    def exited(self, warp: Warp) -> None:
        cta = warp.cta
        if cta.exited:
            self._left(cta)

    def _left(self, cta: Cta) -> None:
        for held in tensor_memory_of(cta).of(cta):
            codes = (held.by.operation,)
            if not self.context.findings.seen("columns-not-freed", codes):
                self.context.findings.add(
                    "columns-not-freed",
                    f"{cta.describe()} exits without having freed the {held.count} columns from {held.start} that "
                    f"{at(held.by.operation)} allocated",
                    codes, cta,
                )  # fmt: skip
