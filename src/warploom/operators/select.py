"""Chooses the kernel for a problem: pinned by the caller, timed on this GPU, shipped, or ranked by the model.

    pinned   config= of the call
    tuned    timed here before (`warploom tune`, or config.autotune): kept on disk per GPU, driver and package version
    shipped  timed by the package's authors: operators/tables/<gpu>.json
    model    arithmetic: the families' candidates, ranked, with the correction of `warploom tune --fit`, if there is one

Choices are remembered in the process; asking again is one look-up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError
from ..settings import config as settings
from .families import Estimate, candidates, estimate, family_of, from_text, ranked
from .fitted import applied
from .spec.gpu import BLACKWELL, EMULATED, HOPPER, Gpu, check_gpu
from .spec.problem import TMA_BYTES, Problem
from .tuned import key_of, tables


@dataclass(frozen=True)
class Choice:
    """A configuration and the reason for it.

    Attributes:
        config: of the kernel.
        source: "pinned", "tuned", "shipped" or "model".
        estimate: the model's estimate.
    """

    config: Any
    source: str
    estimate: Estimate


def choose(problem: Problem, gpu: Gpu = EMULATED, pinned: Any = None) -> Choice:
    """The configuration for a problem.

    `pinned`: a configuration, or its name. Raises ArgumentError or ArgumentTypeError if it does not suit the problem,
    and ArgumentError if no configuration does, or if the GPU is not one of sm_80 to sm_100.
    """
    check_gpu(gpu, "matmul", newest=BLACKWELL)
    if pinned is not None:
        if isinstance(pinned, str):
            pinned = from_text(pinned)
        family = family_of(pinned, problem)
        if not gpu.runs(family.arch):
            raise ArgumentError(
                f"{gpu.name} cannot run the {family.name} kernels", expected=f"a GPU of {family.arch}", got=gpu.arch,
                hint="omit config= to let the library choose",
            )  # fmt: skip
        family.check(pinned, problem)
        return Choice(pinned, "pinned", estimate(pinned, problem, gpu))
    folder = settings.cache_dir
    return _chosen(replace(problem, batch=()), gpu, str(folder) if folder else "", tables().version)


def arch_of(pinned: Any, problem: Problem) -> str:
    """The target of a pinned configuration, or of its name; "" without one. Raises like `choose`."""
    if pinned is None:
        return ""
    return family_of(from_text(pinned) if isinstance(pinned, str) else pinned, problem).arch


@lru_cache(maxsize=4096)
def _chosen(problem: Problem, gpu: Gpu, folder: str, version: int) -> Choice:
    known, keys = tables(), [key_of(problem)]
    if problem.constant_weights:
        keys.append(key_of(replace(problem, constant_weights=False)))
    for source, table in (("tuned", known.tuned(gpu, folder)), ("shipped", known.shipped(gpu))):
        for found in map(table.get, keys):
            if found is not None and family_of(found, problem).fits(found, problem):
                return Choice(kept(found, problem), source, estimate(found, problem, gpu))
    order = ranking(replace(problem, constant_weights=False), gpu)  # the promise is applied after the choice
    return Choice(kept(order[0][0], problem), "model", order[0][1])


def promised(config: Any, problem: Problem = Problem(1, 1, 1)) -> Any:  # noqa: B008 - frozen
    """The configuration with the promise of constant weights, if that helps."""
    return family_of(config, problem).promised(config)


def kept(config: Any, problem: Problem) -> Any:
    """The configuration with the promise of constant weights, if the problem gives it."""
    return promised(config, problem) if problem.constant_weights and not problem.promoted else config


def ranking(problem: Problem, gpu: Gpu = EMULATED) -> list[tuple[Any, Estimate]]:
    """All candidates with the model's estimates, the fastest first.

    Raises ArgumentError if there is none, ArgumentTypeError for types that a GPU before Hopper does not multiply.
    """
    check_gpu(gpu, "matmul", newest=BLACKWELL)
    found = candidates(problem, gpu)
    if not found and gpu.number < HOPPER:
        product = problem.product
        raise ArgumentTypeError(
            "on GPUs before Hopper (sm_90) matmul multiplies bf16 only", expected="bf16 x bf16 -> bf16 or f32",
            got=f"{product.a} x {product.b} -> {product.out}",
        )  # fmt: skip
    if not found:
        along_k = problem.layout != "tn" and problem.product.a.bytes != 2
        raise ArgumentError(
            "no kernel of the package computes this", expected="a product listed in docs/matmul.md",
            got=problem.describe(),
            hint=f"{problem.product.a} is only read along k: matmul copies other operands first, and runs tn"
            if along_k else None,
        )  # fmt: skip
    return applied(ranked(found, problem, gpu), problem, gpu)


def kernel_of(problem: Problem, config: Any) -> Any:
    """The kernel of a configuration, built once. Its module is loaded with the first one.

    If rows of D are not multiples of 16 bytes, it writes past their ends: `bind` gives it padded rows.
    """
    pads_to_16b = problem.n * problem.product.out.bytes % TMA_BYTES != 0
    return family_of(config, problem).build(problem, config, pads_to_16b)
