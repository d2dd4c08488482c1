"""Attention in PyTorch: gradients, torch.compile, autocast, torch's own signature."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import BlockMask, create_block_mask  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from tests.errors import refused  # noqa: E402
from warploom.errors import ArgumentError, ArgumentTypeError  # noqa: E402
from warploom.kernels.hopper.attention_config import Config  # noqa: E402
from warploom.operators.attention.blocks import dense_kinds  # noqa: E402
from warploom.operators.attention.request import read  # noqa: E402

pytestmark = pytest.mark.full
SLOW = pytest.mark.slow


def given(grad: bool = True) -> list:
    """q, k, v and sinks."""
    torch.manual_seed(0)
    tensors = [torch.randn(1, heads, 40, 64).bfloat16() for heads in (2, 1, 1)] + [torch.randn(2)]
    return [tensor.requires_grad_(grad) for tensor in tensors]


def attend(q, k, v, sinks):
    return warploom.attention(q, k, v, causal=True, sinks=sinks)


def exact(q, k, v, sinks):
    scores = (q @ k.repeat_interleave(2, 1).mT) * 64**-0.5
    scores = scores.masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -torch.inf)
    scores = torch.cat([scores, sinks[None, :, None, None].expand(1, 2, 40, 1)], -1)
    return torch.softmax(scores, -1)[..., :-1] @ v.repeat_interleave(2, 1)


@pytest.mark.sample(0, all=2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("hidden", [-torch.inf, torch.finfo(torch.float32).min])
def test_a_function_of_scores_hides_more_tiles_of_keys_than_a_warp_recomputes(hidden: float, head_dim: int, dtype: Any):
    """The rows have seen no key when the warp becomes careful."""
    torch.manual_seed(0)
    keys, seen = 900, 40
    q, k, v = (torch.randn(1, 1, length, head_dim).to(dtype) for length in (70, keys, keys))
    hides = torch.where(torch.arange(keys) < seen, 0.0, hidden)
    o, logarithm = warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + hides[j], return_lse=True)
    scores = q.double() @ k[..., :seen, :].double().mT * head_dim**-0.5
    exact = torch.softmax(scores, -1) @ v[..., :seen, :].double()
    torch.testing.assert_close(o.double(), exact, atol=0.01, rtol=0.01)
    torch.testing.assert_close(logarithm.double(), scores.logsumexp(-1), atol=1e-5, rtol=1e-5)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinite_key_makes_what_it_makes_in_float64(causal: bool, sign: int):
    """Its scores are inf, or -inf, in all rows but row 30. Keys that row 30 does not see are left out: the two ways to
    do this in float64 differ there."""
    found = []
    for dtype in (torch.bfloat16, torch.float64):
        torch.manual_seed(0)
        q, k, v = (torch.rand(1, 1, 80, 64).bfloat16() + 0.125 for _ in range(3))
        q[..., 5] *= sign
        q[0, 0, 30, 5] *= -1
        k[0, 0, 20, 5] = torch.inf
        q, k, v = (x.to(dtype).requires_grad_() for x in (q, k, v))
        attend = warploom.attention if dtype == torch.bfloat16 else torch.nn.functional.scaled_dot_product_attention
        o = attend(q, k, v, **{"causal" if dtype == torch.bfloat16 else "is_causal": causal})
        o.backward(torch.ones_like(o))
        found.append([x.isnan() for x in (o, q.grad, k.grad[..., :31, :], v.grad[..., :31, :])])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_reach_queries_keys_values_and_sinks(compiled: bool):
    ours, theirs = given(), [tensor.detach().double().requires_grad_() for tensor in given()]
    call = torch.compile(attend, backend="aot_eager", fullgraph=True) if compiled else attend
    out, wanted = call(*ours), exact(*theirs)
    grad = torch.randn(out.shape)
    out.backward(grad.to(out.dtype))
    wanted.backward(grad.to(out.dtype).double())
    torch.testing.assert_close(out.double(), wanted, atol=0.02, rtol=0)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.grad.double() - other.grad).norm() <= 0.015 * other.grad.norm()


def exact_logarithms(q, k, sinks):
    scores = (q @ k.repeat_interleave(2, 1).mT) * 64**-0.5
    scores = scores.masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -torch.inf)
    return torch.cat([scores, sinks[None, :, None, None].expand(1, 2, 40, 1)], -1).logsumexp(-1)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("alone", [False, True], ids=["with the result", "alone"])
@pytest.mark.parametrize("compiled", [False, True])
def test_logarithms_have_a_gradient(compiled: bool, alone: bool):
    def both(q, k, v, sinks):
        return warploom.attention(q, k, v, causal=True, sinks=sinks, return_lse=True)

    ours, theirs = given(), [tensor.detach().double().requires_grad_() for tensor in given()]
    out, lse = (torch.compile(both, backend="aot_eager", fullgraph=True) if compiled else both)(*ours)
    share, of_out = torch.randn(lse.shape), torch.zeros(out.shape) if alone else torch.randn(out.shape)
    of_out = of_out.bfloat16()
    loss = (lse * share).sum() + (0.0 if alone else (out * of_out).float().sum())
    loss.backward()
    ((exact_logarithms(theirs[0], theirs[1], theirs[3]) * share).sum() + (exact(*theirs) * of_out).sum()).backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.grad.double() - other.grad).norm() <= 0.015 * other.grad.norm()


OPTIONS = ("bottom-right", None, -1, -1, None, "bhsd")


@pytest.mark.parametrize("call", ("eager", "score_mod", "torch.func", "varlen"))
def test_a_gradient_of_eight_bits_is_refused_in_the_call_itself(call: str) -> None:
    q, k, v = (torch.randn(1, 1, 20, 64).to(torch.float8_e4m3fn) for _ in range(3))
    packed, ends = [x[0, 0, :, None] for x in (q, k, v)], torch.tensor([0, 20], dtype=torch.int32)
    calls = {
        "eager": lambda: warploom.attention(q.requires_grad_(), k, v),
        "score_mod": lambda: warploom.attention(q.requires_grad_(), k, v, score_mod=lambda s, b, h, i, j: s * 2),
        "torch.func": lambda: torch.func.vjp(warploom.attention, q, k, v),
        "varlen": lambda: warploom.attention_varlen(packed[0].requires_grad_(), *packed[1:], ends, ends),
    }
    with pytest.raises(ArgumentTypeError) as found:
        calls[call]()
    assert found.value.code == "argument-type" and "e4m3" in str(found.value)


def test_eight_bits_need_no_gradient_under_no_grad_and_in_vmap() -> None:
    q, k, v = (torch.randn(2, 1, 1, 20, 64).to(torch.float8_e4m3fn) for _ in range(3))
    each = warploom.attention(q[0], k[0], v[0])
    with torch.no_grad():
        assert torch.equal(warploom.attention(q[0].requires_grad_(), k[0], v[0]), each)
    assert torch.equal(torch.func.vmap(warploom.attention)(q.detach(), k, v)[0], each)


def test_the_operator_keeps_torchs_rules():
    tensors = [x.detach() for x in given()]
    torch.library.opcheck(
        torch.ops.warploom.attention.default, (*tensors, *OPTIONS), test_utils=("test_schema", "test_faketensor")
    )


def test_a_tracer_knows_the_type_of_what_eight_bits_give():
    tensors = [x.detach() for x in given()]
    eight = [x.to(torch.float8_e4m3fn) for x in tensors[:3]]
    torch.library.opcheck(
        torch.ops.warploom.attention.default, (*eight, tensors[3], *OPTIONS), test_utils="test_faketensor"
    )


def test_autocast_makes_sixteen_bits_of_f32():
    q, k, v, _ = (x.detach().float() for x in given())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert warploom.attention(q, k, v).dtype is torch.bfloat16


def test_what_has_no_gradient_is_refused():
    q, k, v, _ = given()
    with pytest.raises(ArgumentError):
        warploom.attention(q, k, v, out=torch.empty_like(q))


def test_torchs_signature_gives_torchs_numbers():
    q, k, v, _ = (x.detach() for x in given())
    mask = torch.ones(40, 40, dtype=torch.bool).tril()
    causal = wt.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    masked = wt.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(causal, masked)


SLOPES, DOCUMENTS = torch.tensor([0.1, 0.3]), torch.arange(90) // 40


def alibi(s, b, h, i, j):
    return s - SLOPES[h] * (i - j)


def other_for_odd_rows(s, b, h, i, j):
    return torch.where(i % 2 == 0, torch.tanh(s / 3) * 3, torch.abs(s) + 0.5 * h)


def near(b, h, i, j):
    return (j <= i + 5) & (i - j < 40)


def both(*functions):
    def mask(b, h, i, j):
        return functions[0](b, h, i, j) & functions[1](b, h, i, j)

    return mask


def of_one_document(b, h, i, j):
    return DOCUMENTS[i] == DOCUMENTS[j]


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "score_mod, mask_mod",
    [pytest.param(alibi, None, marks=SLOW), pytest.param(other_for_odd_rows, None, marks=SLOW),
     pytest.param(None, near, marks=SLOW), (alibi, both(near, of_one_document)),
     (lambda s, b, h, i, j: s * 2 + 1, lambda b, h, i, j: j % 3 != 1)],
)  # fmt: skip
def test_functions_of_scores_and_masks_become_part_of_the_kernel(score_mod, mask_mod):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 90, 64).bfloat16() for heads in (2, 1, 1))
    found = wt.flex_attention(q, k, v, score_mod, mask_mod, enable_gqa=True)
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 8
    places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if mask_mod is not None:
        scores = scores.masked_fill(~mask_mod(*places), -torch.inf)
    wanted = torch.softmax(scores, -1) @ v.double().repeat_interleave(2, 1)
    torch.testing.assert_close(found.double(), wanted, atol=0.02, rtol=0)


def windowed(b, h, i, j):
    return (i - j).abs() < 40


def in_the_middle(b, h, i, j):
    return (j >= 64) & (j < 192) & (i >= 70)


TILES = Config(tile_n=64, consumers=1, key_stages=2, value_stages=2)


def masked(q, k, v, mask_mod):
    """Attention in float64, and the logarithms; rows that see nothing are zeros."""
    scores = q.double() @ k.double().mT / 8
    places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    scores = scores.masked_fill(~mask_mod(*places), -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0) @ v.double(), torch.logsumexp(scores, -1)


@pytest.mark.parametrize("mask_mod", [windowed, pytest.param(in_the_middle, marks=SLOW)])
@pytest.mark.parametrize("block", [128, (32, 64)])
def test_tiles_that_a_block_mask_leaves_out_are_not_read(mask_mod, block):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, length, 64).bfloat16() for length in (130, 250, 250))
    mask = create_block_mask(mask_mod, None, None, 130, 250, device="cpu", BLOCK_SIZE=block)
    wanted, sums = masked(q, k, v, mask_mod)
    if mask_mod is in_the_middle:
        k[:, :, 192:] = v[:, :, 192:] = torch.nan  # a tile of its own, and a part of a block of 128
        mask = create_block_mask(mask_mod, None, None, 130, 250, device="cpu", BLOCK_SIZE=(32, 64))
    out, lse = warploom.attention(q, k, v, block_mask=mask, config=TILES, return_lse=True)
    torch.testing.assert_close(out.double(), wanted, atol=0.02, rtol=0)
    torch.testing.assert_close(lse.double(), sums, atol=1e-4, rtol=1e-5)


def test_blocks_alone_are_a_mask_and_one_of_the_wrong_shape_is_refused():
    q, k, v = (torch.randn(1, 1, length, 64).bfloat16() for length in (64, 192, 192))
    which = torch.tensor([[[[2, 0, 1]]]], dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(torch.tensor([[[2]]], dtype=torch.int32), which, BLOCK_SIZE=64)
    seen = lambda b, h, i, j: (j < 64) | (j >= 128)  # noqa: E731
    out = wt.flex_attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(out.double(), masked(q, k, v, seen)[0], atol=0.02, rtol=0)
    for change in ({"q": q[:, :, :0]}, {"k": k[:, :, :100], "v": v[:, :, :100]}, {"causal": True}):
        with pytest.raises(ArgumentError):
            warploom.attention(**{"q": q, "k": k, "v": v, "block_mask": mask, **change})
    with pytest.raises(ArgumentTypeError):
        warploom.attention(q, k, v, block_mask=seen)
    with refused("argument", got="64 x 64"):
        warploom.attention(q, k, v, block_mask=mask, config=Config(tile_n=96))


def test_the_longest_blocks_begin_first_under_a_block_mask_as_under_a_causal_one():
    shape = dict.fromkeys("qkv", torch.zeros(2, 4, 130, 64).bfloat16())
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 130, 130, device="cpu", BLOCK_SIZE=64)
    options = {"layout": "bhsd", "scale": None, "softcap": None, "window": None}
    sections = [
        read(shape, **options, **seen).numbers["section"]
        for seen in ({"causal": False, "block_mask": mask}, {"causal": True}, {"causal": False})
    ]
    assert sections == [8, 8, 1]


def test_a_mask_function_applies_in_partial_blocks_only():
    q, k, v = (torch.randn(1, 1, length, 64).bfloat16() for length in (128, 192, 192))
    partial, full = torch.tensor([[[0, 1]]]), torch.tensor([[[2, 1]]])
    some, all_ = torch.tensor([[[[0, 0, 0], [1, 0, 0]]]]), torch.tensor([[[[2, 0, 0], [0, 0, 0]]]])
    even = lambda b, h, i, j: j % 2 == 0  # noqa: E731
    mask = BlockMask.from_kv_blocks(*(x.int() for x in (partial, some, full, all_)), BLOCK_SIZE=64, mask_mod=even)
    seen = lambda b, h, i, j: torch.where(i < 64, (j < 64) | (j >= 128), (j < 64) | ((j < 128) & (j % 2 == 0)))  # noqa: E731
    out = wt.flex_attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(out.double(), masked(q, k, v, seen)[0], atol=0.02, rtol=0)


@pytest.mark.parametrize(
    "change",
    [{"BLOCK_SIZE": 64}, {"BLOCK_SIZE": (0, 64)}, {"BLOCK_SIZE": "ab"}, {"kv_indices": None},
     {"kv_indices": torch.zeros(1, 1, dtype=torch.int32)}, {"kv_num_blocks": None},
     {"kv_num_blocks": torch.zeros(1, 1, 5, dtype=torch.int32)}, {"full_kv_indices": None},
     {"full_kv_num_blocks": torch.zeros(1, 1, 5, dtype=torch.int32)}, {"seq_lengths": (64, 100)}],
)  # fmt: skip
def test_block_masks_that_are_malformed_or_too_short_are_refused(change):
    q, k, v = (torch.randn(1, 1, length, 64).bfloat16() for length in (64, 128, 128))
    mask = create_block_mask(windowed, None, None, 64, 128, device="cpu", BLOCK_SIZE=64)
    for name, value in change.items():
        setattr(mask, name, value)
    with refused("wrong-shape"):
        warploom.attention(q, k, v, block_mask=mask)


@pytest.mark.parametrize("change, code", [
    ({"kv_indices": torch.ones(1, 1, 1, 2)}, "wrong-type"), ({"kv_num_blocks": torch.ones(1, 1, 1)}, "wrong-type"),
    ({"kv_indices": torch.full((1, 1, 1, 2), 2)}, "argument"),
    ({"kv_indices": torch.full((1, 1, 1, 2), -1)}, "argument"),
    ({"kv_num_blocks": torch.full((1, 1, 1), 3)}, "argument"),
    ({"kv_num_blocks": torch.full((1, 1, 1), -1)}, "argument"),
    ({"full_kv_num_blocks": torch.full((1, 1, 1), 3)}, "argument"),
])  # fmt: skip
def test_block_masks_of_blocks_that_there_are_not_are_refused(change, code):
    q, k, v = (torch.randn(1, 1, length, 64).bfloat16() for length in (64, 128, 128))
    mask = create_block_mask(windowed, None, None, 64, 128, device="cpu", BLOCK_SIZE=64)
    for name, value in change.items():
        setattr(mask, name, value)
    with refused(code):
        warploom.attention(q, k, v, block_mask=mask)


def test_on_a_gpu_blocks_that_there_are_not_count_as_none():
    """Their numbers are not waited for there."""
    counts, indices = torch.full((1, 1, 2), 2), torch.tensor([[[[1, 7], [-3, 0]]]])
    mask = types.SimpleNamespace(kv_num_blocks=counts, kv_indices=indices, full_kv_num_blocks=None)
    assert dense_kinds(mask).tolist() == [[[[0, 1], [1, 0]]]]


def test_a_function_that_is_made_anew_with_other_numbers_is_another():
    q, k, v, _ = (x.detach() for x in given())

    def call(shift: float):
        return warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * shift)

    assert not torch.equal(call(1.0), call(3.0))
    torch.testing.assert_close(call(1.0), warploom.attention(q, k, v))


@pytest.mark.parametrize(
    "options",
    [{"score_mod": 3}, {"score_mod": lambda s, b, h, i, j: "x"}, {"mask_mod": lambda b, h, i, j: i if j > 3 else j},
     {"score_mod": alibi, "softcap": 2.0}, {"score_mod": lambda s, b, h, i, j: torch.fft.fft(s)}],
)  # fmt: skip
def test_functions_that_cannot_become_part_of_a_kernel_are_refused(options):
    q, k, v, _ = (x.detach() for x in given())
    with pytest.raises(warploom.errors.WarploomError):
        warploom.attention(q, k, v, **options)


def test_a_mask_function_is_not_taken_for_torchs_by_its_name():
    def noop_mask(b, h, i, j):
        return j < 3

    q, k, v = (torch.randn(1, 1, 8, 64).bfloat16() for _ in range(3))
    mask = create_block_mask(noop_mask, None, None, 8, 8, device="cpu", BLOCK_SIZE=64)
    out = wt.flex_attention(q, k, v, None, mask)
    torch.testing.assert_close(out.double(), masked(q, k, v, noop_mask)[0], atol=0.02, rtol=0)


def test_what_is_no_tensor_of_four_dimensions_is_refused_as_that():
    q, k, v = (torch.randn(2, length, 16).bfloat16() for length in (8, 9, 9))
    with refused("argument", got="torch array of bf16, shape (2, 8, 16), on the CPU"):
        wt.flex_attention(q, k, v)
    with refused("argument-type"):
        wt.flex_attention(None, k, v)


@pytest.mark.parametrize("fault", [lambda x: x if x > 0 else -x, lambda x: {}[1]])
def test_a_fault_in_a_function_of_scores_names_the_line_of_the_function(fault):
    q, k, v, _ = (x.detach() for x in given())
    with refused("trace") as caught:
        warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: fault(s))
    assert caught.value.where.file.endswith(Path(__file__).name)


ENDS = torch.tensor([0, 7, 20], dtype=torch.int32)
TWICE = {
    "attention": lambda q, k, v: warploom.attention(q, k, v, causal=True),
    "functions": lambda q, k, v: warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 0.5),
    "varlen": lambda q, k, v: warploom.attention_varlen(
        *(x[0].transpose(0, 1) for x in (q, k, v)), ENDS, ENDS, causal=True
    ),
}


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("name", TWICE)
def test_a_second_derivative_is_refused_and_not_zero(name: str) -> None:
    q, k, v = (torch.randn(1, 1, 20, 64).bfloat16().requires_grad_() for _ in range(3))
    (first,) = torch.autograd.grad(TWICE[name](q, k, v).float().pow(2).sum(), q, create_graph=True)
    plain = TWICE[name](*(x.detach().requires_grad_() for x in (q, k, v)))
    plain.float().pow(2).sum().backward()
    assert first.requires_grad and first.abs().sum() > 0
    with refused("argument"):
        (first.float().pow(2).sum() + q.float().sum()).backward()


def test_fast_accumulation_of_eight_bits_reaches_the_kernel_with_and_without_scales():
    eight = [x.detach().to(torch.float8_e4m3fn) for x in given()[:3]]
    fast = warploom.attention(*eight, fast_accumulation=True)
    assert fast.dtype is torch.bfloat16
    scaled = warploom.attention(*eight, v_scale=2.0, fast_accumulation=True)
    torch.testing.assert_close(scaled.float(), 2 * fast.float())
    with pytest.raises(ArgumentError):
        warploom.attention(*(x.detach() for x in given()[:3]), fast_accumulation=True)
