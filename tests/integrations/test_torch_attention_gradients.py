"""Gradients of attention against torch's autograd in float64: a table of possible calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import warploom  # noqa: E402

WANTED = ("q", "k", "v", "sinks")
ERROR = {torch.bfloat16: 0.015, torch.float16: 0.002}
"""Of a gradient, relative to its norm: P, dS and the result are rounded to the type."""
OF_ZERO = 1e-5
"""Where it is 0: dP and delta are sums of f32 that cancel."""


@dataclass(frozen=True)
class Case:
    """A call, and the loss whose gradients are compared.

    Attributes:
        lengths: (queries, keys) of each sequence of `attention_varlen`; none: `attention`.
        block: of a block mask made of `mask_mod`.
        wants: which operands require gradients.
        loss: "result", "logarithms" or "both".
        grad: how the result's gradient lies: "contiguous", "transposed", "expanded", "sliced", or it is "zero".
        lies: how q, k and v lie: "contiguous" or "sliced", as parts of one projection.
    """

    queries: int = 65
    keys: int = 77
    heads: tuple[int, int] = (2, 2)
    dims: tuple[int, int] = (64, 64)
    dtype: Any = torch.bfloat16
    batch: int = 1
    layout: str = "bhsd"
    causal: bool | str = False
    window: tuple[int | None, int | None] | int | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    score_mod: Callable[..., Any] | None = None
    mask_mod: Callable[..., Any] | None = None
    block: int | None = None
    lengths: tuple[tuple[int, int], ...] = ()
    wants: tuple[str, ...] = WANTED
    loss: str = "result"
    grad: str = "contiguous"
    lies: str = "contiguous"


SLOPES, DOCUMENTS = torch.tensor([0.1, 0.3, 0.2, 0.5]), torch.arange(256) // 40


def alibi(s, b, h, i, j):
    return s - SLOPES[h] * (i - j).abs()


def capped(s, b, h, i, j):
    return 3 * torch.tanh(s / 3)


def of_one_document(b, h, i, j):
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (j <= i)


F16, GROUPED = torch.float16, (4, 2)
CASES = {
    # head dimensions, and both types
    "64": Case(),
    "64 f16": Case(dtype=F16),
    "96": Case(dims=(96, 96)),
    "96 f16 causal": Case(dims=(96, 96), dtype=F16, causal=True),
    "128": Case(dims=(128, 128)),
    "128 f16 grouped causal": Case(dims=(128, 128), dtype=F16, heads=GROUPED, causal=True),
    "192 values of 128": Case(dims=(192, 128), causal=True),
    "192 f16": Case(dims=(192, 192), dtype=F16),
    "256 causal": Case(dims=(256, 256), causal=True),
    "256 f16": Case(dims=(256, 256), dtype=F16),
    "40": Case(dims=(40, 40)),
    "64 values of 8": Case(dims=(64, 8)),
    "8 values of 128": Case(dims=(8, 128)),
    # lengths
    "one query": Case(queries=1, keys=33, causal=True),
    "one key": Case(queries=33, keys=1),
    "one of each": Case(queries=1, keys=1, heads=GROUPED),
    "more queries than keys, causal": Case(queries=130, keys=40, causal=True, loss="both"),
    "more queries than keys, top-left": Case(queries=130, keys=40, causal="top-left"),
    "whole tiles": Case(queries=128, keys=128, causal=True),
    "one more than whole tiles": Case(queries=129, keys=193, causal=True),
    # heads and batches
    "grouped": Case(heads=GROUPED, batch=2),
    "one key head": Case(heads=(3, 1), batch=2, causal=True),
    # masks
    "causal top-left": Case(causal="top-left"),
    "window": Case(window=(20, 9)),
    "window causal grouped": Case(window=30, causal=True, heads=GROUPED),
    "window without a left edge": Case(window=(None, 5)),
    "window f16 128": Case(window=(40, 0), dims=(128, 128), dtype=F16),
    # scores
    "scale": Case(scale=0.5),
    "softcap": Case(softcap=1.5, scale=0.5, heads=GROUPED),
    "softcap causal sinks logarithms f16": Case(softcap=1.5, causal=True, sinks=True, loss="both", dtype=F16),
    "softcap mask_mod 128": Case(softcap=1.5, mask_mod=of_one_document, dims=(128, 128)),
    "softcap block mask": Case(softcap=1.5, mask_mod=of_one_document, block=64, queries=150, keys=150),
    "softcap varlen window": Case(softcap=1.5, lengths=((40, 50), (1, 1), (33, 70)), window=(20, 0), sinks=True),
    "softcap varlen 128": Case(softcap=1.5, lengths=((40, 50), (33, 70)), dims=(128, 128), causal=True),
    "sinks": Case(sinks=True, causal=True),
    "sinks f16 grouped window": Case(sinks=True, dtype=F16, heads=GROUPED, window=(16, 0), batch=2),
    "sinks bf16 of rows without keys": Case(sinks=True, queries=90, keys=40, causal=True, loss="both"),
    # functions
    "score_mod": Case(score_mod=alibi, heads=GROUPED),
    "score_mod f16 causal": Case(score_mod=capped, dtype=F16, causal=True),
    "mask_mod": Case(mask_mod=of_one_document),
    "both functions, logarithms": Case(score_mod=alibi, mask_mod=of_one_document, loss="both"),
    "block mask grouped": Case(score_mod=capped, mask_mod=of_one_document, block=32, heads=GROUPED),
    "block mask 128 f16": Case(mask_mod=of_one_document, block=64, dims=(128, 128), dtype=F16),
    "functions and sinks": Case(score_mod=alibi, mask_mod=of_one_document, sinks=True),
    # sequences one after the other
    "varlen": Case(lengths=((40, 50), (0, 3), (9, 9))),
    "varlen causal grouped f16": Case(lengths=((40, 50), (1, 1), (70, 130)), causal=True, heads=GROUPED, dtype=F16),
    "varlen window": Case(lengths=((40, 50), (33, 70)), window=(12, 3)),
    "varlen causal window 128": Case(lengths=((40, 50), (90, 70)), window=12, causal=True, dims=(128, 128)),
    "varlen sinks logarithms": Case(lengths=((40, 50), (33, 20)), causal=True, sinks=True, loss="both"),
    "varlen 256": Case(lengths=((40, 50), (33, 70)), dims=(256, 256), causal=True),
    "varlen 192 values of 128": Case(lengths=((5, 50), (63, 70)), dims=(192, 128)),
    "varlen without keys": Case(lengths=((5, 0), (63, 70)), loss="both"),
    # losses, and how things lie
    "logarithms": Case(loss="logarithms"),
    "logarithms f16 causal": Case(loss="logarithms", dtype=F16, causal=True, heads=GROUPED),
    "logarithms and sinks 128": Case(loss="both", sinks=True, dims=(128, 128)),
    "dO transposed": Case(grad="transposed"),
    "dO expanded": Case(grad="expanded", causal=True),
    "dO sliced": Case(grad="sliced", layout="bshd"),
    "dO zero": Case(grad="zero"),
    "dO sliced varlen": Case(grad="sliced", lengths=((40, 50), (33, 70))),
    "flash-attn's layout": Case(layout="bshd", causal=True, heads=GROUPED, batch=2, loss="both"),
    "parts of one projection": Case(lies="sliced", layout="bshd"),
    "parts of one projection, functions": Case(lies="sliced", score_mod=alibi),
    # some of the gradients
    "of q alone": Case(wants=("q",)),
    "of k alone": Case(wants=("k",), causal=True),
    "of v alone 256": Case(wants=("v",), dims=(256, 256)),
    "of sinks alone": Case(wants=("sinks",), sinks=True),
    "of k and v, functions": Case(wants=("k", "v"), score_mod=alibi),
    "varlen, of k alone": Case(wants=("k",), lengths=((40, 50), (33, 70))),
}  # fmt: skip


def operands(case: Case) -> dict[str, Any]:
    """q, k, v and sinks in the caller's layout; leaves that require the gradients that are wanted."""
    torch.manual_seed(0)
    queries, keys = map(sum, zip(*case.lengths, strict=True)) if case.lengths else (case.queries, case.keys)
    found = {}
    for name, length, heads, dim in (("q", queries, 0, 0), ("k", keys, 1, 0), ("v", keys, 1, 1)):
        shape = [case.batch, length, case.heads[heads], case.dims[dim]]
        if case.layout == "bhsd" and not case.lengths:
            shape[1], shape[2] = shape[2], shape[1]
        shape = shape[1:] if case.lengths else shape
        whole = torch.randn(*shape[:-1], shape[-1] * (3 if case.lies == "sliced" else 1)).to(case.dtype)
        found[name] = whole[..., : shape[-1]]
    if case.sinks:
        found["sinks"] = torch.randn(case.heads[0])
    return {name: x.detach().requires_grad_(name in case.wants) for name, x in found.items()}


def visible(case: Case, queries: int, keys: int) -> Any:
    """(queries, keys): what causal= and window= leave."""
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    own = i if case.causal == "top-left" else i + keys - queries
    window = case.window
    if window is None or isinstance(window, int):
        window = (window, (0 if case.causal else window) if window is not None else None)
    left, right = window
    seen = torch.ones(queries, keys, dtype=torch.bool)
    seen &= (j <= own) if case.causal else seen
    seen &= (j >= own - left) if left is not None else seen
    return seen & (j <= own + right) if right is not None else seen


def formula(case: Case, q: Any, k: Any, v: Any, sinks: Any) -> tuple[Any, Any]:
    """The result and the logarithms of (B, H, S, D), (B, G, T, D), (B, G, T, E)."""
    group = case.heads[0] // case.heads[1]
    scores = q @ k.repeat_interleave(group, 1).mT * (case.scale or case.dims[0] ** -0.5)
    places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    scores = scores if case.softcap is None else case.softcap * torch.tanh(scores / case.softcap)
    scores = scores if case.score_mod is None else case.score_mod(scores, *places)
    seen = visible(case, q.shape[2], k.shape[2]).expand(scores.shape)
    seen = seen if case.mask_mod is None else seen & case.mask_mod(*places)
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is None:
        sinks = torch.full(scores.shape[1:2], -torch.inf, dtype=scores.dtype)
    scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    none = torch.isneginf(scores).all(-1, keepdim=True)
    safe = torch.where(none, 0.0, scores)
    weights = torch.where(none, 0.0, safe.softmax(-1))[..., : k.shape[2]]
    logarithms = torch.where(none[..., 0], -torch.inf, safe.logsumexp(-1))
    return weights @ v.repeat_interleave(group, 1), logarithms


def exact(case: Case, given: dict[str, Any]) -> tuple[Any, Any]:
    """`formula` in the caller's layout, sequence by sequence."""
    q, k, v, sinks = given["q"], given["k"], given["v"], given.get("sinks")
    if not case.lengths:
        exchanged = (lambda x: x) if case.layout == "bhsd" else (lambda x: x.transpose(1, 2))
        out, lse = formula(case, exchanged(q), exchanged(k), exchanged(v), sinks)
        return exchanged(out), lse
    parts, first, begin = [], 0, 0
    for rows, keys in case.lengths:
        one = [
            x.transpose(0, 1)[None] for x in (q[first : first + rows], k[begin : begin + keys], v[begin : begin + keys])
        ]
        parts.append(formula(case, *one, sinks))
        first, begin = first + rows, begin + keys
    return torch.cat([out[0].transpose(0, 1) for out, _ in parts]), torch.cat([lse for _, lse in parts], -1)


def ours(case: Case, given: dict[str, Any]) -> tuple[Any, Any]:
    options = {
        "causal": case.causal,
        "window": case.window,
        "scale": case.scale,
        "softcap": case.softcap,
        "sinks": given.get("sinks"),
    }
    three = given["q"], given["k"], given["v"]
    if case.lengths:
        ends = [torch.tensor([0, *each]).cumsum(0).to(torch.int32) for each in zip(*case.lengths, strict=True)]
        return warploom.attention_varlen(*three, *ends, return_lse=True, **options)
    mask = {"mask_mod": case.mask_mod}
    if case.block is not None:
        made = create_block_mask(case.mask_mod, None, None, case.queries, case.keys, device="cpu",
                                 BLOCK_SIZE=case.block)  # fmt: skip
        mask = {"block_mask": made}
    return warploom.attention(
        *three, score_mod=case.score_mod, layout=case.layout, return_lse=True, **options, **mask
    )  # fmt: skip


def of_result(case: Case, shape: Any) -> Any:
    """The gradient of the result."""
    torch.manual_seed(1)
    if case.grad == "zero":
        return torch.zeros(shape, dtype=case.dtype)
    if case.grad == "expanded":
        return torch.randn(shape[-1]).to(case.dtype).expand(shape)
    if case.grad == "transposed":
        return torch.randn(*shape[:-2], shape[-1], shape[-2]).to(case.dtype).mT
    if case.grad == "sliced":
        return torch.randn(*shape[:-1], 2 * shape[-1]).to(case.dtype)[..., : shape[-1]]
    return torch.randn(shape).to(case.dtype)


def gradients(case: Case, call: Callable[..., Any], given: dict[str, Any], grad: Any, share: Any) -> dict[str, Any]:
    """The result, the logarithms, and the gradients that are wanted."""
    out, lse = call(case, given)
    roots = {"result": [out], "logarithms": [lse], "both": [out, lse]}[case.loss]
    seen = torch.where(torch.isneginf(lse.detach()), 0.0, share)
    weights = {"result": [grad], "logarithms": [seen], "both": [grad, seen]}[case.loss]
    weights = [x.to(root.dtype) for x, root in zip(weights, roots, strict=True)]
    leaves = {name: x for name, x in given.items() if x.requires_grad}
    found = torch.autograd.grad(roots, list(leaves.values()), weights, allow_unused=True)
    made = {
        f"d{name}": torch.zeros_like(x) if of is None else of
        for (name, x), of in zip(leaves.items(), found, strict=True)
    }
    return {"out": out.detach(), "lse": lse.detach()} | made


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_autograd_in_float64(name: str) -> None:
    case = CASES[name]
    given = operands(case)
    doubled = {key: x.detach().double().requires_grad_(x.requires_grad) for key, x in given.items()}
    shape = (*given["q"].shape[:-1], case.dims[1])
    grad, share = of_result(case, shape), torch.randn(exact(case, doubled)[1].shape)
    found = gradients(case, ours, given, grad, share)
    wanted = gradients(case, exact, doubled, grad.double(), share.double())
    assert found.keys() == wanted.keys()
    assert torch.equal(torch.isneginf(found["lse"]), torch.isneginf(wanted["lse"]))
    for key, right in wanted.items():
        mine = found[key].double()
        assert mine.shape == right.shape and mine.isfinite().all() == right.isfinite().all(), key
        seen = right.isfinite()
        difference = (mine - right)[seen].norm()
        allowed = ERROR[case.dtype] * right[seen].norm()
        assert difference <= max(allowed, OF_ZERO), f"{key}: {difference:.3g}, of {right[seen].norm():.3g}"
