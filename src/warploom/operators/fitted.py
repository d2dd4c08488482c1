"""What `warploom tune --fit` has found for a GPU: by how much the model's times of each kernel family are off there.

The model's shape was fitted on one card (`families.correction`). On another one a whole family may be slower than it
says, or for few rows, or for deep products: so each family has three numbers,

    expected time = the model's x exp(w0 + w1 log2(rows / 128) + w2 log2(bytes of a row of A / 8192))

They are kept in the cache with the times that they rest on, for a GPU, its driver and this version of the package.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..driver.folder_lock import locked
from ..errors import ArgumentError, CacheWarning
from ..settings import config as settings
from ..version import __version__
from .families import Estimate, family_of, from_text
from .spec.gpu import Gpu
from .spec.problem import Problem
from .tuned import replace_file, tables

NUMBERS = 3
Weights = dict[str, tuple[float, ...]]
"""Of each family, by its name."""


def numbers(problem: Problem) -> tuple[float, ...]:
    """What a family's weights are multiplied by."""
    return 1.0, math.log2(problem.m / 128), math.log2(problem.k * problem.product.a.bytes / 8192)


def factor(config: Any, problem: Problem, weights: Weights) -> float:
    """By which the model's time of a configuration is multiplied."""
    of_family = weights.get(family_of(config, problem).name) if weights else None
    if of_family is None:
        return 1.0
    return math.exp(sum(w * x for w, x in zip(of_family, numbers(problem), strict=True)))


class Fits:
    """What was timed and fitted for each GPU, read when first asked for."""

    def __init__(self) -> None:
        self._read: dict[str, dict[str, Any]] = {}

    def _path(self, gpu: Gpu) -> Path | None:
        folder = settings.cache_dir
        return None if folder is None else tables().path(gpu, str(folder)).with_suffix(".fit.json")

    def _content(self, gpu: Gpu) -> dict[str, Any]:
        path = self._path(gpu)
        key = str(path or gpu)
        if key not in self._read:
            self._read[key] = _load(path)
        return self._read[key]

    def times(self, gpu: Gpu) -> dict[str, dict[str, float]]:
        """Microseconds by product and configuration."""
        found: dict[str, dict[str, float]] = self._content(gpu)["times"]
        return found

    def weights(self, gpu: Gpu) -> Weights:
        """Of the fit; none where there is none."""
        found: Weights = self._content(gpu)["weights"]
        return found

    def keep(self, gpu: Gpu, times: Mapping[str, Any], weights: Weights | None = None) -> Path | None:
        """Add what was timed, to what another process has kept meanwhile; `weights` replace the fit. The file, unless a
        full or read-only disk, which is a CacheWarning, has not taken it."""
        path, here = self._path(gpu), self._content(gpu)
        here["times"].update(times)
        if weights is not None:
            here["weights"] = weights
        tables().version += 1  # what was chosen before may be chosen otherwise now
        if path is None:
            return None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.parent):
                there = _load(path)
                here["times"] = {**there["times"], **here["times"]}
                replace_file(path, {"gpu": asdict(gpu), "warploom": __version__, **here})
        except OSError as error:
            warnings.warn(f"the fit could not be written to {path}: {error}; it holds in this process", CacheWarning,
                          stacklevel=3)  # fmt: skip
            return None
        return path


def _load(path: Path | None) -> dict[str, Any]:
    """A file's content; nothing where there is none, or, with a CacheWarning, where it cannot be read."""
    try:
        found = json.loads(path.read_text()) if path is not None else {}
        times = {str(key): _numbers(row) for key, row in found.get("times", {}).items()}
        for text in {text for row in times.values() for text in row}:
            from_text(text)
        weights = {str(name): tuple(map(float, w)) for name, w in found.get("weights", {}).items()}
        if any(len(w) != NUMBERS or not all(map(math.isfinite, w)) for w in weights.values()):
            raise ValueError("its weights are not three numbers of each family")
        return {"times": times, "weights": weights}
    except FileNotFoundError:
        pass
    except (ArgumentError, OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        warnings.warn(f"the fit in {path} cannot be read ({type(error).__name__}: {error}), and is done without; "
                      "`warploom tune --fit` makes it anew", CacheWarning, stacklevel=3)  # fmt: skip
    return {"times": {}, "weights": {}}


def _numbers(row: Any) -> dict[str, float]:
    found = {str(text): float(us) for text, us in row.items()}
    if not all(math.isfinite(us) and us > 0 for us in found.values()):
        raise ValueError("a time is not a positive number")
    return found


@lru_cache(maxsize=1)
def fits() -> Fits:
    """The process's fits."""
    return Fits()


def applied(order: list[tuple[Any, Estimate]], problem: Problem, gpu: Gpu) -> list[tuple[Any, Estimate]]:
    """The model's order, by what was fitted on this GPU, if anything was."""
    weights = fits().weights(gpu)
    if not weights:
        return order
    found = [(config, guess.corrected_to(guess.time_us * factor(config, problem, weights))) for config, guess in order]
    return sorted(found, key=lambda row: row[1].time_us)
