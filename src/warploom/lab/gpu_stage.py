"""The GPU for `lab.bench`: torch's arrays, CUDA graphs, events, and the host's clock."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..driver import library
from ..errors import NoGpuError
from ..runtime.benchmark.clock import ClockReading
from ..runtime.benchmark.gpu import Gpu
from . import attention_operands, operands, roofline
from .attention_operands import AttentionReference
from .contender import Prepared, result
from .operands import Reference
from .work import GemmWork, Work

_HOST_ROUNDS = 12


def compared(
    exact: Reference | AttentionReference, sets: Sequence[Any], prepared: Prepared,
    wait: Callable[[], object],
) -> tuple[float, bool]:  # fmt: skip
    """Run every call of a contender once. Returns the error for the first set of operands, and whether all is right.

    `exact` belongs to the first set; the other sets' results are only checked to be completely written.
    """
    for each in sets:
        each.clear()
    for call in prepared.calls:
        call()
    wait()
    error, right = exact.errors(result(prepared.calls[0], sets[0]))
    prepared.facts |= exact.facts
    for call, each in zip(prepared.calls[1:], sets[1:], strict=True):
        right = right and not bool(result(call, each).isnan().any())
    return error, right


class GpuStage(Gpu):
    """The first GPU that torch sees. Raises NoGpuError if torch or a GPU is missing.

    `with stage:` runs contenders without gradients, and restores torch's state.
    """

    def __init__(self) -> None:
        without = "`warploom ladder` emulates without one, and `warploom explain` computes estimates"
        try:
            import torch
        except ImportError:
            try:  # report a missing GPU before asking for a large torch installation
                library.load()
            except NoGpuError:
                raise NoGpuError("the benchmark needs a GPU, but there is none here", hint=without) from None
            raise NoGpuError("the benchmark makes its arrays with torch, which is not installed",
                             hint="pip install torch") from None  # fmt: skip
        if not torch.cuda.is_available():
            raise NoGpuError("the benchmark needs a GPU that torch can use", hint=without)
        super().__init__(0)
        self._torch: Any = torch
        self._no_grad = torch.no_grad()
        self._references: dict[int, Reference | AttentionReference] = {}

    def __enter__(self) -> GpuStage:
        self._no_grad.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._no_grad.__exit__(*error)

    def operands(self, problem: Work, data: str) -> list[Any]:
        if isinstance(problem, GemmWork):
            return operands.make(problem, data, operands.sets_of(problem))
        return attention_operands.make(problem)  # type: ignore[arg-type]

    def check(self, problem: Work, sets: Sequence[Any], prepared: Prepared) -> tuple[float, bool]:
        first = sets[0]
        exact = self._references.get(id(first))
        if exact is None:
            self._references.clear()
            made: Any = operands if isinstance(problem, GemmWork) else attention_operands
            exact = self._references[id(first)] = made.reference(problem, first)
        return compared(exact, sets, prepared, self._torch.cuda.synchronize)

    def share(self, reading: ClockReading, tflops: float, dtype: str) -> float | None:
        """Share of the GPU's peak at the clock that was read; None if that peak is not known."""
        if dtype not in roofline.FLOP_PER_CLOCK.get(self.arch, {}):
            return None
        return roofline.activity(tflops, reading.megahertz * 1e6, self.sms, dtype, self.arch)

    def host_us(self, prepared: Prepared) -> float:
        """Queues are drained between rounds, untimed, so that they never fill."""
        calls, spent = prepared.calls, 0
        for call in calls:
            call()
        for round_number in range(_HOST_ROUNDS):
            if round_number % 4 == 0:
                self._torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for call in calls:
                call()
            spent += time.perf_counter_ns() - start
        return spent / (_HOST_ROUNDS * len(calls)) / 1e3

    def device_kernels(self, prepared: Prepared) -> list[str]:
        """Return the names of the kernels that one call launches, from torch's profiler."""
        profiler = self._torch.profiler
        try:
            with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
                prepared.calls[0]()
                self._torch.cuda.synchronize()
            return [event.name for event in profile.events() if "CUDA" in str(event.device_type)]
        except RuntimeError:
            return []

    def release(self) -> None:
        self._references.clear()
        gc.collect()
        self._torch.cuda.empty_cache()
