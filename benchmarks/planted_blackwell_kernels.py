"""Check five kernels for Blackwell that are not in the library, and the bugs planted in their text.

    python -m benchmarks.planted_blackwell_kernels [--json FILE] [--only KERNEL]

The kernels (`planted/blackwell`) are written instruction by instruction with `warploom.lang`; each `bug(...)` there is
one planted bug. The kernel itself must be right and without an error under five schedules. A bug is checked under lazy;
if there is no error, other schedules are explored. `HARMLESS` says why a kernel is as correct as before. Assembled and
emulated, not run on hardware.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.planted.blackwell.bug import Planted
from warploom.errors import WarploomError
from warploom.runtime import B200
from warploom.sanitizer.explore import EXPLORED
from warploom.testing import check_emulated

KERNELS = ("mxfp4", "converted", "clusters", "split_k", "taps")
SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1), ("starve", 2), ("pct", 3))
STEPS = 400_000
COLLECTIVE = "lane 0 tells of a tcgen05.ld alone, whose wait all lanes execute together"
OWN_QUARTER = "chips take the quarter of the lanes from the warp; only strict mode reports lane 0 in every warp"
USED = (
    "the loaded registers are used before anything that could overwrite their cells, and a later wait covers the load"
)
HARMLESS = {
    ("mxfp4", "no __syncwarp before the release"): COLLECTIVE,
    ("converted", "permit not relinquished"): "no other CTA waits for columns",
    ("converted", "all warps store into the first quarter"): OWN_QUARTER,
    ("converted", "freed by another warp"): "any warp may free the columns (PTX ISA 9.7.16.7.1)",
    ("clusters", "no fence.mbarrier_init"): "barrier.cluster.arrive.release orders the initialisation by itself",
    ("split_k", "left half of the first quarter for all warps"): OWN_QUARTER,
    ("split_k", "no wait::ld behind the first load"): USED,
    ("split_k", "stores before wait::ld"): USED,
    ("split_k", "no fence::before and no barrier before dealloc"): "a barrier of all threads stands behind the loads",
}


def check(module: ModuleType, bug: str | None, schedule: str, seed: int) -> Any:
    """The verdict of `check` on a kernel with one bug, or without."""
    Planted.now = bug
    kernel, wanted = module.build(), module.expected(*module.arguments())

    def compare(*outputs: Any) -> None:
        np.testing.assert_allclose(np.asarray(outputs[-1], np.float64), wanted, rtol=1e-2, atol=1e-2)

    return check_emulated(kernel, kernel.program(), module.arguments(), compare, schedule=schedule, seed=seed,
                          machine=B200(module.SMS), max_steps=STEPS)  # fmt: skip


def names(checked: Any, severity: str) -> list[str]:
    return sorted({one.rule for one in checked.findings if one.severity == severity})


def judged(module: ModuleType, name: str, bug: str, own: set[str]) -> dict[str, Any]:
    """One bug's row. own: the warnings that the kernel itself has."""
    row: dict[str, Any] = {"kernel": name, "bug": bug}
    try:
        checked = check(module, bug, "lazy", 0)
    except WarploomError as error:  # the author is told while the kernel is built
        return row | {"outcome": "refused", "found": [type(error).__name__]}
    if errors := sorted({one.rule for one in checked.errors}):
        return row | {"outcome": "wrong result" if errors == ["wrong-result"] else "error", "found": errors}
    if reason := HARMLESS.get((name, bug)):
        return row | {"outcome": "harmless", "reason": reason}
    for schedule, seed in EXPLORED[1:]:
        if errors := sorted({one.rule for one in check(module, bug, schedule, seed).errors}):
            return row | {"outcome": "explored", "found": errors}
    new = sorted(set(names(checked, "warning")) - own)
    return row | {"outcome": "warned" if new else "missed", "found": new}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=KERNELS)
    given = parser.parse_args()
    rows = []
    for name in [given.only] if given.only else KERNELS:
        module = importlib.import_module(f"benchmarks.planted.blackwell.{name}")
        Planted.known, own = {}, set()
        for schedule, seed in SCHEDULES:
            checked = check(module, None, schedule, seed)
            if not checked.ok:
                sys.exit(f"{name} itself, {schedule} {seed}: {checked.text()}")
            own.update(names(checked, "warning"))
        for bug in list(Planted.known):
            rows.append(judged(module, name, bug, own))
            print(rows[-1], flush=True)
    counts = dict(sorted(Counter(row["outcome"] for row in rows).items()))
    print(counts)
    if given.json:
        command = f"python -m benchmarks.planted_blackwell_kernels --json {given.json}"
        given.json.write_text(json.dumps({"command": command, "counts": counts, "bugs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
