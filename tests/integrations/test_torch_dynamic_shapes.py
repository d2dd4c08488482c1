"""Attention in graphs of dynamic shapes: one graph for several lengths, with the values of eager calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.13")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from warploom.integrations.torch import attention as plug_in  # noqa: E402

pytestmark = pytest.mark.full
SLOW = pytest.mark.slow
SIZES = [(2, 8, 8), (3, 9, 11)]
"""Batches, queries and keys."""
SLOPES = torch.tensor([0.1, 0.3])


def normal(*shape: int) -> Any:
    return torch.randn(shape).bfloat16()


def operands(batch: int, queries: int, keys: int) -> list[Any]:
    return [normal(batch, heads, length, 16) for heads, length in ((2, queries), (1, keys), (1, keys))]


def alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s - SLOPES[h] * (i - j)


def mask(batch: int, queries: int, keys: int) -> Any:
    return create_block_mask(lambda b, h, i, j: j <= i + 2, None, None, queries, keys, device="cpu", BLOCK_SIZE=64)


def graphs_of(
    call: Callable[..., Any], arguments: Sequence[Sequence[Any]], dynamic: bool | None = True, fullgraph: bool = True
) -> int:  # fmt: skip
    """Compare results and gradients of calls in graphs with eager ones. Returns how many graphs were compiled."""
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, backend=counted, dynamic=dynamic, fullgraph=fullgraph)
    for given in arguments:
        found, wanted = compiled(*given), call(*given)
        assert torch.equal(found, wanted)
        leaves = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
        if leaves:
            both = [torch.autograd.grad(each, leaves, torch.ones_like(each)) for each in (found, wanted)]
            assert all(torch.equal(x, y) for x, y in zip(*both, strict=True))
    return int(counted.frame_count)


def several(more: Callable[..., Sequence[Any]] = lambda *sizes: ()) -> list[list[Any]]:
    torch.manual_seed(0)
    return [[*(x.requires_grad_() for x in operands(*sizes)), *more(*sizes)] for sizes in SIZES]


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Sequence[Any]]]] = {
    "full": (lambda q, k, v: warploom.attention(q * 1, k, v) * 1, lambda *_: ()),
    "window": (lambda q, k, v: warploom.attention(q * 1, k, v, causal=True, window=(4, 0)) * 1, lambda *_: ()),
    "flash-attn": (lambda q, k, v: wt.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=True) * 1,
                   lambda *_: ()),
    "function": (lambda q, k, v: wt.flex_attention(q * 1, k, v, alibi, enable_gqa=True) * 1, lambda *_: ()),
    "mask": (lambda q, k, v: warploom.attention(q * 1, k, v, mask_mod=lambda b, h, i, j: j <= i + 2) * 1,
             lambda *_: ()),
    "bias": (lambda q, k, v, x: wt.flex_attention(q * 1, k, v, lambda s, b, h, i, j: s + x[i, j], enable_gqa=True) * 1,
             lambda _, queries, keys: (torch.randn(queries, keys),)),
    "block mask": (lambda q, k, v, m: wt.flex_attention(q * 1, k, v, None, m, enable_gqa=True) * 1,
                   lambda *sizes: (mask(*sizes),)),
    "a scale": (lambda q, k, v, x: warploom.attention(q * 1, k, v, scale=x) * 1, lambda batch, *_: (0.5 / batch,)),
    "a window": (lambda q, k, v, x: warploom.attention(q * 1, k, v, causal=True, window=(x, 0)) * 1,
                 lambda _, queries, __: (queries // 2,)),
    "a window of the length": (lambda q, k, v: warploom.attention(q, k, v, window=k.shape[2] // 2) * 1, lambda *_: ()),
}  # fmt: skip


@pytest.mark.sample(0, all=2)
@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_are_those_of_eager_calls(name: str) -> None:
    call, more = CALLS[name]
    graphs_of(call, several(more))


@SLOW
def test_lengths_and_batches_need_no_graph_of_their_own() -> None:
    call, _ = CALLS["full"]
    marked = several()
    for each in (x for given in marked for x in given):
        torch._dynamo.mark_dynamic(each, 0)
        torch._dynamo.mark_dynamic(each, 2)
    assert graphs_of(call, marked, dynamic=None) == 1
    assert graphs_of(call, several(), dynamic=None) == 2, "the first is of the first sizes alone"


@SLOW
def test_a_function_that_computes_with_a_length_breaks_the_graph() -> None:
    def call(q: Any, k: Any, v: Any) -> Any:
        return wt.flex_attention(q * 1, k, v, lambda s, b, h, i, j: s * (i / q.shape[2]), enable_gqa=True) * 1

    graphs_of(call, several(), fullgraph=False)


@SLOW
def test_what_replaces_torchs_own_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plug_in, "runs_on", lambda device: True)
    graphs_of(lambda q, k, v: wt.scaled_dot_product_attention(q * 1, k, v, enable_gqa=True) * 1, several())


def test_packed_sequences() -> None:
    torch.manual_seed(0)
    arguments = []
    for ends in ([0, 3, 8], [0, 5, 6, 7, 14]):
        rows = [normal(ends[-1], heads, 16).requires_grad_() for heads in (2, 1, 1)]
        arguments.append([*rows, torch.tensor(ends, dtype=torch.int32)])
    assert graphs_of(lambda q, k, v, ends: warploom.attention_varlen(q * 1, k, v, ends, ends) * 1, arguments) == 1


@pytest.mark.parametrize("page", [pytest.param(0, marks=SLOW), 16])
def test_decoding(page: int) -> None:
    torch.manual_seed(0)
    arguments = []
    for batch, pages in ((2, 3), (3, 4), (4, 5)):
        keys, lengths = pages * 16, torch.full((batch,), pages * 16 - 3, dtype=torch.int32)
        cache = (batch * pages, 1, page, 16) if page else (batch, 1, keys, 16)
        table = torch.randperm(batch * pages).reshape(batch, pages).int() if page else None
        arguments.append([normal(batch, 2, 1, 16), normal(*cache), normal(*cache), lengths, table])
    call = lambda q, k, v, lengths, table: warploom.attention_decode(q * 1, k, v, lengths, table=table) * 1  # noqa: E731
    assert graphs_of(call, arguments) <= 2, "of three sizes"


def test_gradients_by_explicit_calls() -> None:
    torch.manual_seed(0)
    arguments = []
    for sizes in SIZES:
        tensors = operands(*sizes)
        out, lse = warploom.attention(*tensors, causal=True, return_lse=True)
        arguments.append([*tensors, out, lse, normal(*out.shape)])

    def call(*given: Any) -> Any:
        return torch.cat([each.flatten() for each in warploom.attention_backward(*given, causal=True)])

    graphs_of(call, arguments)


@SLOW
def test_gradients_of_packed_sequences_by_explicit_calls() -> None:
    torch.manual_seed(0)
    ends = torch.tensor([0, 3, 8], dtype=torch.int32)
    tensors = [normal(8, heads, 16) for heads in (2, 1, 1)]
    out, lse = warploom.attention_varlen(*tensors, ends, ends, return_lse=True)

    def call(*given: Any) -> Any:
        return torch.cat([each.flatten() for each in warploom.attention_varlen_backward(*given)])

    graphs_of(call, [[*tensors, ends, ends, out, lse, normal(*out.shape)]])


@SLOW
def test_explicit_gradients_under_functions_break_the_graph() -> None:
    torch.manual_seed(0)
    tensors = operands(2, 8, 8)
    out, lse = warploom.attention(*tensors, score_mod=alibi, return_lse=True)

    def call(*given: Any) -> Any:
        return warploom.attention_backward(*given, score_mod=alibi)[0] * 1

    graphs_of(call, [[*tensors, out, lse, out]], fullgraph=False)


@SLOW
def test_torch_func_inside_of_torch_compile_breaks_the_graph() -> None:
    torch.manual_seed(0)
    samples = [normal(3, 1, heads, 8, 16) for heads in (2, 1, 1)]
    call = lambda q, k, v: warploom.attention(q, k, v)  # noqa: E731
    loss = torch.func.grad(lambda *tensors: call(*tensors).float().square().sum())
    graphs_of(loss, [[x[0] for x in samples]], dynamic=None, fullgraph=False)
    graphs_of(torch.func.vmap(call), [samples], dynamic=None, fullgraph=False)
