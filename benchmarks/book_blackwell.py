"""Tables of the book's second part: emulator counters of the kernels for sm_100, and arithmetic over tiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from warploom.kernels.blackwell.description import ROWS, Config
from warploom.lab import roofline

RESULTS = Path(__file__).resolve().parent / "results"
COUNTERS = RESULTS / "emulated" / "blackwell-counters.json"
LABELS = {
    "products": "products issued",
    "tma_load_bytes": "KiB copied into shared memory",
    "matrix_operand_bytes": "KiB read from it by the unit",
    "tensor_memory_load_bytes": "KiB from tensor memory to registers",
    "tensor_memory_copy_bytes": "KiB of factors copied to tensor memory",
    "mbarrier_waits": "waits",
    "mbarrier_arrivals": "arrivals",
    "ctas": "CTAs that ran",
}
STAGE_BYTES = 128
"""Bytes per row of A or B in a stage."""

Table = Callable[[Iterable[str], Iterable[Iterable[object]]], list[str]]


def counters(words: str, table: Table) -> list[str]:
    """Counters of some kernels: "minimal, specialised: products, ctas"; a comma in a name is written as +."""
    kernels, _, names = words.partition(":")
    chosen = [name.strip() for name in names.split(",")]
    found = {row["kernel"]: row for row in json.loads(COUNTERS.read_text())["rows"]}
    rows = []
    for kernel in kernels.split(","):
        row = found[kernel.strip().replace("+", ", ")]
        cells = [f"{row['m']} x {row['n']} x {row['k']}"]
        for name in chosen:
            cells.append(f"{row[name] >> 10:,}" if name.endswith("bytes") else f"{row[name]:,}")
        rows.append([row["kernel"], *cells])
    return table(["kernel", "emulated", *(LABELS[name] for name in chosen)], rows)


def machines(table: Table) -> list[str]:
    """An H200 next to a B200, by data sheets."""
    rows = []
    facts = {
        "multiprocessors": lambda gpu: roofline.SMS[gpu],
        "clock, GHz": lambda gpu: f"{roofline.CLOCK[gpu] / 1e9:.2f}",
        "bf16, FLOP in a clock on an SM": lambda gpu: f"{roofline.FLOP_PER_CLOCK[roofline.ARCH[gpu]]['bf16']:,}",
        "bf16, TFLOP/s": lambda gpu: f"{roofline.Roofline.of(gpu).peak / 1e12:,.0f}",
        "HBM, TB/s": lambda gpu: f"{roofline.MEMORY_BANDWIDTH[gpu] / 1e12:.1f}",
        "ridge, FLOP per byte": lambda gpu: f"{roofline.Roofline.of(gpu).ridge:.0f}",
        "L2, MiB": lambda gpu: roofline.L2_BYTES[gpu] >> 20,
    }
    for name, fact in facts.items():
        rows.append([name, *(fact(gpu) for gpu in ("H200", "B200"))])
    return table(["", "H200", "B200"], rows)


def pairs(table: Table) -> list[str]:
    """Bytes that an SM reads from shared memory for 64 of k, alone and in a pair."""
    rows = []
    for tile_m, tile_n in ((128, 128), (128, 256), (256, 128), (256, 256)):
        config = Config(tile_m=tile_m, tile_n=tile_n, stages=4, buffers=512 // tile_n)
        read = (ROWS + config.columns) * STAGE_BYTES
        clocks = 2 * ROWS * tile_n * 64 / roofline.FLOP_PER_CLOCK["sm_100a"]["bf16"]
        who = "a pair" if config.group == 2 else "one CTA"
        rows.append([f"{tile_m} x {tile_n}", who, f"{read / 1024:.0f}", f"{clocks:.0f}", f"{read / clocks:.0f}"])
    return table(["tile", "by", "KiB an SM reads for 64 of k", "clocks to multiply them", "bytes each clock"], rows)
