"""Timelines from `kernel.trace`: what each engine and each role does, by the timing model (`warploom.timing`).

Unlike `timelines`, whose machine has round numbers, these are the times that `warploom trace` shows: an H200's. Kernels
for sm_100 are replayed as if an H200 had their matrix unit and tensor memory, and every picture says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from warploom.lang import Kernel
from warploom.timing import Event, Timeline
from warploom.timing.timeline import ARRIVE, COPY, MATRIX, RUN, STORE, WAIT

from .style import FAINT, INK, MIDDLE, PALE, TILES, figure, svg

Bar = tuple[float, float, str]
"""Start, length, colour."""
Row = tuple[str, list[Bar]]


@dataclass(frozen=True)
class Panel:
    """One launch: its title, its rows from the top, and its last clock; `note` follows the title."""

    title: str
    rows: list[Row]
    end: float
    begin: float = 0.0


def traced(kernel: Kernel, *arrays: Any, **numbers: Any) -> Timeline:
    """The timeline of the first cluster of a launch."""
    return kernel.trace(*arrays, check=False, sass=False, **numbers).timeline


def events(timeline: Timeline, kind: str, cta: int = 0, warp: int | None = None) -> list[Event]:
    """The events of a CTA and a kind, optionally of one warp, by their starts."""
    return [event for event in timeline.of_kind(kind) if event.cta == cta and warp in (None, event.warp)]


def joined(bars: Sequence[Bar], gap: float = 12.0) -> list[Bar]:
    """Adjacent spans of one colour as one bar."""
    found: list[Bar] = []
    for start, length, colour in sorted(bars):
        if found and found[-1][2] == colour and start - (found[-1][0] + found[-1][1]) < gap:
            found[-1] = (found[-1][0], max(found[-1][1], start + length - found[-1][0]), colour)
        else:
            found.append((start, length, colour))
    return found


def products(timeline: Timeline, colour: Callable[[int], str], cta: int = 0) -> Row:
    """The tensor core; `colour` maps the index of a product to its colour."""
    found = events(timeline, MATRIX, cta)
    return "tensor core", joined([(e.busy[0], e.busy[1] - e.busy[0], colour(n)) for n, e in enumerate(found)])


def copies(timeline: Timeline, colour: Callable[[int, int], str], barrier: str = "full", cta: int = 0) -> list[Row]:
    """A row for each stage: bytes in flight; `colour` of (number of the filling, stage)."""
    found: dict[tuple[int, int], list[Event]] = {}
    for event in events(timeline, COPY, cta):
        if event.barrier == barrier:
            found.setdefault((event.phase, max(event.stage, 0)), []).append(event)
    stages = 1 + max((stage for _, stage in found), default=-1)
    rows: list[Row] = []
    for stage in range(stages):
        bars = []
        for (phase, at), each in sorted(found.items()):
            if at == stage:
                start, end = min(e.start for e in each), max(e.end for e in each)
                bars.append((start, end - start, colour(phase * stages + stage, stage)))
        rows.append((f"copies to stage {stage}" if stages > 1 else "copies", bars))
    return rows


def between(timeline: Timeline, warp: int, barrier: str, cta: int = 0) -> list[tuple[float, float]]:
    """A warp's activity after each of its waits for a barrier, until the next one: (start, end)."""
    waits = [event for event in events(timeline, WAIT, cta, warp=warp) if event.barrier == barrier]
    last = max(event.end for event in events(timeline, RUN, cta, warp=warp))
    ends = [event.start for event in waits[1:]] + [last]
    return [(wait.end, end) for wait, end in zip(waits, ends, strict=True)]


def releases(timeline: Timeline, barrier: str, warp: int, cta: int = 0) -> list[float]:
    """When a warp arrived on a barrier."""
    return [e.start for e in events(timeline, ARRIVE, cta, warp=warp) if e.barrier == barrier]


def draw(panels: Sequence[Panel], unit: str) -> str:
    """Panels above each other on one time axis, as SVG."""
    drawn, axes = figure(7.6, 0.23 * sum(len(p.rows) for p in panels) + 0.52 * len(panels), len(panels), 1,
                         squeeze=False, gridspec_kw={"height_ratios": [len(p.rows) + 1 for p in panels]})  # fmt: skip
    longest = max(panel.end - panel.begin for panel in panels)
    for panel, each in zip(panels, axes[:, 0], strict=True):
        _panel(each, panel, longest)
    axes[-1, 0].set_xlabel(unit, fontsize=8)
    return svg(drawn)


def _panel(axes: Any, panel: Panel, longest: float) -> None:
    for at, (_, bars) in enumerate(panel.rows):
        axes.barh(at, longest, 0.84, color=FAINT, zorder=1)
        axes.broken_barh([(start - panel.begin, length) for start, length, _ in bars], (at - 0.42, 0.84),
                         facecolors=[bar[2] for bar in bars], edgecolors="white", linewidths=0.3, zorder=2)  # fmt: skip
    axes.set_yticks(range(len(panel.rows)), [label for label, _ in panel.rows], fontsize=7)
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.set_xlim(0, longest)
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_title(panel.title, fontsize=8, loc="left", color=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


__all__ = [
    "COPY", "MATRIX", "MIDDLE", "PALE", "STORE", "TILES", "WAIT", "Bar", "Panel", "Row", "between", "copies", "draw",
    "events", "joined", "products", "releases", "traced",
]  # fmt: skip
