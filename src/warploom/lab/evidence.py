"""Evidence files: what was measured, on what, with which text. Nobody edits them by hand.

A file `benchmarks/results/<machine>/<suite>.json` has a header (machine, driver, versions, clock, power, command)
and rows. Each row of a kernel of ours carries `ptx_sha256`, over the text that ran without `.file`, `.loc` and
comments, so that a row whose kernel has changed since can be named stale.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..driver import toolchain

_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*\.(?:loc|file)\b[^\n]*$", re.MULTILINE | re.DOTALL)
_PACKAGE = Path(__file__).resolve().parents[1]
_VERSIONED = ("torch", "triton", "jax", "cupy-cuda13x", "numpy", "ml_dtypes", "cuda-bindings")


def ptx_sha256(text: str) -> str:
    """Hash of a PTX text without `.file`, `.loc`, comments and blank lines."""
    lines = (line.strip() for line in _NOISE.sub("", text).splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()


def source_sha256() -> str:
    """Hash of the package's own source, file names included."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of what a figure may depend on; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    ptxas = toolchain.ptxas()
    if ptxas is not None:
        found["ptxas"] = ptxas.version
    return found


def header(suite: str, *, gpu: str = "", driver: str = "", command: str = "") -> dict[str, object]:
    """The head of an evidence file."""
    return {
        "suite": suite,
        "gpu": gpu,
        "driver": driver,
        "source_sha256": source_sha256(),
        "date": time.strftime("%Y-%m-%d"),
        "command": command or " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": versions(),
    }


def write(path: Path, head: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> None:
    """Write an evidence file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({**head, "rows": list(rows)}, indent=1) + "\n")
    part.replace(path)
