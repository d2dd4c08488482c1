"""Traps, sleep and performance events. PTX ISA 9.7.19.1-4."""

from __future__ import annotations

from ...errors import EmulationError
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()


@HANDLERS.add("trap")
def _trap(d: Decode) -> Step:
    def trap(frame: Frame) -> None:
        frame.error(EmulationError, "the kernel executed trap", int(frame.active_lanes[0]))

    return trap


def _nothing(d: Decode) -> Step:
    return lambda frame: None


HANDLERS.add("brkpt", "pmevent.index", "pmevent.mask")(_nothing)


@HANDLERS.add("nanosleep", polls=True)
def _sleep(d: Decode) -> Step:
    d.operation.watched = lambda frame: bytes  # it reads nothing that can change
    return lambda frame: None
