"""Reports lanes that access data which only other lanes of their warp have waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .findings import at
from .words import actor

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.partial_waits import LaneWait


def report_untold(
    context: Context, frame: Frame, warp: int, mask: int, wait: LaneWait, earlier: Operation, did: str
) -> None:
    """Report lanes that access what an earlier instruction did, but have bypassed the wait for it."""
    codes = (frame.operation, wait.code)
    if context.findings.seen("lane-not-waited", codes):
        return
    lane = (mask & -mask).bit_length() - 1
    context.findings.add(
        "lane-not-waited",
        f"{actor(frame.cta, warp)} accesses with {at(frame.operation)}, in lane {lane}, what {at(earlier)} {did}; "
        f"only other lanes of the warp have waited for that with {at(wait.code)}, with no bar.warp.sync or other "
        "barrier in between that both passed",
        codes,
        frame.cta,
        warp,
    )


def lanes_in(lanes: np.ndarray, which: np.ndarray) -> int:
    """The lanes with an affected granule, as a mask."""
    some = which.any(axis=0) if which.ndim > 1 else which
    return int(np.bitwise_or.reduce(np.left_shift(1, lanes[some] & 31), initial=0))
