"""Benchmarks on a GPU: contenders match the exact result, protocols give rows, and the kernel's clock is plausible."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warploom.lab import bench, contenders, plans
from warploom.lab.work import GemmWork

pytestmark = pytest.mark.gpu
TEXTS = Path(__file__).resolve().parents[1] / "foreign" / "reference"


@pytest.fixture(scope="module")
def stage() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    from warploom.lab.gpu_stage import GpuStage

    with GpuStage() as made:
        yield made
    assert torch.is_grad_enabled()


def run(stage: Any, suite: str, shapes: str, against: str, protocols: str = "interleaved", **like: Any) -> Any:
    from warploom.runtime.benchmark.power import PowerMeter
    from warploom.runtime.benchmark.watchdog import Watchdog

    plan = plans.plan(suite, protocols, against, shapes=shapes, seconds=0.1)
    plan = replace(plan, problems=tuple(replace(problem, **like) for problem in plan.problems))
    one = bench.Bench(plan, stage, PowerMeter(), Watchdog(lambda who: None), say=print)
    return one.run()


@pytest.mark.parametrize("launch", ["graph", "stream"])
def test_products_are_timed_and_everybody_who_is_installed_is_right(stage: Any, launch: str) -> None:
    others = [name for name in ("cublas", "cublaslt-best", "triton") if contenders.find(name).missing() is None]
    results = run(stage, "square", "1024x512x768", ",".join(others), "alone,interleaved,burst")
    assert results.failed == []
    assert {row["provider"] for row in results.rows} == {"warploom", *others}
    assert all(row["tflops"]["median"] > 1 for row in results.rows)
    mine = next(row for row in results.rows if row["provider"] == "warploom" and row["protocol"] == "alone")
    assert 200 < mine["kernel_clock_mhz"] < 3000
    assert 0 < mine["tensor_activity"] < 1
    assert "ptx_sha256" in mine and "build" in mine


@pytest.mark.parametrize(
    "scales, against",
    [("tensor", "scaled-mm,scaled-mm-row,cublaslt-best,triton"), ("row", "scaled-mm-row"),
     ("block128", "scaled-mm-block")],
)  # fmt: skip
def test_fp8_contenders_are_right(stage: Any, scales: str, against: str) -> None:
    results = run(stage, "fp8", "512x1024x2048", against, dtype="e4m3", scales=scales)
    failed = [each for each in results.failed if each["provider"] != "warploom"]
    assert failed == []
    absent = {each["provider"] for each in results.missing}
    assert {row["provider"] for row in results.rows} >= set(against.split(",")) - absent


@pytest.mark.parametrize("kind, rows", [("gelu", ()), ("swiglu", ()), ("grouped", (64, 0, 448))])
def test_fused_and_grouped_contenders_are_right(stage: Any, kind: str, rows: tuple[int, ...]) -> None:
    suite, against = ("grouped", "loop,torch-grouped") if rows else ("fused", "torch-eager")
    results = run(stage, suite, "512x1024x512", against, kind=kind, rows=rows, dtype="bf16", scales="")
    assert [each for each in results.failed if each["provider"] != "warploom"] == []
    assert {row["provider"] for row in results.rows} >= set(against.split(","))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_triton_is_right(stage: Any, causal: bool) -> None:
    results = run(stage, "attention", "1x4x512x128x2,2x2x384x64", "triton-attention", "alone", causal=causal)
    assert results.failed == []
    absent = {each["provider"] for each in results.missing}
    assert {row["provider"] for row in results.rows} == {"warploom", "triton-attention"} - absent


@pytest.mark.parametrize("text", sorted(path.stem for path in TEXTS.glob("*.ptx")))
def test_the_reference_texts_and_ours_of_the_same_idea_are_right(stage: Any, text: str) -> None:
    from benchmarks import reference_texts

    ((plan, duel),) = zip(
        reference_texts.plans(text, 0.1, pretend=True),
        (duel for duel in reference_texts.DUELS if duel.text == text),
        strict=True,
    )
    problem = duel.small
    if "decode" not in text:
        problem = replace(problem, m=3 * problem.m + 8, n=2 * problem.n, k=7 * problem.k)
    sets = stage.operands(problem, "normal")[:2]
    for contender in plan.contenders:
        error, right = stage.check(problem, sets, contender.prepare(problem, sets, lambda who, seconds: None))
        assert right, f"{contender.name}: relative error {error}"
    stage.release()


def test_chains_are_timed_by_stream_graph_dependent_launch_and_both(stage: Any) -> None:
    results = run(stage, "launch", "512x512x512", "cublas")
    assert results.failed == []
    assert {row["launch"] for row in results.rows if row["provider"] == "warploom"} == {
        "stream", "graph", "pdl", "pdl+graph"
    }  # fmt: skip


def test_the_host_cost_of_a_call_is_read(stage: Any) -> None:
    results = run(stage, "overhead", "256x256x256", "cublas")
    assert all(0.5 < row["us"]["median"] < 1000 for row in results.rows) and len(results.rows) == 2


@pytest.mark.parametrize("rung", [4, 8, 20])
def test_a_rung_is_measured_in_a_process_of_its_own(stage: Any, rung: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "warploom.lab.rung_on_gpu", str(rung), "1024", "0.1", "normal"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    assert [(row["provider"], row["protocol"]) for row in rows] == [
        ("warploom", "alone"), ("cublas", "alone"), ("warploom", "interleaved"), ("cublas", "interleaved"),
    ]  # fmt: skip
    assert rows[0]["relative_error"] < 3e-3 and rows[0]["registers"] > 0


def test_a_problem_of_one_row_is_no_special_case(stage: Any) -> None:
    results = run(stage, "decode", "1x1024x2048", "cublas")
    assert [each for each in results.failed if each["provider"] == "cublas"] == []
    assert GemmWork(1, 1024, 2048).shape in {f"{row['m']}x{row['n']}x{row['k']}" for row in results.rows}
