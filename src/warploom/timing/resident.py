"""What stays in L2 from launch to launch: all but what copies mark to be evicted first."""

from __future__ import annotations

import math

from .launch import Launch
from .recording import Recording

HINT = ".L2::cache_hint"
"""The modifier of a copy that has an L2 policy."""


def rest_bytes(recording: Recording, launch: Launch, scale: float) -> float:
    """Bytes of the arrays without those that copies mark to be evicted first, which leave everything else in L2; inf if
    nothing is marked. scale: CTAs of the grid over those recorded, by work."""
    pcs = recording.pcs
    first = [facts for facts in pcs if facts.opcode.startswith("createpolicy") and "L2::evict_first" in facts.opcode]
    policies = {register for facts in first for register in facts.writes}
    marked = sum(
        one.distant for one in recording.operations
        if HINT in one.text and not policies.isdisjoint(pcs[one.pc].reads)
    )  # fmt: skip
    return launch.input_bytes + launch.output_bytes - marked * scale if marked else math.inf
