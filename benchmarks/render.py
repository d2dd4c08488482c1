"""Put the figures of benchmarks/results into docs/measured-facts.md, between its markers.

python benchmarks/render.py [--check]        --check: exit 1 if the document differs, write nothing
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "measured-facts.md"


def emulator_speed(result: dict[str, Any]) -> list[str]:
    lines = ["| what | median s | min - max | target s | peak MiB |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        seconds = row["seconds"]
        target = row.get("target_seconds", "")
        miss = " **missed**" if target and seconds["median"] > target else ""
        spread = f"{seconds['min']} - {seconds['max']}"
        lines.append(f"| {row['what']} | {seconds['median']}{miss} | {spread} | {target} | {row['peak_mib']} |")
    return lines


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


def ladder(result: dict[str, Any]) -> list[str]:
    lines = [
        "| rung | registers | TFLOP/s alone | of torch.mm | interleaved | of torch.mm |",
        "|---|---|---|---|---|---|",
    ]
    ours = [row for row in result["rows"] if row["provider"] == "warploom"]
    for row in (row for row in ours if row["protocol"] == "alone"):
        other = next(r for r in ours if r["kernel"] == row["kernel"] and r["protocol"] == "interleaved")
        speeds = [f"{r['tflops']['median']} | {r['ratio_to']['cublas']}" for r in (row, other)]
        lines.append(f"| {row['kernel']} ({row['dtype']}) | {row['registers']} | {' | '.join(speeds)} |")
    return lines


TABLES = {
    "ladder": (ladder, RESULTS / "nvidia-h200" / "ladder.json"),
    "first-light": (first_light, RESULTS / "nvidia-h200" / "first-light.json"),
    "eager-call": (eager_call, RESULTS / "nvidia-h200" / "first-light.json"),
    "emulator-speed": (emulator_speed, RESULTS / "cpu-x86_64-2-cores" / "emulator-speed.json"),
    "download-size": (download_size, RESULTS / "download_size.json"),
}


def rendered(text: str) -> str:
    """The document with each marked table made anew."""
    for name, (table, path) in TABLES.items():
        if not path.exists():
            continue
        marker = f"<!-- {name} -->"
        body = "\n".join(table(json.loads(path.read_text())))
        # A table stands right behind its marker; it ends where its lines do.
        text = re.sub(re.escape(marker) + r"\n(?:\|[^\n]*\n)*", lambda _, new=f"{marker}\n{body}\n": new, text)
    return text


def main() -> int:
    text = DOCUMENT.read_text()
    new = rendered(text)
    if "--check" in sys.argv:
        return int(new != text)
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
