"""Classifies two unordered accesses of global memory: the rule that they violate, and the missing edge in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..happens_before.state import ClusterState
from ..rules import RULES
from ..shadow.duplicate_writes import NOT_COMPLETE, SAME
from ..shadow.global_shadow import UnpackedAccess

if TYPE_CHECKING:
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ..context import Context

NO_ORDER, FENCE, SAME_INSTRUCTION, SCOPE, APART, SIZES, UNRELEASED = (
    "no order", "fence", "same instruction", "scope", "apart", "sizes", "unreleased",
)  # fmt: skip
"""What may be missing between two accesses, in addition to what `duplicate_writes` reports."""
OF_ONE_GPU = ("global-data-race", "global-hand-off", "global-proxy-fence", "copy-to-global-not-complete")
BETWEEN_GPUS = ("peer-scope", "peer-flag-order", "peer-buffer-reused", "peer-proxy")

GUESS = RULES["unordered-first-guess"]
Verdict = tuple[str, str]
"""Rule, and the missing edge."""


def verdict(
    context: Context,
    state: ClusterState,
    earlier: UnpackedAccess,
    now: tuple[Cta, int, Operation],
    missing: str,
    writes: bool,
) -> Verdict:
    """The rule that an access (CTA, warp, instruction) violates with an earlier one, and the missing edge."""
    cta, cluster = now[0], (earlier.actor - 1) // state.count
    of_gpus = context.devices[cluster] != cta.device.index
    if missing == SAME:
        return "same-value-race", "nothing orders the two; both write the same value, so the race has no visible effect"
    if missing == SAME_INSTRUCTION:
        return "global-data-race", "both execute it at once, and it is undefined whose value remains"
    if missing == APART:
        clause = "a signal of another thread of that warp orders the two, but its threads had not synchronised"
        return "warp-synchronous", clause
    if missing == SCOPE:
        clause = "both are strong, but one scope does not include the other's CTA, so they race"
        return "peer-scope" if of_gpus else "global-hand-off", clause
    if missing == UNRELEASED:
        clock = state.clocks[cta.rank * state.per_cta + now[1]]
        signal = context.flags.unreleased(clock, state, earlier.actor, earlier.epoch)
        told = f"`{signal.code.instruction.opcode}`" if signal else "the signal"
        return "global-hand-off", (
            f"both are strong, so they do not race, but {told}, from which the reader knows of the write, does not "
            "release it: the reader may see the two in the other order"
        )
    if missing == SIZES:
        clause = "both are strong, but of different sizes, and neither is a single access to the other, so they race"
        return "global-data-race", clause
    if missing == FENCE:
        return (
            "peer-proxy" if of_gpus else "global-proxy-fence",
            "the two are ordered, but not through a fence.proxy.async for global memory of the thread that wrote, or "
            "of one that it synchronised with, and a copy uses the async proxy",
        )
    if missing == NOT_COMPLETE:
        own = cluster == state.number
        return (
            "peer-proxy" if of_gpus else "copy-to-global-not-complete",
            "the copy may be in flight: " + ("its thread" if own else "the thread of the other CTA that issued it")
            + " has not waited until it "
            + ("is complete (cp.async.bulk.wait_group without .read)" if earlier.writes else "has read its source")
            + " and then signalled this",
        )  # fmt: skip
    if earlier.writes != writes and not earlier.asynchronous:
        before = context.operation(earlier.pc)
        load, write = (now[2], before) if earlier.writes else (before, now[2])
        if context.guessed(load, write):
            return GUESS.id, GUESS.clause
    hint = context.flags.hints.get((context.where(state.number, cta.rank), earlier.actor))
    if hint is not None and hint.epoch >= earlier.epoch:
        rule = "peer-scope" if of_gpus and hint.narrow else "global-hand-off"
        return rule, f"the two use a flag, which does not order them: {hint.reason}"
    if of_gpus and (found := _between_gpus(context, state, earlier, now, writes)):
        return found
    if told_loosely(state, earlier, now):
        return (
            "global-data-race",
            "all that orders the two is a signal that carries no memory accesses: it is relaxed, without a "
            "fence.acq_rel in front of it, or its scope does not include the other CTA",
        )
    who = (
        "no barrier"
        if cluster == state.number
        else "GPUs synchronise only by flags of .sys scope"
        if of_gpus
        else "CTAs of different clusters synchronise only by flags in global memory"
    )
    return "global-data-race", f"nothing orders the two: {who}, and no release that the other side acquires"


def told_loosely(state: ClusterState, earlier: UnpackedAccess, now: tuple[Cta, int, Operation]) -> bool:
    """True if a warp knows that another one of its cluster is past an access, but by no release that it acquires."""
    cluster, me = divmod(earlier.actor - 1, state.count)
    clock = state.clocks[now[0].rank * state.per_cta + now[1]]
    return cluster == state.number and not earlier.asynchronous and clock.weak[me] >= earlier.epoch > clock.warps[me]


def _between_gpus(
    context: Context, state: ClusterState, earlier: UnpackedAccess, now: tuple[Cta, int, Operation], writes: bool
) -> Verdict | None:
    """The verdict on two accesses of different GPUs that no flag orders, if it is known which signal is missing."""
    cta, warp, _ = now
    cluster = (earlier.actor - 1) // state.count
    gpu, theirs, mine = context.devices[cluster], context.calls[cluster], cta.cluster.call
    if (theirs > mine and earlier.writes) or (theirs < mine and writes):
        ahead = gpu if theirs > mine else cta.device.index
        return (
            "peer-buffer-reused",
            f"GPU {ahead} is a launch ahead, and has no signal that its earlier data was read",
        )
    if writes and not earlier.writes:
        return "peer-buffer-reused", f"nothing signals that GPU {gpu} has read it"
    far = state.clocks[cta.rank * state.per_cta + warp].far
    heard = any(context.devices[other] == gpu and context.calls[other] == mine for other in far)
    if earlier.writes and not writes and heard:
        return "peer-flag-order", f"GPU {gpu} wrote it after the flag that this warp has acquired"
    return None
