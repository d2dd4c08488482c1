"""Choice of the machine and the kernel of an attention call: Hopper's, or on sm_100 Blackwell's.

The authors have not run the Blackwell kernels on hardware: a warning says so once, and each one's first result is
checked.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...errors import ArgumentError, WrongResultError
from ...kernels.blackwell.attention_config import Config as BlackwellConfig
from ...kernels.hopper.attention_config import LOG2_E, Attention, Config, default
from ...runtime.arrays import ArrayView
from ...runtime.machine import B200, H200, Machine
from ...runtime.program import Program
from ..first_run_check import MOST_WORK, due, numbers_in
from ..kernel_cache import kept
from ..spec.gpu import BLACKWELL, Gpu, check_gpu, emulated, gpu_of
from .choice import call_of, chosen, plain
from .request import Request

AnyConfig = Config | BlackwellConfig
CONFIGS = (Config, BlackwellConfig)
CALLED = "kernels.hopper.attention_config.Config, or kernels.blackwell's on sm_100"
EMULATED_SMS = 4
"""SMs of the emulated machine: persistent grids have as few CTAs, so less setup is emulated."""


class Unproven:
    """The subject of the warning."""

    name = "blackwell_attention"
    unproven = "assembled and emulated, not run on hardware by the authors"


def machine_for(array: ArrayView, config: Any = None) -> Gpu:
    """Return the GPU of an array, or the emulated one: the GPU of a pinned configuration. Raises ArgumentError."""
    arch = {Config: "sm_90a", BlackwellConfig: "sm_100a"}.get(type(config), "")
    gpu = emulated(arch) if array.device == "cpu" else gpu_of(array.index)
    check_gpu(gpu, "attention", newest=BLACKWELL)
    return gpu


def configured(request: Request, config: AnyConfig | None, gpu: Gpu) -> AnyConfig:
    """Return a configuration for the GPU. Raises ArgumentError if its kernel does not support the request."""
    wanted: type = BlackwellConfig if gpu.number >= BLACKWELL else Config
    if config is not None and not isinstance(config, wanted):
        raise ArgumentError(
            "this configuration of attention is for another GPU", expected=f"one of {wanted.__module__}",
            got=f"{config!r} on {gpu.name}, {gpu.arch}",
        )  # fmt: skip
    if isinstance(config, Config):
        config.check(request.of)
    if wanted is Config:
        if config is None and plain(request.of):
            return cast(Config, chosen(call_of(request), gpu).config)
        return config or default(request.of, getattr(request.block_mask, "BLOCK_SIZE", None))
    pinned = config or BlackwellConfig()
    assert isinstance(pinned, BlackwellConfig)
    pinned.check(request.of)
    return pinned


@lru_cache(maxsize=64)
def program_of(of: Attention, config: AnyConfig, folder: Path | None) -> Program:
    """Return the kernel's program; with a folder, cached on disk."""

    def trace() -> Program:
        if isinstance(config, BlackwellConfig):
            from ...kernels.blackwell import attention as blackwell

            return blackwell.build(of, config).program()
        from ...kernels.hopper import attention

        return attention.build(of, config).program()

    kind = "blackwell " if isinstance(config, BlackwellConfig) else ""
    return trace() if folder is None else kept(f"{kind}attention {of!r} {config!r}", trace, folder)


def emulating(gpu: Gpu) -> Machine:
    """Return the emulated machine for a GPU."""
    return (B200 if gpu.number >= BLACKWELL else H200)(sms=EMULATED_SMS)


# -- the first result ------------------------------------------------------------------------------------------------


def check_first(request: Request, config: BlackwellConfig, target: ArrayView, sums: ArrayView) -> None:
    """Compare some queries of every head of a configuration's first result with attention in float64.

    Raises WrongResultError if an element is off by more than rounding P and O to their type explains.
    """
    of = request.of
    if not due(("attention", config, of), target):
        return
    q, k, v = (numbers_in(request.views[name]) for name in ("q", "k", "v"))
    got, lse = numbers_in(target), numbers_in(sums)
    batch, queries, heads, _ = q.shape
    each = max(1, MOST_WORK // (batch * heads * request.keys * (of.head_dim + of.value_dim)))
    rows = np.unique(np.linspace(0, queries - 1, min(queries, each)).astype(int))
    scale = request.numbers["scale"] / LOG2_E
    unit = float(np.finfo(np.float16).eps) if of.dtype.name == "f16" else 2.0**-7
    hidden = np.arange(request.keys)[None, :] > rows[:, None] + request.numbers.get("last", request.keys)
    for image in range(batch):
        for head in range(heads):
            group = head // (heads // k.shape[2])
            scores = np.where(hidden, -np.inf, scale * (q[image, rows, head] @ k[image, :, group].T))
            top = scores.max(1, keepdims=True)
            base = np.where(np.isinf(top), 0, top)
            p = np.exp(scores - base)
            total = p.sum(1, keepdims=True)
            weights, values = p / np.where(total > 0, total, 1), v[image, :, group]
            exact = weights @ values
            with np.errstate(divide="ignore"):
                logarithms = np.log(total[:, 0]) + base[:, 0]
            allowed = unit * (weights @ np.abs(values) + np.abs(exact)) + 1e-30
            _compare(config, got[image, rows, head], exact, allowed, rows, (image, head))
            seen = np.isfinite(logarithms)
            found = np.where(seen, lse[image, head, rows], np.where(np.isneginf(lse[image, head, rows]), 0, np.nan))
            allowed = 2.0**-9 * np.maximum(1, np.abs(np.where(seen, logarithms, 0)))
            _compare(config, found[:, None], np.where(seen, logarithms, 0)[:, None], allowed[:, None], rows,
                     (image, head))  # fmt: skip


def _compare(
    config: BlackwellConfig, got: np.ndarray, exact: np.ndarray, allowed: np.ndarray, rows: np.ndarray,
    of: tuple[int, int],
) -> None:  # fmt: skip
    """Raise WrongResultError if an element is off by more than `allowed`."""
    off = ~((np.abs(got - exact) <= allowed) | ~np.isfinite(exact))
    if off.any():
        row, column = (int(at[0]) for at in np.nonzero(off))
        raise WrongResultError(
            f"the first result of attention with {config!r} is wrong: {off.sum()} of {off.size} elements checked of "
            f"batch {of[0]}, head {of[1]} differ",
            expected=f"about {exact[row, column]:.6g} for query {rows[row]}",
            got=f"{got[row, column]:.6g}",
            consequence="the kernel was not run on hardware by the authors, and is wrong here",
            hint="please report it with this message; torch's scaled_dot_product_attention may be right",
        )
