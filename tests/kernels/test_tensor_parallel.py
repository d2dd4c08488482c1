"""Products with their communication, on several emulated GPUs: right, clean, and each planted fault is found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from warploom import H200
from warploom.collective.tile import watch
from warploom.collective.tile.rounds import STATE_WORDS
from warploom.errors import ArgumentError, EmulationError
from warploom.isa.dtypes import bf16, f32
from warploom.kernels.hopper import gemm_all_gather, gemm_reduce_scatter
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.ranked_tile import choose

CONFIG = Config(ctas=1, pdl=False, tile_m=128, tile_n=64, stages=3)
MACHINE = H200(sms=2)
SCHEDULES = ("lazy", "eager", "random", "starve", "pct")
ROUNDING = 2**-8
MODULES = {"all-gather": gemm_all_gather, "reduce-scatter": gemm_reduce_scatter}


@dataclass
class Problem:
    """The arrays of every GPU, and what they must compute."""

    arguments: list
    expected: list[np.ndarray]

    def worst(self, outputs) -> float:
        """Largest error, in units of the largest element."""
        return max(
            float(np.abs(found.astype(np.float32).reshape(right.shape) - right).max() / np.abs(right).max())
            for found, right in zip(outputs, self.expected, strict=True)
        )


def record(patience: int = 1000) -> np.ndarray:
    """Of the waits of a GPU; the patience in millions of the emulator's steps."""
    made = np.zeros(watch.words(256), np.uint32)
    made[watch.PATIENCE] = patience
    return made


def problem(kind: str, ranks: int, rows: int, n: int, k: int) -> Problem:
    """`rows`: of each GPU."""
    draw = np.random.default_rng(ranks * 1000 + rows)

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(ml_dtypes.bfloat16)

    def each(make):
        return [make() for _ in range(ranks)]

    state = each(lambda: np.zeros(STATE_WORDS, np.uint32))
    if kind == "all-gather":
        a, b = each(lambda: normal(1, rows, k)), each(lambda: normal(n, k))
        whole = np.concatenate([one[0] for one in a]).astype(np.float32)
        expected = [whole @ one.astype(np.float32).T for one in b]
        data, count = (
            each(lambda: np.full((ranks, rows, k), np.nan, a[0].dtype)),
            gemm_all_gather.counters(rows, ranks, CONFIG),
        )
    else:
        a, b = each(lambda: normal(ranks * rows, k)), each(lambda: normal(n, k))
        parts = [(x.astype(np.float32) @ y.astype(np.float32).T) for x, y in zip(a, b, strict=True)]
        total = sum(part.astype(ml_dtypes.bfloat16).astype(np.float32) for part in parts)
        expected = [total[rank * rows : (rank + 1) * rows] for rank in range(ranks)]
        data, count = (
            each(lambda: np.full((ranks, rows, n), np.nan, a[0].dtype)),
            gemm_reduce_scatter.counters(rows, n, ranks, CONFIG),
        )
    counters = each(lambda: np.zeros(count, np.uint32))
    return Problem([a, b, data, counters, state, each(record), range(ranks)], expected)


@lru_cache
def built(kind: str, ranks: int):
    return MODULES[kind].build(ranks, config=CONFIG)


def run(kind: str, ranks: int = 2, rows: int = 144, n: int = 96, k: int = 72, text: str | None = None, **options):
    posed = problem(kind, ranks, rows, n, k)
    kernel = built(kind, ranks)
    report = kernel.emulate(*posed.arguments, devices=ranks, machine=MACHINE, ptx=text, **options)
    return posed, report


@pytest.mark.sample(2, full=3)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_launches_are_right_and_clean_under_every_schedule(kind, schedule):
    posed, report = run(kind, schedule=schedule, calls=2)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.sample(2, full=6)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize(
    ("ranks", "rows", "n", "k"), [(3, 16, 8, 8), (2, 1, 72, 200), (4, 130, 64, 64), (2, 128, 64, 128)]
)
def test_odd_sizes_and_numbers_of_gpus(kind, ranks, rows, n, k):
    posed, report = run(kind, ranks, rows, n, k)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.sample(1, full=4)
@pytest.mark.parametrize("sms", [2, 8])
@pytest.mark.parametrize("ranks", [2, 3])
def test_rows_come_in_chunks_of_k_to_one_gpu_after_the_other_or_to_all_at_one_time(ranks: int, sms: int):
    """The order depends on whether all tiles run at one time. K has three chunks, of which the last one is short."""
    posed = problem("all-gather", ranks, 144, 64, 1104)
    report = built("all-gather", ranks).emulate(*posed.arguments, devices=ranks, machine=H200(sms=sms), calls=2)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.parametrize(
    ("size", "columns"), [((2048, 2048), 256), ((512, 7168), 224), ((4096, 1280), 256), ((128, 64), 128)]
)
def test_the_tile_fills_the_waves(size: tuple[int, int], columns: int):
    config = choose(*size, 4, 132)
    assert config.tile_n == columns
    config.check(Product())


@pytest.mark.full
@pytest.mark.parametrize("kind", MODULES)
def test_b_may_be_contiguous_along_its_columns(kind):
    """As in the products of the gradient."""
    posed = problem(kind, 2, 80, 72, 64)
    posed.arguments[1] = [np.ascontiguousarray(b.T) for b in posed.arguments[1]]
    kernel = MODULES[kind].build(2, Product(b_major="MN"), CONFIG)
    report = kernel.emulate(*posed.arguments, devices=2, machine=MACHINE, calls=2)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


ALWAYS = {
    "three GPUs": (3, 16, 96, 72, MACHINE),
    "more CTAs than tiles": (2, 16, 64, 200, H200(sms=3)),
    "one tile, one row, one k-tile": (2, 1, 8, 64, H200(sms=1)),
    "more tiles than CTAs": (2, 300, 136, 64, H200(sms=1)),
}


@pytest.mark.full
@pytest.mark.parametrize("case", ALWAYS.values(), ids=ALWAYS)
def test_slots_are_added_in_the_order_of_the_ranks_whoever_comes_first(case):
    *sizes, machine = case
    found = []
    for schedule, seed in (("lazy", 0), ("random", 1), ("starve", 2), ("pct", 3)):
        posed = problem("reduce-scatter", *sizes)
        report = built("reduce-scatter", sizes[0]).emulate(
            *posed.arguments, devices=sizes[0], machine=machine, schedule=schedule, seed=seed, calls=2
        )
        assert not report.findings and posed.worst(report.outputs[0]) < ROUNDING
        found.append([each.tobytes() for each in report.outputs[0]])
    assert all(each == found[0] for each in found)


MUTANTS = [
    ("all-gather", "red.release.sys", "red.release.gpu"),
    ("all-gather", "red.release.sys", "red.relaxed.sys"),
    ("all-gather", "ld.acquire.sys", "ld.acquire.gpu"),
    ("all-gather", "ld.acquire.sys", "ld.relaxed.sys"),
    ("all-gather", "fence.proxy.async;", ""),
    ("reduce-scatter", "red.release.sys", "red.release.gpu"),
    ("reduce-scatter", "red.release.sys", "red.relaxed.sys"),
    ("reduce-scatter", "ld.acquire.sys", "ld.acquire.gpu"),
    ("reduce-scatter", "ld.acquire.sys", "ld.relaxed.sys"),
    ("reduce-scatter", "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"),
    ("reduce-scatter", "atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc"),
]


TRIED = (("lazy", 0), ("starve", 0), ("starve", 1), ("pct", 0))
"""Schedules and seeds; with `starve`, one GPU is behind the other."""


def is_found(kind: str, text: str, schedule: str = "lazy", seed: int = 0) -> bool:
    """Whether launches of a small product fail, or the sanitizer calls it an error."""
    try:
        _, report = run(kind, rows=80, n=128, k=64, text=text, calls=3, schedule=schedule, seed=seed)
    except EmulationError:
        return True
    return any(finding.severity == "error" for finding in report.findings)


@pytest.mark.sample(2, all=6)
@pytest.mark.parametrize(("kind", "right", "wrong"), MUTANTS)
def test_a_signal_that_is_weakened_is_an_error(kind, right, wrong):
    text = built(kind, 2).ptx()
    assert right in text
    assert is_found(kind, text.replace(right, wrong))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("kind", MODULES)
def test_waiting_for_the_launch_before_this_one_cannot_be_left_out(kind):
    """Without it a GPU that is ahead writes over what a slow one still reads; any wait for a flag, left out alike."""
    assert all(any(is_found(kind, mutant, *tried) for tried in TRIED) for mutant in impatient(built(kind, 2).ptx()))


def impatient(text: str) -> list[str]:
    """The text without one of its waits for a counter, for each of them: what it waits for counts as seen."""
    polls = re.finditer(r"ld\.acquire\.sys\.global\.u32 (%r\d+), .*;", text)
    found = []
    for poll in polls:
        target = re.search(rf"sub\.u32 %r\d+, {poll[1]}, (%r\d+);", text[poll.end() :])
        assert target is not None
        found.append(f"{text[: poll.end()]}\n    mov.b32 {poll[1]}, {target[1]};{text[poll.end() :]}")
    assert found
    return found


@pytest.mark.sample(2, all=6)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_measured_configuration_builds_without_spills(kind, ranks):
    assert MODULES[kind].build(ranks).resources().spill_stores == 0


@pytest.mark.parametrize("kind", MODULES)
def test_configurations_that_do_not_fit_are_refused(kind):
    for product, config, ranks in (
        (Product(bf16, bf16, f32, a_major="MN"), CONFIG, 2),
        (Product(), Config(), 2),
        (Product(), CONFIG, 1),
    ):
        with pytest.raises(ArgumentError):
            MODULES[kind].build(ranks, product, config)
