"""List the measured rows that still describe what the package builds.

    python -m benchmarks.status [--check] [--json] [FILE ...]      --check: print stale rows only

Each row carries the SHA-256 of the PTX that ran and the recipe of its kernel (`warploom.lab.recipe`). A row is stale if
its recipe now builds no text, or a different text that is not known to give the same machine code
(results/equivalent_texts.json, written by `benchmarks.machine_code`). Rows of other providers (cuBLAS, Triton) have no
text and are not judged.
Exit code 0: nothing is stale; 1: something is; 2: no evidence file was found or one cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
EQUIVALENT = RESULTS / "equivalent_texts.json"
"""Pairs of hashes: the measured text, and a later one that ptxas compiles to the same cubin."""
sys.path[:0] = [str(ROOT / "src")]  # this checkout, whatever is installed

from warploom.errors import ArgumentError, WarploomError  # noqa: E402
from warploom.kernels.ladder import RUNGS  # noqa: E402
from warploom.lab import evidence  # noqa: E402
from warploom.lab.recipe import rebuild  # noqa: E402
from warploom.plural import counted  # noqa: E402

OLDER_BUILDERS = {
    "walkthrough": ("warploom.kernels.walkthrough:build_gemm_m64n64", "mnk"),
}
"""Builder and arguments (columns of the row) of kernels measured before rows carried recipes."""


@dataclass(frozen=True)
class Judged:
    """One row with a text.

    Attributes:
        file: the evidence file.
        row: the row.
        reason: why the row is stale; "" if it is not.
        known: False if the row has no recipe, so that it can be called neither fresh nor stale.
    """

    file: Path
    row: Mapping[str, Any]
    reason: str
    known: bool = True

    @property
    def stale(self) -> bool:
        return bool(self.reason)

    def title(self) -> str:
        """Kernel, configuration, sizes, type and protocol of the row."""
        row = self.row
        sizes = "x".join(str(row[name]) for name in "mnk" if name in row)
        words = (row.get("kernel", "?"), row.get("config", ""), sizes, row.get("dtype", ""))
        return " ".join(map(str, words)) + f", {row.get('protocol', '')}"


def judge(row: Mapping[str, Any]) -> tuple[str, bool]:
    """(why a row is stale or "", whether that is known). A row without a text is never stale."""
    if "ptx_sha256" not in row:
        return "", True
    recipe = recipe_of(row)
    if recipe is None:
        return "", False
    now, failure = _built(dumps(recipe, sort_keys=True))
    measured = row["ptx_sha256"]
    same = now == measured or (measured, now) in equivalent()
    return failure or ("" if same else "the kernel's text has changed since"), True


@lru_cache(maxsize=1)
def equivalent() -> frozenset[tuple[str, str]]:
    """(hash of the measured text, hash of a text with the same machine code)."""
    if not EQUIVALENT.exists():
        return frozenset()
    return frozenset((pair["measured"], pair["now"]) for pair in loads(EQUIVALENT.read_text())["texts"])


def recipe_of(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The recipe of the row's kernel; None if unknown."""
    return row.get("build") or _older_recipe(row)


def _older_recipe(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The recipe of a kernel known by its name."""
    kernel = row.get("kernel")
    for rung in RUNGS:
        if rung.module == kernel:
            return {"builder": f"{rung.build.__module__}:build", "arguments": []}
    if kernel in OLDER_BUILDERS:
        builder, columns = OLDER_BUILDERS[kernel]
        return {"builder": builder, "arguments": [row[name] for name in columns]}
    return None


@lru_cache(maxsize=1024)
def _built(recipe: str) -> tuple[str, str]:
    """(hash of the text that a recipe now builds or "", why it builds none or "")."""
    try:
        return evidence.ptx_sha256(rebuild(loads(recipe)).ptx()), ""
    except WarploomError as error:
        return "", error.what


def survey(files: Iterable[Path]) -> list[Judged]:
    """All rows with a text in the evidence files. Raises ArgumentError for a file that is not evidence."""
    return [
        Judged(path, row, *judge(row))
        for path in files
        for row in evidence.read(path)["rows"]
        if isinstance(row, Mapping) and "ptx_sha256" in row
    ]


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


def main(words: Sequence[str]) -> int:
    """Print the report; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.status", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", metavar="FILE", type=Path, nargs="*", help="default: all below benchmarks/results")
    parser.add_argument("--check", action="store_true", help="print stale rows only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args(words)
    try:
        files = asked.files or evidence_files(RESULTS)
        rows = survey(files)
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return 2
    if asked.json:
        shown = [{"file": str(row.file), "row": row.title(), "stale": row.stale, "reason": row.reason,
                  "known": row.known} for row in rows]  # fmt: skip
        print(dumps(shown, indent=1))
    else:
        _print(files, rows, asked.check)
    return int(any(row.stale for row in rows))


def _print(files: Sequence[Path], rows: Sequence[Judged], only_stale: bool) -> None:
    """The counts of each file and its stale rows."""
    for path in files:
        own = [row for row in rows if row.file == path]
        stale, unknown = [row for row in own if row.stale], sum(not row.known for row in own)
        if stale or not only_stale:
            more = f", {unknown} without a recipe" if unknown else ""
            print(f"  {path}  {counted(len(own), 'row')} with a text, {len(stale)} stale{more}")
        for row in stale:
            print(f"    {row.title()}: {row.reason}")
    if not only_stale:
        stale_rows = any(row.stale for row in rows)
        print("measure the stale rows again, or mark them where they are shown" if stale_rows else "nothing is stale")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
