"""Which threads of a diverged warp execute an instruction together. PTX ISA 9.7.9.6, 9.7.13.2, 9.7.15.

Threads of a warp advance separately, and any of them may be late. A convergent instruction is executed by threads whose
partners have all reached it: the membermask's lanes that have not exited, or the whole warp. Until then, threads are
parked before it, and later threads join them. At a bar.warp.sync partners may be at different instructions with the
same mask; all others need the same instruction.
"""

from __future__ import annotations

import numpy as np

from ...plural import counted
from ..machine.frame import Frame
from ..machine.machine import FULL, Fragment, Machine, Warp, lanes_of, mask_of
from ..machine.members import members
from ..machine.operation import Operation
from ..machine.registers import WARP
from ..machine.wait import Wait
from .fragments import merge


def who_executes(machine: Machine, warp: Warp, fragment: Fragment, frame: Frame) -> int:
    """A fragment has reached a convergent instruction: returns the lanes that execute it now, as a mask.

    `frame` is the warp's, its mask the threads whose guard holds. Threads that must wait are parked, in a separate
    fragment if others continue. 0: none executes now; the fragment may have joined another.
    """
    lanes, operation = fragment.lanes, frame.operation
    if len(warp.fragments) > 1:
        merge(machine, warp)
        if fragment not in warp.fragments or fragment.lanes != lanes:
            return 0  # threads were parked here: all of them come to the instruction again, together
    executing = FULL if frame.mask is True else mask_of(frame.active)
    if lanes == warp.alive and (executing == lanes or not operation.meets_anywhere):
        return executing
    if operation.members < 0:
        _park(machine, fragment, _whole_warp(machine, warp, fragment))
        return 0
    masks = members(frame, operation.members)
    here = executing if operation.meets_anywhere else lanes  # a guard that is false is no arrival at bar.warp.sync
    ready = _complete(warp, executing, here, masks, operation)
    waiting = executing & ~ready
    if waiting == lanes:
        _park(machine, fragment, _for_members(warp, fragment, masks, operation))
        return 0
    if waiting:
        parked = Fragment(operation.pc, waiting)
        fragment.lanes &= ~waiting
        warp.fragments.append(parked)
        _park(machine, parked, _for_members(warp, parked, masks, operation))
    if ready and operation.meets_anywhere:
        for mask in _distinct(masks, ready):
            _release(warp, mask)
            machine.progress()
    if not ready:
        fragment.pc += 1  # the guard of all remaining threads is false
    return ready


def _park(machine: Machine, fragment: Fragment, wait: Wait) -> None:
    fragment.wait = wait
    fragment.seen_progress = machine.signals


def _whole_warp(machine: Machine, warp: Warp, fragment: Fragment) -> Wait:
    def describe() -> str:
        places = ", ".join(
            f"{counted(other.lanes.bit_count(), 'thread')} at {machine.code.operations[other.pc].text}"
            for other in warp.fragments
            if other is not fragment
        )
        return f"the rest of its warp, which must execute this instruction together; elsewhere: {places}"

    return Wait("convergence", lambda: len(warp.fragments) == 1, describe, parked=True)


def _for_members(warp: Warp, fragment: Fragment, masks: np.ndarray, operation: Operation) -> Wait:
    masks = np.array(masks)
    if operation.meets_anywhere:
        fragment.masks = masks

    def ready() -> bool:
        return bool(_complete(warp, fragment.lanes, fragment.lanes, masks, operation))

    def describe() -> str:
        absent = 0
        for mask in _distinct(masks, fragment.lanes):
            absent |= _missing(warp, mask, fragment.lanes, operation)
        lanes = ", ".join(str(lane) for lane in range(WARP) if absent >> lane & 1)
        return f"the other threads of the membermask at {operation.text}; not there: lane {lanes} of warp {warp.index}"

    return Wait("convergence", ready, describe, parked=True)


def _distinct(masks: np.ndarray, lanes: int) -> list[int]:
    """The distinct membermasks of some lanes."""
    return [int(mask) for mask in np.unique(masks[lanes_of(lanes)])]


def _complete(warp: Warp, executing: int, here: int, masks: np.ndarray, operation: Operation) -> int:
    """Of the lanes that execute an instruction, those whose members have all arrived. `here`: all lanes at it."""
    ready = 0
    for mask in _distinct(masks, executing):
        if not _missing(warp, mask, here, operation):
            ready |= mask_of(masks == mask) & executing
    return ready


def _missing(warp: Warp, mask: int, here: int, operation: Operation) -> int:
    """The live members of a mask that have not arrived."""
    if operation.meets_anywhere:
        for fragment in warp.fragments:
            here |= _at_barrier(fragment, mask)
    return mask & warp.alive & ~here


def _at_barrier(fragment: Fragment, mask: int) -> int:
    """The lanes of a fragment that are parked at a bar.warp.sync with this mask."""
    if fragment.wait is None or not fragment.wait.parked or fragment.masks is None:
        return 0
    return mask_of(fragment.masks == mask) & fragment.lanes


def _release(warp: Warp, mask: int) -> None:
    """The last thread has reached a bar.warp.sync: those parked at one with this mask continue."""
    for fragment in list(warp.fragments):
        leaving = _at_barrier(fragment, mask)
        if leaving:
            fragment.lanes &= ~leaving
            if not fragment.lanes:
                warp.fragments.remove(fragment)
            warp.fragments.append(Fragment(fragment.pc + 1, leaving))
