"""The branch by which a warp has left the kernel, past an instruction at which others still wait for it.

The kernel's text says which branches cut a way to the exit off from that instruction. If there are several, the
predicates tell which of them the warp can have gone by: registers keep their last values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .control_flow import links, reached
from .frame import frame_of
from .image import Image
from .operation import BRANCH, EXIT, Operation

if TYPE_CHECKING:
    from .machine import Warp

FEW = 3
"""Maximum number of branches that are named where the one is not certain."""


@dataclass(frozen=True)
class WayOut:
    """A branch (or an exit with a guard), and whether it was taken."""

    code: Operation
    taken: bool

    def __str__(self) -> str:
        location = self.code.instruction.location
        text = f"`{self.code.text.rstrip(';')}`" + ("" if self.taken else " not taken")
        return f"{location} ({text})" if location else text


def exit_place(warp: Warp) -> str:
    """The line of the exit by which a warp has left, in words that follow "exited"; "" if the text has none."""
    location = warp.cta.machine.code.operations[warp.left_at].instruction.location
    return f" at {location}" if location else ""


def how_it_left(warp: Warp, goals: Iterable[int]) -> str:
    """How a warp that has exited went past all of these instructions (pc), in words that follow "exited"; "" if the
    text does not say."""
    code, at = warp.cta.machine.code, warp.left_at
    wanted = frozenset(goals)
    if at < 0:
        return ""
    ways = code.fact(("ways out", at, wanted), lambda: _ways_out(code, at, wanted))
    if len(ways) > 1:
        ways = [way for way in ways if _possible(warp, way)] or ways
    if not ways or len(ways) > FEW:
        return ""
    which = "the branch" if len(ways) == 1 else "one of the branches"
    return f", by {which} at {', '.join(map(str, ways))}"


def _ways_out(code: Image, at: int, goals: frozenset[int]) -> list[WayOut]:
    """The branches from which one way leads to a goal, and the other only to this exit."""
    operations, (_, back) = code.operations, links(code.operations)
    to_goal, to_exit = reached(back, goals), reached(back, {at})
    found = []
    for one in operations:
        if one.guard < 0 or one.kind not in (BRANCH, EXIT):
            continue
        jump = one.targets[0] if one.kind == BRANCH else one.pc
        leads_on = {True: jump in to_goal and one.kind == BRANCH, False: one.pc + 1 in to_goal}
        for taken, place in ((True, jump), (False, one.pc + 1)):
            ends = place == at if one.kind == EXIT else place in to_exit
            if ends and leads_on[not taken] and not leads_on[taken]:
                found.append(WayOut(one, taken))
    return found


def _possible(warp: Warp, way: WayOut) -> bool:
    """True if a thread of the warp has the branch's predicate at the value with which it goes that way."""
    value = np.asarray(frame_of(warp.cta, warp.index, 1).values[way.code.guard]) != way.code.guard_negated
    return bool((value == way.taken).any())
