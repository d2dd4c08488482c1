"""Tables of our own kernels: the ladder, power, configurations, hardware limits, hand-written texts."""

from __future__ import annotations

from typing import Any

from benchmarks.tables_rows import Result, Row, mark
from warploom.kernels.ladder import find
from warploom.lab import ladder_runner

SHOWN_EXTENTS = (4, 5, 7, 8, 9, 13, 16, 29, 57, 77)
"""Extents shown in the table of where tensor copies end."""


def rungs_of(result: Result) -> list[Row]:
    """The rows of our rungs from the bottom up, regardless of when they were measured."""
    return sorted((row for row in result["rows"] if row["provider"] == "warploom"), key=lambda row: row["kernel"])


def ladder(result: Result) -> list[str]:
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


def ladder_short(result: Result) -> list[str]:
    """One line for each rung, each alone, next to the seed's figure."""
    ours = [row for row in rungs_of(result) if row["protocol"] == "alone"]
    size = ours[0]["m"]
    lines = [
        f"| rung | TFLOP/s at {size} x {size} x {size} | of cuBLAS | of the peak at its clock | gain | seed |",
        "|---|---|---|---|---|---|",
    ]
    for row in ladder_runner.with_gains([{"rung": find(row["kernel"]).number, **row} for row in ours], "tflops"):
        rung = find(row["kernel"])
        share = f"{row['tensor_activity']:.0%}" if "tensor_activity" in row else ""
        gain = f"{row['gain']:.2f}" if "gain" in row else ""
        seed = f"{rung.seed.tflops:g} ({rung.seed.gpu}, {rung.seed.size})" if rung.seed else ""
        lines.append(
            f"| {rung.number} {rung.idea}{mark([row])} | {row['tflops']['median']:.1f} "
            f"| {row['ratio_to']['cublas']:.3f} | {share} | {gain} | {seed} |"
        )
    return lines


def energy(result: Result) -> list[str]:
    """The energy of a product alone, under the power limit: ours and cuBLAS's."""
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


def sweep(result: Result) -> list[str]:
    """The best configuration of each shape alone and interleaved, and how the plain 128 x 256 one performs there."""
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


def first_light(result: Result) -> list[str]:
    lines = ["| kernel | protocol | TFLOP/s | min - max | of torch.mm | relative error |", "|---|---|---|---|---|---|"]
    for row in result["rows"]:
        speed = row["tflops"]
        lines.append(
            f"| {row['kernel']} | {row['protocol']} | {speed['median']} | {speed['min']} - {speed['max']} "
            f"| {row['ratio_to']['cublas']} | {row['relative_error']:.2e} |"
        )
    return lines


def remote_arrival(result: Result) -> list[str]:
    lines = ["| M = N, K | arrival on `empty` of the other CTA | TFLOP/s | of relaxed |", "|---|---|---|---|"]
    for row in result["rows"]:
        ratio = row["ratio_to"]["relaxed.cluster"]
        lines.append(f"| {row['m']}, {row['k']} | {row['arrival']} | {row['tflops']['median']} | {ratio} |")
    return lines


def tensor_store_edges(result: Result) -> list[str]:
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


def reference_texts(result: Result) -> list[str]:
    """Each text with right results, alone; our kernel of the same design next to it, and what matmul runs there."""
    head = ["text", "M x N x K", "us", "TFLOP/s", "pJ per FLOP", "ours of the same idea", "alone, of the text",
            "interleaved", "pJ per FLOP", "chosen by matmul", "alone, of the text", "interleaved"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    here: dict[tuple[Any, ...], dict[tuple[str, str], Row]] = {}
    for row in result["rows"]:
        here.setdefault((row["text"], *(row[key] for key in "mnk")), {})[row["provider"], row["protocol"]] = row
    found: dict[str, list[float]] = {"alone": [], "interleaved": []}

    def ours(rows: dict[tuple[str, str], Row], name: str, otherwise: str) -> list[str]:
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


def beside(result: Result, predicted: Result) -> list[str]:
    """Kernels outside the ladder: measured, predicted, and cuBLAS; those that were measured."""
    lines = ["| kernel | M x N x K | us | predicted | TFLOP/s | W | pJ per FLOP | cuBLAS, TFLOP/s | W |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    product = ("kind", "m", "n", "k", "dtype")
    found = {(tuple(row[name] for name in product), row["kernel"]): row for row in result["rows"]}
    expected = {(tuple(row[name] for name in product), row["kernel"]): row for row in predicted["rows"]}
    for (what, name), row in found.items():
        if name == "cublas":
            continue
        us, watts, theirs = row["us"]["median"], row["power_w"], found.get((what, "cublas"))
        flop = 2.0 * row["m"] * row["n"] * row["k"]
        said = str(expected[what, name]["predicted_us"]) if (what, name) in expected else ""
        cells = [f"{name.replace('_', ' ')}, {row['dtype']}", " x ".join(str(row[key]) for key in "mnk"), str(us), said,
                 str(row["tflops"]["median"]), f"{watts:.0f}", f"{watts * us * 1e6 / flop:.3f}"]  # fmt: skip
        cells += [str(theirs["tflops"]["median"]), f"{theirs['power_w']:.0f}"] if theirs else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def launched(row: Row) -> str:
    """A word for a kernel that is launched while the previous one finishes."""
    return ", dependent" if row["pdl"] else ""


def joules(row: Row) -> str:
    """pJ per FLOP, if power was read."""
    return f"{row['pj_per_flop']:.3f}" if "pj_per_flop" in row else ""
