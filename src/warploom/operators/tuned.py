"""The tables of timed choices: those kept on disk for this GPU, driver and version, and those that ship."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import warnings
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..driver.folder_lock import locked
from ..errors import ArgumentError, CacheWarning
from ..version import __version__
from .families import from_text, to_text
from .spec.gpu import Gpu
from .spec.problem import Problem

SHIPPED = Path(__file__).parent / "tables"


def key_of(problem: Problem) -> str:
    """A problem's key in the tables: sizes, types, layout and fused operations."""
    promise = ", constant weights" if problem.constant_weights else ""
    return problem.describe() + ("" if problem.accumulate == "default" else f", {problem.accumulate}") + promise


class Tables:
    """The tables of timed choices, read when first needed."""

    def __init__(self) -> None:
        self.version = 0
        self._read: dict[Path, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def path(self, gpu: Gpu, folder: str) -> Path:
        """The file of choices for a GPU; they hold for one driver and one version of the package."""
        return Path(folder) / "tuned" / f"{gpu.slug}-driver-{gpu.driver}-warploom-{__version__}.json"

    def tuned(self, gpu: Gpu, folder: str) -> dict[str, Any]:
        """Choices timed on this machine."""
        return self._table(self.path(gpu, folder)) if folder else {}

    def shipped(self, gpu: Gpu) -> dict[str, Any]:
        """Choices shipped with the package."""
        return self._table(SHIPPED / f"{gpu.slug}.json")

    def _table(self, path: Path) -> dict[str, Any]:
        with self._lock:
            if path not in self._read:
                self._read[path] = _load(path)
            return self._read[path]

    def keep(self, gpu: Gpu, folder: str, key: str, config: Any, timed: dict[str, Any]) -> Path | None:
        """Remember the fastest configuration for `key`, on disk and in this process. Returns the file, which is
        replaced atomically, by one process at a time. On a full or read-only disk the choice is remembered only in this
        process, with a CacheWarning.
        """
        path, row = self.path(gpu, folder), {"config": to_text(config), **timed}
        written: Path | None = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.parent):
                rows = {**_rows(path), key: row}
                replace_file(path, {"gpu": asdict(gpu), "warploom": __version__, "choices": rows})
        except OSError as error:
            written = None
            warnings.warn(f"the choice could not be written to {path}: {error}; only this process uses it",
            CacheWarning,
                          stacklevel=3)  # fmt: skip
        with self._lock:
            found = _load(path)
            self._read[path] = {**self._read.get(path, {}), **found, key: config}
            self.version += 1
        return written


def replace_file(path: Path, content: dict[str, Any]) -> None:
    """Write a file under another name and rename it; if that fails, nothing is left behind."""
    handle, temporary = tempfile.mkstemp(prefix=".tuned-", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=1)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _rows(path: Path) -> dict[str, Any]:
    """The choices in a file; empty if there is no file or, with a CacheWarning, if it holds no table."""
    try:
        rows = json.loads(path.read_text())["choices"]
        if isinstance(rows, dict):
            return rows
        reason = "its choices are not an object"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"the choices in {path} cannot be read ({reason}), and are ignored; the next choice that is kept there "
        "replaces them", CacheWarning, stacklevel=3,
    )  # fmt: skip
    return {}


def _load(path: Path) -> dict[str, Any]:
    """A table's configurations. Rows that this version cannot read are skipped, and a warning gives their number."""
    found, unread = {}, 0
    for key, row in _rows(path).items():
        try:
            found[key] = from_text(row["config"])
        except (ArgumentError, AttributeError, KeyError, TypeError):
            unread += 1
    if unread:
        warnings.warn(
            f"{path} has {unread} choices that this version cannot read, and ignores; `warploom tune` makes them anew",
            CacheWarning,
            stacklevel=2,
        )
    return found


@lru_cache(maxsize=1)
def tables() -> Tables:
    """The process's tables."""
    return Tables()
