"""Run the PTX texts of a folder with their launch descriptions and all checks, and make the table of verdicts.

    python -m tests.outside.texts FOLDER [--schedules lazy:0,starve:2] [--write]

Compile kernels of any project into FOLDER and describe their launches in NAME.launch.toml next to each NAME.ptx, with
the expected results in [[expect]]. With --write, the table goes into docs/outside-suites.md, to `<!-- outside texts
-->`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.outside.table import PAGE, written
from warploom.errors import WarploomError
from warploom.runtime import launch_file
from warploom.testing import check_text

Schedules = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Verdict:
    """What became of one text. `compared`: whether its description says what it must compute."""

    name: str
    compared: bool
    schedules: Schedules
    says: str
    warnings: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.says == "no errors"

    def cells(self) -> list[str]:
        warnings = ", ".join(f"`{rule}`" for rule in self.warnings) or "none"
        ran = ", ".join(f"{name} {seed}" for name, seed in self.schedules)
        return [f"`{self.name}`", "yes" if self.compared else "no", ran, self.says, warnings]


def judged(description: Path, schedules: Schedules) -> Verdict:
    """One text under all schedules, or up to the first that stops."""
    name = description.name.removesuffix(".launch.toml")
    errors: Counter[str] = Counter()
    warnings: set[str] = set()
    ran: list[tuple[str, int]] = []
    compared = bool(launch_file.read(description).expect)
    for schedule, seed in schedules:
        try:
            found = check_text(launch_file.text_of(description), launch=description, schedule=schedule, seed=seed)
        except WarploomError as error:
            return Verdict(name, compared, ran, f"stopped under {schedule} {seed}: {error.what}")
        ran.append((schedule, seed))
        errors.update({finding.rule for finding in found.errors})
        warnings.update(finding.rule for finding in found.findings if finding not in found.errors)
    says = ", ".join(f"`{rule}` under {count}" for rule, count in sorted(errors.items())) or "no errors"
    return Verdict(name, compared, ran, says, tuple(sorted(warnings)))


def table(verdicts: Sequence[Verdict]) -> str:
    """The table in Markdown."""
    good = sum(verdict.good for verdict in verdicts)
    lines = [f"{len(verdicts)} texts: {good} without an error.", "",
             "| text | values compared | schedules | errors | other findings |", "|---|---|---|---|---|"]  # fmt: skip
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in verdict.cells()) + " |" for verdict in verdicts]
    return "\n".join(lines) + "\n"


def schedules_of(text: str) -> list[tuple[str, int]]:
    pairs = [each.partition(":") for each in text.split(",")]
    return [(name, int(seed or 0)) for name, _, seed in pairs]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--schedules", type=schedules_of, default=schedules_of("lazy:0,starve:2"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    verdicts = []
    for description in sorted(given.folder.glob("*.launch.toml")):
        verdicts.append(judged(description, given.schedules))
        print(f"{verdicts[-1].name}: {verdicts[-1].says}", flush=True)
    if given.write:
        PAGE.write_text(written(PAGE.read_text(), "texts", table(verdicts)))
    else:
        print(table(verdicts))


if __name__ == "__main__":
    main()
