"""Turns two accesses and the edge missing between them into a rule and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...emulator.diagnosis.phases import history
from ...emulator.engines.matrix_operands import OperandPlace
from ...emulator.machine import shared_address as shared
from ...emulator.machine.mbarrier import mbarriers_of
from ...emulator.machine.units import LAUNCH
from ...isa import effects
from ..happens_before.access import ASYNC, BARRIER, COPY, GENERIC, Access
from ..happens_before.divergent_lanes import LaneRelease
from ..happens_before.gaps import COPY_FENCE, OtherSpace
from ..happens_before.kept_lanes import KeptLanes
from ..happens_before.state import ClusterState
from ..held_lanes import held_between
from ..rules import ERROR, RULES, WARNING
from .findings import at
from .words import who

if TYPE_CHECKING:
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context

GUESS = RULES["unordered-first-guess"]
REFILLED = (
    "the reader had waited for the bytes that were there before, and nothing that the copy's thread waited for implies "
    "that it has read them"
)
"""The clause of a copy that overwrites bytes before they are read."""


@dataclass(frozen=True, eq=False)
class Conflict:
    """Two unordered accesses of the same bytes; `missing` names the edge that is missing between them.

    `parts`: releases by some lanes of the earlier access's warp that the later one has acquired; `near`: see `clocks`.
    """

    state: ClusterState
    region: Region
    earlier: Access
    now: Access
    missing: str
    parts: Sequence[LaneRelease] = ()
    near: int = 0

    def codes(self, clause: str) -> tuple[Operation, Operation]:
        """The two instructions, the later one first; a refill is the same finding as if the read had come first."""
        both = (self.now.code, self.earlier.code)
        return both[::-1] if clause == REFILLED else both


def classify(conflict: Conflict, context: Context) -> tuple[str, str | None, str]:
    """The rule that a conflict violates."""
    earlier, now, missing = conflict.earlier, conflict.now, conflict.missing
    if earlier.proxy == BARRIER:
        return (
            "mbarrier-bytes-accessed",
            None,
            "these bytes are an mbarrier, which only mbarrier instructions may access",
        )
    if missing == COPY_FENCE and earlier.cta is not now.cta and conflict.state.clocks[earlier.me].carried & earlier.bit:
        return "hand-off-scope", None, "the copy's CTA has waited for it and fenced, but told the other at .cta scope"
    told = _by_what_is_missing(missing)
    if told is not None:
        meant = missing == COPY_FENCE and bool(conflict.state.notes(OtherSpace).copies & earlier.bit)
        return (told[0], ERROR, f"{told[2]}: the one there is for global memory alone") if meant else told
    if missing == "same instruction":
        return "data-race", None, "both execute it at once, and it is undefined whose value remains"
    if missing == "pending":
        return _pending(conflict, context.strict)
    if missing == "fence":
        return _fence(earlier, now)
    if missing == "weak":
        by_one = _spoken_for(conflict, context)
        lanes = any(one.epoch >= earlier.epoch for one in conflict.parts)
        relaxed = not lanes and conflict.state.relaxed.get(earlier.me, 0) >= earlier.epoch
        kept = _kept_by_a_fence(conflict)
        if earlier.cta is not now.cta and not by_one and (kept or not relaxed):
            read_before = now.writes and not earlier.writes  # the earlier read has its value already
            as_shipped = kept and not context.strict
            return (
                "hand-off-scope",
                WARNING if read_before or as_shipped else None,
                "the two CTAs synchronise in between, but not by a release and an acquire at .cluster scope, "
                "so the barrier does not order memory accesses between them",
            )
        if relaxed:
            return (
                "data-race",
                None if earlier.writes and (context.strict or not _allocates(earlier)) else WARNING,
                "all that orders the two is a relaxed arrival at the barrier of the cluster, which carries no memory "
                "accesses but those in front of a fence.acq_rel.cluster",
            )
        return (
            "warp-synchronous",
            ERROR if _handed_over(earlier, now) or by_one else None,
            f"the only order between the two is that another thread of warp {earlier.warp} signalled later, or that "
            "a warpgroup MMA of that warp has completed: neither covers this access",
        )
    load, write = (now, earlier) if earlier.writes else (earlier, now)
    generic = load.proxy == write.proxy == GENERIC
    if write.writes and not load.writes and generic and context.guessed(load.code, write.code):
        return GUESS.id, None, GUESS.clause
    if _within_warpgroup(earlier, now):
        return (
            "data-race",
            None,
            f"the warps that take part in the product have not met since warp {earlier.warp} wrote, and a proxy "
            "fence is for the thread that executes it alone",
        )
    return "data-race", None, "nothing orders the two: no barrier, no wait, no release that the other acquires"


def _kept_by_a_fence(conflict: Conflict) -> bool:
    """True if a warp wrote to its own CTA's memory, a fence.proxy.async followed, and then arrivals and waits that name
    no scope told the tensor core's thread in another CTA.

    By the ISA their scope is .cta. CUTLASS and DeepGEMM ship their pairs so: before the arrival, the fence has made the
    bytes visible to the async proxy. The bytes of a cp.async may come later (NVIDIA/cutlass#3643, where .cta was
    written out).
    """
    earlier = conflict.earlier
    own = conflict.state.owners[conflict.region] is earlier.cta and not conflict.now.writes
    return own and earlier.proxy == GENERIC and conflict.now.proxy == ASYNC and conflict.near >= earlier.epoch


def _allocates(earlier: Access) -> bool:
    """True for the address that tcgen05.alloc writes: it blocks until that is done, and DeepGEMM's pairs rely on it."""
    return any(isinstance(effect, effects.Creates) for effect in earlier.code.effects) and earlier.proxy == GENERIC


def _within_warpgroup(earlier: Access, now: Access) -> bool:
    """True if one warp of a warpgroup wrote what a product of the warpgroup reads."""
    flight = now.flight
    together = flight is not None and flight.starts.parts == "warpgroup" and not now.writes
    return together and earlier.flight is None and earlier.cta is now.cta and earlier.warp // 4 == now.warp // 4


def _handed_over(earlier: Access, now: Access) -> bool:
    """True if one thread reads what another one wrote."""
    return earlier.writes and not now.writes and earlier.proxy == now.proxy == GENERIC


def _spoken_for(conflict: Conflict, context: Context) -> bool:
    """True if lanes other than the signalling one made the earlier access, and nothing synchronised them in between:
    neither a barrier nor a warp-wide instruction, which published kernels rely on."""
    earlier = conflict.earlier
    part = min((one for one in conflict.parts if one.epoch >= earlier.epoch), key=lambda one: one.epoch, default=None)
    if part is None or part.pc < 0 or earlier.proxy != GENERIC or not part.made.get(earlier.code.pc, 0) & ~part.lanes:
        return False
    if held_between(context.machine.code, earlier.code.pc, part.pc):
        return False
    kept, _ = conflict.state.notes(KeptLanes).since(earlier.me, part.lanes, earlier.epoch, part.epoch)
    return bool(part.made[earlier.code.pc] & ~kept)


def _by_what_is_missing(missing: str) -> tuple[str, str | None, str] | None:
    """The verdict of the rule whose page names the missing edge."""
    return next(((rule.id, None, rule.clause) for rule in RULES.values() if rule.missing == missing), None)


def _fence(earlier: Access, now: Access) -> tuple[str, str | None, str]:
    of_warpgroup = now.flight is not None and now.flight.starts.parts == "warpgroup"
    between = "the two are ordered, but not through a fence.proxy.async of the thread that "
    if earlier.writes and not now.writes:
        between += "wrote, or of a thread that it synchronised with"
        told = _by_what_is_missing("fence before a warpgroup's read") if of_warpgroup else None
        return (told[0] if told else "generic-write-before-async-read"), None, between
    what = "wrote" if earlier.writes else "read"
    response = now.flight is not None and now.flight.operation.unit == LAUNCH
    return (
        "generic-access-before-async-write",
        ERROR if response else None,
        between + f"{what}, or of a thread that it synchronised with",
    )


def _pending(conflict: Conflict, strict: bool) -> tuple[str, str | None, str]:
    """The verdict if the earlier access is an operation that may still be in flight at the later access."""
    earlier, now, state = conflict.earlier, conflict.now, conflict.state
    assert earlier.flight is not None
    parts = earlier.flight.starts.parts
    if not earlier.writes:
        if parts == "warpgroup":
            return (
                "operand-overwritten",
                None,
                "the warpgroup MMA may still be reading: the thread that released the bytes had not waited for its "
                "group first",
            )
        if any(isinstance(source, OperandPlace) for source in earlier.flight.operation.sources):
            return (
                "operand-overwritten",
                None,
                "the tensor core may still be reading: the thread that released the bytes had not waited for the "
                "mbarrier of a tcgen05.commit after the operation",
            )
        return (
            "store-source-overwritten",
            None,
            "the copy may still be reading: the issuing thread has not waited for the read "
            "(cp.async.bulk.wait_group.read), or has not synchronised with this one",
        )
    if parts == "warp":
        own = earlier.me == now.me
        return (
            "cp-async-not-waited",
            None,
            "its thread has not waited for the copy (cp.async.wait_group)"
            if own
            else "the copy's thread has not waited for it and then synchronised with this one: "
            "cp.async.wait_group makes a copy visible only to the thread that executes it",
        )
    if now.writes and now.proxy in (ASYNC, COPY):
        severity = None if strict else WARNING  # an error once they are read: CUTLASS 63 fills L2 by such copies
        return "overlapping-copies", severity, "both are in flight, and it is undefined which bytes remain"
    unannounced = _unannounced(earlier)
    if unannounced:
        return "byte-count-mismatch", None, unannounced
    if _is_refill(state, earlier, now):
        return _of_reader(now), None, REFILLED
    stale = _stale_wait(state, earlier, now)
    if stale:
        return "stale-phase-wait", None, stale
    return "copy-not-waited", None, f"the copy may be in flight: {_whom_to_wait_for(earlier)}"


def history_of(conflict: Conflict) -> tuple[str, ...]:
    """What the later side last waited for, and the latest phases of the barriers involved.

    If only a fence is missing, no barrier is involved and the result is empty.
    """
    if conflict.missing in ("fence", "copy fence", "same instruction"):
        return ()
    now, state = conflict.now, conflict.state
    flights = [flight for flight in (conflict.earlier.flight, now.flight) if flight is not None]
    keys = [flight.operation.barrier for flight in flights if flight.operation.barrier is not None]
    waits = [(wait.when, key[0], key[1], wait) for key, wait in state.waits.items() if key[2] == now.me]
    if waits:
        _, cta, offset, wait = max(waits, key=lambda item: item[0])
        which = f"phase {wait.phase} complete" if wait.phase >= 0 else "no phase complete: the barrier was new"
        seen = "" if wait.code.order.acquires else ": it is relaxed and makes nothing visible"
        lines = [f"{who(now)} last waited for {shared.name(cta, offset)} and saw {which}, with {at(wait.code)}{seen}"]
        keys.append((cta, offset))
    else:
        lines = [f"{who(now)} has not waited for any mbarrier so far"] if keys else []
    if now.me in state.glances:
        lines.append(
            f"{who(now)} executed {at(state.glances[now.me])}, but nothing uses its result: if it is false, "
            "the thread has not waited"
        )
    for cta, offset in dict.fromkeys(keys):
        barrier = mbarriers_of(cta).get(offset)
        if barrier is not None:
            lines += history(barrier)
    return tuple(lines)


def _whom_to_wait_for(earlier: Access) -> str:
    barrier = earlier.flight.operation.barrier if earlier.flight is not None else None
    if barrier is None:
        return "no thread has waited for it"
    return f"nothing that this thread waited for implies that its bytes have arrived at `{shared.name(*barrier)}`"


def _unannounced(earlier: Access) -> str:
    """A sentence if no expect_tx covers the bytes of a copy, so that no phase waits for them."""
    barrier = earlier.flight.operation.barrier if earlier.flight is not None else None
    found = mbarriers_of(barrier[0]).get(barrier[1]) if barrier is not None else None
    if found is None or earlier.flight is None or not earlier.flight.operation.bytes or not found.log:
        return ""
    if min(found.log) > 0 or any(event.what == "expect" for events in found.log.values() for event in events):
        return ""
    complete = f", and phase {found.phase - 1} is complete without them" if found.phase else ""
    return f"no expect_tx covers the bytes of copies at `{found.name}`{complete}: no wait there covers them"


def _is_refill(state: ClusterState, earlier: Access, now: Access) -> bool:
    """True if a copy refills bytes before their reader has read them: the reader has waited for what was there before,
    and its signal that it has read is missing. Otherwise the reader has given them up, and has to wait again."""
    flight = earlier.flight
    if now.writes or flight is None or flight.operation.barrier is None or flight.heard is None:
        return False
    wait = state.waits.get((*flight.operation.barrier, now.me))
    if wait is None or wait.again or not 0 <= wait.phase == flight.phase - 1:
        return False
    return (now.me != flight.me or now.flight is None) and bool(flight.heard[now.me] < wait.epoch)


def _of_reader(now: Access) -> str:
    """The rule of a copy that overwrites what an access reads."""
    if now.flight is None:
        return "data-race"
    matrix = any(isinstance(source, OperandPlace) for source in now.flight.operation.sources)
    return "operand-overwritten" if matrix else "store-source-overwritten"


def _stale_wait(state: ClusterState, earlier: Access, now: Access) -> str:
    """A sentence if the later access waited on the right barrier, but for an older phase."""
    flight = earlier.flight
    if flight is None or flight.operation.barrier is None or flight.phase < 0:
        return ""
    barrier = flight.operation.barrier
    wait = state.waits.get((*barrier, now.me))
    if wait is None or wait.phase >= flight.phase:
        return ""
    name = shared.name(*barrier)
    parity = flight.phase & 1
    which = "before its first phase was complete" if wait.phase < 0 else f"for phase {wait.phase}"
    return (
        f"the copy belongs to phase {flight.phase} of `{name}`, but the wait {at(wait.code)} passed {which}: "
        f"parity {parity} waits for phase {flight.phase}"
    )
