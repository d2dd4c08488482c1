"""One GPU as the timing code uses it: events, CUDA graphs, the clock inside a kernel."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...driver import library
from ...errors import ArgumentError, DriverError
from ..program import Program
from .clock import ClockReading, Probe
from .protocols import Call, launches_for

GRAPH_S = 0.003
"""About how long one graph runs: long compared with the gap between two replays."""
MOST_CALLS = 256
"""Launches captured in one graph."""
LAUNCHES = ("graph", "stream")


class Rotation:
    """Calls one after the other, round and round: one for each set of operands."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)
        self._at = 0

    def __call__(self) -> None:
        call = self._calls[self._at]
        self._at = (self._at + 1) % len(self._calls)
        call()


class CudaTimer:
    """CUDA events on the current stream of torch or CuPy, else on stream 0.

    limit_s: seconds after which a launch counts as hung; None: never.
    """

    def __init__(self, device: int = 0, limit_s: float | None = None) -> None:
        self._driver = library.load()
        self._device, self._limit_s = device, limit_s
        with self._driver.activated(device):
            self._events = [self._driver.call("cuEventCreate", 0) for _ in range(2)]

    def timed(self, call: Call, launches: int) -> float:
        """Seconds of device time per launch. Raises DriverError for a launch that hangs or fails."""
        begin, end = self._events
        with self._driver.activated(self._device):
            stream = self._driver.cuda.CUstream(current_stream(self._device))
            self._driver.call("cuEventRecord", begin, stream)
            for _ in range(launches):
                call()
            self._driver.call("cuEventRecord", end, stream)
            self._wait(end)
            return float(self._driver.call("cuEventElapsedTime", begin, end)) / 1e3 / launches

    def _wait(self, event: Any) -> None:
        if self._limit_s is not None:
            started, not_ready = self.now(), self._driver.cuda.CUresult.CUDA_ERROR_NOT_READY
            while self._driver.cuda.cuEventQuery(event)[0] == not_ready:
                if self.now() - started > self._limit_s:
                    raise DriverError(
                        f"a kernel that is timed has not ended after {self._limit_s:g} s",
                        consequence="it runs on; this process cannot use the GPU until it is ended",
                        hint="check the kernel with `warploom check`, or allow it more with limit_s=",
                        code="gpu-hang",
                    )
                time.sleep(1e-4)
        self._driver.call("cuEventSynchronize", event, doing="waiting for a timed kernel")

    def now(self) -> float:
        return time.perf_counter()

    def idle(self, seconds: float) -> None:
        with self._driver.activated(self._device):
            self._driver.call("cuCtxSynchronize", doing="waiting for the GPU")
        time.sleep(seconds)


def current_stream(device: int) -> int:
    """Handle of the stream on which torch or CuPy launches now; 0 if neither is in use."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_stream(device).cuda_stream)
    return int(cupy.cuda.get_current_stream().ptr) if cupy is not None else 0


def torch_with_cuda() -> Any:
    """torch, if it is installed and can use a GPU; else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


class Gpu:
    """GPU number `index`. Raises NoGpuError if this machine has none.

    Attributes:
        name, arch, sms, uuid: as the driver tells them.
        timer: the CudaTimer of this GPU.
    """

    def __init__(self, index: int = 0, limit_s: float | None = None) -> None:
        driver = library.load()
        device = driver.device(index)
        self.index, self.name, self.arch, self.sms = index, device.name, device.arch, device.sms
        handle = driver.call("cuDeviceGet", index)
        self.uuid = f"GPU-{uuid.UUID(bytes=bytes(driver.call('cuDeviceGetUuid', handle).bytes))}"
        self.timer = CudaTimer(index, limit_s)

    def ready(self, calls: Sequence[Call], launch: str, count: int = 0) -> tuple[Callable[[], object], int]:
        """(one call that enqueues `count` of the calls or a few more, how many it enqueues).

        launch: "stream" enqueues one at a time, "graph" replays a CUDA graph; 0 calls: as many as take `GRAPH_S`.
        """
        rotation = Rotation(calls)
        if launch == "stream":
            return rotation, 1
        torch = torch_with_cuda()
        if torch is None:
            raise ArgumentError("a CUDA graph is captured by torch, which is missing here", expected='launch="stream"',
                                got='launch="graph"')  # fmt: skip
        if not count:
            self.timer.timed(rotation, len(calls))
            seconds = max(self.timer.timed(rotation, 2 * len(calls)), 1e-6)
            count = min(MOST_CALLS, max(len(calls), round(GRAPH_S / seconds)))
            count = -(-count // len(calls)) * len(calls)
        graph, rotation = torch.cuda.CUDAGraph(), Rotation(calls)
        with torch.cuda.graph(graph):
            for _ in range(count):
                rotation()
        graph.replay()
        torch.cuda.synchronize()
        return graph.replay, count

    def clock(
        self, program: Program, arguments: Sequence[tuple[Sequence[Any], Any]], seconds: float
    ) -> tuple[ClockReading, float]:
        """The clock that a kernel counts while it runs for `seconds`, and seconds of one launch meanwhile.

        arguments: (inputs and scalars, outputs) of each set. The GPU settles on a clock in the first half of the time.
        """
        probe = Probe(program)
        calls = Rotation([partial(probe.call, *inputs, out=out) for inputs, out in arguments])
        launches = launches_for(self.timer, calls, seconds / 2)
        self.timer.timed(calls, launches)
        probe.zero()
        each = self.timer.timed(calls, launches)
        return probe.read(), each
