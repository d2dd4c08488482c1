"""Gradients of attention with functions of scores and masks, against float64 autograd."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as functional  # noqa: E402
from torch.nn.attention.flex_attention import BlockMask, create_block_mask  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402
from warploom.isa.dtypes import f32, s32  # noqa: E402
from warploom.kernels.hopper import attention_backward  # noqa: E402
from warploom.kernels.hopper.attention_config import Attention  # noqa: E402
from warploom.kernels.hopper.attention_pointwise import FUNCTIONS  # noqa: E402
from warploom.lang import Tile, kernel, ptx  # noqa: E402
from warploom.operators.attention.captured import captured  # noqa: E402

pytestmark = pytest.mark.full
SLOW = pytest.mark.slow
SLOPES, DOCUMENTS = torch.tensor([0.1, 0.3]), torch.arange(200) // 40


# -- derivatives -----------------------------------------------------------------------------------------------------


DERIVED = {
    "sums": lambda x: 3 - (x * 2 + 1 - x / 4) + -x,
    "products": lambda x: x**3 * 0.5 - 2 * x * x + (1 + x) * (x - 1),
    "quotients": lambda x: (1 + x) / (x * x + 2) + 3 / (2 + abs(x)),
    "where": lambda x: (
        torch.where(x > 0.3, x * x, 5.0 - x) + torch.where(x < 0, 1.0, 2.0) + torch.masked_fill(x * x, x < 1, 3.0)
        + x.masked_fill(x > 2, -1.0)
    ),
    "abs": lambda x: torch.abs(x) * 2 + x.abs(),
    "extremes": lambda x: torch.maximum(x, 0.5 - x) + torch.minimum(x * x, 1 + 0 * x),
    "clamp": lambda x: torch.clamp(x, min=-1, max=1) * 2 + torch.clamp(x, max=0.5) * x,
    "exp": lambda x: torch.exp(-x) + torch.exp2(x / 2),
    "log": lambda x: torch.log(x * x + 1) + torch.log2(2 + abs(x)),
    "roots": lambda x: torch.sqrt(x * x + 0.5) + torch.rsqrt(1 + x * x),
    "waves": lambda x: torch.sin(x) * 2 + torch.cos(x) * x,
    "roots of whole and other powers": lambda x: (x * x + 0.5) ** 0.5 + (abs(x) + 1) ** -1.5 + torch.square(x) * x**-2,
    "operators by name": lambda x: (
        torch.add(x, x * x, alpha=2) * torch.sub(1, x) + torch.div(x, 3) + torch.lerp(x, x * x, 0.25)
        + torch.addcmul(x, x, x, value=0.5) + torch.multiply(x, x) + torch.subtract(x, 1) + torch.divide(1, x * x + 1)
        + torch.rsub(x, 2) + torch.true_divide(x, 2) + torch.mul(x, 2) + torch.negative(x) * x + torch.positive(x)
        + torch.reciprocal(x * x + 1)
    ),
    "remainders": lambda x: torch.remainder(x, 0.7) * 3 + torch.fmod(x, 0.7),
    "whole numbers": lambda x: (torch.floor(x) + torch.ceil(x) + torch.round(x) + torch.trunc(x) + torch.fix(x)) * x,
    "signs": lambda x: torch.sign(x) * x + torch.sgn(x - 1) * x,
    "bounds": lambda x: (
        torch.clamp_min(x, -1) + torch.clamp_max(x, 1) * x + torch.clip(x, -1, 1) + torch.max(x, x * x)
        + torch.min(x, 1 - x)
    ),
    "questions": lambda x: torch.where(torch.isnan(x) | torch.isinf(x) | ~torch.isfinite(x), 0.0, 2 * x),
    "errors": lambda x: torch.erf(x) + torch.special.erf(x / 8),
    "near 1": lambda x: torch.expm1(x) + torch.log1p(abs(x) / 8) + torch.special.expm1(x / 8) + torch.log10(x * x + 1),
    "activations": lambda x: (
        functional.relu(x) + functional.leaky_relu(x, 0.1) + functional.elu(x, 0.5) + functional.relu6(x * 3)
        + functional.silu(x) + functional.softplus(x, 2.0, 4.0) + functional.logsigmoid(x) + functional.softsign(x)
    ),
    "gates": lambda x: functional.gelu(x) + functional.gelu(x, approximate="tanh") + functional.mish(x),
    "tan": lambda x: torch.tan(x / 4) + torch.special.expit(x),
    "tanh": lambda x: torch.tanh(x / 2) * 2,
    "sigmoid": lambda x: torch.sigmoid(3 * x) * x,
    "neg": lambda x: torch.neg(x) * 3,
    "nothing": lambda x: x * 0 + 4,
    "constants": lambda x: torch.full_like(x, 3.0) * x + torch.ones_like(x) - torch.zeros_like(x) / 2,
    "steps": lambda x: torch.where((x > 1) & ~(x > 2) | (x < -1), 2 * x, x),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVED)
def test_the_derivative_of_a_traced_function_is_autograds(name: str) -> None:
    check_derivative(DERIVED[name])


def check_derivative(function: Any) -> None:
    """The derivative of a function of the score is autograd's."""
    made = captured(lambda s, b, h, i, j: function(s), "score_mod").function

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32), Tile("N", f32)), grid=1, block=32, arch="sm_90a")
    def derive(x: Any, y: Any, slope: Any) -> None:
        place = ptx.special.tid.x() * 4
        zero = ptx.special.ctaid.x().view(s32)
        given = ptx.load(f32, ptx.addr(x.pointer() + place))
        value, derivative = made.derive([], given, zero, zero, zero, zero)
        ptx.store(ptx.addr(y.pointer() + place), value.floating())
        ptx.store(ptx.addr(slope.pointer() + place), derivative.floating())

    given = torch.linspace(-3, 3, 32)
    found, slope = derive.emulate(given.numpy()).outputs[-2:]
    exact = given.double().requires_grad_()
    wanted = function(exact)
    wanted.sum().backward()
    torch.testing.assert_close(torch.as_tensor(found).double(), wanted.detach(), atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(torch.as_tensor(slope).double(), exact.grad, atol=4e-3, rtol=4e-3)


def test_every_function_of_numbers_is_among_those_derived() -> None:
    truths = {"logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or",
              "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift"}  # fmt: skip
    truths |= {"eq", "ne", "not_equal", "lt", "less", "le", "less_equal", "gt", "greater", "ge", "greater_equal"}
    special = {"special_erf", "special_expm1", "special_expit", "log_sigmoid"}  # names under which torch passes them on
    operators = {"and", "or", "xor", "lshift", "rshift", "truediv", "rdiv", "floordiv", "rfloordiv", "mod", "pow",
                 "rpow", "floor_divide"}  # fmt: skip
    used = {name for function in DERIVED.values() for name in function.__code__.co_names}
    assert set(FUNCTIONS) - truths - used - special - operators <= {"absolute", "detach"}


# -- gradients -------------------------------------------------------------------------------------------------------


def given(queries: int = 90, keys: int = 70, dim: int = 64, heads: int = 2) -> list[Any]:
    torch.manual_seed(0)
    shapes = [(2, heads, queries, dim), (2, 1, keys, dim), (2, 1, keys, dim)]
    return [torch.randn(shape).bfloat16().requires_grad_() for shape in shapes]


def exact(q: Any, k: Any, v: Any, score_mod: Any = None, mask_mod: Any = None, causal: bool = False) -> Any:
    heads = q.shape[1]
    scores = q @ k.repeat_interleave(heads, 1).mT / math.sqrt(q.shape[-1])
    places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    if score_mod is not None:
        scores = score_mod(scores, *places)
    hidden = torch.zeros(scores.shape, dtype=torch.bool)
    if mask_mod is not None:
        hidden |= ~mask_mod(*places)
    if causal:
        hidden |= places[3] > places[2] + k.shape[2] - q.shape[2]
    weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
    return torch.where(hidden.all(-1, keepdim=True), 0, weights) @ v.repeat_interleave(heads, 1)


def alibi(s, b, h, i, j):
    return s - SLOPES[h] * (i - j)


def other_for_odd_rows(s, b, h, i, j):
    return torch.where(i % 2 == 0, torch.tanh(s / 3) * 3, torch.abs(s) + 0.5 * h) * (1 + 0.25 * b)


def infinite_at_zero(s, b, h, i, j):
    return torch.where(s == 0, s, torch.sqrt(torch.abs(s)) + 0.3 * s)


def near(b, h, i, j):
    return (j <= i + 5) & (i - j < 40)


def of_one_document(b, h, i, j):
    return DOCUMENTS[i] == DOCUMENTS[j]


def compared(call: Any, wanted: Any, tensors: list[Any]) -> list[Any]:
    theirs = [tensor.detach().double().requires_grad_() for tensor in tensors]
    out, right = call(*tensors), wanted(*theirs)
    grad = torch.randn(out.shape).bfloat16()
    out.backward(grad)
    right.backward(grad.double())
    torch.testing.assert_close(out.double(), right, atol=0.02, rtol=0)
    for mine, other in zip(tensors, theirs, strict=True):
        assert (mine.grad.double() - other.grad).norm() <= 0.015 * other.grad.norm()
    return [tensor.grad for tensor in tensors]


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "score_mod, mask_mod, causal",
    [(alibi, None, True), (other_for_odd_rows, near, False), pytest.param(None, of_one_document, False, marks=SLOW),
     (infinite_at_zero, None, False)],
)  # fmt: skip
def test_gradients_go_through_functions_of_scores_and_masks(score_mod, mask_mod, causal):
    options = {"score_mod": score_mod, "mask_mod": mask_mod, "causal": causal}
    call = lambda q, k, v: warploom.attention(q, k, v, **options)  # noqa: E731
    first = compared(call, lambda q, k, v: exact(q, k, v, **options), given())
    assert all(bool(x.isfinite().all()) for x in first)


def test_gradients_are_those_of_the_functions_in_the_call():
    factors, limit = [0.5], 3

    def call(q, k, v):
        nonlocal limit
        mask = create_block_mask(lambda b, h, i, j: j <= i + limit, None, None, 24, 24, device="cpu", BLOCK_SIZE=64)
        out = wt.flex_attention(q, k, v, lambda s, b, h, i, j: s * factors[0], mask, enable_gqa=True)
        factors[0], limit, mask.kv_num_blocks = 2.0, 30, torch.zeros_like(mask.kv_num_blocks)
        return out

    wanted = lambda q, k, v: exact(q, k, v, lambda s, *_: s * 0.5, lambda b, h, i, j: j <= i + 3)  # noqa: E731
    compared(call, wanted, given(24, 24, 16))


def test_a_tensor_that_a_function_or_a_mask_reads_may_not_be_written_before_the_gradient():
    limit = torch.tensor(20)
    mask = create_block_mask(lambda b, h, i, j: j < limit, None, None, 8, 8, device="cpu", BLOCK_SIZE=64)
    for written in (limit, mask.kv_num_blocks, SLOPES):
        out = wt.flex_attention(*given(8, 8), alibi, mask, enable_gqa=True)
        written += 0
        with pytest.raises(RuntimeError, match="inplace"):
            out.sum().backward()


def test_logarithms_of_modified_scores_have_a_gradient():
    tensors = given(40, 40)
    theirs = [tensor.detach().double().requires_grad_() for tensor in tensors]
    _, lse = wt.flex_attention(*tensors, score_mod=alibi, enable_gqa=True, return_lse=True)
    share = torch.randn(lse.shape)
    (lse * share).sum().backward()
    heads, places = tensors[0].shape[1], torch.meshgrid(*(torch.arange(n) for n in (*lse.shape, 40)), indexing="ij")
    scores = theirs[0] @ theirs[1].repeat_interleave(heads, 1).mT / math.sqrt(tensors[0].shape[-1])
    (alibi(scores, *places).logsumexp(-1) * share).sum().backward()
    for mine, other in zip(tensors[:2], theirs[:2], strict=True):
        assert (mine.grad.double() - other.grad).norm() <= 0.015 * other.grad.norm()


@pytest.mark.slow
@pytest.mark.parametrize("dim", [pytest.param(128), pytest.param(96, marks=SLOW)])
def test_wider_heads(dim: int):
    options = {"score_mod": alibi, "mask_mod": near}
    call = lambda q, k, v: warploom.attention(q, k, v, **options)  # noqa: E731
    compared(call, lambda q, k, v: exact(q, k, v, **options), given(65, 63, dim))


def test_they_are_the_same_in_every_run_and_under_compile():
    tensors = given()
    grad = torch.randn(tensors[0].shape).bfloat16()

    def call(q, k, v):
        return warploom.attention(q * 1, k, v, score_mod=alibi) * 1

    found = [torch.autograd.grad(call(*tensors), tensors, grad) for _ in range(2)]
    found.append(torch.autograd.grad(torch.compile(call, backend="aot_eager")(*tensors), tensors, grad))
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))


def test_sinks_have_gradients_beside_functions():
    sinks = torch.randn(2).requires_grad_()
    tensors = given(40, 40)
    q, k, v = (x.detach().double() for x in tensors)
    out = warploom.attention(*tensors, sinks=sinks, score_mod=alibi)
    grad = torch.randn(out.shape).bfloat16()
    out.backward(grad)
    theirs = sinks.detach().double().requires_grad_()
    places = torch.meshgrid(*(torch.arange(n) for n in (2, 2, 40, 40)), indexing="ij")
    scores = alibi(q @ k.repeat_interleave(2, 1).mT / 8, *places)
    scores = torch.cat([scores, theirs[None, :, None, None].expand(2, 2, 40, 1)], -1)
    (torch.softmax(scores, -1)[..., :-1] @ v.repeat_interleave(2, 1)).backward(grad.double())
    assert (sinks.grad - theirs.grad).norm() <= 0.02 * theirs.grad.norm()


@pytest.mark.parametrize("block", [64, pytest.param((32, 128), marks=SLOW)])
def test_a_block_mask_is_the_same_mask_in_gradients(block):
    mask = create_block_mask(near, None, None, 90, 70, device="cpu", BLOCK_SIZE=block)
    call = lambda q, k, v: wt.flex_attention(q, k, v, alibi, mask, enable_gqa=True)  # noqa: E731
    compared(call, lambda q, k, v: exact(q, k, v, alibi, near), given())


def test_blocks_alone_are_a_mask_in_gradients():
    which = torch.tensor([[[[1, 0]]]], dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(torch.tensor([[[1]]], dtype=torch.int32), which, BLOCK_SIZE=64)
    seen = lambda b, h, i, j: j >= 64  # noqa: E731
    call = lambda q, k, v: warploom.attention(q, k, v, block_mask=mask)  # noqa: E731
    compared(call, lambda q, k, v: exact(q, k, v, mask_mod=seen), given(40, 100))


def test_masks_are_checked_in_calls_with_gradients():
    short = create_block_mask(near, None, None, 8, 8, device="cpu", BLOCK_SIZE=64)
    malformed = create_block_mask(near, None, None, 9, 9, device="cpu", BLOCK_SIZE=64)
    malformed.BLOCK_SIZE = 64
    for mask in (short, malformed):
        with pytest.raises(ArgumentError):
            wt.flex_attention(*given(9, 9), None, mask, enable_gqa=True)


def test_what_masks_capture_has_no_gradient_and_that_is_said():
    q, k, v = given(8, 8)
    wanted = torch.randn(2, requires_grad=True)
    for tensors in ((q, k, v), tuple(x.detach() for x in (q, k, v))):
        with pytest.raises(ArgumentError):
            warploom.attention(*tensors, mask_mod=lambda b, h, i, j: wanted[h] > 0)
    with torch.no_grad():
        warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * wanted[h])
    with pytest.raises(ArgumentError):
        warploom.attention(q, k, v, score_mod=alibi, out=torch.empty_like(q))


@pytest.mark.parametrize("dim", [pytest.param(64, marks=SLOW), 128])
def test_they_build_without_spills(dim: int):
    functions = {"score_mod": captured(other_for_odd_rows, "score_mod").function,
                 "mask_mod": captured(of_one_document, "mask_mod").function}  # fmt: skip
    of = Attention(head_dim=dim, value_dim=dim, window_right=True, **functions)
    assert not attention_backward.build(of).resources().serialisation_notes
