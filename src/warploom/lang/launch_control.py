"""`ptx.clusterlaunchcontrol`: a running cluster takes over one that has not started (PTX ISA 9.7.13.17, sm_100).

answer, full = smem.array(b128, 1), smem.mbarrier(1)
ptx.clusterlaunchcontrol.try_cancel(answer[0], full[0])      by one thread, after arrive_expect_tx of 16 bytes
ptx.mbarrier.wait(full[0], phase)
response = ptx.clusterlaunchcontrol.response(answer[0])
more = ptx.clusterlaunchcontrol.is_canceled(response)
x, y, z = ptx.clusterlaunchcontrol.first_ctaid(response)     only if it was cancelled
"""

from __future__ import annotations

from typing import Any

from ..isa import dtypes
from .emit import issue
from .predicate import Predicate
from .shared import BarrierAddress, SharedAddress
from .trace import Trace
from .typed import typed
from .values import Register

RESPONSE_BYTES = 16
"""Bytes that a response completes on its barrier."""
_PREFIX = "clusterlaunchcontrol"


class ClusterLaunchControl:
    """`ptx.clusterlaunchcontrol`."""

    bytes = RESPONSE_BYTES

    @typed
    def try_cancel(
        self, to: SharedAddress, bar: BarrierAddress, *, multicast: bool = False, pred: Predicate | None = None
    ) -> None:
        """clusterlaunchcontrol.try_cancel.async: request a cluster; the response, 16 bytes, arrives at `to` and `bar`.

        With `multicast` it arrives at the same offsets in every CTA of the cluster.
        """
        trace = Trace.current()
        if not isinstance(bar, SharedAddress) or not isinstance(to, SharedAddress):
            raise trace.error("a response and its mbarrier are in shared memory", got=f"{to!r}, {bar!r}")
        everywhere = ".multicast::cluster::all" * multicast
        words = f"{_PREFIX}.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{everywhere}.b128"
        issue(words, to, bar, pred=pred, trace=trace)

    @typed
    def response(self, place: SharedAddress) -> Register:
        """ld.shared.b128: read the response, once its bytes have arrived."""
        trace = Trace.current()
        result = Register(trace, dtypes.b128)
        issue("ld.shared.b128", result, place, trace=trace)
        return result

    @typed
    def is_canceled(self, response: Register) -> Predicate:
        """query_cancel.is_canceled: true if this cluster takes over the requested one."""
        trace = Trace.current()
        result = Predicate(trace)
        issue(f"{_PREFIX}.query_cancel.is_canceled.pred.b128", result, response, trace=trace)
        return result

    @typed
    def first_ctaid(self, response: Register) -> tuple[Register, Register, Register]:
        """query_cancel.get_first_ctaid: x, y and z of the first CTA of the cancelled cluster."""
        trace = Trace.current()
        found: list[Any] = []
        for axis in "xyz":
            result = Register(trace, dtypes.u32)
            issue(f"{_PREFIX}.query_cancel.get_first_ctaid::{axis}.b32.b128", result, response, trace=trace)
            found.append(result)
        return found[0], found[1], found[2]


clusterlaunchcontrol = ClusterLaunchControl()
