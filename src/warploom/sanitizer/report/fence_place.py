"""Where the fence belongs that a flag in global memory lacks: the side, and the line after which it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..happens_before.state import ClusterState
from ..shadow.global_shadow import UnpackedAccess
from .findings import at
from .global_verdict import NO_ORDER, UNRELEASED

if TYPE_CHECKING:
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ..context import Context


def fence_place(
    context: Context, state: ClusterState, earlier: UnpackedAccess, now: tuple[Cta, int, Operation], missing: str
) -> tuple[Operation, str] | None:
    """The instruction after which a fence belongs, or whose scope is too narrow, and a clause; None if no flag is
    involved.

    In the writer the fence follows its last access before the flag, in the reader the load of the flag.
    """
    cta, cluster = now[0], (earlier.actor - 1) // state.count
    scope = "sys" if context.devices[cluster] != cta.device.index else "gpu"
    fence = f"fence.acq_rel.{scope} belongs after"
    if missing == UNRELEASED:
        clock = state.clocks[cta.rank * state.per_cta + now[1]]
        signal = context.flags.unreleased(clock, state, earlier.actor, earlier.epoch)
        flag, last = (signal.code, signal.last) if signal is not None else (None, None)
    elif missing == NO_ORDER:
        hint = context.flags.hints.get((context.where(state.number, cta.rank), earlier.actor))
        if hint is None or hint.epoch < earlier.epoch or hint.code is None:
            return None
        if hint.narrow:
            return hint.code, f"{at(hint.code)} needs the scope .{scope}, or a fence of that scope next to it"
        flag, last = hint.code, hint.last
    else:
        return None
    if flag is None:
        return None
    if last is None:
        return flag, f"{fence} {at(flag)} in the reader"
    after = context.operation(max(last, (earlier.epoch, earlier.pc))[1])
    return after, f"{fence} {at(after)} in the writer, in front of {at(flag)}"
