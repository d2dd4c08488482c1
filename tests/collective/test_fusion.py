"""Fused epilogues: every step against float64, all steps together, edges, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.collective.ends import assert_rounded, call, ending, expected
from tests.errors import refused
from warploom.collective import TmaStore
from warploom.collective.epilogue.apply import Epilogue
from warploom.collective.epilogue.arguments import epilogue_arguments, result_tile
from warploom.collective.epilogue.spec import ACTIVATIONS, Fusion
from warploom.lang import kernel, reg
from warploom.types import bf16, e4m3, e5m2, f16, f32, s32, u32

STEPS = {
    "alpha": Fusion(alpha=True),
    "tensor scales": Fusion(scales="tensor"),
    "row scales": Fusion(scales="row"),
    "alpha and row scales": Fusion(alpha=True, scales="row"),
    "column bias": Fusion(bias="column"),
    "column bias f32": Fusion(bias="column", bias_dtype=f32),
    "row bias": Fusion(bias="row"),
    "row bias f32": Fusion(bias="row", bias_dtype=f32),
    **{name: Fusion(activation=name) for name in ACTIVATIONS},
    "gate": Fusion(gate=True),
    "addend": Fusion(addend=True),
    "amax": Fusion(amax=True),
    "scaled bias": Fusion(scales="row", bias="column"),
}
EVERYTHING = Fusion(True, "row", "column", f32, "silu", True, True, False, True)
BY_TENSOR = Fusion(True, "tensor", "row", None, "gelu", True, True, False, True)


def run(fusion: Fusion, out, m: int, n: int, tile_n: int, **options) -> None:
    """The end of a product against float64, and `amax`."""
    subject = call(fusion, out, m, n)
    d = subject.run(ending(out, tile_n, fusion, **options), out)
    y, error, (largest, off) = expected(fusion, subject)
    assert_rounded(d, y, error, out)
    if fusion.amax:
        assert abs(float(subject.given["amax"][0]) - largest) <= off


@pytest.mark.sample(4, all=4)
@pytest.mark.parametrize("name", STEPS)
def test_every_step(name: str):
    run(STEPS[name], bf16, 90, 104, 72)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("out", [f16, f32, e4m3, e5m2], ids=str)
@pytest.mark.parametrize("fusion", [EVERYTHING, BY_TENSOR], ids=["row", "tensor"])
def test_all_steps_for_every_type(out, fusion: Fusion):
    run(replace(fusion, scale_out=out.bits == 8), out, 90, 112, 96)


@pytest.mark.sample(2)
@pytest.mark.parametrize("tile_n", [8, 24, 64, 72, 176, 208, 256])
def test_all_steps_for_every_width(tile_n: int):
    run(EVERYTHING, bf16, 70, tile_n + 8, tile_n)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("epi_stages", [1, 2, 3, 5])
@pytest.mark.parametrize("schedule", ["random", "starve"])
def test_boxes_beside_the_result_come_into_stages_that_are_free(epi_stages: int, ahead: bool, schedule: str):
    """Two boxes in each of four blocks; the first ones come before the accumulators are complete, or with them."""
    fusion = Fusion(gate=True, addend=ahead)
    subject = call(fusion, bf16, 200, 72)
    d = subject.run(ending(bf16, 72, fusion, blocks=2, epi_stages=epi_stages, ahead=ahead), bf16, schedule=schedule)
    assert_rounded(d, *expected(fusion, subject)[:2], bf16)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("out", [bf16, f32, e4m3], ids=str)
@pytest.mark.parametrize("spare", [0, 24, 200])
def test_few_or_many_registers_for_what_is_loaded_make_no_difference(out, spare: int):
    fusion = replace(EVERYTHING, scale_out=out.bits == 8)
    run(fusion, out, 64, 80, 80, spare=spare)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("m, n", [(1, 1), (64, 64), (65, 71), (129, 9), (7, 130)])
def test_nothing_outside_of_the_arrays_is_read(m: int, n: int):
    """The arrays end where the tiles go on, at any column; the emulator knows where."""
    run(EVERYTHING, bf16, m, n, 64, blocks=2)
    run(BY_TENSOR, f32, m, n, 64)


def test_results_beyond_eight_bits_are_the_largest_number():
    subject = call(Fusion(alpha=True), e4m3, 64, 64)
    subject.given["alpha"] = np.float32(1000.0)  # type: ignore[index]
    d = subject.run(ending(e4m3, 64, Fusion(alpha=True)), e4m3).astype(np.float32)
    assert np.abs(d).max() == 448 and np.isfinite(d).all()


@pytest.mark.parametrize("value, most", [(np.nan, np.nan), (-np.inf, np.inf), (-7.5, 7.5)])
def test_the_largest_size_knows_signs_infinities_and_no_numbers(value: float, most: float):
    subject = call(Fusion(amax=True), bf16, 70, 40)
    subject.x[:] = 1
    subject.x[69, 39] = value
    subject.run(ending(bf16, 40, Fusion(amax=True)), bf16)
    np.testing.assert_array_equal(subject.given["amax"], np.float32(most))


@pytest.mark.parametrize("bias", ["row", "column"])
def test_the_largest_size_keeps_what_was_there_and_counts_no_element_outside(bias: str):
    """A row's bias goes on beyond the last column, and a column's below the last row; elements inside are less."""
    fusion = Fusion(bias=bias, amax=True)
    subject = call(fusion, bf16, 70, 40)
    subject.given["bias"][:] = 4
    subject.x[:] = -2
    for before, after in ((0, 2), (3, 3)):
        subject.given["amax"][:] = before
        subject.run(ending(bf16, 64, fusion), bf16)
        assert subject.given["amax"][0] == after


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_infinities_and_no_numbers_pass_through(activation: str | None):
    fusion = Fusion(alpha=True, activation=activation)
    subject = call(fusion, f32, 64, 32)
    subject.x[0, :3] = np.inf, -np.inf, np.nan
    d = subject.run(ending(f32, 32, fusion), f32)
    np.testing.assert_array_equal(d[0, :3], [np.inf, -np.inf if activation is None else 0, np.nan])


def test_a_product_of_integers_becomes_a_float_before_it_is_scaled():
    fusion = Fusion(scales="row", bias="column")
    subject = call(fusion, bf16, 70, 48)
    x = np.random.default_rng(1).integers(-(2**20), 2**20, subject.x.shape).astype(np.int32)
    d = np.zeros(x.shape, bf16.numpy)
    ending(bf16, 48, fusion, accumulator=s32).emulate(x, *subject.given.values(), out=d).raise_on_findings()
    subject.x[:] = x
    assert_rounded(d, *expected(fusion, subject)[:2], bf16)


def test_arguments_are_those_that_the_steps_need():
    assert epilogue_arguments(Fusion(), bf16) == {}
    names = epilogue_arguments(Fusion(True, "tensor", "column", f32, "relu", True, True, True, True), e4m3)
    assert list(names) == ["scale_a", "scale_b", "bias", "gate", "C", "scale_out", "amax", "alpha", "beta"]
    assert names["bias"].dtype is f32 and names["gate"].dtype is e4m3
    assert epilogue_arguments(Fusion(bias="row"), e5m2)["bias"].dtype is f32


@pytest.mark.parametrize(
    "fusion, out, says",
    [
        (Fusion(scales="block128"), bf16, "'block128'"),
        (Fusion(bias="both"), bf16, "'both'"),
        (Fusion(activation="tanh"), bf16, "'tanh'"),
        (Fusion(bias="row", bias_dtype=e4m3), bf16, "e4m3"),
        (Fusion(scale_out=True), bf16, "bf16"),
        (Fusion(alpha=True), s32, "s32"),
    ],
    ids=["scales", "bias", "activation", "bias type", "scale_out", "integers"],
)
def test_ends_that_do_not_exist_are_refused(fusion: Fusion, out, says: str):
    with refused("argument", got=says):
        epilogue_arguments(fusion, out)


def test_an_end_that_was_not_begun_is_refused():
    @kernel(out_specs=(result_tile("M", "N", bf16),), grid=(1,), block=128, arch="sm_90a")
    def subject(D):
        Epilogue(Fusion(amax=True), D, {}).block(reg.scalar(u32, init=0), reg.scalar(u32, init=0))

    with refused("trace", expected="begin() of the store, by every consumer before its first tile"):
        subject.ptx()


def test_an_array_beside_the_result_has_its_type_and_boxes():
    @kernel(
        in_specs=(result_tile("M", "N", f32),), out_specs=(result_tile("M", "N", bf16),), grid=(1,), block=128,
        arch="sm_90a",
    )  # fmt: skip
    def subject(gate, D):
        TmaStore(D, 1, epilogue=Epilogue(Fusion(gate=True), D, {"gate": gate}))

    with refused("trace", got="f32, box=(32, 64), swizzle='128B'"):
        subject.ptx()
