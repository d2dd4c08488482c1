"""Results for which the emulator is known to differ from the recorded GPU, with the reason. Ideally empty."""

from __future__ import annotations

from collections.abc import Mapping

KNOWN: Mapping[tuple[str, str], str] = {}
"""(case name, label) -> reason. An entry must still differ; remove it once it does not."""
