"""warploom.torch on the CPU: arguments that gradients, autocast and torch.compile must not drop or fail on."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from tests.errors import refused  # noqa: E402
from tests.integrations.torch_values import close, normal  # noqa: E402
from warploom.errors import ArgumentError, ArgumentTypeError  # noqa: E402
from warploom.integrations.torch.arguments import spelled  # noqa: E402
from warploom.kernels.hopper.description import Config  # noqa: E402
from warploom.kernels.hopper.small_m_config import SmallMConfig  # noqa: E402
from warploom.operators import execute  # noqa: E402
from warploom.operators.families import from_text  # noqa: E402

F = torch.nn.functional
WRONG = (ArgumentError, ArgumentTypeError)
PINNED = Config(tile_n=64, stages=3, epi_stages=1, ctas=1, pdl=False)


class Named(torch.Tensor):
    """A subclass that computes as any tensor."""


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, **{"backend": "aot_eager", "fullgraph": True, **options})


@pytest.fixture
def chosen(monkeypatch):
    """What each product was chosen for: the pinned configuration, and whether weights are promised to be constant."""
    seen = []
    real = execute.choose
    monkeypatch.setattr(
        execute,
        "choose",
        lambda problem, gpu, pinned=None: (
            seen.append((from_text(pinned) if isinstance(pinned, str) else pinned, problem.constant_weights))
            or real(problem, gpu, pinned)
        ),
    )
    return seen


# -- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize(
    "scales", [{"scale_a": 2.0}, {"scale_b": 3}, {"scale_a": np.float32(2.0), "scale_b": 0.5, "alpha": 0.25}]
)
def test_numbers_for_scales_are_in_the_gradient(scales, activation, way):
    if way == "compiled":
        scales = {name: float(value) for name, value in scales.items()}
    factor = float(np.prod(list(scales.values())))
    x, w, bias = normal(8, 32, grad=True), normal(16, 32, grad=True), normal(16, grad=True)
    exact = [tensor.detach().float().requires_grad_() for tensor in (x, w, bias)]
    z = factor * (exact[0] @ exact[1].mT) + exact[2]
    (F.silu(z) if activation else z).sum().backward()

    def ours(x, w, bias):
        return warploom.linear(x, w, bias, activation=activation, **scales)

    (compiled(ours) if way == "compiled" else ours)(x, w, bias).float().sum().backward()
    for mine, theirs in zip((x, w, bias), exact, strict=True):
        close(mine.grad, theirs.grad, units=4)


def test_a_tensor_for_one_scale_is_refused_beside_a_gradient():
    x, w, one = normal(8, 32, grad=True), normal(16, 32), torch.ones(1)
    for scales in ({"scale_b": one}, {"scale_a": one}, {"scale_a": one, "scale_b": one}):
        with refused("argument-type", expected="tensors without requires_grad"):
            warploom.linear(x, w, **scales)
    with refused("argument", got="scale_a=2.0"):
        warploom.linear(x, w, scale_a=2.0, scale_b=one)


# -- what is not a tensor ----------------------------------------------------------------------------------------------

MISTAKES = [
    ({"bias": 1.0}, ("wrong-type", "float 1.0")),
    ({"bias": np.zeros(16, np.float32)}, ("argument-type", "numpy array of f32, shape (16,), on the CPU")),
    ({"bias": torch.bfloat16}, ("wrong-type", "dtype torch.bfloat16")),
    ({"gate": "x"}, ("wrong-type", "str 'x'")),
    ({"residual": 1.0}, ("wrong-type", "float 1.0")),
    ({"amax": 1.0}, ("wrong-type", "float 1.0")),
    ({"scale_a": "x"}, ("wrong-type", "str 'x'")),
    ({"alpha": "x"}, ("argument-type", "str")),
    ({"alpha": True}, ("argument-type", "bool")),
    ({"alpha": 10**400}, ("argument", None, "a number in the range of a float")),
    ({"residual": normal(8, 16), "beta": "x"}, ("argument-type", "str")),
    ({"activation": 3}, ("argument", "3")),
    ({"config": 3}, ("argument-type", "3")),
    ({"out_dtype": "nope"}, ("argument-type", "'nope'")),
    ({"nonsense": 1}, ("argument-type", "nonsense=")),
]


@pytest.mark.parametrize("options, said", MISTAKES, ids=[" ".join(options) for options, _ in MISTAKES])
def test_wrong_arguments_beside_a_gradient_are_refused_in_a_sentence(options, said):
    with refused(*said) as caught:
        warploom.linear(normal(8, 32, grad=True), normal(16, 32), **options)
    assert list(options)[-1] in caught.value.what or "out_dtype" in options


READABLE = [(options, said) for options, said in MISTAKES if options.get("alpha") != 10**400]
"""torch.compile itself does not read a number that no float holds."""


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("options, said", READABLE, ids=[" ".join(options) for options, _ in READABLE])
def test_wrong_arguments_end_a_graph_and_are_refused_as_in_an_eager_call(options, said):
    function = compiled(lambda x, w: warploom.linear(x, w, **options), backend="eager", fullgraph=False)
    if isinstance(options.get("bias"), np.ndarray):  # not wrong without a gradient
        assert function(normal(8, 32), normal(16, 32)).shape == (8, 16)
        return
    with refused(*said):
        function(normal(8, 32), normal(16, 32))


def test_other_frameworks_arrays_beside_a_gradient_are_refused_by_name():
    x, w = normal(8, 32, grad=True), normal(16, 32)
    array = np.zeros((16, 32), np.float32)
    with refused("argument-type", got="numpy array of f32, shape (16, 32), on the CPU") as caught:
        warploom.linear(x, array)
    assert "from_numpy" in str(caught.value)
    with refused("argument-type", got="numpy array of f32, shape (16, 32), on the CPU"):
        warploom.matmul(array, w.mT.clone().requires_grad_())
    with refused("wrong-type", got="list [[1.0]]"):
        warploom.matmul(x, [[1.0]])


def test_under_autocast_all_arrays_are_tensors():
    x, w = normal(8, 32, dtype=torch.float32), normal(16, 32, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for wrong in (1.0, np.zeros((8, 16), np.float32)):
            with pytest.raises(ArgumentTypeError):
                warploom.linear(x, w, residual=wrong)
        with refused("argument-type", got="numpy array of f32, shape (16, 32), on the CPU"):
            warploom.linear(x, w.numpy())


@pytest.mark.parametrize("grad", [False, True])
def test_a_weight_is_a_matrix_with_a_gradient_and_without(grad):
    x, w = normal(8, 32, grad=grad), normal(16, 32)
    for wrong in (w[0], w[None], None, "w"):
        with pytest.raises(WRONG):
            warploom.linear(x, wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_refuses_what_is_no_tensor(dtype):
    layer = wt.Linear(32, 16).to(dtype)
    for wrong in ("x", None, 3):
        with refused("wrong-type"):
            layer(wrong)
    with refused("argument-type", got="numpy array of f32, shape (8, 32), on the CPU"):
        layer(np.zeros((8, 32), np.float32))


# -- subclasses and vectors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_a_subclass_that_only_has_another_name_is_computed_with(grad):
    x, w, bias = normal(8, 32, grad=grad), normal(16, 32), normal(16)
    expected = warploom.linear(x, w, bias)
    for given in ((x.as_subclass(Named), w, bias), (x, w.as_subclass(Named), bias.as_subclass(Named))):
        result = warploom.linear(*given)
        assert type(result) is torch.Tensor and torch.equal(result, expected)
    if grad:
        result.float().sum().backward()
        assert x.grad is not None
    with torch.no_grad():
        out = torch.empty(8, 16, dtype=torch.bfloat16).as_subclass(Named)
        assert warploom.linear(x, w, bias, out=out) is out and torch.equal(out.as_subclass(torch.Tensor), expected)


@pytest.mark.parametrize("way", ["eager", "gradient", "compiled"])
def test_vectors_take_vectors_every_way(way):
    x, w, n = normal(32, grad=way == "gradient"), normal(16, 32), normal(16)
    run = compiled(warploom_linear) if way == "compiled" else warploom_linear
    result = run(x, w, n)
    z = x.detach().float() @ w.float().mT + n.float()
    close(result, z * n.float() + n.float())
    if way == "gradient":
        result.float().sum().backward()
        close(x.grad, n.float() @ w.float())
    with torch.no_grad():
        out = torch.empty(16, dtype=torch.bfloat16)
        assert warploom.linear(x, w, out=out) is out
        close(out, x.detach().float() @ w.float().mT)


def warploom_linear(x, w, n):
    return warploom.linear(x, w, n, residual=n, gate=n)


# -- what a graph carries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [PINNED, SmallMConfig(prefetch=3), "cooperative_128x64x4_g8"])
def test_a_graph_keeps_the_pinned_configuration(config, chosen):
    x, w = normal(8, 32), normal(16, 32)
    result = compiled(lambda x, w: warploom.linear(x, w, config=config))(x, w)
    assert chosen == [(from_text(config) if isinstance(config, str) else config, False)]
    close(result, F.linear(x, w))


@pytest.mark.parametrize(
    "config", [Config(), PINNED, SmallMConfig(), SmallMConfig(trigger="off", prefetch=5, vector_store=True)]
)
def test_configurations_survive_as_text(config):
    assert from_text(spelled(config)) == config


def test_a_graph_refuses_a_name_that_is_no_configuration():
    with refused("argument", got="x"):
        compiled(lambda x, w: warploom.linear(x, w, config="x"))(normal(8, 32), normal(16, 32))


def test_a_graph_keeps_the_promise_of_constant_weights_and_its_gradients_do_without(chosen):
    x, w = normal(8, 32, grad=True), normal(16, 32)
    result = compiled(lambda x, w: warploom.linear(x, w, config=PINNED, constant_weights=True))(x, w)
    assert chosen == [(PINNED, True)]
    result.float().sum().backward()
    assert chosen[1:] == [(None, False)]


def test_a_promise_is_not_about_the_copy_that_autocast_makes(chosen):
    x, w = normal(8, 32, dtype=torch.float32), normal(16, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        warploom.linear(x, w, constant_weights=True)
        warploom.linear(x, w.float(), constant_weights=True)
    assert [promise for _, promise in chosen] == [True, False]


def test_amax_ends_a_graph_and_a_whole_graph_is_refused_with_it_by_name():
    x, w, amax = normal(8, 32), normal(16, 32), torch.zeros(1)

    def function(x, w, amax):
        return warploom.linear(x, w, amax=amax)

    result = compiled(function, backend="eager", fullgraph=False)(x, w, amax)
    assert amax.item() == pytest.approx(result.float().abs().max().item(), rel=1e-2)
    with pytest.raises(Exception, match="amax= is not an argument of the operator"):
        compiled(function, backend="eager")(x, w, amax)


@pytest.mark.parametrize("grad", [False, True])
def test_linear_says_in_its_own_words_that_a_weight_has_another_k(grad):
    with refused("argument", got="weight of shape (16, 48)") as caught:
        warploom.linear(normal(8, 32, grad=grad), normal(16, 48))
    assert "weight of shape (N, 32)" in str(caught.value) and "`b`" not in str(caught.value)
