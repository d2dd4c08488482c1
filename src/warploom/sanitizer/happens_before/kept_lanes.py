"""Lanes of a warp that an instruction by some of them kept together: a shuffle or a vote with a partial membermask.

Such an instruction orders no memory (PTX ISA 9.7.9.6), but when one of its lanes continues, all of them have issued
everything before it. If the mask is the whole warp, the kernel's text says so (`held_lanes`); otherwise a run does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...isa.launch import WARP
from .clocks import WarpClock

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation

MOST = 64
"""Maximum number of a warp's instructions of this kind that are kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One such instruction: the masks of lanes that waited for each other, in the epoch that it ended, and what the
    warp had heard by then (`WarpClock.heard`)."""

    epoch: int
    heard: int
    masks: tuple[int, ...]
    code: Operation


@dataclass(eq=False)
class KeptLanes:
    """The state of one cluster: by warp, its latest instructions of this kind."""

    warps: dict[int, list[Kept]] = field(default_factory=dict)

    def keep(self, clock: WarpClock, masks: tuple[int, ...], code: Operation) -> None:
        """These sets of lanes waited for each other. Without news since, another time changes nothing."""
        kept = self.warps.setdefault(clock.me, [])
        if kept and kept[-1].masks == masks and kept[-1].epoch >= clock.used and kept[-1].heard == clock.heard:
            return
        kept.append(Kept(clock.epoch, clock.heard, masks, code))
        del kept[:-MOST]
        clock.begin_epoch()

    def since(self, me: int, lanes: int, epoch: int, until: int) -> tuple[int, Operation | None]:
        """The lanes that had issued what they did in an epoch before these lanes continued in the epoch `until`, and
        the last instruction that saw to it."""
        last = None
        for one in reversed(self.warps.get(me, ())):
            if one.epoch < epoch:
                break
            for mask in one.masks if one.epoch < until else ():
                if mask & lanes and mask & ~lanes:
                    lanes |= mask
                    last = last or one.code
        return lanes, last

    def apart(self, me: int, lanes: int, others: int, epoch: int, until: int) -> int:
        """Those of these lanes that nothing kept together with one of the others between the two epochs."""
        left = lanes & ~others
        for lane in range(WARP):
            if left >> lane & 1 and self.since(me, 1 << lane, epoch, until)[0] & others:
                left &= ~(1 << lane)
        return left

    def executed(self, clocks: list[WarpClock], bits: np.ndarray, active: np.ndarray, code: Operation) -> None:
        """Lanes of warps have executed an instruction, each together with those in its bits, (lanes of the warps,)."""
        for number, clock in enumerate(clocks):
            here = slice(number * WARP, (number + 1) * WARP)
            self.keep(clock, tuple(np.unique(bits[here][active[here]]).tolist()), code)
