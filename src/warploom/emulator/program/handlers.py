"""The core's interface to an instruction's semantics: a decoder that returns a step, and what a step may return.

A module of `emulator.ops` holds `handlers = Handlers()` and decorates one decoder for each row (or group of rows)
of the instruction table. A decoder examines one instruction once and returns a `Step`, a function of a `Frame`
that the core calls each time the instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...errors import EmulationError
from ...isa.effects import Allocates, Effect, Frees, Synchronises
from ..machine.frame import Frame
from ..machine.wait import Wait
from .decode import Decode

Step: TypeAlias = Callable[[Frame], Wait | None]
Decoder: TypeAlias = Callable[[Decode], Step]


@dataclass(frozen=True)
class Handler:
    """A decoder, and whether threads may spin on the instruction (`polls`: one that polls alone is parked)."""

    decode: Decoder
    polls: bool = False


class Handlers:
    """Decoders by row key of the instruction table."""

    def __init__(self) -> None:
        self.by_key: dict[str, Handler] = {}

    def add(self, *keys: str, polls: bool = False) -> Callable[[Decoder], Decoder]:
        """Register the decorated decoder for these rows."""

        def register(decode: Decoder) -> Decoder:
            for key in keys:
                if key in self.by_key:
                    raise ValueError(f"two handlers for {key}")
                self.by_key[key] = Handler(decode, polls)
            return decode

        return register

    def items(self) -> Iterator[tuple[str, Handler]]:
        return iter(self.by_key.items())


def asks_for_whole_warps(converged: str, effects: Sequence[Effect]) -> bool:
    """True if no thread of a warp may be missing.

    A barrier names its threads, and tolerates exited ones. Registers are a warp's, whichever of its threads asks:
    DeepGEMM has an elected one give them back, which the sanitizer reports.
    """
    return converged in ("warp", "warpgroup") and not any(
        isinstance(one, Synchronises) or isinstance(one, (Allocates, Frees)) and one.pool == "registers"
        for one in effects
    )


def by_whole_warps(step: Step) -> Step:
    """The step for frames in which no thread is missing; other frames are refused."""

    def checked(frame: Frame) -> Wait | None:
        if frame.mask is not True and not np.all(frame.mask):
            lane = int(np.flatnonzero(~frame.active)[0])
            frame.error(
                EmulationError,
                f"`{frame.instruction.opcode}` must be executed by all 32 threads of its warp",
                lane,
                got=f"{int(np.count_nonzero(frame.active))} of {frame.lanes} threads",
                consequence="its result is undefined (.aligned)",
            )
        return step(frame)

    return checked
