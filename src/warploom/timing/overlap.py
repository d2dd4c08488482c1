"""What a grid hides behind the previous one, if it starts while that one still runs (programmatic dependent launch)."""

from __future__ import annotations

from .constants import Hardware
from .occupancy import Occupancy
from .rates import between
from .recording import GRID, ISSUE, Recording

EXPOSED = (72, 80, 108, 132)
"""Numbers of CTAs of an SM each for which it was measured how much of their work before the wait takes time."""


def ahead(recording: Recording, hardware: Hardware, room: Occupancy) -> float:
    """Share of the work before the wait that the previous launch, of as many CTAs, hides.

    All of it if CTAs find free SMs while that launch runs; else CTAs start one by one as its CTAs end.
    """
    if not recording.pdl:
        return 0.0
    filled = hardware.sms * room.clusters / (room.places * room.residents)
    shares = [(float(many), hardware[f"exposed{many}"]) for many in EXPOSED]
    return 1.0 - between(filled, [(hardware.sms / 2, 0.0), *shares])


def waits(recording: Recording) -> dict[tuple[int, int], int]:
    """The step at which each warp, by CTA and number, waits for the previous grid."""
    found = {}
    for warp, steps in recording.steps.items():
        at = next((at for at, (kind, _, _) in enumerate(steps) if kind == GRID), None)
        if at is not None:
            found[warp] = at
    return found


def loads_early(recording: Recording) -> bool:
    """True if a warp issues a copy before its wait for the previous grid."""
    operations = recording.operations
    return recording.pdl and any(
        kind == ISSUE and operations[what].fetched > 0 and not operations[what].stores
        for warp, at in waits(recording).items() for kind, _, what in recording.steps[warp][:at]
    )  # fmt: skip
