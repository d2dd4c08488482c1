"""Whether what was measured is still what the package makes: each row's text is built again and compared.

A row carries the hash of the text that ran and the recipe of its kernel (`lab.recipe`). It is stale where the recipe
now gives another text, or none. Rows of others (cuBLAS, Triton) have no text; they are as old as the run they were
measured in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from typing import Any

from ..errors import WarploomError
from . import evidence
from .recipe import rebuild


@dataclass(frozen=True)
class Judged:
    """One row with a text.

    Attributes:
        file: where it stands.
        row: the row.
        reason: why it is stale; "" where it is not.
        known: whether there is a recipe at all; a row without one can be neither fresh nor stale.
    """

    file: Path
    row: Mapping[str, Any]
    reason: str
    known: bool = True

    @property
    def stale(self) -> bool:
        return bool(self.reason)

    def title(self) -> str:
        """ "r19_stmatrix 8192x8192x8192 bf16, alone"."""
        row = self.row
        sizes = "x".join(str(row[name]) for name in "mnk" if name in row)
        return f"{row.get('kernel', '?')} {row.get('config', '')} {sizes} {row.get('dtype', '')}, " + str(
            row.get("protocol", "")
        )


def judge(row: Mapping[str, Any]) -> tuple[str, bool]:
    """(why a row is stale or "", whether that can be told). A row without a text is never stale."""
    if "ptx_sha256" not in row:
        return "", True
    recipe = _recipe(row)
    if recipe is None:
        return "", False
    now = _text_hash(dumps(recipe, sort_keys=True))
    if now.startswith("!"):
        return now[1:], True
    return ("" if now == row["ptx_sha256"] else "the kernel's text has changed since"), True


def _recipe(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The row's own recipe, or that of a kernel known by its name, for rows from before there were recipes."""
    if "build" in row:
        return row["build"]
    from ..kernels.ladder import RUNGS

    kernel = row.get("kernel")
    for rung in RUNGS:
        if rung.module == kernel:
            return {"builder": f"{rung.build.__module__}:build", "arguments": []}
    if kernel == "walkthrough":
        return {"builder": "warploom.kernels.walkthrough:build_gemm_m64n64", "arguments": [row[x] for x in "mnk"]}
    if kernel == "warp_specialised":
        return {"builder": "warploom.kernels.warp_specialised:build", "arguments": []}
    return None


@lru_cache(maxsize=1024)
def _text_hash(recipe: str) -> str:
    """Hash of the text a recipe gives now; "!" and the reason where it gives none."""
    try:
        return evidence.ptx_sha256(rebuild(loads(recipe)).ptx())
    except WarploomError as error:
        return f"!{error.what}"


def survey(files: Iterable[Path]) -> list[Judged]:
    """All rows with a text in some evidence files. Raises ArgumentError for a file that is none."""
    found = []
    for path in files:
        for row in evidence.read(path)["rows"]:
            if isinstance(row, Mapping) and "ptx_sha256" in row:
                reason, known = judge(row)
                found.append(Judged(path, row, reason, known))
    return found


def evidence_files(folder: Path) -> list[Path]:
    """The evidence files of GPUs below a results folder."""
    files = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            found = loads(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and found.get("gpu") and "rows" in found:
            files.append(path)
    return files
