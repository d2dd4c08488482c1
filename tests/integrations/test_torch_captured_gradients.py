"""Gradients of tensors that a function of scores captures, against float64 autograd and torch's flex_attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402
from warploom.isa.dtypes import f32, s32, u64  # noqa: E402
from warploom.kernels.hopper.attention_backward_config import BackwardConfig  # noqa: E402
from warploom.lang import Tile, kernel, ptx  # noqa: E402
from warploom.operators.attention import gradients  # noqa: E402
from warploom.operators.attention.backward import BackwardChoice  # noqa: E402
from warploom.operators.attention.captured import captured  # noqa: E402

pytestmark = pytest.mark.full
PLAIN = {"causal": False, "scale": None, "window": None, "softcap": None, "layout": "bhsd"}
TABLE = torch.tensor([3, 0, 2, 1] * 8, dtype=torch.int64)


# -- derivatives -----------------------------------------------------------------------------------------------------

READ = {
    "sums": lambda s, x, y, i: s + x[i] - 2 * y[i],
    "products": lambda s, x, y, i: s * x[i] * y[i] + x[i] ** 3,
    "quotients": lambda s, x, y, i: s / (2 + x[i] * x[i]) + x[i] / (3 + abs(y[i])),
    "where": lambda s, x, y, i: torch.where(s > x[i], x[i] * y[i], s * y[i]) + (x[i] * s).masked_fill(y[i] > 0, 2.0),
    "abs": lambda s, x, y, i: torch.abs(x[i] - s) + abs(y[i]),
    "extremes": lambda s, x, y, i: torch.maximum(x[i], s * y[i]) + torch.minimum(x[i] * 2, y[i]),
    "bounds": lambda s, x, y, i: (
        torch.clamp(s, min=x[i], max=x[i] + 1) + torch.clamp(x[i], max=y[i]) + torch.clamp(s, x[i], y[i])
    ),
    "functions": lambda s, x, y, i: torch.exp(x[i] * 0.3) * torch.sigmoid(s * y[i]) + torch.tanh(x[i] / 4),
    "powers": lambda s, x, y, i: (x[i] * x[i] + 1) ** 0.5 + 2.0 ** y[i] + (1 + abs(x[i])) ** -1.5,
    "remainders": lambda s, x, y, i: torch.remainder(s * x[i], 0.7) + torch.fmod(s, 2 + abs(y[i])),
    "two reads of one": lambda s, x, y, i: x[i] * x[31 - i] + x[-1] * s - y[i],
    "nested": lambda s, x, y, i: x[TABLE[i]] * s + y[TABLE[i] + 4],
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_the_derivatives_by_what_is_read_are_autograds(name: str) -> None:
    check_reads(READ[name])


def check_reads(function: Any) -> None:
    """The derivatives of a function of the score, two tensors and an index are autograd's."""
    s, x, y = normal(32), normal(32, seed=1), normal(32, seed=2)
    made = captured(lambda s, b, h, i, j: function(s, x, y, i), "score_mod")
    floats = tuple(number for number, each in enumerate(made.given) if each is not TABLE)
    traced = replace(made.function, wanted=floats)
    arrays = {f"score_{number}": Tile(32, dtype) for number, (_, dtype) in enumerate(traced.sizes())}
    sums = {f"sum_{number}": Tile(32, f32, inout=True) for number in floats}

    @kernel(in_specs={"S": Tile("N", f32), **arrays, **sums}, out_specs={}, grid=1, block=32, arch="sm_90a")
    def derive(**call: Any) -> None:
        place = ptx.special.tid.x()
        score, at = ptx.load(f32, ptx.addr(call["S"].pointer() + place * 4)), place.view(s32)
        _, _, reads = traced.derive_reads([call[name] for name in arrays], score, at, at, at, at)
        for each in reads:
            where = ptx.addr(call[f"sum_{each.array}"].pointer() + each.at.integer().to(u64) * 4)
            ptx.inst("red.relaxed.gpu.global.add.f32", where, each.slope.floating())

    found = [torch.zeros(32).numpy() for _ in sums]
    derive.emulate(s.numpy(), *[each.numpy() for each in made.given], *found)
    exact = {id(each): each.double().requires_grad_() for each in (x, y)}
    function(s.double(), exact[id(x)], exact[id(y)], torch.arange(32)).sum().backward()
    for number, sum_of in zip(floats, found, strict=True):
        wanted = exact[id(made.given[number])].grad
        torch.testing.assert_close(torch.as_tensor(sum_of).double(), wanted, atol=4e-3, rtol=4e-3)


# -- sums over scores ------------------------------------------------------------------------------------------------

QUERIES, KEYS, HEADS = 33, 70, 2
"""Ragged in tiles of queries and in blocks of keys."""


def of_number(x):
    return lambda s, b, h, i, j: s * x


def of_heads(x):
    return lambda s, b, h, i, j: s - x[h] * (i - j)


def of_batches_and_heads(x):
    return lambda s, b, h, i, j: torch.tanh(s * x[b, h])


def of_keys(x):
    return lambda s, b, h, i, j: s + x[j]


def of_queries(x):
    return lambda s, b, h, i, j: s * x[b, i]


def of_distances(x):
    return lambda s, b, h, i, j: s + x[h, i - j + KEYS - 1]


def of_all(x):
    return lambda s, b, h, i, j: s + x[b, h, i, j]


def of_a_table(x):
    table = TABLE.to(x.device)
    return lambda s, b, h, i, j: s + x[table[i % 32], j % 8]


def of_two(x, y):
    return lambda s, b, h, i, j: s * torch.sigmoid(x[i] * y[j]) + x[i // 2]


SUMS = {
    "a number": (of_number, [()]), "heads": (of_heads, [(HEADS,)]),
    "batches and heads": (of_batches_and_heads, [(2, HEADS)]),
    "keys": (of_keys, [(KEYS,)]), "queries": (of_queries, [(2, QUERIES)]),
    "distances": (of_distances, [(HEADS, QUERIES + KEYS)]), "all": (of_all, [(2, HEADS, QUERIES, KEYS)]),
    "a table": (of_a_table, [(4, 8)]), "two tensors": (of_two, [(QUERIES,), (KEYS,)]),
}  # fmt: skip


def normal(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(queries: int = QUERIES, keys: int = KEYS, dim: int = 16) -> list[Any]:
    """q, k and v of two batches; all heads of q share one of k."""
    shapes = (2, HEADS, queries, dim), (2, 1, keys, dim), (2, 1, keys, dim)
    return [normal(*shape, dtype=torch.bfloat16, seed=seed) for seed, shape in enumerate(shapes)]


def modified_scores(q: Any, k: Any, score_mod: Any, causal: bool = False) -> Any:
    """In float64; -inf where a query does not see a key."""
    scores = q @ k.repeat_interleave(HEADS, 1).mT / math.sqrt(q.shape[-1])
    places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    hidden = places[3] > places[2] + k.shape[2] - q.shape[2]
    return score_mod(scores, *places).masked_fill(hidden & causal, -torch.inf)


def exact(tensors: Any, function: Any, read: Any, causal: bool = False, result: Any = None) -> tuple[Any, ...]:
    """The result, the logarithms, a gradient of the result, and the gradients of q, k, v and of what is read.

    They are those of a result as it was rounded, by default to bf16: the rounding of a row is added up in them.
    """
    q, k, v, *x = (each.detach().cpu().double().requires_grad_() for each in (*tensors, *read))
    scores = modified_scores(q, k, function(*x), causal)
    weights, values = torch.softmax(scores, -1), v.repeat_interleave(HEADS, 1)
    out = (weights @ values).bfloat16() if result is None else result
    grad = normal(*out.shape, dtype=torch.bfloat16, seed=9)
    slopes = weights * (grad.double() @ values.mT - (grad * out.detach().cpu().double()).sum(-1, keepdim=True))
    seen = scores.masked_fill(scores.isinf(), 0.0)
    made = torch.autograd.grad((seen * slopes.detach()).sum(), [q, k, *x])
    (of_v,) = torch.autograd.grad(weights @ values, v, grad.double())
    return out.detach(), scores.detach().logsumexp(-1), grad, [*made[:2], of_v, *made[2:]]


def found_by(
    tensors: list[Any], function: Any, read: list[Any], results: Any, wanted: bool = True, **options: Any
) -> list[Any]:
    """The gradients of q, k, v and, if wanted, of what is read, by the kernels, in small tiles."""
    out, lse, grad = results
    made = captured(function(*read), "score_mod")
    arrays = {f"score_{n}": each for n, each in enumerate(made.given) if each is not TABLE and wanted}
    found = gradients.gradients(
        dict(zip("qkv", tensors, strict=True)), out, lse.float(), grad, captured=tuple(arrays),
        choice=BackwardChoice(BackwardConfig(tile_m=32)), score_mod=function(*read), **(PLAIN | options),
    )  # fmt: skip
    sums = [found.captured[name][: each.numel()].view(each.shape) for name, each in arrays.items()]
    return [found.dq, found.dk, found.dv, *sums]


def near(found: Any, wanted: Any, most: float = 0.006) -> bool:
    return bool((found.double() - wanted).norm() <= most * wanted.norm())


@pytest.mark.parametrize("name", SUMS)
def test_the_gradients_of_captured_tensors_are_autograds(name: str) -> None:
    function, shapes = SUMS[name]
    read = [normal(*shape, seed=number) for number, shape in enumerate(shapes, 3)]
    tensors, causal = operands(), name in ("distances", "all", "keys")
    *results, wanted = exact(tensors, function, read, causal=causal)
    found = found_by(tensors, function, read, results, causal=causal)
    for one, other in zip(found, wanted, strict=True):
        assert near(one, other), (one.double() - other).norm() / other.norm()


LAYOUTS = {
    "transposed": lambda: normal(QUERIES, HEADS).mT,
    "expanded": lambda: normal(1, QUERIES).expand(HEADS, QUERIES),
    "every other": lambda: normal(HEADS, 2 * QUERIES)[:, ::2],
}  # fmt: skip


def test_of_tensors_with_any_strides_each_element_has_its_own_sum():
    three = [make() for make in LAYOUTS.values()]
    assert not any(each.is_contiguous() for each in three)
    function = lambda x, y, z: lambda s, b, h, i, j: s * x[h, i] + y[1][i] * z[h, -1 - i] * s  # noqa: E731
    tensors = operands(17, 20)
    *results, wanted = exact(tensors, function, three)
    found = found_by(tensors, function, three, results)
    assert all(near(one, other) for one, other in zip(found, wanted, strict=True))


def test_without_scores_there_are_no_sums():
    tensors = operands(QUERIES, 0)
    results = normal(2, HEADS, QUERIES, 16), normal(2, HEADS, QUERIES), normal(2, HEADS, QUERIES, 16).bfloat16()
    made = captured(of_keys(normal(KEYS)), "score_mod")
    out, lse, grad = results
    found = gradients.gradients(
        dict(zip("qkv", tensors, strict=True)), out.bfloat16(), lse, grad, captured=("score_0",),
        score_mod=of_keys(normal(KEYS)), **PLAIN,
    )  # fmt: skip
    assert made.given
    assert found.captured == {}


# -- autograd --------------------------------------------------------------------------------------------------------


BIAS = normal(8, seed=6, dtype=torch.bfloat16)


def called(tensors: Any, bias: Any, **options: Any) -> Any:
    return warploom.attention(*tensors, score_mod=of_keys(bias), **options)


def test_a_tensor_used_in_a_function_and_elsewhere_gets_both_gradients():
    bias, tensors = torch.nn.Parameter(BIAS.clone()), operands(8, 8)
    for times in (1, 2):
        out = called(tensors, bias)
        *_, grad, wanted = exact(tensors, of_keys, [BIAS], result=out)
        (out.float() * grad.float()).sum().backward()
        (bias * bias).sum().backward()
        assert near(bias.grad, times * (wanted[3] + 2 * BIAS))
    assert bias.grad.dtype is torch.bfloat16
    assert all(x.grad is None for x in tensors)


def test_the_other_gradients_are_the_same_with_and_without_them():
    tensors, read = operands(8, 8), [normal(KEYS)]
    *results, _ = exact(tensors, of_keys, read)
    found = [found_by(tensors, of_keys, read, results, wanted=wanted) for wanted in (True, False)]
    assert [len(each) for each in found] == [4, 3]
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_gradients_have_the_type_of_their_tensors(dtype):
    bias, tensors = BIAS.to(dtype).requires_grad_(), operands(8, 8)
    out = called(tensors, bias)
    *_, grad, wanted = exact(tensors, of_keys, [bias], result=out)
    out.backward(grad)
    assert bias.grad.dtype is dtype
    assert near(bias.grad, wanted[3])


def test_without_gradients_nothing_is_kept_for_them():
    bias = BIAS.clone().requires_grad_()
    with torch.no_grad():
        assert not called(operands(8, 8), bias).requires_grad
    assert not called(operands(8, 8), bias.detach()).requires_grad


def test_only_torchs_deterministic_mode_refuses_sums_in_no_fixed_order():
    bias, tensors = BIAS.clone().requires_grad_(), [each.requires_grad_() for each in operands(8, 8)]
    out = called(tensors, bias)
    torch.use_deterministic_algorithms(True)
    try:
        for refused in (lambda: called(tensors, bias), lambda: out.sum().backward()):
            with pytest.raises(ArgumentError) as error:
                refused()
            assert error.value.code == "no-fixed-order"
        assert called(tensors, bias.detach()).requires_grad
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="order"):
            called(tensors, bias)
    finally:
        torch.use_deterministic_algorithms(False)


def test_second_derivatives_are_refused():
    bias, tensors = BIAS.clone().requires_grad_(), operands(8, 8)
    (first,) = torch.autograd.grad(called(tensors, bias).sum(), bias, create_graph=True)
    with pytest.raises(ArgumentError):
        first.sum().backward()


def test_in_eight_bits_they_are_refused():
    tensors = [each.to(torch.float8_e4m3fn) for each in operands(8, 8)]
    with pytest.raises(ArgumentError):
        called(tensors, BIAS.clone().requires_grad_(), q_scale=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dim", [64, 128])
def test_in_the_tiles_that_are_chosen(name: str, dim: int) -> None:
    function, shapes = SUMS[name]
    compare(warploom.attention, function, [normal(*shape, seed=number) for number, shape in enumerate(shapes, 3)], dim)


def compare(attend: Any, function: Any, read: list[Any], dim: int, dtype: Any = torch.bfloat16, **options: Any) -> None:
    """Compare gradients with those of the same result."""
    device = read[0].device
    tensors = [each.to(device, dtype).requires_grad_() for each in operands(dim=dim)]
    leaves = tensors + [each.detach().clone().requires_grad_() for each in read]
    for _ in range(2 if device.type == "cuda" else 1):  # a repeated call only launches
        out = attend(*tensors, score_mod=function(*leaves[3:]), **options)
        *_, grad, wanted = exact(tensors, function, read, result=out)
        found = torch.autograd.grad(out, leaves, grad.to(device, dtype))
        for one, other in zip(found, wanted, strict=True):
            assert near(one.cpu(), other), (one.cpu() - other).norm() / other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", SUMS)
def test_on_a_gpu_they_are_right_where_those_of_torchs_flex_attention_are(name: str, dim: int) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    function, shapes = SUMS[name]
    read = [normal(*shape, seed=number).cuda() for number, shape in enumerate(shapes, 3)]
    compare(wt.flex_attention, function, read, dim, enable_gqa=True)
    if () not in shapes:  # torch's cannot capture a number
        compare(flex_attention, function, read, dim, torch.float32, enable_gqa=True)
