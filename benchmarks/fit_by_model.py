"""Judge the fit of the choice on models that were left out of it.

    python -m benchmarks.fit_by_model [--out benchmarks/results/choice-models.json] [--workers 1]

`fit_choice` leaves out layers, so a fit has seen other layers of the same models. Here the models of the catalogue are
dealt into folds. A fold's trees are fitted to the products whose layer no model of the fold has, and judged on the
others; a layer that several models share is left out with each of them. Products of no model in the catalogue are only
fitted to. There is a row for each model.

With NumPy alone, the four fits take about a quarter of an hour of one core.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fit_choice import FOLDS, FORWARD, GRADIENTS, RESULTS, Group, fitted, judged, of_layouts, order_of, swept
from warploom.lab import catalogue, evidence
from warploom.operators.families.trees import Trees
from warploom.operators.spec.problem import Problem

MODEL = RESULTS / "choice-models.json"


def layer_of(problem: Problem) -> tuple[int, int]:
    """(N, K) of the layer whose product, or gradient, this is."""
    return {
        "tn": (problem.n, problem.k), "tt": (problem.k, problem.n), "nt": (problem.m, problem.n)
    }[problem.layout]  # fmt: skip


def models_of(found: Sequence[Group], models: Sequence[catalogue.Model]) -> list[set[str]]:
    """For each product, the models that have its layer."""
    layers = {model.name: {(layer.n, layer.k) for layer in model.layers()} for model in models}
    each = [layer_of(group.problem.posed) for group in found]
    return [{name for name, known in layers.items() if layer in known} for layer in each]


def folds(names: Iterable[str], deal: int = 0, count: int = FOLDS) -> list[set[str]]:
    """The models of each fold."""
    order = sorted(names)
    random.Random(deal).shuffle(order)
    return [set(order[at::count]) for at in range(count)]


def left_out(
    found: Sequence[Group], owners: Sequence[set[str]], dealt: Sequence[set[str]],
    every: Callable[..., Iterable[Trees]] = map,
) -> tuple[list[Group], list[np.ndarray], list[set[str]]]:  # fmt: skip
    """The products of each fold's models, their orders by a fit without these models, and the models of the fold that
    have them. every: `map`, or that of a pool of processes."""
    others = [[group for group, names in zip(found, owners, strict=True) if not names & fold] for fold in dealt]
    held: list[tuple[Group, np.ndarray, set[str]]] = []
    for fold, trees in zip(dealt, every(fitted, others), strict=True):
        own = [(group, names & fold) for group, names in zip(found, owners, strict=True) if names & fold]
        held += [(group, order_of(group, trees), names) for group, names in own]
    return [one[0] for one in held], [one[1] for one in held], [one[2] for one in held]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=1, help="processes that fit the folds")
    options = parser.parse_args()
    found, models = swept(), catalogue.load()
    owners = models_of(found, models)
    dealt = folds(model.name for model in models)
    with ProcessPoolExecutor(options.workers) as pool:
        chosen, orders, names = left_out(found, owners, dealt, pool.map)
    summary: dict[str, Any] = {
        "folds": [sorted(fold) for fold in dealt],
        "products": len(found), "of_models": sum(map(bool, owners)),
        "left_out": judged(*of_layouts(chosen, orders, FORWARD)),
        "left_out_bf16": judged(*of_layouts(chosen, orders, FORWARD, ("bf16",))),
        "left_out_gradients": judged(*of_layouts(chosen, orders, GRADIENTS)),
    }  # fmt: skip
    rows = []
    for name in sorted(set().union(*names)):
        own = [at for at, each in enumerate(names) if name in each]
        rows.append({"model": name, **judged([chosen[at] for at in own], [orders[at] for at in own])})
    print(json.dumps({**summary, "left_out_by_model": rows}, indent=1))
    if options.out is not None:
        evidence.write(options.out, {**evidence.header("choice-models"), **summary}, rows)


if __name__ == "__main__":
    main()
