"""The store under examination, before it takes effect: whether it changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...emulator.machine.places import Lanes


@dataclass(frozen=True, eq=False)
class Storing:
    """`values`: (count, lanes of the frame), about to be written to a place; `summed`: bits of lane numbers over which
    they are sums that may differ by rounding, see `lane_sums`."""

    place: Lanes
    values: np.ndarray
    summed: int = 0

    @classmethod
    def of(cls, place: Lanes, values: np.ndarray | None, summed: int) -> Storing | None:
        """None for an instruction that stores nothing."""
        return cls(place, values, summed) if values is not None else None

    def changes_nothing(self, granules: np.ndarray, granule: int) -> bool:
        """True if it writes to these granules what they hold, and lanes with a common address write the same."""
        place = self.place
        new = np.ascontiguousarray(self.values[:, place.lanes]).view(f"u{place.size}")
        index = place.index + np.arange(len(new))[:, None]
        first, last = index * place.size // granule, (index * place.size + place.size - 1) // granule
        chosen = np.isin(first, granules) | np.isin(last, granules)
        at, new = index[chosen], new[chosen]
        order = np.argsort(at, kind="stable")
        differ = (at[order][1:] == at[order][:-1]) & (new[order][1:] != new[order][:-1])
        if differ.any():
            return bool(self.summed) and not unequal_sums(
                at, new, np.broadcast_to(place.lanes, chosen.shape)[chosen], self.summed
            )
        met = np.unique(at).size < at.size  # several lanes write one address: its old contents do not matter
        return bool(met or (place.region.as_type(np.dtype(f"u{place.size}"))[at] == new).all())


def unequal_sums(at: np.ndarray, values: np.ndarray, lanes: np.ndarray, summed: int) -> set[int]:
    """The places where some of the lanes that store have other values than the rest, even if sums count as equal that
    are rounded in the same ways: those of lanes that differ in the bits `summed` alone."""
    stored: dict[int, dict[int, set[object]]] = {}
    for place, value, group in zip(at.tolist(), values.tolist(), (lanes & ~summed).tolist(), strict=True):
        stored.setdefault(place, {}).setdefault(group, set()).add(value)
    return {place for place, groups in stored.items() if len({frozenset(each) for each in groups.values()}) > 1}
