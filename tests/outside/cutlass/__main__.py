"""CUTLASS's kernels through nvcc and the emulator with all checks on, and the table of their verdicts.

    python -m tests.outside.cutlass FOLDER --nvcc PATH [--only NAME ...] [--schedules lazy:0,starve:2] [--write]

FOLDER has a checkout of github.com/NVIDIA/cutlass as cutlass/. What is built goes into FOLDER/cutlass-built, and what
is there of the same configuration is not built again. A program with a pretended device (pretended_device.hpp) makes
the launch that CUTLASS's host code would make, so no GPU is needed. With --write, the table goes into
docs/outside-suites.md behind the marker `<!-- outside CUTLASS -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.outside.table import PAGE, written
from tests.outside.texts import schedules_of
from warploom.errors import WarploomError
from warploom.runtime.launch_file import beside
from warploom.testing import check_entries

from .configurations import CONFIGURATIONS, Configuration
from .launch_description import described

HERE = Path(__file__).resolve().parent
FLAGS = (
    "-std=c++17", "-O1", "--expt-relaxed-constexpr", "-DNDEBUG",
    "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1", "-DCUTLASS_VERSIONS_GENERATED=0",
)  # fmt: skip
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
"""Kernels of a text; thrust, with which the tutorials fill their arrays, brings some of its own."""


@dataclass(frozen=True)
class Row:
    """One configuration's line of the table.

    Attributes:
        schedules: those that ran, as "lazy 0".
        verdict: a few words; rules: those of error level with their counts of findings.
        warnings: names of the other rules that fired.
    """

    configuration: Configuration
    schedules: tuple[str, ...]
    verdict: str
    rules: str = ""
    warnings: tuple[str, ...] = ()


def build(one: Configuration, checkout: Path, folder: Path, nvcc: str) -> Path:
    """The text of a configuration's kernel, with its launch description beside it.

    Raises RuntimeError with the compiler's first error, and ValueError as `described` does.
    """
    text, printed, header = folder / f"{one.name}.ptx", folder / f"{one.name}.json", folder / f"{one.name}.hpp"
    if not (printed.is_file() and header.is_file() and header.read_text() == one.header()):
        work = folder / one.name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / "configuration.hpp").write_text(one.header())
        include = [f"-I{each}" for each in (checkout / "include", checkout / "tools/util/include", HERE, work)]
        program = work / "program"
        flags = [*FLAGS, "-gencode", f"arch=compute_{one.arch}a,code=compute_{one.arch}a"]
        _run([nvcc, *flags, *include, "-keep", "-keep-dir", str(work), "-o", str(program), str(HERE / one.source)])
        made = _run([str(program)])
        next(work.glob("*.ptx")).replace(text)
        printed.write_text(made)
        shutil.rmtree(work)
        header.write_text(one.header())
    entries = [name for name in _ENTRY.findall(text.read_text()) if not name.startswith("_ZN3cub")]
    launch = json.loads(printed.read_text().splitlines()[-1])
    beside(text).write_text(described({"entry": entries[0]} | launch, one.expected))
    return text


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line]
        raise RuntimeError(said[0] if said else f"{Path(command[0]).name} ended with {done.returncode}")
    return done.stdout


def checked(one: Configuration, text: Path, schedules: list[tuple[str, int]]) -> Row:
    """A text under all schedules."""
    errors: Counter[str] = Counter()
    warnings: set[str] = set()
    ran = []
    for schedule, seed in schedules:
        try:
            found = check_entries(text, launch=beside(text), schedule=schedule, seed=seed)[0]
        except WarploomError as error:
            return Row(one, tuple(ran), f"stopped under {schedule} {seed}: {str(error).splitlines()[0]}")
        ran.append(f"{schedule} {seed}")
        errors.update(finding.rule for finding in found.errors)
        warnings.update(finding.rule for finding in found.findings if finding not in found.errors)
    rules = ", ".join(f"{rule} ({count})" for rule, count in sorted(errors.items()))
    verdict = "errors" if errors else "the expected values, no errors"
    return Row(one, tuple(ran), verdict, rules, tuple(sorted(warnings)))


def table(rows: list[Row]) -> str:
    """The table in Markdown."""
    good = sum(not row.rules and row.verdict.startswith("the expected") for row in rows)
    lines = [
        f"{len(rows)} configurations: {good} give the expected values without an error.", "",
        "| configuration | | schedules | verdict | rules of error level | warnings |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        warnings = ", ".join(f"`{name}`" for name in row.warnings) or "none"
        cells = [f"`{row.configuration.name}`", row.configuration.says(), ", ".join(row.schedules), row.verdict]
        cells += [row.rules or "none", warnings]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ")[:240] for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in CONFIGURATIONS], metavar="NAME")
    parser.add_argument("--schedules", type=schedules_of, default=schedules_of("lazy:0,starve:2"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    checkout, nvcc = given.folder / "cutlass", shutil.which(given.nvcc)
    if not (checkout / "include" / "cutlass").is_dir():
        print(f"nothing was checked: {checkout} is no checkout of github.com/NVIDIA/cutlass")
        return
    if nvcc is None:
        print(f"nothing was checked: there is no compiler {given.nvcc}; --nvcc names one")
        return
    rows = []
    for one in CONFIGURATIONS:
        if given.only and one.name not in given.only:
            continue
        try:
            row = checked(one, build(one, checkout, given.folder / "cutlass-built", nvcc), given.schedules)
        except (RuntimeError, ValueError) as error:
            row = Row(one, (), f"not built: {error}")
        print(f"{one.name}: {row.verdict}; {row.rules or 'no rule of error level'}", flush=True)
        rows.append(row)
    print(table(rows))
    if given.write:
        PAGE.write_text(written(PAGE.read_text(), "CUTLASS", table(rows).rstrip("\n") + "\n"))


if __name__ == "__main__":
    main()
