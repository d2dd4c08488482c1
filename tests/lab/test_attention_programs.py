"""The programs that time attention, on CPU tensors with a mock clock: rows and summaries."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import (  # noqa: E402
    attention,
    attention_backward,
    attention_decode,
    attention_fields,
    attention_gradients,
    attention_session,
)
from benchmarks.attention_session import Session, fits  # noqa: E402
from warploom.kernels.hopper.attention_decode_config import DECODE_RESERVE_BYTES, Decode, DecodeConfig, clustered  # noqa: E402
from warploom.kernels.hopper.description import SHARED_BYTES  # noqa: E402
from warploom.lab import attention_operands  # noqa: E402
from warploom.lab.attention_contenders import decode_subject  # noqa: E402
from warploom.lab.attention_problem import DecodeProblem, ForwardProblem  # noqa: E402
from warploom.runtime.benchmark.power import PowerMeter  # noqa: E402
from warploom.runtime.benchmark.watchdog import Watchdog  # noqa: E402

FORWARD = ForwardProblem(64, 70, causal=True, batch=1, heads=2)
DECODE = DecodeProblem(2, 64, heads=4, kv_heads=2, dim=64)


class Gpu:
    """A mock GPU: every launch takes a millisecond, and runs once."""

    def __init__(self) -> None:
        self.timer, self.time, self.launches = self, 0.0, set[str]()

    def ready(self, calls: Sequence[Callable[[], object]], launch: str) -> tuple[Callable[[], object], int]:
        self.launches.add(launch)
        return (lambda: None), 4

    def timed(self, call: Callable[[], object], launches: int) -> float:
        self.time += 1e-3 * launches
        return 1e-3

    def now(self) -> float:
        return self.time


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    make = attention_operands.make
    monkeypatch.setattr(attention_operands, "make", lambda case, sets=1: make(case, sets, "cpu"))
    monkeypatch.setattr(attention_backward, "make", lambda case, sets: make(case, sets, "cpu"))
    fake = types.SimpleNamespace(**{name: getattr(torch, name) for name in ("Tensor", "equal", "randn_like")})
    fake.cuda = types.SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(attention_session, "torch", fake)
    asked = argparse.Namespace(
        seconds=0.1, variants=False, candidates=False, swept="", peers="", protocols="alone,interleaved"
    )
    return Session(asked, Gpu(), PowerMeter(), Watchdog(lambda who: None))  # type: ignore[arg-type]


@pytest.mark.full
def test_forward_rows_name_kernel_ratio_and_errors(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(attention.measure(FORWARD, session))
    assert [(row["provider"], row["protocol"]) for row in rows] == [("warploom", "alone"), ("flash", "alone")]
    ours, theirs = rows
    assert ours["ratio_to"] == {"flash": 1.0} and ours["us"]["median"] == 250.0, "a call is four launches"
    assert ours["kernel"] == "attention" and len(ours["ptx_sha256"]) == 64 and "kernel" not in theirs
    assert max(row["relative_error"] for row in rows) < 4e-3
    assert session.gpu.launches == {"stream"}  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "own-bf16: it does not take bf16" in said and "cudnn: " in said
    assert attention.told(rows).startswith("64 70 causal bf16")


@pytest.mark.slow
def test_every_variant_of_a_configuration_that_builds_is_timed(session: Session) -> None:
    session.asked.variants = True
    names = set(attention.configurations(FORWARD, True))
    assert {"warploom", "warploom exact", "warploom unordered"} <= names
    wide = attention.configurations(replace(FORWARD, head_dim=128, dtype="e4m3"), False)
    assert list(wide) == ["warploom"] and wide["warploom"].promoted_columns == 128


def test_candidates_of_eight_bits_are_the_choice_with_other_fields() -> None:
    for case in attention.SWEPT:
        found = attention.candidates(case)
        chosen = attention.configurations(case, False)["warploom"]
        assert chosen not in found.values() and len(set(found.values())) == len(found) >= 4
        assert {config.promoted_columns > 0 for config in found.values()} == {True, False}
        for config in found.values():
            config.check(attention.subject(case))
            assert config.shared_bytes(attention.subject(case)) <= SHARED_BYTES - 6 * 1024
    assert not attention.candidates(FORWARD)


def decode_times(evidence: str) -> dict[str, dict[DecodeConfig, float]]:
    """Of each case of an evidence file, the microseconds of configurations that need no promise of the caller."""
    file = Path(__file__).parents[2] / "benchmarks" / "results" / evidence
    times: dict[str, dict[DecodeConfig, float]] = {}
    for row in json.loads(file.read_text())["rows"]:
        if "build" in row:
            fields = {name: value for name, value in row["build"]["arguments"][1].items() if name != "class"}
            config = replace(DecodeConfig(**fields), ctas_per_sm=1)
            of_case = times.setdefault(row["case"], {})
            if not config.constant_lengths:
                of_case[config] = min(of_case.get(config, float("inf")), row["us"]["median"])
    return times


def test_shares_are_aligned_where_an_h200_was_faster_with_them_and_prefetched_tiles_are_apart() -> None:
    """Both by 1 %. "chosen" has neither."""
    file = Path(__file__).parents[2] / "benchmarks/results/nvidia-h200/attention-decode-shares.json"
    times: dict[str, dict[str, float]] = {}
    for row in json.loads(file.read_text())["rows"]:
        times.setdefault(row["case"], {})[row["provider"]] = row["us"]["median"]
    cases = {case.name: attention_decode.configurations(case, False)["warploom"] for case in attention_fields.CASES}
    assert set(times) == set(cases)
    for name, us in times.items():
        if "page" in name:
            assert us["aligned, two"] == min(us.values()) and cases[name].ctas_per_sm == 2, name
        else:
            shares = "aligned" if cases[name].head_aligned else "chosen"
            assert us[shares] <= 1.01 * min(us["aligned"], us["chosen"]), name
            assert us["aligned, spread 4"] <= 1.01 * us["aligned"], name


def test_what_is_chosen_for_pages_of_one_key_and_of_eight_bits_is_what_an_h200_timed_as_the_fastest() -> None:
    times = decode_times("nvidia-h200/attention-decode-candidates.json")
    cases = {case.name: attention_decode.configurations(case, False)["warploom"] for case in attention_decode.SWEPT}
    assert len(times) >= 10 and set(times) <= set(cases)
    names = {name for name in times if name.endswith("page 1") or name.endswith("page 16 e4m3")}
    assert len(names) == 2
    for name in names:
        assert times[name][cases[name]] == min(times[name].values()), name


def test_a_cluster_for_each_key_head_is_chosen_only_where_it_was_the_fastest_form() -> None:
    """Of clusters of 2, 4, 8 and equal shares; where equal shares are chosen, they lose at most a fifth."""
    times = decode_times("nvidia-h100/attention-decode-clusters.json")
    found = {}
    for name, of_case in times.items():
        sizes = re.fullmatch(r"(\d+) x (\d+) (\d+)/(\d+) heads of 128", name)
        assert sizes is not None
        batch, keys, heads, kv_heads = map(int, sizes.groups())
        plain = next(config for config in of_case if not config.cluster)
        found[name] = clustered(Decode(), plain, batch * kv_heads, keys, 132).cluster
        by_size = {config.cluster: us for config, us in of_case.items()}
        assert by_size[found[name]] <= min(by_size.values()) * (1.01 if found[name] else 1.2), name
    assert set(found.values()) == {0, 2, 4, 8} and len(found) >= 12


def test_decode_rows_are_of_graphs_and_say_terabytes(session: Session) -> None:
    rows = list(attention_decode.measure(DECODE, session))
    assert [row["provider"] for row in rows] == ["warploom", "flash"]
    assert rows[0]["tb_per_s"] == round(DECODE.bytes / 250e-6 / 1e12, 3)
    assert session.gpu.launches == {"graph"}  # type: ignore[attr-defined]
    assert attention_decode.told(rows).startswith("2 x 64 4/2 heads of 64")
    others = attention_decode.configurations(DECODE, True)
    assert others["warploom no pdl"].pdl is False and others["warploom"].pdl


def test_candidates_of_decoding_are_the_choice_with_other_fields() -> None:
    found = {case: attention_decode.candidates(case) for case in attention_decode.SWEPT}
    for case, configs in found.items():
        for config in configs.values():
            config.check(case.page or None, decode_subject(case))
            assert config.shared_bytes(decode_subject(case)) <= SHARED_BYTES - DECODE_RESERVE_BYTES
    assert all(set(configs) <= set(attention_decode.EXPECTED) for configs in found.values())
    assert {config.producer_warps for config in found[DecodeProblem(16, 8192, page=1)].values()} == {2, 4, 8}
    short, long = found[DecodeProblem(1, 1024)], found[DecodeProblem(16, 8192)]
    assert "clusters of 16" in short and "few" in long and "clusters of 16" not in long


@pytest.mark.full
def test_backward_rows_say_that_gradients_are_the_same_in_every_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_backward, "sdpa_kernel", lambda backends: contextlib.nullcontext())
    rows = list(attention_backward.measure(FORWARD, session))
    assert [row["provider"] for row in rows] == ["warploom", "cudnn"]
    assert rows[0]["same_in_every_run"] and max(row["relative_error"] for row in rows) < 1e-2
    assert rows[0]["tflops"]["median"] == pytest.approx(2.5 * FORWARD.flops / 1e-3 / 1e12, abs=0.05)
    assert "same True" in attention_backward.told(rows)


@pytest.mark.slow
def test_gradients_of_sequences_and_of_a_function_of_scores_are_right_where_they_are_timed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_gpu = attention_operands.make
    monkeypatch.setattr(attention_gradients, "make", lambda case, sets: of_gpu(case, sets))
    rows = list(attention_gradients.measure(FORWARD, session))
    assert [row["provider"] for row in rows] == list(attention_gradients.WAYS)
    assert max(row["relative_error"] for row in rows) < 1e-2
    assert attention_gradients.told(rows).startswith("64 70 causal bf16")


def test_cases_are_found_by_words_of_their_names() -> None:
    case: Any = ForwardProblem(128, 4096, True, "f16")
    assert fits(case, "causal,f16") and fits(case, "") and not fits(case, "causal,bf16")
    assert fits(DecodeProblem(1, 64, page=16), "page 16") and not fits(DECODE, "page 16")
