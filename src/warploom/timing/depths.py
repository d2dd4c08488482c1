"""CTAs that work at different depths of k, as in stream-K, read other bytes at the same time, so that they share less.

A tiled product walks through its operands, box by box along k. If tiles are cut into equal parts, one per CTA, CTA i
begins at i times that part of a walk. Then a tile's row is read by all of its CTAs, but by each at another time, and
L2 has it only for those that are close enough. The first CTA of a grid shows the part: one of its walks ends early.
Its tiles are taken to be one whole tile, if there is one before, and this part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .occupancy import L2_BYTES
from .recording import BoxPlace, Recording

FEWEST_DEPTHS, NEAR = 7, 0.02
"""CTAs at fewer depths form groups that are in step (split-K). Depths are the same up to this part of a walk."""


@dataclass(frozen=True)
class Apart:
    """Loads of CTAs that are out of step.

    Attributes:
        operations: their indices; bytes: what they request from L2, of the recorded CTAs.
        missed: share of the requests that go to DRAM.
    """

    operations: frozenset[int] = field(default_factory=frozenset)
    bytes: float = 0.0
    missed: float = 0.0


@dataclass
class _Walk:
    """Boxes that follow each other along k: the part of the array, and the operations between them and the next."""

    begin: float
    end: float
    first: int

    @property
    def length(self) -> float:
        return self.end - self.begin


def apart(recording: Recording, together: int, spare_bytes: float = L2_BYTES) -> Apart:
    """The loads out of step; together: CTAs that run at a time. None if CTAs count no arrivals: they share no tile."""
    if recording.last is None:
        return Apart()
    walks = _walks(recording)
    cut = next((at for at, walk in enumerate(walks) if walk.length < 1.0 - NEAR), None)
    if cut is None:
        return Apart()
    rest = walks[cut].length
    if any(abs(many * rest - round(many * rest)) <= NEAR for many in range(1, FEWEST_DEPTHS)):
        return Apart()
    cuts = walks[max(0, cut - 1) : cut + 1]
    last = walks[cut + 1].first if cut + 1 < len(walks) else len(recording.operations)
    mine = {
        at for at, one in enumerate(recording.operations[:last])
        if at >= cuts[0].first and one.place is not None and one.fetched and not one.stores
    }  # fmt: skip
    requested = float(sum(recording.operations[at].fetched for at in mine))
    whole = requested / sum(walk.length for walk in cuts)
    """Bytes of a whole walk of one CTA."""
    side = (together * requested / whole) ** 0.5
    """Rows and columns of the tiles that are cut, if these are a square."""
    missed = max(0.0, 1.0 - spare_bytes / (side * whole)) ** (1.0 - side / together)
    return Apart(frozenset(mine), requested, missed)


def _walks(recording: Recording) -> list[_Walk]:
    """The walks of the first CTA through the array that it loads most boxes of."""
    cta = next(iter(recording.clusters.values()))[0]
    by_array: dict[int, list[tuple[int, BoxPlace]]] = defaultdict(list)
    for at, one in enumerate(recording.operations):
        if one.cta == cta and one.place is not None and one.fetched and not one.stores:
            by_array[one.place.array].append((at, one.place))
    loads = max(by_array.values(), key=len, default=[])
    along = _along([place for _, place in loads])
    if along is None:
        return []
    found: list[_Walk] = []
    before = 0.0
    for at, place in loads:
        begin = place.first[along] / place.extents[along]
        end = min(1.0, begin + place.counts[along] / place.extents[along])
        if found and before <= begin <= found[-1].end:
            found[-1].end = end
        else:
            found.append(_Walk(begin, end, at))
        before = begin
    return found


def _along(places: Sequence[BoxPlace]) -> int | None:
    """The dimension along which a CTA walks: the one that changes most often from box to box."""
    changes = Counter(
        at for one, other in zip(places, places[1:], strict=False)
        for at, (a, b) in enumerate(zip(one.first, other.first, strict=True)) if a != b
    )  # fmt: skip
    return changes.most_common(1)[0][0] if changes else None
