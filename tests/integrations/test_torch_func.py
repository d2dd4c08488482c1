"""Attention inside of torch.func: gradients and vmap against float64, refusals of what it has not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch.func import functional_call, grad, jacrev, jvp, vjp, vmap  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402

pytestmark = pytest.mark.full
SAMPLES, ENDS = 3, torch.tensor([0, 3, 8], dtype=torch.int32)


def normal(*shape: int, seed: int = 0, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(*samples: int) -> list[Any]:
    """q, k and v of two heads of q, one of k and v."""
    return [normal(*samples, 1, heads, 8, 16, seed=seed) for seed, heads in enumerate((2, 1, 1))]


def packed(*samples: int) -> list[Any]:
    return [normal(*samples, 8, heads, 16, seed=seed) for seed, heads in enumerate((2, 1, 1))]


def exact(q: Any, k: Any, v: Any, score_mod: Any = None, seen: Any = None) -> Any:
    """(B, H, S, D) in float64; `seen`: (S, T)."""
    scores = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    places = torch.meshgrid(*(torch.arange(n) for n in (1, 2, 8, 8)), indexing="ij")
    scores = scores if score_mod is None else score_mod(scores, *places)
    scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) @ v.double()


CAUSAL = torch.ones(8, 8, dtype=torch.bool).tril()
DOCUMENT = torch.bucketize(torch.arange(8), ENDS[1:].long(), right=True)
SLOPES = torch.tensor([0.25, 0.5])
MASK = create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 8, device="cpu", BLOCK_SIZE=64)


def alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s - SLOPES[h] * (i - j)


def of_packed(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.movedim(0, 1)[None] for x in (q, k, v))
    return exact(q, k, v, seen=DOCUMENT[:, None] == DOCUMENT)[0].movedim(1, 0)


Way = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
WAYS: dict[str, Way] = {
    "plain": (lambda q, k, v: warploom.attention(q, k, v), exact, operands),
    "causal": (lambda q, k, v: wt.flash_attn_func(*(x.mT.mT.transpose(1, 2) for x in (q, k, v)),
                                                  causal=True).transpose(1, 2),
               lambda q, k, v: exact(q, k, v, seen=CAUSAL), operands),
    "function": (lambda q, k, v: warploom.attention(q, k, v, score_mod=alibi),
                 lambda q, k, v: exact(q, k, v, alibi), operands),
    "block mask": (lambda q, k, v: wt.flex_attention(q, k, v, alibi, MASK, enable_gqa=True),
                   lambda q, k, v: exact(q, k, v, alibi, CAUSAL), operands),
    "packed": (lambda q, k, v: warploom.attention_varlen(q, k, v, ENDS, ENDS), of_packed, packed),
}  # fmt: skip


def near(found: Any, wanted: Any, most: float = 0.008) -> bool:
    return found.shape == wanted.shape and bool((found.double() - wanted).norm() <= most * wanted.norm())


def total(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *tensors: (call(*tensors).double() ** 2).sum()


@pytest.mark.parametrize("name", WAYS)
def test_gradients_are_those_of_float64(name: str) -> None:
    call, formula, make = WAYS[name]
    found = grad(total(call), argnums=(0, 1, 2))(*make())
    wanted = grad(total(formula), argnums=(0, 1, 2))(*[x.double() for x in make()])
    assert all(near(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.sample(0, all=5)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (None, 0, 0)])
def test_vmap_calls_for_each_sample(name: str, in_dims: tuple[Any, ...]) -> None:
    call, formula, make = WAYS[name]
    tensors = [many if dim == 0 else one for many, one, dim in zip(make(SAMPLES), make(), in_dims, strict=True)]
    assert near(vmap(call, in_dims)(*tensors), vmap(formula, in_dims)(*tensors))


@pytest.mark.sample(0, all=2)
@pytest.mark.parametrize("name", WAYS)
def test_gradients_of_each_sample(name: str) -> None:
    call, formula, make = WAYS[name]
    found = vmap(grad(total(call), argnums=(0, 1, 2)), (0, None, 0))
    wanted = vmap(grad(total(formula), argnums=(0, 1, 2)), (0, None, 0))
    q, (_, k, _), v = make(SAMPLES)[0], make(), make(SAMPLES)[2]
    both = found(q, k, v), wanted(*(x.double() for x in (q, k, v)))
    assert all(near(one, other) for one, other in zip(*both, strict=True))


def test_the_gradient_of_a_sum_over_samples() -> None:
    call, formula, make = WAYS["plain"]
    several = [total(vmap(each, (0, None, None))) for each in (call, formula)]
    tensors = [make(SAMPLES)[0], *make()[1:]]
    found, wanted = grad(several[0], argnums=1)(*tensors), grad(several[1], argnums=1)(*[x.double() for x in tensors])
    assert near(found, wanted)


def test_captured_tensors_have_gradients_of_each_sample() -> None:
    tensors = operands()

    def of_bias(attend: Any) -> Any:
        return lambda bias: total(lambda *x: attend(*x, score_mod=lambda s, b, h, i, j: s + bias[j]))(*tensors)

    biases = normal(SAMPLES, 8, dtype=torch.float32)
    for found, wanted in ((grad, grad), (lambda f: vmap(grad(f)), lambda f: vmap(grad(f)))):
        given = biases if wanted is not grad else biases[0]
        assert near(found(of_bias(warploom.attention))(given), wanted(of_bias(exact))(given))


def test_sinks_and_logarithms_have_gradients_of_each_sample() -> None:
    q, k, v = operands()
    sinks = normal(2, dtype=torch.float32)

    def of_sinks(sinks: Any, q: Any) -> Any:
        out, lse = warploom.attention(q, k, v, sinks=sinks, return_lse=True)
        return (out.double() ** 2).sum() + lse.double().sum()

    def formula(sinks: Any, q: Any) -> Any:
        scores = q.double() @ k.double().mT / 4
        more = torch.cat((scores, sinks.double()[None, :, None, None].expand(1, 2, 8, 1)), -1)
        lse = more.logsumexp(-1)
        return ((torch.exp(scores - lse[..., None]) @ v.double()) ** 2).sum() + lse.sum()

    several = operands(SAMPLES)[0]
    found = vmap(grad(of_sinks, argnums=(0, 1)), (None, 0))(sinks, several)
    wanted = vmap(grad(formula, argnums=(0, 1)), (None, 0))(sinks, several.double())
    assert all(near(one, other) for one, other in zip(found, wanted, strict=True))
    assert near(grad(of_sinks)(sinks, q), grad(formula)(sinks, q))


def test_products_with_a_vector_and_jacobians() -> None:
    call, formula, make = WAYS["plain"]
    q, k, v = make()
    (found,) = vjp(lambda q: call(q, k, v), q)[1](normal(1, 2, 8, 16, seed=5))
    (wanted,) = vjp(lambda q: formula(q, k, v), q.double())[1](normal(1, 2, 8, 16, seed=5).double())
    assert near(found, wanted)
    found, wanted = (jacrev(lambda q: each(q, k, v)[0, 0, 0])(q.to(kind))  # noqa: B023
                     for each, kind in ((call, torch.bfloat16), (formula, torch.float64)))  # fmt: skip
    assert near(found, wanted)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = torch.nn.Linear(16, 16, bias=False, dtype=torch.bfloat16)

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return warploom.attention(self.into(q), k, v)


def test_per_sample_gradients_of_a_models_weights() -> None:
    model, tensors = Model(), operands(SAMPLES)
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def loss(weights: Any, q: Any, k: Any, v: Any) -> Any:
        return (functional_call(model, weights, (q, k, v)).float() ** 2).sum()

    found = vmap(grad(loss), (None, 0, 0, 0))(weights, *tensors)["into.weight"]
    for number in range(SAMPLES):
        one = grad(loss)(weights, *[x[number] for x in tensors])["into.weight"]
        assert near(found[number], one.double(), 0.01)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WAYS)
def test_forward_mode_is_refused(name: str) -> None:
    call, _, make = WAYS[name]
    q, k, v = make()
    with pytest.raises(ArgumentError):
        jvp(lambda q: call(q, k, v), (q,), (q,))
    with forward_ad.dual_level(), pytest.raises(ArgumentError):
        call(forward_ad.make_dual(q, q), k, v)
    with forward_ad.dual_level():
        assert torch.equal(call(q, k, v), call(q, k, v)), "without tangents nothing is refused"


@pytest.mark.parametrize("name", WAYS)
def test_second_derivatives_are_refused(name: str) -> None:
    call, _, make = WAYS[name]
    q, k, v = make()
    with pytest.raises(ArgumentError):
        grad(lambda q: grad(total(call))(q, k, v).float().sum())(q)


def test_other_kernels_say_that_they_are_called_outside() -> None:
    k, v, lengths, b = *operands()[1:], torch.tensor([8], dtype=torch.int32), normal(16, 8)
    steps = normal(SAMPLES, 1, 2, 1, 16)
    with pytest.raises(ArgumentError):
        vmap(lambda q: warploom.attention_decode(q, k, v, lengths))(steps)
    with pytest.raises(ArgumentError):
        jvp(lambda q: warploom.attention_decode(q, k, v, lengths), (steps[0],), (steps[0],))
    with pytest.raises(ArgumentError):
        vmap(lambda a: warploom.matmul(a, b))(normal(SAMPLES, 8, 16))
    with forward_ad.dual_level(), pytest.raises(ArgumentError):
        warploom.matmul(forward_ad.make_dual(normal(8, 16), normal(8, 16)), b)
