"""The lanes of tensor memory that a thread and its warp can access, by their index in the warpgroup."""

from __future__ import annotations

from ..isa import dtypes
from ..isa.tensor_memory import LANE_SHIFT, LANES, QUARTER
from .emit import issue
from .special import special
from .trace import Trace
from .values import Register

_WARPS = LANES - QUARTER
"""The bits of a lane that determine its quarter."""


def own_lane(trace: Trace) -> Register:
    """The lane of a thread of a warpgroup: its index modulo 128 (and.b32 in the prologue)."""

    def make() -> Register:
        _one_dimension(trace)
        result = Register(trace, dtypes.u32, constant=True)
        issue("and.b32", Register(trace, dtypes.u32, name=result.name), special.tid.x(), LANES - 1, trace=trace)
        return result

    return trace.once("lane of tensor memory", make)


def quarter(trace: Trace) -> Register:
    """The address of lane 0 of the quarter that a warp can access (and.b32, shl.b32 in the prologue)."""

    def make() -> Register:
        _one_dimension(trace)
        result = Register(trace, dtypes.b32, constant=True)
        writable = Register(trace, dtypes.b32, name=result.name)
        issue("and.b32", writable, special.tid.x(), _WARPS, trace=trace)
        issue("shl.b32", writable, writable, LANE_SHIFT, trace=trace)
        return result

    return trace.once("quarter of tensor memory", make)


def _one_dimension(trace: Trace) -> None:
    if trace.protocol.block[1:] != (1, 1):
        raise trace.error(
            "the lanes that a warp can access are computed from tid.x alone",
            expected="a block along x",
            got=f"block={trace.protocol.block}",
            hint="address the lanes with ptx.tcgen05.ld",
        )
