"""Put the figures of benchmarks/results into docs and README.md, behind their markers; docs/ladder by `book`.

    python benchmarks/render.py [--check]        --check: exit 1 if a document differs, write nothing

In the README a row whose kernel has another text by now is marked as stale: figures there are of what ships.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]  # the package of this checkout; its book

import book  # noqa: E402

from warploom.kernels.ladder import find  # noqa: E402
from warploom.lab import climb, staleness  # noqa: E402
from warploom.lab.bench import geomean  # noqa: E402


def emulator_speed(result: dict[str, Any]) -> list[str]:
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


def mutant_zoo(result: dict[str, Any]) -> list[str]:
    total = result["total"]
    lines = ["| kernel | mutants | found | equivalent | missed |", "|---|---|---|---|---|"]
    for row in (*(row for row in result["rows"] if row["mutants"]), {"kernel": "**all**", **total}):
        judged = row["mutants"]
        if row.get("of", judged) != judged:
            judged = f"{judged} of {row['of']}"
        lines.append(f"| {row['kernel']} | {judged} | " + " | ".join(str(row[key]) for key in OUTCOMES) + " |")
    return lines


def mutant_kinds(result: dict[str, Any]) -> list[str]:
    lines = ["| mutation | mutants | found | equivalent | missed |", "|---|---|---|---|---|"]
    for kind in sorted({kind for row in result["rows"] for kind in row["kinds"]}):
        count = [sum(row["kinds"].get(kind, {}).get(outcome, 0) for row in result["rows"]) for outcome in OUTCOMES]
        lines.append(f"| {kind} | {sum(count)} | " + " | ".join(map(str, count)) + " |")
    return lines


def sweep(result: dict[str, Any]) -> list[str]:
    """The best configuration of each shape alone and interleaved, and how the plain 128 x 256 one does there."""
    lines = ["| M x N x K | best alone | of torch.mm | best interleaved | of torch.mm |", "|---|---|---|---|---|"]
    shapes = dict.fromkeys((row["m"], row["n"], row["k"]) for row in result["rows"])
    for shape in shapes:
        cells = []
        for protocol in ("alone", "interleaved"):
            rows = [
                row for row in result["rows"]
                if (row["m"], row["n"], row["k"]) == shape and row["protocol"] == protocol and "ptx_sha256" in row
            ]  # fmt: skip
            best = max(rows, key=lambda row: row["ratio_to"]["cublas"], default=None)
            cells += ["", ""] if best is None else [best["kernel"], str(best["ratio_to"]["cublas"])]
        lines.append(f"| {' x '.join(map(str, shape))} | {' | '.join(cells)} |")
    return lines


def remote_arrival(result: dict[str, Any]) -> list[str]:
    lines = ["| M = N, K | arrival on `empty` of the other CTA | TFLOP/s | of relaxed |", "|---|---|---|---|"]
    for row in result["rows"]:
        ratio = row["ratio_to"]["relaxed.cluster"]
        lines.append(f"| {row['m']}, {row['k']} | {row['arrival']} | {row['tflops']['median']} | {ratio} |")
    return lines


SHOWN_EXTENTS = (4, 5, 7, 8, 9, 13, 16, 29, 57, 77)


def tensor_store_edges(result: dict[str, Any]) -> list[str]:
    """A line for each operation and type: the last column for some extents, and for how many it is whole 16 bytes."""
    names = [f"extent {extent}" for extent in SHOWN_EXTENTS]
    lines = [f"| last column | {' | '.join(names)} | measured | whole 16 bytes | exact |"]
    lines.append("|" + "---|" * (len(names) + 4))
    for operation, dtype in dict.fromkeys((row["operation"], row["dtype"]) for row in result["rows"]):
        rows = [row for row in result["rows"] if (row["operation"], row["dtype"]) == (operation, dtype)]
        piece = {"f32": 4, "bf16": 8, "e4m3": 16}[dtype]
        last = {row["extent"]: row["last_column"] for row in rows if row["all_of_them"]}
        pieces = sum(column == -(-extent // piece) * piece - 1 for extent, column in last.items())
        exact = sum(column == extent - 1 for extent, column in last.items())
        cells = [str(last.get(extent, "other")) for extent in SHOWN_EXTENTS]
        lines.append(f"| {operation}, {dtype} | {' | '.join(cells)} | {len(rows)} | {pieces} | {exact} |")
    return lines


OUTCOMES = ("found", "equivalent", "missed")


def download_size(result: dict[str, Any]) -> list[str]:
    rows = [f"| `{row['command']}` | {row['megabytes']} |" for row in result["rows"] if "," not in row["command"]]
    return ["| command | MB |", "|---|---|", *rows]


def first_light(result: dict[str, Any]) -> list[str]:
    lines = ["| kernel | protocol | TFLOP/s | min - max | of torch.mm | relative error |", "|---|---|---|---|---|---|"]
    for row in result["rows"]:
        speed = row["tflops"]
        lines.append(
            f"| {row['kernel']} | {row['protocol']} | {speed['median']} | {speed['min']} - {speed['max']} "
            f"| {row['ratio_to']['cublas']} | {row['relative_error']:.2e} |"
        )
    return lines


def eager_call(result: dict[str, Any]) -> list[str]:
    eager = result["eager_us"]
    lines = ["| call | median us | min - max |", "|---|---|---|"]
    lines += [f"| {name} | {f['median']} | {f['min']} - {f['max']} |" for name, f in eager["figures"].items()]
    lines.append(f"| first call with a set of buffers | {eager['miss_us']} | |")
    lines.append(f"| kernel call, out=, over torch.mm(out=) | {eager['ratio_to_torch_mm_out']} | target 0.6 |")
    return lines


def rungs_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of our rungs from the bottom up, whenever they were measured."""
    return sorted((row for row in result["rows"] if row["provider"] == "warploom"), key=lambda row: row["kernel"])


def ladder(result: dict[str, Any]) -> list[str]:
    """The whole ladder, both protocols; for docs/measured-facts.md."""
    lines = [
        "| rung | registers | TFLOP/s alone | of torch.mm | interleaved | of torch.mm |",
        "|---|---|---|---|---|---|",
    ]
    ours = rungs_of(result)
    for row in (row for row in ours if row["protocol"] == "alone"):
        other = next(r for r in ours if r["kernel"] == row["kernel"] and r["protocol"] == "interleaved")
        speeds = [f"{r['tflops']['median']} | {r['ratio_to']['cublas']}" for r in (row, other)]
        lines.append(f"| {row['kernel']} ({row['dtype']}) | {row['registers']} | {' | '.join(speeds)} |")
    return lines


# -- README --------------------------------------------------------------------------------------------------------

STALE = " (stale)"
"""Marks a row whose kernel has another text now; `warploom evidence` names the reason."""


def mark(rows: Iterable[dict[str, Any]]) -> str:
    """STALE where any of the rows is of a text that the package does not make any more."""
    return STALE if any(staleness.judge(row)[0] for row in rows) else ""


def ladder_short(result: dict[str, Any]) -> list[str]:
    """One line for each rung, each alone, beside the seed's figure."""
    ours = [row for row in rungs_of(result) if row["protocol"] == "alone"]
    size = ours[0]["m"]
    lines = [
        f"| rung | TFLOP/s at {size} x {size} x {size} | of cuBLAS | of the peak at its clock | gain | seed |",
        "|---|---|---|---|---|---|",
    ]
    for row in climb.with_gains([{"rung": find(row["kernel"]).number, **row} for row in ours], "tflops"):
        rung = find(row["kernel"])
        share = f"{row['tensor_activity']:.0%}" if "tensor_activity" in row else ""
        gain = f"{row['gain']:.2f}" if "gain" in row else ""
        seed = f"{rung.seed.tflops:g} ({rung.seed.gpu}, {rung.seed.size})" if rung.seed else ""
        lines.append(
            f"| {rung.number} {rung.idea}{mark([row])} | {row['tflops']['median']:.1f} "
            f"| {row['ratio_to']['cublas']:.3f} | {share} | {gain} | {seed} |"
        )
    return lines


PROTOCOLS = ("alone", "interleaved", "burst")


def kinds(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """What tells a row's kind of problem from the others of its file: type, kind and scales, where they differ."""
    several = {key for key in ("dtype", "kind", "scales") if len({row.get(key, "") for row in rows}) > 1}

    return lambda row: " ".join(str(row[key]) for key in ("dtype", "kind", "scales") if key in several and row.get(key))


def named(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """What calls a row's problem: its sizes, and what else tells the problems of a file apart."""
    kind = kinds(rows)

    def name(row: dict[str, Any]) -> str:
        words = [kind(row)] if kind(row) else []
        if "rows" in row:
            words.append(f"{len(row['rows'])} experts" + (", skewed" if len(set(row["rows"])) > 1 else ""))
        return " ".join([" x ".join(str(row[key]) for key in "mnk"), *words])

    return name


def comparison(result: dict[str, Any]) -> list[str]:
    """A line for each problem: TFLOP/s alone (or under the first protocol there is), ratios under each, the others."""
    rows = result["rows"]
    protocols = [name for name in PROTOCOLS if any(row["protocol"] == name for row in rows)]
    first = protocols[0]
    providers = list(dict.fromkeys(row["provider"] for row in rows))
    others = [name for name in providers if not name.startswith("warploom")]
    base, several = others[0], len(providers) - len(others) > 1
    mine = [row for row in rows if row["provider"] not in others]
    timed = {name: [p for p in protocols if any(row["protocol"] == p and name in row["ratio_to"] for row in mine)]
             for name in others[1:]}  # fmt: skip
    rest = [(name, under[0]) for name, under in timed.items() if under]
    head = ["M x N x K", "kernel", f"TFLOP/s, {first}", f"{base}", *(f"of {base}, {name}" for name in protocols)]
    head += [f"of {name}, {protocol}" for name, protocol in rest]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    factors: dict[str, dict[int, list[float]]] = {}
    name, kind = named(rows), kinds(rows)
    here = {(name(row), row["provider"], row["protocol"]): row for row in rows}
    for problem, ours in dict.fromkeys((name(row), row["provider"]) for row in rows if row["provider"] not in others):
        best, theirs = here.get((problem, ours, first)), here.get((problem, base, first))
        under = {protocol: here.get((problem, ours, protocol)) for protocol in protocols}
        found = [row for row in under.values() if row]
        pinned = f", {ours.partition(':')[2]}" if several and ":" in ours else ""
        cells = [problem + mark(found), (best or found[0])["config"] + pinned]
        speeds = [row["tflops"]["median"] if row else None for row in (best, theirs)]
        cells += ["" if speed is None else f"{speed:.{0 if speed >= 100 else 1}f}" for speed in speeds]
        group = factors.setdefault(kind(found[0]) + pinned, {})
        ratios = [(under[protocol] or {}).get("ratio_to", {}).get(base) for protocol in protocols]
        ratios += [(under[protocol] or {}).get("ratio_to", {}).get(other) for other, protocol in rest]
        for column, ratio in enumerate(ratios):
            cells.append("" if ratio is None else f"{ratio:.3f}")
            if ratio is not None:
                group.setdefault(column, []).append(ratio)
        lines.append(f"| {' | '.join(cells)} |")
    for group_name, columns in factors.items():  # a mean over types or scales would say nothing
        means = [f"{geomean(columns[at]):.3f}" if at in columns else "" for at in range(len(head) - 4)]
        title = " ".join(["geometric mean", group_name.removeprefix(", ")]).strip()
        lines.append(f"| {title} | | | | {' | '.join(means)} |")
    return lines


def host_time(result: dict[str, Any]) -> list[str]:
    """What a call costs the host: ours, and the others'."""
    lines = ["| M x N x K | call | median us | min - max | times as fast as |", "|---|---|---|---|---|"]
    name = named(result["rows"])
    for row in result["rows"]:
        spread, stale = row["us"], mark([row]) if row["provider"].startswith("warploom") else ""
        others = {other: ratio for other, ratio in row["ratio_to"].items() if other != row["provider"]}
        ratios = ", ".join(f"{other} {ratio:.2f}" for other, ratio in others.items())
        cells = [name(row) + stale, row["provider"], spread["median"], f"{spread['min']} - {spread['max']}", ratios]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def launch_ways(result: dict[str, Any]) -> list[str]:
    """Microseconds of a product in a chain of them, by the way it is launched, and cuBLAS by the same way."""
    ways = ("stream", "pdl", "graph", "pdl+graph")
    head = ["M x N x K", "kernel", *(f"{way}, us" for way in ways), "cublas by stream, graph, us",
            *(f"of cublas, {way}" for way in ways)]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    name = named(result["rows"])
    here = {(name(row), row["provider"], row["launch"]): row for row in result["rows"]}
    for problem in dict.fromkeys(name(row) for row in result["rows"]):
        ours = [here[problem, "warploom", way] for way in ways]
        theirs = [here[problem, "cublas", way]["us"]["median"] for way in ("stream", "graph")]
        cells = [problem + mark(ours), ours[1]["config"], *(f"{row['us']['median']:.1f}" for row in ours)]
        cells += [", ".join(f"{each:.1f}" for each in theirs), *(f"{row['ratio_to']['cublas']:.3f}" for row in ours)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def first_call(result: dict[str, Any]) -> list[str]:
    lines = ["| M x N x K | import, ms | first call, ms | together, ms | min - max |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        parts = [str(row[f"{part}_ms"]["median"]) for part in ("import", "call", "together")]
        both = row["together_ms"]
        lines.append(f"| {' x '.join(str(row[key]) for key in 'mnk')} | {' | '.join(parts)} "
                     f"| {both['min']} - {both['max']} |")  # fmt: skip
    return lines


def llama_block(result: dict[str, Any]) -> list[str]:
    """Tokens a second of both models, as they are launched."""
    lines = ["| phase | torch, eager | warploom, eager | ratio | torch, graph | warploom, graph | ratio |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in result["rows"]:
        cells = [row["phase"]]
        for way in ("eager", "graph"):
            theirs, ours = row[f"torch_{way}"], row[f"warploom_{way}"]
            cells += [f"{theirs:,.0f}", f"{ours:,.0f}", f"{ours / theirs:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def energy(result: dict[str, Any]) -> list[str]:
    """What a product costs alone, under the power limit: ours and cuBLAS's."""
    head = ["kernel", "M x N x K", "TFLOP/s", "W", "pJ per FLOP", "MHz inside", "tensor cores busy",
            "cuBLAS, TFLOP/s", "W", "pJ per FLOP"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    alone = [row for row in result["rows"] if row["protocol"] == "alone"]
    ours = [row for row in alone if row["provider"] == "warploom"]
    others = [row for row in alone if row["provider"] == "cublas"]
    for at, row in enumerate(ours):
        same = [other for other in others if all(other[key] == row[key] for key in "mnk")]
        other = others[at] if len(others) == len(ours) else same[0]  # a rung has its own beside it
        sizes = " x ".join(str(row[key]) for key in "mnk")
        what = row["kernel"] if row.get("config", "") in ("", "its own") else row["config"]
        cells = [what, sizes, f"{row['tflops']['median']:.0f}", f"{row['power_w']:.0f}", f"{row['pj_per_flop']:.3f}",
                 f"{row['kernel_clock_mhz']:.0f}", f"{row['tensor_activity']:.0%}", f"{other['tflops']['median']:.0f}",
                 f"{other['power_w']:.0f}", f"{other['pj_per_flop']:.3f}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def few_rows(result: dict[str, Any]) -> list[str]:
    """For each product the small-M kernel and the best tile of a large one, without and with constant weights."""
    lines = ["| M x N x K | small-M kernel, of cublas | constant weights | tile of D | of cublas | constant weights |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    ours = [row for row in result["rows"] if row["provider"].startswith("warploom")]
    for sizes in sorted({(row["n"], row["k"], -row["m"]) for row in ours if row["m"] <= 128}):
        here = [row for row in ours if (row["n"], row["k"], -row["m"]) == sizes]
        best: dict[tuple[bool, bool], dict[str, Any]] = {}
        for row in here:
            kind = row["config"].startswith("n"), "_cw" in row["config"]
            if kind not in best or row["ratio_to"]["cublas"] > best[kind]["ratio_to"]["cublas"]:
                best[kind] = row
        cells = [" x ".join(str(here[0][key]) for key in "mnk")]
        for small in (True, False):
            if not small:
                large = best.get((False, False)) or best.get((False, True))
                cells.append(
                    "" if large is None else large["config"].split("_")[1].rpartition("x")[0].replace("x", " x ")
                )
            for promise in (False, True):
                row = best.get((small, promise))
                cells.append("" if row is None else f"{row['ratio_to']['cublas']:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def reference_texts(result: dict[str, Any]) -> list[str]:
    """Each text that ran rightly, alone; our kernel of the same idea beside it, and what matmul runs there."""
    head = ["text", "M x N x K", "us", "TFLOP/s", "pJ per FLOP", "ours of the same idea", "alone, of the text",
            "interleaved", "pJ per FLOP", "chosen by matmul", "alone, of the text", "interleaved"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    here: dict[tuple[Any, ...], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in result["rows"]:
        here.setdefault((row["text"], *(row[key] for key in "mnk")), {})[row["provider"], row["protocol"]] = row
    found: dict[str, list[float]] = {"alone": [], "interleaved": []}

    def ours(rows: dict[tuple[str, str], dict[str, Any]], name: str, otherwise: str) -> list[str]:
        """Configuration and ratios of one of ours."""
        if (name, "alone") not in rows:
            return [otherwise, "", ""]
        both = {protocol: rows[name, protocol]["ratio_to"]["reference"] for protocol in found}
        if name == "warploom:same-idea":
            for protocol, ratio in both.items():
                found[protocol].append(ratio)
        row = rows[name, "alone"]
        return [row["config"] + launched(row), *(f"{ratio:.3f}" for ratio in both.values())]

    for (text, *sizes), rows in here.items():
        theirs = rows.get(("reference", "alone"))
        if theirs is None:
            continue
        cells = [text + launched(theirs), " x ".join(map(str, sizes)), f"{theirs['us']['median']:.1f}",
                 f"{theirs['tflops']['median']:.0f}", joules(theirs)]  # fmt: skip
        cells += ours(rows, "warploom:same-idea", "") + [joules(rows.get(("warploom:same-idea", "alone"), {}))]
        cells += ours(rows, "warploom:chosen", "the same")
        lines.append(f"| {' | '.join(cells)} |")
    if all(found.values()):
        least = [f"{min(ratios):.3f}" for ratios in found.values()]
        lines.append(f"| least | | | | | | {' | '.join(least)} | | | | |")
    return lines


def launched(row: dict[str, Any]) -> str:
    """A word where a kernel is launched while the one before it ends."""
    return ", dependent" if row["pdl"] else ""


def joules(row: dict[str, Any]) -> str:
    """pJ per FLOP, where power was read."""
    return f"{row['pj_per_flop']:.3f}" if "pj_per_flop" in row else ""


MISSING = "Not measured yet.\n"
H200 = RESULTS / "nvidia-h200"
FACTS, README = ROOT / "docs" / "measured-facts.md", ROOT / "README.md"
TABLES = {
    FACTS: {
        "ladder": (ladder, H200 / "ladder.json"),
        "ladder-zeros": (energy, H200 / "ladder-zeros.json"),
        "ladder-4096": (energy, H200 / "ladder-4096.json"),
        "few-rows": (few_rows, H200 / "few-rows.json"),
        "energy-square": (energy, H200 / "square-bf16.json"),
        "energy-llm": (energy, H200 / "llm-bf16.json"),
        "first-light": (first_light, H200 / "first-light.json"),
        "eager-call": (eager_call, H200 / "first-light.json"),
        "sweep-bf16": (sweep, H200 / "sweep-bf16.json"),
        "reference-texts": (reference_texts, H200 / "reference-texts.json"),
        "remote-arrival": (remote_arrival, H200 / "remote-arrival.json"),
        "tensor-store-edges": (tensor_store_edges, H200 / "tensor-store-edges.json"),
        "emulator-speed": (emulator_speed, RESULTS / "cpu-x86_64-2-cores" / "emulator-speed.json"),
        "mutant-zoo": (mutant_zoo, RESULTS / "cpu-x86_64-2-cores" / "mutant-zoo.json"),
        "mutant-kinds": (mutant_kinds, RESULTS / "cpu-x86_64-2-cores" / "mutant-zoo.json"),
        "download-size": (download_size, RESULTS / "download_size.json"),
    },
    README: {
        "ladder": (ladder_short, H200 / "ladder.json"),
        "square-bf16": (comparison, H200 / "square-bf16.json"),
        "llm-bf16": (comparison, H200 / "llm-bf16.json"),
        "small-k-bf16": (comparison, H200 / "small-k-bf16.json"),
        "fp8": (comparison, H200 / "fp8.json"),
        "fused": (comparison, H200 / "fused.json"),
        "grouped": (comparison, H200 / "grouped.json"),
        "decode": (comparison, H200 / "decode.json"),
        "launch": (launch_ways, H200 / "launch.json"),
        "overhead": (host_time, H200 / "overhead.json"),
        "first-call": (first_call, H200 / "first-call.json"),
        "llama-block": (llama_block, H200 / "llama-block.json"),
        "download-size": (download_size, RESULTS / "download_size.json"),
    },
}


def rendered(text: str, tables: dict[str, tuple[Callable[[dict[str, Any]], list[str]], Path]]) -> str:
    """The document with each marked table made anew; where its file is not there, it says so."""
    for name, (table, path) in tables.items():
        marker = f"<!-- {name} -->"
        if marker not in text:
            continue
        body = "".join(f"{line}\n" for line in table(json.loads(path.read_text()))) if path.exists() else MISSING
        # A table stands right behind its marker; it ends where its lines do.
        table_there = re.escape(marker) + rf"\n(?:\|[^\n]*\n|{re.escape(MISSING)})*"
        text = re.sub(table_there, lambda _, new=f"{marker}\n{body}": new, text)
    return text


def says_less(text: str, new: str) -> bool:
    """Whether a document shows other figures than `new`, or a stale row that is not marked as one.

    A mark too many is no lie: the row was measured with a text that the package did not make for a while.
    """
    old_lines, new_lines = text.splitlines(), new.splitlines()
    if [line.replace(STALE, "") for line in old_lines] != [line.replace(STALE, "") for line in new_lines]:
        return True
    return any(STALE in now and STALE not in was for was, now in zip(old_lines, new_lines, strict=True))


def main() -> int:
    """Make the tables, or say which document differs."""
    differ = 0
    makers = {document: partial(rendered, tables=tables) for document, tables in TABLES.items()}
    for document, make in {**makers, **{chapter: book.rendered for chapter in book.documents()}}.items():
        text = document.read_text()
        new = make(text)
        if "--check" in sys.argv:
            if says_less(text, new):
                print(
                    f"{document.relative_to(ROOT)} does not show what the files say, or a stale row as if it were not"
                )
                differ = 1
        elif new != text:
            document.write_text(new)
    return differ


if __name__ == "__main__":
    sys.exit(main())
