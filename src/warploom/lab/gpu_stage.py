"""The GPU as `lab.bench` uses it: torch's arrays, CUDA graphs, events, and the host's clock."""

from __future__ import annotations

import gc
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..driver import library
from ..errors import NoGpuError
from . import operands
from .clock import ClockReading, Probe
from .contenders import Prepared, result
from .operands import Operands, Reference, Rotation
from .problem import Problem
from .roofline import FLOP_PER_CLOCK
from .timing import CudaTimer, Spread, launches_for

UNIT_S = 0.003
"""About how long one graph runs: long against the gap between two replays."""
MOST_CALLS = 256
_HOST_ROUNDS, _HOST_PASSES = 40, 15


def compared(
    exact: Reference, sets: Sequence[Operands], prepared: Prepared, wait: Callable[[], object]
) -> tuple[float, bool]:
    """Run every call of a contender once: the error for the first set of operands, and whether everything is right.

    `exact` is the first set's; of the other sets' results it is only asked that all of them were written.
    """
    for each in sets:
        each.out.fill_(float("nan"))
    for call in prepared.calls:
        call()
    wait()
    error, right = exact.errors(result(prepared.calls[0], sets[0]))
    for call, each in zip(prepared.calls[1:], sets[1:], strict=True):
        right = right and not bool(result(call, each).isnan().any())
    return error, right


class GpuStage:
    """The first GPU that torch sees. Raises NoGpuError where torch or a GPU is missing."""

    def __init__(self) -> None:
        without = "`warploom ladder` emulates where there is none, and `warploom explain` calculates"
        try:
            import torch
        except ImportError:
            try:  # nobody is to install gigabytes to be told of the next thing that is missing
                library.load()
            except NoGpuError:
                raise NoGpuError("the benchmark needs a GPU, and there is none here", hint=without) from None
            raise NoGpuError("the benchmark takes its arrays from torch, which is not installed",
                             hint="pip install torch") from None  # fmt: skip
        if not torch.cuda.is_available():
            raise NoGpuError("the benchmark needs a GPU that torch can use", hint=without)
        self._torch: Any = torch
        torch.set_grad_enabled(False)
        self.timer = CudaTimer()
        self.name: str = torch.cuda.get_device_name()
        properties = torch.cuda.get_device_properties(0)
        self.sms: int = properties.multi_processor_count
        self.uuid = f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else ""
        major, minor = torch.cuda.get_device_capability()
        self.arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        self._references: dict[int, Reference] = {}

    @property
    def driver(self) -> str:
        """Version of the kernel driver, as nvidia-smi tells it."""
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            told = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        except OSError:
            return ""
        return told[0] if told else ""

    def operands(self, problem: Problem, data: str) -> list[Operands]:
        return operands.make(problem, data, operands.sets_of(problem))

    def check(self, problem: Problem, sets: Sequence[Operands], prepared: Prepared) -> tuple[float, bool]:
        first = sets[0]
        exact = self._references.get(id(first))
        if exact is None:
            self._references.clear()
            exact = self._references[id(first)] = operands.reference(problem, first)
        return compared(exact, sets, prepared, self._torch.cuda.synchronize)

    def ready(self, prepared: Prepared, launch: str, count: int) -> tuple[Callable[[], object], int]:
        calls = prepared.calls
        rotation = Rotation(calls)
        if launch != "graph":
            return rotation, 1
        if not count:
            self.timer.timed(rotation, len(calls))
            seconds = max(self.timer.timed(rotation, 2 * len(calls)), 1e-6)
            count = min(MOST_CALLS, max(len(calls), round(UNIT_S / seconds)))
            count = -(-count // len(calls)) * len(calls)
        graph = self._torch.cuda.CUDAGraph()
        rotation = Rotation(calls)
        with self._torch.cuda.graph(graph):
            for _ in range(count):
                rotation()
        graph.replay()
        self._torch.cuda.synchronize()
        return graph.replay, count

    def clock(self, prepared: Prepared, seconds: float) -> tuple[ClockReading, float] | None:
        """The first half of the time is for the GPU to find its clock."""
        if prepared.program is None:
            return None
        probe = Probe(prepared.program)
        calls = Rotation([partial(probe.call, *inputs, out=out) for inputs, out in prepared.arguments])
        launches = launches_for(self.timer, calls, seconds / 2)
        self.timer.timed(calls, launches)
        probe.zero()
        each = self.timer.timed(calls, launches)
        return probe.read(), each

    def share(self, reading: ClockReading, tflops: float, dtype: str) -> float | None:
        if dtype not in FLOP_PER_CLOCK.get(self.arch, {}):
            return None
        return reading.share(tflops, self.sms, dtype, self.arch)

    def host_us(self, prepared: Prepared) -> Spread:
        """Queues are emptied between rounds, untimed, so that they never fill."""
        calls, spread = prepared.calls, Spread()
        for call in calls:
            call()
        for _ in range(_HOST_PASSES):
            self._torch.cuda.synchronize()
            spent = 0
            for round_number in range(_HOST_ROUNDS):
                start = time.perf_counter_ns()
                for call in calls:
                    call()
                spent += time.perf_counter_ns() - start
                if round_number % 4 == 3:
                    self._torch.cuda.synchronize()
            spread.samples.append(spent / (_HOST_ROUNDS * len(calls)) / 1e3)
        return spread

    def release(self) -> None:
        self._references.clear()
        gc.collect()
        self._torch.cuda.empty_cache()
