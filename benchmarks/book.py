"""Generated content of docs/ladder: code from the kernels, and tables from evidence files and calculators.

A marker is a comment, followed directly by the generated content; `benchmarks/render.py` regenerates it:

    <!-- rungs 8 9 -->                                        the seed's and our figures, from the evidence file
    <!-- counters 8 9: global_per_kfma, tensor_instructions -->   the emulator's counters, from its file
    <!-- tcgen05 minimal, specialised: products, ctas -->     counters of the kernels for sm_100
    <!-- table tiles -->                                      one of TABLES below, calculated
    <!-- code PATH "first" to "last" -->                      a code block: the lines of a file from the first that
                                                              contains `first` to the next that contains `last`
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import book_beyond, book_blackwell
from benchmarks.pictures.measured import COUNTERS, LADDER, steps
from warploom.isa import arch
from warploom.isa.instructions.table import FORMS
from warploom.kernels.ladder import RUNGS, find
from warploom.lab import ladder_runner, roofline

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FOLDER = ROOT / "docs" / "ladder"
CODE = re.compile(r'(<!-- code (\S+) "(.+?)" to "(.+?)" -->\n)(?:```python\n.*?```\n)?', re.DOTALL)
TABLE = re.compile(r"(<!-- (rungs|counters|table|tcgen05) (.+?) -->\n)(?:\|[^\n]*\n)*")


def documents() -> list[Path]:
    """The chapters."""
    return sorted(FOLDER.glob("*.md"))


def rendered(text: str) -> str:
    """A chapter with the content of its markers."""
    text = CODE.sub(lambda found: f"{found[1]}```python\n{quote(found[2], found[3], found[4])}```\n", text)
    made = {
        "rungs": rungs, "counters": counters, "table": lambda name: TABLES[name](),
        "tcgen05": lambda words: book_blackwell.counters(words, table),
    }  # fmt: skip
    return TABLE.sub(lambda found: found[1] + "".join(f"{line}\n" for line in made[found[2]](found[3])), text)


def quote(path: str, first: str, last: str) -> str:
    """Lines of a file, dedented, from the head of the block that `first` is in if the block ends before `last`.

    Raises SystemExit with a message if they are not found.
    """
    lines = (ROOT / path).read_text().splitlines()
    begins = [number for number, line in enumerate(lines) if first in line]
    if not begins:
        raise SystemExit(f"{path} has no line with {first!r} any more: a chapter of docs/ladder quotes it")
    ends = [number for number in range(begins[0], len(lines)) if last in lines[number]]
    if not ends:
        raise SystemExit(f"{path} has no line with {last!r} behind {first!r}: a chapter of docs/ladder quotes it")
    begin, end = begins[0], ends[0] + 1
    least = min(_indent(line) for line in lines[begin:end] if line)
    while _indent(lines[begin]) > least or not lines[begin]:
        begin -= 1
    return textwrap.dedent("\n".join(lines[begin:end])) + "\n"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# -- evidence ------------------------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """A Markdown table."""
    names = list(head)
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    return lines + [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]


def rungs(words: str) -> list[str]:
    """Figures of some rungs, or of all."""
    chosen = list(RUNGS) if words == "all" else [find(word) for word in words.split()]
    if not (RESULTS / LADDER).exists():
        return []
    measured = {step.number: step for step in steps(RESULTS)}
    gains = ladder_runner.with_gains([{"rung": s.number, "tflops": s.tflops} for s in measured.values()], "tflops")
    gain = {row["rung"]: row.get("gain") for row in gains}
    sizes = {step.row["m"] for step in measured.values()}
    where = f", {min(sizes)} cubed" if len(sizes) == 1 else ""
    rows = []
    for rung in chosen:
        step = measured.get(rung.number)
        seed = f"{rung.seed.tflops:g} ({rung.seed.gpu}, {rung.seed.size} cubed)" if rung.seed else ""
        name = (
            f"[{rung.number}]({chapter_of(rung.number)}) {rung.idea}"
            if words == "all"
            else f"{rung.number} {rung.name}"
        )
        figures = (f"{step.tflops:.4g}", f"{step.of_cublas:.3f}") if step else ("not measured yet", "")
        more = gain.get(rung.number)
        rows.append([name, seed, *figures, f"{more:.2f}" if more else ""])
    return table(["rung", "seed, TFLOP/s", f"H200, TFLOP/s{where}", "of cuBLAS", "gain"], rows)


def chapter_of(number: int) -> str:
    """The chapter that shows a rung's figures."""
    for path in documents():
        if path.name != "README.md" and re.search(rf"<!-- rungs (?:\d+ )*{number}\b", path.read_text()):
            return path.name
    return "README.md"


LABELS = {
    "global_per_kfma": "bytes over L2 for 1000 multiply-adds",
    "shared_per_kfma": "bytes in and out of shared memory for 1000",
    "bank_conflicts": "bank conflicts",
    "barriers_per_k_tile": "waits and arrivals per k-tile",
    "tensor_instructions": "tensor instructions",
    "instructions_per_kfma": "instructions for 1000 multiply-adds",
}


def counters(words: str) -> list[str]:
    """Counters of some rungs: "8 9: global_per_kfma, bank_conflicts"."""
    numbers, _, names = words.partition(":")
    chosen = [name.strip() for name in names.split(",")]
    found = {row["rung"]: row for row in json.loads((RESULTS / COUNTERS).read_text())["rows"]}
    rows = []
    for word in numbers.split():
        row = found[int(word)]
        cells = [f"{row['m']} x {row['n']} x {row['k']}"]
        for name in chosen:
            value = row[name] if name in row else row["counters"][name]
            cells.append("" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}")
        rows.append([f"{word} {find(word).name}", *cells])
    return table(["rung", "emulated", *(LABELS.get(name, name.replace("_", " ")) for name in chosen)], rows)


def power() -> list[str]:
    """Power and clock from the evidence file, if it has them."""
    rows = []
    for step in steps(RESULTS):
        row: Any = step.row
        if "pj_per_flop" in row:
            clock = row.get("kernel_clock_mhz")
            share = f"{row['tensor_activity']:.0%}" if "tensor_activity" in row else ""
            told = [f"{step.tflops:.4g}", row["power_w"], row["pj_per_flop"], f"{clock:.0f}" if clock else "", share]
            rows.append([f"{step.number} {step.name}", *told])
    rows = rows or [["not in the file yet", *[""] * 5]]
    return table(["rung", "TFLOP/s", "W", "pJ per FLOP", "clock of the kernel, MHz", "of the peak at it"], rows)


# -- calculated ----------------------------------------------------------------------------------------------------


def roofs() -> list[str]:
    shapes = ((64, 64, 64), (256, 256, 256), (1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192),
              (16, 4096, 4096), (4096, 14336, 4096))  # fmt: skip
    roof, rows = roofline.Roofline.of("H200"), []
    for m, n, k in shapes:
        flop_per_byte = roofline.intensity(m, n, k)
        limit = "the tensor cores" if flop_per_byte > roof.ridge else "HBM"
        most = roof.attainable(flop_per_byte) / 1e12
        rows.append([f"{m} x {n} x {k}", f"{flop_per_byte:.0f}", f"{most:.0f}", limit])
    return table(["M x N x K, bf16", "FLOP per byte", "TFLOP/s, at most", "limited by"], rows)


TILES = ((64, 64), (128, 128), (128, 192), (128, 256), (256, 192))


def tiles() -> list[str]:
    rows = []
    for m, n in TILES:
        stage = (m + n) * 64 * 2
        clocks = 2 * m * n * 64 / roofline.FLOP_PER_CLOCK["sm_90a"]["bf16"]
        rows.append(
            [f"{m} x {n}", f"{m * n / (m + n):.0f}", f"{stage / 1024:.0f}", f"{clocks:.0f}", f"{stage / clocks:.0f}"]
        )
    return table(["tile", "multiply-adds per element", "KiB for 64 of k", "clocks to multiply them",
                  "bytes each clock, to keep up"], rows)  # fmt: skip


def multicast() -> list[str]:
    rows = []
    for m, n, shared in ((128, 256, "b"), (256, 192, "a")):
        alone = 2 * (m + n)
        together = 2 * m + n if shared == "b" else m + 2 * n
        saved = f"{1 - together / alone:.0%}"
        rows.append([f"two of {m} x {n}, {shared.upper()} shared", f"{alone * 128 // 1024} KiB",
                     f"{together * 128 // 1024} KiB", saved])  # fmt: skip
    return table(["cluster", "fetched without multicast, per k-tile", "fetched with multicast", "saved"], rows)


def occupancy() -> list[str]:
    """Registers from the evidence file, shared memory from the kernels."""
    rows = []
    for step in steps(RESULTS):
        kernel = find(step.number).build()
        threads, shared = _threads(kernel), shared_bytes(kernel)
        found = roofline.occupancy("sm_90a", threads, step.row["registers"], shared)
        name, warps = f"{step.number} {step.name}", f"{found.resident * threads // 32} of 64"
        rows.append([name, threads, step.row["registers"], f"{shared / 1024:.0f}", found.resident, found.limit, warps])
    return table(["rung", "threads", "registers", "shared KiB", "CTAs on an SM", "what runs out", "warps"], rows)


def _threads(kernel: Any) -> int:
    x, y, z = (*kernel.program().block, 1, 1)[:3]
    return x * y * z


def shared_bytes(kernel: Any) -> int:
    """Shared memory of a CTA, static and dynamic."""
    program = kernel.program()
    ends = [part.offset + part.size for part in program.shared_parts]
    return max([program.dynamic_smem or 0, *ends])


def waves() -> list[str]:
    rows = []
    for m, n in ((4096, 4096), (8192, 8192), (4096, 14336), (4096, 2112)):
        for tile_m, tile_n in ((128, 128), (128, 256), (256, 192)):
            found = roofline.waves(m, n, tile_m, tile_n, roofline.SMS["H200"])
            shares = [f"{x:.1%}" for x in (found.tile_efficiency, found.wave_efficiency, found.efficiency)]
            rows.append([f"{m} x {n}", f"{tile_m} x {tile_n}", found.tiles, f"{found.waves:.2f}", *shares])
    return table(["C", "tile", "tiles", "waves", "of the tiles is C", "of the slots have a tile", "together"], rows)


def rasters() -> list[str]:
    """Clusters of 256 x 256 in a product of 8192 cubed, 66 at a time."""
    rows = []
    once = (8192 * 8192 * 2) * 2
    for name, order in roofline.ORDERS.items():
        moved = roofline.l2_traffic(8192, 8192, 8192, 256, 256, order, at_a_time=66)
        rows.append([name, f"{moved / 2**20:.0f}", f"{moved / once:.1f}"])
    return table(["order", "MiB of A and B from HBM", "times A and B"], rows)


def clocks() -> list[str]:
    rows = []
    for megahertz in (1980, 1755, 1500, 1400):
        peak = roofline.Roofline.of("H200", "bf16", megahertz * 1e6).peak / 1e12
        rows.append([megahertz, f"{peak:.0f}", f"{700 / peak:.3f}"])
    return table(["clock, MHz", "peak, TFLOP/s", "pJ per FLOP that 700 W allow at that speed"], rows)


def tails() -> list[str]:
    rows = []
    for m, n in ((8192, 8192), (4096, 4096), (4096, 14336), (8192, 28672)):
        pairs = -(-m // 512) * -(-n // 192)
        full, rest = divmod(pairs, 66)
        split = rest * 2 <= 66
        after = full + (0.5 if split and rest else 1 if rest else 0)
        rows.append([f"{m} x {n}", pairs, full, rest, full + (1 if rest else 0), after])
    return table(["C", "pairs of tiles", "whole waves", "left over", "waves", "waves with a split tail"], rows)


def machines() -> list[str]:
    rows = []
    for name in ("A100", "H100", "H200", "B200"):
        found, roof = arch.get(roofline.ARCH[name]), roofline.Roofline.of(name)
        rows.append([
            name, found.name, roofline.SMS[name], f"{roof.clock / 1e9:.2f}", f"{roof.peak / 1e12:.0f}",
            f"{roof.bandwidth / 1e12:.1f}", f"{roof.ridge:.0f}", roofline.L2_BYTES[name] >> 20,
            found.shared_per_sm >> 10,
        ])  # fmt: skip
    return table(["GPU", "target", "SMs", "clock, GHz", "bf16, TFLOP/s", "HBM, TB/s", "ridge, FLOP per byte",
                  "L2, MiB", "shared memory of an SM, KiB"], rows)  # fmt: skip


NEWS = (
    ("mma.volta_f32", "mma.sync", "the first tensor cores: 8 x 8 x 4 by eight threads"),
    ("ldmatrix.b16", "ldmatrix", "a warp loads fragments from shared memory"),
    ("mma.bf16", "mma.sync", "bf16, 16 x 8 x 16 by a warp"),
    ("cp_async.copy", "cp.async", "copies to shared memory that use no register"),
    ("mbarrier.init", "mbarrier", "barriers as objects, with arriving and waiting apart"),
    ("mbarrier.expect_tx", "mbarrier.expect_tx", "barriers that count bytes"),
    ("tensor.load", "cp.async.bulk.tensor", "TMA: one thread copies a box of a tensor"),
    ("stmatrix.b16", "stmatrix", "a warp stores fragments to shared memory"),
    ("wgmma.bf16_desc", "wgmma", "64 x n x 16 by four warps, operands from shared memory"),
    ("cluster.setmaxnreg", "setmaxnreg", "registers move between warpgroups"),
)
"""Rows of the instruction table that the ladder introduces: key, name, benefit."""


def instructions() -> list[str]:
    arch_of = {form.key: form.arch for form in FORMS}
    return table(
        ["since", "instruction", "what is new"], [[arch_of[key], f"`{name}`", news] for key, name, news in NEWS]
    )


TABLES = {
    "machines": machines, "instructions": instructions, "roofs": roofs, "tiles": tiles, "multicast": multicast,
    "occupancy": occupancy, "waves": waves, "rasters": rasters, "clocks": clocks, "tails": tails, "power": power,
    **book_beyond.tables(table),
    "generations": lambda: book_blackwell.machines(table), "pairs": lambda: book_blackwell.pairs(table),
}  # fmt: skip
