"""The catalogue of public models: its entries, errors for malformed ones, and draws from it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.errors import refused
from warploom.errors import ArgumentError
from warploom.lab import catalogue
from warploom.lab.work import GemmWork

GOOD: dict[str, Any] = {
    "name": "a", "kind": "dense", "hidden": 256, "intermediate": 512, "heads": 4, "kv_heads": 2, "head_dim": 64,
    "vocab": 1001, "gated": True, "sharding": [1, 2],
}  # fmt: skip


def written(folder: Path, *entries: object) -> Path:
    path = folder / "models.json"
    path.write_text(json.dumps({"models": list(entries)}))
    return path


def test_the_catalogue_has_models_of_every_kind_and_layers_of_all():
    models = catalogue.load()
    assert len(models) >= 20
    assert len({model.name for model in models}) == len(models)
    assert set(catalogue.KINDS) == {model.facts["kind"] for model in models}
    assert all(list(model.layers()) for model in models)


def test_layers_follow_from_the_sizes(tmp_path: Path):
    (model,) = catalogue.load(written(tmp_path, GOOD))
    assert [(layer.name, layer.n, layer.k, layer.shards) for layer in model.layers()] == [
        ("qkv", 512, 256, 1), ("output", 256, 256, 1), ("up", 1024, 256, 1), ("down", 256, 512, 1),
        ("lm_head", 1001, 256, 1),
        ("qkv", 256, 256, 2), ("output", 256, 128, 2), ("up", 512, 256, 2), ("down", 256, 256, 2),
    ]  # fmt: skip


def test_known_layers_of_known_models():
    layers = {(layer.model, layer.name, layer.n, layer.k) for model in catalogue.load() for layer in model.layers()}
    assert ("Llama-3-8B", "up", 28672, 4096) in layers
    assert ("DeepSeek-V3", "kv down", 576, 7168) in layers
    assert ("Qwen3-30B-A3B", "expert down", 2048, 768) in layers
    assert ("GPT-2-XL", "lm_head", 50257, 1600) in layers


@pytest.mark.parametrize(
    "change, field",
    [
        ({"hidden": 0}, "hidden"), ({"heads": "4"}, "heads"), ({"head_dim": True}, "head_dim"),
        ({"vocab": -1}, "vocab"),
        ({"kind": "huge"}, "kind"), ({"gated": "yes"}, "gated"), ({"sharding": []}, "sharding"),
        ({"sharding": [0]}, "sharding"), ({"low_rank": {"kv": 4}}, "low_rank"), ({"hiden": 5}, "hiden"),
        ({"name": ""}, "number 1"), ({"hidden": 10**30}, "hidden"),
        ({"low_rank": {"kv": 4, "rope": 4, "nope": 4, "value": 4, "query": "x"}}, "low_rank"),
        ({"low_rank": None}, "low_rank"),
        ({"low_rank": {"kv": 4, "rope": 4, "nope": 4, "value": 4, "key": 4}}, "low_rank"),
        ({"hidden": 7, "heads": 1, "head_dim": 3, "intermediate": 5}, "no layer"), ({"sharding": [7919]}, "no layer"),
    ],
)  # fmt: skip
def test_a_malformed_entry_is_named_with_its_field(change: dict[str, object], field: str, tmp_path: Path):
    with refused("catalogue") as caught:
        catalogue.load(written(tmp_path, GOOD, {**GOOD, "name": "b", **change}))
    assert field in caught.value.what and ("'b'" in caught.value.what or "number 1" in caught.value.what)


def test_two_models_of_one_name_are_refused(tmp_path: Path):
    with refused("catalogue", got="['a']"):
        catalogue.load(written(tmp_path, GOOD, {**GOOD, "name": GOOD["name"].upper()}))


@pytest.mark.parametrize("entry", [5, None, [], {k: v for k, v in GOOD.items() if k != "intermediate"}])
def test_what_is_no_model_is_refused(entry: object, tmp_path: Path):
    with pytest.raises(ArgumentError):
        catalogue.load(written(tmp_path, entry))


@pytest.mark.parametrize("text", ["", "[]", '{"models": []}', '{"models": 3}', "{", "[" * 99999])
def test_what_is_no_catalogue_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "models.json"
    path.write_text(text)
    with refused("catalogue", got="models.json"):
        catalogue.load(path)


def test_a_draw_is_the_same_for_the_same_seed_and_another_for_another():
    assert catalogue.draw(3, 50) == catalogue.draw(3, 50)
    assert len(set(catalogue.draw(3, 50)) & set(catalogue.draw(4, 50))) < 10


def test_rows_are_spread_over_their_logarithms_and_half_of_them_are_odd():
    drawn = catalogue.draw(0, 400)
    by_power = Counter(problem.m.bit_length() for problem in drawn)
    assert min(problem.m for problem in drawn) == 1 and max(problem.m for problem in drawn) > 8192
    assert all(by_power[power] >= 10 for power in range(1, 15))
    assert sum(problem.m % 8 != 0 for problem in drawn if problem.m > 64) > 60


def test_every_drawn_operand_can_be_addressed_in_every_direction():
    for problem in catalogue.draw(1, 200, layouts=("forward", "input-gradient", "weight-gradient")):
        inner = {"tn": problem.k, "tt": problem.k * problem.n, "nt": problem.m * problem.n}[problem.layout]
        assert inner % 8 == 0
    assert {problem.layout for problem in catalogue.draw(1, 60, layouts=("weight-gradient",))} == {"nt"}
    assert all(p.dtype == "e4m3" for p in catalogue.draw(1, 5, like=GemmWork(1, 1, 1, dtype="e4m3", scales="row")))


@pytest.mark.parametrize(
    "asked",
    [{"count": 0}, {"count": 10**6, "most": 2}, {"least": 9, "most": 8}, {"layouts": ("up",)}, {"layouts": ()}],
)
def test_a_draw_that_cannot_be_made_is_refused(asked: dict[str, Any]):
    few = catalogue.load()[:1]
    with pytest.raises(ArgumentError):
        catalogue.draw(0, asked.pop("count", 5), few, **{"most": 8, **asked})
