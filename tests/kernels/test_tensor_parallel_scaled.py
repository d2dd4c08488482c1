"""8-bit products with their communication and with scales, on several emulated GPUs."""

from __future__ import annotations

from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.peer_mutants import HAND_OVERS
from tests.kernels.test_tensor_parallel import CONFIG, MACHINE, ROUNDING, SCHEDULES, TRIED, record
from warploom.collective.tile.peer_signals import STATE_WORDS
from warploom.errors import ArgumentError, EmulationError
from warploom.isa.dtypes import bf16, e4m3
from warploom.kernels.hopper import gemm_all_gather, gemm_reduce_scatter
from warploom.kernels.hopper.description import Fusion, Product
from warploom.kernels.hopper.pushed_by_tma import IN_FLIGHT
from warploom.kernels.hopper.ranked_tile import choose

PRODUCT = Product(e4m3, e4m3, bf16)
PUSHED = ("push", "tma")
TENSOR, ROW = Fusion(scales="tensor"), Fusion(scales="row")
E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
MODULES = {"all-gather": gemm_all_gather, "reduce-scatter": gemm_reduce_scatter}


@lru_cache
def built(kind: str, ranks: int, fusion: Fusion, product: Product = PRODUCT, **options: bool | str | int):
    return MODULES[kind].build(ranks, product, CONFIG, fusion, **options)


def drawn(ranks: int, of_rank, seed: int = 5) -> list[np.ndarray]:
    """One array for each GPU."""
    draw = np.random.default_rng(seed)
    return [of_rank(draw) for _ in range(ranks)]


def eight_bits(*shape: int):
    return lambda draw: draw.standard_normal(shape).astype(E4M3)


def positive(*shape: int):
    return lambda draw: draw.uniform(0.25, 2.0, shape).astype(np.float32)


def exchanged(ranks: int, counters: int) -> tuple[list, list, list]:
    """Counters, states and records."""
    words = [[np.zeros(count, np.uint32) for _ in range(ranks)] for count in (counters, STATE_WORDS)]
    return words[0], words[1], [record() for _ in range(ranks)]


def whole(a, b, scale_a, scale_b) -> np.ndarray:
    """A product with its scales, in f32."""
    return (a.astype(np.float32) @ b.astype(np.float32).T) * scale_a * scale_b


def gather(ranks: int, rows: int, n: int, k: int, fusion: Fusion, *, replicated: bool = False, keep: bool = False,
           bias: bool = False, by: str = "push", in_flight: int = IN_FLIGHT, text: str | None = None,
           **options):  # fmt: skip
    """The report, what is right on each GPU, and what was kept of A."""
    a, b = drawn(ranks, eight_bits(1, rows, k)), drawn(ranks, eight_bits(n, k), 6)
    of_rows = fusion.scales == "row"
    scale_b = drawn(ranks, positive(n if of_rows else 1), 8)
    more: list = []
    if of_rows:
        of_all = np.stack(drawn(ranks, positive(rows), 7))
        if not replicated:
            more.append([np.full((ranks, rows), np.nan, np.float32) for _ in range(ranks)])
        more.append([of_all] * ranks if replicated else list(of_all))
        scale_a = [of_all.reshape(-1, 1)] * ranks
    else:
        scale_a = drawn(ranks, positive(1), 7)
        more.append(scale_a)
    more.append(scale_b)
    biases = drawn(ranks, lambda draw: draw.standard_normal(n).astype(BF16), 9)
    if bias:
        more.append(biases)
    kept = [np.zeros((ranks, rows, k), E4M3) for _ in range(ranks)]
    if keep:
        more.append(kept)
    data = [np.full((ranks, rows, k), np.nan, E4M3) for _ in range(ranks)]
    kernel = built("all-gather", ranks, fusion, replicated=replicated, keep=keep, by=by, in_flight=in_flight)
    report = kernel.emulate(
        a, b, data, *exchanged(ranks, gemm_all_gather.counters(rows, ranks, CONFIG, by)), *more, range(ranks),
        devices=ranks, machine=MACHINE, ptx=text, **options,
    )  # fmt: skip
    every = np.concatenate([one[0] for one in a])
    right = [
        whole(every, b[rank], scale_a[rank], scale_b[rank]) + bias * biases[rank].astype(np.float32)
        for rank in range(ranks)
    ]
    return report, right, (kept, every)


def scatter(ranks: int, rows: int, n: int, k: int, fusion: Fusion, *, mean: bool = False,
            text: str | None = None, **options):  # fmt: skip
    """The report, and what is right on each GPU."""
    a, b = drawn(ranks, eight_bits(ranks * rows, k)), drawn(ranks, eight_bits(n, k), 6)
    of_rows = fusion.scales == "row"
    scale_a = drawn(ranks, positive(ranks, rows) if of_rows else positive(1), 7)
    scale_b = drawn(ranks, positive(n if of_rows else 1), 8)
    slots = [np.full((ranks, rows, n), np.nan, BF16) for _ in range(ranks)]
    report = built("reduce-scatter", ranks, fusion, mean=mean).emulate(
        a, b, slots, *exchanged(ranks, gemm_reduce_scatter.counters(rows, n, ranks, CONFIG)), scale_a,
        scale_b, range(ranks), devices=ranks, machine=MACHINE, ptx=text, **options,
    )  # fmt: skip
    parts = [
        whole(x, y, of_a.reshape(-1, 1) if of_rows else of_a, of_b)
        for x, y, of_a, of_b in zip(a, b, scale_a, scale_b, strict=True)
    ]
    total = sum(part.astype(BF16).astype(np.float32) for part in parts) / (ranks if mean else 1)
    return report, [total[rank * rows : (rank + 1) * rows] for rank in range(ranks)]


def is_right(report, right: list[np.ndarray]) -> bool:
    """True if every GPU has its part."""
    return all(
        float(np.abs(found.astype(np.float32).reshape(each.shape) - each).max() / np.abs(each).max()) < ROUNDING
        for found, each in zip(report.outputs[0], right, strict=True)
    )


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("fusion", [TENSOR, ROW], ids=["tensor", "row"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("by", PUSHED)
def test_an_all_gather_with_scales_is_right_and_clean_under_every_schedule(schedule, fusion, by):
    report, right, _ = gather(2, 144, 96, 144, fusion, by=by, schedule=schedule, calls=2)
    assert not report.findings
    assert is_right(report, right)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("fusion", [TENSOR, ROW], ids=["tensor", "row"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_reduce_scatter_with_scales_is_right_and_clean_under_every_schedule(schedule, fusion):
    report, right = scatter(2, 144, 96, 144, fusion, schedule=schedule, calls=2)
    assert not report.findings
    assert is_right(report, right)


ODD = [(3, 16, 16, 16), (2, 1, 80, 400), (4, 130, 64, 128)]


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("fusion", [TENSOR, ROW], ids=["tensor", "row"])
@pytest.mark.parametrize("sizes", ODD)
def test_odd_sizes_and_numbers_of_gpus_with_scales(sizes, fusion):
    found = [gather(*sizes, fusion)[:2], scatter(*sizes, fusion)]
    for report, right in found:
        assert not report.findings
        assert is_right(report, right)


@pytest.mark.sample(1, full=3)
@pytest.mark.parametrize("ranks, rows, by", [(2, 130, "push"), (4, 9, "push"), (3, 16, "push"), (2, 20, "tma")])
def test_the_gathered_rows_can_be_kept_whole(ranks, rows, by):
    report, right, (kept, every) = gather(ranks, rows, 64, 64, TENSOR, keep=True, by=by, calls=2)
    assert not report.findings
    assert is_right(report, right)
    for each in kept:
        assert np.array_equal(each.reshape(every.shape).view(np.uint8), every.view(np.uint8))


def test_scales_of_all_rows_that_every_gpu_has_do_not_travel():
    report, right, _ = gather(2, 80, 64, 64, ROW, replicated=True)
    assert not report.findings
    assert is_right(report, right)


def test_a_bias_comes_after_the_scales():
    report, right, _ = gather(2, 80, 72, 64, Fusion(scales="tensor", bias="column"), bias=True)
    assert not report.findings
    assert is_right(report, right)


@pytest.mark.parametrize(("ranks", "fusion"), [(2, TENSOR), (3, ROW)])
def test_sums_can_be_divided_by_the_ranks(ranks, fusion):
    report, right = scatter(ranks, 16, 64, 64, fusion, mean=True)
    assert not report.findings
    assert is_right(report, right)


MUTANTS = [*HAND_OVERS.values(), ("fence.proxy.async;", "")]


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize("by", PUSHED)
@pytest.mark.parametrize(("right", "wrong"), MUTANTS)
def test_a_weakened_signal_of_scales_and_kept_rows_is_an_error(right, wrong, by):
    text = built("all-gather", 2, ROW, replicated=False, keep=True, by=by).ptx()
    assert right in text

    def is_found(schedule: str, seed: int) -> bool:
        options = {"text": text.replace(right, wrong), "schedule": schedule, "seed": seed}
        try:
            report, expected, _ = gather(2, 80, 64, 64, ROW, keep=True, by=by, calls=2, **options)
        except EmulationError:
            return True
        return not is_right(report, expected) or any(finding.severity == "error" for finding in report.findings)

    assert any(is_found(*tried) for tried in TRIED)


def test_a_staged_epilogue_builds_without_spills():
    """Its boxes are written without the waits that keep values of one box from those of another."""
    config = choose(2048, 8192, 4, 132, staged=True)
    fusion = Fusion(scales="row", bias="column")
    assert gemm_reduce_scatter.build(4, PRODUCT, config, fusion).resources().spill_stores == 0


def test_ends_that_do_not_travel_are_refused():
    for fusion in (Fusion(bias="row"), Fusion(gate=True), Fusion(addend=True), Fusion(amax=True)):
        for module in MODULES.values():
            with pytest.raises(ArgumentError):
                module.build(2, PRODUCT, CONFIG, fusion)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("fusion", [TENSOR, ROW], ids=["tensor", "row"])
def test_the_configuration_that_is_used_builds_without_spills(kind, fusion):
    assert MODULES[kind].build(4, PRODUCT, MODULES[kind].CONFIG, fusion).resources().spill_stores == 0
