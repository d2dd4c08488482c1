"""What `warploom tune --fit` has fitted for a GPU: how far off the model's times are for each kernel family.

The model was fitted on one card (`families.correction`). On another card a whole family may be slower than modelled,
or only for few rows, or for deep products. So each family has three numbers:

    expected time = the model's x exp(w0 + w1 log2(rows / 128) + w2 log2(bytes of a row of A / 8192))

The cache keeps them, with the times they rest on, by GPU, driver and version of the package.
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
"""The weights of each family, by its name."""


def numbers(problem: Problem) -> tuple[float, ...]:
    """The factors of a family's weights."""
    return 1.0, math.log2(problem.m / 128), math.log2(problem.k * problem.product.a.bytes / 8192)


def factor(config: Any, problem: Problem, weights: Weights) -> float:
    """The factor on the model's time of a configuration."""
    of_family = weights.get(family_of(config, problem).name) if weights else None
    if of_family is None:
        return 1.0
    return math.exp(sum(w * x for w, x in zip(of_family, numbers(problem), strict=True)))


class FittedModels:
    """The times and fits of each GPU, read when first needed."""

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
        """The weights of the fit; empty if there is none."""
        found: Weights = self._content(gpu)["weights"]
        return found

    def keep(self, gpu: Gpu, times: Mapping[str, Any], weights: Weights | None = None) -> Path | None:
        """Add times to those that other processes have stored; `weights` replace the fit. Returns the file; a full or
        read-only disk causes a CacheWarning instead."""
        path, here = self._path(gpu), self._content(gpu)
        here["times"].update(times)
        if weights is not None:
            here["weights"] = weights
        tables().version += 1  # earlier choices may change
        if path is None:
            return None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.parent):
                there = _load(path)
                here["times"] = {**there["times"], **here["times"]}
                replace_file(path, {"gpu": asdict(gpu), "warploom": __version__, **here})
        except OSError as error:
            warnings.warn(f"the fit could not be written to {path}: {error}; only this process uses it", CacheWarning,
                          stacklevel=3)  # fmt: skip
            return None
        return path


def _load(path: Path | None) -> dict[str, Any]:
    """A file's content; empty if there is none or, with a CacheWarning, if it cannot be read."""
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
        warnings.warn(f"the fit in {path} cannot be read ({type(error).__name__}: {error}), and is ignored; "
                      "`warploom tune --fit` recreates it", CacheWarning, stacklevel=3)  # fmt: skip
    return {"times": {}, "weights": {}}


def _numbers(row: Any) -> dict[str, float]:
    found = {str(text): float(us) for text, us in row.items()}
    if not all(math.isfinite(us) and us > 0 for us in found.values()):
        raise ValueError("a time is not a positive number")
    return found


@lru_cache(maxsize=1)
def fits() -> FittedModels:
    """The process's fits."""
    return FittedModels()


def applied(order: list[tuple[Any, Estimate]], problem: Problem, gpu: Gpu) -> list[tuple[Any, Estimate]]:
    """The model's order, corrected by the fit for this GPU, if there is one."""
    weights = fits().weights(gpu)
    if not weights:
        return order
    found = [(config, guess.corrected_to(guess.time_us * factor(config, problem, weights))) for config, guess in order]
    return sorted(found, key=lambda row: row[1].time_us)
