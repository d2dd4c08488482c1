"""The benchmark of products that communicate, tried without GPUs: what is left out, and what it says of the rest."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from benchmarks import tensor_parallel, tensor_parallel_machine  # noqa: E402
from benchmarks.tensor_parallel_cases import Contest  # noqa: E402
from warploom.integrations.torch import distributed  # noqa: E402
from warploom.kernels.hopper import ranked_tile  # noqa: E402


class Machine:
    """One rank, of which a call takes as long as it says."""

    torch = torch
    world, fused = 1, True

    class dist:  # noqa: N801
        barrier = staticmethod(lambda: None)

    def synchronize(self) -> None:
        pass

    def most(self, value: float) -> float:
        return value

    def microseconds(self, call, repeats: int) -> float:
        return call() * repeats


@pytest.fixture
def resets(monkeypatch) -> list[str]:
    made: list[str] = []
    monkeypatch.setattr(distributed, "check", lambda: None)
    monkeypatch.setattr(distributed, "reset", lambda: made.append("reset"))
    return made


def refused() -> None:
    raise RuntimeError("no copy engine")


def test_a_form_that_fails_or_is_wrong_is_left_out_and_named(resets):
    right = torch.ones(2, 2)
    calls = {
        "warploom": lambda: right, "warploom copy": refused, "warploom staged": lambda: right * 2,
        "nccl": lambda: right, "mm": lambda: right, "collective": lambda: None,
    }  # fmt: skip
    contest = Contest(calls, right)
    errors, failed = tensor_parallel.surviving(contest, Machine(), 0.01)
    assert errors == {"warploom": 0.0, "nccl": 0.0} and list(contest.calls) == ["warploom", "nccl", "mm", "collective"]
    assert failed == {"warploom copy": "RuntimeError: no copy engine", "warploom staged": "relative error 1.0"}
    assert resets == ["reset", "reset"]


def test_a_wrong_baseline_ends_the_program(resets):
    right = torch.ones(2, 2)
    with pytest.raises(SystemExit):
        tensor_parallel.surviving(Contest({"nccl": lambda: right * 2}, right), Machine(), 0.01)


def test_each_form_is_compared_with_the_faster_baseline_and_the_longer_part():
    us = {"warploom": 8, "warploom copy": 5, "nccl": 10, "torch fused": 9, "mm": 4, "collective": 3}
    row = tensor_parallel.timed({name: lambda time=time: time for name, time in us.items()}, Machine(), 1)
    assert row["us"] == us and row["ratio"] == 9 / 8 and row["ratio_to_nccl"] == 10 / 8
    assert row["forms"]["warploom copy"] == {"ratio": 9 / 5, "of_bound": 4 / 5}


def test_without_the_default_form_the_others_still_count():
    us = {"warploom copy": 5, "nccl": 10, "mm": 4, "collective": 3}
    row = tensor_parallel.timed({name: lambda time=time: time for name, time in us.items()}, Machine(), 1)
    assert row["ratio"] is None and row["forms"]["warploom copy"]["ratio"] == 2


def test_kernels_that_are_built_ahead_are_those_of_the_forms():
    gather = tensor_parallel_machine.kernels(("all-gather", 2048, 8192, 28672), 4, 132)
    assert [options["copied"] for _, options in gather] == [False, True]
    scatter = tensor_parallel_machine.kernels(("reduce-scatter", 2048, 8192, 28672), 4, 132)
    assert {options["config"] for _, options in scatter} == {
        ranked_tile.choose(512, 8192, 4, 132), ranked_tile.choose(512, 8192, 4, 132, staged=True)
    }  # fmt: skip
    assert len(tensor_parallel_machine.kernels(("all-reduce", 16, 8192, 28672), 4, 132)) == 3


@pytest.mark.slow
def test_the_whole_program_runs_on_the_cpu_and_writes_each_row(tmp_path):
    out = tmp_path / "rows.json"
    assert tensor_parallel.main(["--pretend", "--out", str(out), "--only", "all-gather", "--forms", "copy"]) == 0
    evidence = json.loads(out.read_text())
    (row,) = evidence["rows"]
    assert evidence["ranks"] == 2 and row["kind"] == "all-gather" and not row["failed"]
    assert set(row["forms"]) == {"warploom", "warploom copy"} and row["relative_error"]["warploom"] < 0.01
