"""matmul in the emulator: every type, layout, shape and epilogue, against exact sums, within the error bound.

Before the epilogue: |D - exact| <= one unit of D's type + 2 (K / k_instr) 2^-23 (|A| |B|); see docs/matmul.md.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warploom
from tests.errors import refused
from warploom.errors import ArgumentError, CopyWarning, StepLimitError
from warploom.kernels.hopper.description import Config
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.operators import reference
from warploom.operators.families import candidates
from warploom.operators.request import read
from warploom.operators.spec.gpu import EMULATED

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
INSTRUCTION_K = {2: 16, 4: 8, 1: 32}
"""k of one tensor-core instruction, by bytes of an element."""
LIPSCHITZ = {None: 1.0, "relu": 1.0, "silu": 1.1, "gelu": 1.13, "gelu_tanh": 1.13}
"""How much an activation can stretch a difference."""
STATED = {None: 0.0, "relu": 0.0, "silu": 2.0**-18, "gelu": 2.0**-18, "gelu_tanh": 2.0**-9}
"""What the kernels' activations may be off by, for arguments of a few units (collective/epilogue/activations.py)."""

pytestmark = pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")


def draw(rng, shape, dtype):
    """Random normal numbers of a type; small integers for s8."""
    if dtype is np.int8:
        return rng.integers(-8, 9, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(dtype)


def laid_out(matrix: np.ndarray, layout: str) -> np.ndarray:
    """The same matrix in another order of memory: rows, columns, rows with gaps, or anywhere in something larger."""
    if layout == "rows":
        return np.ascontiguousarray(matrix)
    if layout == "columns":
        return np.ascontiguousarray(matrix.T).T
    rows, columns = matrix.shape
    if layout == "gaps":
        room = np.zeros((rows, -(-columns // 16) * 16 + 16), matrix.dtype)
        room[:, :columns] = matrix
        return room[:, :columns]
    room = np.zeros((2 * rows, 2 * columns + 1), matrix.dtype)
    room[::2, 1::2][:, :columns] = matrix
    return room[::2, 1::2][:, :columns]


def tf32(x: np.ndarray) -> np.ndarray:
    """What the tensor core reads of f32: the upper 19 bits."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if x.dtype == np.float32 else x


def unit(x: np.ndarray, dtype) -> np.ndarray:
    """One unit in the last place of a type at x."""
    if np.dtype(dtype).kind in "iu":
        return np.zeros(x.shape)
    info = ml_dtypes.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(np.abs(x), float(info.smallest_normal))))
    return 2.0 ** (exponent - info.nmant)


def assert_close(result, a, b, *, scale=1.0, **end):
    """The bound of the module's docstring, carried through the fused end."""
    a, b = tf32(np.ascontiguousarray(a)), tf32(np.ascontiguousarray(b))
    exact = reference.matmul(a, b, alpha=scale, **end)
    magnitude = abs(scale) * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
    steps = max(a.shape[1] / INSTRUCTION_K[a.dtype.itemsize], 1)
    allowed = 2 * steps * 2.0**-23 * magnitude
    activation = end.get("activation")
    z = np.abs(reference.matmul(a, b, alpha=scale, bias=end.get("bias")))
    allowed = allowed * LIPSCHITZ[activation] + STATED[activation] * np.maximum(z, 1) + 2.0**-22 * z
    if end.get("gate") is not None:
        allowed = allowed * np.abs(end["gate"].astype(np.float64))
    if end.get("c") is not None:
        allowed = allowed + 2.0**-22 * np.abs(end["c"].astype(np.float64) * end.get("beta", 1.0))
    allowed = allowed + unit(np.abs(exact) + allowed, result.dtype)
    worst = np.max(np.abs(result.astype(np.float64) - exact) / np.maximum(allowed, 1e-300), initial=0)
    assert np.all(np.abs(result.astype(np.float64) - exact) <= allowed), f"worst: {worst:.2f} of what is allowed"


# -- types, layouts, shapes ----------------------------------------------------------------------------------------


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    types=st.sampled_from(
        [
            (BF16, BF16),
            (np.float16, np.float16),
            (np.float32, np.float32),
            (E4M3, E4M3),
            (E4M3, E5M2),
            (np.int8, np.int8),
        ]
    ),
    layouts=st.tuples(*[st.sampled_from(["rows", "columns", "gaps", "anywhere"])] * 2),
    m=st.sampled_from([1, 3, 16, 65, 130, 300]),
    n=st.sampled_from([1, 8, 17, 64, 136, 200]),
    k=st.sampled_from([1, 7, 16, 100, 192]),
    seed=st.integers(0, 1000),
)
def test_every_type_layout_and_shape_is_within_the_arithmetic_s_bound(types, layouts, m, n, k, seed):
    rng = np.random.default_rng(seed)
    a, b = laid_out(draw(rng, (m, k), types[0]), layouts[0]), laid_out(draw(rng, (k, n), types[1]), layouts[1])
    assert_close(warploom.matmul(a, b), a, b)


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(
    m=st.sampled_from([1, 16, 72, 300]),
    n=st.sampled_from([8, 24, 136, 200]),
    out=st.sampled_from([BF16, np.float16, np.float32]),
    bias=st.sampled_from([None, "column", "row"]),
    activation=st.sampled_from([None, "relu", "gelu", "gelu_tanh", "silu"]),
    gate=st.booleans(),
    addend=st.sampled_from([None, "residual", "c"]),
    alpha=st.sampled_from([1.0, -0.5]),
    seed=st.integers(0, 1000),
)
def test_every_fused_end_is_within_the_arithmetic_s_bound(m, n, out, bias, activation, gate, addend, alpha, seed):
    rng = np.random.default_rng(seed)
    a, b = draw(rng, (m, 96), BF16), draw(rng, (96, n), BF16)
    a = (a.astype(np.float32) * 0.25).astype(BF16)
    end = {"activation": activation}
    if bias:
        end["bias"] = draw(rng, (n,) if bias == "column" else (m, 1), out)
    if gate:
        end["gate"] = draw(rng, (m, n), out)
    options, expected = dict(end, alpha=alpha, out_dtype=out), dict(end)
    if addend:
        expected["c"] = draw(rng, (m, n), out)
        expected["beta"] = 1.0 if addend == "residual" else 0.75
        options |= {"residual": expected["c"]} if addend == "residual" else {"c": expected["c"], "beta": 0.75}
    assert_close(warploom.matmul(a, b, **options), a, b, scale=alpha, **expected)


@pytest.mark.parametrize("kind", ["tensor", "row"])
@pytest.mark.parametrize("m", [8, 200])
def test_eight_bit_products_are_scaled_as_torch_scales_them(kind, m):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, 256)).astype(np.float32), rng.standard_normal((136, 256)).astype(np.float32)
    (qx, sx), (qw, sw) = warploom.quantize(x, kind), warploom.quantize(w, kind)
    result = warploom.matmul(qx, qw.T, scale_a=sx, scale_b=sw.T, out_dtype=np.float32)
    exact = reference.matmul(qx, qw.T, scale_a=sx, scale_b=sw.T)
    magnitude = reference.matmul(np.abs(qx), np.abs(qw.T), scale_a=sx, scale_b=sw.T)
    assert np.all(np.abs(result - exact) <= (2 * 256 / 32 + 2) * 2.0**-23 * magnitude)
    assert np.abs(result - x @ w.T).max() < 0.1 * np.abs(x @ w.T).max(), "eight bits are near the unquantized product"


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("m, n, k", [(40, 136, 256), (200, 264, 128)])
def test_scales_of_blocks_and_precise_sums_are_exact_to_f32(m, n, k):
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
    (qx, sx), (qw, sw) = warploom.quantize(x, "block128"), warploom.quantize(w, "block128", block=(128, 128))
    for scales in ({"scale_a": sx, "scale_b": sw.T}, {}, {"scale_a": 0.5, "scale_b": 3.0}):
        if "scale_a" in scales and isinstance(scales["scale_a"], float):
            with refused(
                "argument", expected="a, b, scale_a and scale_b (arrays, no numbers), and a 16- or 32-bit result"
            ):
                warploom.matmul(qx, qw.T, accumulate="precise", **scales)
            continue
        result = warploom.matmul(qx, qw.T, out_dtype=np.float32, accumulate="precise", **scales)
        magnitude = reference.matmul(np.abs(qx), np.abs(qw.T), **scales)
        assert np.all(np.abs(result - reference.matmul(qx, qw.T, **scales)) <= (k / 32 + 4) * 2.0**-23 * magnitude)
    result = warploom.matmul(qx[:, :88], qw.T[:88], out_dtype=np.float32, accumulate="precise")  # a part of a block
    magnitude = reference.matmul(np.abs(qx[:, :88]), np.abs(qw.T[:88]))
    assert np.all(np.abs(result - reference.matmul(qx[:, :88], qw.T[:88])) <= (88 / 32 + 4) * 2.0**-23 * magnitude)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("a_along_m", [True, False])
@pytest.mark.parametrize("b_along_k", [True, False])
def test_scales_of_blocks_are_read_where_they_lie(a_along_m, b_along_k):
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((200, 384)).astype(np.float32), rng.standard_normal((264, 384)).astype(np.float32)
    (qx, sx), (qw, sw) = warploom.quantize(x, "block128"), warploom.quantize(w, "block128", block=(128, 128))
    scale_a = np.asfortranarray(sx) if a_along_m else np.ascontiguousarray(sx)
    scale_b = np.asfortranarray(sw.T) if b_along_k else np.ascontiguousarray(sw.T)
    options = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": np.float32}
    problem = read(qx, qw.T, options).problem
    assert (problem.scale_a_major, problem.scale_b_major) == ("MN" if a_along_m else "K", "K" if b_along_k else "MN")
    usual = {"scale_a": np.asfortranarray(sx), "scale_b": np.asfortranarray(sw.T), "out_dtype": np.float32}
    np.testing.assert_array_equal(warploom.matmul(qx, qw.T, **options), warploom.matmul(qx, qw.T, **usual))
    apart = {**options, "scale_a": np.repeat(scale_a, 2, 1)[:, ::2], "scale_b": np.repeat(scale_b, 2, 1)[:, ::2]}
    np.testing.assert_array_equal(warploom.matmul(qx, qw.T, **apart), warploom.matmul(qx, qw.T, **usual))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("m", [1, 4])
def test_precise_sums_take_one_scale_for_all_of_a_tensor(m, shape):
    rng = np.random.default_rng(8)
    (qx, _), (qw, _) = (warploom.quantize(rng.standard_normal((rows, 128)).astype(np.float32)) for rows in (m, 16))
    scales = {"scale_a": np.full(shape, 2.0, np.float32), "scale_b": np.full(shape, 3.0, np.float32)}
    result = warploom.matmul(qx, qw.T, accumulate="precise", out_dtype=np.float32, **scales)
    np.testing.assert_allclose(result, 6 * reference.matmul(qx, qw.T), rtol=2.0**-20, atol=1e-4)


def test_one_column_and_one_block_of_k_are_blocks_where_sums_are_precise():
    rng = np.random.default_rng(9)
    (qx, _), (qw, _) = (warploom.quantize(rng.standard_normal((rows, 128)).astype(np.float32)) for rows in (4, 1))
    scale_a, scale_b = np.arange(1, 5, dtype=np.float32)[:, None], np.full((1, 1), 3, np.float32)
    given = {"scale_a": scale_a, "scale_b": scale_b, "accumulate": "precise", "out_dtype": np.float32}
    result = warploom.matmul(qx, qw.T, out=np.zeros((4, 1), np.float32), **given)
    np.testing.assert_allclose(result, 3 * scale_a * reference.matmul(qx, qw.T), rtol=2.0**-20, atol=1e-4)


def test_two_runs_give_the_same_bits():
    rng = np.random.default_rng(1)
    a, b = draw(rng, (130, 192), BF16), draw(rng, (192, 72), BF16)
    np.testing.assert_array_equal(warploom.matmul(a, b), warploom.matmul(a, b))


def test_leading_dimensions_are_a_batch_or_more_rows():
    rng = np.random.default_rng(2)
    a, b = draw(rng, (2, 3, 16, 32), BF16), draw(rng, (3, 32, 24), BF16)
    result = warploom.matmul(a, b)
    assert result.shape == (2, 3, 16, 24)
    for i in range(2):
        for j in range(3):
            assert_close(result[i, j], a[i, j], b[j])
    flat = warploom.matmul(a, b[0])
    assert flat.shape == (2, 3, 16, 24)
    assert read(a, b[0], {}).problem.m == 2 * 3 * 16, "one product of all rows"
    assert_close(flat.reshape(-1, 24), a.reshape(-1, 32), b[0])
    turned = a.transpose(1, 0, 2, 3)
    assert_close(warploom.matmul(turned, b[0]).reshape(-1, 24), turned.reshape(-1, 32), b[0])


def test_linear_is_torch_s_linear():
    rng = np.random.default_rng(3)
    x, w, bias = draw(rng, (2, 5, 64), BF16), draw(rng, (24, 64), BF16), draw(rng, (24,), BF16)
    assert_close(warploom.linear(x, w, bias).reshape(10, 24), x.reshape(10, 64), w.T, bias=bias)
    vector = warploom.linear(x[0, 0], w)
    assert vector.shape == (24,)
    assert_close(vector[None], x[0, 0][None], w.T)


@pytest.mark.parametrize("shape", [(0, 16, 8), (4, 16, 0), (0, 0, 0)])
def test_no_rows_or_columns_give_an_empty_result(shape):
    m, k, n = shape
    assert warploom.matmul(np.zeros((m, k), BF16), np.zeros((k, n), BF16)).shape == (m, n)


def test_a_product_over_nothing_is_the_end_of_zeros():
    a, b = np.zeros((4, 0), BF16), np.zeros((0, 8), BF16)
    assert np.all(warploom.matmul(a, b) == 0)
    bias, c = np.arange(8, dtype=np.float32), np.ones((4, 8), BF16)
    result = warploom.matmul(a, b, bias=bias, activation="relu", c=c, beta=2.0)
    np.testing.assert_array_equal(result.astype(np.float32), np.broadcast_to(np.arange(8) + 2.0, (4, 8)))


def test_an_output_keeps_what_lies_around_it():
    rng = np.random.default_rng(4)
    a, b = draw(rng, (20, 32), BF16), draw(rng, (32, 24), BF16)
    room = np.full((24, 40), 7, BF16)
    out = room[2:22, 8:32]
    assert warploom.matmul(a, b, out=out) is out
    assert_close(out, a, b)
    out[...] = 7
    assert np.all(room == 7)


def _spread(kind, found):
    """A few configurations of a kind, far apart in their order."""
    of_kind = [config for config in found if type(config) is kind]
    return of_kind[:: -(-len(of_kind) // 3)]


@pytest.mark.parametrize("shape", [(192, 136, 96), pytest.param((520, 264, 72), marks=pytest.mark.slow)])
def test_candidates_of_all_families_compute_a_problem(shape):
    m, n, k = shape
    rng = np.random.default_rng(5)
    a, b = draw(rng, (m, k), BF16), np.ascontiguousarray(draw(rng, (n, k), BF16)).T
    found = candidates(read(a, b, {}).problem, EMULATED, every=True)
    kinds = sorted(set(map(type, found)), key=str)
    chosen = [config for kind in kinds for config in _spread(kind, found)]
    assert len(kinds) >= 2 and len(chosen) >= 2 * len(kinds)
    for config in chosen:
        assert_close(warploom.matmul(a, b, config=config), a, b)


# -- what is refused -----------------------------------------------------------------------------------------------

A, B = np.zeros((16, 32), BF16), np.zeros((32, 24), BF16)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"a": A[:, :30]}, ("argument", "b of shape (32, 24)")),
        ({"b": B.T}, ("argument", "b of shape (24, 32)")),
        ({"b": B.astype(np.float16)}, ("argument-type", "bf16 and f16")),
        ({"a": A.astype(E4M3)}, ("argument-type", "e4m3 and bf16")),
        ({"a": A.astype(np.float64), "b": B.astype(np.float64)}, ("argument-type", "f64")),
        ({"out_dtype": np.int32}, ("argument-type", "s32")),
        ({"a": A[0]}, ("argument", "shape (32,)")),
        (
            {"a": np.zeros((2, 16, 32), BF16), "b": np.zeros((3, 32, 24), BF16)},
            ("argument", "(2, 16, 32) and (3, 32, 24)"),
        ),
        ({"out": np.zeros((16, 25), BF16)}, ("wrong-shape", "(16, 25)")),
        (
            {"out": np.zeros((16, 24), np.float16), "out_dtype": BF16},
            ("wrong-type", "numpy array of f16, shape (16, 24), on the CPU"),
        ),
        ({"bias": np.zeros(23, BF16)}, ("argument", "shape (23,)")),
        ({"bias": np.zeros(24, np.float64)}, ("wrong-type", "numpy array of f64, shape (24,), on the CPU")),
        ({"c": np.zeros((16, 24), BF16)}, ("argument", None, "a beta")),
        ({"beta": 1.0}, ("argument", "beta=1.0")),
        ({"c": A, "residual": A, "beta": 1.0}, ("argument", None, "one of them")),
        ({"gate": np.zeros((16, 25), BF16)}, ("argument", "(16, 25)")),
        (
            {"residual": np.zeros((16, 24), np.float32)},
            ("argument-type", "numpy array of f32, shape (16, 24), on the CPU"),
        ),
        ({"activation": "tanh"}, ("argument", "'tanh'")),
        ({"alpha": "2"}, ("argument-type", "str")),
        ({"accumulate": "exact"}, ("argument", "'exact'")),
        ({"scale_a": np.ones(1, np.float32)}, ("argument", "scale_b=None")),
        (
            {"scale_a": np.ones((16, 1), np.float32), "scale_b": np.ones((24, 1), np.float32)},
            ("argument", "(16, 1) and (24, 1)"),
        ),
        ({"scale_a": np.ones(1), "scale_b": np.ones(1)}, ("wrong-type", "numpy array of f64, shape (1,), on the CPU")),
        ({"scale_out": 2.0}, ("argument-type", "out_dtype bf16")),
        ({"config": "fast"}, ("argument", "fast")),
        ({"config": "blackwel:tile_n=128"}, ("argument", "blackwel:tile_n=128")),
        ({"config": 5}, ("argument-type", "5")),
        ({"config": Config(tile_m=256, tile_n=256)}, ("configuration", "256")),
        ({"colour": 1}, ("argument-type", "colour=")),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(options, said):
    arguments = {"a": A, "b": B} | options
    with refused(*said):
        warploom.matmul(arguments.pop("a"), arguments.pop("b"), **arguments)


def test_an_output_that_lies_on_an_operand_is_refused():
    square = np.zeros((32, 32), BF16)
    with refused("overlap", expected="a separate `out`"):
        warploom.matmul(square, np.zeros((32, 32), BF16), out=square)


def test_what_would_take_too_long_to_emulate_is_refused_with_the_estimate():
    with (
        warploom.config.override(emulator={"limit_s": 0.5}),
        refused("cost-limit", got="4096 x 4096 x 512"),
    ):
        warploom.matmul(np.zeros((4096, 512), BF16), np.zeros((512, 4096), BF16))


@pytest.mark.filterwarnings("default::warploom.errors.CopyWarning")
def test_a_copy_is_said_once_with_its_reason_and_its_cost():
    a, b = np.zeros((16, 33), BF16), np.zeros((33, 24), BF16)
    with pytest.warns(CopyWarning) as caught:
        warploom.matmul(a, b)
        warploom.matmul(a, b)
    (only,) = caught
    for word in ("`a`", "do not start at multiples of 16 bytes", "1,056 bytes", "(66, 2)"):
        assert word in str(only.message)
    assert only.filename == __file__


def test_memory_that_tma_can_address_is_not_copied(recwarn):
    a, b = np.zeros((16, 40), BF16), np.zeros((48, 64), BF16)
    warploom.matmul(a[:, :33], b[:33, 8:32])
    warploom.matmul(a.T[:33, :8].T, b.T[8:40, :33].T)
    assert not recwarn.list


@pytest.mark.parametrize("name", ["residual", "gate", "c"])
def test_a_vector_s_companions_may_be_vectors(name: str):
    rng = np.random.default_rng(0)
    x, w, beside = (draw(rng, shape, BF16) for shape in ((64,), (32, 64), (32,)))
    beta = {"beta": 2.0} if name == "c" else {}
    found = warploom.linear(x, w, **{name: beside}, **beta)
    np.testing.assert_array_equal(found, warploom.linear(x[None], w, **{name: beside[None]}, **beta)[0])


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("n, k", [(48, 192), (128, 256), (640, 256), (64, 64)])
def test_a_streamed_product_with_fewer_stages_than_multiprocessors(n: int, k: int):
    """Multiprocessors without a stage are waited for by nobody; what they would leave after stays zero."""
    rng = np.random.default_rng(0)
    a, b = draw(rng, (8, k), BF16), draw(rng, (n, k), BF16).T
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for _ in range(2):
        found = warploom.matmul(a, b, config=SmallMConfig(split_by="stream"))
        assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < 2.5e-3


def test_threads_and_broken_off_calls_share_no_sums():
    rng = np.random.default_rng(0)
    b = draw(rng, (64, 2048), BF16).T
    xs = [draw(rng, (16, 2048), BF16) for _ in range(3)]
    by_last = SmallMConfig(tokens=16, split_k=4, split_by="last")
    wanted = [warploom.matmul(x, b, config=by_last) for x in xs]
    with warploom.config.override(emulator={"max_steps": 2500}), pytest.raises(StepLimitError):
        warploom.matmul(xs[0], b, config=by_last)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda x: warploom.matmul(x, b, config=by_last), xs * 2))
    for mine, right in zip(found, wanted * 2, strict=True):
        np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize(
    "pinned",
    [Config(consumers=0), Config(consumers=4, tile_m=256, tile_n=64), Config(group=0), Config(stages=2.5),
     Config(tile_m="a"), Config(ctas="2"), Config(multicast="c"), Config(pdl="x"), Config(constant_weights="no"),
     SmallMConfig(ctas_per_sm=0), SmallMConfig(split_k=2.0), SmallMConfig(tokens="x"), SmallMConfig(trigger=None),
     SmallMConfig(split_k=10**6, split_by="last")],
    ids=repr,
)  # fmt: skip
def test_a_configuration_of_nonsense_is_refused_in_a_sentence(pinned):
    a, b = np.zeros((16, 64), BF16), np.zeros((64, 32), BF16)
    with refused("configuration"):
        warploom.matmul(a, b, config=pinned)


def test_a_small_m_configuration_does_not_promote():
    a, b = np.zeros((16, 256), E4M3), np.zeros((256, 16), E4M3)
    scales = {"scale_a": np.ones((16, 2), np.float32), "scale_b": np.ones((2, 1), np.float32)}
    with pytest.raises(ArgumentError) as caught:
        warploom.matmul(a, b, config=SmallMConfig(), **scales)
    assert caught.value.got == SmallMConfig().name()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"out": np.zeros((), BF16)}, ("wrong-shape", "()")),
     ({"out": np.zeros((1, 32), BF16)}, ("wrong-shape", "(1, 32)")),
     ({"out": "x"}, ("wrong-type", "str 'x'")), ({"constant_weights": "no"}, ("argument-type", "'no'")),
     ({"constant_weights": np.ones(2)}, ("argument-type", None, "True or False")),
     ({"accumulate": np.array(["fast", "fast"])}, ("argument", None, "default, fast, precise"))],
    ids=str,
)  # fmt: skip
def test_what_goes_with_a_vector_is_looked_at_first(options: dict, words: str):
    with refused(*words):
        warploom.linear(np.zeros(64, BF16), np.zeros((32, 64), BF16), **options)


def test_blocks_have_scales_for_eight_bits_only():
    scales = {"scale_a": np.ones((16, 2), np.float32), "scale_b": np.ones((2, 1), np.float32)}
    with refused("argument-type", got="bf16"):
        warploom.matmul(np.zeros((16, 256), BF16), np.zeros((256, 16), BF16), **scales)


def test_the_scale_of_tiny_numbers_is_a_normal_one():
    q, scale = warploom.quantize(np.array([[0, 1e-43], [1, 2]], np.float32), "row")
    assert np.all(scale >= np.finfo(np.float32).tiny) and not np.isnan(q.astype(np.float32)).any()
