"""Timing on a GPU, by the three protocols of the project; every figure names its own.

    alone        blocks of at least `block_s` seconds of one kernel, A B A B, the first 0.25 s of each dropped; of a
                 kernel that takes longer than a block its second launch counts
    interleaved  random order in each of `rounds` rounds, slices of about `slice_ms`
    burst        8 launches after a pause, so the clock is high

Contenders are functions without arguments that enqueue one call (or, with `calls`, so many) on the current stream of
torch. All figures are seconds of device time for one call, by CUDA events. The clocks and the waiting stand behind
`Timer`, so that the protocols run without a GPU in the tests.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .power import PowerMeter

Contender: TypeAlias = "Callable[[], object]"
Watch: TypeAlias = "Callable[[str, bool], None]"
"""Told which contender runs next, and whether its samples count."""
DROPPED_S = 0.25
BURST_LAUNCHES = 8
BURST_PAUSE_S = 0.25
SLICE_S = 0.05
PROTOCOLS = ("alone", "interleaved", "burst")


@dataclass
class Spread:
    """Median and extremes of a set of samples."""

    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def as_dict(self, scale: Callable[[float], float] = lambda x: x, digits: int = 3) -> dict[str, float]:
        """median, min, max after `scale` (seconds to TFLOP/s turns min into max)."""
        values = sorted(scale(sample) for sample in self.samples)
        return {
            "median": round(scale(self.median), digits),
            "min": round(values[0], digits),
            "max": round(values[-1], digits),
            "samples": len(values),
        }


class Timer(Protocol):
    """What the protocols need of a machine."""

    def timed(self, call: Contender, launches: int) -> float:
        """Seconds of device time for each of so many launches."""

    def now(self) -> float:
        """Seconds on a clock of the host."""

    def idle(self, seconds: float) -> None:
        """Wait until the device has nothing to do, then so long."""


class CudaTimer:
    """CUDA events on torch's current stream."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch

    def timed(self, call: Contender, launches: int) -> float:
        begin = self._torch.cuda.Event(enable_timing=True)
        end = self._torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / launches

    def now(self) -> float:
        return time.perf_counter()

    def idle(self, seconds: float) -> None:
        self._torch.cuda.synchronize()
        time.sleep(seconds)


def _nothing(name: str, counting: bool) -> None:
    pass


def launches_for(timer: Timer, call: Contender, seconds: float) -> int:
    """How many launches take about so long; one where the first takes ten times as long as that."""
    if timer.timed(call, 1) > 10 * seconds:
        return 1
    return max(1, int(seconds / max(timer.timed(call, 3), 1e-6)))


def alone(
    contenders: Mapping[str, Contender],
    block_s: float = 1.0,
    passes: int = 2,
    timer: Timer | None = None,
    watch: Watch = _nothing,
) -> dict[str, Spread]:
    """Blocks of one kernel after another, `passes` times over."""
    timer = timer or CudaTimer()
    results = {name: Spread() for name in contenders}
    for _ in range(passes):
        for name, call in contenders.items():
            watch(name, False)
            slice_launches = launches_for(timer, call, SLICE_S)
            started, counting = timer.now(), False
            while (passed := timer.now() - started) < block_s + DROPPED_S or not counting:
                counting = passed >= DROPPED_S
                watch(name, counting)
                seconds = timer.timed(call, slice_launches)
                if counting:
                    results[name].samples.append(seconds)
            watch(name, False)
    return results


def interleaved(
    contenders: Mapping[str, Contender],
    rounds: int = 15,
    slice_ms: float = 15.0,
    seed: int = 0,
    timer: Timer | None = None,
    watch: Watch = _nothing,
) -> dict[str, Spread]:
    """One slice of each in random order, `rounds` times."""
    timer = timer or CudaTimer()
    order = random.Random(seed)
    launches = {}
    for name, call in contenders.items():
        watch(name, False)
        launches[name] = launches_for(timer, call, slice_ms / 1e3)
    results = {name: Spread() for name in contenders}
    for _ in range(rounds):
        for name in order.sample(sorted(contenders), len(contenders)):
            watch(name, True)
            results[name].samples.append(timer.timed(contenders[name], launches[name]))
    return results


def burst(
    contenders: Mapping[str, Contender],
    rounds: int = 5,
    timer: Timer | None = None,
    watch: Watch = _nothing,
    calls: int = 1,
) -> dict[str, Spread]:
    """A few launches after a pause, `rounds` times. `calls`: how many launches one call of a contender is."""
    timer = timer or CudaTimer()
    results = {name: Spread() for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            watch(name, True)
            timer.idle(BURST_PAUSE_S)
            timer.timed(call, 1)
            results[name].samples.append(timer.timed(call, max(1, BURST_LAUNCHES // calls)))
    return results


__all__ = [
    "BURST_LAUNCHES", "BURST_PAUSE_S", "DROPPED_S", "PROTOCOLS", "Contender", "CudaTimer", "PowerMeter", "Spread",
    "Timer", "Watch", "alone", "burst", "interleaved", "launches_for",
]  # fmt: skip
