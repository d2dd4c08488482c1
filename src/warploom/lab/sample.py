"""The suite `sample`: products that were never tuned, drawn from a catalogue of public models, and their summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ArgumentError
from ..plural import counted
from . import catalogue
from .plans import Plan
from .suites import Suite
from .work import SCALES, GemmWork, Work

NAME = "sample"
LOSS = 0.985
"""A ratio below this is a loss; closer to 1 is within the timing's own spread."""
WORST = 10
ROWS = {"1-32": (1, 32), "33-128": (33, 128), "129-512": (129, 512), "above 512": (513, catalogue.MOST_SIZE)}
"""Rows of A by which the ratios are also grouped. A weight gradient has as many as the layer has outputs."""
DTYPES = ("bf16", "f16", "e4m3")
_AGAINST = {"": "cublas", "tensor": "scaled-mm", "row": "scaled-mm-row", "block128": "scaled-mm-block"}


def suite(
    seed: int = 0, count: int = 200, dtype: str = "bf16", scales: str = "", layouts: Sequence[str] = ("forward",)
) -> Suite:
    """Draw `count` products with a seed.

    scales: for eight-bit operands, by default "tensor". Raises ArgumentError for anything that cannot be drawn.
    """
    if dtype not in DTYPES:
        raise ArgumentError(f"there is no sample for {dtype!r}", expected=", ".join(DTYPES), got=repr(dtype))
    eight = dtype == "e4m3"
    scales = scales or ("tensor" if eight else "")
    if scales not in SCALES or bool(scales) != eight:
        raise ArgumentError(f"a sample of {dtype} does not support these scales", got=repr(scales),
                            expected=", ".join(filter(None, SCALES)) if eight else "none")  # fmt: skip
    if eight and tuple(layouts) != ("forward",):
        raise ArgumentError("eight-bit operands must be contiguous in k", expected="forward", got=", ".join(layouts))
    like = GemmWork(1, 1, 1, dtype=dtype, scales=scales)
    problems = catalogue.draw(seed, count, like=like, layouts=layouts)
    return Suite(NAME, f"sample-{'fp8' if eight else dtype}", problems, (_AGAINST[scales],))


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summary of our rows' ratios against each contender: all of them, by number of rows, and the ten worst."""
    mine = [row for row in rows if row["provider"].startswith("warploom")]
    others = dict.fromkeys(other for row in mine for other in row["ratio_to"])
    return [_against(other, [row for row in mine if other in row["ratio_to"]], rows) for other in others]


def _against(other: str, mine: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    theirs = {_problem(row): row for row in rows if row["provider"] == other}
    bands = {
        name: _figures([row["ratio_to"][other] for row in band])
        for name, (least, most) in ROWS.items()
        if (band := [row for row in mine if least <= row["m"] <= most])
    }
    worst = sorted(mine, key=lambda row: row["ratio_to"][other])[:WORST]
    return {
        "against": other, **_figures([row["ratio_to"][other] for row in mine]), "by_rows": bands,
        "worst": [
            {"problem": "x".join(str(row[size]) for size in "mnk") + f" {row['layout']}",
             "ratio": row["ratio_to"][other], "ours": f"{row['kernel']} {row['config']}".strip(),
             "theirs": ", ".join(theirs.get(_problem(row), {}).get("device_kernels", ())) or "?"}
            for row in worst
        ],
    }  # fmt: skip


def remaining(plan: Plan, seed: int, rows: Sequence[Mapping[str, Any]]) -> Plan:
    """The plan of a sample without the problems that rows of earlier runs with the same seed cover completely: ours
    under every protocol. Earlier failures are tried again."""
    told = {(_problem(row), row["provider"]) for row in rows if row.get("seed") == seed}
    ours = [contender.name for contender in plan.contenders if contender.name.startswith("warploom")]

    def measured(problem: Work) -> bool:
        each = [{**problem.as_dict(), "protocol": protocol} for protocol in plan.protocols]
        return all((_problem(row), name) in told for row in each for name in ours)

    missing = tuple(problem for problem in plan.problems if not measured(problem))
    return replace(plan, problems=missing, device_kernels=True, also={"seed": seed})


def _problem(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name, "") for name in ("m", "n", "k", "dtype", "scales", "layout", "protocol"))


def _figures(ratios: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(ratios), "geomean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 4),
        "least": min(ratios), "losses": round(sum(ratio < LOSS for ratio in ratios) / len(ratios), 4),
    }  # fmt: skip


def lines(found: Mapping[str, Any]) -> list[str]:
    """One entry of `summary`, as lines of text."""
    told = [_line(f"{found['count']} products", found, found["against"])]
    told += [
        _line(f"  {counted(rows, 'row')}, {figures['count']}", figures, "")
        for rows, figures in found["by_rows"].items()
    ]
    told.append("  the worst")
    told += [f"    {each['ratio']:.3f} {each['problem']}: {each['ours']} against {each['theirs']}"
             for each in found["worst"]]  # fmt: skip
    return told


def _line(what: str, figures: Mapping[str, Any], against: str) -> str:
    of = f" of {against}" if against else ""
    return (f"{what}: geometric mean {figures['geomean']:.3f}{of}, least {figures['least']:.3f}, "
            f"{figures['losses']:.1%} below {LOSS}")  # fmt: skip
