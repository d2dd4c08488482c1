"""A kernel that consists of an epilogue: it loads accumulators from an array and stores them with TmaStore.

Also the expected result in float64, with the error bound of the arithmetic.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tests.collective.test_activations import exact
from warploom.collective import WARPGROUP, TmaStore
from warploom.collective.epilogue.activations import ERRORS
from warploom.collective.epilogue.apply import SPARE_REGS, Epilogue
from warploom.collective.epilogue.arguments import BOX_ROWS, epilogue_arguments, result_tile
from warploom.collective.epilogue.spec import Fusion
from warploom.lang import Kernel, Scalar, Tile, kernel, ptx, reg, tiles
from warploom.types import DType, f32, s32, u64

NOTHING = Fusion()
ROUNDING = 2.0**-24
"""Half an ulp of f32, relative."""
STEEPEST = 1.13
"""Largest slope of any activation: gelu at sqrt(2)."""


@cache
def ending(
    out: DType, tile_n: int, fusion: Fusion = NOTHING, *, blocks: int = 1, epi_stages: int = 2, matrices: bool = True,
    spare: int = SPARE_REGS, accumulator: DType = f32, ahead: bool = False,
) -> Kernel:  # fmt: skip
    """D = epilogue of X (M, N): a warpgroup stores two tiles of 64 * blocks x tile_n, one below the other."""
    names = epilogue_arguments(fusion, out)

    def end(X: Any, *others: Any) -> None:
        given = dict(zip((*names, "D"), others, strict=True))
        D = given["D"]
        transform = None if fusion.empty else Epilogue(fusion, D, given, spare=spare)
        store = TmaStore(D, 1, epi_stages=epi_stages, matrices=matrices, epilogue=transform)
        first, column = ptx.special.ctaid.y() * (2 * BOX_ROWS * blocks), ptx.special.ctaid.x() * tile_n
        ptx.bar.sync(0)
        store.begin()
        for row in (first, first + BOX_ROWS * blocks):
            acc = [reg.array(X.dtype, tile_n // 2, init=0) for _ in range(blocks)]
            if ahead:
                store.prefetch(acc, 0, row, column)
            for block, registers in enumerate(acc):
                load(registers, X, row + block * BOX_ROWS, column)
            store.store(acc, 0, row, column, ahead=ahead)
        store.finish()

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("X", *names, "D")]
    end.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return kernel(
        in_specs=(Tile("M", "N", accumulator), *names.values()),
        out_specs=(result_tile("M", "N", out, order="rows", pads_to_16b=True),),
        grid=(tiles("N", tile_n), tiles("M", 2 * BOX_ROWS * blocks)), block=WARPGROUP, arch="sm_90a",
    )(end)  # fmt: skip


def load(acc: Any, X: Any, row: Any, column: Any) -> None:
    """A block of 64 rows in wgmma's layout; elements outside X are unchanged."""
    thread = ptx.special.tid.x()
    mine, first = row + ((thread >> 5) << 4) + ((thread & 31) >> 2), column + ((thread & 3) << 1)
    rows, columns = X.shape
    for index, register in enumerate(acc):
        at_row, at_column = mine + index // 2 % 2 * 8, first + (index // 4 * 8 + index % 2)
        inside = (at_row < rows) & (at_column < columns)
        place = X.pointer() + (at_row.to(u64) * columns + at_column) * 4
        ptx.inst(f"ld.global.{X.dtype}", register, ptx.addr(place), pred=inside)


@dataclass(frozen=True)
class Call:
    """Arguments for a kernel of `ending`, and the expected result."""

    x: np.ndarray
    given: Mapping[str, Any]
    names: tuple[str, ...]

    def run(self, kernel: Kernel, out: DType, **options: Any) -> np.ndarray:
        """D from the emulator with the sanitizer on; bytes next to D's rows must be unchanged."""
        d = padded(np.full(self.x.shape, 96), out, 96)
        report = kernel.emulate(self.x, *self.given.values(), out=d, **options)
        report.raise_on_findings()
        whole = -(-d.shape[1] * out.bytes // 16) * 16 // out.bytes
        assert d.base is not None and (np.asarray(d.base, np.float32)[:, whole:] == 96).all()
        return d


def padded(values: np.ndarray, dtype: DType, fill: float = 96) -> np.ndarray:
    """A matrix whose rows begin at multiples of 16 bytes, with one 16-byte unit of padding."""
    step = 16 // dtype.bytes
    whole = np.full((len(values), (values.shape[1] + step - 1) // step * step + step), fill).astype(dtype.numpy)
    whole[:, : values.shape[1]] = values.astype(dtype.numpy)
    return whole[:, : values.shape[1]]


def call(fusion: Fusion, out: DType, m: int, n: int, seed: int = 0) -> Call:
    """Random arguments of size 1; accumulators are larger if they are scaled."""
    random = np.random.default_rng(seed)
    names = epilogue_arguments(fusion, out)
    given: dict[str, Any] = {}
    for name, spec in names.items():
        if isinstance(spec, Scalar):
            given[name] = np.float32(random.uniform(0.5, 2))
        elif name == "amax":
            given[name] = np.zeros(1, np.float32)
        else:
            shape = tuple({"M": m, "N": n}.get(extent, extent) for extent in spec.shape)
            values = random.standard_normal(shape)
            values = np.exp(values) if "scale" in name else values
            given[name] = padded(values, spec.dtype) if len(shape) == 2 else values.astype(spec.dtype.numpy)
    return Call(random.standard_normal((m, n)).astype(np.float32), given, tuple(names))


def expected(fusion: Fusion, of: Call) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """D before it is rounded to its type, the f32 error bound, and the largest value before scale_out with its bound.

    Every product and sum adds half an ulp of its result; earlier errors propagate through the step.
    """
    given = {name: np.asarray(value, np.float64) for name, value in of.given.items()}
    y = of.x.astype(np.float64)
    error = np.zeros_like(y)

    def times(factor: np.ndarray) -> None:
        nonlocal y, error
        y = y * factor
        error = error * np.abs(factor) + np.abs(y) * ROUNDING

    def plus(term: np.ndarray) -> None:
        nonlocal y, error
        y = y + term
        error = error + (np.abs(y) + np.abs(term)) * ROUNDING

    if fusion.alpha:
        times(given["alpha"])
    if fusion.scales is not None:
        row = fusion.scales == "row"
        times(given["scale_a"][:, None] if row else given["scale_a"])
        times(given["scale_b"])
    if fusion.bias is not None:
        plus(given["bias"][:, None] if fusion.bias == "row" else given["bias"])
    if fusion.activation is not None:
        relative, absolute = ERRORS[fusion.activation]
        y = exact(fusion.activation, y)
        error = STEEPEST * error + relative * np.abs(y) + absolute
    if fusion.gate:
        times(given["gate"])
    if fusion.addend:
        plus(given["beta"] * given["C"])
    largest = float(np.abs(y).max()), float(error.max())
    if fusion.scale_out:
        times(given["scale_out"])
    return y, error, largest


def half_ulp(y: np.ndarray, out: DType) -> np.ndarray:
    """Half the distance between adjacent numbers of a type around y."""
    facts = ml_dtypes.finfo(out.numpy)
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(y), 1e-300))), facts.minexp)
    return 2.0 ** (exponent - facts.nmant - 1)


def assert_rounded(d: np.ndarray, y: np.ndarray, error: np.ndarray, out: DType) -> None:
    """Check that D is y within the errors of the f32 steps and its own rounding; 8-bit results are clipped."""
    if out is s32:
        np.testing.assert_array_equal(d, y)
        return
    if out.bits == 8:
        most = float(ml_dtypes.finfo(out.numpy).max)
        y = np.clip(y, -most, most)
    off = np.abs(d.astype(np.float64) - y)
    bound = error + half_ulp(np.abs(y) + error, out) * (out is not f32)
    bad = np.argwhere(~(off <= bound))
    assert not len(bad), f"{len(bad)} of {d.size}, first at {bad[0]}: {d[tuple(bad[0])]} for {y[tuple(bad[0])]}"
