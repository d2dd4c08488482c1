"""Taking turns: two consumers, one multiplies while the other stores (ping-pong), by two named barriers.

    consumer 0   wait 0 | multiply | pass on -> 1 | store ......... | wait 0 | multiply
    consumer 1                       wait 1 | multiply | pass on -> 0 | store ..........

Barrier n belongs to consumer n: it waits there (bar.sync), and the other arrives without waiting (bar.arrive) when it
has issued its last product. One arrival is left over when they end, which a barrier of the CTA does not mind.
"""

from __future__ import annotations

from ...lang import ptx
from .roles import WARPGROUP

PLAYERS = 2


class Turns:
    """See the module's docstring. `first_barrier`: the two named barriers are this one and the next."""

    def __init__(self, first_barrier: int) -> None:
        self.first_barrier = first_barrier

    def begin(self, me: int) -> None:
        """Once, before the loop: the first turn is consumer 0's, so consumer 1 passes it on."""
        if me == PLAYERS - 1:
            self.pass_on(me)

    def wait(self, me: int) -> None:
        """Until it is consumer `me`'s turn."""
        ptx.bar.sync(self.first_barrier + me, PLAYERS * WARPGROUP)

    def pass_on(self, me: int) -> None:
        """The turn is the other's."""
        ptx.bar.arrive(self.first_barrier + (me + 1) % PLAYERS, PLAYERS * WARPGROUP)
