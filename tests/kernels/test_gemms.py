"""The GEMMs of the package on both machines: error bounds, and how far the two machines may differ.

Tensor cores truncate where the emulator's default arithmetic rounds to nearest, so sums that are exact agree bit for
bit, and others within one unit of the last place for each instruction along k.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from benchmarks import warp_specialised
from warploom.kernels.walkthrough import build_gemm_m64n64

INSTRUCTION_K = 16
UNIT = 2.0**-23

Product = Callable[[np.ndarray, np.ndarray, str], np.ndarray]


def walkthrough(a: np.ndarray, b: np.ndarray, machine: str) -> np.ndarray:
    """A @ B by the walkthrough kernel; `b` is (K, N)."""
    gemm = build_gemm_m64n64(a.shape[0], b.shape[1], a.shape[1])
    return run(gemm, machine, a, b)


def specialised(a: np.ndarray, b: np.ndarray, machine: str) -> np.ndarray:
    """A @ B by the warp-specialised kernel, which takes B as (N, K)."""
    return run(warp_specialised.build(), machine, a, np.ascontiguousarray(b.T))


def run(kernel, machine: str, *arrays: np.ndarray) -> np.ndarray:
    if machine == "emulator":
        return kernel(*arrays)
    torch = pytest.importorskip("torch")
    on_device = [torch.from_numpy(array.view(np.int16).copy()).cuda().view(torch.bfloat16) for array in arrays]
    return kernel(*on_device).cpu().numpy()


PRODUCTS = pytest.mark.parametrize("product", [walkthrough, specialised], ids=["walkthrough", "warp_specialised"])
MACHINES = pytest.mark.parametrize("machine", ["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])


def normal(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random normal bf16 operands (m, k) and (k, n)."""
    draw = np.random.default_rng(seed)
    return tuple(draw.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


@MACHINES
@PRODUCTS
@pytest.mark.parametrize("m, n, k", [(128, 128, 64), (128, 256, 192), (256, 128, 512)])
def test_the_relative_error_stays_below_what_the_arithmetic_allows(product: Product, machine: str, m, n, k):
    a, b = normal(m, n, k)
    exact = reference(a, b)
    error = np.linalg.norm(product(a, b, machine) - exact) / np.linalg.norm(exact)
    assert error < (1e-6 if machine == "emulator" else 2e-6 + 1.6e-9 * k)


@MACHINES
@PRODUCTS
def test_sums_that_are_exact_come_out_exact(product: Product, machine: str):
    draw = np.random.default_rng(1)
    a, b = (draw.integers(-8, 9, shape).astype(ml_dtypes.bfloat16) for shape in ((128, 256), (256, 128)))
    np.testing.assert_array_equal(product(a, b, machine), reference(a, b).astype(np.float32))


@pytest.mark.gpu
@PRODUCTS
@pytest.mark.parametrize("k", [64, 1024])
def test_the_two_machines_differ_by_a_unit_in_the_last_place_for_each_instruction(product: Product, k: int):
    a, b = normal(128, 128, k, seed=2)
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    allowed = (k / INSTRUCTION_K + 2) * UNIT * magnitude
    difference = np.abs(product(a, b, "gpu").astype(np.float64) - product(a, b, "emulator"))
    assert np.all(difference <= allowed), f"worst: {(difference / allowed).max():.3f} of what is allowed"


@PRODUCTS
@pytest.mark.parametrize("schedule, seed", [("eager", 0), ("random", 0), ("random", 7), ("starve", 0), ("starve", 3)])
def test_every_schedule_gives_the_same_bits(product: Product, schedule: str, seed: int):
    from warploom import config

    a, b = normal(128, 128, 192, seed=3)
    lazily = product(a, b, "emulator")
    with config.override(emulator={"schedule": schedule, "seed": seed}):
        np.testing.assert_array_equal(product(a, b, "emulator"), lazily)


def test_the_protocol_of_the_warp_specialised_kernel_names_its_roles_and_barriers():
    protocol = warp_specialised.build().protocol()
    for word in ("producer", "consumer", "full[0..3]", "empty[0..3]", "32768"):
        assert word in protocol
