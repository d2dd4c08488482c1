"""Check warploom.jax on a GPU: results, gradients, stream order, donation, two calls in flight.

    python benchmarks/jax_on_gpu.py [--out benchmarks/results/nvidia-h200/jax.json]

Each result is compared with XLA's own kernels and must agree within two roundings of bf16 of the largest value.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
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


def chain(product: Any) -> Any:
    """Eight products in a loop on the device."""
    scale = jnp.bfloat16(0.03)
    return jax.jit(lambda x, w: jax.lax.fori_loop(0, 8, lambda _, value: product(value, w) * scale, x))


def per_call(call: Any, x: Any, w: Any) -> float:
    """Host and device microseconds of one of many calls."""
    call(x, w).block_until_ready()
    started = time.perf_counter()
    for _ in range(CALLS):
        result = call(x, w)
    result.block_until_ready()
    return round((time.perf_counter() - started) / CALLS * 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/nvidia-h200/jax.json")
    out = parser.parse_args().out
    rows = list(results())
    evidence.write(out, evidence.header("jax", gpu=jax.devices()[0].device_kind), rows)


if __name__ == "__main__":
    main()
