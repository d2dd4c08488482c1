"""What a signal to an mbarrier carries to who waits for it: an arrival, a commit, or a complete_tx by a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clocks import Released, WarpClock
from .scopes import LEVELS

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation


def reaches(code: Operation, remote: bool) -> bool:
    """Whether the scope of a signal includes who waits. remote: for another CTA's barrier."""
    return not remote or LEVELS[code.order.scope] >= LEVELS["cluster"]


def behind_fence(clock: WarpClock, code: Operation, remote: bool) -> Released | None:
    """What a relaxed signal publishes: what the last release fence in front of it covered, if both reach (8.8)."""
    if code.order.sem != "relaxed" or not reaches(code, remote):
        return None
    return clock.published if not remote or LEVELS[clock.published_scope] >= LEVELS["cluster"] else None


def narrowed(released: Released, code: Operation, remote: bool) -> Released:
    """Of what its thread did, what a signal carries: where it is relaxed, or does not reach, no memory accesses."""
    if reaches(code, remote) and code.order.sem != "relaxed":
        return released
    return released.only_operations() if remote else released.relaxed()


def signalled(clock: WarpClock, lanes: int, code: Operation, remote: bool) -> Released:
    """What these lanes signal."""
    carried, published = narrowed(clock.release(lanes, code.pc), code, remote), behind_fence(clock, code, remote)
    if published is not None:
        carried.add(published)
    return carried
