"""warploom.jax on the CPU: arguments that JAX would drop or fail on."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy
ONE = "an array of one f32"  # made by the test: to import this file takes no GPU

import warploom  # noqa: E402
import warploom.jax as wj  # noqa: E402
from tests.errors import refused  # noqa: E402
from tests.integrations.jax_values import close, normal  # noqa: E402
from warploom.errors import ArgumentError, ArgumentTypeError  # noqa: E402

WRONG = (ArgumentError, ArgumentTypeError)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("scales", [{"scale_a": 2.0}, {"scale_b": 3}, {"scale_a": np.float32(2), "alpha": 0.25}])
def test_numbers_for_scales_are_in_the_result_and_its_gradient(scales, activation):
    x, w, factor = normal(0, 8, 32), normal(1, 16, 32), float(np.prod(list(scales.values())))
    follow = jax.nn.silu if activation else lambda z: z

    def ours(x):
        return warploom.linear(x, w, activation=activation, **scales).astype(jnp.float32)

    def theirs(x):
        return follow(factor * (x.astype(jnp.float32) @ w.astype(jnp.float32).T))

    close(ours(x), theirs(x))
    close(jax.jit(jax.grad(lambda x: ours(x).sum()))(x), jax.grad(lambda x: theirs(x).sum())(x), units=4)


def test_a_vector_gives_a_vector_and_takes_vectors():
    x, w, n = normal(2, 32), normal(3, 16, 32), normal(4, 16)
    z = x.astype(jnp.float32) @ w.astype(jnp.float32).T
    close(warploom.linear(x, w), z)
    close(jax.jit(lambda x: wj.linear(x, w, n, residual=n, gate=n))(x), (z + n) * n + n)
    grad = jax.grad(lambda x: wj.linear(x, w, c=n, beta=0.5).astype(jnp.float32).sum())(x)
    close(grad, w.astype(jnp.float32).sum(0))
    rows = normal(5, 3, 32)
    close(jax.vmap(lambda x: wj.linear(x, w))(rows), rows @ w.T)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"alpha": "x"}, ("argument-type", "str")),
        ({"alpha": True}, ("argument-type", "bool")),
        ({"alpha": 10**400}, ("argument", None, "a number in the range of a float")),
        ({"beta": "x"}, ("argument-type", "str")),
        ({"bias": "x"}, ("wrong-type", "str 'x'")),
        ({"bias": 1.0}, ("wrong-type", "float 1.0")),
        ({"residual": [1.0]}, ("wrong-type", "list [1.0]")),
        ({"gate": np.array(["x"])}, ("wrong-type",)),
        ({"scale_a": "x"}, ("wrong-type", "str 'x'")),
        ({"scale_a": 2.0, "scale_b": ONE}, ("argument", "scale_a=2.0")),
        ({"config": "x"}, ("argument-type", "config=str")),
        ({"amax": ONE}, ("argument-type", "amax=ArrayImpl")),
        ({"scale_out": 2.0}, ("argument-type", "scale_out=float")),
        ({"activation": [1]}, ("argument", "[1]")),
        ({"out_dtype": "nope"}, ("argument-type", "'nope'")),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_in_a_sentence(options, said):
    options = {name: jnp.ones(1) if value is ONE else value for name, value in options.items()}
    with refused(*said):
        warploom.linear(normal(6, 8, 32), normal(7, 16, 32), **options)


def test_a_weight_is_a_matrix():
    x, w = normal(8, 8, 32), normal(9, 16, 32)
    for wrong in (w[0], w[None], None):
        with pytest.raises(WRONG):
            warploom.linear(x, wrong)


def test_a_promise_of_constant_weights_changes_nothing():
    x, w = normal(10, 8, 32), normal(11, 16, 32)
    np.testing.assert_array_equal(warploom.linear(x, w, constant_weights=True), warploom.linear(x, w))


def test_torch_tensors_beside_jax_arrays_are_refused_by_name():
    torch = pytest.importorskip("torch")
    x, w = normal(12, 8, 32), normal(13, 16, 32)
    for dtype in (torch.bfloat16, torch.float32):
        with refused("argument-type", expected="a jax.Array or a NumPy array") as caught:
            warploom.linear(x, torch.zeros(16, 32, dtype=dtype))
        assert "dlpack" in str(caught.value)
        with refused("argument-type", expected="a jax.Array or a NumPy array"):
            warploom.linear(torch.zeros(8, 32, dtype=dtype), w)
        with refused("argument-type", got="jax array of bf16, shape (16, 32), on the CPU"):
            warploom.linear(torch.zeros(8, 32, dtype=dtype, requires_grad=True), w)


def test_eight_bit_operands_have_no_gradient():
    x, bias = normal(14, 16, 32, dtype=jnp.float8_e4m3fn), jnp.zeros(16)
    with refused("argument", expected="operands of 16 or 32 bits, and numbers for scales"):
        jax.grad(lambda bias: wj.matmul(x, x.T, bias=bias).astype(jnp.float32).sum())(bias)


def test_linear_says_in_its_own_words_that_a_weight_has_another_k():
    with refused("argument", got="weight of shape (16, 48)"):
        warploom.linear(jnp.zeros((8, 32), jnp.bfloat16), jnp.zeros((16, 48), jnp.bfloat16))


def _ones(*shape):
    return jnp.ones(shape, jnp.bfloat16)


def _starts(*numbers):
    return jnp.asarray(numbers, jnp.int32)


CALLS = {
    "rms_norm": lambda: warploom.rms_norm(_ones(4, 64), _ones(64)),
    "rotary_embedding": lambda: warploom.rotary_embedding(*[_ones(1, 3, 1, 64)] * 2, *[_ones(1, 3, 64)] * 2),
    "quantize": lambda: warploom.quantize(_ones(16, 128)),
    "grouped_matmul": lambda: warploom.grouped_matmul(_ones(16, 64), _ones(2, 64, 32), offsets=_starts(8, 16)),
    "attention_decode": lambda: warploom.attention_decode(
        _ones(1, 1, 64), *[_ones(1, 1, 64, 64)] * 2, lengths=_starts(64)
    ),
    "attention_varlen": lambda: warploom.attention_varlen(*[_ones(16, 1, 64)] * 3, *[_starts(0, 8, 16)] * 2),
    "attention_backward": lambda: warploom.attention_backward(
        *[_ones(1, 1, 64, 64)] * 4, lse=jnp.ones((1, 1, 64), jnp.float32), grad=_ones(1, 1, 64, 64)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_public_calls_of_jax_arrays_give_jax_arrays(name):
    made = CALLS[name]()
    assert all(isinstance(each, jax.Array) for each in (made if isinstance(made, tuple) else (made,)))


def test_a_given_output_is_what_a_call_of_jax_arrays_returns():
    out, rows = np.zeros((1, 1, 64), jnp.bfloat16), np.zeros((4, 64), jnp.bfloat16)
    cache = [_ones(1, 1, 64, 64)] * 2
    assert warploom.attention_decode(_ones(1, 1, 64), *cache, lengths=_starts(64), out=out) is out and (out == 1).all()
    assert warploom.rms_norm(_ones(4, 64), _ones(64), out=rows) is rows
