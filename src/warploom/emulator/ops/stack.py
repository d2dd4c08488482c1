"""A thread's stack: alloca, stacksave, stackrestore. PTX ISA 9.7.17.

The stack follows a thread's variables in its local memory and grows upwards. A function's own allocations end when
it returns (`program.flatten` saves and restores around an inlined call).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EmulationError
from ...plural import counted
from ..machine.frame import Frame
from ..machine.slots import Slot
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

if TYPE_CHECKING:
    from ..machine.machine import Cta

HANDLERS = Handlers()
_ALIGNMENT = 8
"""Alignment of an alloca that names none."""


class Stack:
    """How much of its local memory each thread of a CTA uses."""

    def __init__(self, cta: Cta) -> None:
        threads = max(cta.local.size // max(cta.local_size, 1), 1)
        self.top = np.full(threads, cta.machine.code.stack_start, np.int64)

    def digest(self) -> Hashable:
        return self.top.tobytes()


STACK = Slot("stack", Stack)


def _dtype(d: Decode) -> type[np.unsignedinteger]:
    return np.uint32 if d.modifier("type") == "u32" else np.uint64


@HANDLERS.add("stack.alloca")
def _alloca(d: Decode) -> Step:
    size, out, dtype = d.source("size"), d.destination("d"), _dtype(d)
    alignment = d.constant("align") if "align" in d.operands else _ALIGNMENT

    def step(frame: Frame) -> None:
        top, lanes = STACK.of(frame.cta).top[frame.columns], frame.active_lanes
        wanted = np.broadcast_to(frame.values[size], frame.lanes)[lanes].astype(np.uint64)
        start = -(-top[lanes] // alignment) * alignment
        most = frame.cta.local_size
        over = np.flatnonzero(wanted > (most - start).clip(0).astype(np.uint64))
        if over.size:
            lane = int(lanes[over[0]])
            frame.error(
                EmulationError, f"alloca requests {counted(int(wanted[over[0]]), 'byte')}", lane,
                expected=f"at most the {most - int(start[over[0]])} bytes that are left of the thread's stack",
            )  # fmt: skip
        top[lanes] = start + wanted.astype(np.int64)
        given = np.zeros(frame.lanes, dtype)
        given[lanes] = start
        frame.write(out, given)

    return step


@HANDLERS.add("stack.save")
def _save(d: Decode) -> Step:
    out, dtype = d.destination("d"), _dtype(d)
    return lambda frame: frame.write(out, STACK.of(frame.cta).top[frame.columns].astype(dtype))


@HANDLERS.add("stack.restore")
def _restore(d: Decode) -> Step:
    saved = d.source("a")

    def step(frame: Frame) -> None:
        lanes = frame.active_lanes
        values = np.broadcast_to(frame.values[saved], frame.lanes)
        STACK.of(frame.cta).top[frame.columns][lanes] = values[lanes].astype(np.int64)

    return step
