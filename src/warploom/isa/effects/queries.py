"""Conclusions from the effects of an instruction: scheduling points, waits, orders."""

from __future__ import annotations

from collections.abc import Iterable

from .vocabulary import (
    ISSUE,
    WEAK,
    Access,
    Allocates,
    Arrives,
    Commits,
    Destroys,
    Effect,
    Expects,
    Fences,
    Frees,
    Order,
    Starts,
    Synchronises,
    Waits,
)


def is_scheduling_point(effects: Iterable[Effect]) -> bool:
    """True if other threads can observe when an instruction runs, so that the schedule has a choice there.

    Fences, groups and the start of an operation do not count: they act on their own thread, and the completion of an
    operation is a choice of its own. Plain loads and stores do not count either: the sanitizer reports their races in
    any order.
    """
    for effect in effects:
        if isinstance(effect, (Arrives, Expects, Waits, Allocates, Frees, Destroys)):
            return True
        if isinstance(effect, Synchronises) and effect.kind != "lanes":
            return True
        if isinstance(effect, Access) and effect.at == ISSUE and effect.order.strong:
            return True
    return False


def is_seen_by_others(effects: Iterable[Effect]) -> bool:
    """True if threads of other CTAs can observe when an instruction runs: a strong access at .gpu or .sys scope."""
    return any(
        one.at == ISSUE and one.order.strong and one.order.scope in ("gpu", "sys") and one.space in ("", "global")
        for one in accesses(effects)
    )


def accesses(effects: Iterable[Effect], at: str = "") -> tuple[Access, ...]:
    """The accesses among effects: by the instruction (ISSUE), by the operation that it starts (RUN), or ("") all."""
    return tuple(effect for effect in effects if isinstance(effect, Access) and at in ("", effect.at))


def started(effects: Iterable[Effect]) -> Starts | None:
    """The asynchronous operation that an instruction starts."""
    return next((effect for effect in effects if isinstance(effect, Starts)), None)


def may_block(effects: Iterable[Effect]) -> bool:
    """True if a thread may have to wait at an instruction with these effects."""
    return any(
        isinstance(effect, (Waits, Synchronises)) or (isinstance(effect, Allocates) and effect.blocks)
        for effect in effects
    )


def own_order(effects: Iterable[Effect]) -> Order:
    """The memory semantics and scope of an instruction: those of its first effect that has any, otherwise weak.

    A fence beside an access (tensormap.cp_fenceproxy) does not make that strong.
    """
    effects = tuple(effects)
    beside = bool(accesses(effects))
    for effect in effects:
        if beside and isinstance(effect, Fences):
            continue
        order = getattr(effect, "order", WEAK)
        if isinstance(effect, Commits) and effect.signals is not None:
            order = effect.signals.order
        if order.strong:
            return order
    return WEAK
