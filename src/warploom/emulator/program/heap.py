"""The heap of a kernel: `malloc` and `free` (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation").

Each call gives each thread separate memory, aligned to 16 bytes. It holds arbitrary bytes, belongs to the GPU, and
any thread may free it. If the heap's 8 MiB, the driver's default, are used up, `malloc` returns 0.
"""

from __future__ import annotations

import numpy as np

from ...errors import EmulationError
from ..machine.frame import Frame
from ..machine.memory import Allocation
from .handlers import Step

HEAP_BYTES = 8 << 20


class Heap:
    """The allocated blocks, by address."""

    def __init__(self) -> None:
        self.held: dict[int, Allocation] = {}
        self.used = 0
        self.made = 0


def malloc(size: int, result: int) -> Step:
    """`size`, `result`: slots."""

    def step(frame: Frame) -> None:
        memory, heap = frame.machine.memory, _heap(frame)
        sizes, given = np.broadcast_to(frame.values[size], frame.lanes), np.zeros(frame.lanes, np.uint64)
        for lane in map(int, frame.active_lanes):
            wanted = int(sizes[lane])
            if not 0 < wanted <= HEAP_BYTES - heap.used:
                continue
            heap.made += 1
            block = memory.allocate(np.full(wanted, 0xFF, np.uint8), f"malloc {heap.made}")
            block.device = frame.cta.device.index
            heap.held[block.base] = block
            heap.used += wanted
            given[lane] = block.base
        frame.write(result, given)

    return step


def free(pointer: int) -> Step:
    """`pointer`: a slot."""

    def step(frame: Frame) -> None:
        heap = _heap(frame)
        pointers = np.broadcast_to(frame.values[pointer], frame.lanes)
        for lane in map(int, frame.active_lanes):
            address = int(pointers[lane])
            if not address:
                continue
            block = heap.held.pop(address, None)
            if block is None:
                frame.error(
                    EmulationError, f"free is called with {address:#x}, which is not from malloc, or was freed before",
                    lane,
                )  # fmt: skip
            heap.used -= block.region.size
            frame.machine.memory.give_back(block)

    return step


def _heap(frame: Frame) -> Heap:
    device = frame.cta.device
    if device.heap is None:
        device.heap = Heap()
    return device.heap  # type: ignore[return-value]
