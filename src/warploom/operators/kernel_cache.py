"""The program of a choice: traced once, and kept on disk with its cubin, so that a new process need not trace it.

An entry belongs to one state of the package's sources. Their hash is part of its name, as are the product, the fused
epilogue and the configuration, but not the sizes. It is in the cache of cubins and trusted like them (`driver.cache`).

If a chosen configuration does not build, the next best one runs, with one warning.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import CompilationError, OtherKernelWarning, TraceError
from ..runtime import on_gpu
from ..runtime.program import Program
from ..settings import config as settings
from .families import to_text
from .select import Choice, kernel_of, ranking
from .spec.gpu import Gpu
from .spec.problem import TMA_BYTES, Problem
from .tuned import key_of

ROOT = Path(__file__).parent.parent
SOURCES = ("asm", "collective", "isa", "kernels", "lang", "runtime", "operators/families", "operators/select.py")
"""What a text depends on, in addition to its key."""
_PACKAGE = __name__.partition(".")[0]


class Replaced:
    """Configurations that did not build, and the ones that run instead, by problem."""

    def __init__(self) -> None:
        self.choices: dict[Any, Choice] = {}


@lru_cache(maxsize=1)
def replaced() -> Replaced:
    """The process's record."""
    return Replaced()


def ready(problem: Problem, gpu: Gpu, choice: Choice, device: int | None = None) -> tuple[Choice, Program]:
    """A choice and its program; with a GPU number, a program built for that GPU.

    Raises CompilationError or TraceError if a pinned configuration, or every candidate, does not build.
    """
    key = replace(problem, batch=()), gpu, choice.config
    if choice.source != "pinned":
        choice = replaced().choices.get(key, choice)
    try:
        return choice, _built(problem, gpu, choice.config, device)
    except (CompilationError, TraceError) as error:
        if choice.source == "pinned":
            raise
        first = error
    for config, estimate in ranking(problem, gpu):
        if config == choice.config:
            continue
        try:
            program = _built(problem, gpu, config, device)
        except (CompilationError, TraceError):
            continue
        warnings.warn(
            f"{choice.config.name()}, chosen for {key_of(problem)}, does not build here: {first.what}. "
            f"{config.name()} runs instead; please report this",
            OtherKernelWarning,
            stacklevel=2,
        )
        replaced().choices[key] = Choice(config, "model", estimate)
        return replaced().choices[key], program
    raise first


def _built(problem: Problem, gpu: Gpu, config: Any, device: int | None) -> Program:
    program = program_of(problem, config, keep=device is not None)
    if device is not None:
        from ..driver import library

        with library.load().activated(device):
            on_gpu.build(program, on_gpu.target_for(program, gpu.arch))
    return program


def program_of(problem: Problem, config: Any, *, keep: bool) -> Program:
    """The program of a configuration; `keep`: read it from disk or store it there."""
    whole = problem.n * problem.product.out.bytes % TMA_BYTES == 0
    columns, groups = TMA_BYTES if whole else 1, min(problem.groups, 1)
    free = replace(problem, m=1, n=columns, k=1, batch=(), groups=groups, constant_weights=False)
    return _program(free, config, settings.line_info, settings.cache_dir if keep else None)


@lru_cache(maxsize=1024)
def _program(problem: Problem, config: Any, line_info: bool, folder: Path | None) -> Program:
    if folder is None:
        return kernel_of(problem, config).program()
    return kept(f"{problem!r} {to_text(config)}", lambda: kernel_of(problem, config).program(), folder)


def kept(key: str, trace: Callable[[], Program], folder: Path) -> Program:
    """The program of a key, from disk or traced. The key states everything it depends on besides the sources."""
    from ..driver import cache

    made: list[Program] = []

    def make() -> cache.Entry:
        made.append(trace())
        return cache.Entry(to_bytes(made[0]), "", "trace")

    try:
        entry, _ = cache.builds().get(
            cache.key_of("program", sources(), key, str(settings.line_info)), folder, make
        )  # fmt: skip
    except (pickle.PicklingError, AttributeError, TypeError):
        if not made:
            raise
        return made[0]  # one of its rules has no name by which another process could find it
    return made[0] if made else from_bytes(entry.cubin)


@lru_cache(maxsize=1)
def sources() -> str:
    """A hash over the files of the package that a text depends on."""
    return source_hash(SOURCES)


def source_hash(names: Sequence[str]) -> str:
    """A hash over files and folders of the package: Python, and the tables in .toml."""
    digest = hashlib.sha256()
    for name in names:
        place = ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.suffix in (".py", ".toml"):
                data = path.read_bytes()
                digest.update(f"{path.relative_to(ROOT)} {len(data)}\n".encode())
                digest.update(data)
    return digest.hexdigest()


# -- bytes ---------------------------------------------------------------------------------------------------------


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Load only names of this package. Raises UnpicklingError for anything else."""
        if module.partition(".")[0] != _PACKAGE:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a program")
        return super().find_class(module, name)


def to_bytes(program: Program) -> bytes:
    """The contents of a program's file."""
    return pickle.dumps(program, protocol=5)


def from_bytes(data: bytes) -> Program:
    """The program in a file's contents."""
    program = _Reader(io.BytesIO(data)).load()
    assert isinstance(program, Program)
    return program
