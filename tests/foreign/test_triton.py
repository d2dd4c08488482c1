"""Triton kernels of our own: each text runs with its launch description and gives NumPy's numbers."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.thinning import SCHEDULES
from warploom.runtime import TensorMap, emulate, launch_file

FOLDER = Path(__file__).parent / "triton"
TEXTS = sorted(path.stem for path in FOLDER.glob("*.ptx"))
OF_BF16, OF_F16, OF_F32 = 2.0**-8, 2.0**-11, 2.0**-18


def run(name: str, schedule: str = "lazy", seed: int = 0) -> list[Any]:
    """The arguments of a text after its run, tensor maps as their arrays."""
    path = FOLDER / f"{name}.ptx"
    description = launch_file.read(launch_file.beside(path))
    program = description.program(path.read_text(), path.name)
    arguments = description.arguments(program)
    emulate(program, *arguments, check=False, schedule=schedule, seed=seed)
    return [value.array.host if isinstance(value, TensorMap) else value for value in arguments]


@functools.cache
def lazily(name: str) -> list[Any]:
    return run(name)


def near(got: np.ndarray, expected: np.ndarray, rounding: float, error: float = 1e-5) -> None:
    """Rounded once to the output's type; `error` of the largest output is what the arithmetic before may be off."""
    np.testing.assert_allclose(got.astype(float), expected, rtol=1.01 * rounding, atol=error * np.abs(expected).max())


def exact(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(float) for array in arrays]


# -- what each kernel computes -----------------------------------------------------------------------------------


def check_row_softmax(source: np.ndarray, destination: np.ndarray, *_: Any) -> None:
    powers = np.exp(source.astype(float) - source.max(1, keepdims=True))
    near(destination, powers / powers.sum(1, keepdims=True), OF_F32)


def check_layer_norm(
    source: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    out: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    *_: Any,
) -> None:
    (x,) = exact(source)
    factor = 1 / np.sqrt(x.var(1) + 1e-5)
    np.testing.assert_allclose(mean, x.mean(1), atol=1e-6)
    np.testing.assert_allclose(scale, factor, rtol=1e-5)
    near(out, (x - x.mean(1, keepdims=True)) * factor[:, None] * weight + bias, OF_F16)


def check_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, *_: Any) -> None:
    a, b = exact(a, b)
    near(c, a @ b, OF_BF16)


def check_ragged_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, *_: Any) -> None:
    a, b = exact(a, b)
    product = a @ b
    near(c, np.where(product >= 0, product, 0.01 * product), OF_F32 if c.dtype == np.float32 else OF_F16)


def check_host_descriptors(*arguments: Any) -> None:
    a, b = exact(arguments[0], arguments[5])
    near(arguments[10], a @ b.T, OF_BF16)


def check_device_descriptors(a: np.ndarray, b: np.ndarray, c: np.ndarray, *_: Any) -> None:
    a, b = exact(a, b)
    near(c, a @ b.T, OF_BF16)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    q, k, v = exact(q, k, v)
    score = np.einsum("hik,hjk->hij", q, k) * 0.125
    if causal:
        score = np.where(np.tri(q.shape[1], dtype=bool), score, -np.inf)
    part = np.exp(score - score.max(-1, keepdims=True))
    return np.einsum("hij,hjk->hik", part / part.sum(-1, keepdims=True), v)


def check_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, out: np.ndarray, *_: Any) -> None:
    near(out, attended(q, k, v, causal=False), OF_F16, error=2 * OF_F16)  # the weights are rounded to f16 too


def check_causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, out: np.ndarray, *_: Any) -> None:
    near(out, attended(q, k, v, causal=True), OF_BF16, error=2 * OF_BF16)


def check_scans(
    x: np.ndarray, sums: np.ndarray, ordered: np.ndarray, bins: np.ndarray, drawn: np.ndarray, *_: Any
) -> None:
    assert np.array_equal(sums, x.cumsum())
    assert np.array_equal(ordered, np.sort(x))
    assert np.array_equal(bins, np.bincount(x & 31, minlength=32))
    assert np.array_equal(drawn.view(np.uint32), philox(1234, np.arange(256)))


def philox(seed: int, offsets: np.ndarray) -> np.ndarray:
    """The first word of Philox 4x32-10 for the counters (offset, 0, 0, 0). Salmon et al., SC 2011."""
    low = np.uint64(0xFFFFFFFF)
    c = [offsets.astype(np.uint64), *(np.zeros(offsets.size, np.uint64) for _ in range(3))]
    keys = [seed, 0]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            b >> np.uint64(32) ^ c[1] ^ np.uint64(keys[0]),
            b & low,
            a >> np.uint64(32) ^ c[3] ^ np.uint64(keys[1]),
            a & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32)


CHECKS = {
    "row_softmax": check_row_softmax,
    "layer_norm": check_layer_norm,
    "product": check_product,
    "ragged_product": check_ragged_product,
    "fp8_product": check_ragged_product,
    "host_descriptors": check_host_descriptors,
    "device_descriptors": check_device_descriptors,
    "attention": check_attention,
    "causal_attention": check_causal_attention,
    "scans": check_scans,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_kernel_gives_the_right_numbers(name: str) -> None:
    CHECKS[name.rsplit("_", 1)[0]](*lazily(name))


@pytest.mark.sample(5, full=51)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("name", TEXTS)
def test_every_schedule_gives_the_same_bits(name: str, schedule: str, seed: int) -> None:
    for expected, got in zip(lazily(name), run(name, schedule, seed), strict=True):
        assert np.asarray(expected).tobytes() == np.asarray(got).tobytes()
