"""One lane's value of a slot, for instructions that single threads run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .frame import Frame


def lane_value(frame: Frame, slot: int, lane: int) -> int:
    """The integer that a slot holds for a lane; a constant holds it for all."""
    value = frame.values[slot]
    return int(value[lane]) if isinstance(value, np.ndarray) else int(value)


def lane_array(frame: Frame, slot: int) -> np.ndarray:
    """The register behind a slot that is written, (lanes,), to be set lane by lane."""
    value = frame.values[slot]
    assert isinstance(value, np.ndarray)  # a destination is never a constant
    return value
