"""How a race between lanes of one warp is told, in shared and in global memory alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..happens_before.kept_lanes import KeptLanes
from ..held_lanes import held_together
from ..rules import WARNING
from .findings import at

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.journal import Access
    from ..happens_before.lane_order import LaneConflict
    from ..happens_before.state import ClusterState


def holder_of(
    context: Context, state: ClusterState, clock: WarpClock, now: Access, clash: LaneConflict
) -> tuple[int, Operation | None, str | None]:
    """Of a warp's lanes that race, the one to name; the instruction that keeps it together with the owner between the
    earlier access and this one, and the severity: such an instruction makes a read before a write a warning."""
    entry = clash.entry
    if entry.writes:
        return 0, None, None
    severity = None if context.strict else WARNING
    held = held_together(context.machine.code, entry.code, now.code)
    if held is not None:
        return 0, held, severity
    pairs = np.stack([clash.lanes, clash.owners])
    for lane, owner in np.unique(pairs, axis=1).T.tolist():
        together, kept = state.notes(KeptLanes).since(
            clock.me, 1 << lane, entry.epochs[clock.me - entry.first], clock.epoch
        )
        if not together >> owner & 1:
            return int(np.flatnonzero((pairs[0] == lane) & (pairs[1] == owner))[0]), None, None
        held = held or kept
    return 0, held, severity


def apart(now: Access, entry: Access, place: str, lane: int, owner: int, held: Operation | None) -> str:
    """What a lane does at `place`, and what another, the `owner`, did there before. Only `held` is in between."""
    who = "the warp" if now.together else f"lane {lane}"
    whose = "the warp" if entry.together else f"lane {owner}"
    clause = "there is no bar.warp.sync or other barrier in between that both passed"
    if held:
        clause = f"{at(held)} keeps the lanes together in between, but does not order memory"
    return (
        f"{'writes' if now.writes else 'reads'} {place} from {who} with {at(now.code)}, and {whose} "
        f"{'wrote' if entry.writes else 'read'} it before with {at(entry.code)}; {clause}"
    )
