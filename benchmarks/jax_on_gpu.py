"""Check warploom.jax on a GPU: results, gradients, stream order, donation, two calls in flight.

    python benchmarks/jax_on_gpu.py [--out benchmarks/results/nvidia-h200/jax.json]

Each result is compared with XLA's own kernels and must agree within two roundings of bf16 of the largest value.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import warploom.jax as wj
from warploom.lab import evidence

ROOT = Path(__file__).resolve().parents[1]
CALLS = 200


def normals(seed: int = 0) -> Callable[[tuple[int, ...]], Any]:
    """A function that draws new standard normal numbers in bf16 at each call."""
    numbers = count(seed)
    return lambda shape: jax.random.normal(jax.random.PRNGKey(next(numbers)), shape).astype(jnp.bfloat16)


def compared(what: str, ours: Any, theirs: Any) -> dict[str, Any]:
    """One row."""
    worst = float(jnp.abs(ours.astype(jnp.float32) - theirs.astype(jnp.float32)).max())
    largest = float(jnp.abs(theirs.astype(jnp.float32)).max())
    right = worst <= 2 * 2**-8 * largest
    print(f"{what:40} worst {worst:.4g} of {largest:.4g}", "ok" if right else "WRONG", flush=True)
    return {"what": what, "worst_difference": worst, "largest_value": largest, "right": right}


def results() -> Iterator[dict[str, Any]]:
    """All comparisons."""
    draw = normals()
    x, w = draw((512, 1024)), draw((1024, 768))
    relu = jax.jit(lambda x, w: wj.matmul(x, w, activation="relu"))
    yield compared("eager", wj.matmul(x, w), x @ w)
    yield compared("jit, relu", relu(x, w), jax.nn.relu(x @ w))
    yield compared("second call, same buffers", relu(x, w), jax.nn.relu(x @ w))
    for number in range(4):
        fresh = draw((512, 1024))
        yield compared(f"new buffers {number}", relu(fresh, w), jax.nn.relu(fresh @ w))
    ordered = jax.jit(lambda x, w: wj.matmul(x * 2, w) + 1)
    yield compared("stream order", ordered(x, w), (x * 2) @ w + 1)
    small, square = draw((256, 512)), draw((512, 512))
    yield compared("a chain of 8 in a loop", chain(wj.matmul)(small, square), chain(jnp.matmul)(small, square))
    given, kept = draw((768, 768)), draw((768, 768))
    exact = given @ kept
    yield compared("donated", jax.jit(wj.matmul, donate_argnums=0)(given, kept), exact)
    a, b = draw((4096, 4096)), draw((4096, 4096))
    first, second = relu(a, b), relu(b, a)
    yield compared("two in flight, 1", first, jax.nn.relu(a @ b))
    yield compared("two in flight, 2", second, jax.nn.relu(b @ a))
    ours = jax.jit(jax.grad(lambda x, w: wj.matmul(x, w, activation="silu").astype(jnp.float32).sum(), argnums=(0, 1)))
    theirs = jax.grad(lambda x, w: jax.nn.silu(x.astype(jnp.float32) @ w.astype(jnp.float32)).sum(), argnums=(0, 1))
    for what, mine, other in zip(("dx", "dw"), ours(x, w), theirs(x, w), strict=True):
        yield compared(what, mine, other)
    narrow, weights = x.astype(jnp.float8_e4m3fn), w.astype(jnp.float8_e4m3fn)
    yield compared("fp8", wj.matmul(narrow, weights), narrow.astype(jnp.float32) @ weights.astype(jnp.float32))
    yield compared("odd sizes", wj.matmul(x[:, :1001], w[:1001, :701]), x[:, :1001] @ w[:1001, :701])
    for name, call in (("warploom", relu), ("jax", jax.jit(lambda x, w: jax.nn.relu(x @ w)))):
        yield {"what": f"jitted call, {name}", "us": per_call(call, x, w)}
    yield from attention(draw)


def attention(draw: Callable[[tuple[int, ...]], Any]) -> Iterator[dict[str, Any]]:
    """Attention and its gradients, against the formula in f32; both timed against jax.nn.dot_product_attention."""
    for dim, length, group, causal in ((128, 1000, 1, False), (64, 777, 4, True), (128, 2048, 8, True)):
        q, k, v = draw((2, 8, length, dim)), draw((2, 8 // group, length, dim)), draw((2, 8 // group, length, dim))
        name = f"attention {dim}, {length} tokens, {'causal' if causal else 'full'}, group {group}"
        ours = partial(wj.attention, causal=causal)
        theirs = partial(exact_attention, causal=causal)
        yield compared(name, jax.jit(ours)(q, k, v), theirs(q, k, v))
        found, wanted = (jax.jit(jax.grad(squared(one), argnums=(0, 1, 2)))(q, k, v) for one in (ours, theirs))
        for what, mine, other in zip("qkv", found, wanted, strict=True):
            yield compared(f"{name}, d{what}", mine, other)
    q, k, v = (draw((4, 16, 2048, 128)) for _ in range(3))
    swapped = tuple(jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    theirs = partial(jax.nn.dot_product_attention, is_causal=True)
    for name, call, given in (("warploom", partial(wj.attention, causal=True), (q, k, v)), ("jax", theirs, swapped)):
        yield {"what": f"attention, jitted call, {name}", "us": per_call(jax.jit(call), *given)}
        backward = jax.jit(jax.grad(squared(call), argnums=(0, 1, 2)))
        yield {"what": f"attention with gradients, jitted call, {name}", "us": per_call(backward, *given)}


def exact_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The formula in f32."""
    group, length = q.shape[1] // k.shape[1], q.shape[2]
    q, k, v = (x.astype(jnp.float32) for x in (q, jnp.repeat(k, group, 1), jnp.repeat(v, group, 1)))
    with jax.default_matmul_precision("highest"):
        scores = jnp.einsum("bhsd,bhtd->bhst", q, k) * q.shape[-1] ** -0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores, -1), v)


def squared(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: (function(*arrays).astype(jnp.float32) ** 2).sum()


def chain(product: Any) -> Any:
    """Eight products in a loop on the device."""
    scale = jnp.bfloat16(0.03)
    return jax.jit(lambda x, w: jax.lax.fori_loop(0, 8, lambda _, value: product(value, w) * scale, x))


def per_call(call: Any, *arrays: Any) -> float:
    """Host and device microseconds of one of many calls."""
    jax.block_until_ready(call(*arrays))
    started = time.perf_counter()
    for _ in range(CALLS):
        result = call(*arrays)
    jax.block_until_ready(result)
    return round((time.perf_counter() - started) / CALLS * 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/nvidia-h200/jax.json")
    out = parser.parse_args().out
    rows = list(results())
    evidence.write(out, evidence.header("jax", gpu=jax.devices()[0].device_kind), rows)


if __name__ == "__main__":
    main()
