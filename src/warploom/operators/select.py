"""Which kernel for which problem: what somebody pinned, what was timed on this GPU, what ships, what the model says.

    pinned   config= of the call
    tuned    timed here before (`warploom tune`, or config.autotune): kept on disk per GPU, driver and package version
    shipped  timed by the package's authors: operators/tables/<gpu>.json
    model    arithmetic: `candidates` ranked by `model`

A choice is remembered in the process; asking again is one look-up.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import ArgumentError
from ..kernels.hopper.decode_config import DecodeConfig
from ..kernels.hopper.description import Config
from ..settings import config as settings
from .candidates import AnyConfig, candidates, check, fits
from .model import Estimate, estimate, ranked
from .spec.gpu import EMULATED, Gpu, check_gpu
from .spec.problem import TMA_BYTES, Problem

KINDS: dict[str, type] = {"large": Config, "decode": DecodeConfig}
SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Choice:
    """A configuration, and why.

    Attributes:
        config: of the kernel.
        source: "pinned", "tuned", "shipped" or "model".
        estimate: what the model says of it.
    """

    config: AnyConfig
    source: str
    estimate: Estimate


def key_of(problem: Problem) -> str:
    """A problem as the tables name it: sizes, types, layout and what is fused."""
    promise = ", constant weights" if problem.constant_weights else ""
    return problem.describe() + ("" if problem.accumulate == "default" else f", {problem.accumulate}") + promise


def choose(problem: Problem, gpu: Gpu = EMULATED, pinned: Any = None) -> Choice:
    """The configuration for a problem.

    `pinned`: a configuration, or its name. Raises ArgumentError or ArgumentTypeError where it does not fit the problem,
    ArgumentError where nothing does, or where the GPU is not one of sm_90.
    """
    check_gpu(gpu, "matmul")
    if pinned is not None:
        if isinstance(pinned, str):
            from ..kernels.hopper.names import any_config

            pinned = any_config(pinned)
        check(pinned, problem)
        return Choice(pinned, "pinned", estimate(pinned, problem, gpu))
    folder = settings.cache_dir
    return _chosen(replace(problem, batch=()), gpu, str(folder) if folder else "", tables().version)


@lru_cache(maxsize=4096)
def _chosen(problem: Problem, gpu: Gpu, folder: str, version: int) -> Choice:
    known, keys = tables(), [key_of(problem)]
    if problem.constant_weights:
        keys.append(key_of(replace(problem, constant_weights=False)))
    for source, table in (("tuned", known.tuned(gpu, folder)), ("shipped", known.shipped(gpu))):
        for found in map(table.get, keys):
            if found is not None and fits(found, problem.product, problem.fusion):
                return Choice(kept(found, problem), source, estimate(found, problem, gpu))
    order = ranking(problem, gpu)
    return Choice(kept(order[0][0], problem), "model", order[0][1])


def promised(config: AnyConfig) -> AnyConfig:
    """The configuration with the promise of constant weights, where it is of use."""
    useful = config.pdl and (isinstance(config, DecodeConfig) or config.ctas == 1)
    return replace(config, constant_weights=useful)


def kept(config: AnyConfig, problem: Problem) -> AnyConfig:
    """The configuration with the promise that a problem gives, if it gives one."""
    return promised(config) if problem.constant_weights and not problem.promoted else config


def ranking(problem: Problem, gpu: Gpu = EMULATED) -> list[tuple[AnyConfig, Estimate]]:
    """All candidates with the model's estimates, the fastest first. Raises ArgumentError where there is none."""
    check_gpu(gpu, "matmul")
    found = candidates(problem, gpu)
    if not found:
        raise ArgumentError(
            "no kernel of the package computes this", expected="see docs/matmul.md for what there is",
            got=problem.describe(),
        )  # fmt: skip
    return ranked(found, problem, gpu)


# -- tables --------------------------------------------------------------------------------------------------------


def to_data(config: AnyConfig) -> dict[str, Any]:
    """A configuration as JSON has it."""
    (kind,) = (name for name, cls in KINDS.items() if type(config) is cls)
    return {"kind": kind, **asdict(config)}


def from_data(data: Any) -> AnyConfig | None:
    """The configuration in JSON data, or None where it is not one of this version's."""
    if not isinstance(data, dict) or data.get("kind") not in KINDS:
        return None
    cls = KINDS[data["kind"]]
    values = {name: value for name, value in data.items() if name != "kind"}
    if set(values) != {field.name for field in fields(cls)}:
        return None
    return cls(**values)


class Tables:
    """The tables of timed choices, read when first asked for."""

    def __init__(self) -> None:
        self.version = 0
        self._read: dict[Path, dict[str, AnyConfig]] = {}
        self._lock = threading.Lock()

    def path(self, gpu: Gpu, folder: str) -> Path:
        """Where choices for a GPU are kept: they hold for one driver and one version of the package."""
        return Path(folder) / "tuned" / f"{gpu.slug}-driver-{gpu.driver}-warploom-{__version__}.json"

    def tuned(self, gpu: Gpu, folder: str) -> dict[str, AnyConfig]:
        """Choices timed on this machine."""
        return self._table(self.path(gpu, folder)) if folder else {}

    def shipped(self, gpu: Gpu) -> dict[str, AnyConfig]:
        """Choices that come with the package."""
        return self._table(SHIPPED / f"{gpu.slug}.json")

    def _table(self, path: Path) -> dict[str, AnyConfig]:
        with self._lock:
            if path not in self._read:
                self._read[path] = _load(path)
            return self._read[path]

    def keep(self, gpu: Gpu, folder: str, problem: Problem, config: AnyConfig, timed: dict[str, Any]) -> Path:
        """Remember the fastest configuration of a problem, on disk and here. The file is replaced as a whole."""
        path = self.path(gpu, folder)
        rows = _rows(path)
        rows[key_of(problem)] = {"config": to_data(config), **timed}
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".tuned-", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"gpu": asdict(gpu), "warploom": __version__, "choices": rows}, file, indent=1)
        os.replace(temporary, path)
        with self._lock:
            self._read.pop(path, None)
            self.version += 1
        return path


def _rows(path: Path) -> dict[str, Any]:
    try:
        rows = json.loads(path.read_text())["choices"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return rows if isinstance(rows, dict) else {}


def _load(path: Path) -> dict[str, AnyConfig]:
    """A table's configurations; rows that this version cannot read are left out."""
    found = {}
    for key, row in _rows(path).items():
        config = from_data(row.get("config")) if isinstance(row, dict) else None
        if config is not None:
            found[key] = config
    return found


@lru_cache(maxsize=1)
def tables() -> Tables:
    """The process's tables."""
    return Tables()


def kernel_of(problem: Problem, config: AnyConfig) -> Any:
    """The kernel of a configuration, built once. Its module is loaded with the first one.

    Where rows of D are no whole 16-byte pieces, it is one that writes behind them: `run` gives it rows of its own.
    """
    from ..kernels.hopper import block_scaled, decode, gemm

    more = {"overhang": True} if problem.n * problem.product.out.bytes % TMA_BYTES else {}
    if problem.promoted:
        majors = {"scale_a_major": problem.scale_a_major, "scale_b_major": problem.scale_b_major}
        return block_scaled.build(problem.product, config, **more, **majors)
    if isinstance(config, DecodeConfig):
        return decode.build(problem.product, config, problem.fusion)
    return gemm.build(problem.product, config, problem.fusion, **more)
