"""Timing on a GPU, by the three protocols of the project; every figure names its own.

    alone        blocks of at least `block_s` seconds of one kernel, A B A B, the first 0.25 s of each dropped
    interleaved  random order in each of `rounds` rounds, slices of about `slice_ms`
    burst        8 launches after a pause, so the clock is high

Contenders are functions without arguments that enqueue one product on the current stream of torch. All figures are
seconds of device time for one call, by CUDA events. Clock and power are sampled by nvidia-smi beside the run.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Contender: TypeAlias = "Callable[[], object]"
DROPPED_S = 0.25
BURST_LAUNCHES = 8
BURST_PAUSE_S = 0.25


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


class PowerMeter:
    """SM clock in MHz and power in W while a `with` block runs, sampled every 50 ms. Empty without nvidia-smi."""

    def __enter__(self) -> PowerMeter:
        self.clock, self.power = Spread(), Spread()
        query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "50"]
        try:
            self._process: subprocess.Popen[str] | None = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        except OSError:
            self._process = None
            return self
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            parts = line.split(",")
            try:
                clock, power = float(parts[0]), float(parts[1])
            except (ValueError, IndexError):
                continue
            self.clock.samples.append(clock)
            self.power.samples.append(power)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._thread.join(timeout=1)


def _timed(torch: Any, call: Contender, launches: int) -> float:
    """Seconds of device time for each of so many launches."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(launches):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / launches


def _launches_for(torch: Any, call: Contender, seconds: float) -> int:
    """How many launches take about so long."""
    call()
    torch.cuda.synchronize()
    return max(1, int(seconds / max(_timed(torch, call, 3), 1e-6)))


def alone(contenders: Mapping[str, Contender], block_s: float = 1.0, passes: int = 2) -> dict[str, Spread]:
    """Blocks of one kernel after another, `passes` times over."""
    import torch

    results = {name: Spread() for name in contenders}
    for _ in range(passes):
        for name, call in contenders.items():
            slice_launches = _launches_for(torch, call, 0.05)
            started = time.perf_counter()
            while (passed := time.perf_counter() - started) < block_s + DROPPED_S:
                seconds = _timed(torch, call, slice_launches)
                if passed >= DROPPED_S:
                    results[name].samples.append(seconds)
    return results


def interleaved(
    contenders: Mapping[str, Contender], rounds: int = 15, slice_ms: float = 15.0, seed: int = 0
) -> dict[str, Spread]:
    """One slice of each in random order, `rounds` times."""
    import torch

    order = random.Random(seed)
    launches = {name: _launches_for(torch, call, slice_ms / 1e3) for name, call in contenders.items()}
    results = {name: Spread() for name in contenders}
    for _ in range(rounds):
        for name in order.sample(sorted(contenders), len(contenders)):
            results[name].samples.append(_timed(torch, contenders[name], launches[name]))
    return results


def burst(contenders: Mapping[str, Contender], rounds: int = 5) -> dict[str, Spread]:
    """A few launches after a pause, `rounds` times."""
    import torch

    results = {name: Spread() for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            torch.cuda.synchronize()
            time.sleep(BURST_PAUSE_S)
            call()
            results[name].samples.append(_timed(torch, call, BURST_LAUNCHES))
    return results
