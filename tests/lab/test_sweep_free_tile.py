"""The sweep of free tiles without a GPU: a mock clock, and calls that run in the emulator."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import free_tile_candidates, sweep_builds
from benchmarks import sweep_free_tile as sweep
from tests.errors import refused
from warploom.kernels.hopper.free_tile_choice import waves_of
from warploom.kernels.hopper.names import any_config
from warploom.lab import operands
from warploom.lab.contender import Prepared
from warploom.lab.gpu_stage import compared
from warploom.lab.warploom_contender import product_of
from warploom.lab.work import GemmWork
from warploom.runtime.machine import H200

torch = pytest.importorskip("torch")
TINY = (GemmWork(9, 72, 128), GemmWork(70, 40, 64))
SMS = 4


class Clock:
    """Every call takes a microsecond."""

    def timed(self, call: Callable[[], object], launches: int) -> float:
        return 1e-6

    def now(self) -> float:
        return 0.0

    def idle(self, seconds: float) -> None:
        pass


class Pretended:
    """Operands in host memory, whose calls run in the emulator."""

    timer = Clock()

    def operands(self, problem: GemmWork, data: str) -> list[Any]:
        return operands.make(problem, data, 1, device="cpu")

    def check(self, problem: GemmWork, sets: Sequence[Any], prepared: Prepared) -> tuple[float, bool]:
        return compared(operands.reference(problem, sets[0]), sets, prepared, lambda: None)

    def ready(self, calls: Sequence[Any], launch: str, count: int) -> tuple[Callable[[], object], int]:
        return calls[0], 1

    def release(self) -> None:
        pass


class Halved(Pretended):
    """One contender forgets half of its result."""

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, problem: GemmWork, sets: Sequence[Any], prepared: Prepared) -> tuple[float, bool]:
        if prepared.config == self.name:
            whole = prepared.calls[0]

            def half() -> None:
                whole()
                sets[0].out[problem.m // 2 :] = 0

            prepared = Prepared([half])
        return super().check(problem, sets, prepared)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> sweep.Sweep:
    """A sweep over the tiny products, two candidates each, with kernels that were built here."""
    everything = sweep.candidates
    monkeypatch.setattr(sweep, "candidates", lambda problem, sms=SMS, most=2: everything(problem, sms)[:2])
    monkeypatch.setattr(sweep, "library", lambda problem, sets: sweep.find("cublas").prepare(problem, sets, print))

    def program(problem: GemmWork, config: Any) -> Any:
        return sweep_builds.build(sweep.product_of(problem), sweep_builds.fusion_of(problem), config)

    return sweep.Sweep(Pretended(), lambda *_: None, program, sms=SMS, candidates=sweep.candidates)  # type: ignore[arg-type]


def test_every_candidate_is_checked_and_timed_and_a_second_run_goes_on(made: sweep.Sweep, tmp_path: Path):
    assert sweep.run(made, TINY[:1], tmp_path, 100.0, say=lambda line: None) == 1
    with (tmp_path / sweep.POINTS).open("a") as file:
        file.write('{"m": 70, "n"')  # the line of a run that was cut off
    assert sweep.run(made, TINY, tmp_path, 100.0, say=lambda line: None) == 1
    first, second = sweep.points(tmp_path)
    assert [point["m"] for point in (first, second)] == [9, 70]
    for point, problem in zip((first, second), TINY, strict=True):
        names = {config.name() for config in sweep.candidates(problem)}
        assert point["wrong"] == {}
        assert set(point["us"]) == names | {sweep.CUBLAS, sweep.LIBRARY} == set(point["final_us"])
        assert set(point["model_us"]) == names


def test_operands_of_one_k_are_read_as_their_layout_says(made: sweep.Sweep):
    """The gradient of weights from one token: strides do not tell (M, 1) from its transpose."""
    point = made.point(GemmWork(72, 40, 1, layout="nt"))
    assert point["wrong"] == {} and len(point["us"]) == 4


def test_no_product_is_begun_when_the_time_is_over(made: sweep.Sweep, tmp_path: Path):
    clock = iter((0.0, 0.5, 2.0))
    assert sweep.run(made, TINY, tmp_path, 1.0, now=lambda: next(clock), say=lambda line: None) == 1


def test_a_wrong_kernel_is_not_timed_and_one_that_hung_is_left_out(made: sweep.Sweep, tmp_path: Path):
    names = [config.name() for config in sweep.candidates(TINY[0])]
    stage = Halved(names[0])
    left_out = replace(made, stage=stage, left_out=frozenset({names[1]}))  # type: ignore[arg-type]
    sweep.run(left_out, TINY[:1], tmp_path, 9.0, say=lambda line: None)
    (point,) = sweep.points(tmp_path)
    assert "relative error" in point["wrong"][names[0]]
    assert "hung" in point["wrong"][names[1]]
    assert set(point["us"]) == {sweep.CUBLAS, sweep.LIBRARY}


@pytest.mark.parametrize("text", ["", "3", '["a", 1]', '{"a": 1}'])
def test_a_list_of_hung_kernels_that_is_none_is_refused(text: str, tmp_path: Path):
    assert sweep.hung_before(tmp_path) == frozenset()
    (tmp_path / sweep.HUNG).write_text(text)
    with refused("argument"):
        sweep.hung_before(tmp_path)


def test_lines_that_are_no_points_are_passed_over(tmp_path: Path):
    (tmp_path / sweep.POINTS).write_text('3\n{"m": 1}\n{"m": 1, "us": {}}\n{"m": 2, "us"')
    assert sweep.points(tmp_path) == [{"m": 1, "us": {}}]


def test_a_file_of_products_may_name_configurations_to_time_beside_the_candidates(tmp_path: Path):
    earlier = any_config("u128x96_8_n2_f3")
    (tmp_path / "products").write_text(json.dumps([{"m": 9, "n": 72, "k": 128, "configs": [earlier.name()]}]))
    also = sweep.of_file(tmp_path / "products")
    with ThreadPoolExecutor(1) as pool:
        builds = sweep_builds.Builds(list(also), lambda *_, **__: [earlier], SMS, 2, "sm_90a", pool, also)
    assert builds.candidates == {TINY[0]: [earlier]}


@pytest.mark.parametrize("rows", ["", "5", "1:", "a:b", "1:2:3", "-1:4"])
def test_rows_that_are_none_are_refused(rows: str):
    drawn = {"dtype": "bf16", "scales": "", "layout": "forward", "seed": 1, "count": 2}
    options = argparse.Namespace(**drawn, shapes="", products=None, rows=rows)
    with refused("argument", got=rows):
        sweep.problems_of(options)


def test_the_first_of_every_form_is_among_the_candidates():
    chosen = sweep.candidates(GemmWork(256, 6144, 4096), 132)
    assert len(chosen) <= free_tile_candidates.MOST_CANDIDATES
    assert {any_config("u128x96_8_n2_f3").name()} <= {config.name() for config in chosen}
    assert {True, False} == {config.swap_ab for config in chosen if hasattr(config, "swap_ab")}


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("shape", [(1063, 1152, 4304), (162, 12288, 4096), (260, 73728, 4608), (4135, 5120, 12800)])
@pytest.mark.parametrize(
    "candidates, kinds",
    [
        (free_tile_candidates.pairs, {(2, "weights"), (2, "tokens")}),
        (
            free_tile_candidates.clusters,
            {(2, "weights"), (2, "tokens"), (4, "weights"), (4, "tokens"), (4, "both"), (8, "both")},
        ),
    ],
)
def test_what_shares_is_timed_beside_what_the_library_chooses(shape: tuple[int, int, int], candidates: Any, kinds: Any):
    problem = GemmWork(*shape)
    chosen = candidates(problem, 132, 12)
    ours, asked = free_tile_candidates.chosen_first(problem, 132, 3), product_of(problem)
    assert len(set(chosen)) == len(chosen) <= 12 and chosen[:3] == ours
    shared = [config for config in chosen if getattr(config, "multicast", "") and config not in ours]
    assert len(shared) > 3 and {(config.ctas, config.multicast) for config in shared} <= kinds
    for config in shared:
        config.check(asked)
        alone = replace(config, cluster=1, multicast="")
        assert waves_of(config, *shape[:2], H200().sms) == waves_of(alone, *shape[:2], H200().sms)
