"""Odd arguments: the kernel's result or a clear message; never silence or a foreign traceback."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import warploom
from tests.errors import refused
from warploom.errors import ArgumentError, ArgumentTypeError, CopyWarning

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn

pytestmark = pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")


@pytest.mark.parametrize("k", [0, 16])
def test_no_k_saturates_and_takes_the_largest_as_any_k_does(k):
    a, b, amax = np.zeros((4, k), E4M3), np.zeros((k, 16), E4M3), np.zeros(1, np.float32)
    bias = np.full(16, -1e6, np.float32)
    result = warploom.matmul(a, b, out_dtype="e4m3", bias=bias, scale_out=np.full(1, 0.5, np.float32), amax=amax)
    assert (result.astype(float) == -448).all()
    assert amax[0] == 1e6


def test_a_residual_with_a_beta_is_refused():
    a, b, r = np.zeros((8, 16), BF16), np.zeros((16, 8), BF16), np.zeros((8, 8), BF16)
    with refused("argument", got="beta=0.5"):
        warploom.matmul(a, b, residual=r, beta=0.5)


@pytest.mark.parametrize("steps", [(16, 2), (2, 2), (2, 16)])
def test_an_output_whose_rows_lie_on_each_other_is_refused(steps):
    a, b = np.ones((16, 16), BF16), np.ones((16, 16), BF16)
    out = np.lib.stride_tricks.as_strided(np.zeros(300, BF16), (16, 16), steps)
    with refused("overlap"):
        warploom.matmul(a, b, out=out)


ROWS, GROUPS, HEADS = np.zeros((32, 64), BF16), np.zeros((1, 64, 64), BF16), np.zeros((1, 2, 32, 64), BF16)
LENGTHS, ENDS = np.array([8], np.int32), np.array([32], np.int32)
WRITTEN = {
    "matmul": lambda x, out: warploom.matmul(x, GROUPS[0], out=out),
    "grouped_matmul": lambda x, out: warploom.grouped_matmul(x, GROUPS, offsets=ENDS, out=out),
    "rms_norm": lambda x, out: warploom.rms_norm(x, ROWS[0], out=out),
    "attention": lambda q, out: warploom.attention(q, HEADS, HEADS, out=out),
    "attention_decode": lambda q, out: warploom.attention_decode(q, HEADS, HEADS, LENGTHS, out=out),
}


@pytest.mark.parametrize("called", WRITTEN)
def test_an_output_that_cannot_take_the_result_is_refused_by_its_name_before_anything_runs(called):
    x = {"attention": HEADS, "attention_decode": HEADS[:, :, :1]}.get(called, ROWS).copy()
    frozen = np.zeros_like(x)
    frozen.flags.writeable = False
    for out, code in ((frozen, "not-writable"), (x, "overlap"), (x[..., :8].copy(), "wrong-shape")):
        with refused(code) as caught:
            WRITTEN[called](x, out)
        assert "`out`" in caught.value.what


def test_an_lse_in_the_memory_of_out_is_refused_by_their_names():
    out = np.zeros_like(HEADS)
    lse = out.reshape(-1)[:128].view(np.float32).reshape(1, 2, 32)
    with refused("overlap") as caught:
        warploom.attention(HEADS, HEADS, HEADS, out=out, lse=lse, return_lse=True)
    assert "`lse` and `out`" in caught.value.what


@pytest.mark.parametrize("eps", ["x", -1.0, float("nan")])
def test_an_epsilon_that_is_no_addend_of_a_mean_square_is_refused(eps):
    with refused("argument", got=repr(eps)):
        warploom.rms_norm(ROWS, ROWS[0], eps)


@pytest.mark.parametrize("m,n", [(0, 9), (9, 0), (0, 0)])
def test_an_empty_output_is_taken(m, n):
    out = np.zeros((m, n), BF16)
    assert warploom.matmul(np.zeros((m, 8), BF16), np.zeros((8, n), BF16), out=out) is out


@pytest.mark.parametrize("shape,turn", [((1, 8), (-1, 1)), ((4, 24), (-1, 1)), ((4, 24), (1, -1))])
def test_an_output_that_runs_backwards_is_written(shape, turn):
    rng = np.random.default_rng(0)
    m, n = shape
    a, w = rng.integers(-3, 4, (m, 64)).astype(BF16), rng.integers(-3, 4, (n, 64)).astype(BF16)
    out = np.zeros(shape, BF16)[:: turn[0], :: turn[1]]
    warploom.matmul(a, w.T, residual=np.ones((2 * m, n), BF16)[::-2], out=out)
    np.testing.assert_array_equal(out.astype(float), (a.astype(float) @ w.T.astype(float) + 1).astype(BF16))


def test_a_number_no_float_holds_is_refused():
    with refused("argument", expected="a number in the range of a float"):
        warploom.matmul(np.zeros((8, 8), BF16), np.zeros((8, 8), BF16), alpha=10**400)


@pytest.mark.parametrize("shape", [(0, 0), (5, 0), (0, 5)])
@pytest.mark.parametrize("kind", ["tensor", "row", "block128"])
def test_torch_quantizes_nothing_as_numpy_does(shape, kind):
    torch = pytest.importorskip("torch")
    q, scale = warploom.quantize(np.zeros(shape, np.float32), kind)
    tq, tscale = warploom.quantize(torch.zeros(shape), kind)
    assert tuple(tq.shape) == q.shape
    assert tuple(tscale.shape) == scale.shape


def test_what_is_no_number_is_not_quantized():
    for array in (np.array([["a", "b"]]), np.array([[None, 1]], object)):
        with refused("argument-type", expected="(…, M, K) f32, f16 or bf16"):
            warploom.quantize(array)


def test_meta_tensors_are_refused_in_a_sentence():
    torch = pytest.importorskip("torch")
    a = torch.empty(8, 8, device="meta", dtype=torch.bfloat16)
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        warploom.matmul(a, a)


def test_grouped_refuses_what_it_would_not_do():
    torch = pytest.importorskip("torch")
    a, w = torch.zeros(8, 16, dtype=torch.bfloat16), torch.zeros(1, 8, 16, dtype=torch.bfloat16)
    ends = torch.tensor([8], dtype=torch.int32)
    with refused("argument", expected="tensors without requires_grad"):
        warploom.grouped_matmul(a, w.clone().requires_grad_().mT, offsets=ends)
    with refused("argument-type", got="3"):
        warploom.grouped_matmul(a, w.mT, offsets=ends, config=3)
    with refused("argument", expected="no out= and no bias="):
        warploom.grouped_matmul(a[:, :0], w.mT[:, :0], offsets=ends, bias=torch.ones(1, 8))
    with torch.no_grad():
        warploom.grouped_matmul(a, w.clone().requires_grad_().mT, offsets=ends)


def test_what_would_be_emulated_for_minutes_is_refused_with_the_estimate():
    big = np.zeros((4096, 4096), np.float16)
    with refused("cost-limit", got="4096 x 4096 x 4096"):
        warploom.matmul(big, big)
    many = np.zeros((100_000, 16, 16), np.float16)
    with refused("cost-limit", got="16 x 16 x 16, 100000 times"):
        warploom.matmul(many, many)


@pytest.mark.parametrize("options", [{"amax": np.zeros(1, np.float32)}, {"alpha": 2.0}])
def test_promoted_sums_refuse_what_their_kernel_would_leave_out(options):
    a, b = np.ones((64, 128), E4M3), np.ones((64, 128), E4M3).T
    with refused("argument", expected="a, b, scale_a and scale_b (arrays, no numbers), and a 16- or 32-bit result"):
        warploom.matmul(a, b, accumulate="precise", **options)


# -- linear speaks of its own arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.zeros((4, 64), BF16), np.zeros(64, BF16), np.zeros((2, 3, 64), BF16)])
def test_a_weight_of_another_k_is_refused_in_linears_words(x):
    with refused("argument", got="weight of shape (24, 96)") as caught:
        warploom.linear(x, np.zeros((24, 96), BF16))
    said = str(caught.value)
    assert "weight of shape (N, 64)" in said and "weight of shape (24, 96)" in said
    assert "`b`" not in said and "linear(" not in said


def test_a_weight_that_lies_the_other_way_is_told_of_its_transpose():
    with refused("argument", got="weight of shape (64, 24)"):
        warploom.linear(np.zeros((4, 64), BF16), np.zeros((64, 24), BF16))


def test_an_x_without_a_dimension_is_refused():
    with refused("argument", got="shape ()"):
        warploom.linear(np.zeros((), BF16), np.zeros((24, 96), BF16))


@pytest.mark.filterwarnings("default::warploom.errors.CopyWarning")
def test_linear_warns_of_a_copy_of_its_weight_by_that_name():
    with pytest.warns(CopyWarning, match=r"linear copies `weight`: .* got .*bf16.*\(21, 35\)") as caught:
        warploom.linear(np.zeros((8, 40), BF16)[:, :35], np.zeros((21, 35), BF16))
    assert len(caught) == 1


@pytest.mark.parametrize("activation", ["swish", 3, ["relu"], np.zeros(3), np.zeros((8, 8), np.float32)], ids=repr)
def test_an_activation_is_a_name(activation):
    a = np.ones((8, 8), ml_dtypes.bfloat16)
    with pytest.raises(ArgumentError, match="unknown activation"):
        warploom.matmul(a, a, activation=activation)
