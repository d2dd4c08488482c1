"""Run all cases on GPU 0, write the results, and compare the emulator with them.

    PYTHONPATH=src:. python -m tests.conformance.record --out FOLDER [--only WORDS] [--changed] [--timeout 20]

Writes FOLDER/conformance.npz (to be placed in tests/golden/) and FOLDER/conformance.txt (the printed report). With
`--only` or `--changed` (cases that tests/golden/conformance.npz lacks, or has in an older form), the rest of the file
is copied from there, without cases that no longer exist. The cases run in a child process, each launch twice. If one
faults or hangs, it is reported and the others continue in a new child. Exits with 1 if a case could not be recorded or
the emulator disagrees.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from . import cpu, recording, suite
from .case import Case
from .recording import Mismatch, Results
from .values import SEED

Say = Callable[..., None]
_SHOWN = 60


@dataclass
class Outcome:
    """Results from the GPU. results: case name -> buffers; failed: case name -> reason."""

    results: dict[str, Results] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


def run_on_gpu(cases: Sequence[Case], timeout_s: float = 20.0, say: Say = lambda line: None) -> Outcome:
    """Build and run cases on GPU 0, in child processes. timeout_s: for one case, and for a child to start."""
    from . import gpu

    outcome, started = Outcome(), time.perf_counter()
    built = gpu.build(cases, os.cpu_count() or 4, lambda count: say(f"built {count} of {len(cases)} kernels"))
    outcome.failed |= {
        part.cases[0].name: f"not built: {part.error}".replace("\n", " ") for part in built if part.build is None
    }
    say(f"built in {time.perf_counter() - started:.1f} s, {len(outcome.failed)} refused")
    parts = [(tuple(case.name for case in part.cases), part.build) for part in built if part.build is not None]
    if parts:
        outcome.meta["ptxas"] = parts[0][1].compiler  # type: ignore[union-attr]
    todo = [(at, number) for at, (names, _) in enumerate(parts) for number in range(len(names))]
    while todo:
        todo = _one_child(parts, todo, timeout_s, outcome, say, len(cases))
    return outcome


def _one_child(
    parts: list[Any], todo: list[tuple[int, int]], timeout_s: float, outcome: Outcome, say: Say, total: int
) -> list[tuple[int, int]]:
    """Let a child run the remaining cases until it is done or lost; returns the cases that remain."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, parts, todo), daemon=True)
    child.start()
    theirs.close()
    said = time.perf_counter()
    name_of = lambda item: parts[item[0]][0][item[1]]  # noqa: E731
    left = list(todo)
    started = False
    while left:
        problem = ""
        try:
            if ours.poll(timeout_s if started else 60 + timeout_s):
                kind, content = ours.recv()
            else:
                problem = f"no answer in {timeout_s} s: the launch hangs"
        except (EOFError, ConnectionError):
            problem = "the child process ended"
        if problem:
            if not started:
                outcome.failed |= dict.fromkeys(map(name_of, left), f"the child process never started: {problem}")
                left = []
            else:
                outcome.failed[name_of(left[0])] = problem
                say(f"LOST {name_of(left[0])}: {problem}")
                left = left[1:]
            child.kill()
            break
        if kind == "meta":
            outcome.meta |= content
            started = True
            continue
        name = name_of(left.pop(0))
        if kind == "done":
            outcome.results[name] = content
        else:
            outcome.failed[name] = content
            say(f"{kind.upper()} {name}: {content}")
        if kind == "lost":
            child.kill()
            break
        if time.perf_counter() - said > 2:
            said = time.perf_counter()
            say(f"ran {len(outcome.results)} of {total}")
    child.join(10)
    ours.close()
    return left


def _child(pipe: Connection, parts: list[Any], todo: list[tuple[int, int]]) -> None:
    from warploom.errors import DriverError

    from . import gpu

    by_name = {case.name: case for case in suite.cases()}
    built = [gpu.Built(tuple(by_name[name] for name in names), build) for names, build in parts]
    machine = gpu.Gpu()
    device = machine.library.device(0)
    pipe.send(("meta", {"gpu": device.name, "cuda": machine.library.version, "arch": device.arch}))
    for at, number in todo:
        try:
            first = machine.run(built[at], number)
            second = machine.run(built[at], number)
        except DriverError as error:
            pipe.send(("lost", str(error).replace("\n", " ")))
            return
        except Exception as error:  # noqa: BLE001  (one case is lost, the others go on)
            pipe.send(("failed", f"{type(error).__name__}: {error}"))
            continue
        changed = [key for key in first if not np.array_equal(first[key], second[key])]
        if changed:
            pipe.send(("unstable", f"two runs differ in argument {', '.join(changed)}"))
        else:
            pipe.send(("done", first))


# -- the emulator ----------------------------------------------------------------------------------------


def _emulated(name: str) -> tuple[str, Results | None, str]:
    case = next(case for case in suite.cases() if case.name == name)
    try:
        return name, cpu.run(case), ""
    except Exception as error:  # noqa: BLE001  (to be reported as the case's failure)
        return name, None, f"{type(error).__name__}: {error}".replace("\n", " ")


def against_emulator(outcome: Outcome, cases: Sequence[Case]) -> tuple[list[Mismatch], dict[str, str]]:
    """Mismatches, and the cases that the emulator could not run."""
    names = [case.name for case in cases if case.name in outcome.results]
    by_name = {case.name: case for case in cases}
    wrong: list[Mismatch] = []
    stopped: dict[str, str] = {}
    with multiprocessing.get_context("spawn").Pool(max(1, min(8, os.cpu_count() or 2))) as pool:
        for name, found, problem in pool.imap(_emulated, names, chunksize=16):
            if found is None:
                stopped[name] = problem
            else:
                wrong += recording.compare(by_name[name], found, outcome.results[name])
    return wrong, stopped


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for conformance.npz and conformance.txt")
    parser.add_argument("--only", default="", help="record only the cases whose name holds this")
    parser.add_argument("--changed", action="store_true", help="record only what is new or has changed")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for one case")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    started = time.perf_counter()

    def say(line: str, show: bool = True) -> None:
        lines.append(f"{time.perf_counter() - started:7.1f} s  {line}")
        if show:
            print(lines[-1], flush=True)

    before = recording.load() if options.only or options.changed else None
    cases = [case for case in suite.cases() if options.only in case.name]
    if options.changed and before is not None:
        cases = [case for case in cases if before.of(case) is None]
    say(f"{len(cases)} cases")
    outcome = run_on_gpu(cases, options.timeout, say)
    meta = {
        **(before.meta if before else {}), **outcome.meta, "driver": _driver_release(),
        "date": datetime.date.today().isoformat(), "seed": SEED, "python": platform.python_version(),
        "numpy": np.__version__, "command": "python -m tests.conformance.record --out FOLDER",
    }  # fmt: skip
    target = options.out / "conformance.npz"
    names = {case.name for case in suite.cases()}
    kept = {name: entry for name, entry in (before.raw() if before else {}).items() if name in names}
    digests = {case.name: case.digest() for case in cases}
    new = {name: (digests[name], found) for name, found in outcome.results.items()}
    recording.save(target, meta, kept | new)
    say(f"recorded {len(outcome.results)} of {len(cases)} cases in {target.stat().st_size} bytes; {meta}")
    wrong, stopped = against_emulator(outcome, cases)
    _report(outcome, wrong, stopped, say)
    (options.out / "conformance.txt").write_text("\n".join(lines) + "\n")
    return 1 if outcome.failed or wrong or stopped else 0


def _report(outcome: Outcome, wrong: list[Mismatch], stopped: dict[str, str], say: Say) -> None:
    for title, listed in (("not recorded", outcome.failed), ("the emulator cannot run", stopped)):
        say(f"{title}: {len(listed)} cases")
        for name, problem in listed.items():
            say(f"  {name}: {problem[:400]}")
    say(f"the emulator disagrees: {len({mismatch.case for mismatch in wrong})} cases, {len(wrong)} instructions")
    for at, mismatch in enumerate(wrong):
        say(f"  {mismatch}", at < _SHOWN)
    rows = Counter(mismatch.case.rpartition("/")[0] or mismatch.case for mismatch in wrong)
    if rows:
        say("instructions that differ: " + ", ".join(f"{name} {count}" for name, count in rows.items()))


def _driver_release() -> str:
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
