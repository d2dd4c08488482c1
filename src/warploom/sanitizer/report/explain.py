"""From two accesses and what is missing between them to a rule and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...emulator.diagnosis.phases import history
from ...emulator.engines.matrix_operands import OperandPlace
from ...emulator.machine import shared_address as shared
from ...emulator.machine.mbarrier import mbarriers_of
from ..happens_before.access import ASYNC, BARRIER, COPY, GENERIC, Access
from ..happens_before.lanes_apart import Part
from ..happens_before.state import ClusterState
from ..held_lanes import held_between
from ..rules import ERROR, RULES, WARNING
from .findings import at
from .words import who

if TYPE_CHECKING:
    from ...emulator.machine.memory import Region
    from ..context import Context

GUESS = RULES["unordered-first-guess"]
Verdict = "tuple[str, str | None, str]"
"""Rule, severity where it is not the rule's own, and the clause that names the missing edge."""


@dataclass(frozen=True, eq=False)
class Conflict:
    """Two accesses of the same bytes that are not ordered; `missing` says what stands between them not.

    `parts`: releases by some lanes of the earlier one's warp that the later one has acquired.
    """

    state: ClusterState
    region: Region
    earlier: Access
    now: Access
    missing: str
    parts: Sequence[Part] = ()


def classify(conflict: Conflict, context: Context) -> tuple[str, str | None, str]:
    """The rule that a conflict breaks."""
    earlier, now, missing = conflict.earlier, conflict.now, conflict.missing
    if earlier.proxy == BARRIER:
        return (
            "mbarrier-bytes-accessed",
            None,
            "these bytes are an mbarrier, which only mbarrier instructions may touch",
        )
    told = _by_what_is_missing(missing)
    if told is not None:
        return told
    if missing == "same instruction":
        return "data-race", None, "both execute it at once, and nothing says whose value stays"
    if missing == "pending":
        return _pending(conflict)
    if missing == "fence":
        return _fence(earlier, now)
    if missing == "weak":
        by_one = _spoken_for(conflict, context)
        if earlier.cta is not now.cta and not by_one:
            return (
                "hand-off-scope",
                WARNING if now.writes and not earlier.writes else None,  # what was read has been read
                "the two CTAs synchronise in between, but not by a release and an acquire of .cluster scope, "
                "so the barrier carries no memory accesses from one to the other",
            )
        return (
            "warp-synchronous",
            ERROR if _handed_over(earlier, now) or by_one else None,
            f"all that orders the two is that another thread of warp {earlier.warp} signalled later, or a warpgroup "
            "MMA that the warp took part in is done: neither says that this access is",
        )
    load, write = (now, earlier) if earlier.writes else (earlier, now)
    generic = load.proxy == write.proxy == GENERIC
    if write.writes and not load.writes and generic and context.guessed(load.code, write.code):
        return GUESS.id, None, GUESS.clause
    return "data-race", None, "nothing orders the two: no barrier, no wait, no release that the other acquires"


def _handed_over(earlier: Access, now: Access) -> bool:
    """Whether a thread reads what another one wrote."""
    return earlier.writes and not now.writes and earlier.proxy == now.proxy == GENERIC


def _spoken_for(conflict: Conflict, context: Context) -> bool:
    """Whether other lanes than the one that signalled made the earlier access, and nothing held them together in
    between: neither a meeting nor an instruction of the whole warp, which published kernels rely on."""
    earlier = conflict.earlier
    part = min((one for one in conflict.parts if one.epoch >= earlier.epoch), key=lambda one: one.epoch, default=None)
    if part is None or part.pc < 0 or earlier.proxy != GENERIC or not part.made.get(earlier.code.pc, 0) & ~part.lanes:
        return False
    return not held_between(context.machine.code, earlier.code.pc, part.pc)


def _by_what_is_missing(missing: str) -> tuple[str, str | None, str] | None:
    """The verdict of the rule whose page names what is missing."""
    return next(((rule.id, None, rule.clause) for rule in RULES.values() if rule.missing == missing), None)


def _fence(earlier: Access, now: Access) -> tuple[str, str | None, str]:
    of_warpgroup = now.flight is not None and now.flight.starts.parts == "warpgroup"
    between = "the two are ordered, but by nothing that includes a fence.proxy.async of the thread that "
    if earlier.writes and not now.writes:
        between += "wrote, or of one that it synchronised with"
        told = _by_what_is_missing("fence before a warpgroup's read") if of_warpgroup else None
        return (told[0] if told else "generic-write-before-async-read"), None, between
    what = "wrote" if earlier.writes else "read"
    return "generic-access-before-async-write", None, between + f"{what}, or of one that it synchronised with"


def _pending(conflict: Conflict) -> tuple[str, str | None, str]:
    """The earlier access is an operation that the later one does not know to be done."""
    earlier, now, state = conflict.earlier, conflict.now, conflict.state
    assert earlier.flight is not None
    parts = earlier.flight.starts.parts
    if not earlier.writes:
        if parts == "warpgroup":
            return (
                "operand-overwritten",
                None,
                "the warpgroup MMA may still be reading: who let the bytes be overwritten had not waited for its "
                "group before it said so",
            )
        if any(isinstance(source, OperandPlace) for source in earlier.flight.operation.sources):
            return (
                "operand-overwritten",
                None,
                "the matrix unit may still be reading: who let the bytes be overwritten had not waited for the "
                "mbarrier of a tcgen05.commit behind the operation",
            )
        return (
            "store-source-overwritten",
            None,
            "the copy may still be reading: the thread that issued it has not waited for the read "
            "(cp.async.bulk.wait_group.read), or has not told this one",
        )
    if parts == "warp":
        own = earlier.me == now.me
        return (
            "cp-async-not-waited",
            None,
            "its thread has not waited for the copy (cp.async.wait_group)"
            if own
            else "the copy's thread has not waited for it and then synchronised with this one: "
            "cp.async.wait_group makes a copy visible to the thread that executes it only",
        )
    if now.writes and now.proxy in (ASYNC, COPY):
        return "overlapping-copies", None, "both are in flight, and nothing says which bytes stay"
    unannounced = _unannounced(earlier)
    if unannounced:
        return "byte-count-mismatch", None, unannounced
    stale = _stale_wait(state, earlier, now)
    if stale:
        return "stale-phase-wait", None, stale
    return "copy-not-waited", None, f"the copy may be in flight: {_whom_to_wait_for(earlier)}"


def history_of(conflict: Conflict) -> tuple[str, ...]:
    """What the later side waited for last, and the latest phases of the barriers in question.

    Where only a fence is missing no barrier is to blame, and there is nothing to tell.
    """
    if conflict.missing in ("fence", "copy fence", "same instruction"):
        return ()
    now, state = conflict.now, conflict.state
    flights = [flight for flight in (conflict.earlier.flight, now.flight) if flight is not None]
    keys = [flight.operation.barrier for flight in flights if flight.operation.barrier is not None]
    waits = [(wait.when, key[0], key[1], wait) for key, wait in state.waits.items() if key[2] == now.me]
    if waits:
        _, cta, offset, wait = max(waits, key=lambda item: item[0])
        which = f"phase {wait.phase} complete" if wait.phase >= 0 else "no phase complete: it was fresh"
        lines = [f"{who(now)} waited last for {shared.name(cta, offset)} and saw {which}, with {at(wait.code)}"]
        keys.append((cta, offset))
    else:
        lines = [f"{who(now)} has waited for no mbarrier so far"] if keys else []
    if now.me in state.glances:
        lines.append(
            f"{who(now)} executed {at(state.glances[now.me])}, and nobody looks at its result: it may be false, and "
            "then it has waited for nothing"
        )
    for cta, offset in dict.fromkeys(keys):
        barrier = mbarriers_of(cta).get(offset)
        if barrier is not None:
            lines += history(barrier)
    return tuple(lines)


def _whom_to_wait_for(earlier: Access) -> str:
    barrier = earlier.flight.operation.barrier if earlier.flight is not None else None
    if barrier is None:
        return "nobody has waited for it"
    return f"nothing this thread waited for says that its bytes have arrived at `{shared.name(*barrier)}`"


def _unannounced(earlier: Access) -> str:
    """Whether nobody announces the bytes of a copy, so that the phases of its barrier do not wait for them."""
    barrier = earlier.flight.operation.barrier if earlier.flight is not None else None
    found = mbarriers_of(barrier[0]).get(barrier[1]) if barrier is not None else None
    if found is None or earlier.flight is None or not earlier.flight.operation.bytes or not found.log:
        return ""
    if min(found.log) > 0 or any(event.what == "expect" for events in found.log.values() for event in events):
        return ""
    complete = f", and phase {found.phase - 1} is complete without them" if found.phase else ""
    return f"nobody announces the bytes of copies at `{found.name}` (expect_tx){complete}: no wait there is for them"


def _stale_wait(state: ClusterState, earlier: Access, now: Access) -> str:
    """Whether the later access did wait on the right barrier, but for an older phase."""
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
        f"the copy belongs to phase {flight.phase} of `{name}`, and the wait {at(wait.code)} passed {which}: "
        f"parity {parity} waits for phase {flight.phase}"
    )
