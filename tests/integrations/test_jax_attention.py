"""warploom.jax.attention on the CPU: the handlers that XLA calls, under jit and grad, against jax.numpy."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import warploom  # noqa: E402
import warploom.jax as wj  # noqa: E402
from tests.errors import refused  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402
from warploom.integrations.jax import calls  # noqa: E402
from warploom.integrations.xla_ffi import Call  # noqa: E402
from warploom.isa import dtypes  # noqa: E402

pytestmark = pytest.mark.full


def given() -> tuple:
    """q, k, v and sinks."""
    draw = np.random.default_rng(0)
    tensors = [jnp.asarray(draw.standard_normal((1, heads, 40, 64)), jnp.bfloat16) for heads in (2, 1, 1)]
    return (*tensors, jnp.asarray([0.5, -1.0]))


def exact(q, k, v, sinks):
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, jnp.repeat(k, 2, 1)) * 64**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((40, 40), bool)), scores, -jnp.inf)
    scores = jnp.concatenate([scores, jnp.broadcast_to(sinks[None, :, None, None], (1, 2, 40, 1))], -1)
    return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores, -1)[..., :-1], jnp.repeat(v, 2, 1))


def ours(q, k, v, sinks):
    return warploom.attention(q, k, v, causal=True, sinks=sinks)


def test_under_jit_with_gradients_it_is_the_formula():
    arrays = given()
    np.testing.assert_allclose(np.asarray(jax.jit(ours)(*arrays), np.float32), exact(*arrays), atol=0.03)

    def squared(function):
        return lambda *arrays: (function(*arrays).astype(jnp.float32) ** 2).sum()

    found = jax.jit(jax.grad(squared(ours), argnums=range(4)))(*arrays)
    for mine, wanted in zip(found, jax.grad(squared(exact), argnums=range(4))(*arrays), strict=True):
        mine, wanted = (np.asarray(x, np.float32) for x in (mine, wanted))
        assert np.linalg.norm(mine - wanted) <= 0.01 * np.linalg.norm(wanted)


def test_a_sink_that_is_not_there_has_no_gradient_where_no_key_is_seen_either():
    q, k, v, _ = given()
    sinks = jnp.asarray([-jnp.inf, 0.5])

    def loss(sinks):
        return wj.attention(q, k, v, window=(-1, -1), causal=True, sinks=sinks).astype(jnp.float32).sum()

    def few(sinks):
        return wj.attention(q, k[:, :, :8], v[:, :, :8], causal=True, sinks=sinks).astype(jnp.float32).sum()

    for function in (loss, few):
        found = np.asarray(jax.grad(function)(sinks))
        assert np.isfinite(found).all() and found[0] == 0 and found[1] != 0


def test_logarithms_have_a_gradient():
    q, k, v, sinks = given()
    share = np.random.default_rng(0).standard_normal((1, 2, 40)).astype(np.float32)

    def ours(q, sinks):
        return (wj.attention(q, k, v, sinks=sinks, return_lse=True)[1] * share).sum()

    def exact(q, sinks):
        keys = jnp.repeat(k.astype(jnp.float32), 2, 1)
        scores = jnp.einsum("bhsd,bhtd->bhst", q.astype(jnp.float32), keys) * 64**-0.5
        sunk = jnp.broadcast_to(sinks[None, :, None, None], (1, 2, 40, 1))
        return (jax.nn.logsumexp(jnp.concatenate([scores, sunk], -1), axis=-1) * share).sum()

    for mine, other in zip(*(jax.grad(each, (0, 1))(q, sinks) for each in (ours, exact)), strict=True):
        mine, other = np.asarray(mine, np.float32), np.asarray(other, np.float32)
        assert np.linalg.norm(mine - other) <= 0.015 * np.linalg.norm(other)


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no jax.shard_map")
@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_under_shard_map_results_and_gradients_vary_as_the_arrays_do(shared: bool):
    """Of one device, which has all rules of types that several have. shared: every device has the same keys."""
    q, k, v, _ = given()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    each, same = jax.sharding.PartitionSpec(None, "x"), jax.sharding.PartitionSpec()
    specs = (each, same, same) if shared else (each,) * 3
    mapped = jax.shard_map(lambda *x: wj.attention(*x, causal=True), mesh=mesh, in_specs=specs, out_specs=each)
    loss = lambda call: lambda *arrays: (call(*arrays).astype(jnp.float32) ** 2).sum()  # noqa: E731
    plain = lambda *arrays: wj.attention(*arrays, causal=True)  # noqa: E731
    found, wanted = (jax.grad(loss(call), range(3))(q, k, v) for call in (mapped, plain))
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_numbers_of_numpy_are_numbers_and_eight_bits_have_no_gradient():
    q, k, v, _ = given()
    wanted = wj.attention(q, k, v, causal=True, scale=float(np.float32(0.3)), window=(5, 0), softcap=2.0)
    found = wj.attention(q, k, v, causal=np.bool_(True), scale=np.float32(0.3), window=(np.int64(5), np.int32(0)),
                         softcap=np.float64(2.0))  # fmt: skip
    np.testing.assert_array_equal(found, wanted)
    eight = [x.astype(jnp.float8_e4m3fn) for x in (q, k, v)]
    assert wj.attention(*eight).dtype == jnp.bfloat16
    with refused("argument-type"):
        jax.grad(lambda q: wj.attention(q, *eight[1:]).astype(jnp.float32).sum())(eight[0])


def test_what_only_arrays_with_memory_have_is_refused_while_tracing():
    q, k, v, _ = given()
    lengths = np.array([20], np.int32)
    with refused("argument-type"):
        jax.jit(lambda q: warploom.attention_decode(q[:, :, :1], k, v, lengths))(q)
    with refused("argument"):
        warploom.attention(q, k, v, score_mod=lambda s, b, h, i, j: s)


def test_a_launch_of_another_type_is_not_taken_for_one_that_came_before(monkeypatch):
    """On a GPU calls of a kind that came before only move; bf16 and f16 of one shape are two kinds."""
    handlers, kinds = object.__new__(calls.Handlers), []
    handlers._launches = {}
    monkeypatch.setattr(calls, "_device", lambda pointers: 0)
    monkeypatch.setattr(handlers, "_first", lambda call, kind, *rest: kinds.append(kind))
    for dtype in (dtypes.bf16, dtypes.f16, dtypes.bf16):
        memory = (calls.Memory(1 << 20, (1, 2, 40, 64), dtype),)
        handlers.on_gpu(Call(memory, memory, {"call": "the same"}, lambda: 0))
    assert kinds[0] == kinds[2] != kinds[1]


@pytest.mark.slow
def test_a_softcap_has_a_gradient():
    q, k, v, _ = given()

    def ours(*arrays):
        return wj.attention(*arrays, softcap=1.5).astype(jnp.float32).sum()

    def exact(*arrays):
        q, k, v = (x.astype(jnp.float32) for x in arrays)
        scores = jnp.tanh(jnp.einsum("bhsd,bhtd->bhst", q, jnp.repeat(k, 2, 1)) / 8 / 1.5) * 1.5
        return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores, -1), jnp.repeat(v, 2, 1)).sum()

    for mine, wanted in zip(*(jax.grad(each, range(3))(q, k, v) for each in (ours, exact)), strict=True):
        mine, wanted = (np.asarray(x, np.float32) for x in (mine, wanted))
        assert np.linalg.norm(mine - wanted) <= 0.02 * np.linalg.norm(wanted)


@pytest.mark.slow
def test_batches_of_vmap_are_each_computed_and_gradients_have_none():
    q, k, v, _ = given()
    both = jnp.stack([q, q * 2]), jnp.stack([k, k]), jnp.stack([v, -v])
    found = jax.vmap(lambda *arrays: wj.attention(*arrays, causal=True))(*both)
    for at in range(2):
        np.testing.assert_array_equal(found[at], wj.attention(*(x[at] for x in both), causal=True))
    first = jax.grad(lambda q: wj.attention(q, k, v).astype(jnp.float32).sum())
    with pytest.raises(ValueError, match="differentiat"):
        jax.grad(lambda q: first(q).astype(jnp.float32).sum())(q)


def test_logarithms_come_along_and_what_does_not_fit_is_refused():
    q, k, v, _ = given()
    out, lse = wj.attention(q, k, v, return_lse=True, layout="bhsd")
    assert out.shape == (1, 2, 40, 64) and lse.shape == (1, 2, 40) and lse.dtype == jnp.float32
    for call in (
        lambda: wj.attention(q, k, v[:, :, :30]),
        lambda: wj.attention(q, k, v, layout="other"),
        lambda: warploom.attention(q, k, v, out=out),
    ):
        with pytest.raises(ArgumentError):
            call()
