"""The kernel families, in the order in which equals are tried."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError
from ...kernels.hopper.attention_config import Config as AttentionConfig
from ...kernels.hopper.attention_decode_config import DecodeConfig
from ...kernels.hopper.fields import from_words, to_words
from ...kernels.hopper.names import any_config
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .ampere import Ampere
from .blackwell import Blackwell, BlackwellSmallM
from .block_scaled import BlockScaled
from .correction import considered, corrected, ends_us, measured, without_operands
from .estimate import Estimate
from .family import KernelFamily
from .free_tile import FreeTile, computes
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
)


ATTENTION = (AttentionConfig, DecodeConfig)
"""Configurations of kernels that compute no product; tables keep them with the others."""


def candidates(problem: Problem, gpu: Gpu, *, every: bool = False) -> list[Any]:
    """Configurations for a problem on a GPU, in no particular order. Each of them can be built.

    every: also those next to the one that a family's own rule gives, to be timed.
    """
    found = [
        config
        for family in FAMILIES
        if family.takes(problem) and gpu.runs(family.arch)
        for config in family.candidates(problem, gpu, every)
    ]
    return found if every or not computes(problem) else [config for config in found if considered(config, problem, gpu)]


def family_of(config: Any, problem: Problem) -> KernelFamily:
    """The family that builds a configuration for a problem.

    Raises ArgumentTypeError for what is not a configuration, ArgumentError where its family does not compute this.
    """
    owners = [family for family in FAMILIES if isinstance(config, family.config)]
    if not owners:
        raise ArgumentTypeError(
            "config= is not a configuration of a kernel",
            expected="a name as `warploom explain` shows it, or one of "
            + ", ".join(sorted({f"{family.config.__module__}.{family.config.__name__}" for family in FAMILIES})),
            got=repr(config),
        )
    for family in owners:
        if family.takes(problem):
            return family
    raise ArgumentError(
        f"the {owners[0].name} kernels do not compute this" + (": they do not promote sums" * problem.promoted),
        expected="a cooperative Config of one CTA" if problem.promoted else "another configuration",
        got=config.name(), hint="leave config= to the library",
    )  # fmt: skip


def estimate(config: Any, problem: Problem, gpu: Gpu) -> Estimate:
    """How long all products of a problem take, one launch each."""
    return family_of(config, problem).estimate(config, problem, gpu).times(problem.count)


def ranked(configs: list[Any], problem: Problem, gpu: Gpu) -> list[tuple[Any, Estimate]]:
    """Configurations with their estimates, the fastest first; equals by name, so that the order is always the same.

    Where there are free tiles, the estimates are corrected by what a sweep of all families showed (`correction`);
    elsewhere what readings put first comes before the rest.
    """
    timed = [(config, family_of(config, problem), estimate(config, problem, gpu)) for config in configs]
    if computes(problem) and measured(configs):
        plain = without_operands(problem)
        alone = [estimate(config, plain, gpu).time_us / problem.count for config in configs]
        ends = [ends_us(config, problem, gpu) for config in configs]
        times = [time + end for time, end in zip(corrected(configs, alone, plain, gpu), ends, strict=True)]
        order = sorted(zip(times, timed, strict=True), key=lambda row: (row[0], row[1][0].name()))
        return [(config, guess.corrected_to(time * problem.count)) for time, (config, _, guess) in order]
    timed.sort(key=lambda row: (not row[1].goes_first(row[0], problem, gpu), row[2].time_us, row[0].name()))
    return [(config, guess) for config, _, guess in timed]


# -- configurations as text ----------------------------------------------------------------------------------------


def to_text(config: Any) -> str:
    """A configuration as tables, graphs and caches keep it: "hopper_large:tile_n=192,stages=5".

    Fields at their defaults are left out. Raises ArgumentTypeError for anything else.
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
    """The configuration of such a text, or of a short name as earlier evidence files have it.

    Raises ArgumentError for another text.
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
        if "=" in name:  # fields, of the family that may go unnamed
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
    "ranked",
    "to_text",
]
