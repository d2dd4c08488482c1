"""Results in which the emulator is known to differ from the recorded GPU, and why. Empty is the aim."""

from __future__ import annotations

from collections.abc import Mapping

KNOWN: Mapping[tuple[str, str], str] = {}
"""(case name, label) -> reason. What is listed here must still differ: what no longer does is to be taken off."""
