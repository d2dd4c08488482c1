"""CUDA C++'s language features and math library, compiled to PTX, give NumPy's numbers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from tests.foreign.cuda_texts import run, targets_of, text
from warploom.errors import VerificationError, WarploomError
from warploom.runtime import emulate

both = targets_of("language")


@both
def test_functions_that_are_not_inlined(target: str) -> None:
    """Structures and references by .param and local memory, loops in the callee, a call in one branch only."""
    n = 32
    points = np.zeros(n, np.dtype([("x", "f4"), ("y", "f4"), ("tag", "i4")]))
    points["x"], points["y"], points["tag"] = np.arange(n), 8, np.arange(n) * 2
    before, steps, out = points.copy(), np.zeros(n, np.int32), np.full(n, -1.0)
    run("language", target, "calls", points.view(np.uint8), steps, out)
    rounds = np.arange(n) % 3 + 1
    assert np.array_equal(points["x"], before["x"] + rounds * np.arange(n))
    assert np.array_equal(points["y"], 8 * 0.5**rounds)
    assert np.array_equal(points["tag"], before["tag"] + rounds)
    visited = [sum(before["tag"][i] + r for r in range(rounds[i])) for i in range(n)]
    assert steps.tolist() == [collatz(i + 1) * 100 + visited[i] for i in range(n)]
    expected = [(1 + i / 64) ** i if i % 2 else -1.0 for i in range(n)]
    np.testing.assert_allclose(out, expected, rtol=1e-13)


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


@both
def test_a_switch_through_a_table_of_branches(target: str) -> None:
    what = np.random.default_rng(0).integers(-1, 10, 96, dtype=np.int32)
    values = np.random.default_rng(1).standard_normal(96).astype(np.float32)
    expected = []
    for i, (case, v) in enumerate(zip(what, values.astype(float), strict=True)):
        cases = {
            0: v + 1,
            1: v * v - 3,
            2: v - 3,
            3: math.sqrt(abs(v)),
            4: v,
            5: math.copysign(1, v),
            6: v + i / 2,
            7: -v,
        }
        expected.append(cases.get(int(case), case))
    run("language", target, "switched", what, values, grid=(3, 1, 1))
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


@both
def test_arrays_in_local_memory(target: str) -> None:
    values = np.random.default_rng(0).integers(0, 256, (40, 50), dtype=np.uint8)
    out = np.zeros((40, 16), np.int32)
    run("language", target, "local_arrays", values, out, 50, block=40)
    for thread in range(40):
        counts = np.bincount(values[thread] & 15, minlength=16)
        order = sorted(range(16), key=lambda i: -counts[i])  # stable, as the insertion sort of the kernel is
        assert out[thread].tolist() == [i * 1000 + counts[i] for i in order]


@both
def test_maths_in_single_precision(target: str) -> None:
    x = np.concatenate([np.linspace(-5, 5, 60), [1e-3, 50.0, -123.5, 2.5]]).astype(np.float32)
    out = np.zeros((27, 64), np.float32)
    run("language", target, "single_maths", x, out, 64, block=64)
    v = x.astype(float)
    a = np.abs(v)
    each = np.vectorize
    expected = [
        np.sin(v), np.cos(v), np.tan(v), np.exp(v), np.exp2(v), np.log(a), np.log1p(a), a ** np.float32(1.7),
        np.sqrt(a), 1 / np.sqrt(a),
        np.tanh(v), each(math.erf)(v), np.arctan2(v, 2), np.cbrt(v), np.floor(v), np.rint(v), np.trunc(v),
        np.fmod(v, float(np.float32(0.7))), 1 / v, v / 3,
        v * v + v, v / 3, np.hypot(v, 2), v * 8, np.copysign(2, v), np.clip(v, 0, 1), np.maximum(v - 1, 0),
    ]  # fmt: skip
    for name, got, wanted in zip(range(27), out, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-7, err_msg=f"result {name}")


@both
def test_maths_in_double_precision(target: str) -> None:
    x = np.concatenate([np.linspace(-5, 5, 60), [1e-3, 30.0, -123.5, 2.5]])
    out = np.zeros((20, 64))
    run("language", target, "double_maths", x, out, 64, block=64)
    a = np.abs(x)
    expected = [
        np.sin(x), np.cos(x), np.exp(x), np.log(a), a**1.7, np.sqrt(a), 1 / x, x / 3, x * x + x, np.floor(x),
        np.rint(x), np.arctan(x), np.tanh(x),
        x.astype(np.float32), x.astype(np.int32), (x * 1e12).astype(np.int64), np.fmod(x, 0.7), 1 / np.sqrt(a),
        np.cbrt(x), np.vectorize(math.erf)(x),
    ]  # fmt: skip
    for name, got, wanted in zip(range(20), out, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=1e-15, err_msg=f"result {name}")


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def divided(a: int, b: int) -> tuple[int, int]:
    """Quotient and remainder as C rounds them, towards zero."""
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def lanes_of(value: int, bits: int) -> list[int]:
    return [value >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]


def packed(values: list[int], bits: int) -> int:
    return sum((value & ((1 << bits) - 1)) << (at * bits) for at, value in enumerate(values))


def integer_results(a: int, b: int, i: int) -> list[int]:
    """What the kernel `integers` computes, by Python's own integers."""
    whole, word = (1 << 64) - 1, (1 << 32) - 1
    ua, ub, na, nb, shift = a & whole, b & whole, a & word, b & word, b & 63
    sa, sb, odd = signed(na, 32), signed(nb, 32), nb | 1
    quad = [signed(x, 8) * signed(y, 8) for x, y in zip(lanes_of(na, 8), lanes_of(nb, 8), strict=True)]
    halves = [max(signed(x, 16), signed(y, 16)) for x, y in zip(lanes_of(na, 16), lanes_of(nb, 16), strict=True)]
    bytes_ = list(na.to_bytes(4, "little") + nb.to_bytes(4, "little"))
    sums = [x + y for x, y in zip(lanes_of(na, 8), lanes_of(nb, 8), strict=True)]
    distances = [abs(x - y) for x, y in zip(lanes_of(na, 8), lanes_of(nb, 8), strict=True)]
    clamped = min(i, 32)
    return [
        *divided(a, b), ua // ub, ua % ub, a * b >> 64, ua * ub >> 64, a >> shift, ua >> shift, a << shift,
        ua.bit_count(), 64 - ua.bit_length(), (ua & -ua).bit_length(), int(f"{ua:064b}"[::-1], 2),
        divided(sa, signed(odd, 32))[0], na % odd,
        na.bit_count(), 32 - na.bit_length(), int(f"{na:032b}"[::-1], 2),
        sum(bytes_[0x3526 >> (4 * at) & 7] << (8 * at) for at in range(4)),
        (na | nb << 32) << (i & 31) >> 32 & word, (na | nb << 32) >> clamped & word,
        sa * sb >> 32, na * nb >> 32, abs(sa - sb) + 7, signed(sum(quad) + 5, 32), packed(sums, 8),
        packed(halves, 16),
        signed(na, 16) * signed(nb, 16), na & 255, signed(nb, 8), min(a, b), ua >= ub, (sa + sb + 1) >> 1,
        signed(abs(sa), 32), packed(distances, 8),
    ]  # fmt: skip


@both
def test_integers_of_32_and_64_bits(target: str) -> None:
    random = np.random.default_rng(0)
    n = 64
    x = random.integers(-(2**63), 2**63 - 1, n, dtype=np.int64)
    y = random.integers(-(2**63), 2**63 - 1, n, dtype=np.int64) >> random.integers(0, 60, n)
    x[:4], y[:4] = [0, -1, 2**62, 12345], [1, 7, -3, 100]
    y[y == 0] = 1
    out = np.zeros((35, n), np.int64)
    run("language", target, "integers", x, y, out, n, block=n)
    for i in range(n):
        expected = [signed(value, 64) for value in integer_results(int(x[i]), int(y[i]), i)]
        assert out[:, i].tolist() == expected, f"for {x[i]} and {y[i]}"


@both
def test_pairs_of_halves(target: str) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((32, 2)).astype(np.float16) for _ in range(2))
    out = np.zeros((17, 32, 2), np.float16)
    run("language", target, "halves", a, b, out, 32)
    x, y = a.astype(float), b.astype(float)
    exact = [
        x + y, x - y, x * y, x * y + x, -x, np.abs(x), np.maximum(x, y), np.minimum(x, y), np.exp2(x),
        np.sqrt(np.abs(y)), x / y, x[:, ::-1], x > y,
        np.maximum(x * y + x, 0), np.clip(x + y, 0, 1), np.rint(x), np.stack([x[:, 0], y[:, 1]], 1),
    ]  # fmt: skip
    for name, got, wanted in zip(range(17), out, exact, strict=True):
        np.testing.assert_allclose(
            got.astype(float), wanted.astype(np.float16).astype(float), rtol=2**-10, err_msg=f"result {name}"
        )
        if name not in (8, 9, 10):  # those are approximations
            assert np.array_equal(got, wanted.astype(np.float16)), f"result {name}"


@both
def test_pairs_of_bfloat16(target: str) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((32, 2)).astype(ml_dtypes.bfloat16) for _ in range(2))
    out = np.zeros((10, 32, 2), ml_dtypes.bfloat16)
    run("language", target, "brain_halves", a, b, out, 32)
    x, y = a.astype(float), b.astype(float)
    exact = [x + y, x - y, x * y, x * y + x, -x, np.abs(x), np.maximum(x, y), np.minimum(x, y), x / y, x > y]
    for name, got, wanted in zip(range(10), out, exact, strict=True):
        expected = wanted.astype(ml_dtypes.bfloat16).astype(float)
        np.testing.assert_allclose(
            got.astype(float), expected, rtol=2**-7 if name == 8 else 0, err_msg=f"result {name}"
        )


@both
def test_threads_of_a_warp_among_themselves(target: str) -> None:
    x = np.random.default_rng(0).integers(-100, 100, 64, dtype=np.int32)
    out = np.zeros((14, 64), np.int32)
    run("language", target, "warps", x, out, 64, block=64)
    for warp in range(2):
        v = x[warp * 32 : warp * 32 + 32].astype(int)
        lane, positive = np.arange(32), np.flatnonzero(v > 0)
        ballot = int(sum(1 << int(i) for i in positive))
        down = np.array([v[i + 5] if i % 16 + 5 < 16 else v[i] for i in lane])
        match = [int(sum(1 << int(j) for j in lane if v[j] & 3 == v[i] & 3)) for i in lane]
        some = np.zeros((2, 32), int)
        some[0, positive] = v[positive].sum()
        some[1, positive] = v[positive[0]] + positive
        expected = [
            [ballot] * 32, [int((v > 90).any())] * 32, [int((v > -200).all())] * 32, match,
            np.where(lane < 3, v, np.roll(v, 3)), down, v[lane ^ 9], v[v & 31],
            [v.sum()] * 32, [v.max()] * 32, [np.bitwise_xor.reduce(v)] * 32, [-1] * 32, *some,
        ]  # fmt: skip
        for name, got, wanted in zip(range(14), out[:, warp * 32 : warp * 32 + 32], expected, strict=True):
            assert got.tolist() == [signed(int(value), 32) for value in wanted], f"result {name}"


@both
def test_tables_in_constant_and_global_memory_and_a_structure_by_value(target: str) -> None:
    options = np.zeros(1, np.dtype({"names": ["base", "which", "small", "negate", "factor"],
                                    "formats": ["i8", ("i4", 3), "i2", "?", "f8"], "offsets": [0, 8, 20, 22, 24],
                                    "itemsize": 32}))  # fmt: skip
    options["base"], options["which"], options["small"], options["negate"], options["factor"] = (
        1000,
        [0, 1, 3],
        -7,
        True,
        0.5,
    )
    out = np.zeros(36, np.float32)
    run("language", target, "tables", options.view(np.uint8), out)
    x = np.arange(32) * 0.25
    y = np.polyval([-0.75, 0.125, 2.0, -1.25, 0.5], x) + np.array([50, 60, -70, 80] * 8) + 1000 - 7
    np.testing.assert_allclose(out[:32], -0.5 * y, rtol=1e-6)
    assert out[32:].tolist() == [11, 11, 0, 10]


# -- mixed.cu ----------------------------------------------------------------------------------------------------

mixed = pytest.mark.parametrize("target", ["sm_80", "sm_90a"])


@mixed
def test_a_launch_bound_and_read_only_pointers(target: str) -> None:
    x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
    run("mixed", target, "saxpy", 300, np.float32(2), x, y, grid=(2, 1, 1), block=256)
    assert np.array_equal(y, 2 * x + 1)


@mixed
def test_a_structure_of_12_bytes_vectors_and_a_table(target: str) -> None:
    pack = np.array(
        [(2.0, -3, (1, -6, 3))], np.dtype([("scale", "f4"), ("shift", "i2"), ("sign", "i1", 3)], align=True)
    )
    values, out = np.arange(128, dtype=np.float32).reshape(32, 4), np.zeros((32, 4), np.float32)
    run("mixed", target, "by_value", pack.view(np.uint8), out, values)
    weights = np.array([1, 2, 0.5, -1, 0, 0, 0, 0] * 4, np.float32)
    expected = np.stack([2 * values[:, 0], values[:, 1] + weights, np.full(32, -3), np.full(32, -6)], 1)
    assert np.array_equal(out, expected)


@mixed
def test_conversions_between_halves_and_fp8(target: str) -> None:
    a = np.array([[1, 2], [3, 4], [5, 6]], np.float16)
    b = np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16)
    out, small = np.zeros(2, np.float32), np.zeros(4, np.uint8)
    run("mixed", target, "halves", a, b, out, small, block=1)
    assert out.tolist() == [8 + 4, 14 + 6]
    assert small.view(ml_dtypes.float8_e4m3fn).astype(float).tolist() == [8, 14, 4, 6]


@mixed
def test_a_template(target: str) -> None:
    out = np.zeros(32, np.int64)
    run("mixed", target, "_Z9templatedIxEvPT_S0_", out, np.int64(-5))
    assert (out == -5).all()


def test_a_square_root_behind_a_cluster_barrier() -> None:
    x = np.arange(64, dtype=np.float64)
    run("mixed", "sm_90a", "clustered", x, grid=(2, 1, 1))
    assert np.array_equal(x, np.sqrt(np.arange(64)) + 1.5)


@mixed
def test_what_a_kernel_prints_is_in_the_report(target: str) -> None:
    sums = np.zeros(3, np.float32)
    report = run("mixed", target, "row_sum", np.ones((3, 40), np.float32), sums, 40, block=64, dynamic_smem=4,
                 grid=(3, 1, 1))  # fmt: skip
    assert (sums == 40).all()
    assert [line.split()[-1] for line in report.printed] == ["40.000000"] * 3


@pytest.mark.parametrize("which, factor", [(0, 2), (1, 3)])
def test_a_call_through_a_pointer_of_a_table(which: int, factor: int) -> None:
    x = np.arange(32, dtype=np.float32)
    run("unsupported", "sm_90a", "through_pointer", x, which)
    assert np.array_equal(x, factor * np.arange(32))


# -- what is refused ---------------------------------------------------------------------------------------------


@mixed
def test_a_function_without_a_body_stops_where_it_is_called(target: str) -> None:
    unknown = text("mixed", target).replace("vprintf", "vsomething")
    arguments = (np.ones((1, 40), np.float32), np.zeros(1, np.float32), np.int32(40))
    with refused("unsupported-instruction"):
        emulate(unknown, *arguments, entry="row_sum", grid=(1, 1, 1), block=(64, 1, 1), dynamic_smem=4)


def test_recursion_stops_where_the_function_calls_itself() -> None:
    """Never a wrong number: the error names the line of the text and what to do about it."""
    with pytest.raises(WarploomError, match="fibonacci.* calls itself") as error:
        run("unsupported", "sm_90a", "recursive", np.zeros(32, np.int32))
    assert "call" in text("unsupported", "sm_90a").splitlines()[error.value.where.line - 1]
    assert error.value.hint


@both
def test_an_unknown_instruction_is_named_with_its_line_and_the_guide(target: str) -> None:
    newer = text("language", target).replace("vabsdiff4.u32", "vabsdiff8.u32")
    values = np.zeros(32, np.int64)
    with refused("unknown-instruction") as error:
        emulate(
            newer,
            values,
            values.copy(),
            values.copy(),
            np.int32(32),
            entry="integers",
            grid=(1, 1, 1),
            block=(32, 1, 1),
        )
    assert "vabsdiff8" in newer.splitlines()[error.value.where.line - 1]
    assert "How to add an instruction" in error.value.hint
