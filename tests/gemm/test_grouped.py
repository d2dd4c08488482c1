"""grouped_matmul: each group's rows by its own matrix, contiguous and masked, against a loop."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import warploom
from warploom.errors import ArgumentError, ArgumentTypeError

BF16 = ml_dtypes.bfloat16


def operands(rows, groups, n, k, seed=0, dtype=BF16):
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (rows, k)).astype(dtype)
    w = rng.integers(-4, 5, (groups, n, k)).astype(dtype)
    return a, w


@pytest.mark.parametrize("sizes", [[5, 0, 70, 1], [0, 0, 40, 0], [130, 3, 64, 200]])
@pytest.mark.parametrize("dtype", [BF16, ml_dtypes.float8_e4m3fn])
def test_contiguous_groups_are_a_loop_of_products(sizes, dtype):
    a, w = operands(sum(sizes), len(sizes), 72, 96, dtype=dtype)
    ends = np.cumsum(sizes).astype(np.int32)
    result = warploom.grouped_matmul(a, w.transpose(0, 2, 1), offsets=ends, out_dtype=np.float32)
    for g, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        expected = a[begin:end].astype(np.float32) @ w[g].T.astype(np.float32)
        np.testing.assert_array_equal(result[begin:end], expected)


def test_masked_groups_leave_the_rest_of_their_room_alone():
    sizes = np.array([3, 0, 16], np.int32)
    a, w = operands(3 * 16, 3, 40, 64)
    out = np.full((3, 16, 40), 7, BF16)
    result = warploom.grouped_matmul(a.reshape(3, 16, 64), w.transpose(0, 2, 1), sizes=sizes, out=out)
    assert result is out
    for g, size in enumerate(sizes):
        expected = a.reshape(3, 16, 64)[g, :size].astype(np.float32) @ w[g].T.astype(np.float32)
        np.testing.assert_array_equal(out[g, :size].astype(np.float32), expected.astype(BF16).astype(np.float32))
        assert np.all(out[g, size:] == 7)


def test_a_new_result_has_zeros_where_no_group_is():
    a, w = operands(20, 2, 16, 32)
    result = warploom.grouped_matmul(a, w.transpose(0, 2, 1), offsets=np.array([4, 9], np.int32))
    assert np.all(result[9:] == 0) and np.any(result[:9] != 0)


A, W = operands(20, 2, 16, 32)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({}, ArgumentError, "either offsets= or sizes="),
        ({"offsets": np.zeros(3, np.int32)}, ArgumentError, "another length"),
        ({"offsets": np.zeros(2, np.float32)}, ArgumentTypeError, "wrong type"),
        ({"offsets": np.array([9, 4], np.int32)}, ArgumentError, "descend"),
        ({"offsets": np.array([4, 9], np.int32), "b": W}, ArgumentError, "w.mT"),
        ({"sizes": np.array([4, 9], np.int32)}, ArgumentError, r"a \(Groups, Room, K\)"),
        ({"offsets": np.array([4, 9], np.int32), "out": np.zeros((20, 15), BF16)}, ArgumentError, "wrong shape"),
    ],
)
def test_wrong_groups_are_refused_in_a_sentence(options, error, words):
    given = {"b": W.transpose(0, 2, 1)} | options
    with pytest.raises(error, match=words):
        warploom.grouped_matmul(A, given.pop("b"), **given)
