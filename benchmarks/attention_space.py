"""Whether attention's kernels can be built in every pair of options: each as the operator chooses it, through ptxas.

    python -m benchmarks.attention_space [--only forward,backward,decode] [--out FILE] [--resume FILE]

The options make thousands of combinations. `covering.cover` chooses a few of each kind of call that hold every pair of
options; each is called with its launches recorded instead of run, on the emulated H200, so the choices are the
operator's own. A row is one kernel: its registers, the bytes of them that it keeps in memory, and what is wrong
(`wrong`): ptxas refuses it, it keeps more in memory than `spills.SPILLED_BYTES` (nothing, unless its program allows
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

from benchmarks.attention_space_calls import CALLS, FAMILIES, Member, name_of
from benchmarks.covering import cover
from warploom.driver.compile import build
from warploom.errors import WarploomError
from warploom.lab import evidence
from warploom.lab.evidence import ptx_sha256
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
        return {"kernel": program.entry, "wrong": f"{error.code}: {str(error)[:200]}"}
    used = built.resources[program.entry]
    threads = program.block[0]
    spilled, allowed = used.spill_stores, SPILLED_BYTES if program.allow_spills else 0
    row: Row = {"kernel": program.entry, "registers": used.registers, "spilled": spilled}
    if spilled > allowed or (used.spill_loads and not program.allow_spills):
        return row | {"wrong": f"keeps {spilled} bytes of registers in memory, of {allowed}"}
    if used.serialisation_notes:
        return row | {"wrong": "MMAs are serialised"}
    if not used.occupancy(threads, program.dynamic_smem):
        return row | {"wrong": f"no CTA of {threads} threads and {program.dynamic_smem} bytes fits"}
    return row


def judged(family: str, member: Member, seen: set[str]) -> Iterator[Row]:
    """The rows of a member: one for each kernel whose text is not among those seen."""
    case = f"{family}: {name_of(member)}"
    try:
        programs = programs_of(family, member)
    except WarploomError as error:
        yield {"case": case, "refused": error.code}
        return
    for program in programs:
        text = ptx_sha256(program.text)
        if text not in seen:
            seen.add(text)
            yield {"case": case, **verdict(program)}


def members(family: str) -> list[Member]:
    """The members of a kind of call that are assembled."""
    space = FAMILIES[family]
    return cover(space.axes, space.excluded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FAMILIES), help="kinds of calls")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", type=Path, help="one JSON row a line; members that it has are not repeated")
    options = parser.parse_args()
    found: list[Row] = []
    if options.resume is not None and options.resume.exists():
        found = [json.loads(line) for line in options.resume.read_text().splitlines()]
    done, seen = {row["case"] for row in found}, set[str]()
    for family in options.only.split(","):
        for member in members(family):
            if f"{family}: {name_of(member)}" in done:
                continue
            for row in judged(family, member, seen):
                found.append(row)
                if options.resume is not None:
                    with options.resume.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                print(row, flush=True)
    evidence.write(options.out, evidence.header("attention-space", gpu="emulator"), found)


if __name__ == "__main__":
    main()
