"""The compile backend: the products of an unmodified model, with what follows them, become the library's operator."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

import warploom.torch  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402
from warploom.integrations.torch import attention as sdpa  # noqa: E402
from warploom.integrations.torch import compile as torch_compile  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(32, 48), nn.Linear(32, 48, bias=False), nn.Linear(48, 32)
        self.odd = nn.Linear(20, 8)

    def forward(self, x):
        h = F.silu(self.one(x)) * self.two(x)
        x = x + self.three(h)
        a = F.gelu(self.one(x), approximate="tanh")
        b = self.two(x)
        return a + b.sin() + b, self.odd(x[..., :20])


def compiled(model, seen, monkeypatch, **options):
    original = torch_compile.rewrite

    def spy(graph):
        count = original(graph)
        seen.extend({name: str(value) for name, value in node.kwargs.items()}
                    for node in graph.graph.nodes if node.target is torch.ops.warploom.matmul.default)  # fmt: skip
        return count

    monkeypatch.setattr(torch_compile, "rewrite", spy)
    torch._dynamo.reset()
    return torch.compile(model, backend="warploom", options={"inner": "eager", **options})


def test_what_follows_a_product_is_part_of_it(monkeypatch):
    torch.manual_seed(0)
    model, x, seen = Block().bfloat16(), torch.randn(2, 3, 32).bfloat16(), []
    with torch.no_grad():
        expected, found = model(x), compiled(model, seen, monkeypatch)(x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=0.03, rtol=0.03)
    ends = [{name for name in each if name != "bias"} for each in seen]
    assert ends == [set(), {"activation", "gate"}, {"c", "beta"}, {"activation"}, set()]


def test_a_training_step_has_the_same_gradients(monkeypatch):
    torch.manual_seed(0)
    model, x, seen = Block().bfloat16(), torch.randn(4, 32).bfloat16(), []
    ours = copy.deepcopy(model)
    model(x)[0].float().square().sum().backward()
    compiled(ours, seen, monkeypatch, inner="aot_eager")(x)[0].float().square().sum().backward()
    assert len(seen) == 5
    for one, other in zip(ours.parameters(), model.parameters(), strict=True):
        if other.grad is not None:
            assert (one.grad - other.grad).abs().max() <= 0.05 * other.grad.abs().max()


@pytest.mark.parametrize("kind", ["f32", "autocast", "used twice", "broadcast"])
def test_what_the_kernel_does_not_do_is_left_to_torch(kind, monkeypatch):
    layer, other = nn.Linear(16, 16, bias=False), torch.ones(16)
    if kind != "f32":
        layer, other = layer.bfloat16(), other.bfloat16()
    x, seen = torch.randn(3, 16).to(layer.weight.dtype), []

    class Case(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            y = self.layer(x)
            if kind == "used twice":
                return F.silu(y) * y
            return y + other

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        found, expected = compiled(Case(), seen, monkeypatch)(x), Case()(x)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
    assert seen == ([] if kind in ("f32", "autocast") else [{}])


def test_options_that_nobody_reads_are_refused():
    with pytest.raises(ArgumentError):
        warploom.torch.backend(torch.fx.symbolic_trace(nn.Linear(8, 8)), [], options={"inner": "eager", "mode": "fast"})


def test_dynamo_knows_the_name():
    assert "warploom" in torch._dynamo.list_backends(exclude_tags=())
    torch_compile.register()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("matmul(x * 2, w.mT)", "2 * x @ w.mT + 1"),
        ("linear(x * 2, w)", "2 * x @ w.mT + 1"),
        ("attention(q * 2, q, q)", "q + 1"),
        ("attention_varlen(t * 2, t, t, n, n, 64, 64)", "t + 1"),
    ],
)
def test_a_program_that_imports_warploom_alone_compiles_to_one_graph(call: str, result: str):
    """The plug-in is loaded while torch.compile traces the first call."""
    program = f"""
import torch, warploom
x, w = (torch.ones(64, 64, dtype=torch.bfloat16) for _ in range(2))
q, t, n = x.expand(1, 1, 64, 64), x[:, None], torch.tensor([0, 64], dtype=torch.int32)
compiled = torch.compile(lambda x, q, t: warploom.{call} + 1, fullgraph=True, backend="eager")
assert torch.equal(compiled(x, q, t), {result})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Attends(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2, enable_gqa=True) + 1


def attention_nodes(monkeypatch) -> list[tuple]:
    """The arguments after q, k and v of each operator in a graph; the emulator takes the GPU's place."""
    seen: list[tuple] = []
    original = torch_compile.rewrite

    def spy(graph):
        count = original(graph)
        seen.extend(node.args[3:] for node in graph.graph.nodes if node.target is torch.ops.warploom.attention.default)
        return count

    monkeypatch.setattr(torch_compile, "rewrite", spy)
    monkeypatch.setattr(sdpa, "runs_on", lambda device: True)
    torch._dynamo.reset()
    return seen


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_attention_of_an_unmodified_model_is_the_operator(layout, monkeypatch):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 20, 16).bfloat16() for heads in (4, 2, 2))
    if layout == "bshd":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    seen = attention_nodes(monkeypatch)
    found = torch.compile(Attends(), backend="warploom", options={"inner": "eager"})(q, k, v)
    assert seen == [(None, "top-left", 0.2, -1, -1, None, layout)]
    assert found.stride() == q.stride()
    torch.testing.assert_close(found, Attends()(q, k, v), atol=0.03, rtol=0.03)


@pytest.mark.full
def test_gradients_of_attention_are_those_of_torch(monkeypatch):
    torch.manual_seed(0)
    inputs = [torch.randn(1, heads, 20, 16).bfloat16().requires_grad_() for heads in (4, 2, 2)]
    seen = attention_nodes(monkeypatch)
    compiled = torch.compile(Attends(), backend="warploom", options={"inner": "aot_eager"})
    found = torch.autograd.grad(compiled(*inputs).float().square().sum(), inputs)
    assert len(seen) == 1
    for one, other in zip(found, torch.autograd.grad(Attends()(*inputs).float().square().sum(), inputs), strict=True):
        assert (one - other).abs().max() <= 0.03 * other.abs().max()


@pytest.mark.parametrize("kind", ["mask", "dropout", "f32", "few rows", "other heads", "strided columns"])
def test_attention_that_no_kernel_takes_is_left_to_torch(kind, monkeypatch):
    torch.manual_seed(0)
    rows, dtype = 4 if kind == "few rows" else 20, torch.float32 if kind == "f32" else torch.bfloat16
    q, k, v = (torch.randn(1, 4, length, 16).to(dtype) for length in (rows, 20, 20))
    more = {"attn_mask": torch.ones(rows, 20, dtype=torch.bool)} if kind == "mask" else {}
    if kind == "other heads":
        k, v = k[:, :1], v[:, :1]  # torch broadcasts them
    if kind == "strided columns":
        q = q.mT.contiguous().mT
    dropout = 0.5 if kind == "dropout" else 0.0

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, **more)

    seen = attention_nodes(monkeypatch)
    found = torch.compile(attend, backend="warploom", options={"inner": "eager"})(q, k, v)
    assert found.shape == q.shape and not seen
