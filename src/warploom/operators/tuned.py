"""The tables of timed choices: those kept on disk for this GPU, driver and version, and those that ship."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import __version__
from .families import FAMILIES
from .spec.gpu import Gpu
from .spec.problem import Problem

KINDS: dict[str, type] = {"large": FAMILIES[1].config, "decode": FAMILIES[0].config}
SHIPPED = Path(__file__).parent / "tables"


def key_of(problem: Problem) -> str:
    """A problem as the tables name it: sizes, types, layout and what is fused."""
    promise = ", constant weights" if problem.constant_weights else ""
    return problem.describe() + ("" if problem.accumulate == "default" else f", {problem.accumulate}") + promise


def to_data(config: Any) -> dict[str, Any]:
    """A configuration as JSON has it."""
    (kind,) = (name for name, cls in KINDS.items() if type(config) is cls)
    return {"kind": kind, **asdict(config)}


def from_data(data: Any) -> Any:
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
        self._read: dict[Path, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def path(self, gpu: Gpu, folder: str) -> Path:
        """Where choices for a GPU are kept: they hold for one driver and one version of the package."""
        return Path(folder) / "tuned" / f"{gpu.slug}-driver-{gpu.driver}-warploom-{__version__}.json"

    def tuned(self, gpu: Gpu, folder: str) -> dict[str, Any]:
        """Choices timed on this machine."""
        return self._table(self.path(gpu, folder)) if folder else {}

    def shipped(self, gpu: Gpu) -> dict[str, Any]:
        """Choices that come with the package."""
        return self._table(SHIPPED / f"{gpu.slug}.json")

    def _table(self, path: Path) -> dict[str, Any]:
        with self._lock:
            if path not in self._read:
                self._read[path] = _load(path)
            return self._read[path]

    def keep(self, gpu: Gpu, folder: str, problem: Problem, config: Any, timed: dict[str, Any]) -> Path:
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


def _load(path: Path) -> dict[str, Any]:
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
