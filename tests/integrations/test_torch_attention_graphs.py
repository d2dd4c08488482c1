"""Attention with functions of scores and masks in one graph of torch.compile: the values are those of eager calls."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.13")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402
from warploom.integrations.torch.graph_functions import Untraceable, function_named, learn  # noqa: E402

pytestmark = pytest.mark.full
SLOW = pytest.mark.slow


def given() -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(1, heads, 8, 16).bfloat16().requires_grad_() for heads in (2, 1, 1)]


def compiled(call: Callable[..., Any], backend: str = "aot_eager", fullgraph: bool = True) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(call, backend=backend, fullgraph=fullgraph)


def check(call: Callable[..., Any], other: Callable[..., Any], *leaves: Any, gradients: bool = True) -> None:
    """Results and gradients of both are the same."""
    tensors = given()
    found = [each(*tensors) for each in (call, other)]
    assert torch.equal(*found)
    if not gradients:
        return
    grad = torch.randn(found[0].shape).bfloat16()
    both = [torch.autograd.grad(each, [*tensors, *leaves], grad) for each in found]
    assert all(torch.equal(x, y) for x, y in zip(*both, strict=True))


def test_what_functions_and_masks_capture_is_that_of_each_call():
    slope, factors = torch.tensor([0.1, 0.3]), [0.5]
    mask = create_block_mask(lambda b, h, i, j: j <= i + 2, None, None, 8, 8, device="cpu", BLOCK_SIZE=64)

    def call(q, k, v):
        score = lambda s, b, h, i, j: s * factors[0] - slope[h] * (i - j).abs()  # noqa: E731
        return wt.flex_attention(q * 1, k, v, score, mask, enable_gqa=True) * 1

    other = compiled(call)
    check(call, other, gradients=False)
    slope.mul_(5)
    check(call, other, gradients=False)
    slope, factors[0] = torch.tensor([1.0, 2.0]), 2.0
    check(call, other)
    out = other(*given())
    slope.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        out.sum().backward()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.tensor([0.5, -1.0]))
        self.sinks = torch.nn.Parameter(torch.tensor([0.3, 0.1]))
        self.number = 2

    def seen(self, b, h, i, j):
        return (i - j).abs() < self.number

    def forward(self, q, k, v):
        bias = self.bias * 2

        def score(s, b, h, i, j):
            return torch.where(i >= j, s + bias[h] * self.number, s * 0.5)

        options = {"layout": "bshd", "sinks": self.sinks, "causal": True, "return_lse": True}
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out, lse = warploom.attention(q * 1, k, v, score_mod=score, mask_mod=self.seen, **options)
        return out * lse.transpose(1, 2)[..., None].bfloat16()


@SLOW
def test_a_model_has_the_gradients_of_eager_calls():
    model = Model()
    other = compiled(model)
    check(model, other, model.sinks)
    model.number = 4
    check(model, other, model.sinks)


def test_what_torch_cannot_trace_or_an_operator_has_no_gradient_of_breaks_the_graph():
    wanted = torch.randn(2, requires_grad=True)

    def told(s, b, h, i, j):
        print(end="")
        return s * 2

    scaled = lambda q, k, v: warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * wanted[h])  # noqa: E731
    with pytest.raises(torch._dynamo.exc.Unsupported, match="requires a gradient"):
        compiled(scaled)(*given())
    found, exact = (torch.autograd.grad(call(*given()).float().square().sum(), wanted)[0]
                    for call in (compiled(scaled, fullgraph=False), scaled))  # fmt: skip
    assert found.norm() > 0
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-3)
    broken = lambda q, k, v: warploom.attention(q * 1, k, v, score_mod=told)  # noqa: E731
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(broken)(*given())


def graph(function: Any) -> Any:
    return torch.fx.symbolic_trace(function)


def test_functions_have_one_name_if_they_compute_the_same():
    def score(s, b, h, i, j, t):
        return torch.where(i >= j, s * 2 + t[h], s)

    def other(x, a, b, c, d, array):
        unused = x + 1  # noqa: F841
        return torch.where(c >= d, x * 2 + array[b], x)

    def float_two(s, b, h, i, j, t):
        return torch.where(i >= j, s * 2.0 + t[h], s)

    array, cpu = torch.ones(2), torch.device("cpu")
    names = [learn(graph(each), "score_mod", [array], cpu)[0] for each in (score, other, float_two)]
    assert names[0] == names[1] != names[2]
    assert learn(graph(score), "score_mod", [3], cpu)[0] != learn(graph(score), "score_mod", [4], cpu)[0]
    with pytest.raises(Untraceable):
        learn(graph(score), "score_mod", [], cpu)
    with pytest.raises(ArgumentError):
        function_named("of another process")


CHANGES = {
    "a method": lambda s, x: (s.add_(x), s)[1],
    "a masked method": lambda s, x: (s.masked_fill_(x > 0, -1.0), s)[1],
    "an output": lambda s, x: (torch.add(s, x, out=s), s)[1],
}  # fmt: skip


INSERTED = {"no gradient": (torch._C._set_grad_enabled, False), "another name": (operator.iadd, None)}


@pytest.mark.parametrize("name", [*CHANGES, *INSERTED])
def test_a_step_that_counts_without_its_value_is_never_left_out(name: str) -> None:
    graph = torch.fx.symbolic_trace(lambda s, b, h, i, j: CHANGES.get(name, lambda s, x: s + x)(s, j * 0.5))
    if name in INSERTED:
        called, flag = INSERTED[name]
        score, *_, last = list(graph.graph.nodes)[:6]
        with graph.graph.inserting_after(last):
            graph.graph.call_function(called, (score, 1.0) if flag is None else (flag,))
    with pytest.raises(Untraceable):
        learn(graph, "score_mod", (), torch.device("cpu"))
