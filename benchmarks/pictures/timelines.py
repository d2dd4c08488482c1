"""Timelines of the Hopper rungs: one row for each stage of the ring, each consumer's products, and the stores.

Recorded in the emulator (`trace`), with durations from a model (`replay`). A row of the ring shows a k-tile in flight
(pale), waiting in its stage (between), and being multiplied (full colour). The colour is the output tile's.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from warploom.kernels.ladder import find

from .replay import Replay, Span
from .style import FAINT, INK, MIDDLE, PALE, TILES, figure, svg
from .trace import record


@dataclass(frozen=True)
class Run:
    """The recording of one timeline.

    Attributes:
        rung: its number.
        shape: M, N, K of the product, whole tiles.
        sms: multiprocessors of the emulated machine; the first CTA is drawn.
        tiles: output tiles of the first CTA.
        players: consumers that have output tiles of their own (ping-pong), else 1.
        blocks: whether each consumer's blocks of 64 rows are drawn separately.
    """

    rung: int
    shape: tuple[int, int, int]
    sms: int = 1
    tiles: int = 1
    players: int = 1
    blocks: bool = False


RUNS: dict[str, tuple[Run, ...]] = {
    "turns": (Run(8, (64, 64, 512)), Run(9, (128, 128, 512)), Run(10, (128, 128, 512))),
    "specialised": (Run(10, (128, 128, 768)), Run(11, (128, 128, 768))),
    "two-consumers": (Run(12, (128, 256, 512)),),
    "persistent": (Run(13, (256, 512, 384), tiles=4),),
    "stores": (Run(16, (256, 768, 384), 2, tiles=3), Run(17, (256, 768, 384), 2, tiles=3)),
    "ping-pong": (Run(17, (256, 1024, 384), 2, tiles=4), Run(20, (256, 768, 384), 2, tiles=4, players=2)),
    "staggered": (
        Run(21, (256, 1152, 320), 2, tiles=3, blocks=True),
        Run(23, (1536, 192, 320), 2, tiles=3, blocks=True),
    ),
}


def replayed(run: Run) -> Replay:
    """The run, recorded and replayed, with operands of zeros, because values do not matter."""
    import ml_dtypes
    import numpy as np

    m, n, k = run.shape
    a, b = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((n, k), ml_dtypes.bfloat16)
    return Replay(record(find(run.rung).build(), a, b, sms=run.sms))


def draw(name: str) -> str:
    """The timeline of that name in `RUNS`, as SVG."""
    runs = [(run, replayed(run)) for run in RUNS[name]]
    panels = [_rows(run, replay) for run, replay in runs]
    heights = [len(rows) for rows in panels]
    drawn, axes = figure(7.6, 0.23 * sum(heights) + 0.52 * len(runs), len(runs), 1, squeeze=False,
                         gridspec_kw={"height_ratios": [height + 1 for height in heights]})  # fmt: skip
    longest = max(replay.end for _, replay in runs)
    for (run, replay), rows, each in zip(runs, panels, axes[:, 0], strict=True):
        _panel(each, run, replay, rows, longest)
    axes[-1, 0].set_xlabel("clocks of the model", fontsize=8)
    return svg(drawn)


Row = tuple[str, list[tuple[float, float, str]]]
"""A label and its bars: start, length, colour."""


def _rows(run: Run, replay: Replay) -> list[Row]:
    rows: list[Row] = []
    fillings = [each for each in replay.fillings.values() if each.cta == 0]
    for stage in range(1 + max(each.stage for each in fillings)):
        bars: list[tuple[float, float, str]] = []
        for each in (each for each in fillings if each.stage == stage):
            tile = each.number * run.tiles // len(fillings) % len(TILES)
            bars.append((each.asked, each.arrived - each.asked, PALE[tile]))
            if each.read is not None:
                bars.append((each.arrived, each.read[0] - each.arrived, MIDDLE[tile]))
                bars.append((each.read[0], each.read[1] - each.read[0], TILES[tile]))
        rows.append((f"stage {stage}", bars))
    consumers = _by_actor(_lanes(replay, "tensor"))
    names = [f"consumer {number}" for number in range(len(consumers))] if len(consumers) > 1 else ["tensor core"]
    for number, lanes in enumerate(consumers):
        if run.blocks:
            for part, lane in enumerate(lanes):
                rows.append((f"{names[number]}, block {part}", _bars(run, replay, [lane], number)))
        else:
            rows.append((names[number], _bars(run, replay, lanes, number)))
    for number, lanes in enumerate(_by_actor(_lanes(replay, "write"))):
        who = f"{names[number]} stores" if len(consumers) > 1 else "threads store"
        rows.append((who, _bars(run, replay, lanes, number)))
    for lane in (lane for lane in replay.lanes("store") if lane[1] == 0):
        rows.append(("TMA stores", [(s.start, s.end - s.start, INK) for s in replay.spans if s.lane == lane]))
    return rows


def _lanes(replay: Replay, kind: str) -> list[tuple[Hashable, ...]]:
    lanes = dict.fromkeys(span.lane for span in replay.spans if span.lane[0] == kind)
    return [lane for lane in lanes if lane[1].cta == 0]  # type: ignore[attr-defined]


def _by_actor(lanes: list[tuple[Hashable, ...]]) -> list[list[tuple[Hashable, ...]]]:
    actors = sorted({lane[1] for lane in lanes})  # type: ignore[type-var]
    return [[lane for lane in lanes if lane[1] == actor] for actor in actors]


def _bars(run: Run, replay: Replay, lanes: list[tuple[Hashable, ...]], consumer: int) -> list[tuple[float, float, str]]:
    """Spans of some lanes of one consumer, adjacent ones joined, in the colours of their output tiles."""
    spans: list[Span] = sorted((span for span in replay.spans if span.lane in lanes), key=lambda span: span.start)
    bars: list[tuple[float, float, str]] = []
    for number, span in enumerate(spans):
        mine = number * (run.tiles // run.players) // len(spans)
        colour = TILES[(mine * run.players + (consumer if run.players > 1 else 0)) % len(TILES)]
        if bars and bars[-1][2] == colour and span.start - (bars[-1][0] + bars[-1][1]) < 1:
            bars[-1] = (bars[-1][0], span.end - bars[-1][0], colour)
        else:
            bars.append((span.start, span.end - span.start, colour))
    return bars


def _panel(axes: Any, run: Run, replay: Replay, rows: list[Row], longest: float) -> None:
    for at, (_, bars) in enumerate(rows):
        axes.barh(at, longest, 0.84, color=FAINT, zorder=1)
        axes.broken_barh([bar[:2] for bar in bars], (at - 0.42, 0.84), facecolors=[bar[2] for bar in bars],
                         edgecolors="white", linewidths=0.3, zorder=2)  # fmt: skip
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, longest)
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    m, n, k = run.shape
    work = 100 * replay.busy("tensor") / replay.end / len({lane[1].cta for lane in replay.lanes("tensor")})  # type: ignore[attr-defined]
    title = f"rung {run.rung}, {find(run.rung).name}: {m} x {n} x {k}"
    axes.set_title(f"{title}   (tensor core busy {work:.0f} % of {replay.end:,.0f} clocks)", fontsize=8, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
