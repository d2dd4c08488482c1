"""What the instruction that gives the warpgroup's index does to the machine code of free tiles, next to their times.

    python -m benchmarks.uniform_code [--out benchmarks/results/emulator/uniform-code.json]

Descriptors of products and of TMA come from uniform registers. If ptxas cannot prove that a value is the same in all
lanes of a warp, it moves the value there (R2UR) before every product. It proves it of the result of redux.sync, and not
always of that of shfl.sync. A row is a tile of `results/nvidia-h100/uniform-index.json`, which was timed with both: the
moves in its code with each, and the times. No GPU is used.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path
from typing import Any

from warploom.driver.compile import build as assembled
from warploom.driver.disassemble import sass
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.lab import evidence

RESULTS = Path(__file__).resolve().parent / "results"
TIMES, OUT = RESULTS / "nvidia-h100/uniform-index.json", RESULTS / "emulator/uniform-code.json"
Row = dict[str, Any]


def moves(text: str, entry: str) -> int:
    """The number of moves into uniform registers in the machine code."""
    return sass(assembled(text, name=entry, entry=entry, allow_spills=True).cubin, entry).count("R2UR")


def by_shuffle(text: str) -> str:
    """The text with the warpgroup's index by shfl.sync. Raises ValueError if it is not by redux.sync."""
    found, count = re.subn(
        r"redux\.sync\.max\.u32 (%r\d+), (%r\d+), -1;", r"shfl.sync.idx.b32 \1, \2, 0, 31, -1;", text, count=1
    )
    if not count:
        raise ValueError("the warpgroup's index is not reduced")
    return found


def rows() -> list[Row]:
    """One row per tile, with the moves in its code and the ratio of its times in each product."""
    times: dict[FreeTileConfig, list[float]] = {}
    for row in evidence.read(TIMES)["rows"]:
        config = any_config(row["config"])
        if isinstance(config, FreeTileConfig):
            times.setdefault(config, []).append(row["shfl_us"] / row["redux_elect_us"])
    found = []
    for config, ratios in times.items():
        program = build(config=config).program()
        found.append({
            "config": config.name(), "moves_shfl": moves(by_shuffle(program.text), program.entry),
            "moves_redux": moves(program.text, program.entry), "products": len(ratios),
            "faster": round(statistics.median(ratios) - 1, 4),
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found, head = rows(), evidence.header("uniform-code", gpu="emulator")
    for name in ("moves_shfl", "moves_redux"):
        head[name] = {"median": statistics.median(row[name] for row in found), "most": max(row[name] for row in found)}
        print(name, head[name])
    evidence.write(options.out, head, found)


if __name__ == "__main__":
    main()
