"""The granules that an asynchronous operation reads or writes."""

from __future__ import annotations

import numpy as np

from ...emulator.engines.boxes import SharedBox
from ...emulator.engines.bulk import Bytes, Scattered
from ...emulator.engines.matrix_operands import OperandPlace
from ..happens_before.access import InFlight
from .shadow import Granules, Shadow


def granules_of(
    shadow: Shadow, place: object, flight: InFlight, operands: dict[int, tuple[object, np.ndarray]]
) -> Granules:
    """The granules of an operation's source or target; for lanes, those of the flight's own warp.

    operands: a cache of the granules of matrix operands, by their chunk map; it grows.
    """
    if isinstance(place, OperandPlace):
        key = id(place.map)
        known = operands.get(key)
        if known is None:
            known = operands[key] = (place.map, shadow.of_chunks(place.map.chunks))
        return known[1]
    if isinstance(place, Bytes):
        return shadow.span(place.start, place.size)
    if isinstance(place, SharedBox):
        if place.contiguous:
            return shadow.span(place.offset, place.rows * place.row_bytes)
        return shadow.of_chunks(place.places())
    if isinstance(place, Scattered):
        mine = place.lanes >> 5 == flight.warp - flight.operation.issuer.frame.first_warp
        return shadow.elements(place.index[mine], place.size, 1).reshape(-1)
    raise TypeError(f"no granules for {type(place).__name__}")
