"""warploom.torch on the CPU: gradients, torch.compile, autocast, layers, against PyTorch's own."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from tests.errors import refused  # noqa: E402
from tests.integrations.torch_values import close, normal  # noqa: E402
from warploom.errors import CopyWarning  # noqa: E402

F = torch.nn.functional
ACTIVATIONS = {
    None: lambda z: z, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
}  # fmt: skip


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_gradients_are_those_of_the_same_formula_in_f32(activation):
    given = dict(
        x=normal(2, 8, 32, grad=True), w=normal(16, 32, grad=True), bias=normal(16, grad=True),
        gate=normal(2, 8, 16, grad=True), c=normal(2, 8, 16, grad=True, seed=1),
    )  # fmt: skip

    def ours(x, w, bias, gate, c):
        return warploom.linear(x, w, bias, alpha=0.5, activation=activation, gate=gate, c=c, beta=0.25)

    def theirs(x, w, bias, gate, c):
        return ACTIVATIONS[activation](0.5 * (x @ w.mT) + bias) * gate + 0.25 * c

    result = ours(**given)
    exact = {name: tensor.detach().float().requires_grad_() for name, tensor in given.items()}
    expected = theirs(**exact)
    close(result, expected)
    weights = normal(2, 8, 16, seed=5)
    result.backward(weights)
    expected.backward(weights.float())
    for name, tensor in given.items():
        close(tensor.grad, exact[name].grad, units=4)
    assert given["w"].grad.is_contiguous(), "the weight's gradient is made in the weight's order"


def test_both_gradients_are_products_of_this_library(monkeypatch):
    from warploom.operators import calls

    shapes = []
    real = calls.compute
    monkeypatch.setattr(
        calls,
        "compute",
        lambda what, tensors, *rest: shapes.append(tuple(tensors["a"].shape)) or real(what, tensors, *rest),
    )
    x, w = normal(8, 32, grad=True), normal(16, 32, grad=True)
    warploom.linear(x, w).sum().backward()
    assert sorted(shapes) == [(8, 16), (8, 32), (16, 8)]


def test_gradients_read_their_operands_where_they_are(monkeypatch):
    """Contiguous in k, then B in n, then both in m and n: kernels read each of them, nothing is transposed first."""
    from warploom.operators import calls
    from warploom.operators.request import read

    layouts, real = [], calls.compute

    def compute(what, tensors, *rest):
        a, b = tensors["a"].detach(), tensors["b"].detach()
        layouts.append(read(a, b.mT if what == "linear" else b, {}).problem.layout)
        return real(what, tensors, *rest)

    monkeypatch.setattr(calls, "compute", compute)
    x, w = normal(24, 32, grad=True), normal(16, 32, grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CopyWarning)
        warploom.linear(x, w).square().sum().backward()
    assert layouts == ["tn", "tt", "nt"]


def test_a_batch_that_shares_an_operand_sums_its_gradient():
    a, b = normal(3, 8, 32, grad=True), normal(1, 32, 16, grad=True)
    warploom.matmul(a, b).sum().backward()
    close(b.grad, a.detach().float().sum((0, 1))[None, :, None].expand(1, 32, 16))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_there_is_one_graph_and_the_same_result(dynamic):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def model(x, w, bias, residual):
        hidden = warploom.linear(x, w, bias, activation="gelu_tanh")
        return warploom.matmul(hidden, w, residual=residual).float() * 2

    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (8, 16):
        given = normal(rows, 32), normal(16, 32), normal(16), normal(rows, 32, seed=1)
        close(compiled(*given), model(*given))
    assert len(graphs) == 1 or not dynamic
    assert "warploom.matmul" in graphs[0].code


def test_compiled_with_gradients():
    x, w, bias = normal(8, 32, grad=True), normal(16, 32, grad=True), normal(16, grad=True)
    compiled = torch.compile(
        lambda x, w, bias: torch.tanh(warploom.linear(x, w, bias, activation="silu")),
        fullgraph=True,
        backend="aot_eager",
    )
    compiled(x, w, bias).sum().backward()
    exact = [tensor.detach().float().requires_grad_() for tensor in (x, w, bias)]
    torch.tanh(F.silu(F.linear(*exact))).sum().backward()
    for ours, theirs in zip((x, w, bias), exact, strict=True):
        close(ours.grad, theirs.grad, units=4)


def test_what_is_compiled_never_looks_up_addresses(monkeypatch):
    """Dynamo of torch 2.11 cannot hash an address; it would break the graph there."""
    from warploom.operators import calls

    def refuse(*_):
        assert not torch.compiler.is_compiling(), "a compiled call looked up addresses"

    monkeypatch.setattr(calls.CACHE, "again", refuse)
    x, w, bias = normal(8, 32), normal(16, 32), normal(16)
    for options in ({}, {"bias": bias, "activation": "relu"}):
        compiled = torch.compile(
            lambda x, options=options: warploom.linear(x, w, **options), fullgraph=True, backend="eager"
        )
        assert compiled(x).shape == (8, 16)


def test_the_operator_is_what_torch_expects_of_one():
    a, w, bias = normal(8, 32, grad=True), normal(16, 32, grad=True), normal(16, grad=True)
    torch.library.opcheck(torch.ops.warploom.matmul.default, (a, w.mT, bias), {"activation": "relu"})
    out = torch.empty(8, 16, dtype=torch.bfloat16)
    torch.library.opcheck(torch.ops.warploom.matmul_out.default, (a.detach(), w.detach().mT), {"out": out})


def test_autocast_multiplies_f32_in_the_type_it_asks_for():
    x, w, bias = (
        normal(8, 32, dtype=torch.float32),
        normal(16, 32, dtype=torch.float32),
        normal(16, dtype=torch.float32),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = warploom.linear(x, w, bias), F.linear(x, w, bias)
        assert ours.dtype is theirs.dtype is torch.bfloat16
        close(ours, theirs)
        compiled = torch.compile(lambda x, w: warploom.linear(x, w), fullgraph=True, backend="eager")
        assert compiled(x, w).dtype is torch.bfloat16
    w.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = warploom.linear(x, w, bias).float().sum()
    loss.backward()
    assert w.grad.dtype is torch.float32


def test_out_and_a_gradient_exclude_each_other():
    x, w, out = normal(8, 32, grad=True), normal(16, 32), torch.empty(8, 16, dtype=torch.bfloat16)
    with refused("not-writable", expected="no out=, or tensors without requires_grad") as caught:
        warploom.linear(x, w, out=out)
    assert "torch.no_grad" in caught.value.hint
    with torch.no_grad():
        assert warploom.linear(x, w, out=out) is out


def test_scaled_eight_bit_operands_have_no_gradient():
    x, s = warploom.quantize(normal(16, 32, dtype=torch.float32))
    w, bias = warploom.quantize(normal(24, 32, dtype=torch.float32))[0], normal(24, grad=True)
    assert warploom.matmul(x, w.T, scale_a=s.view(1), scale_b=s.view(1)).dtype is torch.bfloat16
    with refused("argument-type", expected="tensors without requires_grad"):
        warploom.matmul(x, w.T, scale_a=s.view(1), scale_b=s.view(1), bias=bias)


def test_a_converted_layer_uses_the_weight_and_bias_that_a_parametrisation_makes():
    class Twice(torch.nn.Module):
        def forward(self, value):
            return 2 * value

    layer, x = wt.convert(torch.nn.Sequential(torch.nn.Linear(32, 16).bfloat16())), normal(8, 32)
    with torch.no_grad():
        before = layer(x)
        for name in ("weight", "bias"):
            torch.nn.utils.parametrize.register_parametrization(layer[0], name, Twice())
        close(layer(x), 2 * before.float())


def test_convert_replaces_what_it_can_and_says_what_it_leaves():
    class Own(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.ReLU(), Own(32, 32), torch.nn.Linear(32, 7), torch.nn.Linear(7, 8)
    ).bfloat16()
    x = normal(2, 5, 64)
    before, parameters = model(x), [id(p) for p in model.parameters()]
    with pytest.warns(wt.ConversionWarning) as caught:
        assert wt.convert(model) is model
    (warning,) = caught
    assert "2: it is a Own" in str(warning.message) and "4: rows of 7" in str(warning.message)
    assert wt.converted(model) == ["0", "3"]
    assert parameters == [id(p) for p in model.parameters()] and isinstance(model[0], torch.nn.Linear)
    close(model(x), before)
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_convert_leaves_what_it_is_told_to_and_converts_a_lone_layer():
    layer = wt.convert(torch.nn.Linear(64, 32).bfloat16())
    assert isinstance(layer, wt.Linear) and "Linear(in_features=64" in repr(layer)
    model = torch.nn.ModuleDict({"head": torch.nn.Linear(64, 8), "body": torch.nn.Linear(64, 64)}).bfloat16()
    with pytest.warns(wt.ConversionWarning, match="head: excluded by skip="):
        wt.convert(model, skip=lambda name, layer: name == "head")
    assert wt.converted(model) == ["body"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_of_f32_is_rounded_to_tf32_only_where_torch_may_too(compiled: bool):
    layer, x = torch.nn.Linear(64, 32), torch.randn(5, 64)
    exact = layer(x)
    with pytest.warns(wt.ConversionWarning, match="f32"):
        wt.convert(layer)
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    assert torch.equal(run(x), exact)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        rounded = run(x)
    finally:
        torch.set_float32_matmul_precision(before)
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=2**-9, atol=2**-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert run(x).dtype is torch.bfloat16


@pytest.mark.parametrize("function", [wt.convert, wt.converted, wt.fused, wt.unfused])
def test_what_is_no_model_is_refused(function):
    with refused("argument-type", got="3"):
        function(3)


def test_a_module_compiles_whole():
    model = wt.convert(
        torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.SiLU(), torch.nn.Linear(32, 16)).bfloat16()
    )
    x = normal(4, 64)
    close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))


def test_a_residual_has_no_factor_and_stands_alone():
    a, b, r = normal(8, 16), normal(16, 8), normal(8, 8)
    for options in ({"beta": 0.5}, {"c": r}):
        for given in (a, a.clone().requires_grad_()):
            with refused("argument"):
                warploom.matmul(given, b, residual=r, **options)
