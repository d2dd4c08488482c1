"""When a cluster gives way to others, under the lazy schedule, which would run each of them to its end.

CTAs that pass data through global memory publish it by strong accesses: a flag, a ticket, a lock. If one CTA ran to its
end before the next began, the others would see final flags only, and a flag stored before its data, or one that nobody
waits for, would leave no trace. So several clusters are resident from the start, and the last one goes first. Each
gives way at its first strong accesses of .gpu or .sys scope: after a load to the next cluster, which may load the same;
after a store or an atomic to the first one, which may have waited for it. An atomic addition that returns the old value
may number the clusters. Then the one with the last number goes first, and those without a number go before it, in
order.
"""

from __future__ import annotations

from ...isa.effects import READS, UPDATES, accesses
from ..machine.machine import Cluster, Machine
from ..machine.operation import Operation

TOGETHER = 2
TOGETHER_AT_MOST = 8
"""Clusters per device that are resident from the start: two neighbours. In a grid of several dimensions CTAs often hand
over along y or z (split K), so then it is three of a column, with those between them, if they are not too many."""
MOST = 8
"""Loads, and as many stores and atomics, at which a cluster gives way; then it runs ahead of those that follow it. Each
counts once, but compilers unroll loops."""
TICKETLESS = 1 << 62
"""The number of a cluster without a number: higher than all others."""


def _name(cluster: Cluster) -> object:
    """Identifies a cluster without keeping its memory."""
    return cluster.device.index, cluster.call, cluster.index


def _numbers(operation: Operation) -> bool:
    """True if an instruction may give its cluster a number."""
    modifiers = operation.instruction.modifiers
    return modifiers[0] == "atom" and not {"add", "inc"}.isdisjoint(modifiers)


class Turns:
    """The turns of the clusters of one run. `over`: the running cluster gives way."""

    def __init__(self, numbered: bool) -> None:
        self.numbered = numbered
        self.over = False
        self._restart = False
        self._seen: dict[tuple[object, bool], set[int]] = {}
        self._numbers: dict[object, int] = {}

    def end(self, cluster: Cluster, operation: Operation) -> bool:
        """A cluster has executed a `seen` instruction. Returns whether it gives way, and sets `over`."""
        writes = any(one.how != READS for one in accesses(operation.effects))
        seen = self._seen.setdefault((_name(cluster), writes), set())
        if operation.pc in seen or len(seen) == MOST:
            return False
        seen.add(operation.pc)
        self.over, self._restart = True, writes
        if _numbers(operation):
            self._numbers.setdefault(_name(cluster), len(self._numbers))
        return True

    def from_first(self) -> bool:
        """A turn has ended. Returns whether the first cluster goes on, rather than the next one."""
        restart = self.over and self._restart
        self.over = False
        return restart

    def order(self, clusters: list[Cluster]) -> list[Cluster]:
        """The clusters, the one that goes first first; `clusters` are in the order in which they started."""
        if not self.numbered:
            return clusters[::-1]
        numbers = self._numbers
        return sorted(clusters, key=lambda cluster: -numbers.get(_name(cluster), TICKETLESS))


def turns_for(machine: Machine) -> Turns | None:
    """The turns of a run; None if its clusters read nothing by strong accesses, and on several devices, whose links
    interleave them."""
    if machine.to_run == 1 or len(machine.devices) > 1:
        return None
    seen = [operation for operation in machine.code.operations if operation.seen]
    reads = any(
        one.how == READS or (one.how == UPDATES and one.returns)
        for operation in seen
        for one in accesses(operation.effects)
    )
    return Turns(any(map(_numbers, seen))) if reads else None


def together(machine: Machine) -> int:
    """Number of clusters per device that are resident from the start, if they take turns."""
    across, down, deep = machine.clusters_in_grid
    return TOGETHER if down * deep == 1 else min(2 * across + 1, TOGETHER_AT_MOST)
