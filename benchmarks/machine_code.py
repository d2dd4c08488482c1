"""Prove that a kernel whose text has changed since it was measured still compiles to the same machine code.

    python -m benchmarks.machine_code OLD_CHECKOUT

Builds the kernel of every stale row twice: in OLD_CHECKOUT, a checkout whose text has the row's hash, and here. ptxas
assembles both texts without `.file`, `.loc` and comments. If the cubins are byte-identical, both hashes go into
results/equivalent_texts.json, and `benchmarks.status` treats the row as fresh. Rows that differ are named: measure
those again. Exit code 0: every stale row has the same machine code; 1: some do not.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from json import dumps, loads
from pathlib import Path

from benchmarks.status import EQUIVALENT, RESULTS, evidence_files, recipe_of, survey
from warploom.driver import compile as compiler
from warploom.lab import evidence
from warploom.lab.recipe import rebuild
from warploom.settings import config

_BUILD = """
import json, sys
from warploom.lab.recipe import rebuild
json.dump([rebuild(recipe).ptx() for recipe in json.load(sys.stdin)], sys.stdout)
"""


def texts_in(checkout: Path, recipes: Sequence[Mapping[str, object]]) -> list[str]:
    """The texts that another checkout builds from recipes."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD], input=dumps(recipes), env={"PYTHONPATH": str(checkout / "src")}, cwd=checkout,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return list(loads(done.stdout))


def cubin(text: str) -> tuple[str, str]:
    """SHA-256 of the machine code of a text, and the assembler."""
    with config.override(line_info=False):
        built = compiler.build(evidence.bare(text), allow_spills=True)
    return hashlib.sha256(built.cubin).hexdigest(), built.compiler


def main(words: list[str]) -> int:
    """Compare, write the file, print the differences; returns the exit code."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    known = loads(EQUIVALENT.read_text())["texts"] if EQUIVALENT.exists() else []
    found = {(each["measured"], each["now"]): each for each in known}
    stale = {row.row["ptx_sha256"]: row for row in survey(evidence_files(RESULTS)) if row.stale}
    recipes = [recipe_of(judged.row) or {} for judged in stale.values()]
    olds, differ = texts_in(Path(words[0]).resolve(), recipes), []
    for (measured, judged), recipe, old in zip(stale.items(), recipes, olds, strict=True):
        new = rebuild(recipe).ptx()
        if evidence.ptx_sha256(old) != measured:
            differ.append(f"{judged.title()}: the other checkout builds another text too")
            continue
        (before, compiled_by), (after, _) = cubin(old), cubin(new)
        if before != after:
            differ.append(f"{judged.title()}: other machine code")
            continue
        pair = {"measured": measured, "now": evidence.ptx_sha256(new), "cubin_sha256": after, "compiler": compiled_by}
        found[measured, pair["now"]] = pair
    # what was measured keeps its newest text only
    newest = {each["measured"]: each for each in found.values()}
    texts = sorted(newest.values(), key=lambda each: each["measured"])
    EQUIVALENT.write_text(dumps({"texts": texts}, indent=1) + "\n")
    print(f"{len(stale) - len(differ)} of {len(stale)} changed texts are the same machine code: {EQUIVALENT.name}")
    for line in differ:
        print(f"  {line}")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
