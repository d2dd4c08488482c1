"""One GPU for the timing code: events, CUDA graphs, the clock inside a kernel."""

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
from .clock import ClockReading, Probe, between
from .protocols import Call, launches_for

GRAPH_S = 0.003
"""Approximate run time of one graph: long compared with the gap between two replays."""
MOST_CALLS = 256
"""Launches captured in one graph."""
SETTLE_S = 0.5
LAUNCHES = ("graph", "stream")


class Rotation:
    """Calls in rotation: one for each set of operands."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)
        self._at = 0

    def __call__(self) -> None:
        call = self._calls[self._at]
        self._at = (self._at + 1) % len(self._calls)
        call()


class EventPair:
    """Two CUDA events of a device, for the time between them in a stream.

    driver: `library.load()`, with a context of the device active while a method runs.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._events = [driver.call("cuEventCreate", 0) for _ in range(2)]

    def begin(self, stream: int) -> None:
        """Record the first event."""
        self._driver.call("cuEventRecord", self._events[0], self._driver.cuda.CUstream(stream))

    def end(self, stream: int) -> None:
        """Record the second event."""
        self._driver.call("cuEventRecord", self._events[1], self._driver.cuda.CUstream(stream))

    def passed(self) -> bool:
        """True if the stream has passed the second event."""
        return self._driver.cuda.cuEventQuery(self._events[1])[0] != self._driver.cuda.CUresult.CUDA_ERROR_NOT_READY

    def wait(self) -> None:
        """Wait for the second event. Raises DriverError for a kernel that failed."""
        self._driver.call("cuEventSynchronize", self._events[1], doing="waiting for a timed kernel")

    def seconds(self) -> float:
        """Seconds between the two, once both have passed."""
        return float(self._driver.call("cuEventElapsedTime", *self._events)) / 1e3

    def close(self) -> None:
        """Destroy the events."""
        for event in self._events:
            self._driver.call("cuEventDestroy", event)
        self._events = []


class CudaTimer:
    """CUDA events on the current stream of torch or CuPy, else on stream 0.

    limit_s: seconds after which a launch counts as hung; None: never.
    """

    def __init__(self, device: int = 0, limit_s: float | None = None) -> None:
        self._driver = library.load()
        self._device, self._limit_s = device, limit_s
        with self._driver.activated(device):
            self._events = EventPair(self._driver)

    def timed(self, call: Call, launches: int) -> float:
        """Seconds of device time per launch. Raises DriverError for a launch that hangs or fails."""
        with self._driver.activated(self._device):
            stream = current_stream(self._device)
            self._events.begin(stream)
            for _ in range(launches):
                call()
            self._events.end(stream)
            self._wait()
            return self._events.seconds() / launches

    def _wait(self) -> None:
        if self._limit_s is not None:
            started = self.now()
            while not self._events.passed():
                if self.now() - started > self._limit_s:
                    raise DriverError(
                        f"a timed kernel has not finished after {self._limit_s:g} s",
                        consequence="it keeps running; this process cannot use the GPU until it is ended",
                        hint="check the kernel with `warploom check`, or allow more time with limit_s=",
                        code="gpu-hang",
                    )
                time.sleep(1e-4)
        self._events.wait()

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
        name, arch, sms, uuid: as reported by the driver.
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
        """(one call that enqueues at least `count` of the calls, the number it enqueues).

        launch: "stream" enqueues one at a time, "graph" replays a CUDA graph; 0 calls: as many as take `GRAPH_S`.
        """
        rotation = Rotation(calls)
        if launch == "stream":
            return rotation, 1
        torch = torch_with_cuda()
        if torch is None:
            raise ArgumentError("capturing a CUDA graph needs torch, which is missing", expected='launch="stream"',
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
        """The clock that a kernel measures while it runs for `seconds`, and the seconds of one launch meanwhile.

        arguments: (inputs and scalars, outputs) of each set. It runs for `SETTLE_S` before, because the clock is high
        after a pause, and a pause it is while the probe is assembled, with its first call.
        """
        probe = Probe(program)
        calls = [partial(probe.call, *inputs, out=out) for inputs, out in arguments]
        calls[0]()
        call, per_call = self.ready(calls, "graph" if torch_with_cuda() is not None else "stream")
        self.timer.timed(call, launches_for(self.timer, call, SETTLE_S))
        first = probe.marks()
        each = self.timer.timed(call, launches_for(self.timer, call, seconds))
        return between(first, probe.marks()), each / per_call
