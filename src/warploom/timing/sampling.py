"""Grids whose clusters differ in work, as with a causal mask: which clusters stand for all.

The first cluster of such a grid does the least or the most. A loop whose length depends on the index of its CTA shows
that they may differ, and the last cluster whether they do. Then a few clusters are recorded, spread over the axes on
which a loop depends: one at another place of each part, so that they do not all have the same remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..emulator.machine.operation import BRANCH
from .accesses import PAST_L1
from .instructions import Facts, facts_of
from .recording import RUN, Recording

if TYPE_CHECKING:
    from ..emulator.machine.operation import Operation

AXES = ("x", "y", "z")
SPECIAL = tuple(f"%{name}.{axis}" for name in ("ctaid", "clusterid") for axis in AXES)
INSIDE = {"shared", "local", "shared::cta", "shared::cluster"}
"""State spaces that a CTA, or a cluster, has for itself."""
SAMPLES = 7
"""Clusters that stand for a grid: prime to the usual numbers of places (132, 66, 33), so that each place meets all."""
GOLDEN = (5**0.5 - 1) / 2
EVEN = 1.05
"""Ratio of two clusters' instructions up to which they do the same."""


def axes_of_loops(operations: Sequence[Operation], strides: bool = True) -> frozenset[str]:
    """The axes of the grid on which the length of a loop depends, through registers and what is loaded by them.

    strides: also loops that begin at the place of the CTA and end where the work ends, as in a grid that strides over
    it.
    """
    facts = [facts_of(one) for one in operations]
    found: dict[int, frozenset[str]] = {}
    told = [_named(one) for one in operations]
    grown = True
    while grown:
        grown = False
        for one, named in zip(facts, told, strict=True):
            axes = named.union(*(found.get(register, frozenset()) for register in one.reads))
            for register in one.writes if axes else ():
                if not axes <= found.get(register, frozenset()):
                    found[register] = found.get(register, frozenset()) | axes
                    grown = True
    loops = [(one.targets[0], one.pc) for one, mine in zip(operations, facts, strict=True) if mine.backward]
    ends: set[str] = set()
    for operation, mine in zip(operations, facts, strict=True):
        for loop in loops:
            if _ends(operation, loop):
                decide = {register for register in _compared(facts, mine.reads) if found.get(register)}
                if strides or not decide or not decide <= _strides(facts[loop[0] : loop[1] + 1]):
                    ends |= frozenset().union(*(found.get(register, frozenset()) for register in mine.reads))
    return frozenset(ends)


def _compared(facts: Sequence[Facts], predicates: frozenset[int]) -> frozenset[int]:
    """The registers whose comparison makes one of the predicates."""
    return frozenset().union(*(
        one.reads for one in facts if one.opcode.startswith("setp") and not one.writes.isdisjoint(predicates)
    ))  # fmt: skip


def _strides(body: Sequence[Facts]) -> set[int]:
    """The registers that a loop only adds to. If the place of a CTA says only where they begin, the first CTA has no
    less to do than others."""
    copies = {register: one.reads for one in body if one.opcode.startswith("mov") for register in one.writes}
    sums = {register: one.reads for one in body if one.opcode.startswith("add") for register in one.writes}

    def only_adds(register: int, one: Facts) -> bool:
        """True if the instruction adds to the register, or copies a sum of it and something else to it."""
        if one.opcode.startswith("mov"):
            return any(register in sums.get(read, frozenset()) for read in one.reads)
        return one.opcode.startswith("add") and any(
            register == read or register in copies.get(read, frozenset()) for read in one.reads
        )

    writers = [(register, one) for one in body for register in one.writes]
    return {register for register, _ in writers} - {
        register for register, one in writers if not only_adds(register, one)
    }


def _ends(operation: Operation, loop: tuple[int, int]) -> bool:
    """True for a branch that may end a loop: the one at its end, or one out of it."""
    if operation.kind != BRANCH or operation.instruction.guard is None:
        return False
    (first, end), to, at = loop, operation.targets[0], operation.pc
    return first <= at <= end and (at == end or not first <= to <= end)


def _named(operation: Operation) -> frozenset[str]:
    """The axes that an instruction reads."""
    if operation.bound is None:
        return frozenset()
    text = operation.text
    return frozenset(name[-1] for name in SPECIAL if name in text)


def waits_for_flags(operations: Sequence[Operation]) -> bool:
    """True if a loop ends when a word of global memory has changed that it reads past L1: another CTA's flag."""
    facts = [facts_of(one) for one in operations]
    for last, one in enumerate(facts):
        first = operations[last].targets[0] if one.backward else last
        body = facts[first : last + 1]
        polled: set[int] = set()
        for _ in range(2):  # what follows from it in the next round, too
            for each in body:
                if _past_l1(each.opcode) or not each.reads.isdisjoint(polled):
                    polled |= each.writes
        if any(_ends(operations[each.pc], (first, last)) and not each.reads.isdisjoint(polled) for each in body):
            return True
    return False


def _past_l1(opcode: str) -> bool:
    """True for a load from global memory, or from an address of any space, that L1 does not serve."""
    words = set(opcode.split("."))
    return opcode.startswith("ld.") and not PAST_L1.isdisjoint(words - {"cg"}) and words.isdisjoint(INSIDE)


def work(recording: Recording) -> list[float]:
    """The instructions of each recorded cluster."""
    return [
        float(sum(
            len(recording.runs[what].pcs) if kind == RUN else 1
            for (cta, _), steps in recording.steps.items() if cta in members for kind, _, what in steps
        ))
        for members in recording.clusters.values()
    ]  # fmt: skip


def longest(recording: Recording) -> list[float]:
    """The instructions of the longest warp of each recorded cluster."""
    counts = {
        where: float(sum(len(recording.runs[what].pcs) if kind == RUN else 1 for kind, _, what in steps))
        for where, steps in recording.steps.items()
    }
    return [max(many for (cta, _), many in counts.items() if cta in members) for members in recording.clusters.values()]


def differ(works: Sequence[float]) -> bool:
    return max(works) > EVEN * min(works)


def unlike(one: Recording, other: Recording) -> bool:
    """True if clusters of two recordings do not do the same, or some of their warps do not."""
    return differ(work(one) + work(other)) or differ(longest(one) + longest(other))


def spread(grid: tuple[int, ...], axes: frozenset[str]) -> list[int]:
    """Numbers of a few clusters. grid: in clusters."""
    sizes = dict(zip(AXES, grid, strict=True))
    step = {"x": 1, "y": grid[0], "z": grid[0] * grid[1]}
    several = sum(sizes[axis] > 1 for axis in axes) > 1
    (length, apart) = (
        (grid[0] * grid[1] * grid[2], 1)
        if several
        else next(((sizes[axis], step[axis]) for axis in sorted(axes) if sizes[axis] > 1), (1, 1))
    )
    places = ((at + at * GOLDEN % 1.0) / SAMPLES for at in range(SAMPLES))
    return list(dict.fromkeys(int(place * length) * apart for place in places))


def probes(grid: tuple[int, ...], axes: frozenset[str]) -> list[int]:
    """The numbers of the last cluster on those axes and of one in the middle: where a bisection is longest, the first
    and the last have nothing to do."""
    found = []
    for x, y, z in (
        [place(size) if axis in axes else 0 for size, axis in zip(grid, AXES, strict=True)] for place in (_end, _middle)
    ):
        found.append(x + grid[0] * (y + grid[1] * z))
    return list(dict.fromkeys(found))


def _end(size: int) -> int:
    return size - 1


def _middle(size: int) -> int:
    return size // 2
