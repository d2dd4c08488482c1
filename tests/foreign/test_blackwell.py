"""Kernels of Triton 3.6 and Gluon for sm_100a, built without a GPU (`blackwell/src`): right numbers, no error.

None was run on hardware. Descriptor arguments are a tensor map, then shape and strides, which the kernels do not read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.foreign.blackwell_arguments import atoms, descriptor
from warploom import asm
from warploom.emulator import api
from warploom.isa import dtypes
from warploom.sanitizer import Sanitizer

FOLDER = Path(__file__).parent / "blackwell"
SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 1), ("starve", 101), ("starve", 102), ("pct", 3)]
KNOWN = {"generic-access-before-async-write", "same-value-race"}
"""Warnings that are true of them: Triton copies over the word that held the allocation's address without a proxy fence,
and several warps store the same word."""
Case = Callable[[np.random.Generator], tuple[list[Any], tuple[int, int], np.ndarray, np.ndarray]]


def gluon(m: int, n: int, k: int) -> Case:
    """One tile for each CTA, one stage, three k-tiles."""

    def case(random: np.random.Generator) -> tuple[list[Any], tuple[int, int], np.ndarray, np.ndarray]:
        a, b = (random.standard_normal((rows, 3 * k)).astype(np.float16) for rows in (2 * m, n))
        c, inner = np.zeros((2 * m, n), np.float16), min(2 * k, 128)
        arguments = [*descriptor(a, m, inner=inner), *descriptor(b, n, inner=inner), *descriptor(c, m), np.uint32(3 * k)]
        return arguments, (2, 1), c, a.astype(float) @ b.astype(float).T

    return case


def by_descriptor(element: Any, dtype: dtypes.DType, k: int) -> Case:
    def case(random: np.random.Generator) -> tuple[list[Any], tuple[int, int], np.ndarray, np.ndarray]:
        a, b = (random.standard_normal((rows, 4 * k)).astype(element) for rows in (128, 256))
        c = np.zeros((128, 256), np.float16)
        sizes = [np.uint32(size) for size in (128, 256, 4 * k)]
        arguments = [*descriptor(a, 128, dtype), *descriptor(b, 128, dtype), *descriptor(c, 128, dtypes.f16), *sizes]
        return arguments, (1, 2), c, a.astype(float) @ b.astype(float).T

    return case


def by_pointer(random: np.random.Generator) -> tuple[list[Any], tuple[int, int], np.ndarray, np.ndarray]:
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((128, 256), (256, 256)))
    c = np.zeros((128, 256), np.float16)
    sizes = [np.uint32(size) for size in (128, 256, 256, 256, 256, 256)]
    return [a, b, c, *sizes], (1, 2), c, a.astype(float) @ b.astype(float)


def scaled(random: np.random.Generator) -> tuple[list[Any], tuple[int, int], np.ndarray, np.ndarray]:
    """mxfp8: e4m3 with a UE8M0 factor for each 32 elements of k."""
    m, n, k = 256, 128, 256
    a, b = (random.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
    of_a, of_b = (random.integers(124, 131, (rows, k // 32)).astype(np.uint8) for rows in (m, n))
    c = np.zeros((m, n), np.float16)
    sizes = [np.uint32(size) for size in (m, n, k)]
    maps = [*descriptor(a, 128, dtypes.e4m3), *descriptor(b, 128, dtypes.e4m3), *descriptor(c, 128, dtypes.f16)]
    left, right = (
        np.repeat(2.0 ** (scales.astype(float) - 127), 32, 1) * matrix.astype(float)
        for matrix, scales in ((a, of_a), (b, of_b))
    )
    return [*maps, atoms(of_a), atoms(of_b), *sizes], (2, 1), c, left @ right.T


CASES: dict[str, tuple[Case, int, int]] = {
    "gluon_tile_128x128x64": (gluon(128, 128, 64), 128, 32792),
    "gluon_tile_64x128x64": (gluon(64, 128, 64), 128, 24600),
    "gluon_tile_128x64x32": (gluon(128, 64, 32), 128, 16384),
    "triton_desc_128x128x64_f16": (by_descriptor(np.float16, dtypes.f16, 64), 128, 98352),
    "triton_desc_128x128x128_f8": (by_descriptor(ml_dtypes.float8_e4m3fn, dtypes.e4m3, 128), 128, 98352),
    "triton_ptr_128x128x64_bf16": (by_pointer, 128, 65552),
    "triton_mxfp8_128x128x128": (scaled, 128, 33288),
    "triton_ws_inner_128x128x64_f16": (by_descriptor(np.float16, dtypes.f16, 64), 256, 98524),
}
"""The arguments, threads, and dynamic shared memory of each text."""


@pytest.mark.sample(4, all=5)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])
@pytest.mark.parametrize("name", CASES)
def test_a_text_gives_numpys_numbers_and_breaks_no_rule(name: str, schedule: str, seed: int):
    case, threads, shared = CASES[name]
    arguments, grid, c, expected = case(np.random.default_rng(0))
    report = api.run(
        asm.parse((FOLDER / f"{name}.ptx").read_text(), name=name), None, [*arguments, np.uint64(0), np.uint64(0)],
        grid=(*grid, 1), block=(threads, 1, 1), dynamic_smem=shared, schedule=schedule, seed=seed, watch=[Sanitizer],
    )  # fmt: skip
    np.testing.assert_allclose(c.astype(float), expected, rtol=2**-10, atol=2**-10 * np.abs(expected).max())
    assert {finding.rule for finding in report.findings} <= KNOWN
    assert not [finding for finding in report.findings if finding.severity == "error"]


def test_every_text_has_a_case():
    assert {path.stem for path in FOLDER.glob("*.ptx")} == set(CASES)
