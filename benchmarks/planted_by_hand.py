"""Check kernels with bugs planted by hand (`planted/by_hand*/*.cu`), and record what `warploom check` reports.

    python -m benchmarks.planted_by_hand [--json FILE] [--set by_hand|by_hand_second|…] [--only PATTERN]

Each later set was written after the misses of the one before had been fixed. With --set and --json the other sets' rows
are kept; `at_first` is a bug's verdict when it was run for the first time, before rules were fixed.

`-DBUG=n` compiles a kernel with its n-th bug: `B(n, right, wrong)` chooses between statements, `E` between expressions.
Lines that begin with `//@` describe the launch: `key=value;…` for its head, `name type shape fill key=value …` for a
parameter (`=3` instead of a shape: a scalar), `? name = expression; tolerance` for an expected result. Needs nvcc.
Each kernel must be right and without an error under five schedules.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.foreign.compile_cuda import find_nvcc
from warploom.testing import check_text

FOLDER = Path(__file__).parent / "planted"
SETS = ("by_hand", "by_hand_second", "by_hand_third", "by_hand_fourth", "by_hand_fifth")
SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1), ("starve", 2), ("pct", 3))
STEPS = 3_000_000
HARMLESS = {
    ("ring", 3): "the number of rounds is even: each pair of stages is handed over in the other order",
    ("cltrans", 6): "a CTA has all bytes that the other sends when it exits, and sends nothing later",
    ("mcast", 3): "waits for the other stage, which is released later than its own",
    ("rowsoft", 1): "lane 0 alone uses the maximum, and has it",
    ("rowsoft", 3): "exp of minus infinity is 0",
    ("wgrs", 2): "the warp comes together at wgmma.fence",
    ("wgring", 2): "in one CTA the barrier that follows makes the initialisation visible",
    ("tmatile", 1): "the same kernel",
    ("tmatile", 5): "thread 0, which starts the store, has a fence of its own behind the barrier",
    ("tmatile", 6): "both branches come to a barrier",
    ("warpred", 5): "other words are written than are read",
    ("lookback", 4): "not executed: the block in front has always its prefix",
    ("twowg", 6): "nobody waits for what is released in the last two rounds",
    ("producers", 3): "in one CTA the barrier that follows makes the initialisation visible",
    ("matrices", 1): "the thread that initialises the barrier starts the copy",
    ("reduced", 4): "thread 0, which starts the reduction, has a fence of its own behind the barrier",
    ("counted", 10): "CTA 0 waits for all that it is sent, and CTA 1 is sent nothing",
    ("tokens", 9): "nobody waits for what is released in the last round",
    ("piped", 1): "two stages are in flight at most, and the third buffer is filled behind a release",
    ("piped", 4): "producer_acquire waits until all threads have released the buffer",
    ("lane0", 4): "any lane may arrive behind the meeting of its warp",
    ("mailbox", 4): "thread 0 has a fence of its own behind the barrier",
    ("mailbox", 6): "all threads have a fence.sc in front of the barrier",
    ("cubblock", 1): "each thread reads and writes its own items",
    ("bartx", 3): "in one CTA the barrier that follows makes the initialisation visible",
    ("swizzled", 2): "the thread that initialises the barriers starts the copies",
    ("ordered", 10): "the ordered barrier lets one group at a time into the epilogue",
    ("ordered", 12): "thread 0 arrives for the other group only after its wait, and all 128 arrivals count",
    ("fa3", 5): "the named barrier behind it passes the first warp's wait on",
    ("clring", 1): "bytes may come before they are expected, since the arrival is still missing",
    ("clsoft", 2): "the cluster barrier releases the initialisation",
    ("remote", 2): "fence.mbarrier_init publishes the initialisation across a relaxed cluster barrier",
    ("fixup", 9): "a barrier stands between the reads of the count and the next one",
    ("prefetch", 7): "the loader has waited, and everyone has waited for its copies",
    ("gemv", 6): "the sums alternate between two buffers, whoever adds them up",
    ("jacobi", 1): "the first thread's value is 0, whatever the edge holds",
    ("jacobi", 7): "nobody reads that word before its own thread writes it again",
    ("quads", 8): "the same CTAs",
    ("permute", 11): "only the first warp reads offsets there",
    ("conv", 1): "the lane that initialises the barrier starts the copy",
    ("conv", 2): "the lanes meet twice more between their reads and the next copy",
    ("bfs", 6): "each node has one parent",
}
"""Changes that leave the kernel as correct as before, for its launch."""


def launch(source: str) -> str:
    """The launch description in a kernel's comment lines."""
    head, parameters, expected = [], [], []
    for line in re.findall(r"//@ ?(.*)", source):
        if line.startswith("?"):
            name, _, value = line[1:].partition("=")
            value, _, tolerance = value.partition(";")
            close = f"rtol={tolerance}\natol={tolerance}\n" if tolerance else ""
            expected.append(f'[[expect]]\nname="{name.strip()}"\nvalue="{value.strip()}"\n{close}')
        elif "=" in line.split()[0]:
            head.append(line.replace(";", "\n"))
        else:
            parameters.append(parameter(*line.split()))
    return "\n".join(head + parameters + expected)


def parameter(name: str, dtype: str, what: str, *more: str) -> str:
    made = f'[[parameter]]\nas="{name}"\ndtype="{dtype}"\n'
    if what.startswith("="):
        return made + f'kind="scalar"\nvalue={what[1:]}\n'
    made += f"shape=[{what}]\n"
    for word in more:
        key, _, value = word.partition("=")
        if not value:
            made += f'fill="{key}"\n'
        else:
            made += f'kind="tensor_map"\nbox=[{value}]\n' if key == "box" else f'{key}="{value}"\n'
    return made


def compiled(source: Path, bug: int, out: Path) -> Path:
    found = find_nvcc()
    if found is None:
        sys.exit("nvcc is not here")
    nvcc, include = found
    arch = (re.findall(r"//arch (\S+)", source.read_text()) or ["sm_90a"])[0]
    path = out / f"{source.stem}_{bug}.ptx"
    command = [nvcc, "-ptx", f"-arch={arch}", "-std=c++17", "-lineinfo", f"-DBUG={bug}", source, "-o", path]
    subprocess.run([*command, *(f"-I{one}" for one in include)], check=True, capture_output=True)
    return path


def rules(path: Path, description: Path, **options: Any) -> tuple[list[str], list[str]]:
    """The rules of the errors and of the other findings."""
    checked = check_text(path, launch=description, max_steps=STEPS, **options)
    errors = {finding.rule for finding in checked.errors}
    return sorted(errors), sorted({finding.rule for finding in checked.findings} - errors)


def judged(source: Path, out: Path) -> list[dict[str, Any]]:
    """One kernel, clean, and with each of its bugs."""
    text, description = source.read_text(), out / f"{source.stem}.launch.toml"
    description.write_text(launch(text))
    clean = compiled(source, 0, out)
    own: set[str] = set()
    for schedule, seed in SCHEDULES:
        errors, others = rules(clean, description, schedule=schedule, seed=seed)
        if errors:
            sys.exit(f"{source.stem} itself has {errors} under {schedule} {seed}")
        own.update(others)
    rows = []
    for bug in sorted({int(one) for pair in re.findall(r"\b[BE]\((\d+)|BUG == (\d+)", text) for one in pair if one}):
        row: dict[str, Any] = {"set": source.parent.name, "kernel": source.stem, "bug": bug}
        errors, others = rules(path := compiled(source, bug, out), description)
        new = sorted(set(others) - own)
        if errors:
            row |= {"outcome": "error", "found": errors}
        elif why := HARMLESS.get((source.stem, bug)):
            row |= {"outcome": "harmless", "reason": why}
        elif found := rules(path, description, schedule="explore")[0]:
            row |= {"outcome": "explored", "found": found, "warned": new}
        else:
            row |= {"outcome": "warned" if new else "missed", "found": new}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--set", choices=SETS, help="all where left out")
    parser.add_argument("--only", default="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        chosen = (given.set,) if given.set else SETS
        sources = [
            one for name in chosen for one in sorted((FOLDER / name).glob("*.cu")) if fnmatch(one.stem, given.only)
        ]
        rows = [row for source in sources for row in judged(source, Path(out))]
    print(dict(Counter(row["outcome"] for row in rows)))
    if given.json:
        if given.json.is_file():
            rows = joined(rows, json.loads(given.json.read_text())["bugs"], chosen)
        given.json.write_text(json.dumps(summed_up(rows, given.json), indent=1) + "\n")


def joined(rows: list[dict[str, Any]], before: list[dict[str, Any]], chosen: Sequence[str]) -> list[dict[str, Any]]:
    """New rows, with the first verdict if it differed, and the old rows of other sets."""
    first = {(row["kernel"], row["bug"]): row.get("at_first", row["outcome"]) for row in before}
    for row in rows:
        was = first.get((row["kernel"], row["bug"]), row["outcome"])
        if was != row["outcome"]:
            row["at_first"] = was
    rows = rows + [row for row in before if row["set"] not in chosen]
    return sorted(rows, key=lambda row: SETS.index(row["set"]))


def summed_up(rows: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    """The rows, with totals for each set."""
    sets = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = [row for row in rows if row["set"] == name]
        counts = Counter(row["outcome"] for row in of_set)
        sets[name] = {"kernels": len({row["kernel"] for row in of_set}), "counts": dict(sorted(counts.items()))}
    return {"command": f"python -m benchmarks.planted_by_hand --json {path}", "sets": sets, "bugs": rows}


if __name__ == "__main__":
    main()
