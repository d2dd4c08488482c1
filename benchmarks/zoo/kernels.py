"""The kernels of the zoo, each with arguments small enough for a thousand runs.

They still exercise everything: the ring wraps around, and a persistent CTA computes several tiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks import warp_specialised
from warploom import asm
from warploom.cli import find
from warploom.kernels import ladder, walkthrough
from warploom.runtime import H200, Machine, Program, emulate

from . import attention, hopper

ROOT = Path(__file__).resolve().parents[2]
LAST_RUNG = 21
"""Later rungs are configurations of `kernels.hopper`; see `hopper`."""
MACHINE = H200(sms=2)
"""Few multiprocessors, so that a persistent CTA has several tiles and its buffers are reused."""


@dataclass(frozen=True)
class Subject:
    """A kernel and its launch.

    Attributes:
        program: its text has no line information, so places are lines of the PTX text.
        lines: PTX line -> place in the author's Python file.
        more: makes arguments that reach code which the first ones do not.
        sample: how many of its mutants a run for evidence judges; None for all.
    """

    name: str
    program: Program
    module: asm.nodes.Module
    lines: dict[int, str]
    arguments: Callable[[], tuple[Any, ...]]
    machine: Machine = MACHINE
    more: tuple[Callable[[], tuple[Any, ...]], ...] = ()
    sample: int | None = None

    @property
    def problems(self) -> range:
        """Numbers of its sets of arguments."""
        return range(1 + len(self.more))

    def run(
        self, schedule: str, seed: int, module: asm.nodes.Module | None = None, problem: int = 0, **options: Any
    ) -> Any:
        """Emulate the kernel, or a mutant of it, with checking. Places are lines of the kernel's own text."""
        arguments = (self.arguments, *self.more)[problem]
        text = (module or self.module).to_text(line_info=True)
        return emulate(
            replace(self.program, text=text), *arguments(),
            check=True, schedule=schedule, seed=seed, machine=self.machine, **options,
        )  # fmt: skip


@lru_cache(maxsize=1)
def subjects() -> dict[str, Subject]:
    """The walkthrough, the warp-specialised kernel, the ladder's rungs, the examples, the Hopper kernels."""
    return {name: build() for name, build in _subjects()}


def subject(name: str) -> Subject:
    """The kernel with a name, without building the others."""
    return next(build() for each, build in _subjects() if each == name)


def _subjects() -> Iterator[tuple[str, Callable[[], Subject]]]:
    """The name of each, and what builds it."""
    yield (
        "walkthrough",
        lambda: _subject(
            "walkthrough", walkthrough.build_gemm_m64n64(64, 64, 48), lambda: (_normal(64, 48), _normal(48, 64))
        ),
    )
    yield (
        "warp_specialised",
        lambda: _subject("warp_specialised", warp_specialised.build(), lambda: (_normal(128, 512), _normal(128, 512))),
    )
    for rung in ladder.RUNGS[:LAST_RUNG]:
        yield rung.module, lambda rung=rung: _subject(rung.module, rung.build(), lambda: _operands(rung))
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield from _of_example(path)
    for name, kernel, (arguments, *more), machine in (*hopper.kernels(), *attention.kernels()):
        beside = {"machine": machine, "more": tuple(more), "sample": hopper.SAMPLE}
        yield name, partial(_subject, name, kernel, arguments, **beside)


BESIDE_EACH_OTHER = {21}
"""Rungs whose CTAs of a cluster share rows of A; the other rungs share columns of B, one above the other."""


def _operands(rung: ladder.Rung) -> tuple[Any, Any]:
    module = rung.load()
    config = module.Config() if hasattr(module, "Config") else None
    tile_m, tile_n, tile_k = (getattr(config, name, 16) for name in ("tile_m", "tile_n", "tile_k"))
    stages = getattr(config, "stages", 1)  # of one tile all are used twice, of several together
    m, n, k = tile_m, tile_n, tile_k * (2 * stages + 1 if rung.number < 13 else stages + 2)
    ctas, tiles = getattr(module, "CTAS", 1), {13: 4, 14: 4, 20: 4}.get(rung.number, 2 if rung.number > 14 else 1)
    if rung.number in BESIDE_EACH_OTHER:
        n = n * ctas * tiles
    else:
        m, n = m * ctas, n * tiles
    dtype = np.float32 if rung.dtype.name == "f32" else ml_dtypes.bfloat16
    return _normal(m, k, dtype=dtype), _normal(*((k, n) if rung.layout == "NN" else (n, k)), dtype=dtype)


def _normal(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def _of_example(path: Path) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """The kernels of an example, each with the last arguments it is run with there."""
    last: dict[str, tuple[Any, Any]] = {}
    if "def example(" not in path.read_text():
        return
    for kernel, arguments, *_ in find.load(path).example():
        last[kernel.name] = kernel, arguments
    for name, (kernel, arguments) in last.items():
        called = path.stem if len(last) == 1 else f"{path.stem}.{name}"
        yield called, partial(_subject, called, kernel, partial(_copies, arguments))


def _copies(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments)


def _subject(name: str, kernel: Any, arguments: Callable[[], tuple[Any, ...]], **beside: Any) -> Subject:
    program = kernel.program()
    with_lines = asm.parse(program.text, name=name)
    text = re.sub(r"^\s*\.(?:loc|file)\b.*\n", "", program.text, flags=re.MULTILINE)
    module = asm.parse(text, name=name)
    lines = {
        bare.ptx_line: str(author.location)
        for bare, author in zip(_instructions(module), _instructions(with_lines), strict=True)
    }
    return Subject(name, replace(program, text=text), module, lines, arguments, **beside)


def _instructions(module: asm.nodes.Module) -> Iterator[asm.nodes.Instruction]:
    for function in module.entries:
        for statement in asm.nodes.walk(function.body or ()):
            if isinstance(statement, asm.nodes.Instruction):
                yield statement
