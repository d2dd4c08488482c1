"""Attention under functions next to FlexAttention: rows of its forward pass and of its gradients, on the CPU."""

from __future__ import annotations

import argparse
import math
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import attention_functions, attention_peers, tables_attention  # noqa: E402
from benchmarks.attention_session import Session  # noqa: E402
from benchmarks.language_model import build  # noqa: E402
from tests.errors import refused  # noqa: E402
from tests.lab.test_attention_programs import Gpu  # noqa: E402
from warploom.lab.attention_problem import ForwardProblem  # noqa: E402
from warploom.runtime.benchmark.power import PowerMeter  # noqa: E402
from warploom.runtime.benchmark.watchdog import Watchdog  # noqa: E402


def formula(q: Any, k: Any, v: Any, score_mod: Any, mask: Any) -> Any:
    """FlexAttention, which has no gradients on a CPU."""
    batch, head, query, key = (
        torch.arange(n).reshape([-1 if at == axis else 1 for at in range(4)])
        for axis, n in enumerate((*q.shape[:3], k.shape[2]))
    )
    score = (q @ k.mT).float() / math.sqrt(q.shape[-1])
    score = score if score_mod is None else score_mod(score, batch, head, query, key)
    seen = mask.mask_mod(batch, head, query, key)
    return (torch.softmax(score.masked_fill(~seen, -math.inf), -1) @ v.float()).to(q.dtype)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("data", ["bias", "documents", "masked", "slopes"])
def test_each_pass_has_a_row_of_each_contender(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch) if not name.startswith("_")})
    fake.compile = lambda function, **options: formula
    monkeypatch.setattr(attention_functions, "torch", fake)
    monkeypatch.setattr(attention_peers, "MEAN_LENGTH", 40)
    session = Session(
        argparse.Namespace(seconds=0.1, candidates=data == "bias"), Gpu(), PowerMeter(), Watchdog(lambda who: None)
    )  # type: ignore[arg-type]
    case = ForwardProblem(64, 100, True, batch=2, heads=1, data=data)
    with torch.no_grad():
        rows = list(attention_functions.measure(case, session, "cpu"))
    both = [
        [row for row in rows if row["case"].endswith("gradients") is of_gradients] for of_gradients in (False, True)
    ]
    for of_pass in both:
        assert [row["provider"] for row in of_pass[:3]] == ["warploom", "warploom causal", "flex"]
        assert (len(of_pass) > 4) is session.asked.candidates
    forward, backward = (of_pass[0] for of_pass in both)
    assert backward["tflops"]["median"] == pytest.approx(2.5 * forward["tflops"]["median"], abs=0.2)
    assert max(row["relative_error"] for row in rows) < 6e-3
    assert len(tables_attention.functions({"rows": rows})) == 4
    assert len(attention_functions.told(rows).splitlines()) == 2


def test_words_that_are_in_no_case_are_refused():
    with pytest.raises(SystemExit) as found:
        attention_functions.main(["--only", "nothing"])
    assert "nothing" in str(found.value.code)


def test_a_model_that_is_not_in_the_catalogue_is_refused():
    with refused("argument", got="nothing"):
        build("nothing", 1, "cpu")
