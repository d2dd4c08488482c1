"""Membermasks: the lanes of its warp that a thread cooperates with. PTX ISA 9.7.9.6, 9.7.13.2."""

from __future__ import annotations

import numpy as np

from ...errors import InvalidOperandError
from .frame import Frame
from .registers import WARP

LANE_BIT = (np.uint32(1) << np.arange(WARP, dtype=np.uint32)).astype(np.uint32)


def members(frame: Frame, slot: int) -> np.ndarray:
    """The membermask of each lane, (lanes,) uint32. Raises InvalidOperandError if one omits its own lane."""
    masks = np.broadcast_to(frame.values[slot], (frame.lanes,))
    outside = frame.active & ((masks & np.tile(LANE_BIT, frame.warps)) == 0)
    if outside.any():
        lane = int(np.flatnonzero(outside)[0])
        frame.error(
            InvalidOperandError,
            f"the membermask {int(masks[lane]):#010x} does not include the executing lane",
            lane,
            expected=f"a mask with bit {lane % WARP} set",
            consequence="the result is undefined",
        )
    return masks
