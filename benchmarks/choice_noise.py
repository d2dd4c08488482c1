"""How much of the choice's regret on left-out layers is noise of the sweeps: the same products timed twice.

    python -m benchmarks.choice_noise [--out FILE.json] [--workers 1]

"repeated": a product in two sweeps, most of them on other days: the fastest configuration of one, judged by the other,
among those in both. A choice that knows the first sweep has this regret in the second, so it is what noise alone makes.

A sweep times the best of its short slices again, in longer ones. "timed_again": the products whose choice is among
them. "regret" is that of `fit_choice`, over the least of all times, which is too fast by its noise; "by_second" takes
the configuration that is the fastest in the short slices as the best, and judges both by the long ones, whose noise did
not choose it. "timed_once": the other products, whose choice the short slices found slow.

The choice is by fits without the product's layer (`fit_choice.left_out`, one deal), some twenty minutes of a core.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fit_choice as fit
from warploom.lab import evidence
from warploom.lab.work import GemmWork

SUITE = "choice-noise"
GOAL = 0.08
"""The regret that 99 % of the products should not exceed."""
LEAST_COMMON = 3
"""Configurations that two sweeps of a product must share to be compared."""
Runs = Mapping[tuple[str, GemmWork], Sequence[Mapping[str, Any]]]


def runs(sweeps: Sequence[Mapping[str, Any]]) -> Runs:
    """The timings of each product on each card."""
    found: dict[tuple[str, GemmWork], list[Mapping[str, Any]]] = defaultdict(list)
    for sweep in sweeps:
        for point in sweep["rows"]:
            sizes = {name: point[name] for name in fit.SIZES if name in point}
            found[sweep["gpu"], GemmWork(**sizes)].append(point)
    return found


def own(names: Mapping[str, float]) -> dict[str, float]:
    """The times of this package's configurations."""
    return {name: us for name, us in names.items() if name not in (fit.CUBLAS, fit.LIBRARY)}


def repeated(timed: Runs) -> list[float]:
    """Regrets of the fastest of one sweep in another, for each ordered pair of sweeps of a product."""
    found = []
    for points in timed.values():
        for first, second in permutations([own(fit.timed(point)) for point in points], 2):
            both = [name for name in first if name in second]
            if len(both) >= LEAST_COMMON:
                found.append(second[min(both, key=first.__getitem__)] / min(second[name] for name in both) - 1)
    return found


def by_second(chosen: str, points: Sequence[Mapping[str, Any]]) -> list[float]:
    """For each sweep that timed the choice again: its time over that of the fastest by the short slices, in the long
    ones, minus 1."""
    found = []
    for first, second in ((own(point["us"]), own(point["final_us"])) for point in points):
        both = [name for name in second if name in first]
        if chosen in second and len(both) > 1:
            found.append(second[chosen] / second[min(both, key=first.__getitem__)] - 1)
    return found


def summary(regrets: Sequence[float]) -> dict[str, float]:
    """Their number, mean, 99th percentile, largest, and how many are above the goal."""
    return {
        "count": len(regrets), "mean": round(float(np.mean(regrets)), 4),
        "p99": round(float(np.quantile(regrets, 0.99)), 4), "most": round(max(regrets), 4),
        "above_goal": sum(each > GOAL for each in regrets),
    } if regrets else {"count": 0}  # fmt: skip


def judged(found: Sequence[fit.Group], orders: Sequence[np.ndarray], timed: Runs) -> dict[str, Any]:
    """The regrets of the choice, by what was timed again."""
    again: list[tuple[float, float]] = []
    once: list[float] = []
    for group, order in zip(found, orders, strict=True):
        seconds = by_second(group.names[order[0]], timed[group.gpu.name, group.problem])
        if seconds:
            again.append((fit.regret(group, order), float(np.mean(seconds))))
        else:
            once.append(fit.regret(group, order))
    return {
        "all": summary([*(first for first, _ in again), *once]),
        "timed_again": {"regret": summary([first for first, _ in again]),
                        "by_second": summary([second for _, second in again])},
        "timed_once": summary(once),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    timed, found = runs([evidence.read(path) for path in fit.SWEEPS]), fit.swept()
    with ProcessPoolExecutor(options.workers) as pool:
        orders = fit.left_out(found, 0, pool.map)
    rows = []
    for card in fit.CARDS:
        for layouts in (fit.FORWARD, fit.GRADIENTS):
            some, their = fit.of_layouts(found, orders, layouts)
            here = [at for at, group in enumerate(some) if group.gpu.name == card]
            rows.append({"gpu": card, "layouts": " ".join(layouts),
                         **judged([some[at] for at in here], [their[at] for at in here], timed)})  # fmt: skip
    head = {**evidence.header(SUITE), "repeated": summary(repeated(timed)),
            "forward": judged(*fit.of_layouts(found, orders, fit.FORWARD), timed)}  # fmt: skip
    print(json.dumps({**head, "rows": rows}, indent=1))
    if options.out is not None:
        evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
