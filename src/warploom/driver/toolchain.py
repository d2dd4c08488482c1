"""Finds NVIDIA's tools: ptxas, nvdisasm, cuobjdump.

Order for ptxas: `config.ptxas`, the `nvidia-cuda-nvcc` package, PATH, /usr/local/cuda. If a ptxas was named
explicitly but does not exist, it is an error; if there is none at all, the driver's own compiler is used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import ToolchainError
from ..settings import config

_RELEASE = re.compile(r"release \S+, V(\S+)")
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Tool:
    """A program and its version.

    Attributes:
        origin: where it was found: "config.ptxas", "nvidia-cuda-nvcc" (a package), "PATH", "/usr/local/cuda".
        version: "13.0.88".
    """

    name: str
    path: Path
    origin: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.origin})"

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it and return its exit status and output. Raises ToolchainError if it cannot be started or hangs."""
        return _run(self.path, *arguments, cwd=cwd, timeout_s=timeout_s)


def ptxas() -> Tool | None:
    """The assembler, or None if there is none. Raises ToolchainError for a `config.ptxas` that does not work."""
    chosen = config.ptxas
    if chosen is not None:
        if not Path(chosen).is_file():
            raise ToolchainError(
                "config.ptxas (WARPLOOM_PTXAS) names a file that does not exist",
                got=str(chosen),
                hint="unset it to use the ptxas of the nvidia-cuda-nvcc package",
            )
        return _tool("ptxas", str(chosen), "config.ptxas", _stamp(chosen))
    return find("ptxas")


def find(name: str) -> Tool | None:
    """A tool by name from the package, PATH or /usr/local/cuda; None if none can be run."""
    for path, origin in _places(name):
        if path.is_file() and os.access(path, os.X_OK):
            try:
                return _tool(name, str(path), origin, _stamp(path))
            except ToolchainError:
                continue
    return None


@contextmanager
def work_folder() -> Iterator[Path]:
    """A temporary folder for a tool's files. Raises ToolchainError if it cannot be written (a full disk, say)."""
    try:
        with tempfile.TemporaryDirectory(prefix="warploom-") as folder:
            yield Path(folder)
    except OSError as error:
        raise ToolchainError(
            f"a temporary file for a tool cannot be written: {error.strerror or error}", got=error.filename,
            hint="free some space, or set TMPDIR to another folder",
        ) from None  # fmt: skip


def _places(name: str) -> Iterator[tuple[Path, str]]:
    for root in _package_roots():
        for version in ("cu13", "cu12", "cuda_nvcc"):
            yield root / version / "bin" / name, f"nvidia-cuda-{'nvcc' if name == 'ptxas' else name}"
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path), "PATH"
    yield Path("/usr/local/cuda/bin") / name, "/usr/local/cuda"


@lru_cache(maxsize=1)
def _package_roots() -> tuple[Path, ...]:
    """Folders of the `nvidia` namespace package that pip installs NVIDIA's wheels into."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return ()
    return tuple(Path(place) for place in (spec.submodule_search_locations or ())) if spec else ()


def _stamp(path: Path) -> tuple[int, int]:
    """Changes when a tool is replaced, so that a version is queried once per file."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=32)
def _tool(name: str, path: str, origin: str, stamp: tuple[int, int]) -> Tool:
    result = _run(Path(path), "--version", timeout_s=_TIMEOUT_S)
    found = _RELEASE.search(result.stdout)
    if result.returncode or not found:
        raise ToolchainError(
            f"{path} does not report its version of {name}",
            expected='a line "release …, V…"',
            got=(result.stderr or result.stdout).strip()[:500] or f"exit status {result.returncode}",
        )
    return Tool(name, Path(path), origin, found[1])


def _run(
    path: Path, *arguments: str | Path, cwd: Path | None = None, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [str(path), *map(str, arguments)],
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"{path} cannot be started: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"{path} has not finished after {timeout_s} s") from None
