"""Scores that break a softmax, through every kind of call: jumps beyond f32's range, NaN, inf, rows without keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom

ROWS, KEYS, DIM = 4, 150, 64
EIGHT = ml_dtypes.float8_e4m3fn
ERROR = {"e4m3": 0.1}


def dense(q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, Any]:
    return warploom.attention(q, k, v, causal=True, scale=1.0, return_lse=True, **options)


def varlen(q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, Any]:
    """The second of three sequences; the others are of ones."""
    arrays = [np.concatenate([np.ones_like(x)[0], x[0], np.ones_like(x)[0]], 1).swapaxes(0, 1) for x in (q, k, v)]
    ends = [np.array([0, n, 2 * n, 3 * n], np.int32) for n in (q.shape[2], k.shape[2])]
    out, lse = warploom.attention_varlen(*arrays, *ends, causal=True, scale=1.0, return_lse=True, **options)
    mine = slice(q.shape[2], 2 * q.shape[2])
    assert np.isfinite(np.asarray(out, np.float32)[: q.shape[2]]).all(), "the sequence in front"
    return out.swapaxes(0, 1)[None, :, mine], lse[:, :, mine]


def decode(q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, Any]:
    lengths = np.array([k.shape[2]], np.int32)
    return warploom.attention_decode(q, k, v, lengths, scale=1.0, return_lse=True, **options)


def paged(q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, Any]:
    """Pages of 16 keys, what is after the last key NaN."""
    room = -(-k.shape[2] // 16) * 16
    table = np.arange(room // 16, dtype=np.int32)[None, ::-1].copy()
    pages = []
    for x in (k, v):
        wide = np.full((1, 1, room, DIM), np.nan, x.dtype)
        wide[:, :, : x.shape[2]] = x
        pages.append(wide.reshape(1, room // 16, 16, DIM).swapaxes(0, 1)[::-1].copy())
    lengths = np.array([k.shape[2]], np.int32)
    return warploom.attention_decode(q, *pages, lengths, table=table, scale=1.0, return_lse=True, **options)


def eight(q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, Any]:
    return dense(*(x.astype(EIGHT) for x in (q, k, v)), **options)


WAYS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "dense": dense, "varlen": varlen, "decode": decode, "paged": paged, "e4m3": eight,
}  # fmt: skip
TRAPS = {
    "a factor below 2^-126": {0: 0.0, 64: 92.0, 128: 98.0},
    "a jump back": {0: 98.0, 64: 0.0, 128: 92.0},
    "a first tile that weighs nothing": {0: 5.0, 128: -np.inf},
    "keys of -inf in between": {0: 1.0, 60: -np.inf, 70: 1.0},
    "one key of inf": {0: 1.0, 70: np.inf, 71: 1.0},
    "all keys -inf": {0: -np.inf},
    "a NaN that the guard's vote may pass": {0: 1.0, 3: np.nan, 4: 1.0},
    "a NaN in the last key": {0: 1.0, 149: np.nan},
}
"""Scores of the keys from a number on; keys are read from the last to the first."""


def given(scores: dict[int, float]) -> tuple[Any, Any, Any]:
    """q, k, v (1, 1, …) of exactly these scores: the first dimension of a query is 1, of a key its score."""
    draw = np.random.default_rng(0)
    q, k = np.zeros((1, 1, ROWS, DIM)), np.zeros((1, 1, KEYS, DIM))
    q[..., 0] = 1
    for first, score in scores.items():
        k[0, 0, first:, 0] = score
    v = draw.standard_normal((1, 1, KEYS, DIM))
    return tuple(x.astype(ml_dtypes.bfloat16) for x in (q, k, v))


def formula(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """In float64, as torch has it; the last query sees all keys."""
    q, k, v = (x.astype(np.float64)[0, 0] for x in (q, k, v))
    with np.errstate(invalid="ignore"):
        keys = len(k)
        scores = np.broadcast_to(k[:, 0], (ROWS, keys)).copy()
        scores[np.arange(keys) > np.arange(ROWS)[:, None] + keys - ROWS] = -np.inf
        top = scores.max(1, keepdims=True)
        base = np.where(np.isneginf(top), 0, top)
        p = np.exp(scores - base)
        total = p.sum(1, keepdims=True)
        return (p / np.where(total == 0, 1, total)) @ v, (np.log(total) + base)[:, 0]


@pytest.mark.sample(2, all=5)
@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_of_float64_and_nan_only_where_it_is(way: str, trap: str) -> None:
    q, k, v = given(TRAPS[trap])
    if way == "e4m3":
        if any(np.isinf(each) for each in TRAPS[trap].values()):
            pytest.skip("e4m3 has no inf")
        q, k, v = (x.astype(EIGHT).astype(x.dtype) for x in (q, k, v))
    out, lse = (np.asarray(x, np.float64)[0, 0] for x in WAYS[way](q, k, v))
    with np.errstate(divide="ignore"):
        wanted, sums = formula(q, k, v)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(wanted))
    seen = np.isfinite(wanted)
    assert np.linalg.norm((out - wanted)[seen]) <= ERROR.get(way, 0.01) * max(np.linalg.norm(wanted[seen]), 1e-9)
    if np.isfinite(TRAPS[trap][0]) and seen.all():
        np.testing.assert_allclose(lse, sums, rtol=2e-2 if way == "e4m3" else 1e-4)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("way", WAYS)
def test_rows_without_keys_are_zeros_and_minus_infinity(way: str) -> None:
    """More queries than keys: the first ones see none. Of a cache: no keys yet."""
    q, k, v = given({0: 1.0})
    few = 2
    out, lse = (np.asarray(x, np.float64)[0, 0] for x in WAYS[way](q, k[:, :, :few], v[:, :, :few]))
    assert not out[: ROWS - few].any() and np.isneginf(lse[: ROWS - few]).all()
    assert np.isfinite(out).all() and np.isfinite(lse[ROWS - few :]).all()


@pytest.mark.full
@pytest.mark.parametrize(
    "trap", ["a factor below 2^-126", pytest.param("keys of -inf in between", marks=pytest.mark.slow)]
)
def test_gradients_of_scores_that_jump_are_finite_and_right(trap: str) -> None:
    q, k, v = given(TRAPS[trap])
    grad = np.random.default_rng(1).standard_normal(q.shape).astype(q.dtype)
    out, lse = dense(q, k, v)
    dq, dk, dv = (
        np.asarray(x, np.float64)[0, 0]
        for x in warploom.attention_backward(q, k, v, out, lse, grad, causal=True, scale=1.0)
    )
    wanted, sums = formula(q, k, v)
    scores = np.broadcast_to(k.astype(np.float64)[0, 0, :, 0], (ROWS, KEYS))
    p = np.exp(scores - sums[:, None])
    p[np.arange(KEYS) > np.arange(ROWS)[:, None] + KEYS - ROWS] = 0
    g = grad.astype(np.float64)[0, 0]
    ds = p * (g @ v.astype(np.float64)[0, 0].T - (g * wanted).sum(1, keepdims=True))
    here, keys = np.isfinite(scores[0]), k.astype(np.float64)[0, 0]  # of a key of -inf all is 0 times inf
    for found, right in ((dk, ds.T @ q.astype(np.float64)[0, 0]), (dv, p.T @ g)):
        assert np.isfinite(found[here]).all()
        assert np.linalg.norm((found - right)[here]) <= 0.02 * np.linalg.norm(right[here])
    if here.all():  # keys as large as 98 times dS, whose sum is 0
        assert np.linalg.norm(dq - ds @ keys) <= 0.02 * np.linalg.norm(np.abs(ds) @ np.abs(keys))


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("first", [0, 5])
def test_scores_are_capped_beside_a_mask(first: int) -> None:
    """Of keys before `first` nothing is seen."""
    q, k, v = given({0: 3.0, 40: -2.0, 90: 7.0})
    cap = 2.0
    out, lse = (np.asarray(x, np.float64)[0, 0] for x in dense(q, k, v, softcap=cap,
                mask_mod=lambda b, h, i, j: j >= first))  # fmt: skip
    capped = k.astype(np.float64)
    capped[..., 0] = cap * np.tanh(capped[..., 0] / cap)
    wanted, sums = formula(q, capped[:, :, first:], v[:, :, first:])
    np.testing.assert_allclose(lse, sums, atol=4e-3)
    assert np.linalg.norm(out - wanted) <= 0.01 * np.linalg.norm(wanted)


@pytest.mark.parametrize("low", [-1e9, -1e20])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_a_function_may_hide_keys_by_a_large_negative_score(dtype: Any, low: float) -> None:
    """In the tile that is read first, in one query, and in all keys of another, which sees none or all alike."""
    q, k, v = (x.astype(dtype) for x in given({0: 1.0, 40: -2.0}))
    hides = np.zeros((ROWS, KEYS), np.float32)
    hides[0], hides[1, 7:], hides[2:, 100:] = low, low, low
    found = warploom.attention(q, k, v, scale=1.0, score_mod=lambda s, b, h, i, j: s + hides[i, j], return_lse=True)
    out, lse = (np.asarray(x, np.float64)[0, 0] for x in found)
    for row, keys in ((1, 7), (2, 100)):
        scores = k.astype(np.float64)[0, 0, :keys, 0]
        p = np.exp(scores - scores.max())
        wanted = p @ v.astype(np.float64)[0, 0, :keys] / p.sum()
        assert np.linalg.norm(out[row] - wanted) <= 0.01 * np.linalg.norm(wanted)
        np.testing.assert_allclose(lse[row], np.log(p.sum()) + scores.max(), rtol=1e-4)
    mean = v.astype(np.float64)[0, 0].mean(0)
    alike = dtype is not np.float16 and low > -1.4e9
    assert np.linalg.norm(out[0] - (mean if alike else 0)) <= 0.01 * np.linalg.norm(mean)
    assert np.isneginf(lse[0]) or alike


@pytest.mark.parametrize("way, exponent, kept", [("dense", -64, True), ("dense", -100, False), ("decode", -100, True)])
def test_small_values_keep_their_precision_or_are_zeros(way: str, exponent: int, kept: bool) -> None:
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((1, 1, n, DIM)).astype(ml_dtypes.bfloat16) for n in (1, 20, 20))
    small = (v.astype(np.float64) * 2.0**exponent).astype(ml_dtypes.bfloat16)
    usual, found = (np.asarray(WAYS[way](q, k, each)[0], np.float64) for each in (v, small))
    np.testing.assert_array_equal(found, usual * 2.0**exponent if kept else 0)
