"""Threads that diverge and reconverge: which lanes of a warp are at which instruction.

A warp whose threads took different paths consists of several fragments. They join when they are at the same
instruction and none of them waits there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import InvalidOperandError
from ..machine.frame import Frame
from ..machine.machine import Cta, Fragment, Machine, Warp, mask_of
from ..machine.operation import BRANCH, EXIT, Operation
from ..machine.registers import WARP


@dataclass(eq=False, slots=True)
class Group:
    """Consecutive warps of a CTA whose fragments are at the same instruction."""

    cta: Cta
    first: int
    fragments: list[Fragment]

    @property
    def pc(self) -> int:
        return self.fragments[0].pc


def divide(machine: Machine, group: Group, frame: Frame, operation: Operation, pc: int) -> None:
    """A branch or exit that not all threads take, or all take: give each warp its new fragments."""
    chosen = np.broadcast_to(frame.active, (frame.lanes,))
    for at, fragment in enumerate(group.fragments):
        warp = group.cta.warps[group.first + at]
        taken = mask_of(chosen[at * WARP : (at + 1) * WARP]) & fragment.lanes
        stay = fragment.lanes & ~taken
        warp.fragments.remove(fragment)
        if stay:
            warp.fragments.append(Fragment(pc + 1, stay))
        if not taken:
            pass
        elif operation.kind == BRANCH:
            warp.fragments.append(Fragment(operation.targets[0], taken))
        elif operation.kind == EXIT:
            warp.alive &= ~taken
            machine.progress()
            if not warp.alive:
                warp.left_at = operation.pc
                warp.cta.living -= 1
                machine.engine.warp_exited(warp)
        else:
            _index_branch(warp, frame, operation, taken, at)
        merge(machine, warp)


def _index_branch(warp: Warp, frame: Frame, operation: Operation, taken: int, at: int) -> None:
    index = np.broadcast_to(frame.values[operation.index_slot], (frame.lanes,))[at * WARP : (at + 1) * WARP]
    for number, target in enumerate(operation.targets):
        lanes = mask_of(index == number) & taken
        if lanes:
            warp.fragments.append(Fragment(target, lanes))
            taken &= ~lanes
    if taken:
        lane = at * WARP + (taken & -taken).bit_length() - 1
        frame.error(
            InvalidOperandError,
            "brx.idx jumps past the end of its target list",
            lane,
            expected=f"an index below {len(operation.targets)}",
        )


def leave_behind(warp: Warp, fragment: Fragment, frame: Frame) -> None:
    """Let threads that an instruction's guard excludes continue without those that wait at it for others."""
    if frame.mask is True:
        return
    meeting = mask_of(frame.active)
    others = fragment.lanes & ~meeting
    if others:
        fragment.lanes = meeting
        warp.fragments.append(Fragment(fragment.pc + 1, others))


def merge(machine: Machine, warp: Warp) -> None:
    """Join fragments that are at the same instruction and have not executed it."""
    if len(warp.fragments) < 2:
        return
    by_place: dict[int, Fragment] = {}
    kept = []
    for fragment in warp.fragments:
        if fragment.wait is not None and not fragment.wait.joins:
            kept.append(fragment)
            continue
        other = by_place.get(fragment.pc)
        if other is None:
            by_place[fragment.pc] = fragment
            kept.append(fragment)
        else:
            other.lanes |= fragment.lanes
            other.wait = None
            machine.progress()
    warp.fragments[:] = kept
