"""Whether attention's kernels can be built in every pair of options: each as the operator chooses it, through ptxas.

    python -m benchmarks.attention_space [--only forward,backward,decode] [--most N] [--resume FILE]

The options make thousands of combinations. `covering.cover` chooses a few of each kind of call that hold every pair of
options; each is called with its launches recorded instead of run, on the emulated H200, so the choices are the
operator's own. A row is one call: the most registers of its kernels, the most bytes of them in memory, and what is
`wrong`: ptxas refuses it, it keeps more in memory than `spills.SPILLED_BYTES` (nothing, unless its program allows
spills), its MMAs are serialised, or no CTA fits on an SM. A call that is refused has the error's code instead. No GPU
is used. `tests/operators/test_attention_space.py` repeats a sample, and emulates smaller members.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.attention_space_calls import CALLS, FAMILIES, name_of
from benchmarks.covering import Member, combined, cover
from warploom.driver.compile import build
from warploom.errors import WarploomError
from warploom.lab import evidence
from warploom.operators.attention import calls, named_launch
from warploom.operators.attention.spills import SPILLED_BYTES
from warploom.runtime.program import Program
from warploom.settings import config

OUT = Path(__file__).resolve().parent / "results/emulator/attention-space.json"
LONG = {"limit_s": 1e12}
"""Nothing is emulated, so nothing takes too long."""
Row = dict[str, Any]


@contextmanager
def recorded() -> Iterator[list[Program]]:
    """Keep the programs of all launches of attention, which do not run."""
    programs: list[Program] = []

    def launch(program: Program, *_: Any, **__: Any) -> None:
        programs.append(program)

    with mock.patch.object(calls, "launch", launch), mock.patch.object(named_launch, "launch", launch):
        yield programs


def programs_of(family: str, member: Member) -> list[Program]:
    """The kernels of a member's call. Raises what the call raises."""
    with config.override(emulator=LONG), recorded() as programs:
        CALLS[family](member)
    return programs


def verdict(program: Program) -> Row:
    """What ptxas says about a kernel; `wrong` if a user would be refused, or warned."""
    try:
        built = build(program.text, arch="sm_90a", name=program.name, entry=program.entry, allow_spills=True)
    except WarploomError as error:
        return {"wrong": f"{program.entry}: {error.code}"}
    used = built.resources[program.entry]
    threads, spilled = program.block[0], used.spill_stores
    allowed = SPILLED_BYTES if program.allow_spills else 0
    row: Row = {"registers": used.registers, "spilled": spilled}
    if spilled > allowed or (used.spill_loads and not program.allow_spills):
        return row | {"wrong": f"{program.entry} keeps {spilled} bytes of registers in memory, of {allowed}"}
    if used.serialisation_notes:
        return row | {"wrong": f"MMAs of {program.entry} are serialised"}
    if not used.occupancy(threads, program.dynamic_smem):
        return row | {"wrong": f"no CTA of {program.entry} fits: {threads} threads, {program.dynamic_smem} bytes"}
    return row


def judged(family: str, member: Member) -> Row:
    """The row of a member: the most registers, and bytes of them in memory, of its kernels."""
    row: Row = {"case": f"{family}: {name_of(member)}"}
    try:
        found = [verdict(program) for program in programs_of(family, member)]
    except WarploomError as error:
        return row | {"refused": error.code}
    row |= {name: max(each.get(name, 0) for each in found) for name in ("registers", "spilled")}
    wrong = [each["wrong"] for each in found if "wrong" in each]
    return row | ({"wrong": "; ".join(wrong)} if wrong else {})


def members(family: str) -> list[Member]:
    """The members of a kind of call that are assembled."""
    space = FAMILIES[family]
    return cover(space.axes, space.excluded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FAMILIES), help="kinds of calls")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", type=Path, help="rows so far, one a line: their members are not repeated")
    parser.add_argument("--most", type=int, help="members of each kind, the first of which hold the most pairs")
    options = parser.parse_args()
    evidence.check_place(options.out)
    kept: dict[str, Row] = {}
    if options.resume is not None and options.resume.exists():
        kept = {row["case"]: row for row in map(json.loads, options.resume.read_text().splitlines())}
    found: list[Row] = []
    head = evidence.header("attention-space", gpu="emulator")
    for family in options.only.split(","):
        all_ = members(family)
        for member in all_[: options.most]:
            row = kept.get(f"{family}: {name_of(member)}") or judged(family, member)
            found.append(row)
            if options.resume is not None and row["case"] not in kept:
                with options.resume.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
        held = len(combined(all_[: options.most])) / len(combined(all_))
        head[family] = {"members": len(all_[: options.most]), "of": len(all_), "pairs held": round(held, 3)}
    evidence.write(options.out, head, found)


if __name__ == "__main__":
    main()
