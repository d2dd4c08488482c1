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
