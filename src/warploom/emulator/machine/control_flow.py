"""Which operation of a kernel may follow which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from .operation import BRANCH, EXIT, INDEXED_BRANCH, Operation

Links: TypeAlias = "dict[int, list[int]]"
"""By operation (pc), its neighbours in one direction."""


def successors(operation: Operation, count: int) -> Iterator[int]:
    """The successors of an operation, in a kernel of that many operations."""
    falls = operation.kind not in (BRANCH, EXIT, INDEXED_BRANCH) or operation.guard >= 0
    if falls and operation.pc + 1 < count:
        yield operation.pc + 1
    yield from operation.targets


def links(operations: Sequence[Operation]) -> tuple[Links, Links]:
    """The successors and the predecessors of all operations."""
    onward: Links = {one.pc: list(successors(one, len(operations))) for one in operations}
    back: Links = {}
    for here, following in onward.items():
        for there in following:
            back.setdefault(there, []).append(here)
    return onward, back


def reached(
    neighbours: Mapping[int, Iterable[int]], start: Iterable[int], ends: AbstractSet[int] = frozenset()
) -> set[int]:
    """The operations that can be reached from `start`, it included, without passing one of `ends`."""
    todo, seen = list(start), set[int]()
    while todo:
        here = todo.pop()
        if here not in seen and here not in ends:
            seen.add(here)
            todo += neighbours.get(here, ())
    return seen
