"""The tables of the timing model's predictions: next to the trivial rule, and to the profiler's counters."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .unseen import SMALL
from .unseen import brought as unseen_brought

FAR_OFF = 0.2
"""Unseen kernels whose error is larger are named."""
AT_BARRIERS, FOR_PRODUCTS = "full", "warpgroup_mma"
"""Reasons of waits that the profiler counts as long_scoreboard and as barrier."""


def scores(evidence: Mapping[str, Any]) -> list[str]:
    """One row per set: points, mean and worst error, the trivial rule's error, the skill; the clock's error if
    known, without that of kernels bound by L2, which follows it. Rows that are not predicted are counted, too."""
    lines = [
        "| set | points | mean error | worst | trivial rule | skill | clock |",
        "|---|---|---|---|---|---|---|",
    ]
    skipped = Counter(row["set"] for row in evidence["skipped"])
    for name, found in evidence["scores"].items():
        points = f"{found['points']} of {found['points'] + skipped[name]}" if skipped[name] else found["points"]
        clock = f"{found['clock_error_mean']:.1%}" if "clock_error_mean" in found else ""
        if "clock_error_of_l2_mean" in found:
            clock += f" (L2: {found['clock_error_of_l2_mean']:.1%})"
        lines.append(
            f"| {name} | {points} | {found['mean']:.1%} | {found['worst']:.1%} | {found['trivial_mean']:.1%} "
            f"| {found['skill']:.2f} | {clock} |"
        )
    return lines


def furthest(evidence: Mapping[str, Any]) -> list[str]:
    """The row of each set whose prediction is furthest off. Above 0: predicted too slow."""
    lines = ["| set | kernel | M x N x K | us | error |", "|---" * 5 + "|"]
    for name in evidence["scores"]:
        row = max((row for row in evidence["rows"] if row["set"] == name), key=lambda row: abs(row["error"]))
        shape = f"{row['m']} x {row['n']} x {row['k']}"
        lines.append(f"| {name} | {row['kernel']} | {shape} | {row['measured_us']:.1f} | {row['error']:+.1%} |")
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


def unseen_furthest(h200: Mapping[str, Any], h100: Mapping[str, Any]) -> list[str]:
    """How many kernels are far off on two GPUs, then each of them, the largest error first. Above 0: too slow."""
    errors = [{row["kernel"]: row["error"] for row in each["rows"] if "error" in row} for each in (h200, h100)]
    kinds = {row["kernel"]: row["kind"] for each in (h200, h100) for row in each["rows"]}
    far = {name for each in errors for name, error in each.items() if abs(error) > FAR_OFF}
    counts = [f"{sum(abs(error) > FAR_OFF for error in each.values())} of {len(each)}" for each in errors]
    lines = [
        "| kernel | kind | H200 | H100 |",
        "|---" * 4 + "|",
        f"| more than {FAR_OFF:.0%} off |  | {' | '.join(counts)} |",
    ]
    for name in sorted(far, key=lambda name: (-max(abs(each.get(name, 0.0)) for each in errors), name)):
        cells = [f"{each[name]:+.1%}" if name in each else "" for each in errors]
        lines.append(f"| {name} | {kinds[name]} | {' | '.join(cells)} |")
    return lines


def brought(h200: Mapping[str, Any]) -> list[str]:
    """One row per kernel of `unseen.brought`: its time, both predictions' errors and the trivial rule's; the means of
    their sizes first. Above 0: predicted too slow."""
    names = [case.name for case in unseen_brought.cases(SMALL)]
    by_name = {row["kernel"]: row for row in h200["rows"] if "error" in row}
    rows = [by_name[name] for name in names if name in by_name]
    errors = [(row["blind_error"], row["error"], row["trivial_us"] / row["measured_us"] - 1) for row in rows]
    means = (f"{statistics.mean(map(abs, column)):.1%}" for column in zip(*errors, strict=True))
    worst = (f"{max(map(abs, column)):.0%}" for column in zip(*errors, strict=True))
    lines = ["| kernel | us | first | now | trivial rule |", "|---" * 5 + "|"]
    lines.append(f"| mean of {len(rows)} |  | {' | '.join(means)} |")
    lines.append(f"| worst |  | {' | '.join(worst)} |")
    for row, of in zip(rows, errors, strict=True):
        lines.append(f"| {row['kernel']} | {row['measured_us']:.1f} | {' | '.join(f'{one:+.0%}' for one in of)} |")
    return lines


def waits(evidence: Mapping[str, Any]) -> list[str]:
    """Shares of the time that warps wait, where no warp has a role and all wait only at mbarriers and for wgmma."""
    lines = ["| kernel | at mbarriers: predicted | counted | for wgmma: predicted | counted |", "|---" * 5 + "|"]
    for row in evidence["rows"]:
        warps = row["predicted"].get("waits", {})
        if not warps or any(set(of) != {AT_BARRIERS, FOR_PRODUCTS} for of in warps.values()):
            continue
        cells = []
        for reason, counted in ((AT_BARRIERS, "long_scoreboard"), (FOR_PRODUCTS, "barrier")):
            shares = [of[reason] for of in warps.values()]
            low, high = (f"{share:.1%}" for share in (min(shares), max(shares)))
            cells += [low if low == high else f"{low} to {high}", f"{row['stalls'][counted]:.1%}"]
        lines.append(f"| {row['kernel']} | {' | '.join(cells)} |")
    return lines


def profiled(evidence: Mapping[str, Any]) -> list[str]:
    """One row per run of a kernel: what the clock predicts / what the profiler counts."""
    lines = [
        "| kernel | M x N x K | million instructions | GB into SMs | GB from DRAM | 1000 clocks | tensor cores busy |",
        "|---" * 7 + "|",
    ]
    runs: Counter[tuple[str, str]] = Counter()
    for row in evidence["rows"]:
        of, shape = row["predicted"], f"{row['m']} x {row['n']} x {row['k']}"
        runs[row["kernel"], shape] += 1
        again = f", run {runs[row['kernel'], shape]}" if runs[row["kernel"], shape] > 1 else ""
        cells = [
            f"{of[column] * factor:.{digits}f} / {row[column] * factor:.{digits}f}"
            for column, factor, digits in (
                ("instructions", 1e-6, 1), ("fetched_bytes", 1e-9, 2), ("dram_bytes", 1e-9, 2), ("clocks", 1e-3, 0),
            )
        ]  # fmt: skip
        shares = f"{of['tensor']:.0%} / {row['tensor']:.0%}"
        lines.append(f"| {row['kernel']}{again} | {shape} | {' | '.join(cells)} | {shares} |")
    return lines
