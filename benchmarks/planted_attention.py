"""Plant bugs by hand in the attention kernels (`planted/attention`), and record what finds each: sanitizer or values.

    python -m benchmarks.planted_attention [--json FILE] [--of forward] [--only PATTERN]

Each bug is an edit of a kernel's source text, made in its own process. The process then runs small launches of that
kernel in the emulator until something reveals the bug, beginning with cases that reach it. The verdicts:

    error      `check` reports an error, or the emulator stops, under the first schedule of `check`
    explored   the same under another schedule
    values     no error; results differ from float64 by more than the tolerance of the tests
    warned     only a warning of a rule that the kernel itself does not break
    harmless   `HARMLESS` says why the kernel is as correct as before
    missed     none of these

Synchronisation bugs are searched for under all schedules before wrong values count. Without a bug, every case that is
used must be right and without an error.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.planted.attention import cases
from benchmarks.planted.attention.bug import FAMILIES, Bug, bugs, plant

SECONDS = 300
"""Seconds of processor time for one bug."""
MORE = 4
"""Number of further cases for a bug that none of its own cases has found."""
SCHEDULES = ("lazy", "random", "eager", "starve")
STOPPED = ("TraceError", "TimeoutError")
"""Exceptions that end a process whose kernel cannot be built or does not end."""
_OWN_ROWS = (
    "the memory is where this warpgroup alone had an A operand; each warp writes the 16 rows that its own products "
    "alone have read, and has waited for them"
)
HARMLESS: dict[tuple[str, str], str] = {
    ("forward", "WholeStore: no meeting before it writes"): _OWN_ROWS,
    ("forward", "WholeStore: the fence behind the meeting"): "the thread that starts the store has a fence of its own "
    "between the meeting and the store",
    (
        "forward",
        "guarded softmax under a function of masks",
    ): "a row that has seen no key has +inf as its reference, so "
    "its tile does not pass the guard and is computed exactly",
    ("forward", "WholeStore: the CTA ends before its stores"): "every store's memory has been read before its slot is "
    "let go, and what is written is there when the grid ends",
    ("forward", "a sequence's rows stored one by one, and nobody meets before the slot is let go"): "these rows are "
    "stored from registers, and the thread that lets the queries go has waited for the products of its whole warpgroup",
    ("backward", "dK: WholeStore without its first meeting"): _OWN_ROWS,
    ("backward", "no proxy fence behind the wait for a turn"): "one proxy fence on the way is enough, and the CTA that "
    "passes the turn on has one in front of its release",
    ("backward", "lanes free a part while the first one reads it"): "bar.arrive is .aligned: the lanes execute it "
    "together, behind the first one's wait",
    ("backward", "both results through one memory"): "the first store is waited for to its end, and the consumer's "
    "warps meet before the second one is written",
    ("decode", "a warp's lanes do not meet before one lets go"): "behind the last ldmatrix the warp executes mma.sync "
    "together, which needs what was read",
}
"""Changes that leave the kernels as correct as before."""


def apart(work: Callable[[], Any]) -> Any:
    """The result of `work`, done in its own process, so that its changes are discarded."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            signal.signal(signal.SIGPROF, out_of_time)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            with os.fdopen(write, "wb") as out:
                try:
                    pickle.dump(work(), out)
                except BaseException as error:
                    pickle.dump(f"{type(error).__name__}: {error}", out)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as back:
        found = pickle.load(back)
    os.waitpid(child, 0)
    return found


def out_of_time(*_: Any) -> None:
    """Stop a run that does not end."""
    raise TimeoutError(f"no end after {SECONDS} s")


def judge(bug: Bug) -> dict[str, Any]:
    """What finds a bug: the first case and schedule that do; `warned`: rules of other findings, by case."""
    plant(bug)
    others = [name for name in cases.names_of(bug.of) if name not in (*bug.cases, *cases.SLOW)]
    named = [*bug.cases, *others[:MORE]]
    wrong: dict[str, Any] | None = None
    warned: dict[str, list[str]] = {}
    for schedule in SCHEDULES:
        for name in named if schedule == "lazy" and wrong is None else bug.cases:
            errors, others, off = cases.outcome(bug.of, name, schedule)
            if errors:
                return {"outcome": "error" if schedule == "lazy" else "explored", "found": sorted(errors), "case": name,
                        "schedule": schedule}  # fmt: skip
            if off and wrong is None:
                wrong = {"outcome": "values", "case": name, "schedule": schedule}
                break
            if others:
                warned.setdefault(name, sorted(others))
        if wrong and not bug.order:
            break
    return wrong or {"outcome": "missed", "warned": warned}


@cache
def own(of: str, name: str) -> frozenset[str]:
    """The rules of a case's other findings; the unchanged kernels have no errors and right values."""
    errors, others, off = apart(lambda: cases.outcome(of, name, SCHEDULES[0]))
    if errors or off:
        sys.exit(f"{of} {name} itself: {sorted(errors) or 'wrong values'}")
    return frozenset(others)


def judged(bug: Bug) -> dict[str, Any]:
    """A row of the evidence."""
    started = time.perf_counter()
    found = apart(lambda: judge(bug))
    if isinstance(found, str):
        found = {"outcome": "error", "found": [found[:100]]} if found.startswith(STOPPED) else sys.exit(found)
    for name in (*bug.cases[:1], *([found["case"]] if "case" in found else [])):
        own(bug.of, name)
    for name, rules in found.pop("warned", {}).items():
        if new := set(rules) - own(bug.of, name):
            found = {"outcome": "warned", "found": sorted(new), "case": name}
            break
    why = HARMLESS.get((bug.of, bug.name))
    if why and found["outcome"] in ("missed", "warned"):
        found = {"outcome": "harmless", "reason": why}
    row = {"kernel": bug.of, "bug": bug.name, "kind": "order" if bug.order else "values", **found}
    print(f"{time.perf_counter() - started:5.1f} s  {row}", flush=True)
    return row


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """The evidence; rows of bugs that were not judged this time are kept."""
    before = json.loads(path.read_text())["bugs"] if path.exists() else []
    found = {(row["kernel"], row["bug"]): row for row in (*before, *rows)}
    planted = bugs()
    rows = [found[bug.of, bug.name] for bug in planted if (bug.of, bug.name) in found]
    kernels = {of: dict(Counter(row["outcome"] for row in rows if row["kernel"] == of)) for of in FAMILIES}
    command = f"python -m benchmarks.planted_attention --json {path}"
    counts = dict(Counter(row["outcome"] for row in rows))
    left = [f"{bug.of}: {bug.name}" for bug in planted if (bug.of, bug.name) not in found]
    data = {"command": command, "counts": counts, "not judged": left, "kernels": kernels, "bugs": rows}
    path.write_text(json.dumps(data, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--of", default="*", help="forward, fp8, decode or backward")
    parser.add_argument("--only", default="*", help="bugs whose name fits the pattern")
    parser.add_argument("--new", action="store_true", help="only bugs that the evidence does not have")
    given = parser.parse_args()
    some = [bug for bug in bugs() if fnmatch(bug.of, given.of) and fnmatch(bug.name, given.only)]
    if given.new and given.json and given.json.exists():
        done = {(row["kernel"], row["bug"]) for row in json.loads(given.json.read_text())["bugs"]}
        some = [bug for bug in some if (bug.of, bug.name) not in done]
    rows = []
    for bug in sorted(some, key=lambda bug: not bug.order):
        rows.append(judged(bug))
        if given.json:
            write(given.json, rows)
    print(dict(Counter(row["outcome"] for row in rows)))


if __name__ == "__main__":
    main()
