"""A case on the CPU machine."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from warploom import asm
from warploom.emulator import api
from warploom.emulator.engines.tma import TensorMapArgument

from .case import Argument, Array, Block, Case, Map, Scalar, results


@lru_cache(maxsize=1)
def _parsed(text: str, name: str) -> asm.Module:
    return asm.parse(text, name=name)


def parsed(case: Case) -> asm.Module:
    """The tree of a case, the same for each run of it."""
    return _parsed(case.text(), case.name)


def run(case: Case, numerics: str = "hardware", schedule: str = "lazy", seed: int = 0) -> dict[str, np.ndarray]:
    """The result buffers by argument number, as raw bits."""
    module = parsed(case)
    arguments = case.arguments()
    api.run(
        module, "k", [_given(argument) for argument in arguments], grid=case.ctas, block=case.block,
        cluster=case.cluster_shape, dynamic_smem=case.dynamic_smem, numerics=numerics, schedule=schedule, seed=seed,
    )  # fmt: skip
    return results(arguments)


def _given(argument: Argument) -> object:
    if isinstance(argument, Scalar):
        return np.uint32(argument.value)
    if isinstance(argument, Map):
        return TensorMapArgument(argument.spec, argument.data)
    if isinstance(argument, Block):
        return np.void(argument.data)
    assert isinstance(argument, Array)
    return argument.data
