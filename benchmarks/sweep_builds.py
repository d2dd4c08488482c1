"""The kernels of a sweep, built by other processes while it measures."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from benchmarks.free_tile_candidates import AnyConfig
from warploom.errors import WarploomError
from warploom.kernels.hopper import free_tile, small_m
from warploom.kernels.hopper import gemm as large
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.lab.warploom_contender import product_of
from warploom.lab.work import GemmWork
from warploom.operators import kernel_cache, select
from warploom.runtime import on_gpu
from warploom.runtime.program import Program

Key = tuple[Product, Fusion, AnyConfig]


def fusion_of(problem: GemmWork) -> Fusion:
    """The kernel's epilogue: the scales of 8-bit operands."""
    return Fusion(scales=problem.scales or None)


def build(product: Product, fusion: Fusion, config: AnyConfig) -> Program:
    """The program of a configuration."""
    if isinstance(config, SmallMConfig):
        return small_m.build(product, config, fusion).program()
    if isinstance(config, Config):
        return large.build(product, config, fusion).program()
    return free_tile.build(product, config, fusion).program()


def built(product: Product, fusion: Fusion, config: AnyConfig, arch: str) -> bytes | str:
    """In its own process: the pickled program, its cubin in the cache; or the reason why there is none."""
    try:
        program = build(product, fusion, config)
        on_gpu.build(program, on_gpu.target_for(program, arch))
        return pickle.dumps(program)
    except WarploomError as error:
        return f"{type(error).__name__}: {error.what}"


def warmed(problem: GemmWork, arch: str) -> None:
    """In its own process: build what `warploom.matmul` will run for a problem into the cache, if it can be built."""
    asked = problem.posed
    with suppress(WarploomError):
        program = kernel_cache.program_of(asked, select.choose(asked).config, keep=True)
        on_gpu.build(program, on_gpu.target_for(program, arch))


class Builds:
    """The candidates of products and their programs. Builds begin at once, in the order of the products.

    Args:
        which: the candidates of a product.
        pool: the processes.
        also: configurations of a product that are timed before its candidates.

    Attributes:
        candidates: by product.
        refused: by configuration, the reason why it was not built, of those that were asked for.
    """

    def __init__(
        self, problems: Sequence[GemmWork], which: Callable[..., list[AnyConfig]], sms: int, most: int, arch: str,
        pool: Executor, also: Mapping[GemmWork, Sequence[AnyConfig]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        chosen = pool.map(partial(which, sms=sms, most=most), problems)
        self.candidates: Mapping[GemmWork, list[AnyConfig]] = {
            problem: list(dict.fromkeys((*also.get(problem, ()), *configs)))
            for problem, configs in zip(problems, chosen, strict=True)
        }
        self.refused: dict[str, str] = {}
        self._pending: dict[Key, Future[bytes | str]] = {}
        self._programs: dict[Key, Program | None] = {}
        for problem, configs in self.candidates.items():
            pool.submit(warmed, problem, arch)
            for config in configs:
                key = product_of(problem), fusion_of(problem), config
                if key not in self._pending:
                    self._pending[key] = pool.submit(built, *key, arch)

    def program(self, problem: GemmWork, config: AnyConfig) -> Program | None:
        """The program of a candidate; waits for it. None if it was refused."""
        key = product_of(problem), fusion_of(problem), config
        if key not in self._programs:
            made = self._pending[key].result()
            if isinstance(made, str):
                self.refused[config.name()] = made
            self._programs[key] = None if isinstance(made, str) else pickle.loads(made)  # noqa: S301 - from our own process
        return self._programs[key]
