"""Attention on a trained model's queries, keys and values: a tiny one, trained and measured on the CPU."""

from __future__ import annotations

import argparse
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import attention_trained, tables_attention  # noqa: E402
from benchmarks.attention_session import Session  # noqa: E402
from benchmarks.byte_model import Shape, captured, draw, texts, trained  # noqa: E402
from warploom.lab.attention_problem import ForwardProblem  # noqa: E402
from warploom.runtime.benchmark.power import PowerMeter  # noqa: E402
from warploom.runtime.benchmark.watchdog import Watchdog  # noqa: E402

CASE = ForwardProblem(64, 70, causal=True, batch=2, heads=2)
TINY = Shape(64, 2, layers=2, length=70, batch=2)
TEXT = torch.frombuffer(bytearray(b"to be or not to be, that is the question; " * 40), dtype=torch.uint8)


class Timer:
    """A clock on which every call takes a millisecond."""

    time = 0.0

    def timed(self, call: Any, launches: int) -> float:
        self.time += 1e-3 * launches
        return 1e-3

    def now(self) -> float:
        return self.time


def test_a_model_learns_and_its_layers_are_seen_as_they_compute() -> None:
    model, learned = trained(TINY, (TEXT, TEXT), 1.5, "cpu", lambda how: None)
    assert learned.steps > 3 and learned.first_loss == pytest.approx(5.5, abs=0.3)
    assert learned.last_loss < 0.8 * learned.first_loss and learned.held_out_loss < learned.first_loss
    layers = captured(model, TEXT, 3)
    assert len(layers) == TINY.layers
    for layer in layers:
        assert all(each.shape == (3, 2, 70, 64) and each.dtype == torch.bfloat16 for each in layer)
        assert all(each.is_contiguous() and not each.requires_grad for each in layer)
    assert not torch.equal(layers[0][0], layers[1][0])


def test_held_out_text_is_not_trained_on() -> None:
    train, held_out = texts()
    assert len(train) > 8 * len(held_out) > 8 * 10**5
    places = draw(torch.arange(200), TINY, torch.Generator().manual_seed(0))
    assert places.shape == (2, 71) and bool((places.diff() == 1).all())


def test_each_layer_has_a_row_with_errors_scores_and_what_the_model_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_trained, "texts", lambda: (TEXT, TEXT))
    monkeypatch.setattr(attention_trained, "shape", lambda case: TINY)
    ways = attention_trained.ways
    monkeypatch.setattr(attention_trained, "ways", lambda case, one: without_cudnn(ways(case, one), one))
    asked = argparse.Namespace(seconds=0.1, training=1.0)
    gpu: Any = types.SimpleNamespace(timer=Timer())
    session = Session(asked, gpu, PowerMeter(), Watchdog(lambda who: None))
    rows = list(attention_trained.measure(CASE, session, "cpu"))
    assert [(row["case"][-7:], row["provider"]) for row in rows] == [
        ("layer 0", "warploom"), ("layer 0", "cudnn"), ("layer 1", "warploom"), ("layer 1", "cudnn"),
    ]  # fmt: skip
    for row in rows:
        assert 0 < row["relative_error"] < 4e-3 and row["training"]["first_loss"] > row["training"]["last_loss"]
        first = row["weight_of_first_key"]
        assert row["largest_score"] > row["deviation_of_scores"] > 0 and 0 < first["mean"] <= first["largest"] < 1
    assert len(rows[0]["ptx_sha256"]) == 64 and "kernel" in rows[0] and "kernel" not in rows[1]
    assert len(tables_attention.trained({"rows": rows})) == 4
    assert len(attention_trained.told(rows).splitlines()) == 2


def without_cudnn(found: dict[str, Any], one: Any) -> dict[str, Any]:
    """torch's formula in its place."""

    def call() -> None:
        call.result = torch.nn.functional.scaled_dot_product_attention(one.q, one.k, one.v, is_causal=True)  # type: ignore[attr-defined]

    return found | {"cudnn": type(found["cudnn"])([call])}
