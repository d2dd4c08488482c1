"""Processes of `benchmarks.tensor_parallel` that end too early: it is recorded, and new ones go on.

A trap or an illegal address ends a GPU's context, and a rank that ends leaves the others in a collective. So each rank
writes down what it is doing (`Notes`), and ends itself if that takes longer than `STEP_S`. If a process ends early, the
others are ended after `GRACE_S`, the contender at fault is left out of its row, and new processes measure that row
again and the rest. A contender that ended the processes twice is left out of all further rows. A row whose tensors or
baseline are at fault has an "error" instead of times.
"""

from __future__ import annotations

import faulthandler
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tensor_parallel_rows import PARTS, SETUP

STEP_S, START_S, GRACE_S = 60.0, 150.0, 5
"""Most seconds of a step and of the start of a rank; how long the other ranks may go on after one has ended."""
STRIKES = 2
"""How often a contender may end the processes."""
STARTS = 2
"""How often in a row processes may end before they begin any row."""
HEADER = "header.json"
Failed = dict[int, dict[str, str]]
"""By the index of a row: the contenders that are left out, and why."""


class Notes:
    """What the ranks write down in a folder: rows, and what each rank is doing."""

    def __init__(self, folder: str, rank: int = 0) -> None:
        self.folder, self.rank, self.row = Path(folder), rank, -1

    def starts(self) -> None:
        """This rank has been started."""
        faulthandler.dump_traceback_later(START_S, exit=True)

    def ends(self) -> None:
        """This rank has done all."""
        faulthandler.cancel_dump_traceback_later()

    def tell(self, name: str, problem: str) -> None:
        """This rank is in contender `name` of the row; or what went wrong there."""
        faulthandler.dump_traceback_later(STEP_S, exit=True)
        _replace(self.folder / f"rank-{self.rank}.json", [self.row, name, problem])

    def doing(self) -> tuple[int, str, str]:
        """The row, contender and problem that this rank last wrote; -1 before any."""
        path = self.folder / f"rank-{self.rank}.json"
        row, name, problem = json.loads(path.read_text()) if path.exists() else (-1, SETUP, "")
        return row, name, problem

    def forget(self) -> None:
        """Before new processes start."""
        for path in self.folder.glob("rank-*.json"):
            path.unlink()

    def keep(self, index: int, row: dict[str, Any], header: dict[str, Any] | None = None) -> None:
        """Write a row, and what the file says of all."""
        if header is not None:
            _replace(self.folder / HEADER, header)
        _replace(self.folder / f"row-{index:03d}.json", row)

    def done(self) -> set[int]:
        """The rows there are."""
        return {int(path.stem.removeprefix("row-")) for path in self.folder.glob("row-*.json")}

    def write(self, out: str) -> None:
        """The evidence so far."""
        if not out:
            return
        header = self.folder / HEADER
        rows = [json.loads(path.read_text()) for path in sorted(self.folder.glob("row-*.json"))]
        evidence = {**(json.loads(header.read_text()) if header.exists() else {}), "rows": rows}
        _replace(Path(out), evidence)


def supervise(
    start: Callable[[list[int], Failed], Any], cases: Sequence[dict[str, Any]], notes: Sequence[Notes], out: str,
    until: float,
) -> None:  # fmt: skip
    """Run all rows.

    Args:
        start: start processes for these rows without those contenders; a ProcessContext of torch.multiprocessing.
        cases: what each row says of its case.
        notes: of each rank.
        out: the evidence.
        until: when no new processes are started.
    """
    failed: Failed = {}
    strikes: dict[str, list[str]] = {}
    starts = 0
    while left := [index for index in range(len(cases)) if index not in notes[0].done()]:
        if time.time() > until or starts == STARTS:
            break
        notes[0].forget()
        ended = _ended(start(left, failed))
        if ended is None:
            break
        rank, why = ended
        row, name, problem = notes[rank].doing()
        why = f"rank {rank}: {problem or why}"[:600]
        print(f"    processes ended in {name} of row {row}: {why}", flush=True)
        if row < 0:
            starts += 1
            continue
        starts = 0
        if row in notes[0].done():  # it was measured; ranks ended behind it
            continue
        blameless = name in (SETUP, "nccl", *PARTS) or name in failed.get(row, {})
        if blameless:
            notes[0].keep(row, {**cases[row], "error": why, "failed": {**failed.get(row, {}), name: why}})
            notes[0].write(out)
            continue
        failed.setdefault(row, {})[name] = why
        strikes.setdefault(name, []).append(why)
        if len(strikes[name]) == STRIKES:
            for index in left:
                failed.setdefault(index, {}).setdefault(name, f"ended the processes {STRIKES} times before")


def _ended(context: Any) -> tuple[int, str] | None:
    """Wait for the processes; the rank that ended early, and why."""
    try:
        while not context.join(timeout=5, grace_period=GRACE_S):
            pass
    except Exception as error:
        return int(getattr(error, "error_index", 0)), _last_line(str(error))
    return None


def _last_line(text: str) -> str:
    """Of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended"


def _replace(path: Path, what: Any) -> None:
    """Write a file so that nobody reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(what, indent=1) + "\n")
    partial.replace(path)
