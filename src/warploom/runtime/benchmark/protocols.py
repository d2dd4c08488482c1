"""The three protocols for timing on a GPU. Every figure names its protocol.

    alone        blocks of at least `block_s` seconds of one kernel, A B A B; the first 0.25 s of each block is dropped.
                 A kernel that takes longer than a block counts from its second launch.
    interleaved  random order in each of `rounds` rounds, slices of about `slice_ms`
    burst        8 launches after a pause, so the clock is high

A call is a function without arguments that enqueues one or more launches on the current stream. All figures are
seconds of device time. `Timer` represents the machine, so that the protocols can be tested without a GPU.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ...errors import ArgumentError

Call: TypeAlias = "Callable[[], object]"
Watch: TypeAlias = "Callable[[str, bool], None]"
"""Receives the name of the call that runs next, and whether its samples count."""
DROPPED_S = 0.25
BURST_LAUNCHES = 8
BURST_PAUSE_S = 0.25
BURST_ROUND_S = 0.3
SLICE_S = 0.05
INTERLEAVED_SLICE_S = 0.015
LEAST_ROUNDS = {"interleaved": 15, "burst": 3}
PROTOCOLS = ("alone", "interleaved", "burst")


@dataclass
class Spread:
    """Median and extremes of a set of samples."""

    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def as_dict(self, scale: Callable[[float], float] = lambda x: x, digits: int = 3) -> dict[str, float]:
        """median, min, max and number of samples after `scale` (seconds to TFLOP/s turns min into max)."""
        values = sorted(scale(sample) for sample in self.samples)
        return {
            "median": round(scale(self.median), digits),
            "min": round(values[0], digits),
            "max": round(values[-1], digits),
            "samples": len(values),
        }


class Timer(Protocol):
    """What the protocols need from a machine."""

    def timed(self, call: Call, launches: int) -> float:
        """Seconds of device time per launch, over that many launches."""

    def now(self) -> float:
        """Seconds on a clock of the host."""

    def idle(self, seconds: float) -> None:
        """Wait until the device is idle, then for that time."""


def check_protocol(name: str) -> None:
    """Raise ArgumentError unless a protocol has that name."""
    if name not in PROTOCOLS:
        raise ArgumentError(
            f"unknown protocol {name!r}", expected=", ".join(PROTOCOLS), got=repr(name), code="unknown-name"
        )


def _nothing(name: str, counting: bool) -> None:
    pass


def sample(
    protocol: str,
    calls: Mapping[str, Call],
    seconds: float,
    timer: Timer,
    per_call: Mapping[str, int] | None = None,
    watch: Watch = _nothing,
    rounds: int = 0,
) -> dict[str, Spread]:
    """Time the calls by a protocol; seconds of device time of one launch each.

    Args:
        seconds: total time for each call.
        per_call: number of launches that one call enqueues; 1 by default.
        rounds: for "interleaved" and "burst"; 0: as many as `seconds` allow.

    Raises ArgumentError for an unknown protocol.
    """
    check_protocol(protocol)
    per_call = per_call or dict.fromkeys(calls, 1)
    if protocol == "alone":
        spreads = alone(calls, timer, block_s=seconds / 2, watch=watch)
    elif protocol == "interleaved":
        rounds = rounds or max(LEAST_ROUNDS[protocol], round(seconds / INTERLEAVED_SLICE_S))
        spreads = interleaved(calls, timer, rounds=rounds, watch=watch)
    else:
        rounds = rounds or max(LEAST_ROUNDS[protocol], round(seconds / BURST_ROUND_S))
        spreads = burst(calls, timer, rounds=rounds, watch=watch, per_call=max(per_call.values()))
    for name, spread in spreads.items():
        spread.samples = [each / per_call[name] for each in spread.samples]
    return spreads


def launches_for(timer: Timer, call: Call, seconds: float) -> int:
    """The number of launches that take about that long; one if the first takes ten times as long as that."""
    if timer.timed(call, 1) > 10 * seconds:
        return 1
    return max(1, int(seconds / max(timer.timed(call, 3), 1e-6)))


def alone(
    calls: Mapping[str, Call], timer: Timer, block_s: float = 1.0, passes: int = 2, watch: Watch = _nothing
) -> dict[str, Spread]:
    """Blocks of one call after another, repeated `passes` times."""
    results = {name: Spread() for name in calls}
    for _ in range(passes):
        for name, call in calls.items():
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
    calls: Mapping[str, Call],
    timer: Timer,
    rounds: int = 15,
    slice_s: float = INTERLEAVED_SLICE_S,
    seed: int = 0,
    watch: Watch = _nothing,
) -> dict[str, Spread]:
    """One slice of each in random order, `rounds` times."""
    order = random.Random(seed)
    launches = {}
    for name, call in calls.items():
        watch(name, False)
        launches[name] = launches_for(timer, call, slice_s)
    results = {name: Spread() for name in calls}
    for _ in range(rounds):
        for name in order.sample(sorted(calls), len(calls)):
            watch(name, True)
            results[name].samples.append(timer.timed(calls[name], launches[name]))
    return results


def burst(
    calls: Mapping[str, Call], timer: Timer, rounds: int = 5, watch: Watch = _nothing, per_call: int = 1
) -> dict[str, Spread]:
    """A few launches after a pause, `rounds` times. per_call: number of launches that one call enqueues."""
    results = {name: Spread() for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            watch(name, True)
            timer.idle(BURST_PAUSE_S)
            timer.timed(call, 1)
            results[name].samples.append(timer.timed(call, max(1, BURST_LAUNCHES // per_call)))
    return results


def ratios(name: str, spreads: Mapping[str, Spread], others: Mapping[str, object]) -> dict[str, float]:
    """How many times as fast `name` is as each of the others, by medians."""
    mine = spreads[name].median
    return {other: round(spreads[other].median / mine, 4) for other in others}
