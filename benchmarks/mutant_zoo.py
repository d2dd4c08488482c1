"""Measure how many mutants of `zoo/kernels.py` the sanitizer finds, with the right rule at the right place.

    python benchmarks/mutant_zoo.py [--kernel PATTERN] [--kind KIND] [--sample N] [--jobs N] [--json FILE]

A mutant counts as found if a right rule points at a right place (`zoo/judge.py`, `zoo/sites.py`). A mutant that is
equivalent to its kernel is listed with the edge that makes it so (`zoo/equivalents.py`). `--sample` judges a sample
drawn with a fixed seed and writes nothing; otherwise each kernel's row replaces the older one in
benchmarks/results/<machine>/mutant-zoo.json as soon as it is done. Of the kernels in `zoo/hopper.py` a sample with the
same seed is judged; `of` in their rows is the total. `--kind` judges only mutants of that kind and adds them to the
rows of the other kernels, which must not have the kind yet.

    python benchmarks/mutant_zoo.py --sample N --verdicts FILE          # before a change, and after it
    python benchmarks/mutant_zoo.py --before FILE --after FILE [--json FILE]

`--verdicts` saves the verdict on each mutant in a file. Two such files make the table `compared` of the evidence: how
many of the same mutants were found before and after, and which ones a different rule found.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.zoo import Healthy, Sites, Verdict, judge, subjects  # noqa: E402 - the root has to be on the path
from benchmarks.zoo.mutate import mutants  # noqa: E402

SEED = 0
OUTCOMES = ("found", "equivalent", "missed")


def counts(pattern: str = "*") -> dict[str, int]:
    """The number of mutants of each kernel whose name matches."""
    return {
        name: sum(1 for _ in mutants(subject.module)) for name, subject in subjects().items() if fnmatch(name, pattern)
    }


def chosen(have: dict[str, int], sample: int | None) -> dict[str, list[int]]:
    """Numbers of the mutants to judge, by kernel: those of a run for evidence, or a sample of these."""
    evidence = {kernel: _own(subjects()[kernel].sample, count) for kernel, count in have.items()}
    if sample is None:
        return evidence
    every = [(kernel, number) for kernel, numbers in evidence.items() for number in numbers]
    every = random.Random(SEED).sample(every, min(sample, len(every)))
    picked: dict[str, list[int]] = {kernel: [] for kernel in have}
    for kernel, number in every:
        picked[kernel].append(number)
    return {kernel: sorted(numbers) for kernel, numbers in picked.items()}


def _own(sample: int | None, count: int) -> list[int]:
    """Numbers of one kernel's mutants: all, or a sample drawn with a fixed seed."""
    return (
        list(range(count)) if sample is None else sorted(random.Random(SEED).sample(range(count), min(sample, count)))
    )


def of_kind(picked: dict[str, list[int]], kind: str) -> dict[str, list[int]]:
    """Numbers of the mutants of one kind, for kernels whose mutants are all judged."""
    whole = {name: subject for name, subject in subjects().items() if name in picked and subject.sample is None}
    numbers = {
        name: [number for number, mutant in enumerate(mutants(subject.module)) if mutant.kind == kind]
        for name, subject in whole.items()
    }
    return {name: some for name, some in numbers.items() if some}


def run(task: tuple[str, list[int]]) -> tuple[str, list[Verdict], float]:
    """Judge some mutants of one kernel."""
    name, numbers = task
    started = time.perf_counter()
    subject = subjects()[name]
    verdicts: list[Verdict] = []
    if numbers:
        healthy, sites, wanted = Healthy(subject), Sites(subject), set(numbers)
        verdicts = [
            judge(subject, mutant, sites, healthy)
            for number, mutant in enumerate(mutants(subject.module))
            if number in wanted
        ]
    return name, verdicts, time.perf_counter() - started


def in_pieces(picked: dict[str, list[int]], size: int = 40) -> Iterator[tuple[str, list[int]]]:
    """Tasks of at most `size` mutants, so that progress is reported often."""
    for kernel, numbers in picked.items():
        for at in range(0, max(1, len(numbers)), size):
            yield kernel, numbers[at : at + size]


def summary(kernel: str, verdicts: list[Verdict], of: int) -> dict[str, Any]:
    """One kernel's row; `of` is its total number of mutants."""
    kinds: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        kinds.setdefault(verdict.kind, Counter())[verdict.outcome] += 1
    total = Counter(verdict.outcome for verdict in verdicts)
    listed = {
        outcome: [
            {key: value for key, value in asdict(verdict).items() if value and key not in ("kernel", "outcome")}
            for verdict in verdicts
            if verdict.outcome == outcome
        ]
        for outcome in ("equivalent", "missed")
    }
    return {
        "kernel": kernel, "mutants": len(verdicts), "of": of, "seed": SEED, "found": total["found"],
        "equivalent": total["equivalent"], "missed": total["missed"],
        "kinds": {kind: dict(count) for kind, count in sorted(kinds.items())},
        "rules": dict(Counter(verdict.rule for verdict in verdicts if verdict.rule).most_common()),
        "schedules": dict(Counter(f"{v.schedule[0]} {v.schedule[1]}" for v in verdicts if v.schedule).most_common()),
        "equivalents": listed["equivalent"], "misses": listed["missed"],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="*", help="only kernels whose name fits the pattern")
    parser.add_argument("--kind", help="only mutants of that kind, to be added to the rows that there are")
    parser.add_argument("--sample", type=int, help="so many mutants instead of all")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write the evidence there")
    parser.add_argument("--verdicts", type=Path, help="keep what became of each mutant there")
    parser.add_argument("--before", type=Path, help="a file of --verdicts, to compare with the one of --after")
    parser.add_argument("--after", type=Path)
    options = parser.parse_args()
    machine = f"cpu-{platform.machine()}-{os.cpu_count()}-cores"
    path = options.json or ROOT / "benchmarks" / "results" / machine / "mutant-zoo.json"
    if options.before and options.after:
        table = compared(*(json.loads(file.read_text()) for file in (options.before, options.after)))
        path.write_text(json.dumps({**json.loads(path.read_text()), "compared": table}, indent=1) + "\n")
        print(
            {key: table[key] for key in ("mutants", "missed_before", "missed_after")}, len(table["changed"]), "changed"
        )
        return 0

    have = counts(options.kernel)
    picked = chosen(have, options.sample)
    if options.kind is not None:
        picked = of_kind(picked, options.kind)
    wanted, done, started = sum(map(len, picked.values())), 0, time.perf_counter()
    verdicts: dict[str, list[Verdict]] = {kernel: [] for kernel in picked}
    with ProcessPoolExecutor(options.jobs) as pool:
        for kernel, some, seconds in pool.map(run, in_pieces(picked)):
            verdicts[kernel] += some
            done += len(some)
            missed = [verdict for verdict in some if verdict.outcome == "missed"]
            print(f"{done}/{wanted} {kernel}: {len(some)} mutants, {len(missed)} missed, {seconds:.1f} s", flush=True)
            for verdict in missed:
                print(f"    {verdict.kind} at {verdict.site} ({verdict.place}): {verdict.what}; {verdict.seen[:3]}")
            if options.sample is None and len(verdicts[kernel]) == len(picked[kernel]):
                write(path, summary(kernel, verdicts[kernel], have[kernel]), options.kind)

    if options.verdicts:
        options.verdicts.write_text(json.dumps(verdict_file(picked, verdicts, options.sample), indent=1) + "\n")
    rows = [summary(kernel, verdicts[kernel], have[kernel]) for kernel in verdicts]
    total = totals(rows)
    print(total, f"{time.perf_counter() - started:.0f} s")
    return 1 if total["missed"] else 0


def verdict_file(
    picked: dict[str, list[int]], verdicts: dict[str, list[Verdict]], sample: int | None
) -> dict[str, Any]:
    """The verdict on each mutant, by kernel and number."""
    found = {
        f"{kernel}#{number}": {"outcome": verdict.outcome, "rule": verdict.rule, "kind": verdict.kind}
        for kernel, numbers in picked.items()
        for number, verdict in zip(numbers, verdicts[kernel], strict=True)
    }
    return {"sample": sample, "seed": SEED, "date": time.strftime("%Y-%m-%d"), "verdicts": found}


def compared(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The table of two files of verdicts. Raises SystemExit if they do not judge the same mutants."""
    old, new = before["verdicts"], after["verdicts"]
    if set(old) != set(new):
        raise SystemExit(f"the two files differ in {len(set(old) ^ set(new))} mutants: judge the same sample")
    by_kernel: dict[str, dict[str, int]] = {}
    for mutant in old:
        row = by_kernel.setdefault(
            mutant.partition("#")[0], dict.fromkeys(("mutants", "found_before", "found_after"), 0)
        )
        row["mutants"] += 1
        row["found_before"] += old[mutant]["outcome"] != "missed"
        row["found_after"] += new[mutant]["outcome"] != "missed"
    changed = [mutant for mutant in old if old[mutant] != new[mutant]]
    return {
        "sample": before["sample"], "seed": before["seed"], "before": before["date"], "after": after["date"],
        "mutants": len(old),
        "missed_before": sum(one["outcome"] == "missed" for one in old.values()),
        "missed_after": sum(one["outcome"] == "missed" for one in new.values()),
        "kernels": by_kernel,
        "changed": {mutant: {"before": old[mutant], "after": new[mutant]} for mutant in changed},
    }  # fmt: skip


def totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Totals over all kernels."""
    return {name: sum(row[name] for row in rows) for name in ("mutants", *OUTCOMES)}


def added(old: dict[str, Any], row: dict[str, Any], kind: str) -> dict[str, Any]:
    """A kernel's row with the verdicts of one more kind; `added` is the date at which they were added."""
    if kind in old["kinds"]:
        raise SystemExit(f"the row of {row['kernel']} has {kind} already: judge all its mutants anew")
    counts = ("mutants", *OUTCOMES)
    by_name = {name: dict((Counter(old[name]) + Counter(row[name])).most_common()) for name in ("rules", "schedules")}
    return {
        **old, **{name: old[name] + row[name] for name in counts}, **by_name, "of": row["of"],
        "kinds": dict(sorted({**old["kinds"], **row["kinds"]}.items())),
        "equivalents": old["equivalents"] + row["equivalents"], "misses": old["misses"] + row["misses"],
        "added": {**old.get("added", {}), kind: time.strftime("%Y-%m-%d")},
    }  # fmt: skip


def write(path: Path, row: dict[str, Any], kind: str | None = None) -> None:
    """Write a kernel's row, or its verdicts of one kind, to the evidence file."""
    from warploom.lab import evidence

    before = json.loads(path.read_text()) if path.exists() else {"rows": []}
    rows = {old["kernel"]: old for old in before["rows"]}
    text = subjects()[row["kernel"]].program.text
    made = {**row, "ptx_sha256": evidence.ptx_sha256(text), "date": time.strftime("%Y-%m-%d")}
    rows[row["kernel"]] = made if kind is None else added(rows[row["kernel"]], row, kind)
    ordered = [rows[name] for name in subjects() if name in rows]
    head = evidence.header("mutant-zoo", command="python benchmarks/mutant_zoo.py")
    kept = {key: before[key] for key in ("compared",) if key in before}
    evidence.write(path, {**head, "total": totals(ordered), **kept}, ordered)


if __name__ == "__main__":
    sys.exit(main())
