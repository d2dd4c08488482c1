"""The warp-specialised f64 product: the same sums as without roles, clean, and no warp waits for another."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from examples.hopper import f64
from examples.hopper.f64_roles import ROLES, build
from tests.errors import refused
from tests.kernels.test_f64 import SCHEDULES, bound, operands
from warploom.driver import toolchain
from warploom.runtime.machine import H200

SMALL = f64.Config(tile_m=64, tile_n=32, warps=(4, 2), stages=2)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("config", [ROLES, SMALL, replace(SMALL, stages=3)], ids=["shipped", "two", "three"])
def test_it_is_clean_under_every_schedule_and_gives_the_bits_of_the_kernel_without_roles(
    config: f64.Config, schedule: str, seed: int
):
    a, b = operands(150, 70, 106)
    report = build(config).emulate(a, b, schedule=schedule, seed=seed, machine=H200(sms=2))
    assert report.findings == []
    assert (np.abs(report.outputs[0] - a @ b.T) <= bound(a, b)).all()
    np.testing.assert_array_equal(report.outputs[0], f64.build().emulate(a, b, machine=H200(sms=2)).outputs[0])


@pytest.mark.parametrize("m, n, k", [(1, 2, 2), (33, 34, 16), (31, 66, 98), (200, 136, 18)])
def test_whole_numbers_beyond_f32_come_out_exact(m: int, n: int, k: int):
    draw = np.random.default_rng(1)
    a, b = (draw.integers(-(2**20), 2**20, shape).astype(np.float64) for shape in ((m, k), (n, k)))
    report = build(SMALL).emulate(a, b, machine=H200(sms=2))
    assert report.findings == []
    np.testing.assert_array_equal(report.outputs[0], a @ b.T)


def test_tiles_are_fetched_once_and_no_barrier_of_the_cta_is_in_the_loop():
    a, b = operands(128, 256, 64)
    report = build().emulate(a, b, machine=H200(sms=1))
    tiles, k_tiles = 2, 4
    assert report.counters.bank_conflicts == 0
    assert report.counters.tma_load_bytes == tiles * k_tiles * 2 * 128 * 16 * 8
    assert report.counters.matrix["mma"] == tiles * 8 * k_tiles * 2 * 8
    assert len(re.findall(r"\bbar\.sync|barrier\.sync", build().ptx())) == 1  # after the barriers have been made


def test_other_numbers_of_warps_are_refused():
    with refused("argument", expected="8 warps"):
        build(f64.Config(tile_n=64, warps=(4, 1)))


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize(
    "rule, line",
    [
        ("warp-synchronous", r".*bar\.warp\.sync.*\n"),
        ("generic-access-before-async-write", r".*fence\.proxy\.async\.shared::cta;\n"),
    ],
    ids=["no meeting", "no fence"],
)
def test_a_stage_that_is_given_back_too_early_is_found(rule: str, line: str):
    kernel = build(SMALL)
    mutant, count = re.subn(line, "", kernel.ptx())
    assert count
    a, b = operands(64, 32, 128)
    assert any(
        one.rule == rule
        for schedule, seed in SCHEDULES
        for one in kernel.emulate(a, b, ptx=mutant, schedule=schedule, seed=seed).findings
    )


def test_it_is_built_without_spills_and_remarks():
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = build().resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


@pytest.mark.full
def test_the_clock_sees_the_tensor_core_wait_less():
    a, b = (np.zeros((n, 1024)) for n in (2112, 2048))
    assert build().predict(a, b).clocks < 0.95 * f64.build().predict(a, b).clocks  # the clock frequency falls


@pytest.mark.gpu
@pytest.mark.parametrize("m, n, k", [(1, 2, 2), (200, 328, 136), (1000, 1046, 518), (2048, 2048, 1024)])
def test_on_a_gpu_it_gives_the_bits_of_the_kernel_without_roles(m: int, n: int, k: int):
    torch = pytest.importorskip("torch")
    given = [torch.from_numpy(x).cuda() for x in operands(m, n, k)]
    expected = f64.build()(*given)
    for _ in range(3):
        memory = torch.full((m + 64, n), 7.0, device="cuda", dtype=torch.float64)
        build()(*given, out=memory[:m])
        torch.cuda.synchronize()
        assert bool((memory[m:] == 7.0).all()) and bool((memory[:m] == expected).all())
