"""The table of choices that ships with the package: what to time, and what to keep of it.

    python -m benchmarks.shipped_choices products --out products.json
    python -m benchmarks.sweep_free_tile --products products.json --forms --most 10 --alone 0.6 --out FOLDER ...
    python -m benchmarks.shipped_choices table SWEEP.json ...

`products` writes the products of the present table and of the suites, each with its shipped configuration. The sweep
times that one, the model's first ones and cuBLAS, interleaved and alone. `table` keeps an entry only where the fastest
is faster than the model's first by more than `WORTH`, as the mean of both protocols: elsewhere the model suffices. If a
new fit's first is one that the sweep has not timed, the fastest is kept, too, without `of_model`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.sweep_free_tile import CUBLAS, LIBRARY
from warploom.errors import WarploomError
from warploom.kernels.hopper.names import any_config
from warploom.lab.suites import SUITES
from warploom.lab.work import GemmWork
from warploom.operators.families import to_text
from warploom.operators.select import ranking
from warploom.operators.tuned import SHIPPED, key_of, replace_file

TABLE = SHIPPED / "nvidia-h200.json"
WORTH = 0.005
"""Least gain over the model's first configuration for which an entry is kept."""
OF_SUITES = ("llm", "small-k", "square")
KEY = re.compile(r"(\d+)x(\d+)x(\d+) (\w+) x \w+ -> \w+, tn(?:, fused: (tensor|row) scales)?")


def work_of(key: str) -> GemmWork:
    """The product of an entry's key."""
    found = KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"an entry of a product that this does not time: {key}")
    m, n, k, dtype, scales = found.groups()
    return GemmWork(int(m), int(n), int(k), dtype=dtype, scales=scales or "")


def products() -> list[dict[str, Any]]:
    """Those of the table and of the suites, with the shipped configurations."""
    rows = json.loads(TABLE.read_text())["choices"]
    found = {work_of(key): [row["config"]] for key, row in rows.items()}
    for name in OF_SUITES:
        for work in SUITES[name].problems:
            if isinstance(work, GemmWork):
                found.setdefault(work, [])
    return [{**work.as_dict(), "configs": configs} for work, configs in found.items()]


def gain(point: Mapping[str, Any], best: str, first: str) -> float:
    """How many times as fast one configuration is as another: the geometric mean of the protocols in which both were
    timed; by the short slices of all candidates if they were not timed otherwise."""
    both = [times for times in (point["final_us"], point.get("alone_us", {})) if {best, first} <= times.keys()]
    ratios = [times[first] / times[best] for times in both or [point["us"]]]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def table(points: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that are worth keeping, each with its ratio to cuBLAS by protocol."""
    kept = {}
    for point in points:
        work = GemmWork.of_row(point)
        first = ranking(work.posed)[0][0].name()
        known = first in point["us"]
        best = max((name for name in point["final_us"] if name != CUBLAS), key=lambda name: gain(point, name, CUBLAS))
        if known and gain(point, best, first) <= 1 + WORTH:
            continue
        protocols = {"interleaved": point["final_us"], "alone": point["alone_us"]}
        kept[key_of(work.posed)] = {
            "config": to_text(any_config(point["library"] if best == LIBRARY else best)),
            "of_cublas": {name: round(times[CUBLAS] / times[best], 4) for name, times in protocols.items()},
            **({"of_model": round(gain(point, best, first), 4)} if known else {}),
        }
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("products")
    write.add_argument("--out", type=Path, required=True)
    keep = commands.add_parser("table")
    keep.add_argument("sweeps", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "products":
        options.out.write_text(json.dumps(products(), indent=1))
        return
    points = [point for path in options.sweeps for point in json.loads(path.read_text())["rows"]]
    before = json.loads(TABLE.read_text())
    choices = table(points)
    replace_file(TABLE, {**before, "choices": choices})
    unknown = sum("of_model" not in entry for entry in choices.values())
    print(f"{len(choices)} of {len(points)} products keep an entry; there were {len(before['choices'])}")
    print(f"of {unknown} of them the sweep has not timed the model's first configuration: time them again")


if __name__ == "__main__":
    try:
        main()
    except (WarploomError, OSError, ValueError) as failure:
        sys.exit(f"{type(failure).__name__}: {failure}")
