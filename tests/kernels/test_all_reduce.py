"""A product of few rows with its all-reduce, on several emulated GPUs: right and clean; each planted fault is found."""

from __future__ import annotations

import re
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from warploom import H200
from warploom.collective.reduce.peers import FORMS
from warploom.collective.tile import timeout_record
from warploom.errors import ArgumentError, EmulationError
from warploom.isa.dtypes import bf16, e4m3, f16
from warploom.kernels.hopper import gemm_all_reduce
from warploom.kernels.hopper.description import Product
from warploom.kernels.hopper.free_tile_choice import waves_of
from warploom.kernels.hopper.free_tile_config import FreeTileConfig, named

SMS = H200().sms

MACHINE = H200(sms=4)
ROUNDING = 2**-8
SCHEDULES = ("lazy", "eager", "random", "starve", "pct")
PATIENT = 1000
"""Millions of the emulator's steps."""
SMALL = "s64x8_2_f3"
FULL, SLOW, LONGEST = pytest.mark.full, pytest.mark.slow, ("two_shot",)
EIGHT_BITS = Product(e4m3, e4m3, bf16)


@lru_cache
def built(
    config: str | FreeTileConfig, ranks: int, form: str, product: Product = Product(),  # noqa: B008
    scales: str | None = None,
):  # fmt: skip
    return gemm_all_reduce.build(ranks, product, tile_of(config), form=form, scales=scales)


def tile_of(config: str | FreeTileConfig) -> FreeTileConfig:
    return named(config) if isinstance(config, str) else config


def run(config: str | FreeTileConfig, ranks: int, m: int, n: int, k: int, *, form: str = "one_shot",
        patience: int = PATIENT, text: str | None = None, product: Product = Product(),  # noqa: B008
        scaled: str | None = None, **options):  # fmt: skip
    """The report, the sums that are right, and the records of the waits."""
    draw = np.random.default_rng(ranks)
    a, w = ([draw.standard_normal((rows, k)).astype(product.a.numpy) for _ in range(ranks)] for rows in (m, n))
    if min(m, n) > 1:
        for zeros in (*a, *w):  # sums of zeros travel, too
            zeros[1] = 0
    counts = (m, n) if scaled == "row" else (1, 1)
    scales = [[draw.uniform(0.5, 2, count).astype(np.float32) for _ in range(ranks)] for count in counts]
    factors = [x[:, None] * y if scaled else 1.0 for x, y in zip(*scales, strict=True)]
    memory = gemm_all_reduce.memory(m, n, ranks, tile_of(config), form)

    def zeros(words: int) -> list[np.ndarray]:
        return [np.zeros(words, np.uint32) for _ in range(ranks)]

    records = zeros(memory.record)
    for record in records:
        record[timeout_record.TIMEOUT] = patience
    report = built(config, ranks, form, product, scaled).emulate(
        a, w, zeros(memory.slots), zeros(memory.launches), records, *(scales if scaled else []),
        rank=range(ranks), devices=ranks, machine=MACHINE, ptx=text, **options,
    )  # fmt: skip
    parts = [x.astype(np.float32) @ y.astype(np.float32).T * by for x, y, by in zip(a, w, factors, strict=True)]
    return report, sum(part.astype(ml_dtypes.bfloat16).astype(np.float32) for part in parts), records


def is_right(report, right: np.ndarray) -> bool:
    """True if all GPUs have the sums, and the same bits."""
    first = report.outputs[0][0]
    same = all(np.array_equal(each.view(np.uint16), first.view(np.uint16)) for each in report.outputs[0])
    return same and float(np.abs(first.astype(np.float32) - right).max() / np.abs(right).max()) < ROUNDING


@pytest.mark.sample(1, full=5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_launches_are_right_and_clean_under_every_schedule(schedule: str, form: str):
    report, right, records = run(SMALL, 3, 8, 72, 72, form=form, schedule=schedule, calls=3)
    assert not report.findings and is_right(report, right)
    assert not any(timeout_record.timed_out(record) for record in records)


CASES = {
    "tokens on m, two GPUs": ("u64x40_3_f3", 2, 64, 80, 192),
    "weights on m, four GPUs": ("s64x24_3_f3", 4, 24, 128, 136),
    "K in two parts": ("u64x24_3_S2_f3", 2, 64, 24, 320),
    "K in three parts, one of them empty": ("s64x24_3_S3_f1", 3, 24, 64, 128),
    "two blocks of a consumer": ("u128x40_3_f2", 2, 150, 40, 72),
    "two consumers, both axes moved": ("u128x56w2_3_f3", 2, 200, 104, 72),
    "several tiles of a CTA": ("u64x24_3_p_f3", 2, 70, 104, 64),
    "fewer rows than a tile": ("s64x8_2_f3_z", 2, 3, 64, 72),
    "rows that are no whole vectors": ("s64x8_2_1_f3_z", 2, 5, 67, 64),
}


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_forms_of_the_tile_and_ragged_sizes(case: tuple, form: str):
    report, right, _ = run(*case, form=form, calls=2)
    assert is_right(report, right)
    assert {finding.rule for finding in report.findings} <= {"uncoalesced-access", "bank-conflict"}


SCALED = {
    "weights on m, three GPUs": ("s64x24_3_f3", 3, 24, 72, 144),
    "K in two parts": ("u64x24_3_S2_f3", 2, 64, 24, 512),
    "two blocks of a consumer, moved": ("u128x40_3_f2", 2, 150, 40, 144),
    "several tiles of a CTA": ("u64x24_3_p_f3", 2, 70, 104, 128),
    "rows that are no whole vectors": ("s64x8_2_1_f3_z", 2, 5, 67, 128),
}


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scaled", ["tensor", "row"])
@pytest.mark.parametrize("case", SCALED.values(), ids=SCALED)
def test_eight_bits_are_scaled_by_each_gpu_s_own_numbers_before_they_are_added(case: tuple, scaled: str, form: str):
    report, right, _ = run(*case, form=form, calls=2, product=EIGHT_BITS, scaled=scaled)
    assert is_right(report, right)
    assert {finding.rule for finding in report.findings} <= {"uncoalesced-access", "bank-conflict"}


ALWAYS = {
    "one tile of each GPU": (SMALL, 3, 8, 64, 64),
    "K in two parts": ("u64x24_3_S2_f3", 2, 64, 24, 320),
    "K in more parts than it has stages": ("s64x24_3_S3_f1", 3, 24, 64, 128),
    "several tiles of a CTA": ("u64x24_3_p_f3", 2, 70, 104, 64),
    "a last tile that was moved": ("u128x40_3_f2", 2, 150, 40, 72),
}


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ALWAYS.values(), ids=ALWAYS)
def test_the_bits_do_not_depend_on_who_comes_first(case: tuple, form: str):
    found = [
        run(*case, form=form, schedule=schedule, seed=seed, check=False)
        for schedule, seed in (("lazy", 0), ("random", 1), ("starve", 2), ("pct", 3))
    ]
    assert len({report.outputs[0][0].tobytes() for report, *_ in found}) == 1
    assert is_right(*found[0][:2])


# -- faults ----------------------------------------------------------------------------------------------------------

MUTANTS = {
    "words that reach no other GPU": (r"st\.relaxed\.sys", "st.relaxed.gpu"),
    "words that are stored weakly": (r"st\.relaxed\.sys\.global", "st.global"),
    "a look at its own GPU's words": (r"ld\.relaxed\.sys", "ld.relaxed.gpu"),
    "a weak look": (r"ld\.relaxed\.sys", "ld"),
    "a word that nobody looks at": (r"min\.u32 (%r\d+), (%r\d+), (%r\d+);", r"mov.b32 \1, \2;"),
    "words that are not inverted": (r"not\.b32", "mov.b32"),
}


TRIED = (("lazy", 0), ("starve", 0), ("starve", 1), ("random", 0), ("pct", 0))


def is_found(text: str, *, form: str, schedule: str = "lazy", seed: int = 0) -> bool:
    """True if launches of a small product fail, compute something else, or the sanitizer calls them an error."""
    try:
        report, right, records = run(SMALL, 2, 8, 128, 64, form=form, text=text, calls=4, schedule=schedule, seed=seed)
    except EmulationError:
        return True
    errors = any(finding.severity == "error" for finding in report.findings)
    return errors or not is_right(report, right) or any(timeout_record.timed_out(record) for record in records)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_a_weakened_hand_over_is_an_error(form: str, change: tuple[str, str]):
    text = built(SMALL, 2, form).ptx()
    mutant = re.sub(*change, text)
    assert mutant != text
    assert any(is_found(mutant, form=form, schedule=schedule, seed=seed) for schedule, seed in TRIED)


@pytest.mark.parametrize("form", FORMS)
def test_slots_that_are_not_zeroed_are_found(form: str):
    """The launch after the next takes the words that it finds there for its own."""
    text = built(SMALL, 2, form).ptx()
    zeros = re.findall(r"mov\.b32 (%r\d+), 0;", text)
    mutant = re.sub(rf"st\.relaxed\.sys\S* \[%rd\d+\], {{?({'|'.join(zeros)})\b.*;", "", text)
    assert mutant != text
    assert is_found(mutant, form=form)


@pytest.mark.parametrize("form", [pytest.param(form, marks=SLOW if form in LONGEST else FULL) for form in FORMS])
def test_of_several_gpus_the_one_that_sends_nothing_is_named(form: str):
    text = re.sub(r"(?m)^(\s*)(st\.relaxed\.sys)", r"\1@!%silent \2", built(SMALL, 3, form).ptx())
    text = re.sub(r"(?m)^(.*ld\.param\.u32 (%r\d+), \[arg_rank\];)$", r"\1\n setp.eq.u32 %silent, \2, 2;", text)
    text = re.sub(r"(?m)^(\s*\.reg \.pred)", r"\1 %silent;\n\1", text, count=1)
    _, _, records = run(SMALL, 3, 8, 64, 64, form=form, text=text, patience=0, check=False)
    waits = timeout_record.timed_out(records[0])
    assert {(wait.seen, wait.target) for wait in waits} == {(0, 1)}
    named = {wait.index % 3 for wait in waits}
    assert 2 in named if form == "two_shot" else named == {2}  # shares of others come late, too


# -- choice ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 16, 64, 128])
@pytest.mark.parametrize("n, k", [(8192, 14336), (4096, 1792), (28672, 2048)])
def test_the_chosen_tile_is_resident_at_one_time(m: int, n: int, k: int):
    config = gemm_all_reduce.choose(m, n, k, 132)
    assert config.persistent or waves_of(config, m, n, SMS) == 1


@pytest.mark.sample(2, full=4)
@pytest.mark.parametrize("m, n", [(1, 128), (5, 64), (8, 128), (3, 40)])
def test_what_is_chosen_sends_nothing_that_nobody_wrote(m: int, n: int):
    config = gemm_all_reduce.choose(m, n, 128, MACHINE.sms)
    assert config.zero_fill == (config.tokens > m or config.weights > n)
    report, right, _ = run(config, 2, m, n, 128)
    assert is_right(report, right)
    assert not [finding for finding in report.findings if finding.severity != "performance"]


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("m", [1, 16, 64, 128])
@pytest.mark.parametrize("product, scales", [(Product(f16, f16, f16), None), (EIGHT_BITS, "row")])
def test_what_is_chosen_builds_without_spills(m: int, ranks: int, product: Product, scales: str | None):
    config = gemm_all_reduce.choose(m, 8192, 28672 // ranks, 132, product, scales, ranks)
    form = gemm_all_reduce.form_of(m, 8192, ranks, config)
    kernel = gemm_all_reduce.build(ranks, product, config, form=form, scales=scales)
    assert kernel.resources().spill_stores == 0


def test_few_bytes_travel_in_one_shot_and_more_in_two_if_there_are_more_than_two_gpus():
    tile = FreeTileConfig(swap_ab=True, tile_m=64, tile_n=8, consumers=1)
    assert [gemm_all_reduce.form_of(m, 8192, 4, tile) for m in (1, 16, 32, 128)] == [
        "one_shot", "one_shot", "two_shot", "two_shot"
    ]  # fmt: skip
    assert gemm_all_reduce.form_of(128, 8192, 2, tile) == "one_shot"  # as many bytes in any case


def test_a_tile_with_fewer_rows_past_the_tensor_is_chosen_where_what_travels_counts():
    alone, together = (gemm_all_reduce.choose(16, 4096, 3584, 132, ranks=ranks) for ranks in (1, 4))
    assert gemm_all_reduce.travelling(16, 4096, alone) == 4 * gemm_all_reduce.travelling(16, 4096, together)
    assert gemm_all_reduce.travelling(16, 4096, together) == 16 * 4096 * 2
    assert gemm_all_reduce.choose(64, 8192, 2048, 132, ranks=4) == gemm_all_reduce.choose(64, 8192, 2048, 132)


def test_a_grid_that_is_not_resident_and_memory_that_is_too_small_are_refused():
    with pytest.raises(ArgumentError):
        run("s64x8_2_f3", 2, 8, 64 * 5, 64)
    with pytest.raises(ArgumentError):
        gemm_all_reduce.build(1)
