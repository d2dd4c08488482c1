"""Three ways to divide the partial wave: right and clean, the same bits in every run, and the shared work of each."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from examples.hopper.stream_k import TILE_K, TILE_M, WAYS, Config, build
from tests.errors import refused
from warploom.driver import toolchain
from warploom.errors import WarploomError
from warploom.lab import schedules
from warploom.runtime.machine import H200
from warploom.types import bf16

SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1), ("starve", 0), ("starve", 1))
EACH = pytest.mark.parametrize("way", WAYS)
SMALL = Config(tile_n=64, stages=2)
SHAPES = [(640, 64, 200, 4), (128, 64, 640, 4), (300, 120, 328, 2), (256, 72, 64, 4), (1, 8, 8, 3)]
"""M, N, K and multiprocessors: five tiles for four CTAs; one; six for two, which leaves no rest; four tiles of a single
k-tile; nothing to speak of."""


def operands(m: int, n: int, k: int, whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, whose sums are exact, or normal ones."""
    draw = np.random.default_rng(0)
    make = (lambda shape: draw.integers(-2, 3, shape)) if whole else draw.standard_normal
    return make((m, k)).astype(bf16.numpy), make((n, k)).astype(bf16.numpy)


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("m, n, k, sms", SHAPES)
@EACH
def test_it_is_exact_and_clean_under_every_schedule(
    way: str, m: int, n: int, k: int, sms: int, schedule: str, seed: int
):
    a, b = operands(m, n, k)
    report = build(replace(SMALL, way=way)).emulate(a, b, schedule=schedule, seed=seed, machine=H200(sms=sms))
    assert report.findings == []
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(report.outputs[0], exact.astype(bf16.numpy))


@pytest.mark.sample(0, all=1)
@EACH
def test_the_shipped_tile(way: str):
    a, b = operands(700, 264, 136)
    report = build(Config(way)).emulate(a, b, machine=H200(sms=4))
    assert report.findings == []
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(report.outputs[0], exact.astype(bf16.numpy))


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("m, k", [(640, 456), (128, 640), (128, 328)])
@EACH
def test_whoever_is_last_the_bits_are_the_same(way: str, m: int, k: int):
    """Parts are added in the order of k: two of a tile, four, and three."""
    a, b = operands(m, 64, k, whole=False)
    results = [
        build(replace(SMALL, way=way))
        .emulate(a, b, schedule=schedule, seed=seed, machine=H200(sms=4), check=False)
        .outputs[0]
        for schedule, seed in SCHEDULES
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("rows, sms", [(5, 4), (9, 4), (3, 4), (8, 4), (7, 3)])
def test_what_is_shared_is_what_the_schedules_of_the_lab_share(rows: int, sms: int):
    """Each part of a tile is written to the workspace once, as f32."""
    tile, k_tiles = TILE_M * 64 * 4, 7
    a, b = operands(rows * TILE_M, 64, k_tiles * TILE_K)
    written = {
        way: build(replace(SMALL, way=way)).emulate(a, b, check=False, machine=H200(sms=sms)).counters
        for way in WAYS
    }  # fmt: skip
    rest = rows % sms
    shared = rows if rows < sms else rest + sms if rest else 0
    pieces = {
        "data_parallel": 0,
        "split_k": rest * min(sms // rest, k_tiles) if rest and sms // rest > 1 else 0,
        "stream_k": schedules.stream_k(shared, k_tiles, sms).partial if rest else 0,
    }
    assert {way: one.global_store_bytes // tile for way, one in written.items()} == pieces


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("sms, rest", [(2, 1), (3, 2)])
def test_who_adds_up_keeps_its_own_sums_if_they_are_the_first_or_the_second(sms: int, rest: int):
    """One tile of as many parts as there are CTAs, which arrive in their order or in the other one."""
    part, k_tiles = TILE_M * 64 * 4, 6
    a, b = operands(TILE_M, 64, k_tiles * TILE_K)
    read = {
        build(SMALL)
        .emulate(a, b, schedule=schedule, seed=seed, machine=H200(sms=sms), check=False)
        .counters.global_load_bytes
        for schedule, seed in (*SCHEDULES, *(("random", seed) for seed in range(2, 12)))
    }
    assert rest * part in read and read <= {rest * part + own * part // 2 for own in range(3)}
    assert len(read) == 1 or sms > 2, "of two parts, none is read back by who made it"


def test_what_cannot_be_built_is_said():
    with refused("configuration", expected="data_parallel, split_k, stream_k"):
        build(Config("ways"))
    with refused("argument", expected="a multiple of 16 to 256"):
        build(Config(tile_n=264))


@pytest.mark.sample(1)
@EACH
def test_it_is_built_without_spills_and_remarks(way: str):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = build(Config(way)).resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "rule, line, by",
    [
        ("global-data-race", r"atom\.acq_rel\.gpu", "atom.relaxed.gpu"),
        ("data-race", r".*bar\.sync 1, 128.*\n", ""),
        ("operand-overwritten", r"wgmma\.wait_group\.sync\.aligned 1", "wgmma.wait_group.sync.aligned 7"),
    ],
    ids=["the count is relaxed", "no barrier around the count", "a stage is released early"],
)
def test_bugs_in_the_text_are_found(rule: str, line: str, by: str):
    kernel = build(SMALL)
    mutant, count = re.subn(line, by, kernel.ptx())
    assert count
    a, b = operands(640, 64, 200)

    def found(schedule: str, seed: int) -> set[str]:
        try:
            report = kernel.emulate(a, b, ptx=mutant, schedule=schedule, seed=seed, machine=H200(sms=4))
        except WarploomError as error:
            return {error.code}
        return {one.rule for one in report.findings}

    assert any(rule in found(*tried) for tried in SCHEDULES)


@pytest.mark.gpu
@pytest.mark.parametrize("m, n, k", [(1, 8, 8), (1000, 1048, 520), (2048, 4096, 1024), (17024, 256, 4096)])
@EACH
def test_on_a_gpu_it_is_right_repeats_its_bits_and_keeps_to_its_array(way: str, m: int, n: int, k: int):
    torch = pytest.importorskip("torch")
    draw = torch.Generator(device="cuda").manual_seed(0)
    a, b = (torch.randn(shape, generator=draw, device="cuda").bfloat16() for shape in ((m, k), (n, k)))
    exact = a.double() @ b.double().T
    results = []
    for _ in range(5):
        memory = torch.full((m + 64, n), 7.0, device="cuda", dtype=torch.bfloat16)
        build(Config(way))(a, b, out=memory[:m])
        torch.cuda.synchronize()
        assert bool((memory[m:] == 7.0).all())
        results.append(memory[:m].double())
    assert float((results[0] - exact).norm() / exact.norm()) < 2.5e-3
    assert all(torch.equal(result, results[0]) for result in results)
