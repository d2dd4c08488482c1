"""The suites of others through the verifier and the emulator, and the page with the verdicts.

    python -m tests.outside.table FOLDER [--write]

FOLDER holds checkouts: ZLUDA (github.com/vosen/ZLUDA), pyptx (github.com/patrick-toulme/pyptx), Dat3M
(github.com/hernanponcedeleon/Dat3M); those that are missing are left out. Nothing of them is kept here. With --write,
the tables go into docs/outside-suites.md behind the markers `<!-- outside NAME -->`.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

from . import corpora, litmus, zluda

PAGE = Path(__file__).resolve().parents[2] / "docs" / "outside-suites.md"


def of_zluda(folder: Path) -> str:
    found = [zluda.run(case) for case in zluda.cases(folder)]
    counts = Counter(verdict.result for verdict in found)
    rows = [f"| `{each.case}` | {each.result} | {_cell(each.why)} |" for each in found if each.result != "same"]
    return "\n".join([
        f"{len(found)} cases with values: {counts['same']} same, {counts['differs']} differ, "
        f"{counts['refused']} refused, {counts['stopped']} stopped.", "",
        "| case | | what is said |", "|---|---|---|", *rows,
    ])  # fmt: skip


def of_corpus(folder: Path) -> str:
    found = list(corpora.verdicts(folder))
    counts = Counter((bool(each.ours), bool(each.ptxas)) for each in found)
    words = {False: "accepts", True: "refuses"}
    table = [f"| {words[a]} | {words[b]} | {counts[a, b]} |" for a in (False, True) for b in (False, True)]
    rows = [f"- `{each.text}`: {_cell(each.ours or each.ptxas)}" for each in found if not each.agree]
    return "\n".join([f"{len(found)} texts.", "", "| verifier | ptxas | texts |", "|---|---|---|", *table, "", *rows])


def of_litmus(folder: Path) -> str:
    return litmus.table(folder)


SUITES = {"ZLUDA": of_zluda, "pyptx": of_corpus, "Dat3M": of_litmus}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:160]


def written(page: str, name: str, table: str) -> str:
    """The page with a table behind its marker, up to the next heading."""
    return re.sub(
        rf"(<!-- outside {name} -->\n).*?(?=\n## |\Z)", lambda found: f"{found[1]}\n{table}\n", page, flags=re.S
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for name, make in SUITES.items():
        if not (given.folder / name).is_dir():
            continue
        table = make(given.folder / name)
        print(f"{name}\n{table}\n")
        if given.write:
            PAGE.write_text(written(PAGE.read_text(), name, table))


if __name__ == "__main__":
    main()
