"""A hint for a GPU that cannot run a kernel: the rungs that it can run."""

from __future__ import annotations

from ..isa import arch as arches


def other_rungs(arch: str) -> str:
    """The rungs of the ladder that a GPU of that target ("sm_80") can run, as a clause."""
    from .ladder import RUNGS

    device = arches.get(arch)
    able = [str(rung.number) for rung in RUNGS if device.supports(rung.arch)]
    return f"it can run rungs {', '.join(able)} of the ladder" if able else "it can run none of the ladder's rungs"
