"""Interleaved launches: the power controller sees their mean power, so that they share one clock.

A slice of a benchmark lasts 15 ms, and the cap acts on the mean of many slices: `burst_watts` is what a single slice
may draw before the cap acts. A launch that draws less than the others runs at a lower clock than alone, and vice versa.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .constants import Hardware
from .launch import Launch
from .power import Work, ceiling, found_clock, highest_under, watts
from .prediction import Predictor
from .recording import Recording
from .result import Prediction


@dataclass(frozen=True)
class _One:
    """One of the interleaved launches, and the highest clock it may have."""

    predictor: Predictor
    work: Work
    highest: float

    def power(self, hardware: Hardware, ghz: float) -> float:
        clock = min(ghz, self.highest)
        return watts(self.work, hardware, clock, self.predictor.seconds(clock))


def shared_clock(launches: Sequence[_One], hardware: Hardware, cap: float = 0.0) -> float:
    """Return the highest clock in GHz at which the mean power of launches with equal time stays under the cap."""

    def drawn(ghz: float) -> float:
        return sum(one.power(hardware, ghz) for one in launches) / len(launches)

    return highest_under(drawn, max(one.highest for one in launches), cap or hardware["cap_watts"])


def predict_turns(launches: Sequence[tuple[Recording, Launch]], hardware: Hardware) -> list[Prediction]:
    """Predict launches that are interleaved in slices of equal time."""
    known = []
    for recording, launch in launches:
        predictor = Predictor(recording, hardware, launch)
        work = predictor.work()
        known.append(_One(predictor, work, ceiling(work, hardware, predictor.activity)))
    cap = launches[0][1].cap_watts
    clock = found_clock([one.predictor for one in known], lambda: shared_clock(known, hardware, cap))
    found = []
    for own in known:
        ghz = min(clock, own.highest)
        found.append(replace(own.predictor.prediction(ghz, 0.0), watts=own.power(hardware, ghz)))
    return found
