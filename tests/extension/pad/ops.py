"""The semantics of the family's instructions."""

from __future__ import annotations

import numpy as np

from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.frame import Frame, Issuer
from warploom.emulator.machine.groups import groups_of
from warploom.emulator.machine.places import Lanes
from warploom.emulator.ops.group_waits import wait_for_groups
from warploom.emulator.program.decode import Decode
from warploom.emulator.program.handlers import Handlers, Step
from warploom.errors import InvalidOperandError

from .memory import CELLS, PAD, POISON, UNIT
from .rows import FAMILY, SPACE

HANDLERS = Handlers()


def _cells(frame: Frame, slot: int) -> np.ndarray:
    """The cell of each active lane. Raises InvalidOperandError for one that is not allocated."""
    index = np.broadcast_to(frame.values[slot], (frame.lanes,))[frame.active_lanes].astype(np.int64)
    taken = PAD.of(frame.cta).taken
    if index.size and int(index.max()) >= taken:
        frame.error(InvalidOperandError, f"cell {int(index.max())} of the pad", expected=f"one of {taken} allocated")
    return index


@HANDLERS.add("pad.alloc")
def alloc(d: Decode) -> Step:
    count, out = d.constant("n"), d.destination("d")

    def step(frame: Frame) -> None:
        pad = PAD.of(frame.cta)
        first, pad.taken = pad.taken, pad.taken + count
        if pad.taken > CELLS:
            frame.error(InvalidOperandError, f"pad.alloc of {count} cells", expected=f"{CELLS - first} or fewer")
        frame.write(out, np.full(frame.lanes, first, np.uint32))
        for hear in frame.machine.events.made:
            hear("cells", range(first, pad.taken), Issuer.of(frame))

    return step


@HANDLERS.add("pad.put")
def put(d: Decode) -> Step:
    cell, value = d.source("c"), d.source("a")

    def step(frame: Frame) -> None:
        pad, values = PAD.of(frame.cta), np.broadcast_to(frame.values[value], (frame.lanes,))
        for lane, index in zip(frame.active_lanes.tolist(), _cells(frame, cell).tolist(), strict=True):
            number = int(values[lane])

            def write(part: int, parts: int, index: int = index, number: int = number) -> None:
                pad.cells[index] = number

            pad.cells[index] = POISON
            where = Lanes(pad.region, SPACE, np.array([index]), 4, 1, np.array([lane]))
            operation = AsyncOperation(
                UNIT, Issuer.of(frame, lane), f"pad store to cell {index}", write=write, targets=(where,)
            )
            groups_of(FAMILY, frame.cta, frame.first_warp + lane // 32).add(operation, 1 << lane % 32)
            frame.machine.engine.submit(operation)

    return step


@HANDLERS.add("pad.commit_group")
def commit_group(d: Decode) -> Step:
    def step(frame: Frame) -> None:
        operations = groups_of(FAMILY, frame.cta, frame.first_warp).commit(frame.lane_mask)
        for hear in frame.machine.events.committed:
            hear(frame, FAMILY, operations)

    return step


@HANDLERS.add("pad.wait_group")
def wait_group(d: Decode) -> Step:
    newest = d.constant("n")
    return lambda frame: wait_for_groups(frame, FAMILY, newest)


@HANDLERS.add("pad.get")
def get(d: Decode) -> Step:
    cell, out = d.source("c"), d.destination("d")

    def step(frame: Frame) -> None:
        pad, index, lanes = PAD.of(frame.cta), _cells(frame, cell), frame.active_lanes
        for hear in frame.machine.events.accessed:
            hear(frame, "reads", Lanes(pad.region, SPACE, index, 4, 1, lanes), None)
        values = np.zeros(frame.lanes, np.uint32)
        values[lanes] = pad.cells[index]
        frame.write(out, values)

    return step
