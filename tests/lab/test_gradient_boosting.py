"""Boosted trees: values match their nodes, steps are found, and factors common to a product are ignored."""

from __future__ import annotations

import numpy as np

from benchmarks import gradient_boosting
from warploom.operators.families.trees import SCALE, Trees

NAMES = ("one", "other")


def drawn(rows: int = 600):
    random = np.random.default_rng(1)
    features, groups = random.uniform(-1, 1, (rows, 2)), np.repeat(np.arange(rows // 10), 10)
    return features, groups, np.where((features[:, 0] > 0.2) & (features[:, 1] > 0), 0.4, 0.0)


def test_a_row_goes_to_the_second_child_where_its_feature_is_above_the_limit():
    limits = np.array([[0.0, np.inf], [-1.0, 1.0]])
    trees = Trees(limits, np.array([[0, 1, 1]]), np.array([[0, 0, 2]]), np.array([[1.0, 2.0, 3.0, 4.0]]))
    rows = np.array([[0.0, -1.0], [0.0, 0.0], [0.1, -9.0], [0.1, 1e9]])
    assert trees.values(rows).tolist() == [1.0, 2.0, 3.0, 3.0]  # all go left where there is no limit


def test_trees_that_see_two_features_find_a_step_in_both(monkeypatch):
    monkeypatch.setattr(gradient_boosting, "SHARE", 1.0)
    features, groups, targets = drawn()
    found = gradient_boosting.grown(features, groups, targets, np.ones(len(targets)), trees=120).values(features)
    away = gradient_boosting.centred(found - targets, groups, np.ones(len(targets)))
    assert np.abs(away).mean() < 0.1 * np.abs(targets - targets.mean()).mean()


def test_what_all_of_a_product_have_in_common_does_not_matter():
    features, groups, targets = drawn()
    common = np.random.default_rng(2).uniform(-3, 3, groups.max() + 1)[groups]
    one, other = (gradient_boosting.grown(features, groups, each, np.ones(len(targets)), trees=5)
                  for each in (targets, targets + common))  # fmt: skip
    assert np.allclose(one.values(features), other.values(features))


def test_kept_trees_give_the_same_to_the_rounding_of_their_leaves():
    features, groups, targets = drawn()
    made = gradient_boosting.grown(features, groups, targets, np.ones(len(targets)), trees=20)
    again = Trees.of(made.kept(NAMES), NAMES)
    assert np.abs(again.values(features) - made.values(features)).max() <= 20 * SCALE / 2 + 1e-12


def test_a_node_without_a_limit_is_kept_where_no_feature_has_that_many():
    limits = np.array([[0.0, np.inf, np.inf], [np.inf, np.inf, np.inf]])
    made = Trees(limits, np.array([[1, 0, 0]]), np.array([[3, 2, 0]]), np.array([[0.1, 0.2, 0.3, 0.4]]))
    assert Trees.of(made.kept(NAMES), NAMES).values(np.array([[5.0, 5.0], [-5.0, 0.0]])).tolist() == [0.1, 0.1]


def test_a_feature_of_one_value_has_no_limits():
    assert np.isinf(gradient_boosting.edges(np.ones((9, 1)))).all()
    assert gradient_boosting.edges(np.array([[1.0], [3.0], [3.0]]), 2).tolist() == [[2.0, np.inf]]


def test_an_average_has_the_mean_value_of_its_sums():
    features, groups, targets = drawn()
    given = features, groups, targets, np.ones(len(targets)), 5
    made, seeds = gradient_boosting.averaged(*given), range(gradient_boosting.FORESTS)
    each = [gradient_boosting.grown(*given, seed=seed).values(features) for seed in seeds]
    assert np.allclose(made.values(features), np.mean(each, 0)) and not np.allclose(each[0], each[1])
