"""The suite `sample`: drawn products, their figures, and runs that are interrupted and resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests import command_line
from warploom.errors import ArgumentError
from warploom.lab import contenders, gpu_stage, plans, sample
from warploom.lab.contender import Contender, Prepared
from warploom.lab.work import GemmWork

SLOW_ABOVE = 100
"""Rows above which the mock contender loses."""


class Pretending(Contender):
    """A contender whose calls take a time by rows."""

    def __init__(self, name: str) -> None:
        self.name = name

    def missing(self, problem: GemmWork | None = None) -> str | None:
        return None

    def prepare(self, problem: GemmWork, sets: Sequence[Any], beat: Any) -> Prepared:
        ours = self.name == "warploom"
        factor = 1.0 if not ours else 1.25 if problem.m > SLOW_ABOVE else 0.8
        call: Any = lambda: None  # noqa: E731
        call = _Call(factor * 1e-5)
        return Prepared([call], f"kernel of {self.name}", "tile" if ours else "", {"relative_error": 0.0})


class _Call:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> None:
        pass


class Stage(AbstractContextManager[None]):
    """A mock GPU: a call takes as long as it says. After `breaks` problems it is interrupted."""

    name, uuid = "Pretended GPU", ""
    breaks = 10**9

    def __init__(self) -> None:
        self.timer, self.count = self, 0

    def __exit__(self, *error: object) -> None: ...

    def timed(self, call: Any, launches: int) -> float:
        return float(call.seconds)

    def now(self) -> float:
        return 0.0

    def operands(self, problem: GemmWork, data: str) -> list[Any]:
        self.count += 1
        if self.count > Stage.breaks:
            raise KeyboardInterrupt
        return []

    def check(self, problem: GemmWork, sets: Any, prepared: Prepared) -> tuple[float, bool]:
        return 0.0, True

    def ready(self, calls: Sequence[Any], launch: str, count: int) -> tuple[Callable[[], object], int]:
        return calls[0], 1

    def device_kernels(self, prepared: Prepared) -> list[str]:
        return [f"{prepared.kernel}, on the device"]

    def release(self) -> None:
        pass


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_stage, "GpuStage", Stage)
    monkeypatch.setattr(Stage, "breaks", 10**9)
    monkeypatch.setattr(plans, "Warploom", lambda config: Pretending("warploom"))
    monkeypatch.setattr(contenders, "find", Pretending)


def run(*arguments: object) -> Any:
    return command_line.run("bench", "--suite", "sample", "--seconds", "0.01", *map(str, arguments))


@pytest.mark.full
def test_the_suite_prints_mean_least_losses_and_the_ten_worst_with_both_kernels(pretended: None, tmp_path: Path):
    out = tmp_path / "sample-bf16.json"
    result = run("--seed", 3, "--count", 40, "--out", out)
    assert result.exit_code == 0, result.output
    written = json.loads(out.read_text())
    rows = [row for row in written["rows"] if row["provider"] == "warploom"]
    problems = sample.suite(3, 40).problems
    assert [(row["m"], row["n"], row["k"]) for row in rows] == [(p.m, p.n, p.k) for p in problems]
    slow = sum(p.m > SLOW_ABOVE for p in problems)
    (found,) = written["sample"]
    assert found["against"] == "cublas" and found["count"] == 40
    assert found["geomean"] == pytest.approx(math.exp((slow * math.log(0.8) + (40 - slow) * math.log(1.25)) / 40), 1e-3)
    assert (found["least"], found["losses"]) == (0.8, round(slow / 40, 4))
    assert sum(band["count"] for band in found["by_rows"].values()) == 40
    assert found["by_rows"]["1-32"]["least"] == 1.25 and found["by_rows"]["129-512"]["geomean"] == 0.8
    assert len(found["worst"]) == 10
    assert found["worst"][0]["ours"] == "kernel of warploom tile"
    assert found["worst"][0]["theirs"] == "kernel of cublas, on the device"
    assert "40 products: geometric mean" in result.stdout and "kernel of cublas, on the device" in result.stdout


def test_an_interrupted_run_keeps_what_was_measured_and_goes_on(pretended: None, tmp_path: Path):
    out = tmp_path / "sample.json"
    Stage.breaks = 5
    stopped = run("--count", 12, "--out", out)
    assert stopped.exit_code == 130 and str(out) in stopped.stderr
    kept = json.loads(out.read_text())["rows"]
    assert len(kept) == 2 * 5
    Stage.breaks = 7  # as many as are missing: one more would be an interruption
    assert run("--count", 12, "--out", out).exit_code == 0
    whole = json.loads(out.read_text())
    assert len(whole["rows"]) == 2 * 12 and len(whole["runs"]) == 2
    assert whole["sample"][0]["count"] == 12
    assert run("--count", 12, "--out", out).exit_code == 0, "everything is there: nothing is measured, all is told"


@pytest.mark.full
def test_other_seeds_are_added_to_the_same_file(pretended: None, tmp_path: Path):
    out = tmp_path / "sample.json"
    for seed in (1, 2):
        assert run("--seed", seed, "--count", 6, "--out", out).exit_code == 0
    assert {row["seed"] for row in json.loads(out.read_text())["rows"]} == {1, 2}


@pytest.mark.parametrize(
    "options",
    [{"count": 0}, {"dtype": "f64"}, {"dtype": "bf16", "scales": "row"}, {"dtype": "e4m3", "scales": "column"},
     {"layouts": ("sideways",)}, {"dtype": "e4m3", "layouts": ("input-gradient",)}],
)  # fmt: skip
def test_a_sample_that_cannot_be_drawn_is_refused(options: dict[str, Any]):
    with pytest.raises(ArgumentError):
        sample.suite(**options)


def test_eight_bit_samples_have_scales_and_an_opponent_that_takes_them():
    for scales, other in (("tensor", "scaled-mm"), ("row", "scaled-mm-row")):
        suite = sample.suite(0, 5, "e4m3", scales)
        assert suite.file == "sample-fp8" and suite.against == (other,)
        assert {problem.scales for problem in suite.problems} == {scales}
        assert contenders.find(other).missing(suite.problems[0]) in (None, "torch is not installed")


def test_gradients_are_drawn_in_their_layouts():
    suite = sample.suite(0, 40, layouts=("input-gradient", "weight-gradient"))
    assert {problem.layout for problem in suite.problems} == {"tt", "nt"}


def test_weight_gradients_of_more_rows_than_any_batch_are_counted_among_the_largest():
    rows = [{"m": m, "n": 8, "k": 8, "dtype": "bf16", "layout": "nt", "protocol": "interleaved", "kernel": "large",
             "config": "", "provider": "warploom", "ratio_to": {"cublas": ratio}}
            for m, ratio in ((32, 1.0), (33, 1.0), (512, 1.0), (513, 2.0), (151936, 0.5))]  # fmt: skip
    (found,) = sample.summary(rows)
    assert {name: band["count"] for name, band in found["by_rows"].items()} == {
        "1-32": 1, "33-128": 1, "129-512": 1, "above 512": 2,
    }  # fmt: skip
    assert (found["by_rows"]["above 512"]["geomean"], found["by_rows"]["above 512"]["least"]) == (1.0, 0.5)
