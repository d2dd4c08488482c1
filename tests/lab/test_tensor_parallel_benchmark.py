"""The benchmark of communicating products without GPUs: failing contenders are left out, and the rest is reported."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from benchmarks import tensor_parallel, tensor_parallel_machine  # noqa: E402
from benchmarks.tensor_parallel_cases import Contest  # noqa: E402
from benchmarks.tensor_parallel_restarts import STARTS, Notes, supervise  # noqa: E402
from benchmarks.tensor_parallel_rows import SETUP, WrongBaseline, surviving, timed  # noqa: E402
from warploom.integrations.torch import distributed  # noqa: E402
from warploom.kernels.hopper import ranked_tile  # noqa: E402
from warploom.settings import GATHERS  # noqa: E402


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


def untold(name: str, problem: str) -> None:
    pass


def refused() -> None:
    raise RuntimeError("no copy engine")


def test_a_form_that_fails_or_is_wrong_is_left_out_and_named(resets):
    right = torch.ones(2, 2)
    calls = {
        "warploom": lambda: right, "warploom copy": refused, "warploom staged": lambda: right * 2,
        "nccl": lambda: right, "mm": lambda: right, "collective": lambda: None,
    }  # fmt: skip
    contest = Contest(calls, right)
    errors, failed = surviving(contest, Machine(), 0.01, untold)
    assert errors == {"warploom": 0.0, "nccl": 0.0} and list(contest.calls) == ["warploom", "nccl", "mm", "collective"]
    assert failed == {"warploom copy": "RuntimeError: no copy engine", "warploom staged": "relative error 1.0"}
    assert resets == ["reset", "reset"]


def test_a_wrong_baseline_ends_its_row(resets):
    right = torch.ones(2, 2)
    with pytest.raises(WrongBaseline, match="relative error 1.0"):
        surviving(Contest({"nccl": lambda: right * 2}, right), Machine(), 0.01, untold)


def test_a_form_whose_bits_change_is_left_out(resets):
    values = iter(torch.ones(2, 2) + 1e-5 * number for number in range(9))
    contest = Contest({"warploom": lambda: next(values)}, torch.ones(2, 2), bits=2)
    assert surviving(contest, Machine(), 0.01, untold) == ({}, {"warploom": "the bits differ"})


def test_each_form_is_compared_with_the_faster_baseline_and_the_longer_part():
    us = {"warploom": 8, "warploom copy": 5, "nccl": 10, "torch fused": 9, "mm": 4, "collective": 3}
    row = timed({name: lambda time=time: time for name, time in us.items()}, Machine(), untold, 1)
    assert row["us"] == us and row["ratio"] == 9 / 8 and row["ratio_to_nccl"] == 10 / 8
    assert row["forms"]["warploom copy"] == {"ratio": 9 / 5, "of_bound": 4 / 5}


def test_without_the_default_form_the_others_still_count():
    us = {"warploom copy": 5, "nccl": 10, "mm": 4, "collective": 3}
    row = timed({name: lambda time=time: time for name, time in us.items()}, Machine(), untold, 1)
    assert row["ratio"] is None and row["forms"]["warploom copy"]["ratio"] == 2


def test_kernels_that_are_built_ahead_are_those_of_the_forms():
    gather = tensor_parallel_machine.kernels(("all-gather", 2048, 8192, 28672), 4, 132)
    assert [options["by"] for _, options in gather] == list(GATHERS)
    assert [options["config"].epi_stages for _, options in gather] == [2, 1, 2]
    scatter = tensor_parallel_machine.kernels(("reduce-scatter", 2048, 8192, 28672), 4, 132)
    assert [options["config"] for _, options in scatter] == [ranked_tile.choose(512, 8192, 4, 132, staged=True)]
    for sizes in ((16, 8192, 28672), (16, 4096, 14336)):
        made = tensor_parallel_machine.kernels(("all-reduce", *sizes), 4, 132)
        assert [options["form"] for _, options in made] == ["one_shot", "two_shot"]


class Processes:
    """Processes that end as they are told: each row is measured, unless a contender is at fault and not left out."""

    def __init__(self, notes: Notes, left, failed, faults: dict[int, str]) -> None:
        self.notes, self.left, self.failed, self.faults = notes, left, failed, faults

    def join(self, timeout: float, grace_period: float) -> bool:
        for index in self.left:
            name = self.faults.get(index)
            if name is not None and name not in self.failed.get(index, {}):
                self.notes.row = index
                self.notes.tell(name, "")
                raise RuntimeError("process 0 terminated with exit code 9")
            self.notes.keep(index, {"kind": str(index), "failed": self.failed.get(index, {})})
        return True


def supervised(tmp_path, count: int, faults: dict[int, str]) -> tuple[list[dict], int]:
    notes, out, starts = Notes(str(tmp_path)), tmp_path / "out", []

    def start(left, failed):
        starts.append(left)
        return Processes(notes, left, failed, faults)

    try:
        supervise(start, [{"kind": str(index)} for index in range(count)], [notes], str(out), float("inf"))
    finally:
        notes.ends()
    notes.write(str(out))
    return json.loads(out.read_text())["rows"], len(starts)


def test_a_contender_that_ends_the_processes_is_left_out_of_its_row_and_the_second_time_of_all(tmp_path):
    faults = {1: "warploom copy", 2: "warploom copy", 3: "warploom copy"}
    rows, starts = supervised(tmp_path, 4, faults)
    assert [list(row["failed"]) for row in rows] == [[], *3 * [["warploom copy"]]] and starts == 3
    assert "exit code 9" in rows[1]["failed"]["warploom copy"] and "2 times" in rows[3]["failed"]["warploom copy"]


@pytest.mark.parametrize("name", [SETUP, "nccl", "mm"])
def test_a_row_without_tensors_or_a_baseline_has_an_error_and_the_rest_is_measured(tmp_path, name):
    rows, starts = supervised(tmp_path, 3, {1: name})
    assert [row.get("error") for row in rows] == [None, "rank 0: process 0 terminated with exit code 9", None]
    assert starts == 2


def test_processes_that_cannot_start_are_not_started_for_ever(tmp_path):
    notes, begun = Notes(str(tmp_path / "none")), []

    def start(left, failed):
        begun.append(left)
        raise_at_join = Processes(notes, [], failed, {})
        raise_at_join.join = lambda timeout, grace_period: refused()  # type: ignore[method-assign]
        return raise_at_join

    supervise(start, [{"kind": "0"}], [notes], "", float("inf"))
    assert len(begun) == STARTS


@pytest.mark.slow
def test_the_whole_program_runs_on_the_cpu_and_writes_each_row(tmp_path):
    out = tmp_path / "rows.json"
    assert tensor_parallel.main(["--pretend", "--out", str(out), "--only", "all-gather", "--forms", "copy"]) == 0
    evidence = json.loads(out.read_text())
    (row,) = evidence["rows"]
    assert evidence["ranks"] == 2 and row["kind"] == "all-gather" and not row["failed"]
    assert set(row["forms"]) == {"warploom", "warploom copy"} and row["relative_error"]["warploom"] < 0.01
