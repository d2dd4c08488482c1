"""The split Llama: one process without a GPU runs the same models and phases; two are in tests/integrations."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.full


@pytest.fixture
def example(monkeypatch):
    """The example, imported from its file, where there is no GPU."""
    path = Path(__file__).resolve().parents[2] / "examples" / "tensor_parallel_llama.py"
    spec = importlib.util.spec_from_file_location("tensor_parallel_llama", path)
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tensor_parallel_llama", loaded)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec.loader.exec_module(loaded)
    return loaded


def test_both_models_agree_in_every_phase(example, tmp_path):
    out = tmp_path / "llama.json"
    example.main(["--own", "--decode", "2", "--out", str(out)])
    found = json.loads(out.read_text())
    assert [(row["phase"], row["tokens"]) for row in found["rows"]] == [("prefill", 8), ("decode 2", 2)]
    for row in found["rows"]:
        errors = row["error_against_f32"]
        assert 0 < errors["warploom"] <= example.WORSE * errors["plain"] < 0.01
        assert set(row["tokens_per_second"]) == {"plain", "warploom"}


def test_a_model_that_is_farther_from_f32_than_the_plain_one_is_an_error(example):
    plain, other = (example.Layers(example.SMALL, 1).bfloat16() for _ in range(2))
    size, call = (2, 1, example.SMALL["hidden_size"]), lambda model, x: model(x)
    (right,) = example.in_float(plain, call, [("decode", size)])
    with pytest.raises(AssertionError):
        example.phase("decode", size, {"plain": plain, "warploom": other}, call, right, 1)
    example.phase("decode", size, {"plain": plain, "warploom": plain}, call, right, 1)
