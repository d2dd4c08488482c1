"""`matmul(a, b, c=sums, beta=1.0, out=sums)`: a product is added in place, as in gradient accumulation."""

from __future__ import annotations

import numpy as np
import pytest

import warploom
from tests.operators.test_matmul import BF16, draw
from warploom import config
from warploom.errors import ArgumentError

FORMS = ["small_m:", "free_tile:", "free_tile:tile_m=64,tile_n=24,consumers=1", "hopper_large:tile_n=64,tile_m=128", ""]
SIZES = [(40, 72, 64), (70, 104, 136), (1, 8, 64), (17, 67, 72)]


def matrices(m: int, n: int, k: int):
    generator = np.random.default_rng(m)
    a, b = draw(generator, (m, k), BF16), draw(generator, (n, k), BF16).T
    return a, b, a.astype(np.float32) @ b.astype(np.float32), generator


@pytest.mark.sample(3, all=3)
@pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_added_to_what_is_there_by_every_form(form: str, sizes: tuple, kind: str):
    if kind == "f32" and form.startswith("free_tile"):
        pytest.skip("free tiles have results of 16 bits")
    a, b, product, generator = matrices(*sizes)
    dtype = np.float32 if kind == "f32" else BF16
    sums = draw(generator, product.shape, dtype)
    expected = sums.astype(np.float32) + 0.5 * product
    fits = sizes[0] <= 64 if form == "small_m:" else sizes[1] % 8 == 0
    pinned = {"config": form} if form and fits else {}
    with config.override(emulator={"check": True}):
        found = warploom.matmul(a, b, alpha=0.5, c=sums, beta=1.0, out=sums, **pinned)
    assert found is sums
    assert np.abs(sums.astype(np.float32) - expected).max() / np.abs(expected).max() < 2**-7


@pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")
@pytest.mark.parametrize("view", [lambda w: w[:, 5:77], lambda w: w[::2, 1:145:2], lambda w: w[:40, :72]])
def test_views_of_wider_arrays_are_added_to_and_nothing_beside_them(view):
    a, b, product, generator = matrices(40, 72, 64)
    whole = draw(generator, (80, 160), np.float32)
    before = whole.copy()
    sums = view(whole)[:40]
    expected = sums + product
    warploom.matmul(a, b, c=sums, beta=1.0, out=sums)
    assert np.abs(sums - expected).max() / np.abs(expected).max() < 2**-7
    sums[...] = view(before)[:40]
    assert np.array_equal(whole, before)


def test_sums_of_many_parts_stay_in_f32():
    a, b, product, _ = matrices(40, 72, 64)
    sums = np.zeros(product.shape, np.float32)
    for _ in range(5):
        warploom.matmul(a, b, c=sums, beta=1.0, out=sums)
    assert np.abs(sums - 5 * product).max() / np.abs(product).max() < 1e-4


def test_an_addend_that_is_only_partly_the_result_is_refused():
    a, b, product, generator = matrices(40, 72, 64)
    room = draw(generator, (41, 72), np.float32)
    with pytest.raises(ArgumentError) as caught:
        warploom.matmul(a, b, c=room[1:], beta=1.0, out=room[:-1])
    assert caught.value.code == "overlap"
    with pytest.raises(ArgumentError):
        warploom.matmul(a, b, gate=room[1:], out=room[1:])
