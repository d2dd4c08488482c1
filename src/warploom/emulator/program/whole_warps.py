"""Instructions of a warp (`.sync.aligned`): all 32 threads execute them together, or their result is undefined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import EmulationError
from ...isa.effects import Allocates, Effect, Frees, Synchronises
from ..machine.frame import Frame
from ..machine.wait import Wait
from .handlers import Step


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
