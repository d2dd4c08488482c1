"""Launches that take turns: the power controller sees their mean, so that they share one clock.

A slice of a benchmark lasts 15 ms, and a cap acts on the mean of many of them: `burst_watts` is what a slice may draw
before it does. What draws less than the others runs at a lower clock than alone, and what draws more at a higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .constants import Hardware
from .power import Work, ceiling, highest_under, watts
from .prediction import CLOCKS_GHZ, Launch, Predictor, predict
from .recording import Recording
from .result import Prediction


@dataclass(frozen=True)
class _One:
    """A launch among others, and how high its own clock may be."""

    predictor: Predictor
    work: Work
    highest: float

    def power(self, hardware: Hardware, ghz: float) -> float:
        clock = min(ghz, self.highest)
        return watts(self.work, hardware, clock, self.predictor.seconds(clock))


def shared_clock(launches: Sequence[_One], hardware: Hardware, cap: float = 0.0) -> float:
    """The highest clock in GHz at which launches that get equal time draw no more than the cap in the mean."""

    def drawn(ghz: float) -> float:
        return sum(one.power(hardware, ghz) for one in launches) / len(launches)

    return highest_under(drawn, max(one.highest for one in launches), cap or hardware["cap_watts"])


def predict_turns(launches: Sequence[tuple[Recording, Launch]], hardware: Hardware) -> list[Prediction]:
    """Predict launches that take turns in slices of equal time."""
    known = []
    for recording, launch in launches:
        predictor = Predictor(recording, hardware, launch)
        _, replay = predictor.replayed(CLOCKS_GHZ[1])
        work = predictor.work(replay)
        activity = replay.tensor_busy / max(1.0, replay.end) * predictor.active / hardware.sms
        known.append(_One(predictor, work, ceiling(work, hardware, activity)))
    clock = shared_clock(known, hardware, launches[0][1].cap_watts)
    found = []
    for (recording, launch), own in zip(launches, known, strict=True):
        ghz = min(clock, own.highest)
        told = predict(recording, hardware, replace(launch, clock_mhz=ghz * 1e3))
        found.append(replace(told, watts=own.power(hardware, ghz)))
    return found
