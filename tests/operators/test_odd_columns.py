"""Results whose rows are not whole 16-byte pieces: TMA stores such pieces, and nothing beside `out` may change.

The emulator writes what an H200 does (benchmarks/tensor_store_edges.py), so a kernel that stored straight into such a
view would change the columns next to it.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom
from tests.errors import refused
from warploom.errors import CopyWarning
from warploom.kernels.hopper import block_scaled, gemm, grouped
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.operators import reference
from warploom.operators.bind import warned
from warploom.types import bf16, e4m3, f32

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
NUMPY = {"bf16": BF16, "f32": np.float32, "e4m3": E4M3}
LARGE = Config(tile_n=64, stages=3, ctas=1)
TALL = Config("ping_pong", 64, 64, stages=3, ctas=1, epi_stages=1)
quiet = pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")


def whole_numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(BF16)


@quiet
@given(
    m=st.integers(1, 150), n=st.integers(1, 90), k=st.integers(1, 40), kind=st.sampled_from(sorted(NUMPY)),
    config=st.sampled_from([None, LARGE, TALL]), left=st.integers(0, 2), width=st.integers(0, 40),
    seed=st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=12)
def test_what_is_beside_a_view_keeps_its_values(m, n, k, kind, config, left, width, seed):
    a, b = whole_numbers(seed, m, k), whole_numbers(seed + 1, k, n)
    piece = 16 // np.dtype(NUMPY[kind]).itemsize
    first = left * piece  # the view begins where TMA could store to it
    whole = np.full((m + 2, first + (n + width + piece - 1) // piece * piece), 24, NUMPY[kind])
    before = whole.astype(np.float32)
    out = whole[1 : m + 1, first : first + n]
    exact = reference.matmul(a, b)
    assert warploom.matmul(a, b, out=out, out_dtype=kind, config=config) is out
    assert np.array_equal(out.astype(np.float64), exact.astype(NUMPY[kind]).astype(np.float64))
    after = whole.astype(np.float32)
    after[1 : m + 1, first : first + n] = 24
    assert np.array_equal(after, before)


@quiet
@pytest.mark.parametrize("config", [LARGE, SmallMConfig(), None], ids=["large", "decode", "chosen"])
def test_one_row_that_is_no_whole_pieces(config):
    """A single row has no next one, and what is after it belongs to somebody else all the same."""
    a, b, whole = whole_numbers(0, 1, 64), whole_numbers(1, 64, 29), np.full(64, 24, BF16)
    warploom.matmul(a, b, out=whole[None, :29], config=config)
    assert np.array_equal(whole[:29].astype(np.float64), reference.matmul(a, b)[0])
    assert (whole[29:] == 24).all()


@quiet
def test_a_gate_and_an_addend_may_have_any_number_of_columns():
    a, b = whole_numbers(0, 70, 64), whole_numbers(1, 64, 29)
    gate, c = (np.full((70, 40), np.nan, BF16)[:, :29] for _ in range(2))
    gate[...], c[...] = whole_numbers(2, 70, 29), whole_numbers(3, 70, 29)
    whole = np.full((70, 40), 24, BF16)
    warploom.matmul(a, b, gate=gate, c=c, beta=1.0, out=whole[:, :29], config=LARGE)
    product = a.astype(np.float32) @ b.astype(np.float32)
    wanted = (product * gate.astype(np.float32) + c.astype(np.float32)).astype(BF16)
    assert np.array_equal(whole[:, :29].astype(np.float32), wanted.astype(np.float32))
    assert (whole[:, 29:] == 24).all()


@quiet
def test_scaled_blocks_with_any_number_of_columns():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(E4M3) for shape in ((70, 128), (128, 29)))
    whole = np.full((70, 40), 24, BF16)
    warploom.matmul(
        a, b, out=whole[:, :29], scale_a=np.ones((70, 1), np.float32), scale_b=np.ones((1, 1), np.float32),
        accumulate="precise",
    )  # fmt: skip
    assert np.array_equal(whole[:, :29].astype(np.float32), (a.astype(np.float32) @ b.astype(np.float32)).astype(BF16))
    assert (whole[:, 29:] == 24).all()


def test_the_copy_is_said():
    warned().clear()
    whole = np.zeros((16, 64), BF16)
    with pytest.warns(CopyWarning, match="copies `out`: its rows are not multiples of 16 bytes") as caught:
        for _ in range(2):
            warploom.matmul(whole_numbers(0, 16, 64), whole_numbers(1, 29, 64).T, out=whole[:, :29], config=LARGE)
    assert len(caught) == 1


def test_whole_pieces_are_stored_where_they_belong(recwarn):
    warned().clear()
    whole = np.full((16, 64), 24, BF16)
    warploom.matmul(whole_numbers(0, 16, 64), whole_numbers(1, 64, 40).copy(), out=whole[:, 8:48], config=LARGE)
    assert not [each for each in recwarn.list if issubclass(each.category, CopyWarning)]
    assert (whole[:, :8] == 24).all() and (whole[:, 48:] == 24).all()


KERNELS = {
    "gemm": (lambda: gemm.build(Product(), LARGE), 8),
    "f32": (lambda: gemm.build(Product(out=f32), LARGE), 4),
    "residual": (lambda: gemm.build(Product(), LARGE, Fusion(addend=True)), 8),
    "block_scaled": (lambda: block_scaled.build(), 8),
    "grouped": (lambda: grouped.build(), 8),
}


@pytest.mark.parametrize("which", KERNELS)
def test_kernels_that_store_by_tma_want_whole_pieces(which: str):
    build, piece = KERNELS[which]
    spec = build().program().arrays[-1]
    assert (spec.multiple, spec.pads_to_16b) == ((1, piece), False)


def test_a_kernel_refuses_other_rows_in_a_sentence():
    whole = np.zeros((16, 64), BF16)
    with refused("wrong-shape", got="shape (16, 29)") as caught:
        gemm.build(Product(), LARGE).emulate(whole_numbers(0, 16, 64), whole_numbers(1, 29, 64), out=whole[:, :29])
    assert "multiple of 8 " in caught.value.expected and "warploom.matmul" in caught.value.hint


@pytest.mark.parametrize("product", [Product(), Product(e4m3, e4m3, bf16)], ids=str)
def test_what_is_behind_the_rows_changes_nothing_in_the_text(product: Product):
    assert gemm.build(product, LARGE, pads_to_16b=True).ptx() == gemm.build(product, LARGE).ptx()
