"""warploom.jax on the CPU: the handler that XLA calls by its C ABI, under jit, grad and vmap, against jax.numpy."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import warploom  # noqa: E402
import warploom.jax as wj  # noqa: E402
from tests.errors import refused  # noqa: E402
from tests.integrations.jax_values import close, normal  # noqa: E402


def test_under_jit_it_is_jax_s_own_product():
    x, w = normal(0, 16, 64), normal(1, 64, 24)
    close(jax.jit(wj.matmul)(x, w), x @ w)
    close(wj.linear(x, w.T), x @ w)
    close(jax.jit(lambda x, w: wj.matmul(x + 1, w) * 2)(x, w), ((x + 1) @ w) * 2)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32, jnp.float8_e4m3fn, jnp.int8])
def test_types_are_those_of_matmul(dtype):
    x, w = (jnp.asarray(np.random.default_rng(2).integers(-4, 5, shape), dtype) for shape in ((8, 32), (32, 24)))
    result = wj.matmul(x, w)
    assert result.dtype == {1: jnp.bfloat16}.get(x.itemsize, dtype) if dtype is not jnp.int8 else jnp.int32
    np.testing.assert_array_equal(np.asarray(result, np.float32), np.asarray(x, np.float32) @ np.asarray(w, np.float32))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (5, 7, 9), (16, 24, 33)])
def test_sizes_that_rows_of_16_bytes_do_not_hold_are_padded_inside(m, n, k):
    x, w, bias, residual = normal(3, m, k), normal(4, k, n), normal(5, n), normal(6, m, n)
    close(wj.matmul(x, w, bias=bias, residual=residual), x @ w + bias + residual)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("activation", [None, "relu", "silu", "gelu", "gelu_tanh"])
def test_gradients_are_those_of_the_same_formula_in_f32(activation):
    x, w, bias, gate, c = normal(7, 8, 32), normal(8, 32, 16), normal(9, 16), normal(10, 8, 16), normal(11, 8, 16)
    functions = {
        None: lambda z: z, "relu": jax.nn.relu, "silu": jax.nn.silu,
        "gelu": lambda z: jax.nn.gelu(z, approximate=False), "gelu_tanh": jax.nn.gelu,
    }  # fmt: skip

    def ours(x, w, bias, gate, c):
        y = wj.matmul(x, w, alpha=0.5, bias=bias, activation=activation, gate=gate, c=c, beta=0.25)
        return (y.astype(jnp.float32) ** 2).sum()

    def theirs(*arrays):
        x, w, bias, gate, c = (array.astype(jnp.float32) for array in arrays)
        return ((functions[activation](0.5 * (x @ w) + bias) * gate + 0.25 * c) ** 2).sum()

    arrays = (x, w, bias, gate, c)
    found = jax.jit(jax.grad(ours, argnums=range(5)))(*arrays)
    for mine, exact in zip(found, jax.grad(theirs, argnums=range(5))(*arrays), strict=True):
        close(mine, exact, units=4)


def test_leading_dimensions_and_vmap_are_batches():
    x, w, many = normal(12, 3, 8, 32), normal(13, 32, 16), normal(14, 3, 32, 16)
    close(wj.matmul(x, w), x @ w)
    close(wj.matmul(x, many), x @ many)
    close(jax.vmap(wj.matmul, in_axes=(0, None))(x, w), x @ w)
    grads = jax.grad(lambda w: wj.matmul(x, w).astype(jnp.float32).sum())(w)
    close(grads, jnp.broadcast_to(x.astype(jnp.float32).sum((0, 1))[:, None], w.shape))


def test_the_public_matmul_takes_jax_arrays_and_gives_them():
    x, w = normal(15, 8, 32), normal(16, 16, 32)
    assert isinstance(warploom.linear(x, w), jax.Array)
    close(warploom.linear(x, w, activation="relu"), jax.nn.relu(x @ w.T))
    with refused("argument", expected="no out="):
        warploom.matmul(x, w.T, out=x)


def test_wrong_arguments_are_refused_while_tracing():
    x, w = normal(17, 8, 32), normal(18, 32, 16)
    with refused("argument", got="b of shape (16, 32)"):
        jax.jit(wj.matmul)(x, w.T)
    with refused("argument-type", got="bf16 and f16"):
        wj.matmul(x, w.astype(jnp.float16))
    with refused("argument", got="shape (15,)"):
        wj.matmul(x, w, bias=normal(0, 15))


def test_an_error_inside_of_xla_arrives_with_its_text():
    from warploom.integrations import jax as plug

    x, w = normal(19, 8, 32), normal(20, 32, 16)
    handlers = plug.registered()
    broken, handlers.request = handlers.request, lambda *_: 1 / 0
    try:
        with pytest.raises(Exception, match="ZeroDivisionError: division by zero"):
            jax.block_until_ready(jax.jit(lambda x, w: wj.matmul(x, w) - 1)(x, w))
    finally:
        handlers.request = broken
