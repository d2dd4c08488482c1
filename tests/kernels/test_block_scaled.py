"""Block-scaled products of 8-bit floats: right, clean, and more exact than the tensor core's own sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from warploom.driver import toolchain
from warploom.kernels.hopper.block_scaled import CONFIG, LARGE_ROWS, SCALE_BLOCK, build
from warploom.kernels.hopper.description import Config, Product
from warploom.runtime.machine import H200
from warploom.types import bf16, e4m3, e5m2

BOTH = pytest.mark.parametrize("config", [CONFIG, LARGE_ROWS], ids=Config.name)
BOUND = 2.5e-3
"""The rounding of a bf16 result, and a little for f32 sums."""


def case(m: int, n: int, k: int, seed: int = 0):
    """a, b, both scales as the kernel takes them, and the exact product."""
    draw = np.random.default_rng(seed)
    a, b = (draw.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, k), (n, k)))
    blocks, columns = -(-k // SCALE_BLOCK), -(-n // SCALE_BLOCK)
    scale_a = draw.uniform(0.01, 3, (blocks, m)).astype(np.float32)
    scale_b = draw.uniform(0.01, 3, (columns, blocks)).astype(np.float32)
    exact = np.zeros((m, n))
    for block in range(blocks):
        inside = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
        part = a[:, inside].astype(np.float64) @ b[:, inside].astype(np.float64).T
        exact += part * scale_a[block][:, None] * np.repeat(scale_b[:, block], SCALE_BLOCK)[:n]
    return a, b, scale_a, scale_b, exact


@pytest.mark.sample(1, all=1)
@BOTH
@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 128), (64, 128, 128), (200, 136, 336), (700, 392, 256)])
def test_it_is_right_and_clean(config: Config, m: int, n: int, k: int):
    *arguments, exact = case(m, n, k)
    for schedule, seed in (("lazy", 0), ("random", 1)):
        report = build(config=config).emulate(*arguments, schedule=schedule, seed=seed, machine=H200(sms=2))
        assert report.ok, report.findings
        found = report.outputs[0].astype(np.float64)
        assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < BOUND


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", [Product(e4m3, e4m3), Product(e5m2, e4m3)], ids=str)
@BOTH
def test_it_is_built_without_spills_and_remarks(config: Config, product: Product):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = build(product, config).resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


def test_what_cannot_be_built_is_said():
    with refused("configuration", expected="eight-bit floats, cooperative, one CTA, tile_n that divides 128"):
        build(Product(bf16, bf16))
    with refused("configuration", expected="eight-bit floats, cooperative, one CTA, tile_n that divides 128"):
        build(config=Config(tile_m=128, tile_n=192, ctas=1))
