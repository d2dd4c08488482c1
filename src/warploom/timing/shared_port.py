"""The port of an SM's shared memory, which products, loads and stores share.

A product reads its operands through it, and loads and stores of warps pass it, too. If both want it at once, they take
turns: a product then takes up to twice the clocks of its reads, and the other passes take as much longer as the
product's share of the port is. Within 13 % this gives the times of `rate.port`, which has products of two warpgroups
beside stores of eight warps. What TMA reads passes the port, too, at the rate at which TMA stores: beside products it
takes as many clocks longer as they read (`rate.port.*.drain`). What TMA writes (`rate.port.*.fill`) slows down none.
That does not say who waits. `rate.port.first` times the products alone: they take at most 7 % longer, so loads and
stores wait. Here they still take turns.
"""

from __future__ import annotations

import heapq
import math

PIECE_CLOCKS, MOST_PIECES = 8.0, 16
"""Traffic over a period is queued in pieces, so that it does not come all at once."""


class SharedPort:
    """The traffic of one SM's shared memory, in clocks of the port. Without products, nothing is counted.

    share: share of the port that the latest product takes.
    """

    def __init__(self, counts: bool) -> None:
        self.counts = counts
        self.share = 0.0
        self._coming: list[tuple[float, float]] = []
        """When traffic arrives that no product has met yet, and its clocks."""
        self._free = 0.0
        """Time at which the traffic that has arrived has passed."""

    def add(self, start: float, end: float, clocks: float) -> None:
        """Add loads or stores of `clocks` that arrive evenly between two times."""
        if not self.counts or clocks <= 0.0:
            return
        pieces = min(MOST_PIECES, math.ceil(clocks / PIECE_CLOCKS))
        each, step = clocks / pieces, (end - start) / pieces
        for at in range(pieces):
            heapq.heappush(self._coming, (start + at * step, each))

    def product(self, time: float, clocks: float, reads: float) -> float:
        """Return the clocks of a product that begins at `time`. clocks: without other traffic; reads: its operands'."""
        coming = self._coming
        while coming and coming[0][0] < time + clocks:
            arrives, more = heapq.heappop(coming)
            self._free = max(self._free, arrives) + more
        others = max(0.0, self._free - time)
        takes = max(clocks, min(reads + others, 2.0 * reads))
        self.share = reads / clocks
        self._free = time + takes + max(0.0, others - (takes - reads))
        return takes
