"""Evidence files: what was measured, on which machine, with which text. They are never edited by hand.

A file `benchmarks/results/<machine>/<suite>.json` has a header (machine, driver, versions, clock, power, command)
and rows. Each row of our own kernels carries `ptx_sha256`, over the text that ran without `.file`, `.loc` and
comments, so that a row can be marked stale if its kernel has changed since.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..driver import enqueue, toolchain
from ..errors import ArgumentError
from ..kernels.hopper.names import any_config
from ..lang import Kernel

_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*\.(?:loc|file)\b[^\n]*$", re.MULTILINE | re.DOTALL)
_PACKAGE = Path(__file__).resolve().parents[1]
_VERSIONED = ("torch", "triton", "jax", "cupy-cuda13x", "numpy", "ml_dtypes", "cuda-bindings")


def bare(text: str) -> str:
    """A PTX text without `.file`, `.loc`, comments and blank lines."""
    lines = (line.strip() for line in _NOISE.sub("", text).splitlines())
    return "\n".join(line for line in lines if line)


def ptx_sha256(text: str) -> str:
    """Hash of the `bare` text."""
    return hashlib.sha256(bare(text).encode()).hexdigest()


def facts(kernel: Kernel, how: dict[str, Any] | None = None) -> dict[str, Any]:
    """The entries of an evidence row about a kernel: its resources, its text's hash, how it is built."""
    used = kernel.resources()
    found: dict[str, Any] = {
        "registers": used.registers,
        "spill_bytes": used.spills,
        "shared_bytes": used.static_shared + kernel.program().dynamic_smem,
        "ptx_sha256": ptx_sha256(kernel.ptx()),
    }
    if how is not None:
        found["build"] = how
    return found


def source_sha256() -> str:
    """Hash of the package's own source, file names included."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of packages that a figure may depend on; packages that are not installed are omitted."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    ptxas = toolchain.ptxas()
    if ptxas is not None:
        found["ptxas"] = ptxas.version
    found["launches"] = "ctypes" if isinstance(enqueue.compiled(), enqueue.NotCompiledError) else "compiled"
    return found


def header(suite: str, *, gpu: str = "", driver: str = "", command: str = "") -> dict[str, object]:
    """The head of an evidence file."""
    return {
        "suite": suite,
        "gpu": gpu,
        "driver": driver,
        "source_sha256": source_sha256(),
        "date": time.strftime("%Y-%m-%d"),
        "command": command or " ".join([Path(sys.argv[0]).name, *map(_without_folders, sys.argv[1:])]),
        "versions": versions(),
    }


def _without_folders(argument: str) -> str:
    """An argument of the command; for an absolute path only the file name, since folders differ between machines."""
    return Path(argument).name if argument.startswith("/") else argument


def write(path: Path, head: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> None:
    """Write an evidence file atomically. Raises ArgumentError if it cannot be written; what was there stays."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _part_of(path)
        try:
            part.write_text(json.dumps({**head, "rows": list(rows)}, indent=1) + "\n")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    """The file that becomes `path` when it is complete. Each process has its own."""
    return path.with_suffix(f".{os.getpid()}.part")


PICTURES = (".png", ".svg", ".pdf")


def check_place(path: Path | None, picture: bool = False) -> None:
    """Raise ArgumentError, before anything is measured, if an evidence file or a chart cannot be written.

    None: nothing will be written.
    """
    if path is None:
        return
    if picture and path.suffix.lower() not in PICTURES:
        raise ArgumentError("unknown file type for a chart", expected=", ".join(PICTURES), got=str(path))
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _part_of(path)
        part.touch()
        part.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Wraps the writing of a file: an ArgumentError if the system refuses."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(
            f"the file cannot be written: {error.strerror or error}", got=str(path), code="file"
        ) from None


_SAME = ("m", "n", "k", "dtype", "out", "kind", "scales", "rows", "layout", "provider", "kernel", "config", "protocol",
         "launch", "data", "beside", "text", "case")  # fmt: skip
"""The fields that identify a row; a later row replaces an earlier one that agrees in all of them."""


def read(path: Path) -> dict[str, Any]:
    """An evidence file. Raises ArgumentError if it cannot be read or is not one."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the evidence file cannot be read: {error}", got=str(path), code="file") from None
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list) or "suite" not in found:
        raise ArgumentError("this is not an evidence file", expected='an object with "suite" and "rows"', got=str(path))
    return found


def identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What a row is about, independent of its values."""
    return tuple(json.dumps(_renamed(name, row.get(name))) for name in _SAME)


def _renamed(field: str, value: Any) -> Any:
    """A configuration, or its kernel, by its current name, whatever version wrote the row."""
    if field == "kernel" and value == "hopper_decode":
        return "hopper_small_m"
    if field == "config" and isinstance(value, str):
        with suppress(ArgumentError):
            return any_config(value).name()
    return value


def added(before: Mapping[str, Any], head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The evidence of an earlier file and a new run: `runs` has the headers, and `run` in each row its own index.

    A new row replaces an old one about the same thing. Raises ArgumentError if suite or GPU differ.
    """
    for name in ("suite", "gpu"):
        if before.get(name) != head.get(name):
            raise ArgumentError(f"the runs differ in {name}, so one file cannot hold both",
                                expected=before.get(name), got=head.get(name), hint="another --out")  # fmt: skip
    runs = list(before.get("runs") or [{key: value for key, value in before.items() if key != "rows"}])
    number, fresh = len(runs), {identity(row) for row in rows}
    kept = [{"run": 0, **row} for row in before["rows"] if identity(row) not in fresh]
    runs.append({key: value for key, value in head.items() if key != "runs"})
    return {**head, "runs": runs, "rows": [*kept, *({**row, "run": number} for row in rows)]}
