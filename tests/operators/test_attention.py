"""`warploom.attention`: layouts, masks, outputs, and refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom
from tests.kernels.attention_cases import reference
from warploom.errors import ArgumentError, ArgumentTypeError, CopyWarning, CostLimitError
from warploom.operators import workspace
from warploom.operators.attention import calls

D = 64
SCALE = D**-0.5


def operand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)


def given(queries: int = 70, keys: int = 100, heads: tuple[int, int] = (2, 1)) -> tuple[np.ndarray, ...]:
    """q, k, v in torch's layout."""
    return (
        operand(1, heads[0], queries, D),
        operand(1, heads[1], keys, D, seed=1),
        operand(1, heads[1], keys, D, seed=2),
    )


def exact(q, k, v, **mask) -> tuple[np.ndarray, np.ndarray]:
    out, lse = reference(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), scale=SCALE, **mask)
    return out.transpose(0, 2, 1, 3), lse


def assert_close(found, wanted) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, atol=0.02)


@pytest.mark.parametrize(
    "options, mask",
    [
        ({}, {}),
        ({"causal": True}, {"last": 30}),
        ({"causal": "top-left"}, {"last": 0}),
        ({"window": (40, 5)}, {"first": -10, "last": 35}),
        ({"window": 16, "causal": True}, {"first": 14, "last": 30}),
        ({"window": (-1, 3)}, {"last": 33}),
        ({"scale": SCALE * 2}, None),
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_a_query_sees_the_keys_of_its_mask(options, mask):
    q, k, v = given()
    found, lse = warploom.attention(q, k, v, return_lse=True, **options)
    wanted = exact(q * np.asarray(2, q.dtype), k, v) if mask is None else exact(q, k, v, **mask)
    assert_close(found, wanted[0])
    np.testing.assert_allclose(lse, wanted[1], rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_the_queue_is_as_it_was_after_every_launch(monkeypatch):
    kept: dict[str, Any] = {}

    def of_stream(name: str, *how: Any) -> Any:
        return kept.setdefault(name, workspace.of_stream(name, *how))

    monkeypatch.setattr(calls, "of_stream", of_stream)
    q, k, v = given(300, 40, (3, 1))
    for _ in range(2):
        assert_close(warploom.attention(q, k, v), exact(q, k, v)[0])
        assert not kept["attention"].host.any()


def test_both_layouts_are_the_same_numbers():
    q, k, v = given(40, 40)
    swapped = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    first = warploom.attention(q, k, v, causal=True)
    second = warploom.attention(*swapped, causal=True, layout="bshd")
    assert second.shape == (1, 40, 2, D)
    np.testing.assert_array_equal(first, second.transpose(0, 2, 1, 3))


def test_results_go_where_they_are_told():
    q, k, v = given(40, 40)
    out, lse = np.zeros_like(q), np.zeros((1, 2, 40), np.float32)
    assert warploom.attention(q, k, v, out=out, lse=lse) is out
    wanted = exact(q, k, v)
    assert_close(out, wanted[0])
    np.testing.assert_allclose(lse, wanted[1], rtol=1e-5, atol=1e-5)


def test_an_operand_that_tma_cannot_address_is_copied_and_that_is_said():
    q, k, v = given(40, 40)
    odd = np.zeros((1, 2, 40, D + 3), q.dtype)
    odd[..., :D] = q
    with pytest.warns(CopyWarning, match="q"):
        found = warploom.attention(odd[..., :D], k, v)
    assert_close(found, exact(q, k, v)[0])


def test_no_keys_give_zeros_and_no_queries_give_nothing():
    q, k, v = given(5, 5)
    out, lse = warploom.attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert np.all(np.asarray(out, np.float32) == 0) and np.all(lse == -np.inf)
    _, lse = warploom.attention(q, k[:, :, :0], v[:, :, :0], sinks=np.array([1, 2], np.float32), return_lse=True)
    np.testing.assert_array_equal(lse, np.broadcast_to([[1], [2]], (2, 5))[None])
    assert warploom.attention(q[:, :, :0], k, v).shape == (1, 2, 0, D)


@pytest.mark.parametrize(
    "change, error",
    [
        ({"q": operand(1, 2, 8, 60)}, ArgumentError),
        ({"q": operand(1, 2, 8, D).astype(np.float32)}, ArgumentTypeError),
        ({"q": operand(1, 3, 8, D), "k": operand(1, 2, 8, D), "v": operand(1, 2, 8, D)}, ArgumentError),
        ({"q": operand(2, 2, 8, D)}, ArgumentError),
        ({"q": operand(2, 8, D)}, ArgumentError),
        ({"q": operand(1, 2, D, 8).transpose(0, 1, 3, 2)}, ArgumentError),
        ({"v": operand(1, 1, 9, D)}, ArgumentError),
        ({"v": operand(1, 1, 8, 264)}, ArgumentError),
        ({"scale": 0.0}, ArgumentError),
        ({"scale": float("nan")}, ArgumentError),
        ({"softcap": -1.0}, ArgumentError),
        ({"causal": "left"}, ArgumentError),
        ({"window": (1, 2, 3)}, ArgumentError),
        ({"window": (-2, 0)}, ArgumentError),
        ({"layout": "sbhd"}, ArgumentError),
        ({"sinks": np.zeros(3, np.float32)}, ArgumentError),
        ({"sinks": np.zeros(2, np.int32)}, ArgumentTypeError),
        ({"out": np.zeros((1, 2, 8, 32), ml_dtypes.bfloat16)}, ArgumentError),
        ({"lse": np.zeros((1, 2, 8), np.float32)}, ArgumentError),
        ({"config": "fast"}, ArgumentTypeError),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(change, error):
    q, k, v = given(8, 8)
    with pytest.raises(error):
        warploom.attention(**{"q": q, "k": k, "v": v, **change})


def test_an_emulation_that_would_take_too_long_is_refused():
    long = operand(1, 1, 1, D)
    long = np.broadcast_to(long, (1, 1, 1 << 20, D))
    with pytest.raises(CostLimitError):
        warploom.attention(long, long, long)


LENGTHS = (90, 0, 1, 65), (100, 5, 70, 65)


def sequences() -> tuple[np.ndarray, ...]:
    """q, k, v and where the sequences of LENGTHS begin and end."""
    queries, keys = (sum(each) for each in LENGTHS)
    ends = [np.concatenate([[0], np.cumsum(each)]).astype(np.int32) for each in LENGTHS]
    return operand(queries, 2, D), operand(keys, 1, D, seed=1), operand(keys, 1, D, seed=2), *ends


@pytest.mark.parametrize("causal, window", [(True, None), (False, (40, 3))])
@pytest.mark.sample(1, full=1)
def test_sequences_of_different_lengths_are_each_for_itself(causal, window):
    q, k, v, q_ends, k_ends = sequences()
    out, lse = warploom.attention_varlen(q, k, v, q_ends, k_ends, causal=causal, window=window, return_lse=True)
    assert lse.shape == (1, 2, len(q))
    for begin, end, first, last in zip(q_ends[:-1], q_ends[1:], k_ends[:-1], k_ends[1:], strict=True):
        offset = (last - first) - (end - begin)
        mask = {"last": offset} if causal else {"first": offset - 40, "last": offset + 3}
        if begin == end:
            continue
        own = (q[None, begin:end], k[None, first:last], v[None, first:last])
        wanted, sums = reference(*own, scale=SCALE, **mask)
        assert_close(out[begin:end], wanted[0])
        np.testing.assert_allclose(lse[:, :, begin:end], sums, rtol=1e-5, atol=1e-5)


def test_lengths_that_make_no_sense_are_refused():
    q, k, v, q_ends, k_ends = sequences()
    for first, second in (
        (q_ends[::-1].copy(), k_ends), (q_ends[:-1], k_ends), (q_ends, k_ends + 1), (q_ends, q_ends * 9),
        (np.zeros(600, np.int32), np.zeros(600, np.int32)),
    ):  # fmt: skip
        with pytest.raises(ArgumentError):
            warploom.attention_varlen(q, k, v, first, second)
    with pytest.raises(ArgumentTypeError):
        warploom.attention_varlen(q, k, v, q_ends.astype(np.float32), k_ends)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.sample(1, full=1)
def test_gradients_are_those_of_the_formula_in_both_layouts(layout):
    from tests.kernels.attention_gradients import exact as formula

    q, k, v = (x.transpose(0, 2, 1, 3) for x in given(40, 70))
    grad = operand(*q.shape, seed=5)
    wanted = formula(q, k, v, grad, 30, None)
    turned = [x.transpose(0, 2, 1, 3).copy() if layout == "bhsd" else x.copy() for x in (q, k, v, grad)]
    options = {"causal": True, "layout": layout}
    out, lse = warploom.attention(*turned[:3], return_lse=True, **options)
    found = warploom.attention_backward(*turned[:3], out, lse, turned[3], **options)
    for x, y in zip(found, wanted[:3], strict=True):
        assert_close(x.transpose(0, 2, 1, 3) if layout == "bhsd" else x, y)
    unordered = warploom.attention_backward(*turned[:3], out, lse, turned[3], deterministic=False, **options)
    for x, y in zip(unordered, found, strict=True):
        assert_close(x, y)
    with pytest.raises(ArgumentError):
        warploom.attention_backward(*turned[:3], out, lse, turned[3][:, :, :1], **options)


def eight_bits(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)


@pytest.mark.full
def test_eight_bits_with_a_number_or_with_a_scale_for_each_head_give_bf16():
    q, k, v = eight_bits(1, 2, 40, D), eight_bits(1, 1, 90, D, seed=1), eight_bits(1, 1, 90, D, seed=2)
    factors = {"q_scale": 0.5, "k_scale": 2.0, "v_scale": 0.25}
    found = warploom.attention(q, k, v, **factors)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(np.asarray(found, np.float64), exact(q, k, v)[0] / 4, atol=0.01)
    shapes = {"q_scale": (1, 2), "k_scale": (1, 1), "v_scale": (1, 1)}
    arrays = {name: np.full(shape, factors[name], np.float32) for name, shape in shapes.items()}
    arrays["q_scale"][0, 1] *= 3
    apart = warploom.attention(q, k, v, **arrays)
    wanted = exact(q.astype(np.float64) * np.array([1, 3])[None, :, None, None], k, v)[0] / 4
    np.testing.assert_array_equal(apart[:, 0], found[:, 0])
    np.testing.assert_allclose(np.asarray(apart, np.float64), wanted, atol=0.02)


@pytest.mark.full
def test_fast_accumulation_is_another_kernel_for_eight_bits_and_refused_for_sixteen():
    q, k, v = eight_bits(1, 2, 40, D), eight_bits(1, 1, 200, D, seed=1), eight_bits(1, 1, 200, D, seed=2)
    fast = warploom.attention(q, k, v, fast_accumulation=True)
    np.testing.assert_allclose(np.asarray(fast, np.float64), exact(q, k, v)[0], atol=0.03)
    ends = np.array([0, 40], np.int32), np.array([0, 200], np.int32)
    packed = [np.ascontiguousarray(each[0].swapaxes(0, 1)) for each in (q, k, v)]
    found = warploom.attention_varlen(*packed, *ends, fast_accumulation=True)
    np.testing.assert_array_equal(found.swapaxes(0, 1), fast[0])
    for arrays, flag in ((given(), True), ((q, k, v), "yes")):
        with pytest.raises(ArgumentError):
            warploom.attention(*arrays, fast_accumulation=flag)


def test_sequences_of_eight_bits_have_numbers_for_all_of_them():
    q, k, v = eight_bits(100, 2, D), eight_bits(140, 1, D, seed=1), eight_bits(140, 1, D, seed=2)
    ends = np.array([0, 30, 100], np.int32), np.array([0, 70, 140], np.int32)
    found = warploom.attention_varlen(q, k, v, *ends, v_scale=0.5)
    for (start, stop), (first, last) in zip(*(zip(each, each[1:], strict=False) for each in ends), strict=True):
        one = reference(q[None, start:stop], k[None, first:last], v[None, first:last], scale=SCALE)[0][0] / 2
        np.testing.assert_allclose(np.asarray(found[start:stop], np.float64), one, atol=0.02)


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"k": operand(1, 1, 90, D)}, ArgumentTypeError),
        ({"q_scale": np.ones((1, 2), np.float32)}, ArgumentError),
        ({"v_scale": 0.0}, ArgumentError),
        ({"v_scale": float("nan")}, ArgumentError),
        ({name: np.ones((2, 1), np.float32) for name in ("q_scale", "k_scale", "v_scale")}, ArgumentError),
        ({"out": np.zeros((1, 2, 40, D), ml_dtypes.float8_e4m3fn)}, ArgumentTypeError),
        ({"v": eight_bits(1, 1, 90, 24)}, ArgumentError),
    ],
    ids=["mixed types", "one array", "zero", "nan", "shape", "out", "24 columns"],
)
def test_eight_bits_that_do_not_go_together_are_refused(changes, error):
    given = {"q": eight_bits(1, 2, 40, D), "k": eight_bits(1, 1, 90, D), "v": eight_bits(1, 1, 90, D)} | changes
    with pytest.raises(error):
        warploom.attention(**given)


def test_scales_of_sixteen_bits_and_gradients_of_eight_are_refused():
    with pytest.raises(ArgumentError):
        warploom.attention(*given(), k_scale=2.0)
    q, k, v = eight_bits(1, 1, 40, D), eight_bits(1, 1, 90, D), eight_bits(1, 1, 90, D)
    out, lse = warploom.attention(q, k, v, return_lse=True)
    with pytest.raises(ArgumentTypeError):
        warploom.attention_backward(q, k, v, out, lse, out)


@pytest.mark.parametrize("causal, window", [(True, None), (False, (40, 3))])
@pytest.mark.sample(0, all=1)
def test_gradients_of_sequences_are_those_of_each_alone(causal, window):
    from tests.kernels.attention_gradients import exact as formula

    q, k, v, q_ends, k_ends = sequences()
    k, v = (np.concatenate([x, np.zeros((3, *x.shape[1:]), x.dtype)]) for x in (k, v))
    grad = operand(*q.shape, seed=5)
    options = {"causal": causal, "window": window}
    out, lse = warploom.attention_varlen(q, k, v, q_ends, k_ends, return_lse=True, **options)
    found = warploom.attention_varlen_backward(q, k, v, q_ends, k_ends, out, lse, grad, **options)
    again = warploom.attention_varlen_backward(q, k, v, q_ends.astype(np.int64), k_ends, out, lse, grad, **options)
    wanted = [np.zeros(x.shape) for x in (q, k, v)]
    for begin, end, first, last in zip(q_ends[:-1], q_ends[1:], k_ends[:-1], k_ends[1:], strict=True):
        offset = (last - first) - (end - begin)
        edges = (offset, None) if causal else (offset + 3, offset - 40)
        if begin < end:
            own = (q[None, begin:end], k[None, first:last], v[None, first:last], grad[None, begin:end])
            each = formula(*own, *edges)
            for array, part, at in zip(wanted, each, ((begin, end), (first, last), (first, last)), strict=False):
                array[slice(*at)] = part[0]
    for x, y, same in zip(found, wanted, again, strict=True):
        assert_close(x, y)
        np.testing.assert_array_equal(x, same)
    with pytest.raises(ArgumentError):
        warploom.attention_varlen_backward(q, k, v, q_ends, k_ends, out, lse[:, :, 1:], grad, **options)
    none = warploom.attention_varlen_backward(q, k, v, q_ends[:1], k_ends[:1], out, lse, grad)
    assert not any(x.any() for x in none), "no sequences"
