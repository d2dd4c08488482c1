"""Fit the correction of the families' cost estimates to sweeps, and evaluate its choices on held-out layers.

    python -m benchmarks.fit_choice [SWEEP.json ...] [--out FILE.json]
        [--weights src/warploom/operators/tables/choice-sm_90.json] [--workers 1]

The regret of a choice is its time over the best time measured for its product, minus 1. Layers (N, K) are dealt into
folds, several times; a fold's products are judged by trees fitted to the others. The trees (`gradient_boosting`) are
fitted to the logarithm of a configuration's time over its estimate, relative to the other configurations of the
product; the fastest configurations have the largest weights.

"noise" is the regret that noise alone causes: the fastest configuration in the sweep's short slices, judged by the
longer slices in which only the best were timed again. "as_timed" is the regret of what the library of that day chose
in each sweep, most of whose products its model had not seen.

A fit takes some four minutes of a core, and all folds half an hour. The present evidence and weights are of a driver
that grew the trees in C, adding in the same order: bit for bit the same.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gradient_boosting
from benchmarks.sweep_free_tile import CUBLAS, LIBRARY
from warploom.errors import ArgumentError
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.lab import evidence
from warploom.lab.work import GemmWork
from warploom.operators.families import estimate
from warploom.operators.families.correction import FEATURES, MOST, considered, numbers
from warploom.operators.families.traffic import at_least
from warploom.operators.families.trees import Trees
from warploom.operators.spec.gpu import EMULATED, Gpu

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results"
H200 = ("free-tile", "orders", "pairs", "e4m3-row", "e4m3-tensor")
H100 = ("forms", "forms-e4m3", "quads", "clusters")
H100_UNIFORM = ("uniform", "uniform-e4m3")
"""Sweeps on an H100 since when several consumers with one tile have a uniform warpgroup index."""
H100_NEWEST = (
    "uniform-clusters", "losers", "mixed", "e4m3-rows", "e4m3-row-losers", "long-k-forward", "input-gradient",
    "weight-gradient", "gradients", "short-k", "long-k", "store-order", "long-k-2", "input-gradient-2",
    "weight-gradient-2",
)  # fmt: skip
"""Those since when clusters have it, too, and end without a cluster barrier if they share an operand."""
H200_NEWEST = (
    "losers",
    "losers-e4m3",
    "llm-forms",
    "choice",
    "choice-2",
    "choice-3",
    "choice-4",
    "shipped",
    "gradients",
)
NEWEST = 2


def _paths(card: str, names: Sequence[str]) -> list[Path]:
    return [RESULTS / card / f"sweep-{name}.json" for name in names]


SWEEPS: dict[Path, int] = {
    **dict.fromkeys((*_paths("nvidia-h200", H200), *_paths("nvidia-h100", H100)), 0),
    **dict.fromkeys(_paths("nvidia-h100", H100_UNIFORM), 1),
    **dict.fromkeys((*_paths("nvidia-h100", H100_NEWEST), *_paths("nvidia-h200", H200_NEWEST)), NEWEST),
}
"""The sweeps, each with the generation of its kernels."""
MODEL = RESULTS / "choice-model.json"
CARDS = {card.name: card for card in (EMULATED, Gpu("NVIDIA H100 80GB HBM3", "sm_90a", 132, memory_gbps=3352))}
"""The GPUs of the sweeps."""
FOLDS, DEALS, NEAR = 4, 2, 0.25
SIZES = ("m", "n", "k", "dtype", "scales", "layout")
LONGER = 0.75
"""Weight of the longer timing for a configuration that was timed twice: it took three times as long."""
FORWARD, GRADIENTS = ("tn",), ("tt", "nt")
DTYPES = ("bf16", "e4m3")
ROWS = ((1, 32), (33, 128), (129, 512), (513, 16384), (1, 1 << 20))


@dataclass
class Group:
    """Timings of one product on a GPU: names, estimates, features, times, whether the library considers each, and
    cuBLAS's time."""

    problem: GemmWork
    gpu: Gpu
    names: list[str]
    estimates: np.ndarray
    features: np.ndarray
    times: np.ndarray
    considered: np.ndarray
    cublas: float


def timed(point: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds of each contender in one run. The best were timed twice, the second time for longer and perhaps at
    another clock. The two timings are scaled to each other by the median over the contenders that have both."""
    first, second = point["us"], point["final_us"]
    shift = middle([math.log(second[name] / first[name]) for name in second if name in first])
    found = dict(first)
    for name in set(first) & set(second):
        found[name] = first[name] ** (1 - LONGER) * (second[name] / math.exp(shift)) ** LONGER
    return found


def middle(values: Sequence[float]) -> float:
    """The median; 0 for an empty sequence."""
    return float(np.median(values)) if len(values) else 0.0


def groups(points: Sequence[Mapping[str, Any]], gpu: Gpu = EMULATED, generation: int = NEWEST) -> list[Group]:
    """The products of a sweep on a GPU with at least two timed configurations, from all its runs. Times of different
    runs are scaled by the median over the contenders that both have timed, at least cuBLAS. Configurations whose code
    has changed since the sweep's `generation` are left out."""
    found: dict[GemmWork, dict[str, float]] = {}
    for point in points:
        problem = GemmWork(**{name: point[name] for name in SIZES if name in point})
        times = {name: us for name, us in timed(point).items() if name != LIBRARY}
        if CUBLAS not in times:
            continue
        known = found.setdefault(problem, times)
        shift = math.exp(middle([math.log(known[name] / times[name]) for name in times if name in known]))
        for name, us in times.items():
            known[name] = math.sqrt(known[name] * us * shift) if name in known else us * shift
    made = [_group(problem, gpu, times, times.pop(CUBLAS), generation) for problem, times in found.items()]
    return [group for group in made if sum(group.considered) > 1]


def swept(paths: Sequence[Path] = tuple(SWEEPS)) -> list[Group]:
    """The products of sweeps, each on its GPU."""
    return [
        group
        for path in paths
        for sweep in (evidence.read(path),)
        for group in groups(sweep["rows"], CARDS[sweep["gpu"]], SWEEPS.get(path, NEWEST))
    ]


def changed(config: Any) -> int:
    """The generation in which the code of a configuration last changed."""
    if not isinstance(config, FreeTileConfig):
        return 0
    return 2 if config.multicast or (config.reduced_index and config.consumers == 1) else int(config.reduced_index)


def noise(points: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The regret of a choice that is as good as a timing: the best by the short slices, judged by the long ones."""
    found, away = [], []
    for point in points:
        first, second = point["us"], point["final_us"]
        both = [name for name in second if name in first and name not in (CUBLAS, LIBRARY)]
        if len(both) > 1:
            found.append(second[min(both, key=first.__getitem__)] / min(second[name] for name in both) - 1)
            shifts = [math.log(second[name] / first[name]) for name in both]
            away += [shift - middle(shifts) for shift in shifts]
    return {
        "products": len(found), "regret_mean": round(float(np.mean(found)), 4),
        "regret_p99": round(float(np.quantile(found, 0.99)), 4), "regret_most": round(max(found), 4),
        "spread": round(float(np.std(away)), 4),
    }  # fmt: skip


def as_timed(points: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The regret of the library's own choice in a sweep; empty if it was not timed."""
    runs = [{name: us for name, us in point["final_us"].items() if name != CUBLAS} for point in points]
    found = [run[LIBRARY] / min(run.values()) - 1 for run in runs if len(run) > 1 and LIBRARY in run]
    return {
        "products": len(found), "regret_mean": round(float(np.mean(found)), 4),
        "regret_p99": round(float(np.quantile(found, 0.99)), 4), "regret_most": round(max(found), 4),
    } if found else {}  # fmt: skip


def _group(problem: GemmWork, gpu: Gpu, times: Mapping[str, float], cublas: float, generation: int) -> Group:
    asked = problem.posed
    names, estimates, rows, thought_of = [], [], [], []
    for name in times:
        try:
            config = any_config(name)
            if config.constant_weights or changed(config) > generation:
                continue
            time, y = numbers(config, asked, gpu, estimate(config, asked, gpu).time_us)
        except ArgumentError:  # of a form that is gone
            continue
        names.append(name)
        estimates.append(time)
        rows.append(y)
        thought_of.append(considered(config, asked, gpu))
    us = np.array([times[name] for name in names])
    return Group(problem, gpu, names, np.array(estimates), np.array(rows), us, np.array(thought_of), cublas)


def fitted(chosen: Sequence[Group]) -> Trees:
    """Fit the trees."""
    features = np.concatenate([group.features for group in chosen])
    which = np.repeat(np.arange(len(chosen)), [len(group.names) for group in chosen])
    targets = np.concatenate([np.log(group.times / group.estimates) for group in chosen])
    weights = []
    for group in chosen:
        near = (group.times / group.times.min()) ** (-1 / NEAR)
        weights.append(near / near.sum() * len(near) ** 0.5)
    return gradient_boosting.averaged(features, which, targets, np.concatenate(weights), gradient_boosting.TREES)


def order_of(group: Group, trees: Trees | None) -> np.ndarray:
    """Ranks of the configurations, fastest expected first, those not considered last; without trees, by their
    estimates."""
    correction = 0.0 if trees is None else np.clip(trees.values(group.features), -MOST, MOST)
    return np.argsort(np.where(group.considered, np.log(group.estimates) + correction, np.inf))


def regret(group: Group, order: np.ndarray, first: int = 1) -> float:
    """Regret of the best among the first entries of an order."""
    return float(group.times[order[:first]].min() / group.times.min() - 1)


def judged(chosen: Sequence[Group], orders: Sequence[np.ndarray]) -> dict[str, Any]:
    """Summary of the regrets of orders, one per product."""
    one, two = ([regret(g, order, first) for g, order in zip(chosen, orders, strict=True)] for first in (1, 2))
    ratios = [group.cublas / group.times[order[0]] for group, order in zip(chosen, orders, strict=True)]
    return {
        "products": len(chosen), "regret_mean": round(float(np.mean(one)), 4),
        "regret_p99": round(float(np.quantile(one, 0.99)), 4), "regret_most": round(max(one), 4),
        "best_of_two_mean": round(float(np.mean(two)), 4),
        "best_of_two_p99": round(float(np.quantile(two, 0.99)), 4),
        "of_cublas_geomean": round(float(np.exp(np.mean(np.log(ratios)))), 4),
        "of_cublas_least": round(float(min(ratios)), 4),
    }  # fmt: skip


def of_layouts(
    found: Sequence[Group], orders: Sequence[np.ndarray], layouts: Sequence[str], dtypes: Sequence[str] = DTYPES
) -> tuple[list[Group], list[np.ndarray]]:
    """The products of these layouts and types, and their orders."""
    chosen = [at for at, group in enumerate(found) if group.problem.layout in layouts and group.problem.dtype in dtypes]
    return [found[at] for at in chosen], [orders[at] for at in chosen]


def below_memory(found: Sequence[Group]) -> dict[str, float]:
    """Configurations whose families' estimates are below the memory's time, and how much longer they take."""
    above = [2 ** group.features[:, FEATURES.index("memory bound")] for group in found]
    families = [g.estimates / np.array([at_least(1.0, x) for x in each]) for g, each in zip(found, above, strict=True)]
    longer = [(g.times / us)[each > 1] for g, us, each in zip(found, families, above, strict=True)]
    return {
        "products": sum(bool(len(each)) for each in longer), "configurations": sum(map(len, longer)),
        "of_estimate_median": round(float(np.median(np.concatenate(longer))), 4),
    }  # fmt: skip


def folds(found: Sequence[Group], deal: int = 0, count: int = FOLDS) -> list[int]:
    """The fold of each product, dealt by layer, so that no layer is in two folds."""
    layers = sorted({(group.problem.n, group.problem.k) for group in found})
    random.Random(deal).shuffle(layers)
    where = {layer: index % count for index, layer in enumerate(layers)}
    return [where[group.problem.n, group.problem.k] for group in found]


def left_out(
    found: Sequence[Group], deal: int = 0, every: Callable[..., Iterable[Trees]] = map
) -> list[np.ndarray]:  # fmt: skip
    """For each product, the order by a fit without its layer. every: `map`, or that of a pool of processes."""
    dealt = folds(found, deal)
    others = [[group for group, at in zip(found, dealt, strict=True) if at != fold] for fold in sorted(set(dealt))]
    own = dict(zip(sorted(set(dealt)), every(fitted, others), strict=True))
    return [order_of(group, own[fold]) for group, fold in zip(found, dealt, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--workers", type=int, default=1, help="processes that fit the folds")
    options = parser.parse_args()
    paths = options.sweeps or list(SWEEPS)
    sweeps = [evidence.read(path) for path in paths]
    points = [sweep["rows"] for sweep in sweeps]
    found = swept(paths)
    trees = fitted(found)
    if options.weights is not None:
        kept = trees.kept(FEATURES)
        lines = ",\n".join("  " + json.dumps(each, separators=(",", ":")) for each in kept["trees"])
        limits = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in kept["limits"].items())
        names = json.dumps(sorted({sweep["gpu"] for sweep in sweeps}))
        head = f'{{"gpus": {names}, "limits": {{\n{limits}\n}}, "trees": [\n'
        options.weights.write_text(f"{head}{lines}\n]}}\n")
    with ProcessPoolExecutor(options.workers) as pool:
        orders = [order for deal in range(DEALS) for order in left_out(found, deal, pool.map)]
    gradients = [group for group in found if group.problem.layout in GRADIENTS]
    unseen = {f"{path.parent.name}/{path.stem}": as_timed(rows) for path, rows in zip(paths, points, strict=True)}
    summary = {
        "deals": DEALS, "noise": noise([row for rows in points for row in rows]),
        "noise_gradients": noise([row for rows in points for row in rows if row.get("layout") in GRADIENTS]),
        "estimates_alone": judged(found, [order_of(group, None) for group in found]),
        "in_sample": judged(found, [order_of(group, trees) for group in found]),
        "left_out": judged(*of_layouts(found * DEALS, orders, FORWARD)),
        "left_out_bf16": judged(*of_layouts(found * DEALS, orders, FORWARD, ("bf16",))),
        "left_out_gradients": judged(*of_layouts(found * DEALS, orders, GRADIENTS)),
        "left_out_gradients_by_own_fit": judged(
            gradients * DEALS, [order for deal in range(DEALS) for order in left_out(gradients, deal)]
        ),
        "estimates_below_memory": below_memory(found),
        "as_timed": {name: regrets for name, regrets in unseen.items() if regrets},
    }  # fmt: skip
    rows = []
    for card, layouts, (least, most) in product(CARDS.values(), (FORWARD, GRADIENTS), ROWS):
        pairs = zip(found * DEALS, orders, strict=True)
        chosen = [(g, order) for g, order in pairs
                  if g.gpu == card and g.problem.layout in layouts and least <= g.problem.m <= most]  # fmt: skip
        if chosen:
            row = {"gpu": card.name, "layouts": " ".join(layouts), "rows": f"{least}-{most}"}
            rows.append({**row, **judged(*zip(*chosen, strict=True))})  # type: ignore[arg-type]
    print(json.dumps({**summary, "left_out_by_rows": rows}, indent=1))
    if options.out is not None:
        evidence.write(options.out, {**evidence.header("choice-model"), **summary}, rows)


if __name__ == "__main__":
    main()
