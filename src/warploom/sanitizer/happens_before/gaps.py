"""What is missing between two accesses to shared memory (PTX ISA 8.9.5).

    earlier       later         the later one's clock must cover the earlier one in
    generic       generic       c
    generic       async         p: there is a fence.proxy.async in between
    asynchronous  any           known: the operation was waited for, by a thread that passed it on
    cp.async      async         known, and carried by a fence.proxy.async

`clocks` has the clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from .access import COPY, Access
from .view import View

NO_ORDER, WEAK, FENCE, PENDING, COPY_FENCE = "no order", "weak", "fence", "pending", "copy fence"
"""What is missing between two accesses; see `gap`."""


@dataclass
class OtherSpace:
    """The copies (a bit each) known to a warp of the cluster when it executed a proxy fence for global memory alone."""

    copies: int = 0


def gap(earlier: Access, view: View, by_async: bool) -> str:
    """What is missing between an earlier access and one with this clock; "" if nothing is."""
    if earlier.bit:
        if not earlier.bit & view.known:
            return PENDING
        if by_async and earlier.proxy == COPY and earlier.writes and not earlier.bit & view.carried:
            return COPY_FENCE
        return ""
    return epoch_gap(earlier.me, earlier.epoch, view, by_async)


def epoch_gap(me: int, epoch: int, view: View, by_async: bool) -> str:
    """`gap` for a generic access of a warp in an epoch."""
    if by_async:
        if view.p[me] >= epoch:
            return ""
        if view.c[me] >= epoch:
            return FENCE
    elif view.c[me] >= epoch:
        return ""
    return WEAK if view.weak[me] >= epoch else NO_ORDER
