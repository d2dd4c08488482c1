"""Call attention's operators with random options, lengths, memory layouts and data, and compare with float64.

    python -m benchmarks.attention_random [--seed 0] [--seconds 60] [--calls 6] [--only decode,backward] [--device cuda]
                                          [--size large] [--json FILE]

A line for each call that is wrong, or fails without an error of the package; then the number of calls and of refusals.
A call is repeated by its number: `--seed` with `--first` and `--most`. On a CPU, calls run in the emulator.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.attention_random_arrays import Draw
from benchmarks.attention_random_calls import FAMILIES, Setting, setting, wrong
from warploom.errors import CopyWarning, WarploomError
from warploom.settings import config

LONGEST_S = 1e3
"""Estimated time of an emulated call."""


def one(seed: int, number: int, device: str, size: str, calls: int, families: tuple[str, ...]) -> list[dict[str, Any]]:
    """The calls of one setting: of each what was drawn, and what is `wrong`, `refused` or `raised`."""
    first = Draw(seed * 100_003 + number, device, size)
    of = setting(first, families[number % len(families)])
    rows = []
    for call in range(calls):
        drawn: Setting = dict(of)
        row: dict[str, Any] = {"seed": seed, "number": number, "call": call, "of": drawn}
        try:
            with config.override(emulator={"limit_s": LONGEST_S}):
                row["wrong"] = wrong(Draw((seed * 100_003 + number) * 1009 + call + 1, device, size), drawn)
        except WarploomError as error:
            row["refused"] = f"{error.code}: {str(error)[:300]}"
        except Exception as error:  # noqa: BLE001 - what is looked for
            row["raised"] = f"{type(error).__name__}: {str(error)[:300]}"
            row["where"] = traceback.format_exc()[-1500:]
        rows.append(row)
        if "CUDA error" in row.get("raised", "") or row.get("refused", "").startswith("driver"):
            break  # the context is lost
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=0, help="number of the first setting")
    parser.add_argument("--most", type=int, default=1 << 30, help="settings")
    parser.add_argument("--calls", type=int, default=6, help="calls of each setting")
    parser.add_argument("--only", default=",".join(FAMILIES), help="kinds of calls")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="large", choices=("small", "large"))
    parser.add_argument("--json", type=Path, help="a file for the rows of calls that are not right")
    options = parser.parse_args()
    warnings.simplefilter("ignore", CopyWarning)
    end, counts, bad = time.monotonic() + options.seconds, Counter[str](), []
    for number in range(options.first, options.first + options.most):
        if time.monotonic() > end:
            break
        for row in one(options.seed, number, options.device, options.size, options.calls,
                       tuple(options.only.split(","))):  # fmt: skip
            outcome = next((name for name in ("refused", "raised", "wrong") if row.get(name)), "right")
            counts[f"{row['of']['family']} {outcome}"] += 1
            if outcome != "right":
                bad.append(row)
                print(json.dumps(row, default=str), flush=True)
                if options.json is not None:
                    options.json.write_text(json.dumps(bad, default=str, indent=1))
    print(json.dumps({"seed": options.seed, "next": number, "counts": dict(sorted(counts.items()))}), flush=True)


if __name__ == "__main__":
    main()
