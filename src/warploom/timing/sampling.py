"""Grids whose clusters differ in work, as with a causal mask: which clusters stand for all.

The first cluster of such a grid does the least or the most. A loop whose length depends on the index of its CTA shows
that they may differ, and the last cluster whether they do. Then a few clusters are recorded, spread over the axes on
which a loop depends: one at another place of each part, so that they do not all have the same remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..emulator.machine.operation import BRANCH
from .instructions import facts_of
from .recording import RUN, Recording

if TYPE_CHECKING:
    from ..emulator.machine.operation import Operation

AXES = ("x", "y", "z")
SPECIAL = tuple(f"%{name}.{axis}" for name in ("ctaid", "clusterid") for axis in AXES)
SAMPLES = 7
"""Clusters that stand for a grid: prime to the usual numbers of places (132, 66, 33), so that each place meets all."""
GOLDEN = (5**0.5 - 1) / 2
EVEN = 1.05
"""Ratio of two clusters' instructions up to which they do the same."""


def axes_of_loops(operations: Sequence[Operation]) -> frozenset[str]:
    """The axes of the grid on which the length of a loop depends, through registers and what is loaded by them."""
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
    ends = [mine for one, mine in zip(operations, facts, strict=True) if _ends(one, loops)]
    return frozenset().union(*(found.get(register, frozenset()) for one in ends for register in one.reads))


def _ends(operation: Operation, loops: Sequence[tuple[int, int]]) -> bool:
    """True for a branch that may end one of the loops: the one at its end, or one out of it."""
    if operation.kind != BRANCH or operation.instruction.guard is None:
        return False
    to, at = operation.targets[0], operation.pc
    return any(first <= at <= end and (at == end or not first <= to <= end) for first, end in loops)


def _named(operation: Operation) -> frozenset[str]:
    """The axes that an instruction reads."""
    if operation.bound is None:
        return frozenset()
    text = operation.text
    return frozenset(name[-1] for name in SPECIAL if name in text)


def work(recording: Recording) -> list[float]:
    """The instructions of each recorded cluster."""
    return [
        float(sum(
            len(recording.runs[what].pcs) if kind == RUN else 1
            for (cta, _), steps in recording.steps.items() if cta in members for kind, _, what in steps
        ))
        for members in recording.clusters.values()
    ]  # fmt: skip


def differ(works: Sequence[float]) -> bool:
    return max(works) > EVEN * min(works)


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


def last(grid: tuple[int, ...], axes: frozenset[str]) -> int:
    """The number of the last cluster on those axes."""
    x, y, z = (size - 1 if axis in axes else 0 for size, axis in zip(grid, AXES, strict=True))
    return x + grid[0] * (y + grid[1] * z)
