"""Functions of scores and masks give the same values inside the kernel as in torch, or are refused."""

from __future__ import annotations

import functools
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as functional  # noqa: E402
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks  # noqa: E402

import warploom  # noqa: E402
from warploom.errors import ArgumentError, ArgumentTypeError, OutOfBoundsError, TraceError  # noqa: E402
from warploom.isa.dtypes import f32, s32  # noqa: E402
from warploom.lang import Tile, kernel, ptx  # noqa: E402
from warploom.operators.attention.captured import captured, spanned  # noqa: E402
from warploom.operators.views import restrided  # noqa: E402

THREADS = 64
SIGNED, SHORT = (torch.arange(THREADS) * 7 - 100).to(torch.int8), (torch.arange(THREADS) * 1000 - 32000).to(torch.int16)
NUMBERS, BYTES = torch.arange(5.0) - 1.5, (torch.arange(THREADS) // 9).to(torch.uint8)
TABLE = torch.arange(2.0 * THREADS).reshape(2, THREADS)
HEADS = torch.tensor([0.5, 3.0])
TURNED, SPREAD = torch.arange(3.0 * THREADS).reshape(THREADS, 3).t()[1:], torch.arange(9.0)[::4].expand(THREADS, 3)


torch.library.define("warploom_tests::exp", "(Tensor x) -> Tensor")


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def even(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i + j * 3) % 2 == 0


def computed(function: Any) -> Any:
    """Of (score, 0, 1, query, key) with other queries and keys in each thread."""
    made = captured(function, "score_mod")

    sizes = {f"captured_{number}": Tile(*each) for number, each in enumerate(made.function.sizes())}

    def compute(**arguments: Any) -> None:
        lane = ptx.special.tid.x()
        number = lane.view(s32)
        zero = ptx.special.ctaid.x().view(s32)
        given = ptx.load(f32, ptx.addr(arguments["x"].pointer() + lane * 4))
        captures = [arguments[name] for name in sizes]
        found = made.function.apply(captures, given, zero, zero + 1, number, THREADS - 1 - number)
        ptx.store(ptx.addr(arguments["y"].pointer() + lane * 4), found.floating())

    built = kernel(in_specs={"x": Tile("N", f32), **sizes}, out_specs={"y": Tile("N", f32)}, grid=1, block=THREADS,
                   arch="sm_90a", name="compute")(compute)  # fmt: skip
    arrays = [restrided(each, (spanned(each),), (each.dtype.bytes,)).host for each in made.arrays]
    arrays = [each.view(np.uint8) if each.dtype == np.bool_ else each for each in arrays]
    return torch.as_tensor(built.emulate(scores().numpy(), *arrays).outputs[-1])


def scores() -> Any:
    return torch.linspace(-3, 3, THREADS)


def in_torch(function: Any) -> Any:
    query = torch.arange(THREADS)
    found = function(scores(), torch.tensor(0), torch.tensor(1), query, THREADS - 1 - query)
    return torch.as_tensor(found).to(torch.float32).expand(THREADS)


SAME = {
    "bits": lambda s, b, h, i, j: (i & 6) + (i | 9) * 3 + (i ^ j) * 7 + ~j,
    "bits of truths": lambda s, b, h, i, j: ((i > 3) & (j > 9)) | ((i < 5) ^ ~(j < 20)),
    "a truth and a bit": lambda s, b, h, i, j: (i > 3) & 1,
    "functions of bits": lambda s, b, h, i, j: torch.bitwise_and(i, 5) + torch.bitwise_xor(i, j),
    "shifts": lambda s, b, h, i, j: (i >> 2) + (j << 3) + (1 << (i % 5)) + ((i - j) >> 1),
    "logical functions of integers": lambda s, b, h, i, j: torch.logical_and(i & 2, j & 1),
    "sums and products of truths": lambda s, b, h, i, j: (((i > 9) + (j > 9)) == 1) & ((i > 20) * (j > 20) == 0),
    "quotients": lambda s, b, h, i, j: (i - j) // 7 + (i - j) // -5 * 10 + (i - j) // (j - 70),
    "rests": lambda s, b, h, i, j: (i - j) % 7 + (i - j) % -5 * 10 + (i - j) % (j - 70),
    "quotients and rests of floats": lambda s, b, h, i, j: s // 0.75 + s % 0.75 + s % -0.75,
    "powers of a number": lambda s, b, h, i, j: 2 ** (i * 0.125) + 3.0**s,
    "methods": lambda s, b, h, i, j: s.where(i > j, 2.0) + (i - j).abs().float() + s.to(torch.int32) + i.bool().int(),
    "a number of torch on the left": lambda s, b, h, i, j: torch.tensor(2.0) * s - torch.tensor(1.0) + HEADS[1] / 2,
    "operators as functions": lambda s, b, h, i, j: torch.add(s, 1) + torch.eq(i, j + 1) * torch.remainder(i, 4),
    "negative indices": lambda s, b, h, i, j: NUMBERS[-1] + NUMBERS[i % 5 - 5] + TABLE[-1, i - j],
    "an index after the other": lambda s, b, h, i, j: TABLE[b][i] + TABLE[h][j] * 2 + len(TABLE) + TABLE.size(1),
    "arrays with strides": lambda s, b, h, i, j: (
        TURNED[h, i] + TURNED[0][j] * 2 + TURNED[-1, -1] + SPREAD[i, i % 3] * 1000 + SPREAD[j, 2]
    ),
    "constants": lambda s, b, h, i, j: (
        torch.ones_like(s) * i + torch.zeros_like(i) + torch.full_like(s, 2.5) * j + i.new_full((), 3) * s
        + s.new_zeros(()) + torch.zeros((), dtype=s.dtype) + b.new_ones((), dtype=torch.bool) * (i > j)
    ),
    "constants of a type": lambda s, b, h, i, j: (
        torch.ones_like(i, dtype=s.dtype) / 2 + torch.full_like(s, 1.5, dtype=i.dtype)
    ),
    "masks of torch": lambda s, b, h, i, j: and_masks(causal, or_masks(even, noop_mask))(b, h, i, j) * s
    + or_masks(causal, even)(b, h, i, j),
    "quotients with a rounding mode": lambda s, b, h, i, j: (
        torch.div(i - j, 7, rounding_mode="floor") + torch.div(i - j, 5, rounding_mode="trunc") * 100
        + torch.div(s, 0.7, rounding_mode="trunc") * 1e4 + torch.div(s, 0.7, rounding_mode="floor") * 1e5
    ),
    "sums with a factor": lambda s, b, h, i, j: torch.add(s, i, alpha=3) + torch.sub(j, i, alpha=2) + torch.rsub(s, j),
    "by torch's names": lambda s, b, h, i, j: torch.mul(input=s, other=2) + torch.clamp(input=s, max=1, min=-1),
    "steps": lambda s, b, h, i, j: (
        torch.floor(s) + torch.ceil(s) * 10 + torch.round(s * 2) * 100 + torch.trunc(s) * 1000 + torch.sign(s) * 5
        + torch.sign(i - j) * 7 + torch.floor(i)
    ),
    "remainders as in C": lambda s, b, h, i, j: torch.fmod(i - j, 7) + torch.fmod(i - j, -5) * 10 + torch.fmod(s, 0.7),
    "powers": lambda s, b, h, i, j: (
        s**3 + (s * s) ** 0.5 + (s.abs() + 1) ** -1.5 + torch.pow(s, 2) + (i % 3) ** 10 + s**0 + i**2.0
        + torch.square(s)
    ),
    "extremes": lambda s, b, h, i, j: torch.min(i, j) + torch.max(s, -s) + s.clamp_min(-1).clamp_max(2) + s.clip(0, 1),
    "questions": lambda s, b, h, i, j: (
        torch.isnan(torch.log(s)) + torch.isinf(s / 0) * 2 + torch.isfinite(s) * 4 + torch.isnan(i) * 8
        + s.log().isinf() * 16
    ),
    "methods that are operators": lambda s, b, h, i, j: (
        s.add(1).mul(2).sub(i).div(3) + s.eq(s) + i.remainder(5) + s.pow(2)
    ),
    "small numbers keep their digits": lambda s, b, h, i, j: (
        torch.expm1(s * 1e-4) * 1e4 + torch.log1p(s * 1e-4) * 1e4 + torch.erf(s * 1e-4) * 1e4
    ),
    "errors and exponentials": lambda s, b, h, i, j: (
        torch.erf(s) + torch.expm1(s) + torch.log1p(s.abs()) + torch.log10(s + 4)
    ),
    "activations": lambda s, b, h, i, j: (
        functional.relu(s) + functional.leaky_relu(s, 0.1) + functional.elu(s, 0.5) + functional.gelu(s)
        + functional.silu(s) + functional.softplus(s, 2.0, 4.0) + functional.logsigmoid(s) + functional.relu6(s * 4)
        + functional.softsign(s) + torch.relu(i - j)
    ),
    "a part with an argument": functools.partial(
        lambda f, s, b, h, i, j: f(s), functools.partial(functional.leaky_relu, negative_slope=0.2)
    ),
    "an operator of torch itself": lambda s, b, h, i, j: torch.ops.aten.exp(s) + torch.ops.aten.relu.default(s),
    "small integers wrap around": lambda s, b, h, i, j: (
        (BYTES[i] - BYTES[j]) + (BYTES[i] - 5) * s + -BYTES[j] * 2.0 + ~BYTES[i] * s + (BYTES[i] << 7) * s
        + SIGNED[i] * 2 + SIGNED[i] * SHORT[j] + torch.where(i > j, SIGNED[i], BYTES[j]) * 300 + SHORT[i] * 2
    ),
    "powers of an integer": lambda s, b, h, i, j: (
        (3 ** (i % 10) == 243) + 2 ** (i % 31) // 3 + (-3) ** (i % 12) + 4 ** (j % 9) + (-1) ** i + 1**i + 0**i
        + 2 ** (b - i) + 3 ** (b - i)
    ),
    "high powers of negative numbers": lambda s, b, h, i, j: (s * 0.5) ** 71 + (s / 3) ** 100,
    "NaN is kept": lambda s, b, h, i, j: (
        torch.where(i % 4 == 0, torch.minimum(torch.log(s), s), 0.0)
        + torch.where(i % 4 == 1, torch.maximum(s, torch.log(s)), 0.0)
        + torch.where(i % 4 == 2, torch.log(s).clamp(-1, 1), 0.0)
        + torch.where(i % 4 == 3, torch.relu(torch.log(s)), 0.0)
    ),
    "rests are exact": lambda s, b, h, i, j: (
        torch.remainder(s, 0.3) + torch.fmod(s, 0.3) * 10 + torch.fmod(-s, HEADS[0] / 5) + torch.remainder(s, -0.1)
        + torch.div(s, 0.1, rounding_mode="floor") + torch.div(s, 0.1, rounding_mode="trunc")
    ),
    "rests of a division by infinity": lambda s, b, h, i, j: (
        torch.fmod(s, float("inf")) + torch.where(s > 0, s % float("inf"), s % -float("inf"))
        + torch.fmod(s, (s + 9) / (i - i)) + s // float("inf")
    ),
    "what is filled in is of the same type": lambda s, b, h, i, j: i.masked_fill(i > j, 2.75) + s.masked_fill(i > j, 1),
    "bytes are numbers": lambda s, b, h, i, j: BYTES[i] + (BYTES[i] == BYTES[j]) * 100,
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_values_are_torchs(name: str) -> None:
    torch.testing.assert_close(computed(SAME[name]), in_torch(SAME[name]), atol=1e-5, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16"])
def test_arrays_of_each_type_are_read(dtype: str) -> None:
    numbers = (torch.arange(THREADS) % 3 - int(dtype[0] != "u")).to(getattr(torch, dtype))
    function = lambda s, b, h, i, j: numbers[i] * 1.0  # noqa: E731
    if dtype == "bfloat16":
        made = captured(function, "score_mod")
        assert made.function.arrays == (("bf16", (THREADS,), None),)
        return
    torch.testing.assert_close(computed(function), in_torch(function))


NOT_THERE = {
    "python's truth": lambda s, b, h, i, j: s if i > j else 0.0,
    "a chain": lambda s, b, h, i, j: 0 < i < j,
    "another method": lambda s, b, h, i, j: s.lgamma(),
    "another function": lambda s, b, h, i, j: torch.lgamma(s),
    "someone else's operator with a name of torch's": lambda s, b, h, i, j: torch.ops.warploom_tests.exp(s),
    "an argument that nothing reads": lambda s, b, h, i, j: torch.round(s, decimals=1),
    "another rounding mode": lambda s, b, h, i, j: torch.div(s, 2, rounding_mode="up"),
    "in place": lambda s, b, h, i, j: functional.relu(s, inplace=True),
    "in place by name": lambda s, b, h, i, j: torch.relu_(s),
    "one argument of two": lambda s, b, h, i, j: torch.max(s),
    "a power of two values": lambda s, b, h, i, j: s**i,
    "math": lambda s, b, h, i, j: __import__("math").exp(s),
    "bits of floats": lambda s, b, h, i, j: s & 1,
    "another type": lambda s, b, h, i, j: s.to(torch.bfloat16),
    "a call of an object": lambda s, b, h, i, j: LAYER(s),
    "a comparison of objects": lambda s, b, h, i, j: s if LAYER == OTHER else -s,
    "a loop over an object": lambda s, b, h, i, j: sum(x * s for x in LAYER),
    "an index that is a float": lambda s, b, h, i, j: NUMBERS[s],
    "an index that is a truth": lambda s, b, h, i, j: NUMBERS[i > j],
    "a slice": lambda s, b, h, i, j: NUMBERS[1:][i],
    "a number outside": lambda s, b, h, i, j: NUMBERS[5],
    "too many indices": lambda s, b, h, i, j: NUMBERS[0, 0],
    "arithmetic of an array": lambda s, b, h, i, j: (NUMBERS * 2)[0],
    "a torch function of an array": lambda s, b, h, i, j: torch.abs(NUMBERS)[0],
    "a method of an array": lambda s, b, h, i, j: NUMBERS.double()[0],
    "an array that it makes": lambda s, b, h, i, j: torch.zeros(64)[i],
    "a list by a value": lambda s, b, h, i, j: [1.0, 2.0][i],
    "its own error": lambda s, b, h, i, j: s + 1 / 0,
    "a division by zero": lambda s, b, h, i, j: i // 0,
    "nothing": lambda s, b, h, i, j: None,
}


MASKS = {
    "an integer": lambda b, h, i, j: i - j,
    "a float": lambda b, h, i, j: (i - j) * 1.0,
    "a number": lambda b, h, i, j: 1,
    "bits": lambda b, h, i, j: (i >= j) & 1,
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_is_no_bool_is_refused(name: str) -> None:
    q = torch.zeros(1, 1, 8, 16).bfloat16()
    with pytest.raises(TraceError) as found:
        warploom.attention(q, q, q, mask_mod=MASKS[name])
    assert found.value.code == "trace" and "bool" in str(found.value)


def test_an_index_outside_of_a_captured_array_names_the_array_and_the_function() -> None:
    q = torch.zeros(1, 1, 8, 16).bfloat16()
    with pytest.raises(OutOfBoundsError) as found:
        warploom.attention(q, q, q, score_mod=lambda s, b, h, i, j: s - NUMBERS[i + 100])
    assert found.value.code == "out-of-bounds" and Path(found.value.where.file).name == Path(__file__).name
    assert str(tuple(NUMBERS.shape)) in found.value.what and "score_mod" in found.value.what


def test_a_mask_may_choose_between_truths() -> None:
    q, v = torch.zeros(1, 1, 8, 16).bfloat16(), torch.randn(1, 1, 8, 16).bfloat16()
    chosen = warploom.attention(q, q, v, mask_mod=lambda b, h, i, j: torch.where(i >= j, True, False))
    assert torch.equal(chosen, warploom.attention(q, q, v, causal=True))


@pytest.mark.parametrize("name", NOT_THERE)
def test_what_the_kernel_does_not_have_is_refused_with_a_code(name: str) -> None:
    with pytest.raises(TraceError) as found:
        computed(NOT_THERE[name])
    assert found.value.code == "trace"


class Layer:
    """As a module with functions of scores."""

    def __init__(self, factor: Any) -> None:
        self.factor, self.deeper, self.layer = factor, SimpleNamespace(factor=factor), self

    def modify(self, s, b, h, i, j):
        return s * self.layer.deeper.factor

    def __call__(self, s, b, h, i, j):
        return self.modify(s, b, h, i, j)


class Fields(NamedTuple):
    factor: Any


class Entries(dict):  # type: ignore[type-arg]
    """As a configuration whose entries are attributes."""

    __getattr__ = dict.__getitem__


class Cached(Layer):
    @functools.cache  # noqa: B019
    def scaled(self, x):
        return x * self.factor

    def modify(self, s, b, h, i, j):
        return self.scaled(s)


FACTOR = 0.0


def by_a_function_inside(factor: float) -> Any:
    global FACTOR
    FACTOR = factor

    def modify(s, b, h, i, j):
        return (lambda: s * FACTOR)()

    return modify


def wrapped(factor: float) -> Any:
    plain = lambda s, b, h, i, j: s * factor  # noqa: E731
    return functools.wraps(plain)(lambda *places: plain(*places))


def by_name(factor: float) -> Any:
    def modify(s, b, h, i, j, *, by=factor):
        return s * by

    return modify


WAYS = {
    "a number": lambda x: lambda s, b, h, i, j: s * x,
    "a number of NumPy": lambda x: (lambda y: lambda s, b, h, i, j: s * y)(np.float32(x)),
    "a default": lambda x: lambda s, b, h, i, j, y=x: s * y,
    "a default by name": by_name,
    "a global of a function inside": by_a_function_inside,
    "a wrapper": wrapped,
    "an entry": lambda x: (lambda y: lambda s, b, h, i, j: s * y["by"])({"by": x}),
    "an attribute": lambda x: (lambda y: lambda s, b, h, i, j: s * y.factor)(Layer(x)),
    "a method": lambda x: Layer(x).modify,
    "an object that is called": Layer,
    "arguments in front": lambda x: functools.partial(lambda y, s, b, h, i, j: s * y, x),
    "a field": lambda x: (lambda y: lambda s, b, h, i, j: s * y.factor)(Fields(x)),
    "a field that is an array": lambda x: (lambda y: lambda s, b, h, i, j: s * y.factor)(Fields(torch.tensor(x))),
    "an entry that is an attribute": lambda x: (lambda y: lambda s, b, h, i, j: s * y.factor)(Entries(factor=x)),
    "a cached function": lambda x: (lambda f: lambda s, b, h, i, j: f(s))(functools.cache(lambda s: s * x)),
    "a cached method": lambda x: Cached(x).modify,
    "an element of a set": lambda x: (lambda y: lambda s, b, h, i, j: s * (2.0 if 2.0 in y else 5.0))({x, -1.0}),
    "a truth": lambda x: (lambda y: lambda s, b, h, i, j: s * (5.0 if y else 2.0))(deque(range(int(x - 2)))),
    "a range": lambda x: (lambda y: lambda s, b, h, i, j: s * float(y[-1]))(range(int(x) + 1)),
    "a compiled function": lambda x: (lambda f: lambda s, b, h, i, j: f(s))(torch.compile(lambda s: s * x)),
    "an array of no dimension": lambda x: (lambda y: lambda s, b, h, i, j: s * y)(torch.tensor(x)),
    "an attribute that is an array": lambda x: Layer(torch.tensor(x)).modify,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_captured_value_is_the_one_that_it_has_now(way: str) -> None:
    """A kernel is kept by a key: another value is another key, or an argument of the kernel."""
    keys, arrays = set(), 0
    for factor in (2.0, 5.0, 2.0):
        function = WAYS[way](factor)
        torch.testing.assert_close(computed(function), scores() * factor)
        made = captured(function, "score_mod")
        keys.add(made.function.key)
        arrays += len(made.arrays)
    assert len(keys) == (1 if arrays else 2)


LAYER, OTHER, ITSELF = Layer(1.0), Layer(1.0), [1.0]  # type: ignore[var-annotated]
ITSELF.append(ITSELF)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s, b, h, i, j):
        return s * 2


def again(s, b, h, i, j):
    return again(s, b, h, i, j)


def tanh(s, b, h, i, j):
    """Its name is also an attribute that it uses."""
    return (s / 2).tanh() * 2


def test_a_function_may_have_the_name_of_a_method_that_it_calls() -> None:
    torch.testing.assert_close(computed(tanh), in_torch(tanh), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    "function, error",
    [(again, ArgumentError), (torch.exp, ArgumentTypeError), (Layer, ArgumentTypeError), (3, ArgumentTypeError),
     (lambda s, b, h, i: s, ArgumentTypeError),
     ((lambda y: lambda s, b, h, i, j: s + y[i])(torch.zeros(0)), ArgumentError),
     ((lambda y: lambda s, b, h, i, j: s + y[i])(torch.zeros(2, dtype=torch.float64)), ArgumentTypeError),
     ((lambda y: lambda s, b, h, i, j: s + y[i])(np.zeros(3)[::-1].astype(np.float32)[::-1]), ArgumentError),
     (Doubled.apply, ArgumentTypeError), (torch.no_grad()(lambda s, b, h, i, j: s), ArgumentTypeError),
     ((lambda f: lambda s, b, h, i, j: f(s))(torch.no_grad()(lambda s: s)), ArgumentTypeError),
     ((lambda y: lambda s, b, h, i, j: s + y[0])(ITSELF), ArgumentError)],
)  # fmt: skip
def test_functions_that_cannot_be_taken_are_refused(function: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        captured(function, "score_mod")
