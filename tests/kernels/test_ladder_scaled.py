"""Every rung with C, alpha and beta, and with rows of any length: exact sums of whole numbers, clean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.collective.ends import padded
from tests.kernels.test_ladder import SMS, operands, reference
from warploom.driver import toolchain
from warploom.errors import ArgumentError
from warploom.kernels.ladder import RUNGS, Rung, find
from warploom.lang import Kernel
from warploom.runtime.machine import H200
from warploom.types import f32

SIZES = 70, 75, 40
"""Cut off in every tile; an odd number of columns, so that a row begins anywhere."""
BY_TMA = [rung for rung in RUNGS if rung.number >= 17]
TWINS = (2, 9, 12, 14, 18, 22)
"""Rungs that another one's function builds with other sizes or orders: their ends are the same code."""
EVERY_RUNG = pytest.mark.parametrize("rung", [
    pytest.param(rung, id=rung.module, marks=pytest.mark.slow if rung.number in TWINS else ()) for rung in RUNGS
])  # fmt: skip
QUICK = ("warp_tiling", "ampere_multistage", "registers", "large_tiles", "staggered")
"""Rungs whose scaled texts are assembled in every run of the tests: those with the most registers."""


def matrix(rung: Rung, values: np.ndarray) -> np.ndarray:
    """An array as the rung's result: where TMA stores it, rows are a multiple of 16 bytes apart."""
    return padded(values, rung.out) if rung in BY_TMA else values.astype(rung.out.numpy)


def built(rung: Rung, **options: Any) -> Kernel:
    """A kernel for rows of any length."""
    return rung.build(rung.load().Config(**({} if rung.number <= 3 else {"any_n": True}), **options))


def scaled(rung: Rung, **options: Any) -> Kernel:
    return built(rung, scaled=True, **options)


def whole(shape: tuple[int, int], seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def run(kernel: Kernel, rung: Rung, a: np.ndarray, b: np.ndarray, c: np.ndarray, **options: Any) -> None:
    kernel.emulate(a, b, c, machine=H200(sms=SMS), **options).raise_on_findings()


@EVERY_RUNG
def test_the_result_may_take_the_place_of_c(rung: Rung):
    m, n, k = SIZES
    a, b = operands(rung, m, n, k, whole=True)
    before = whole((m, n))
    c = matrix(rung, before)
    run(scaled(rung), rung, a, b, c, alpha=1.5, beta=-0.5, out=c, schedule="random", seed=2)
    np.testing.assert_array_equal(c, (1.5 * reference(rung, a, b) - 0.5 * before).astype(rung.out.numpy))


@EVERY_RUNG
def test_c_is_not_read_where_beta_is_0_and_alpha_may_be_0(rung: Rung):
    m, n, k = SIZES
    a, b = operands(rung, m, n, k, whole=True)
    d = matrix(rung, np.zeros((m, n)))
    run(scaled(rung), rung, a, b, matrix(rung, np.full((m, n), np.nan)), alpha=2, beta=0, out=d)
    np.testing.assert_array_equal(d, (2 * reference(rung, a, b)).astype(rung.out.numpy))
    run(scaled(rung), rung, a, b, matrix(rung, whole((m, n))), alpha=0, beta=3, out=d, check=False)
    np.testing.assert_array_equal(d, 3 * whole((m, n)))


@EVERY_RUNG
def test_rows_may_have_any_length(rung: Rung):
    m, _, k = SIZES
    for n in (1, 102):
        a, b = operands(rung, m, n, k, seed=n, whole=True)
        c = matrix(rung, np.full((m, n), 9))
        built(rung).emulate(a, b, out=c, machine=H200(sms=SMS)).raise_on_findings()
        np.testing.assert_array_equal(c, reference(rung, a, b).astype(rung.out.numpy))
        if rung in BY_TMA:
            pieces = -(-n // 8) * 8
            assert (np.asarray(c.base, np.float32)[:, pieces:] == 96).all(), "written behind whole 16 bytes"


@pytest.mark.parametrize("rung", BY_TMA, ids=lambda rung: rung.module)
def test_rows_that_tma_cannot_store_are_refused_and_what_to_do_is_said(rung: Rung):
    """Rows that begin anywhere, and rows behind which it would write."""
    a, b = operands(rung, 64, 75, 64)
    with pytest.raises(ArgumentError, match="150 bytes") as caught:
        built(rung).emulate(a, b)
    for part in ("a multiple of 16", "pad the rows of the array to a multiple of 8 elements", "warploom.matmul"):
        assert part in str(caught.value)
    with pytest.raises(ArgumentError, match="no whole 16-byte pieces") as caught:
        rung.build().emulate(a, b, out=matrix(rung, np.zeros((64, 75))))
    for part in ("a multiple of 8", "80 long", "warploom.matmul"):
        assert part in str(caught.value)


@pytest.mark.parametrize("which", ["warp_tiling", "register_staged", "cp_async_wgmma", "tma_wgmma", "staggered"])
def test_an_odd_k_is_refused_and_what_to_do_is_said(which: str):
    rung = find(which)
    with pytest.raises(ArgumentError) as caught:
        rung.build().emulate(*operands(rung, 64, 64, 63))
    for part in (
        f"a multiple of {'4' if which == 'warp_tiling' else '8' if rung.number < 8 else '16'}",
        "warploom.matmul",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("which", ["naive_coalesced", "ampere_multistage", "registers", "stmatrix", "split_tail"])
def test_a_result_that_overlaps_c_elsewhere_is_refused(which: str):
    rung = find(which)
    a, b = operands(rung, 64, 64, 64)
    memory = np.zeros((65, 64), rung.out.numpy)
    with pytest.raises(ArgumentError, match="overlap in memory") as caught:
        scaled(rung).emulate(a, b, memory[1:], alpha=1, beta=1, out=memory[:64])
    assert "both the very same" in str(caught.value)


@pytest.mark.parametrize("which", ["ampere_multistage", "tma_wgmma", "two_consumers"])
def test_f32_results_are_scaled_too(which: str):
    rung = find(which)
    m, n, k = SIZES
    a, b = operands(rung, m, n, k, whole=True)
    c = whole((m, n)).astype(np.float32)
    report = scaled(rung, out=f32).emulate(a, b, c, alpha=0.5, beta=1, machine=H200(sms=SMS))
    report.raise_on_findings()
    np.testing.assert_array_equal(report.outputs[0], 0.5 * reference(rung, a, b) + c)


@pytest.mark.parametrize("rung", [
    rung if rung.name in QUICK else pytest.param(rung, marks=pytest.mark.slow) for rung in RUNGS
], ids=lambda rung: rung.module)  # fmt: skip
def test_it_assembles_without_spills_and_remarks(rung: Rung):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = scaled(rung).resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


# -- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("m, n, k", [SIZES, (1000, 1047, 520), (1000, 1050, 520)])
@EVERY_RUNG
def test_on_a_gpu_in_place_and_where_c_is_not_read(rung: Rung, m: int, n: int, k: int):
    torch = pytest.importorskip("torch")
    dtype = torch.bfloat16 if rung.out is not f32 else torch.float32
    a, b = (torch.from_numpy(x.astype(np.float32)).to("cuda", dtype) for x in operands(rung, m, n, k, whole=True))
    exact = a.double() @ (b.T if rung.layout == "TN" else b).double()
    pitch = -(-n // 8) * 8 + 8 if rung in BY_TMA else n
    kernel, memory = scaled(rung), torch.full((m + 8, pitch), 7.0, device="cuda", dtype=dtype)
    c = memory[:m, :n]
    c.copy_(torch.from_numpy(whole((m, n))))
    before = c.double()
    kernel(a, b, c, alpha=1.5, beta=-0.5, out=c)
    assert torch.equal(c, (1.5 * exact - 0.5 * before).to(dtype))
    assert bool((memory[m:] == 7.0).all()) and bool((memory[:m, -(-n // 8) * 8 :] == 7.0).all())
    nothing = torch.full((m, pitch), float("nan"), device="cuda", dtype=dtype)[:, :n]
    kernel(a, b, nothing, alpha=2.0, beta=0.0, out=c)
    assert torch.equal(c, (2 * exact).to(dtype))
