"""Tables of the package itself: cost of emulation, mutants, downloads, calls and first calls, and findings."""

from __future__ import annotations

from benchmarks.tables_rows import Result, mark, named

OUTCOMES = ("found", "equivalent", "missed")


def emulator_speed(result: Result) -> list[str]:
    lines = ["| what | median s | min - max | target s | peak MiB |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        seconds = row["seconds"]
        target = row.get("target_seconds", "")
        miss = " **missed**" if target and seconds["median"] > target else ""
        spread = f"{seconds['min']} - {seconds['max']}"
        what = row["what"] + (f", {row['ratio']} times as long as unchecked" if "ratio" in row else "")
        if "instructions" in row:
            what += f": {row['instructions']} instructions, {row['us_per_instruction']} us each"
        lines.append(f"| {what} | {seconds['median']}{miss} | {spread} | {target} | {row['peak_mib']} |")
    return lines


def mutant_zoo(result: Result) -> list[str]:
    total = result["total"]
    lines = ["| kernel | mutants | found | equivalent | missed |", "|---|---|---|---|---|"]
    for row in (*(row for row in result["rows"] if row["mutants"]), {"kernel": "**all**", **total}):
        judged = row["mutants"]
        if row.get("of", judged) != judged:
            judged = f"{judged} of {row['of']}"
        lines.append(f"| {row['kernel']} | {judged} | " + " | ".join(str(row[key]) for key in OUTCOMES) + " |")
    return lines


def mutant_kinds(result: Result) -> list[str]:
    lines = ["| mutation | mutants | found | equivalent | missed |", "|---|---|---|---|---|"]
    for kind in sorted({kind for row in result["rows"] for kind in row["kinds"]}):
        count = [sum(row["kinds"].get(kind, {}).get(outcome, 0) for row in result["rows"]) for outcome in OUTCOMES]
        lines.append(f"| {kind} | {sum(count)} | " + " | ".join(map(str, count)) + " |")
    return lines


def download_size(result: Result) -> list[str]:
    rows = [f"| `{row['command']}` | {row['megabytes']} |" for row in result["rows"] if "," not in row["command"]]
    return ["| command | MB |", "|---|---|", *rows]


def host_time(result: Result) -> list[str]:
    """The host cost of a call: ours, and the others'."""
    lines = ["| M x N x K | call | median us | min - max | times as fast as |", "|---|---|---|---|---|"]
    name = named(result["rows"])
    for row in result["rows"]:
        spread, stale = row["us"], mark([row]) if row["provider"].startswith("warploom") else ""
        others = {other: ratio for other, ratio in row["ratio_to"].items() if other != row["provider"]}
        ratios = ", ".join(f"{other} {ratio:.2f}" for other, ratio in others.items())
        cells = [name(row) + stale, row["provider"], spread["median"], f"{spread['min']} - {spread['max']}", ratios]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def eager_call(result: Result) -> list[str]:
    eager = result["eager_us"]
    lines = ["| call | median us | min - max |", "|---|---|---|"]
    lines += [f"| {name} | {f['median']} | {f['min']} - {f['max']} |" for name, f in eager["figures"].items()]
    lines.append(f"| first call with a set of buffers | {eager['miss_us']} | |")
    lines.append(f"| kernel call, out=, over torch.mm(out=) | {eager['ratio_to_torch_mm_out']} | target 0.6 |")
    return lines


def first_call(result: Result) -> list[str]:
    lines = ["| M x N x K | import, ms | first call, ms | together, ms | min - max |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        parts = [str(row[f"{part}_ms"]["median"]) for part in ("import", "call", "together")]
        both = row["together_ms"]
        lines.append(f"| {' x '.join(str(row[key]) for key in 'mnk')} | {' | '.join(parts)} "
                     f"| {both['min']} - {both['max']} |")  # fmt: skip
    return lines


PARTS = {
    "cold": "an empty cache, one call after the other", "warm": "`warploom warm`, {workers} processes",
    "warmed": "after it, in a new process",
}  # fmt: skip


def first_use(result: Result) -> list[str]:
    """The first calls of a model's products: cold, built in advance, and after that."""
    lines = [
        "| part | products | kernels | seconds | choices, s | median, ms | longest, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        each = row.get("each_s", {})
        choices = row.get("choices_s", "")
        times = [f"{each[which] * 1e3:.0f}" if each else "" for which in ("median", "max")]
        cells = [PARTS[row["part"]].format(**row), row["products"], row["kernels"], row["seconds"], choices, *times]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines
