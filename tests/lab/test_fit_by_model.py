"""The choice is judged on models that its fit has not seen."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import fit_by_model as by_model
from tests.lab.test_fit_choice import sample
from warploom.lab import catalogue
from warploom.lab.work import GemmWork
from warploom.operators.families import correction
from warploom.operators.spec.problem import Problem


def test_a_gradient_belongs_to_the_layer_that_it_is_of():
    layer = {"tn": (7, 4096, 1024), "tt": (7, 1024, 4096), "nt": (4096, 1024, 7)}
    assert {by_model.layer_of(Problem.of(*sizes, layout=way)) for way, sizes in layer.items()} == {(4096, 1024)}


def test_every_model_is_in_one_fold():
    names = [model.name for model in catalogue.load()]
    dealt = by_model.folds(names)
    assert sorted(name for fold in dealt for name in fold) == sorted(names)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1 and by_model.folds(names, 1) != dealt


def test_no_fit_sees_a_layer_of_a_model_that_it_is_judged_on(monkeypatch):
    one, two, other = sample(30)[:3]
    shared = replace(two, problem=GemmWork(3, 512, 256))
    found, owners = [one, two, other, shared], [{"a"}, {"b"}, set(), {"a", "b"}]
    seen: list[list[Any]] = []

    def fitted(groups: list[Any]) -> Any:
        seen.append([id(group) for group in groups])
        return correction.forest()

    monkeypatch.setattr(by_model, "fitted", fitted)
    chosen, orders, names = by_model.left_out(found, owners, [{"a"}, {"b"}])
    assert seen == [[id(two), id(other)], [id(one), id(other)]]
    assert [id(group) for group in chosen] == [id(one), id(shared), id(two), id(shared)]
    assert names == [{"a"}, {"a"}, {"b"}, {"b"}] and all(np.isfinite(order).all() for order in orders)


def test_the_evidence_has_every_kind_of_model_and_meets_the_goal_on_the_mean():
    shown = json.loads(by_model.MODEL.read_text())
    kinds = {model.name: model.facts["kind"] for model in catalogue.load()}
    assert {kinds[row["model"]] for row in shown["rows"]} == set(catalogue.KINDS)
    assert shown["of_models"] > 2000 and shown["left_out"]["regret_mean"] <= 0.02
