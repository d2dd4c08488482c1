"""The kernel families, in the order in which ties are broken."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError
from ...kernels.fields import from_words, to_words
from ...kernels.hopper.attention_config import Config as AttentionConfig
from ...kernels.hopper.attention_decode_config import DecodeConfig
from ...kernels.hopper.names import any_config
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .ampere import Ampere
from .blackwell import Blackwell, BlackwellSmallM
from .block_scaled import BlockScaled
from .correction import considered, corrected, epilogue_us, measured, without_operands
from .estimate import Estimate
from .family import KernelFamily
from .free_tile import FreeTile, computes
from .grouped import BlackwellGrouped, HopperGrouped
from .hopper_large import HopperLarge
from .small_m import SmallM

FAMILIES: tuple[KernelFamily, ...] = (
    SmallM(),
    HopperLarge(),
    BlockScaled(),
    FreeTile(),
    Ampere(),
    BlackwellSmallM(),
    Blackwell(),
    HopperGrouped(),
    BlackwellGrouped(),
)


ATTENTION = (AttentionConfig, DecodeConfig)
"""Configurations of kernels that compute no product; tables keep them with the others."""


def candidates(problem: Problem, gpu: Gpu, *, every: bool = False) -> list[Any]:
    """Configurations for a problem on a GPU, in no particular order. All of them can be built.

    every: also the variants around a family's own choice, for timing.
    """
    found = [
        config
        for family in FAMILIES
        if family.computes(problem) and gpu.runs(family.arch)
        for config in family.candidates(problem, gpu, every)
    ]
    return found if every or not computes(problem) else [config for config in found if considered(config, problem, gpu)]


def family_of(config: Any, problem: Problem) -> KernelFamily:
    """The family that builds a configuration for a problem.

    Raises ArgumentTypeError if it is not a configuration, ArgumentError if its family does not compute the problem.
    """
    owners = [family for family in FAMILIES if isinstance(config, family.config)]
    if not owners:
        raise ArgumentTypeError(
            "config= is not a configuration of a kernel",
            expected="a name as shown by `warploom explain`, or one of "
            + ", ".join(sorted({f"{family.config.__module__}.{family.config.__name__}" for family in FAMILIES})),
            got=repr(config),
        )
    for family in owners:
        if family.computes(problem):
            return family
    raise ArgumentError(
        f"the {owners[0].name} kernels do not compute this" + (": they do not promote sums" * problem.promoted),
        expected="a cooperative Config of one CTA" if problem.promoted else "another configuration",
        got=config.name(), hint="omit config= to let the library choose",
    )  # fmt: skip


def estimate(config: Any, problem: Problem, gpu: Gpu) -> Estimate:
    """The time of all products of a problem, one launch each."""
    return family_of(config, problem).estimate(config, problem, gpu).times(problem.count)


def is_corrected(configs: list[Any], problem: Problem) -> bool:
    """True if estimates are corrected by the fit to sweeps of all families: there are free tiles, or MN-major
    operands."""
    return measured(configs) and (computes(problem) or "MN" in (problem.product.a_major, problem.product.b_major))


def ranked(configs: list[Any], problem: Problem, gpu: Gpu) -> list[tuple[Any, Estimate]]:
    """Configurations with their estimates, fastest first; ties are ordered by name, so the order is deterministic.

    If the estimates are not corrected, the configurations preferred by measurements come first.
    """
    timed = [(config, family_of(config, problem), estimate(config, problem, gpu)) for config in configs]
    if is_corrected(configs, problem):
        plain = without_operands(problem)
        alone = [estimate(config, plain, gpu).time_us / problem.count for config in configs]
        ends = [epilogue_us(config, problem, gpu) for config in configs]
        times = [time + end for time, end in zip(corrected(configs, alone, plain, gpu), ends, strict=True)]
        order = sorted(zip(times, timed, strict=True), key=lambda row: (row[0], row[1][0].name()))
        return [(config, guess.corrected_to(time * problem.count)) for time, (config, _, guess) in order]
    timed.sort(key=lambda row: (not row[1].goes_first(row[0], problem, gpu), row[2].time_us, row[0].name()))
    return [(config, guess) for config, _, guess in timed]


# -- configurations as text ----------------------------------------------------------------------------------------


def to_text(config: Any) -> str:
    """A configuration as text, for tables, graphs and caches: "hopper_large:tile_n=192,stages=5".

    Fields at their defaults are omitted. Raises ArgumentTypeError for anything else.
    """
    for family in FAMILIES:
        if type(config) is family.config:
            return f"{family.name}:{to_words(config)}"
    if isinstance(config, ATTENTION):
        return config.name()
    raise ArgumentTypeError(
        "config= is not a configuration of a kernel", expected="a configuration, or the name of one",
        got=type(config).__name__,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def from_text(text: str) -> Any:
    """The configuration of such a text, or of a short name in earlier evidence files.

    Raises ArgumentError for any other text.
    """
    name, colon, words = text.partition(":")
    for family in FAMILIES:
        if colon and family.name == name.strip():
            return family.config(**from_words(family.config, words))
    for kind in ATTENTION:
        if colon and kind.family == name.strip():
            return kind(**from_words(kind, words))
    try:
        return any_config(text)
    except ArgumentError as error:
        if "=" in name:  # fields of the family whose name may be omitted
            raise
        raise ArgumentError(
            "this is not a configuration of a kernel",
            expected="FAMILY:FIELD=VALUE,… with a family of " + ", ".join(family.name for family in FAMILIES),
            got=text[:200] or repr(text), hint="`warploom explain M N K` shows the names of some",
        ) from error  # fmt: skip


__all__ = [
    "FAMILIES",
    "Estimate",
    "KernelFamily",
    "candidates",
    "estimate",
    "family_of",
    "from_text",
    "is_corrected",
    "ranked",
    "to_text",
]
