"""Checks that a mean error hides: signs of steps, order within a shape, constants fitted on one half of the rungs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from warploom.timing import H200, Launch, predict
from warploom.timing.constants import Constant, Hardware
from warploom.timing.recording import Recording

STEP = 0.03
FITTED: Mapping[str, tuple[float, ...]] = {
    "issue_clocks": (1.1, 1.22, 1.34), "queue_sharpness": (2.0, 3.0, 4.0),
}  # fmt: skip
"""Fitted constants without a microbenchmark, with the values among which a fold may choose."""


def steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Steps between consecutive rows that measure more than 3 %, and how many are predicted in the right direction."""
    right, wrong = 0, []
    for before, after in zip(rows, rows[1:], strict=False):
        measured = after["measured_us"] / before["measured_us"] - 1
        if abs(measured) <= STEP:
            continue
        predicted = after["predicted_us"] / before["predicted_us"] - 1
        if measured * predicted > 0:
            right += 1
        else:
            wrong.append(f"{before['kernel']} to {after['kernel']}")
    return {"steps": right + len(wrong), "right": right, "wrong": wrong}


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; ties share a rank."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation."""
    return statistics.correlation(ranks(one), ranks(other))


def orders(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By shape: rank correlation, and how much slower than the best the configuration predicted to be fastest is."""
    shapes: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        shapes.setdefault((row["m"], row["n"], row["k"]), []).append(row)
    found = []
    for shape, mine in shapes.items():
        if len(mine) < 4:
            continue
        measured, predicted = ([row[name] for row in mine] for name in ("measured_us", "predicted_us"))
        chosen = min(mine, key=lambda row: row["predicted_us"])["measured_us"]
        found.append({
            "shape": shape, "configurations": len(mine), "rank_correlation": round(correlation(measured, predicted), 3),
            "regret": round(chosen / min(measured) - 1, 4), "of_a_random_one": round(
                statistics.mean(measured) / min(measured) - 1, 4),
        })  # fmt: skip
    means = {
        name: round(statistics.mean(one[name] for one in found), 4)
        for name in ("rank_correlation", "regret", "of_a_random_one")
        if found
    }
    return means | {"shapes": found}


Recorded = tuple[float, Recording, Launch]
"""Measured and predicted microseconds."""


def _with(values: Mapping[str, float]) -> Hardware:
    return replace(H200, values={**H200.values, **{name: Constant(one, "fold") for name, one in values.items()}})


def halves(rungs: Mapping[int, Recorded]) -> dict[str, Any]:
    """Each fitted constant chosen on odd rungs, with the others at their defaults, and scored on even rungs; then
    swapped."""
    known: dict[tuple[int, tuple[tuple[str, float], ...]], float] = {}

    def error(numbers: Sequence[int], values: Mapping[str, float]) -> float:
        key = tuple(sorted(values.items()))
        for number in numbers:
            if (number, key) not in known:
                us, recording, launch = rungs[number]
                known[number, key] = abs(predict(recording, _with(values), launch).us / us - 1)
        return statistics.mean(known[number, key] for number in numbers)

    def fold(mine: Sequence[int], others: Sequence[int]) -> dict[str, Any]:
        found = {
            name: min((error(mine, {name: value}), value) for value in values)[1] for name, values in FITTED.items()
        }
        return {
            "rungs": list(mine), "constants": found, "mean": round(error(mine, found), 4),
            "others": list(others), "others_mean": round(error(others, found), 4),
        }  # fmt: skip

    odd, even = ([number for number in rungs if number % 2 == which] for which in (1, 0))
    return {"fitted on odd": fold(odd, even), "fitted on even": fold(even, odd)}
