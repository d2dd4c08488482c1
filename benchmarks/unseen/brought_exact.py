"""What the kernels of `brought` must compute, by numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .case import Case

Arrays = list[Any]
F32 = np.float32


def joint_histogram(points: Any, weights: Any) -> Arrays:
    x, y = (np.clip(np.floor(points[:, i] * F32(6)).astype(int) + 16, 0, 31) for i in range(2))
    return [np.bincount(y * 32 + x, weights, 1024)]


def looked_back(numbers: Any) -> Arrays:
    blocks = len(numbers) // 2048
    return [np.cumsum(numbers, dtype=np.uint32), np.zeros(blocks), np.zeros(2)]


def permuted(given: Any) -> Arrays:
    return [given.transpose(0, 3, 2, 1)]


def norm_gradient(x: Any, dy: Any, gamma: Any, mean: Any, spread: Any) -> Arrays:
    x, dy, gamma = (one.astype(F32) for one in (x, dy, gamma))
    normed, scaled = (x - mean[:, None]) * spread[:, None], dy * gamma
    means = scaled.mean(1, keepdims=True), (scaled * normed).mean(1, keepdims=True)
    return [(scaled - means[0] - normed * means[1]) * spread[:, None]]


def long_softmax(given: Any) -> Arrays:
    powers = np.exp(given - given.max(1, keepdims=True))
    return [powers / powers.sum(1, keepdims=True)]


def merged(one: Any, two: Any) -> Arrays:
    return [np.sort(np.concatenate([one, two]))]


def scattered_gradients(words: Any, rows: Any, table: Any) -> Arrays:
    made = np.zeros(table, F32)
    np.add.at(made, words, rows.astype(F32))
    return [made]


def csr_times_vector(begins: Any, columns: Any, values: Any, x: Any) -> Arrays:
    sums = np.concatenate([[0.0], np.cumsum(values.astype(np.float64) * x[columns])])
    return [sums[begins[1:]] - sums[begins[:-1]]]


def pooled(images: Any) -> Arrays:
    many, side, _, channels = images.shape
    padded = np.pad(images.astype(F32), ((0, 0), (1, 0), (1, 0), (0, 0)), constant_values=-np.inf)
    taps = [padded[:, dy : dy + side : 2, dx : dx + side : 2] for dy in range(3) for dx in range(3)]
    return [np.max(taps, 0).reshape(many, side // 2, side // 2, channels)]


def blocks_times_vector(weights: Any, x: Any, of_x: Any) -> Arrays:
    rows, blocks, _ = weights.shape
    scales = weights[:, :, :2].copy().view(np.float16).astype(F32)[:, :, 0]
    nibbles = weights[:, :, 2:].astype(np.int32)
    eights = np.concatenate([(nibbles & 15) - 8, (nibbles >> 4) - 8], 2)
    numbers = x.astype(np.int32).view(np.int8).reshape(blocks, 32).astype(np.int32)
    dots = np.einsum("rbi,bi->rb", eights.reshape(rows, blocks, 32), numbers)
    return [(scales * of_x * dots).sum(1)]


def neighbour_forces(atoms: Any, neighbours: Any) -> Arrays:
    apart = atoms[None, :, :3] - atoms[neighbours, :3]
    inverse = 1 / ((apart**2).sum(2) + F32(0.5))
    six = np.where(inverse > 1 / 9, inverse**3, 0)
    forces = (apart * (six * (six - 0.5) * inverse)[:, :, None]).sum(0)
    return [np.concatenate([forces, (six * (six - 1)).sum(0)[:, None]], 1)]


def relaxed(given: Any, steps: Any) -> Arrays:
    both = [given.copy(), given.copy()]
    for step in range(steps):
        one, two = both[step % 2], both[(step + 1) % 2]
        two[1:-1, 1:-1] = F32(0.25) * (one[:-2, 1:-1] + one[2:, 1:-1] + one[1:-1, :-2] + one[1:-1, 2:])
    return [both[0], both[1], None]


def hadamard(given: Any) -> Arrays:
    made = given
    for distance in (2**i for i in range(7)):
        pairs = made.reshape(-1, 2, distance, given.shape[1])
        made = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)
    return [made.reshape(given.shape) / math.sqrt(128)]


def bilateral(image: Any, space: Any, strength: Any) -> Arrays:
    side = image.shape[0]
    padded = np.pad(image, 3, mode="edge")
    sums, weights = np.zeros_like(image), np.zeros_like(image)
    for dy in range(7):
        for dx in range(7):
            tap = padded[dy : dy + side, dx : dx + side]
            weight = np.exp(-F32((dx - 3) ** 2 + (dy - 3) ** 2) * F32(space) - (tap - image) ** 2 * F32(strength))
            sums, weights = sums + weight * tap, weights + weight
    return [sums / weights]


def factored(given: Any) -> Arrays:
    return [np.linalg.cholesky(given @ given.transpose(0, 2, 1) + 16 * np.eye(16, dtype=F32))]


def simulated(ctas: Any, steps: Any, drift: Any, spread: Any, seed: Any) -> Arrays:
    paths = np.arange(ctas * 256, dtype=np.uint64)
    value, mask = np.zeros(ctas * 256), np.uint64(0xFFFFFFFF)
    for step in range(0, steps, 4):
        c0, c1 = paths, np.full_like(paths, step)
        c2 = c3 = np.zeros_like(paths)
        k0, k1 = seed, 0x5EED
        for _ in range(10):
            one, two = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
            c0, c2 = (two >> np.uint64(32)) ^ c1 ^ np.uint64(k0), (one >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
            c1, c3 = two & mask, one & mask
            k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
        normal = 0.0
        for length, angle in ((c0, c1), (c2, c3)):
            uniform = np.minimum((length + 0.5) * 2.3283064e-10, 0.9999999)
            turn = angle * 1.4629181e-9
            normal = normal + np.sqrt(-2 * np.log(uniform)) * (np.sin(turn) + np.cos(turn))
        value += 4 * drift + spread * normal
    return [np.maximum(np.exp(value) - 1, 0).reshape(ctas, 256).sum(1)]


def queued_picture(side: Any, most: Any) -> Arrays:
    at = (np.arange(side, dtype=F32) + F32(0.5)) / F32(side) * F32(3) - F32(1.5)
    re, im = np.broadcast_to(at, (side, side)).copy(), np.broadcast_to(at[:, None], (side, side)).copy()
    steps = np.zeros((side, side), int)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(most):
            inside = re * re + im * im < 4
            steps += inside
            re, im = np.where(inside, re * re - im * im - F32(0.75), re), np.where(inside, 2 * re * im + F32(0.11), im)
    return [np.zeros(2), np.minimum(steps, 255)]


def orbits(anomaly: Any, shape: Any) -> Arrays:
    """The residual of the equation has the derivative 1 - e cos x, which Newton's method divides by."""
    e = np.abs(shape) / (np.abs(shape) + 1)
    found, going = anomaly.copy(), np.ones(len(anomaly), bool)
    for _ in range(20):
        change = (found - e * np.sin(found) - anomaly) / (1 - e * np.cos(found))
        found = np.where(going, found - change, found)
        going &= np.abs(change) > 1e-12
    return [found]


def nearest(queries: Any, points: Any) -> Arrays:
    squares = ((queries[:, None] - points) ** 2).sum(2, dtype=F32)
    return [np.sort(squares, 1)[:, :8], None]


def half_product(a: Any, b: Any) -> Arrays:
    return [a.astype(F32) @ b.astype(F32)]


def tf32_product(a: Any, b: Any) -> Arrays:
    return [a @ b.T]


def logarithms_of_sums(given: Any) -> Arrays:
    largest = given.max(1)
    return [largest + np.log(np.exp(given - largest[:, None]).sum(1))]


def edges_by_boxes(given: Any) -> Arrays:
    high, wide = given.shape
    padded = np.pad(given, 1)

    def tap(dy: int, dx: int) -> Any:
        return padded[dy : dy + high, dx : dx + wide]

    across = tap(0, 2) - tap(0, 0) + 2 * (tap(1, 2) - tap(1, 0)) + tap(2, 2) - tap(2, 0)
    down = tap(2, 0) - tap(0, 0) + 2 * (tap(2, 1) - tap(0, 1)) + tap(2, 2) - tap(0, 2)
    return [np.sqrt(across**2 + down**2)]


def gated_product(a: Any, b: Any, d: Any) -> Arrays:
    gate, value = (a.astype(F32) @ one.astype(F32).T for one in (b, d))
    return [gate / (1 + np.exp(-gate)) * value]


TOLERANCES = {
    "joint_histogram": (1e-4, 1e-3), "norm_gradient": (2e-2, 2e-2), "scattered_gradients": (1e-5, 1e-4),
    "csr_times_vector": (1e-4, 1e-3), "blocks_times_vector": (1e-3, 1e-1), "neighbour_forces": (1e-4, 1e-4),
    "factored": (1e-4, 1e-4), "simulated": (2e-3, 1e-3), "queued_picture": (0, 0), "orbits": (1e-9, 1e-9),
    "half_product": (2e-2, 2e-1), "tf32_product": (1e-2, 5e-2), "gated_product": (2e-2, 1e-1),
}  # fmt: skip
"""Relative and absolute; 1e-5 and 1e-5 for the others."""


def exact(case: Case, inputs: Sequence[Any], outputs: Sequence[Any]) -> Arrays:
    """What the outputs must be; None for one that is not compared."""
    name = case.name.removeprefix("nvcc_")
    scalars = list(case.scalars.values())
    more = {
        "scattered_gradients": lambda: (outputs[0].shape,), "relaxed": lambda: scalars[1:2],
        "bilateral": lambda: scalars[2:], "simulated": lambda: (outputs[0].size, *scalars),
        "queued_picture": lambda: (scalars[0], scalars[2]),
    }  # fmt: skip
    found: Arrays = globals()[name](*inputs, *more.get(name, tuple)())
    return found


def compare(case: Case, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raises AssertionError for outputs that are not what they must be."""
    rtol, atol = TOLERANCES.get(case.name.removeprefix("nvcc_"), (1e-5, 1e-5))
    for found, expected in zip(outputs, exact(case, inputs, outputs), strict=True):
        if expected is not None:
            np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
