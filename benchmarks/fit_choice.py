"""Fit the correction of the families' estimates to a sweep, and say how well it chooses for layers left out of the fit.

    python benchmarks/fit_choice.py [SWEEP.json ...] [--out FILE.json]
        [--weights src/warploom/operators/tables/choice-nvidia-h200.json]

The regret of a choice is how much longer it takes than the best that was timed for its product. Layers (N, K) are dealt
into folds; a fold's products are judged by weights fitted to the others. Ridge regression within each product: how a
configuration's time, by the logarithm, departs from its estimate more or less than that of the others of its product;
those near the best weigh most.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sweep_free_tile import CUBLAS, LIBRARY
from warploom.errors import ArgumentError
from warploom.kernels.hopper.names import any_config
from warploom.lab import evidence
from warploom.lab.problem import Problem
from warploom.lab.through_library import library_problem
from warploom.operators.families import estimate
from warploom.operators.families.correction import FEATURES, considered, numbers
from warploom.operators.spec.gpu import EMULATED

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results/nvidia-h200"
SWEEPS, MODEL = (RESULTS / "sweep-free-tile.json", RESULTS / "sweep-orders.json"), RESULTS / "choice-model.json"
FOLDS, RIDGE, NEAR = 8, 30.0, 0.25
ROWS = ((1, 32), (33, 128), (129, 512), (513, 16384))
PAIRS = [(i, j) for i in range(len(FEATURES)) for j in range(i, len(FEATURES))][1:]
"""All products of two features but the constant one, which is the same for all of a product."""


@dataclass
class Group:
    """What was timed of one product: names, estimates, products of features, times, which the library considers, and
    cuBLAS's time."""

    problem: Problem
    names: list[str]
    estimates: np.ndarray
    terms: np.ndarray
    times: np.ndarray
    considered: np.ndarray
    cublas: float


def groups(points: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The products of a sweep of which two configurations or more were timed, from all its runs. Times of runs are
    brought together by cuBLAS's."""
    found: dict[Problem, dict[str, float]] = {}
    base: dict[Problem, float] = {}
    for point in points:
        problem = Problem(point["m"], point["n"], point["k"], dtype=point["dtype"], scales=point.get("scales", ""))
        times, final = point["us"], point["final_us"]
        if CUBLAS not in times:
            continue
        first = base.setdefault(problem, times[CUBLAS])
        for name, us in times.items():
            share = final[name] / final[CUBLAS] if name in final and CUBLAS in final else us / times[CUBLAS]
            if name not in (CUBLAS, LIBRARY):
                found.setdefault(problem, {})[name] = share * first
    made = [_group(problem, times, base[problem]) for problem, times in found.items()]
    return [group for group in made if sum(group.considered) > 1]


def _group(problem: Problem, times: Mapping[str, float], cublas: float) -> Group:
    asked = library_problem(problem)
    names, estimates, rows, thought_of = [], [], [], []
    for name in times:
        try:
            config = any_config(name)
            if config.constant_weights:
                continue
            time, y = numbers(config, asked, EMULATED, estimate(config, asked, EMULATED).time_us)
        except ArgumentError:  # of a form that is gone
            continue
        names.append(name)
        estimates.append(time)
        rows.append(np.array([y[i] * y[j] for i, j in PAIRS]))
        thought_of.append(considered(config, asked))
    timed = np.array([times[name] for name in names])
    return Group(problem, names, np.array(estimates), np.array(rows), timed, np.array(thought_of), cublas)


def fitted(chosen: Sequence[Group], ridge: float = RIDGE) -> np.ndarray:
    """The weights of `PAIRS`."""
    spread = np.concatenate([group.terms - group.terms.mean(0) for group in chosen]).std(0)
    spread = np.where(spread > 1e-6, spread, np.inf)
    left, right = ridge * np.eye(len(PAIRS)), np.zeros(len(PAIRS))
    for group in chosen:
        away = np.log(group.times / group.estimates)
        weight = np.exp(-np.log(group.times / group.times.min()) / NEAR)
        weight /= weight.sum() / len(weight) ** 0.5
        centre = (weight[:, None] * group.terms).sum(0) / weight.sum()
        z, r = (group.terms - centre) / spread, away - (weight * away).sum() / weight.sum()
        left += (z * weight[:, None]).T @ z
        right += z.T @ (weight * r)
    return np.linalg.solve(left, right) / spread


def order_of(group: Group, weights: np.ndarray) -> np.ndarray:
    """Places of the configurations, the one expected to be fastest first, those not considered last."""
    logarithms = np.log(group.estimates) + np.clip(group.terms @ weights, -0.5, 0.5)
    return np.argsort(np.where(group.considered, logarithms, np.inf))


def regret(group: Group, weights: np.ndarray, first: int = 1) -> float:
    """Of the best of the model's first so many."""
    order = order_of(group, weights)[:first]
    return float(group.times[order].min() / group.times.min() - 1)


def judged(chosen: Sequence[Group], weights: Sequence[np.ndarray]) -> dict[str, Any]:
    """How well weights choose, those of each product's own fold."""
    one, two = ([regret(g, w, first) for g, w in zip(chosen, weights, strict=True)] for first in (1, 2))
    ratios = []
    for group, weight in zip(chosen, weights, strict=True):
        ratios.append(group.cublas / group.times[order_of(group, weight)[0]])
    return {
        "products": len(chosen), "regret_mean": round(float(np.mean(one)), 4),
        "regret_p99": round(float(np.quantile(one, 0.99)), 4), "regret_most": round(max(one), 4),
        "best_of_two_mean": round(float(np.mean(two)), 4),
        "best_of_two_p99": round(float(np.quantile(two, 0.99)), 4),
        "of_cublas_geomean": round(float(np.exp(np.mean(np.log(ratios)))), 4),
        "of_cublas_least": round(float(min(ratios)), 4),
    }  # fmt: skip


def folds(found: Sequence[Group], count: int = FOLDS) -> list[int]:
    """The fold of each product, dealt by layer, so that no layer is in two of them."""
    layers = sorted({(group.problem.n, group.problem.k) for group in found})
    random.Random(0).shuffle(layers)
    where = {layer: index % count for index, layer in enumerate(layers)}
    return [where[group.problem.n, group.problem.k] for group in found]


def left_out(found: Sequence[Group]) -> list[np.ndarray]:
    """For each product the weights of a fit without its layer."""
    dealt = folds(found)
    own = {fold: fitted([group for group, at in zip(found, dealt, strict=True) if at != fold]) for fold in set(dealt)}
    return [own[fold] for fold in dealt]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="*", default=list(SWEEPS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--weights", type=Path)
    options = parser.parse_args()
    found = groups([row for path in options.sweeps for row in evidence.read(path)["rows"]])
    weights = fitted(found)
    none = np.zeros(len(PAIRS))
    without = left_out(found)
    summary = {
        "estimates_alone": judged(found, [none] * len(found)), "in_sample": judged(found, [weights] * len(found)),
        "left_out": judged(found, without),
    }  # fmt: skip
    rows = []
    for least, most in ROWS:
        chosen = [(g, w) for g, w in zip(found, without, strict=True) if least <= g.problem.m <= most]
        if chosen:
            rows.append({"rows": f"{least}-{most}", **judged(*zip(*chosen, strict=True))})  # type: ignore[arg-type]
    print(json.dumps({**summary, "left_out_by_rows": rows}, indent=1))
    head = evidence.header("choice-model")
    if options.out is not None:
        evidence.write(options.out, {**head, **summary}, rows)
    if options.weights is not None:
        kept = [[FEATURES[i], FEATURES[j], float(f"{w:.4g}")]
                for (i, j), w in zip(PAIRS, weights, strict=True) if abs(w) > 1e-7]  # fmt: skip
        lines = ",\n".join("  " + json.dumps(each) for each in kept)
        options.weights.write_text('{"gpu": "NVIDIA H200", "weights": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
