"""The table of the timing model's predictions: each set, next to the trivial rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def scores(evidence: Mapping[str, Any]) -> list[str]:
    """One row per set: points, mean and worst error, the trivial rule's error, the skill; the clock's error if
    known, without that of kernels bound by L2, which follows it."""
    lines = [
        "| set | points | mean error | worst | trivial rule | skill | clock |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in evidence["scores"].items():
        clock = f"{found['clock_error_mean']:.1%}" if "clock_error_mean" in found else ""
        if "clock_error_of_l2_mean" in found:
            clock += f" (L2: {found['clock_error_of_l2_mean']:.1%})"
        lines.append(
            f"| {name} | {found['points']} | {found['mean']:.1%} | {found['worst']:.1%} | {found['trivial_mean']:.1%} "
            f"| {found['skill']:.2f} | {clock} |"
        )
    return lines
