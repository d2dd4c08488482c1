"""Registers that ptxas spills to local memory: bytes that a launch moves, and how far they go.

Local memory of resident threads stays in L1 if it fits there; otherwise it goes to L2, and what does not fit there to
DRAM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .machine_code import SPILL_WORDS
from .occupancy import L1_BYTES, L2_BYTES
from .recording import RUN, Recording
from .runs import WAVEFRONT


@dataclass(frozen=True)
class Spills:
    """Bytes that the recorded CTAs load and store, the share of them that leaves L1, and of these what leaves L2."""

    loaded: float = 0.0
    stored: float = 0.0
    outside: float = 0.0
    beyond: float = 0.0


def spills(recording: Recording, stack_bytes: int, residents: int, sms: int) -> Spills:
    """The spills of a launch. stack_bytes: local memory per thread; sms: SMs that have a CTA."""
    totals = {"LDL": 0.0, "STL": 0.0}
    by_run: dict[int, dict[str, float]] = {}
    for steps in recording.steps.values():
        for kind, _, what in steps:
            if kind == RUN:
                if what not in by_run:
                    by_run[what] = _of(recording, what)
                for word, many in by_run[what].items():
                    totals[word] += many
    if not any(totals.values()):
        return Spills()
    held = stack_bytes * math.prod(recording.block) * residents
    outside = float(held > L1_BYTES - residents * recording.shared_bytes)
    beyond = max(0.0, 1.0 - L2_BYTES / max(held * sms, 1)) if outside else 0.0
    return Spills(totals["LDL"], totals["STL"], outside, beyond)


def _of(recording: Recording, run: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for pc in recording.runs[run].pcs:
        for kind, many in recording.pcs[pc].machine or ():
            if kind in SPILL_WORDS:
                word = kind.partition(".")[0]
                found[word] = found.get(word, 0.0) + many * SPILL_WORDS[kind] * WAVEFRONT
    return found
