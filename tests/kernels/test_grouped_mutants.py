"""Mutants of grouped products: vectors loaded ahead, boxes kept inside the tensor, consumers that take turns."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from warploom.errors import WarploomError
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.grouped import build
from warploom.runtime.machine import H200
from warploom.types import e4m3, f32

IN_TURNS = Config("ping_pong", tile_m=64, tile_n=64, ctas=1, epi_stages=1, stages=3)
TOGETHER = Config(tile_m=128, tile_n=64, ctas=1, epi_stages=1, stages=3)
FP8, SCALED = Product(e4m3, e4m3, f32), Fusion(scales="row")
SCHEDULES = [("lazy", 0), ("eager", 0), ("starve", 0), *(("random", seed) for seed in range(4))]
N, K, SIZES = 136, 160, ([70, 0, 3, 30, 1], [9, 2])
MUTANTS = {
    "scales that are read before all have written theirs":
        (TOGETHER, r"(st\.shared\.f32 [^;]*;\s+)bar\.sync 1, 128;", r"\1"),
    "scales that are overwritten while others read": (TOGETHER, r"bar\.sync 1, 128;(?![\s\S]*bar\.sync 1, 128;)", ""),
    "scales of ones": (TOGETHER, r"@(%p\d+) st\.shared\.f32 (\[%r\d+\]), %f\d+;", r"@\1 st.shared.f32 \2, 0f3F800000;"),
    "the bytes of a whole box": (TOGETHER, r"(expect_tx\.shared::cta\.b64 _, \[%r\d+\]), %r\d+;", r"\1, 24576;"),
    "a turn that is not passed on": (IN_TURNS, r"bar\.arrive 4, 256;", ""),
    "a turn that is not waited for": (IN_TURNS, r"bar\.sync 4, 256;", ""),
}  # fmt: skip


def fails(config: Config, text: str) -> bool:
    """True if a text is found out, by a finding or a wrong result, under any schedule."""
    draw = np.random.default_rng(0)
    for sizes in SIZES:
        groups, rows, ends = len(sizes), sum(sizes), np.cumsum(sizes).astype(np.int32)
        a, b = (draw.integers(-4, 5, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((rows, K), (groups * N, K)))
        scale_a, scale_b = (2.0 ** draw.integers(-3, 4, count).astype(np.float32) for count in (rows, groups * N))
        group = np.repeat(np.arange(groups), sizes)
        wide = b.astype(np.float32).reshape(groups, N, K)[group] * scale_b.reshape(groups, N, 1)[group]
        right = np.einsum("mk,mnk->mn", a.astype(np.float32) * scale_a[:, None], wide)
        for schedule, seed in SCHEDULES:
            try:
                report = build(FP8, config, SCALED, "offsets").emulate(
                    a, b, ends, scale_a, scale_b, np.zeros((rows, N), np.float32),
                    machine=H200(sms=2), ptx=text, schedule=schedule, seed=seed,
                )  # fmt: skip
            except WarploomError:
                return True
            if not report.ok or not np.array_equal(report.outputs[0], right):
                return True
    return False


@pytest.mark.parametrize("config", [TOGETHER, IN_TURNS], ids=Config.name)
def test_the_text_without_a_mutation_is_right(config: Config):
    assert not fails(config, build(FP8, config, SCALED, "offsets").ptx())


@pytest.mark.sample(2, all=6)
@pytest.mark.parametrize("config, right, wrong", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_found(config: Config, right: str, wrong: str):
    text = build(FP8, config, SCALED, "offsets").ptx()
    mutant = re.sub(right, wrong, text, count=1)
    assert mutant != text and fails(config, mutant)
