"""Fit the cost model of free tiles to a sweep, and evaluate its choices on held-out layers.

    python benchmarks/fit_free_tile.py [benchmarks/results/nvidia-h200/sweep-free-tile.json ...] [--out FILE.json]

The regret of a choice is its time over the best time measured, minus 1. Layers (N, K) are dealt into folds; a fold's
products are judged by constants fitted to the other folds from the same start. The constants printed last go into
`warploom.kernels.hopper.free_tile_choice.Rates`; a test compares the two.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from warploom.kernels.hopper.free_tile_choice import Features, Rates, expected, features, from_small_m
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.lab import evidence
from warploom.lab.warploom_contender import product_of
from warploom.lab.work import GemmWork

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results/nvidia-h200"
SWEEP, MODEL = RESULTS / "sweep-free-tile.json", RESULTS / "free-tile-model.json"
START = Rates(
    clock=1412,
    row=1.48,
    bandwidth=5.2e6,
    latency=0.456,
    l2=9.5e6,
    tokens=0.363,
    start=0.912,
    overlap=0.18,
    epilogue=0.596,
    wave=1.547,
    split=0.604,
    exchange=2.69,
    one_k_tile=0.26,
    prefetched=0.256,
    clear=1e-5,
    parts=0.1,
    idle=0.05,
    consumers=0.02,
)
"""Start of every search: constants of a prototype, and guesses."""
RUNS = (0, 1)
"""Families of the sweep to which the cost model was fitted; the correction (`fit_choice`) covers later ones."""
FOLDS, STEPS = 5, 6000
FITTED = [field.name for field in fields(Rates) if field.name != "in_flight"]
PRIOR = 0.01


@dataclass
class Group:
    """The timed tiles of one product."""

    problem: GemmWork
    names: list[str]
    features: Features
    times: np.ndarray
    cublas: float


def groups(points: Sequence[Mapping[str, Any]], sms: int = 132) -> list[Group]:
    """The products of a sweep with at least two tiles."""
    found = []
    for point in points:
        if point.get("run", 0) not in RUNS:
            continue
        problem = GemmWork(point["m"], point["n"], point["k"], dtype=point["dtype"], scales=point.get("scales", ""))
        times = {name: point["final_us"].get(name, us) for name, us in point["us"].items()}
        names, rows = [], []
        for name in times:
            config = tile_of(name)
            if config is None or config.constant_weights:
                continue
            names.append(name)
            rows.append(features(config, problem.m, problem.n, problem.k, product_of(problem), sms=sms))
        if len(names) > 1 and "cublas" in times:
            columns = Features(*(np.array(column, dtype=float) for column in zip(*rows, strict=True)))
            found.append(Group(problem, names, columns, np.array([times[name] for name in names]), times["cublas"]))
    return found


def tile_of(name: str) -> FreeTileConfig | None:
    """The tile of a name, also for a small-M configuration that resembles one; None for others."""
    if name in ("cublas", "library"):
        return None
    config = any_config(name)
    if isinstance(config, SmallMConfig):
        return None if config.shared_workspace else from_small_m(config)
    return config if isinstance(config, FreeTileConfig) else None


def judged(chosen: Sequence[Group], rates: Rates) -> dict[str, float]:
    """How well constants choose among the timed tiles."""
    regrets, errors, ratios = [], [], []
    for group in chosen:
        times = expected(group.features, rates, np.maximum).total
        pick = int(np.argmin(times))
        regrets.append(group.times[pick] / group.times.min() - 1)
        errors.append(np.abs(np.log(times / group.times)).mean())
        ratios.append(group.cublas / group.times[pick])
    return {
        "products": len(chosen), "regret_mean": round(float(np.mean(regrets)), 4),
        "regret_p99": round(float(np.quantile(regrets, 0.99)), 4), "regret_most": round(float(np.max(regrets)), 4),
        "error_mean": round(float(np.mean(errors)), 4),
        "of_cublas_geomean": round(float(np.exp(np.mean(np.log(ratios)))), 4),
        "of_cublas_least": round(float(np.min(ratios)), 4),
    }  # fmt: skip


def loss(chosen: Sequence[Group], whole: Features, times: np.ndarray, starts: np.ndarray, rates: Rates) -> float:
    """The mean error of the logarithm, plus the mean regret, a little of the largest regret, and a small penalty on
    constants far from the start, which the sweep alone does not determine."""
    guess = expected(whole, rates, np.maximum).total
    error = np.abs(np.log(guess / times)).mean()
    regrets = []
    for group, start in zip(chosen, starts, strict=True):
        pick = int(np.argmin(guess[start : start + len(group.times)]))
        regrets.append(group.times[pick] / group.times.min() - 1)
    away = np.mean([np.log(getattr(rates, name) / getattr(START, name)) ** 2 for name in FITTED])
    return float(error + 3 * np.mean(regrets) + 0.3 * np.quantile(regrets, 0.98) + PRIOR * away)


def fitted(chosen: Sequence[Group], seed: int = 0, steps: int = STEPS) -> Rates:
    """Fit constants by random search."""
    draw, best = random.Random(seed), START
    whole = Features(*(np.concatenate(column) for column in zip(*(group.features for group in chosen), strict=True)))
    times = np.concatenate([group.times for group in chosen])
    starts = np.cumsum([0, *(len(group.times) for group in chosen)])[:-1]
    least = loss(chosen, whole, times, starts, best)
    for _ in range(steps):
        values = asdict(best)
        for name in draw.sample(FITTED, draw.choice((1, 1, 2, 3))):
            values[name] *= float(np.exp(draw.gauss(0, 0.25)))
        one = Rates(**values)
        if (found := loss(chosen, whole, times, starts, one)) < least:
            least, best = found, one
    return best


def folds(found: Sequence[Group], count: int = FOLDS) -> list[list[Group]]:
    """Folds dealt by layer, so that no layer is in two folds."""
    layers = sorted({(group.problem.n, group.problem.k) for group in found})
    random.Random(0).shuffle(layers)
    where = {layer: index % count for index, layer in enumerate(layers)}
    return [[group for group in found if where[group.problem.n, group.problem.k] == fold] for fold in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="*", default=[SWEEP])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    found = groups([row for path in options.sweeps for row in evidence.read(path)["rows"]])
    rates = fitted(found, steps=options.steps)
    rates = Rates(**{name: float(f"{value:.4g}") for name, value in asdict(rates).items()})
    dealt, left_out, rows = folds(found), [], []
    for number, fold in enumerate(dealt):
        others = [group for other in dealt if other is not fold for group in other]
        own = fitted(others, seed=number, steps=options.steps)
        rows.append({"fold": number, **judged(fold, own)})
        left_out += [(group, own) for group in fold]
    regrets = np.array([_regret(group, own) for group, own in left_out])
    summary = {
        "in_sample": judged(found, rates), "start": judged(found, START),
        "left_out": {"regret_mean": round(float(regrets.mean()), 4), "products": len(left_out),
                     "regret_p99": round(float(np.quantile(regrets, 0.99)), 4)},
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    print(rates)
    if options.out is not None:
        head = evidence.header("free-tile-model")
        evidence.write(options.out, {**head, **summary, "rates": asdict(rates)}, rows)


def _regret(group: Group, rates: Rates) -> float:
    pick = int(np.argmin(expected(group.features, rates, np.maximum).total))
    return float(group.times[pick] / group.times.min() - 1)


if __name__ == "__main__":
    main()
