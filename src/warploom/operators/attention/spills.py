"""The warning that an attention kernel keeps registers in memory."""

from __future__ import annotations

import warnings

from ...errors import SpillWarning
from ...runtime.program import Program
from ..bind import outside, warned

SPILLED_BYTES = 64
"""Bytes of a thread's registers in memory above which a call warns."""


def warn_spills(spilled: int, program: Program) -> None:
    """Say once that a kernel with a function, or of packed sequences, needs more registers than there are."""
    if spilled > SPILLED_BYTES and warned().first(("attention spills", program.text)):
        warnings.warn(
            f"this attention kernel needs {spilled} bytes of registers more than its tiles leave, which are kept in "
            "memory; it may be slow. Simpler functions of scores or masks, or config= with a smaller tile_n, avoid it.",
            SpillWarning,
            stacklevel=outside(),
        )
