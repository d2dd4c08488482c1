"""What a signal to an mbarrier carries to the waiting thread: an arrival, a commit, or a complete_tx by a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...isa.effects import Commits
from .clocks import WarpClock
from .released import Released
from .scopes import LEVELS

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation


def reaches(code: Operation, remote: bool) -> bool:
    """True if the scope of a signal includes the waiting thread. remote: for another CTA's barrier."""
    return not remote or LEVELS[code.order.scope] >= LEVELS["cluster"]


def unscoped(code: Operation) -> bool:
    """True if a signal or a wait has the scope .cta by default, and does not name it."""
    return code.order.scope == "cta" and "cta" not in code.instruction.modifiers


def behind_fence(clock: WarpClock, code: Operation, remote: bool) -> Released | None:
    """What a relaxed signal publishes: what the last preceding release fence covered, if both scopes suffice (8.8)."""
    if code.order.sem != "relaxed" or not reaches(code, remote):
        return None
    return clock.published if not remote or LEVELS[clock.published_scope] >= LEVELS["cluster"] else None


def narrowed(released: Released, code: Operation, remote: bool) -> Released:
    """The part of a thread's accesses that a signal carries: none if it is relaxed, or its scope is too narrow."""
    if reaches(code, remote) and code.order.sem != "relaxed":
        return released
    if not remote:
        return released.relaxed()
    return released.only_operations(unscoped(code) and code.order.sem != "relaxed")


def signalled(clock: WarpClock, lanes: int, code: Operation, remote: bool) -> Released:
    """What these lanes signal."""
    carried, published = narrowed(clock.release(lanes, code.pc), code, remote), behind_fence(clock, code, remote)
    if published is not None:
        carried.add(published)
    return carried


def commit_of(code: Operation) -> Commits | None:
    return next((one for one in code.effects if isinstance(one, Commits)), None)
