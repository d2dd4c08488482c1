"""Ordered turns: consumers take turns, for example to multiply while the others store (ping-pong).

    consumer 0   wait 0 | multiply | pass on -> 1 | store ......... | wait 0 | multiply
    consumer 1                       wait 1 | multiply | pass on -> 0 | store ..........

Named barrier i belongs to consumer i: it waits there (bar.sync), and the previous consumer arrives without waiting
(bar.arrive), so each barrier counts two warpgroups, for any number of consumers. At the end one arrival is left over,
which a CTA barrier permits.
"""

from __future__ import annotations

from ...lang import ptx
from ...lang.trace import Trace
from .roles import WARPGROUP

_NAMED_BARRIERS = 16


class OrderedBarrier:
    """Turns of several consumers, in the order of their indices.

    Args:
        first_barrier: the first of as many named barriers as there are consumers.
        consumers: warpgroups that take turns, at least 2.

    Raises TraceError if the CTA does not have these barriers.
    """

    def __init__(self, first_barrier: int, consumers: int = 2) -> None:
        if consumers < 2 or not 0 < first_barrier <= _NAMED_BARRIERS - consumers:
            raise Trace.current().error(
                "turns need two consumers or more, with one named barrier each",
                expected=f"barriers 1 to {_NAMED_BARRIERS - 1}",
                got=f"{consumers} consumers, first barrier {first_barrier}",
            )
        self.first_barrier, self.consumers = first_barrier, consumers

    def begin(self, me: int) -> None:
        """Call once, before the loop: the first turn is consumer 0's, so the last consumer passes it on."""
        if me == self.consumers - 1:
            self.pass_on(me)

    def wait(self, me: int) -> None:
        """Wait until it is consumer `me`'s turn."""
        ptx.bar.sync(self.first_barrier + me, 2 * WARPGROUP)

    def pass_on(self, me: int) -> None:
        """Pass the turn to the next consumer."""
        ptx.bar.arrive(self.first_barrier + (me + 1) % self.consumers, 2 * WARPGROUP)
