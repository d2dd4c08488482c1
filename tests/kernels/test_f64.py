"""The f64 product: right to the last bits, clean, and with the shared-memory cost of its docstring."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from examples.hopper.f64 import Config, build
from tests.errors import refused
from warploom.driver import toolchain
from warploom.runtime.machine import H200

SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1), ("starve", 0), ("starve", 1))
SMALL = Config(tile_m=32, tile_n=32, warps=(2, 2), stages=2)
CONFIGS = pytest.mark.parametrize(
    "config", [Config(), SMALL, replace(SMALL, stages=3)], ids=["shipped", "two", "three"]
)
EPSILON = 2.0**-53


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.standard_normal((m, k)), draw.standard_normal((n, k))


def bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of the error of a sum of k products in any order: k roundings, N. Higham, Accuracy and Stability, 3.1."""
    return a.shape[1] * EPSILON * (np.abs(a) @ np.abs(b).T)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@CONFIGS
def test_it_is_right_and_clean_under_every_schedule(config: Config, schedule: str, seed: int):
    a, b = operands(150, 70, 106)
    report = build(config).emulate(a, b, schedule=schedule, seed=seed, machine=H200(sms=2))
    assert report.findings == []
    assert (np.abs(report.outputs[0] - a @ b.T) <= bound(a, b)).all()


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("m, n, k", [(1, 2, 2), (33, 34, 16), (31, 66, 98), (128, 128, 18)])
def test_whole_numbers_beyond_f32_come_out_exact(m: int, n: int, k: int):
    draw = np.random.default_rng(1)
    a, b = (draw.integers(-(2**20), 2**20, shape).astype(np.float64) for shape in ((m, k), (n, k)))
    for config in (Config(), SMALL):
        report = build(config).emulate(a, b, machine=H200(sms=2))
        assert report.findings == []
        np.testing.assert_array_equal(report.outputs[0], a @ b.T)


def test_loads_from_shared_memory_are_wide_and_meet_in_no_bank():
    a, b = operands(128, 128, 64)
    counters = build().emulate(a, b, machine=H200(sms=1)).counters
    warps, k_tiles = 8, 4
    assert counters.bank_conflicts == 0
    assert counters.shared_load_bytes == warps * k_tiles * (32 + 64) * 16 * 8
    assert counters.matrix["mma"] == warps * k_tiles * 2 * 8


def test_what_it_cannot_do_is_refused():
    with refused("wrong-shape", got="shape (8, 7)"):
        build().emulate(*operands(8, 8, 7))
    with refused("argument", expected="for each a part in multiples of 16 x 8"):
        build(replace(SMALL, warps=(4, 2)))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "rule, line",
    [("cp-async-not-waited", r".*cp\.async\.wait_group.*\n"), ("data-race", r".*bar\.sync.*\n")],
    ids=["no wait", "no barrier"],
)
def test_bugs_in_the_text_are_found(rule: str, line: str):
    kernel = build(SMALL)
    mutant, count = re.subn(line, "", kernel.ptx())
    assert count
    a, b = operands(32, 32, 128)
    assert any(
        one.rule == rule
        for schedule, seed in SCHEDULES
        for one in kernel.emulate(a, b, ptx=mutant, schedule=schedule, seed=seed).findings
    )


def test_it_is_built_without_spills_and_remarks_and_its_instruction_is_one_of_the_machine():
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = build().resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())
    if toolchain.find("nvdisasm") or toolchain.find("cuobjdump"):
        assert set(re.findall(r"DMMA[.\w]*", build().sass())) == {"DMMA.16x8x16"}


@pytest.mark.full
def test_the_clock_counts_flops_of_f64_at_the_published_rate():
    a, b = (np.zeros((n, 1024)) for n in (2112, 2048))
    found = build().predict(a, b)
    peak = 256 * 132 * found.clock_mhz * 1e6
    assert 0.5 < 2 * 2112 * 2048 * 1024 / (found.us * 1e-6) / peak < 1


@pytest.mark.gpu
@pytest.mark.parametrize("m, n, k", [(1, 2, 2), (200, 328, 136), (1000, 1046, 518), (2048, 2048, 1024)])
def test_on_a_gpu_it_is_right_repeats_its_bits_and_keeps_to_its_array(m: int, n: int, k: int):
    torch = pytest.importorskip("torch")
    a, b = operands(m, n, k)
    on_gpu = [torch.from_numpy(x).cuda() for x in (a, b)]
    results = []
    for _ in range(3):
        memory = torch.full((m + 64, n), 7.0, device="cuda", dtype=torch.float64)
        build()(*on_gpu, out=memory[:m])
        torch.cuda.synchronize()
        assert bool((memory[m:] == 7.0).all())
        results.append(memory[:m].cpu().numpy())
    assert (np.abs(results[0] - a @ b.T) <= 2 * bound(a, b)).all()
    for result in results:
        np.testing.assert_array_equal(result, results[0])
