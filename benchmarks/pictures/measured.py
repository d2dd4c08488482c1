"""Pictures of evidence files: each rung's speed next to the seed's, speed over bytes, and the roofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom.lab import evidence
from warploom.lab.roofline import MEMORY_BANDWIDTH, Roofline, intensity

from .style import ACCENT, INK, TILES, figure, plain, svg

LADDER = Path("nvidia-h200") / "ladder.json"
COUNTERS = Path("emulator") / "ladder.json"


@dataclass(frozen=True)
class Step:
    """A rung as in an evidence file.

    Attributes:
        number, name: number and name of the rung.
        tflops: its median under the protocol alone; of_cublas: its ratio to cuBLAS in the same run.
        dtype: type of its operands.
        row: the file's row.
    """

    number: int
    name: str
    tflops: float
    of_cublas: float
    dtype: str
    row: Mapping[str, Any]


def steps(results: Path) -> list[Step]:
    """The rungs of the ladder's evidence file, in order."""
    from warploom.kernels.ladder import find

    found = []
    for row in evidence.read(results / LADDER)["rows"]:
        if row["provider"] == "warploom" and row["protocol"] == "alone" and row.get("data", "normal") == "normal":
            rung, speed, ratio = find(row["kernel"]), row["tflops"]["median"], row["ratio_to"]["cublas"]
            found.append(Step(rung.number, rung.name, speed, ratio, row["dtype"], row))
    return sorted(found, key=lambda step: step.number)


def gains(results: Path) -> str:
    """TFLOP/s of each rung, with the seed's figure as a tick; fp32 and bf16 separate."""
    from warploom.kernels.ladder import find

    measured = steps(results)
    groups = [[step for step in measured if (step.dtype == "f32") == single] for single in (True, False)]
    drawn, axes = figure(7.6, 0.17 * len(measured) + 1.0, 2, 1,
                         gridspec_kw={"height_ratios": [max(len(group), 1) + 1 for group in groups]})  # fmt: skip
    for each, group, kind in zip(axes, groups, ("fp32, no tensor cores", "bf16, tensor cores"), strict=True):
        for at, step in enumerate(group):
            rung = find(step.number)
            each.barh(at, step.tflops, 0.7, color=TILES[0], zorder=2)
            column = {"transform": each.get_yaxis_transform(), "ha": "right", "va": "center", "fontsize": 7}
            each.text(1.05, at, f"{step.tflops:.3g}", color=INK, **column)
            if rung.seed is not None:
                each.plot([rung.seed.tflops] * 2, [at - 0.42, at + 0.42], color=ACCENT, linewidth=1.6, zorder=3)
                each.text(1.11, at, f"{rung.seed.tflops:.3g}", color=ACCENT, **column)
        each.set_yticks(range(len(group)), [f"{step.number} {step.name}" for step in group], fontsize=7)
        each.set_ylim(len(group) - 0.4, -0.6)
        plain(each, kind)
        each.tick_params(axis="y", labelsize=7, length=0)
        each.grid(axis="y", visible=False)
    size = measured[0].row["m"] if measured else 0
    told = "Red: the seed's figure (its own GPU and size)."
    axes[1].set_xlabel(f"TFLOP/s, {size} x {size} x {size}, H200, each alone.   {told}", fontsize=7)
    return svg(drawn)


def reach(results: Path) -> str:
    """Speed over the work per byte read from L2: measured, over counted in the emulator."""
    counted = {row["rung"]: row for row in evidence.read(results / COUNTERS)["rows"]}
    drawn, (whole, corner) = figure(7.6, 3.1, 1, 2, gridspec_kw={"width_ratios": [2, 3]})
    together: dict[float, list[Step]] = {}
    for step in steps(results):
        if step.number in counted:
            together.setdefault(2000 / counted[step.number]["global_per_kfma"], []).append(step)
    tensor = 0
    for flop_per_byte, group in sorted(together.items()):
        single = group[0].dtype == "f32"
        for axes in (whole,) if single else (whole, corner):
            axes.plot([flop_per_byte] * len(group), [step.tflops for step in group], "o", markersize=4, zorder=3,
                      color=TILES[1] if single else TILES[0])  # fmt: skip
        above = not single and tensor % 2 == 0
        tensor += not single
        height = max(step.tflops for step in group) if above else min(step.tflops for step in group)
        (whole if single else corner).annotate(
            ranges([step.number for step in group]), (flop_per_byte, height), xytext=(0, 5 if above else -5),
            textcoords="offset points", fontsize=7, color=INK, ha="center", va="bottom" if above else "top",
        )  # fmt: skip
    whole.set_xscale("log", base=2)
    whole.set_yscale("log")
    whole.set_ylim(0.15, 2000)
    corner.set_xlim(15, 105)
    corner.set_ylim(200, 780)
    plain(whole, "All rungs: ochre fp32, green bf16", "FLOP per byte between L2 and the SMs", "TFLOP/s (measured)")
    plain(corner, "The green ones, on plain axes", "FLOP per byte between L2 and the SMs (emulated)", "")
    return svg(drawn)


def ranges(numbers: list[int]) -> str:
    """Ranges of integers in words: "5-7, 9-11"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in found)


def roofs(machine: str = "H200") -> str:
    """The roofs of a GPU for two types, with products of growing size below them."""
    drawn, axes = figure(7.6, 3.1)
    for dtype, colour, size, below in (("bf16", TILES[0], 2, False), ("f32", TILES[1], 4, True)):
        roof = Roofline.of(machine, dtype)
        corners = [0.5, roof.ridge, 8192]
        axes.plot(corners, [roof.attainable(x) / 1e12 for x in corners], color=colour, linewidth=1.2)
        told = f"{dtype}: {roof.peak / 1e12:.0f} TFLOP/s, ridge at {roof.ridge:.0f}"
        axes.text(8192, roof.peak / 1e12 * 1.5, told, fontsize=7, color=INK, ha="right")
        shapes = [(side, side, side) for side in (64, 256, 1024, 4096)]
        for m, n, k in shapes if below else [*shapes, (16, 4096, 4096)]:
            at = intensity(m, n, k, size, size)
            axes.plot(at, roof.attainable(at) / 1e12, "o", color=colour, markersize=4)
            label = f"{m} cubed" if m == n else f"{m} x {n} x {k}"
            under = below or at > roof.ridge
            place = {"xytext": (3, -9)} if under else {"xytext": (-4, 3), "ha": "right"}
            axes.annotate(label, (at, roof.attainable(at) / 1e12), textcoords="offset points", fontsize=6, **place)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    bandwidth = MEMORY_BANDWIDTH[machine] / 1e12
    axes.set_ylim(top=3500)
    plain(axes, f"The roofs of an {machine}", f"FLOP per byte of HBM ({bandwidth:.1f} TB/s)", "TFLOP/s, at most")
    return svg(drawn)


PICTURES = {"gains": gains, "reach": reach}
