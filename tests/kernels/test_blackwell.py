"""Kernels for sm_100: right numbers under every schedule at ragged sizes, no finding, no spill. Not run on hardware."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.events import Observer
from warploom.errors import ArgumentError, UnrecordedWarning
from warploom.kernels.blackwell import block_scaled, gemm, grouped, minimal, specialised
from warploom.kernels.blackwell.block_scaled import MXFP8, NVFP4, Format
from warploom.lang import Kernel
from warploom.runtime import B200
from warploom.types import e4m3, f16

SCHEDULES = ("lazy", "eager", "random", "starve", "pct")
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn}
KERNELS = {
    "minimal": (lambda: minimal.build(minimal.Config(tile_n=64)), "bf16", (200, 136, 136)),
    "minimal f16": (lambda: minimal.build(minimal.Config(tile_n=32, dtype=f16)), "f16", (130, 40, 72)),
    "minimal e4m3": (lambda: minimal.build(minimal.Config(tile_n=32, tile_k=128, dtype=e4m3)), "e4m3", (130, 40, 144)),
    "specialised": (lambda: specialised.build(specialised.Config(tile_n=64, stages=2)), "bf16", (379, 200, 200)),
    "one accumulator": (
        lambda: specialised.build(specialised.Config(tile_n=32, stages=3, buffers=1)), "bf16", (260, 72, 136),
    ),
    "launch control": (
        lambda: gemm.build(gemm.Config(tile_m=128, tile_n=64, stages=2)), "bf16", (379, 200, 200),
    ),
    "pair": (lambda: gemm.build(gemm.Config(tile_n=64, stages=2)), "bf16", (763, 136, 200)),
}  # fmt: skip
"""Small tiles, so that a product has several of them: kernel, type, (m, n, k)."""


def operands(dtype: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B, and A @ Bᵀ in float64."""
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal((rows, k)).astype(TYPES[dtype]) for rows in (m, n))
    return a, b, a.astype(float) @ b.astype(float).T


@pytest.mark.sample(5, full=8)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_right_and_clean_under_every_schedule(name: str, schedule: str):
    build, dtype, size = KERNELS[name]
    a, b, expected = operands(dtype, *size)
    report = build().emulate(a, b, schedule=schedule, seed=1, machine=B200(sms=4))
    assert report.findings == []
    np.testing.assert_allclose(report.outputs[-1].astype(float), expected, rtol=2**-8, atol=1e-2)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("limits", ["bounds", "offsets", "sizes"])
def test_groups_of_any_size_are_right_and_clean_under_every_schedule(limits: str, schedule: str):
    """One group is empty, one has a row, one two tiles of rows; with sizes there are gaps, which stay as they are."""
    sizes, n, k = np.array([20, 0, 1, 129], np.int32), 24, 40
    rows = 4 * 130 if limits == "sizes" else int(sizes.sum())
    begins = np.arange(4, dtype=np.int32) * 130 if limits == "sizes" else (np.cumsum(sizes) - sizes).astype(np.int32)
    a, b, products = operands("bf16", rows, 4 * n, k)
    expected = np.full((rows, n), 7.0)
    for group, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        expected[begin : begin + size] = products[begin : begin + size, group * n : (group + 1) * n]
    marks = {"bounds": (begins, begins + sizes), "offsets": (begins + sizes,), "sizes": (sizes,)}[limits]
    report = grouped.build(config=gemm.Config(128, 32, 2), limits=limits).emulate(
        a, b, *marks, out=np.full((rows, n), 7, TYPES["bf16"]), schedule=schedule, seed=1, machine=B200(sms=3)
    )
    assert report.findings == []
    np.testing.assert_allclose(report.outputs[-1].astype(float), expected, rtol=2**-8, atol=1e-2)


def test_the_last_columns_of_an_odd_n_are_stored_one_by_one_which_is_noted():
    a, b, expected = operands("bf16", 260, 37, 72)
    kernel = gemm.build(gemm.Config(tile_n=32, stages=2), whole=False)
    report = kernel.emulate(a, b, out=np.zeros((260, 40), TYPES["bf16"])[:, :37], machine=B200(sms=4))
    assert {(one.rule, one.severity) for one in report.findings} == {("uncoalesced-access", "performance")}
    np.testing.assert_allclose(report.outputs[-1].astype(float), expected, rtol=2**-8, atol=1e-2)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("how", ["grant", "decline", "random"])
def test_every_tile_is_computed_whatever_launch_control_answers(how: str):
    a, b, expected = operands("bf16", 700, 72, 136)
    kernel = gemm.build(gemm.Config(tile_n=32, stages=2))
    report = kernel.emulate(a, b, schedule="random", seed=2, machine=B200(sms=2, launch_control=how))
    ctas = report.counters.ctas
    assert report.findings == [] and ctas == {"decline": 18, "random": ctas}.get(how, ctas)
    np.testing.assert_allclose(report.outputs[-1].astype(float), expected, rtol=2**-8, atol=1e-2)


SOMETIMES = pytest.mark.full


@pytest.mark.parametrize(
    "build, config",
    [
        (minimal.build, ()), (specialised.build, ()), (gemm.build, ()), (block_scaled.build, ()),
        pytest.param(gemm.build, (gemm.Config(tile_n=128, stages=8),), marks=SOMETIMES),
        pytest.param(gemm.build, (gemm.Config(tile_m=128, stages=4),), marks=SOMETIMES),
        pytest.param(block_scaled.build, (block_scaled.Config(NVFP4, stages=4),), marks=SOMETIMES),
    ],
    ids=["minimal", "specialised", "256x256", "mxfp8", "256x128", "128x256", "nvfp4"],
)  # fmt: skip
def test_no_kernel_spills(build: Callable[..., Kernel], config: tuple[object, ...]):
    resources = build(*config).resources()
    assert resources.arch == "sm_100a" and resources.spill_stores == 0 and resources.stack == 0


# -- scale factors -------------------------------------------------------------------------------------------------


def atoms(factors: np.ndarray, blocks: int) -> np.ndarray:
    """Factors (rows, blocks) as atoms of 128 rows and 4 blocks, filled up with zeros to whole atoms and `blocks`."""
    rows, count = factors.shape
    whole = np.pad(factors, ((0, -rows % 128), (0, -count % blocks)))
    parts = whole.reshape(whole.shape[0] // 128, 4, 32, whole.shape[1] // 4, 4)
    return np.ascontiguousarray(parts.transpose(0, 3, 2, 1, 4)).reshape(*parts.shape[:1], parts.shape[3], 512)


def scaled(form: Format, rows: int, k: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An operand as stored, the atoms of its factors, and its values in float64."""
    if form is MXFP8:
        stored = random.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn)
        codes = random.integers(124, 131, (rows, k // 32)).astype(np.uint8)
        values, factors = stored.astype(float), 2.0 ** (codes.astype(float) - 127)
    else:
        elements = random.integers(0, 16, (rows, k)).astype(np.uint8)
        table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        values = np.concatenate([table, -table])[elements]
        stored = elements[:, 0::2] | elements[:, 1::2] << 4
        narrow = random.uniform(0.5, 2, (rows, k // 16)).astype(ml_dtypes.float8_e4m3fn)
        codes, factors = narrow.view(np.uint8), narrow.astype(float)
    return stored, atoms(codes, form.tile_k // form.block), values * np.repeat(factors, form.block, 1)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("form", "tile_n", "size"),
    [(MXFP8, 128, (200, 136, 384)), (NVFP4, 128, (130, 136, 768)), (MXFP8, 256, (129, 264, 160))],
    ids=["mxfp8", "nvfp4", "mxfp8 256"],
)  # fmt: skip
def test_blocks_of_both_operands_are_scaled(form: Format, tile_n: int, size: tuple[int, int, int], schedule: str):
    m, n, k = size
    random = np.random.default_rng(1)
    (a, of_a, left), (b, of_b, right) = (scaled(form, rows, k, random) for rows in (m, n))
    config = block_scaled.Config(form, tile_n, stages=2, buffers=1 if tile_n == 256 else 2)
    report = block_scaled.build(config).emulate(a, b, of_a, of_b, schedule=schedule, seed=1, machine=B200(sms=2))
    expected = left @ right.T
    assert report.findings == []
    np.testing.assert_allclose(report.outputs[-1].astype(float), expected, rtol=2**-8, atol=2**-8)


WRONG_ATOMS = {
    "rows of A": ((1, 2), (1, 2)), "more rows of A": ((3, 2), (1, 2)), "rows of B": ((2, 2), (2, 2)),
    "blocks": ((2, 1), (1, 1)), "more blocks": ((2, 4), (1, 4)),
}  # fmt: skip


@pytest.mark.parametrize("of_a, of_b", WRONG_ATOMS.values(), ids=WRONG_ATOMS)
def test_scale_factors_of_other_matrices_are_refused_before_anything_runs(of_a: tuple[int, int], of_b: tuple[int, int]):
    a, b = (np.zeros((rows, 256), ml_dtypes.float8_e4m3fn) for rows in (200, 128))
    scales = [np.zeros((*shape, 512), np.uint8) for shape in (of_a, of_b)]
    with pytest.raises(ArgumentError) as caught:
        block_scaled.build()(a, b, *scales)
    assert caught.value.code == "wrong-shape"


class Issues(Observer):
    """Of products and loads of tensor memory: which, and its columns, in the order of issue."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def issued(self, operation: AsyncOperation) -> None:
        key = operation.issuer.operation.bound.match.form.key  # type: ignore[union-attr]
        if key.startswith("tcgen05.mma"):
            self.seen.append(("mma", operation.targets[0].columns.start))  # type: ignore[attr-defined]
        elif key == "tcgen05.ld":
            self.seen.append(("ld", operation.sources[0].columns.start))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("buffers", "overlaps"), [(2, True), (1, False)])
def test_with_two_accumulators_the_next_tile_is_multiplied_while_this_one_is_stored(buffers: int, overlaps: bool):
    """The schedule of ping-pong: the next tile's first product may be issued before this tile's last load; with one
    accumulator it never is."""
    kernel = specialised.build(specialised.Config(tile_n=64, stages=2, buffers=buffers))
    a, b, _ = operands("bf16", 256, 64, 64)

    def overlap(seed: int) -> bool:
        watch = Issues()
        kernel.emulate(
            a, b, check=False, watch=lambda machine: watch, machine=B200(sms=1), schedule="random", seed=seed
        )
        kinds = [what for what, _ in watch.seen]
        second = [at for at, what in enumerate(kinds) if what == "mma"][64 // 16]
        last_load_of_the_first = [at for at, what in enumerate(kinds) if what == "ld"][2 * 4 - 1]
        assert kinds.count("ld") == 2 * 2 * 4
        return second < last_load_of_the_first

    assert any(overlap(seed) for seed in range(6)) == overlaps


def test_the_number_of_products_and_the_bytes_of_their_operands_follow_from_the_tiles():
    a, b, _ = operands("bf16", 256, 128, 192)
    report = gemm.build(gemm.Config(tile_n=64, stages=2)).emulate(a, b, check=False, machine=B200(sms=2))
    tiles, steps = 2, 192 // 16
    assert report.counters.tcgen05 == tiles * steps
    assert report.counters.tensor_flops == 2 * 256 * 128 * 192
    assert report.counters.matrix_operand_bytes == tiles * steps * (256 + 64) * 32
    assert report.counters.tensor_memory_load_bytes == 256 * 128 * 4


def test_hardware_numerics_say_that_nobody_recorded_them():
    a, b, expected = operands("bf16", 128, 32, 64)
    with pytest.warns(UnrecordedWarning):
        report = minimal.build(minimal.Config(tile_n=32)).emulate(a, b, check=False, numerics="hardware")
    np.testing.assert_allclose(report.outputs[-1].astype(float), expected, rtol=2**-8, atol=1e-2)
