"""Products with their communication, on several emulated GPUs: right and clean; each planted fault is found."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from warploom import H200
from warploom.collective.tile import timeout_record
from warploom.collective.tile.peer_signals import STATE_WORDS
from warploom.errors import ArgumentError, EmulationError
from warploom.isa.dtypes import bf16, f32
from warploom.kernels.hopper import copied_rows, gemm_all_gather, gemm_reduce_scatter
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.ranked_tile import choose
from warploom.runtime.copies import MemoryCopy

CONFIG = Config(ctas=1, pdl=False, tile_m=128, tile_n=64, stages=3)
MACHINE = H200(sms=2)
SCHEDULES = ("lazy", "eager", "random", "starve", "pct")
ROUNDING = 2**-8
MODULES = {"all-gather": gemm_all_gather, "reduce-scatter": gemm_reduce_scatter}
COPIED = "all-gather, copied"
KEPT = f"{COPIED}, kept"
BY_TMA = "all-gather, by TMA"
KINDS = (*MODULES, COPIED, BY_TMA)


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
    made = np.zeros(timeout_record.words(256), np.uint32)
    made[timeout_record.TIMEOUT] = patience
    return made


def problem(kind: str, ranks: int, rows: int, n: int, k: int) -> Problem:
    """`rows`: of each GPU."""
    draw = np.random.default_rng(ranks * 1000 + rows)

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(ml_dtypes.bfloat16)

    def each(make):
        return [make() for _ in range(ranks)]

    state = each(lambda: np.zeros(STATE_WORDS, np.uint32))
    if kind in ("all-gather", BY_TMA):
        a, b = each(lambda: normal(1, rows, k)), each(lambda: normal(n, k))
        whole = np.concatenate([one[0] for one in a]).astype(np.float32)
        expected = [whole @ one.astype(np.float32).T for one in b]
        data, count = (
            each(lambda: np.full((ranks, rows, k), np.nan, a[0].dtype)),
            gemm_all_gather.counters(rows, ranks, CONFIG, "tma" if kind == BY_TMA else "push"),
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
def built(kind: str, ranks: int, **options):
    if kind in (COPIED, KEPT):
        return gemm_all_gather.build(ranks, config=CONFIG, by="copy", keep=kind == KEPT)
    if kind == BY_TMA:
        return gemm_all_gather.build(ranks, config=CONFIG, by="tma", **options)
    return MODULES[kind].build(ranks, config=CONFIG)


def run(kind: str, ranks: int = 2, rows: int = 144, n: int = 96, k: int = 72, text: str | None = None, **options):
    if kind == COPIED:
        return run_copied(ranks, rows, n, k, text, **options)
    posed = problem(kind, ranks, rows, n, k)
    kernel = built(kind, ranks)
    report = kernel.emulate(*posed.arguments, devices=ranks, machine=MACHINE, ptx=text, **options)
    return posed, report


def run_copied(ranks: int, rows: int, n: int, k: int, text: str | None = None, streams: int = 2, *,
               changed=lambda pair: pair, machine=MACHINE, waves=0.0, keep=False, **options):  # fmt: skip
    """The all-gather whose rows copy engines bring, a tile and a k-tile in each copy. changed: what becomes of a copy
    and its flag. keep: the gathered rows are compared with those of all ranks."""
    posed = problem("all-gather", ranks, rows, n, k)
    a, b, data, _, *rest = posed.arguments
    plan = copied_rows.Plan(ranks, rows, k * 2, CONFIG.tile_m, 1, 1, waves)
    kept = [np.zeros((ranks, rows, k), a[0].dtype) for _ in range(ranks)]
    if keep:
        rest.insert(-1, kept)
    flags = [np.zeros(plan.counters, np.uint32) for _ in range(ranks)]
    one = np.ones(1, np.uint32)

    def copies(rank: int):
        made = [[] for _ in range(streams)]
        for number, part in enumerate(plan.parts(rank)):
            here = slice(part.first, part.first + part.rows), slice(part.start // 2, (part.start + part.bytes) // 2)
            copy = MemoryCopy(a[rank][0][here], data[part.to][rank][here])
            made[number % streams] += changed([copy, MemoryCopy(one, flags[part.to][part.flag :][:1], flag=True)])
        return made

    report = built(KEPT if keep else COPIED, ranks).emulate(
        a, b, data, flags, *rest, 1, 1, devices=ranks, machine=machine, ptx=text,
        copies=[copies(rank) for rank in range(ranks)], **options,
    )  # fmt: skip
    if keep:
        whole = np.concatenate([one[0] for one in a])
        assert all(np.array_equal(each.reshape(whole.shape).view(np.uint16), whole.view(np.uint16)) for each in kept)
    return posed, report


@pytest.mark.sample(1, full=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_launches_are_right_and_clean_under_every_schedule(kind, schedule):
    posed, report = run(kind, schedule=schedule, calls=2)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.sample(2, full=6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ranks", "rows", "n", "k"), [(3, 16, 8, 8), (2, 1, 72, 200), (4, 130, 64, 64), (2, 128, 64, 128)]
)
def test_odd_sizes_and_numbers_of_gpus(kind, ranks, rows, n, k):
    posed, report = run(kind, ranks, rows, n, k)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("kind", ["all-gather", BY_TMA])
@pytest.mark.parametrize("sms", [2, 8])
@pytest.mark.parametrize("ranks", [2, 3])
def test_rows_come_in_chunks_of_k_to_one_gpu_after_the_other_or_to_all_at_one_time(ranks: int, sms: int, kind: str):
    """The order depends on whether all tiles run at one time. K has three chunks, of which the last one is short."""
    posed = problem(kind, ranks, 144, 64, 1104)
    report = built(kind, ranks).emulate(*posed.arguments, devices=ranks, machine=H200(sms=sms), calls=2)
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
    "three GPUs": (3, 16, 40, 72, MACHINE),
    "more CTAs than tiles": (2, 16, 64, 200, H200(sms=3)),
    "one tile, one row, one k-tile": (2, 1, 8, 64, H200(sms=1)),
    "more tiles than CTAs": (2, 144, 72, 64, H200(sms=1)),
}


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("case", ALWAYS.values(), ids=ALWAYS)
def test_slots_are_added_in_the_order_of_the_ranks_whoever_comes_first(case):
    *sizes, machine = case
    found = []
    for schedule, seed in (("lazy", 0), ("random", 1), ("starve", 2), ("pct", 3)):
        posed = problem("reduce-scatter", *sizes)
        report = built("reduce-scatter", sizes[0]).emulate(
            *posed.arguments, devices=sizes[0], machine=machine, schedule=schedule, seed=seed, calls=2,
            check=schedule == "random",
        )  # fmt: skip
        assert not report.findings and posed.worst(report.outputs[0]) < ROUNDING
        found.append([each.tobytes() for each in report.outputs[0]])
    assert all(each == found[0] for each in found)


MUTANTS = [
    ("all-gather", "red.release.sys", "red.release.gpu"),
    ("all-gather", "red.release.sys", "red.relaxed.sys"),
    ("all-gather", "ld.acquire.sys", "ld.acquire.gpu"),
    ("all-gather", "ld.acquire.sys", "ld.relaxed.sys"),
    ("all-gather", "fence.proxy.async;", ""),
    (BY_TMA, "red.release.sys", "red.release.gpu"),
    (BY_TMA, "red.release.sys", "red.relaxed.sys"),
    (BY_TMA, "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"),
    (COPIED, "red.release.sys", "red.release.gpu"),
    (COPIED, "red.release.sys", "red.relaxed.sys"),
    (COPIED, "ld.acquire.sys", "ld.acquire.gpu"),
    (COPIED, "ld.acquire.sys", "ld.relaxed.sys"),
    (COPIED, "fence.proxy.async;", ""),
    (COPIED, "atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc"),
    ("reduce-scatter", "red.release.sys", "red.release.gpu"),
    ("reduce-scatter", "red.release.sys", "red.relaxed.sys"),
    ("reduce-scatter", "ld.acquire.sys", "ld.acquire.gpu"),
    ("reduce-scatter", "ld.acquire.sys", "ld.relaxed.sys"),
    ("reduce-scatter", "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"),
    ("reduce-scatter", "fence.proxy.async.shared::cta;", ""),
    ("reduce-scatter", "atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc"),
]


TRIED = (("lazy", 0), ("starve", 0), ("starve", 1), ("pct", 0))
"""Schedules and seeds; with `starve`, one GPU is behind the other."""


def is_found(kind: str, text: str, schedule: str = "lazy", seed: int = 0) -> bool:
    """True if launches of a small product fail, or the sanitizer calls it an error."""
    try:
        _, report = run(kind, rows=80, n=128, k=64, text=text, calls=3, schedule=schedule, seed=seed)
    except EmulationError:
        return True
    return any(finding.severity == "error" for finding in report.findings)


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize(("kind", "right", "wrong"), MUTANTS)
def test_a_signal_that_is_weakened_is_an_error(kind, right, wrong):
    text = built(kind, 2).ptx()
    assert right in text
    assert is_found(kind, text.replace(right, wrong))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("kind", KINDS)
def test_waiting_for_the_launch_before_this_one_cannot_be_left_out(kind):
    """Without it a GPU that is ahead writes over what a slow one still reads; any wait for a flag, left out alike."""
    assert all(any(is_found(kind, mutant, *tried) for tried in TRIED) for mutant in impatient(built(kind, 2).ptx()))


MISHAPS = {
    "a flag before its copy": (lambda pair: pair[::-1], "peer-flag-order"),
    "a flag without its copy": (lambda pair: pair[1:], "wrong"),
    "a copy without its flag": (lambda pair: pair[:1], "DeadlockError"),
}


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("mishap", MISHAPS)
def test_copies_that_are_enqueued_wrongly_are_found(mishap: str):
    changed, found = MISHAPS[mishap]
    machine = H200(sms=1) if found == "DeadlockError" else MACHINE  # fewer CTAs that wait in vain
    try:
        posed, report = run_copied(2, 80, 128, 64, changed=changed, machine=machine)
    except EmulationError as error:
        assert type(error).__name__ == found
    else:
        wrong = not posed.worst(report.outputs[0]) < ROUNDING
        assert found in {each.rule for each in report.findings} or (found == "wrong" and wrong)


@pytest.mark.full
def test_a_flag_that_stays_up_is_found():
    """The last CTA makes the flags 0 again: without that the next launch waits for none of its copies."""
    text = built(COPIED, 2).ptx()
    lowered = re.search(r"mov\.b32 (%r\d+), 0;\s+st\.global\.u32 \[%rd\d+\], \1;", text)
    assert lowered is not None
    _, report = run(COPIED, rows=80, n=128, k=64, text=text.replace(lowered[0], ""), calls=2)
    assert "peer-flag-stale" in {each.rule for each in report.findings}


@pytest.mark.parametrize(
    ("size", "blocks", "chunks"),
    [((2048, 28672, 2048), 1, 6), ((4096, 25600, 1280), 2, 4), ((2048, 8192, 7168), 4, 2), ((8, 64, 64), 1, 1)],
)
def test_rows_are_copied_in_blocks_of_a_wave_and_chunks_that_are_worth_a_copy(size, blocks: int, chunks: int):
    """And together the copies to a GPU are all rows, each once, with a flag of its own."""
    rows, k, columns = size
    plan = copied_rows.choose(4, rows, 2 * k, columns, choose(rows, columns, 4, 132), 132)
    assert (plan.blocks, plan.chunks) == (blocks, chunks)
    parts = list(plan.parts(1))
    assert {part.to for part in parts} == {0, 2, 3} and parts[0].to == 0
    mine = [part for part in parts if part.to == 2]
    assert sum(part.rows * part.bytes for part in mine) == rows * 2 * k
    assert len({part.flag for part in mine}) == len(mine) == blocks * chunks
    assert all(4 <= part.flag < plan.counters and plan.raised_by(part.flag) == 1 for part in mine)


@pytest.mark.parametrize(("waves", "order"), [(0.3, "1a 0a 1b 0b"), (0.5, "1a 1b 0a 0b"), (0.0, "1a 1b 0a 0b")])
def test_rows_of_one_wave_are_copied_chunk_by_chunk_and_others_gpu_after_gpu(waves: float, order: str):
    """Chunks a and b of rank 2, which rank 1 multiplies before rank 0 does."""
    plan = copied_rows.Plan(3, 128, 256, 128, 1, 1, waves)
    assert [f"{part.to}{'ab'[part.start // 128]}" for part in plan.parts(2)] == order.split()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(("ranks", "rows", "waves", "schedule"), [
    (2, 144, 0.5, "random"), (3, 16, 0.3, "lazy"), (2, 130, 1.0, "starve")])  # fmt: skip
def test_copied_rows_can_be_kept_whole_from_the_stages_of_the_ring(ranks: int, rows: int, waves: float, schedule: str):
    """D has tiles of several columns; K ends within a k-tile."""
    posed, report = run_copied(ranks, rows, 136, 200, waves=waves, keep=True, schedule=schedule, calls=2)
    assert not report.findings
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("left_out", [r"@!%p\d+ bra \$wait\d+;", r"cp\.async\.bulk\.wait_group\.read 0;"])
def test_a_stage_is_kept_when_it_is_full_and_refilled_when_it_is_kept(left_out: str):
    """Without either wait of the thread that keeps the rows, it would store other rows."""
    text = built(KEPT, 2).ptx()
    store = text.index("cp.async.bulk.tensor.3d.global.shared::cta")
    near = [found for found in re.finditer(left_out, text) if abs(found.start() - store) < 400]
    assert len(near) == 1
    text = text[: near[0].start()] + text[near[0].end() :]
    try:
        _, report = run_copied(2, 80, 72, 656, text, keep=True, calls=2)
    except (EmulationError, AssertionError):  # the rows differ
        return
    assert [each for each in report.findings if each.severity == "error"]


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


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_measured_configuration_builds_without_spills(kind, ranks):
    assert MODULES[kind].build(ranks).resources().spill_stores == 0


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("by", ["tma", "copy"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_other_forms_of_the_all_gather_build_without_spills(ranks, by):
    config = choose(2048, 8192, ranks, 132, slots=by == "tma")
    assert gemm_all_gather.build(ranks, config=config, by=by).resources().spill_stores == 0


@pytest.mark.parametrize("ranks, ctas", [(2, 2), (3, 1), (4, 2)])
def test_the_ctas_of_a_reduce_scatter_share_b_if_the_number_of_gpus_is_even(ranks: int, ctas: int):
    config = choose(2048, 8192, ranks, 132, staged=True)
    assert config == replace(gemm_reduce_scatter.CONFIG, ctas=ctas)
    assert gemm_reduce_scatter.build(ranks, config=config).resources().spill_stores == 0


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule", ["starve", "random"])
@pytest.mark.parametrize("ranks, rows", [(2, 130), (4, 16)])
def test_two_ctas_that_share_b_send_their_tiles_to_different_gpus(ranks: int, rows: int, schedule: str):
    """With 130 rows, a GPU has two rows of tiles."""
    posed = problem("reduce-scatter", ranks, rows, 72, 72)
    kernel = gemm_reduce_scatter.build(ranks, config=replace(CONFIG, ctas=2))
    report = kernel.emulate(*posed.arguments, devices=ranks, machine=MACHINE, schedule=schedule, calls=2)
    assert {finding.rule for finding in report.findings} <= {"remote-arrival-scope"}
    assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.full
def test_a_reduce_scatter_with_several_boxes_a_tile_is_right_and_clean():
    """A tile has two boxes, and the last ones end within a box."""
    config = replace(CONFIG, tile_n=128)
    for schedule in ("lazy", "starve"):
        posed = problem("reduce-scatter", 2, 80, 176, 72)
        kernel = gemm_reduce_scatter.build(2, config=config)
        report = kernel.emulate(*posed.arguments, devices=2, machine=MACHINE, schedule=schedule, calls=2)
        assert not report.findings
        assert posed.worst(report.outputs[0]) < ROUNDING


@pytest.mark.parametrize("kind", MODULES)
def test_configurations_that_do_not_fit_are_refused(kind):
    for product, config, ranks in (
        (Product(bf16, bf16, f32, a_major="MN"), CONFIG, 2),
        (Product(), Config(), 2),
        (Product(), CONFIG, 1),
        (Product(), replace(CONFIG, ctas=2), 3),
    ):
        with pytest.raises(ArgumentError):
            MODULES[kind].build(ranks, product, config)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("rows, columns", [(512, 3584), (2048, 1792), (300, 11008), (1024, 7168)])
def test_an_operand_that_is_contiguous_in_n_is_read_in_whole_panels(rows: int, columns: int, staged: bool):
    assert choose(rows, columns, 4, 132, staged=staged, b_major="MN").tile_n % 64 == 0
