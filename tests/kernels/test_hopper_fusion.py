"""Fused epilogues of the generated GEMMs: every form, with exact sums, so that any error comes from the epilogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.collective.ends import assert_rounded, call, expected, padded
from tests.kernels.test_hopper_gemm import SMALL, SMS
from warploom.driver import toolchain
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.gemm import build
from warploom.runtime.machine import H200
from warploom.types import bf16, e4m3, f32, s8, s32

EVERYTHING = Fusion(True, "row", "column", f32, "silu", True, True, False, True)
BY_TENSOR = Fusion(True, "tensor", "row", None, "gelu", False, True, False, True)


def run(config: Config, fusion: Fusion, product: Product, m: int, n: int, k: int, **options) -> None:
    """The kernel under the sanitizer against float64; sums of whole numbers are exact."""
    draw = np.random.default_rng(k)
    a, b = (draw.integers(-2, 3, shape).astype(t.numpy) for shape, t in (((m, k), product.a), ((n, k), product.b)))
    subject = call(fusion, product.out, m, n)
    subject.x[:] = a.astype(np.float64) @ b.astype(np.float64).T
    d = padded(np.zeros((m, n)), product.out)
    report = build(product, config, fusion, pads_to_16b=True).emulate(
        a, b, *subject.given.values(), out=d, machine=H200(sms=SMS), **options
    )
    report.raise_on_findings()
    y, error, (largest, off) = expected(fusion, subject)
    assert_rounded(d, y, error, product.out)
    if fusion.amax:
        assert abs(float(subject.given["amax"][0]) - largest) <= off


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("form", SMALL)
def test_every_form_ends_with_every_step(form: str):
    """Several tiles for each CTA, cut off at any row and column."""
    run(SMALL[form], EVERYTHING, Product(), 400, 131, 72)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule", ["random", "eager", "starve"])
@pytest.mark.parametrize("form", ["cooperative", "ping_pong", "staggered tail"])
def test_a_residual_comes_in_time_under_every_schedule(form: str, schedule: str):
    run(SMALL[form], Fusion(bias="column", addend=True), Product(), 400, 136, 64, schedule=schedule, seed=1)


OUTPUTS = {"bf16": Product(e4m3, e4m3), "e4m3": Product(e4m3, e4m3, e4m3), "f32": Product(out=f32)}


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("form", ["cooperative", "ping_pong", "staggered"])
def test_every_type_of_output(form: str, out: str):
    product = OUTPUTS[out]
    fusion = replace(BY_TENSOR, scale_out=product.out is e4m3)
    run(SMALL[form], fusion, product, 300, 144, 128)


@pytest.mark.parametrize("out, fusion", [(s32, Fusion()), (bf16, Fusion(scales="row", bias="column"))], ids=str)
def test_products_of_integers(out, fusion: Fusion):
    run(SMALL["cooperative"], fusion, Product(s8, s8, out), 130, 144, 128)


@pytest.mark.sample(3)
@pytest.mark.parametrize("tile_n", [8, 24, 176, 208, 256])
def test_widths_that_are_no_whole_boxes(tile_n: int):
    fusion = Fusion(bias="column", gate=True)
    run(Config(tile_m=64, tile_n=tile_n, consumers=1, stages=2, ctas=1), fusion, Product(), 70, tile_n + 9, 64)


LARGE = {
    "128x256": Config(),
    "256x192": Config(tile_m=256, tile_n=192, stages=3, epi_stages=3, multicast="a"),
    "ping_pong 128x192": Config("ping_pong", tile_n=192, stages=5, epi_stages=1),
    "staggered 256x128": Config("staggered", 256, 128),
}
ENDS = {
    "bias, gelu": Fusion(bias="column", activation="gelu"),
    "row scales, bias": Fusion(scales="row", bias="column", bias_dtype=f32),
    "residual": Fusion(bias="column", addend=True),
    "gate": Fusion(activation="silu", gate=True),
    "all of one array": Fusion(True, "row", "column", f32, "gelu_tanh", True, False, False, True),
}


@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
@pytest.mark.sample(1, full=5)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("config", LARGE)
def test_large_tiles_with_an_end_are_built_without_spills_and_remarks(config: str, end: str):
    resources = build(Product(), LARGE[config], ENDS[end]).resources()
    assert (resources.spill_stores, resources.spill_loads) == (0, 0)


@pytest.mark.sample(1)
@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("product", [Product(e4m3, e4m3), Product(e4m3, e4m3, e4m3), Product(out=f32)], ids=str)
def test_scaled_eight_bit_products_are_built_without_spills(product: Product):
    fusion = Fusion(scales="row", bias="column", bias_dtype=f32, scale_out=product.out is e4m3)
    assert build(product, LARGE["256x192"], fusion).resources().spill_stores == 0
