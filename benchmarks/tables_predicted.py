"""The tables of the timing model's predictions: next to the trivial rule, and to the profiler's counters."""

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


def blind(evidence: Mapping[str, Any]) -> list[str]:
    """One row per set of kernels that were predicted before they were measured."""
    lines = ["| kernels | points | first | worst | now | worst |", "|---|---|---|---|---|---|"]
    for name, found in evidence["scores"].items():
        first = f"{found['blind_error_mean']:.1%} | {found['blind_error_worst']:.1%}"
        now = f"{found['error_mean']:.1%} | {found['error_worst']:.1%}"
        lines.append(f"| {name} | {found['points']} | {first} | {now} |")
    return lines


def unseen(h200: Mapping[str, Any], h100: Mapping[str, Any]) -> list[str]:
    """One row per kind of kernel on two GPUs, all kinds first."""
    head = "points | first | now | worst"
    lines = [f"| kind | H200: {head} | H100: {head} |", "|---" * 9 + "|"]
    kinds = {"all", *h200["scores"], *h100["scores"]}
    for kind in sorted(kinds, key=lambda one: (one != "all", one)):
        cells = []
        for evidence in (h200, h100):
            found = evidence["scores"].get(kind)
            cells.append(
                f"{found['points']} | {found['blind_mean']:.1%} | {found['mean']:.1%} | {found['worst']:.1%}"
                if found
                else " |  |  | "
            )
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def profiled(evidence: Mapping[str, Any]) -> list[str]:
    """One row per kernel: what the clock predicts / what the profiler counts."""
    lines = [
        "| kernel | M x N x K | million instructions | GB into SMs | GB from DRAM | 1000 clocks | tensor cores busy |",
        "|---" * 7 + "|",
    ]
    for row in evidence["rows"]:
        of, shape = row["predicted"], f"{row['m']} x {row['n']} x {row['k']}"
        cells = [
            f"{of[column] * factor:.{digits}f} / {row[column] * factor:.{digits}f}"
            for column, factor, digits in (
                ("instructions", 1e-6, 1), ("fetched_bytes", 1e-9, 2), ("dram_bytes", 1e-9, 2), ("clocks", 1e-3, 0),
            )
        ]  # fmt: skip
        lines.append(f"| {row['kernel']} | {shape} | {' | '.join(cells)} | {of['tensor']:.0%} / {row['tensor']:.0%} |")
    return lines
