"""Before a warp or its CTA exits, the operations that they have started must have completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.events import Observer
from ...isa import effects
from ..bulk_waits import waits_for_a_bulk_group
from ..happens_before.access import InFlight
from ..report.findings import at
from ..report.words import actor
from ..rules import WARNING

if TYPE_CHECKING:
    from ...emulator.machine.machine import Cta, Warp
    from ..context import Context
    from ..happens_before.state import ClusterState

UNREAD, UNDONE = "the source of", "the destination of"


class Exits(Observer):
    """See the module's docstring."""

    rules = ("exit-with-pending-work",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def exited(self, warp: Warp) -> None:
        state = self.context.state(warp.cta)
        self._of_warpgroup(state, warp)
        if warp.cta.exited:
            self._of_cta(state, warp.cta)

    def _of_warpgroup(self, state: ClusterState, warp: Warp) -> None:
        """Check the operations of the warpgroup whose first warp exits."""
        me = state.me(warp.cta, warp.index)
        known = state.exits[me].known
        mine = (one for one in reversed(state.flights) if one.me == me and one.starts.parts == "warpgroup")
        flight = next((one for one in mine if not one.done & known), None)
        if flight is not None and not self.context.findings.seen("exit-with-pending-work", (flight.code,)):
            self.context.findings.add(
                "exit-with-pending-work",
                f"{actor(warp.cta, warp.index)} exits without having waited for the {_noun(flight)} {at(flight.code)}",
                (flight.code,),
                warp.cta,
                warp.index,
            )

    def _of_cta(self, state: ClusterState, cta: Cta) -> None:
        """Check the operations of its threads, and copies from elsewhere whose bytes its barriers count."""
        known = 0
        for released in state.exits_of(cta.rank):
            known |= released.known
        for flight in state.flights:
            barrier = flight.operation.barrier
            if barrier is not None:
                if flight.done & known:
                    continue
                if barrier[0] is cta:
                    self._unfinished(flight, cta, UNDONE, "no thread in it has waited for its bytes")
                elif flight.cta is cta and _touches(flight, effects.READS, "shared"):
                    why = "no thread in it has synchronised with one that has waited for its bytes"
                    self._unfinished(flight, cta, UNREAD, why)
            elif flight.cta is not cta or flight.starts.parts == "warpgroup":
                continue
            elif _only_reads_shared(flight):
                if not flight.read & known:
                    self._unread_store(flight, cta)
            elif not flight.done & known and not _touches(flight, effects.WRITES, "register"):
                # Registers leave with their warp (`tensor-load-not-waited`), and a thread's own copies to shared memory
                # (cp.async) with their CTA.
                own = flight.starts.parts == "warp" and not _touches(flight, effects.WRITES, "tensor")
                self._unfinished(flight, cta, UNDONE, "no thread in it has waited for it", WARNING if own else None)

    def _unread_store(self, flight: InFlight, cta: Cta) -> None:
        """Shared memory lives as long as its CTA (PTX ISA 2.3).

        CUTLASS's, DeepGEMM's and ThunderKittens' kernels for sm_100 wait for all groups but the last ones before they
        store to the same memory again, and FlashAttention-4 commits no group of its last stores: they leave those to
        the chip, which keeps the memory until then: a warning. A kernel whose waits cover no group has forgotten them.
        """
        code = self.context.machine.code
        waits = code.fact("waits for a bulk group", lambda: waits_for_a_bulk_group(code))
        late = waits and code.arch.number >= 100 and not self.context.strict
        why = "has not waited until it has been read (commit_group, wait_group.read)"
        if not waits:
            why += "; no wait_group of the kernel waits for any group"
        self._unfinished(flight, cta, UNREAD, why, WARNING if late else None)

    def _unfinished(self, flight: InFlight, cta: Cta, what: str, why: str, severity: str | None = None) -> None:
        if self.context.findings.seen("exit-with-pending-work", (flight.code,), severity):
            return
        how = effects.READS if what == UNREAD else effects.WRITES
        memory = "tensor" if _touches(flight, how, "tensor") else "shared"
        self.context.findings.add(
            "exit-with-pending-work",
            f"{cta.describe()} exits, its {memory} memory is {what} the {_noun(flight)} {at(flight.code)}, and {why}",
            (flight.code,),
            cta,
            flight.warp,
            severity,
        )


def _touches(flight: InFlight, how: str, space: str) -> bool:
    """True if an operation reads, or writes, some memory: "shared" (that of any CTA), "tensor" or "register"."""
    accesses = effects.accesses(flight.code.effects, effects.RUN)
    return any(one.how == how and one.space.startswith(space) for one in accesses)


def _only_reads_shared(flight: InFlight) -> bool:
    """True if the CTA's part in an operation ends when its sources have been read."""
    own = [one for one in effects.accesses(flight.code.effects, effects.RUN) if one.space != "global"]
    return bool(own) and all(one.how == effects.READS for one in own)


def _noun(flight: InFlight) -> str:
    bound = flight.code.bound
    return bound.match.form.noun if bound is not None else "operation"
