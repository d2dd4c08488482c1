"""Charts of measurements: bars, and a roofline. matplotlib is optional; without it an error says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import WarploomError
from .roofline import MEMORY_BANDWIDTH, Roofline

INK, GRID = "#222222", "#d8d8d8"
COLOURS = ("#0b6e4f", "#b8b8b8", "#8a8a8a", "#5f7fa6", "#c98b3b", "#7d5a8c", "#a34747")


class ChartError(WarploomError):
    """A chart was requested but cannot be drawn."""

    code = "chart"


def pyplot() -> Any:
    """matplotlib.pyplot without a display. Raises ChartError if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise ChartError(
            "the chart needs matplotlib, which is not installed", consequence="everything else was done",
            hint="pip install 'warploom[lab]'",
        ) from None  # fmt: skip
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def bars(rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """TFLOP/s of each contender, with a group of bars for each problem. rows: of one protocol."""
    plt = pyplot()
    shapes = list(dict.fromkeys(_shape(row) for row in rows))
    providers = list(dict.fromkeys(row["provider"] for row in rows))
    figure, axes = plt.subplots(figsize=(max(6.0, 1.6 * len(shapes) + 2), 4.2), layout="constrained")
    width = 0.8 / len(providers)
    for number, provider in enumerate(providers):
        own = {_shape(row): row["tflops"] for row in rows if row["provider"] == provider}
        at = [place + (number - (len(providers) - 1) / 2) * width for place, s in enumerate(shapes) if s in own]
        heights = [own[shape]["median"] for shape in shapes if shape in own]
        colour = COLOURS[number % len(COLOURS)]
        drawn = axes.bar(at, heights, width * 0.92, color=colour, label=provider, zorder=2)
        axes.bar_label(drawn, fmt="%.0f", fontsize=7, color=INK, padding=1)
    axes.set_xticks(range(len(shapes)), shapes, fontsize=8, rotation=20 if len(shapes) > 3 else 0)
    _finish(axes, title, "TFLOP/s")
    axes.legend(fontsize=8, frameon=False, ncols=len(providers), loc="upper left", bbox_to_anchor=(0, -0.18))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def roofline(rows: Sequence[Mapping[str, Any]], path: Path, title: str, machine: str = "H200") -> None:
    """Each row over its arithmetic intensity, under the two roofs of the GPU."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        roof = Roofline.of(machine, dtype)
        span = [2.0**at for at in range(0, 15)]
        axes.plot(span, [roof.attainable(x) / 1e12 for x in span], color=INK, linewidth=1, zorder=1)
        axes.annotate(f"{dtype}, ridge at {roof.ridge:.0f}", (roof.ridge, roof.peak / 1e12), fontsize=7, color=INK,
                      xytext=(0, 3), textcoords="offset points")  # fmt: skip
    for number, provider in enumerate(dict.fromkeys(row["provider"] for row in rows)):
        own = [row for row in rows if row["provider"] == provider]
        axes.scatter([intensity(row) for row in own], [row["tflops"]["median"] for row in own], s=18, zorder=2,
                     color=COLOURS[number % len(COLOURS)], label=provider)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.set_xlabel(f"FLOP per byte of HBM ({MEMORY_BANDWIDTH[machine] / 1e12:.1f} TB/s)", fontsize=8)
    _finish(axes, title, "TFLOP/s")
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def steps(rows: Sequence[Mapping[str, Any]], path: Path, title: str, value: str, unit: str) -> None:
    """The ladder: one horizontal bar for each rung, with its number and its name."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7.2, 0.26 * len(rows) + 1.2), layout="constrained")
    names = [row["kernel"] for row in rows]
    heights = [row[value]["median"] if isinstance(row[value], Mapping) else row[value] for row in rows]
    drawn = axes.barh(range(len(rows)), heights, 0.72, color=COLOURS[0], zorder=2)
    axes.bar_label(
        drawn,
        labels=[f"{height:,.0f}" if height >= 1000 else f"{height:.4g}" for height in heights],
        fontsize=7,
        color=INK,
        padding=2,
    )
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    if "(log)" in unit:
        axes.set_xscale("log")
    axes.set_xlabel(unit, fontsize=8)
    axes.set_title(title, fontsize=9, loc="left", color=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.6, zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def intensity(row: Mapping[str, Any]) -> float:
    """FLOP for each byte of the operands and the result."""
    from .work import GemmWork

    if "flops" in row:
        return float(row["flops"] / row["bytes"])

    problem = GemmWork(row["m"], row["n"], row["k"], row["dtype"], row.get("out", "bf16"))
    return problem.flops / problem.bytes


def _shape(row: Mapping[str, Any]) -> str:
    if "case" in row:
        return str(row["case"])
    extra = " ".join(str(row[name]) for name in ("kind", "scales") if row.get(name))
    return f"{row['m']}x{row['n']}x{row['k']}" + (f"\n{row['dtype']} {extra}".rstrip() if extra else "")


def _finish(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=9, loc="left", color=INK)
    axes.set_ylabel(unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
