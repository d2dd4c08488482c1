"""Find which builds of free tiles keep loop state in per-lane registers, and how that correlates with their time.

    python -m benchmarks.uniform_code [--out benchmarks/results/emulator/uniform-code.json]

Descriptors of products and of TMA come from uniform registers. If ptxas cannot prove that all lanes of a warp agree, it
moves them there (R2UR) before every product, and puts a loop over the lanes (BRA.U.ANY) around every copy. A row is a
pair of configurations of `sweep-free-tile.json` that differ only in the number of consumers, two and one: whether the
build of each has such loops, and how much longer the first took on an H200. No GPU is used.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from functools import cache
from pathlib import Path
from typing import Any

from warploom.driver.compile import build as assembled
from warploom.driver.disassemble import sass
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_config import named
from warploom.lab import evidence

RESULTS = Path(__file__).resolve().parent / "results"
OUT = RESULTS / "emulator/uniform-code.json"
Row = dict[str, Any]


@cache
def loops_over_lanes(config: str) -> int:
    """The number of such instructions in the machine code of a configuration."""
    program = build(config=named(config)).program()
    made = assembled(program.text, name=program.entry, entry=program.entry, allow_spills=True)
    return sass(made.cubin, program.entry).count("BRA.U.ANY")


def rows() -> list[Row]:
    found = []
    for row in json.loads((RESULTS / "nvidia-h200/sweep-free-tile.json").read_text())["rows"]:
        for two, us in row["us"].items():
            one = re.sub(r"w2(?=k\d|_)", "", two)
            if one == two or one not in row["us"]:
                continue
            found.append({
                **{name: row[name] for name in ("m", "n", "k")}, "two": two, "one": one,
                "loops_two": loops_over_lanes(two), "loops_one": loops_over_lanes(one),
                "longer": round(us / row["us"][one] - 1, 4),
            })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found, head = rows(), evidence.header("uniform-code", gpu="emulator")
    for name, kept in (("with_loops", True), ("without", False)):
        mine = [row["longer"] for row in found if bool(row["loops_two"]) == kept]
        if mine:
            head[name] = {"pairs": len(mine), "median": round(statistics.median(mine), 4), "worst": max(mine)}
            print(name, head[name])
    evidence.write(options.out, head, found)


if __name__ == "__main__":
    main()
