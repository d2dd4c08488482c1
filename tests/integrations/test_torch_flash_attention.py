"""flash-attn's functions, and torch's, called as users call them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from tests.errors import refused  # noqa: E402
from warploom.integrations.torch import attention as ours  # noqa: E402

pytestmark = pytest.mark.full
SLOW = pytest.mark.slow
SLOPES = torch.tensor([0.1, 0.5, 0.2, 0.9])


def normal(*shape: int) -> Any:
    return torch.randn(shape).bfloat16()


def formula(
    q: Any, k: Any, v: Any, scale: float | None = None, causal: bool = False, window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0, slopes: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The result (B, S, H, D) and the logarithms, in float64."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).mT * (scale or q.shape[-1] ** -0.5)
    scores = torch.tanh(scores / softcap) * softcap if softcap else scores
    own = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    far = own - torch.arange(k.shape[2])
    scores = scores if slopes is None else scores - slopes.view(-1, q.shape[1], 1, 1) * far.abs()
    hidden = ((far > window[0]) & (window[0] >= 0)) | ((far < 0) & causal) | ((-far > window[1]) & (window[1] >= 0))
    scores = scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1).nan_to_num(0) @ v.repeat_interleave(group, 1)).transpose(1, 2), scores.logsumexp(-1)


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found.double(), wanted, atol=0.03, rtol=1e-3)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("given, meant", [
    (((0.0, 0.3, True, (10, 0)), {}), {"scale": 0.3, "causal": True, "window": (10, 0)}),
    (((), {"window_size": (5, 7), "softcap": 2.0, "deterministic": True}), {"window": (5, 7), "softcap": 2.0}),
    (((), {"causal": True, "alibi_slopes": SLOPES}), {"causal": True, "slopes": SLOPES}),
    pytest.param(((), {"alibi_slopes": SLOPES.expand(2, 4).contiguous()}), {"slopes": SLOPES}, marks=SLOW),
])  # fmt: skip
def test_arguments_mean_what_they_mean_in_flash_attn(given: Any, meant: dict[str, Any]) -> None:
    torch.manual_seed(0)
    q, kv = normal(2, 20, 4, 32), normal(2, 30, 2, 2, 32)
    positional, named = given
    out, lse, nothing = wt.flash_attn_kvpacked_func(q, kv, *positional, **named, return_attn_probs=True)
    wanted, logarithms = formula(q, *kv.unbind(2), **meant)
    close(out, wanted)
    close(lse, logarithms)
    assert nothing is None


def test_sequences_one_after_the_other_have_gradients() -> None:
    torch.manual_seed(0)
    qkv, ends = normal(40, 3, 2, 32).requires_grad_(), torch.tensor([0, 13, 40], dtype=torch.int32)
    out, lse, _ = wt.flash_attn_varlen_qkvpacked_func(qkv, ends, 27, causal=True, return_attn_probs=True)
    exact = qkv.detach().double().requires_grad_()
    found = [formula(*(x[None] for x in exact[a:b].unbind(1)), causal=True) for a, b in ((0, 13), (13, 40))]
    wanted = torch.cat([each[0][0] for each in found])
    close(out, wanted)
    close(lse, torch.cat([each[1][0] for each in found], -1))
    out.float().square().sum().backward()
    wanted.square().sum().backward()
    assert (qkv.grad.double() - exact.grad).norm() <= 0.02 * exact.grad.norm()


@pytest.mark.parametrize("paged, compiled", [(False, False), (True, False), (True, True)])
def test_new_keys_are_written_to_the_cache_and_seen(paged: bool, compiled: bool) -> None:
    call = wt.flash_attn_with_kvcache
    call = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
    torch.manual_seed(0)
    table = torch.tensor([[3, 1, 0], [7, 2, 9]], dtype=torch.int32) if paged else None
    shape = (10, 16, 2, 32) if paged else (2, 48, 2, 32)
    caches, new = [normal(*shape) for _ in range(2)], [normal(2, 2, 2, 32) for _ in range(2)]
    q, lengths = normal(2, 2, 4, 32), torch.tensor([15, 33], dtype=torch.int32)
    written = [each.clone() for each in caches]
    out, lse = call(q, *written, *new, cache_seqlens=lengths, block_table=table, causal=True, return_softmax_lse=True)
    for row, length in enumerate(lengths.tolist()):
        whole = [each[table[row]].flatten(0, 1) if paged else each[row] for each in caches]
        seen = [torch.cat([each[:length], more[row]])[None] for each, more in zip(whole, new, strict=True)]
        wanted, logarithms = formula(q[row : row + 1], *seen, causal=True)
        close(out[row : row + 1], wanted)
        close(lse[row : row + 1], logarithms)
    again = wt.flash_attn_with_kvcache(q, *written, cache_seqlens=lengths + 2, block_table=table, causal=True)
    assert torch.equal(again, out)


@pytest.mark.parametrize("one", [False, True])
def test_a_step_over_a_cache_is_an_operator_under_compile(one: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (x.transpose(1, 2) for x in (normal(2, 3, 4, 32), normal(2, 40, 2, 32), normal(2, 40, 2, 32)))
    q, lengths, sinks = q[:, :, 0] if one else q, torch.tensor([7, 40], dtype=torch.int32), torch.randn(4)
    factors = torch.rand(2, 2) + 0.5
    k, v = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)

    def step(q, k, v):
        more = {"window": 9, "sinks": sinks, "k_scale": 2.0, "scale": 0.3} if one else {"softcap": 3.0}
        scales = {} if one else {"k_scale": factors, "v_scale": factors}
        return warploom.attention_decode(q, k, v, lengths, causal=one, return_lse=True, **more, **scales)

    graph = torch.compile(step, backend="aot_eager", fullgraph=True)
    for found, wanted in zip(graph(q, k, v), step(q, k, v), strict=True):
        assert torch.equal(found, wanted)
    if one:
        with refused("argument"):
            torch.compile(step, backend="aot_eager")(q.clone().requires_grad_(), k, v)


Q, K, CACHE = normal(2, 2, 4, 32), normal(2, 2, 2, 32), normal(2, 64, 2, 32)
ENDS = torch.tensor([0, 2], dtype=torch.int32)
REFUSED = {
    "dropout": lambda: wt.flash_attn_func(Q, K, K, 0.1),
    "a window of one number": lambda: wt.flash_attn_func(Q, K, K, window_size=3),
    "slopes of other heads": lambda: wt.flash_attn_func(Q, K, K, alibi_slopes=torch.ones(5)),
    "slopes of varlen": lambda: wt.flash_attn_varlen_func(Q[0], K[0], K[0], ENDS, ENDS, 2, 2, alibi_slopes=SLOPES),
    "pages of varlen": lambda: wt.flash_attn_varlen_func(Q[0], K[0], K[0], ENDS, ENDS, 2, 2, block_table=ENDS[None]),
    "rotary embeddings": lambda: wt.flash_attn_with_kvcache(Q, CACHE, CACHE, rotary_cos=Q),
    "keys alone": lambda: wt.flash_attn_with_kvcache(Q, CACHE, CACHE, K),
    "a full cache": lambda: wt.flash_attn_with_kvcache(Q, CACHE, CACHE, K, K, cache_seqlens=63),
    "new keys of other heads": lambda: wt.flash_attn_with_kvcache(Q, CACHE, CACHE, K[:, :, :1], K, cache_seqlens=3),
    "two packed as three": lambda: wt.flash_attn_qkvpacked_func(normal(2, 5, 2, 2, 32)),
    "largest scores": lambda: wt.flex_attention(
        Q, Q, Q, return_aux=flex.AuxRequest(max_scores=True)
    ),
    "logarithms twice": lambda: wt.flex_attention(Q, Q, Q, return_lse=True, return_aux=flex.AuxRequest(lse=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_the_others_compute_is_refused_and_nothing_is_written(name: str) -> None:
    before = CACHE.clone()
    shapes = "a full cache", "new keys of other heads", "two packed as three", "slopes of other heads"
    with refused("wrong-shape" if name in shapes else "argument"):
        REFUSED[name]()
    assert torch.equal(CACHE, before)


def test_flex_attention_gives_what_is_asked_for_and_shares_keys_among_batches() -> None:
    torch.manual_seed(0)
    q, k, v = normal(2, 2, 20, 32), normal(1, 2, 20, 32), normal(1, 2, 20, 32)
    mask = flex.create_block_mask(lambda b, h, i, j: (i >= j) | (b == 1), 2, None, 20, 20, device="cpu")
    out, aux = wt.flex_attention(q, k, v, block_mask=mask, return_aux=flex.AuxRequest(lse=True))
    wanted, right = flex.flex_attention(*(x.float() for x in (q, k, v)), block_mask=mask,
                                        return_aux=flex.AuxRequest(lse=True))  # fmt: skip
    close(out, wanted.double())
    close(aux.lse, right.lse.double())
    assert aux.max_scores is None
    nothing = wt.flex_attention(q, *(x.expand(2, 2, 20, 32).contiguous() for x in (k, v)),
                                return_aux=flex.AuxRequest())  # fmt: skip
    assert nothing[1] == flex.AuxOutput()


LAID = {
    "one batch of keys": (normal(2, 2, 9, 16), normal(1, 2, 9, 16), normal(1, 2, 9, 16)),
    "elements that lie apart": tuple(normal(2, 2, 16, 9).mT for _ in range(3)),
    "another type of values": (normal(2, 2, 9, 16).float(),) * 3,
    "three dimensions": (normal(2, 9, 16),) * 3,
}


@pytest.mark.parametrize("name", LAID)
def test_how_tensors_lie_decides_who_computes_scaled_dot_products(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(ours, "runs_on", lambda device: True)
    monkeypatch.setattr(ours.calls, "attention", lambda *given, **named: pytest.fail("no kernel takes them"))
    found = wt.scaled_dot_product_attention(*LAID[name])
    assert torch.equal(found, functional.scaled_dot_product_attention(*LAID[name]))
