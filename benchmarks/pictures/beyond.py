"""Pictures of the chapters after the ladder: attention, ways to divide K, launches, several GPUs, scaling."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import attention_timeline
from benchmarks.attention_steps import STEPS, operands
from benchmarks.predict_sets import outputs_for, zeros_for
from warploom.emulator.engines.boxes import Box
from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.frame import Frame
from warploom.emulator.machine.machine import Machine
from warploom.emulator.machine.places import Lanes
from warploom.kernels.hopper import attention, attention_backward
from warploom.kernels.hopper.attention_backward_config import backward_config
from warploom.kernels.hopper.attention_config import Attention
from warploom.lab import schedules
from warploom.lab.schedules import Schedule
from warploom.runtime.machine import H200
from warploom.timing import Timeline

from . import traced
from .style import FAINT, GROUPS, INK, PALE, TILES, bare, figure, plain, svg
from .traced import Panel, Row

LAUNCHES = Path("nvidia-h200") / "launch.json"
WAYS = ("stream", "pdl", "graph", "pdl+graph")
NAMES = {"stream": "one by one", "pdl": "dependent launch", "graph": "a graph", "pdl+graph": "both"}


# -- attention -----------------------------------------------------------------------------------------------------


def turns() -> str:
    """One consumer, and two that take turns: products, and the other work of the consumers' threads."""
    panels = []
    for step, said in (("one kernel", "one consumer"), ("next block early", "two consumers, finished kernel")):
        config, of = STEPS[step], Attention()
        arrays, numbers = operands(of, 1, 1024)
        found = traced.traced(attention.build(of, config), *arrays, **numbers)
        rows = [_products(found, config.consumers)]
        for me in range(config.consumers):
            bars = traced.joined([(e.start, e.clocks, TILES[2 * me]) for e in
                                  traced.events(found, traced.RUN, warp=4 * (1 + me))])  # fmt: skip
            rows.append((f"threads of consumer {me}" if config.consumers > 1 else "its threads", bars))
        work = sum(e.busy[1] - e.busy[0] for e in traced.events(found, traced.MATRIX))
        title = f"{said}: {config.tile_m} queries, 1024 keys   (tensor core busy {100 * work / found.end:.0f} %"
        panels.append(Panel(f"{title} of {found.end:,.0f} clocks)", rows, found.end))
    return traced.draw(panels, "clocks of an H200, by the package's model")


def _products(found: Timeline, consumers: int) -> Row:
    warps = sorted({e.warp // 4 for e in traced.events(found, traced.MATRIX)})
    bars = [(e.busy[0], e.busy[1] - e.busy[0], TILES[2 * warps.index(e.warp // 4)])
            for e in traced.events(found, traced.MATRIX)]  # fmt: skip
    return ("tensor core", traced.joined(bars))


MEASURED = Path("nvidia-h200") / "attention-timeline.json"
STEADY = (6_000, 14_000)
"""Clocks since the first product that are drawn."""


def turns_measured(results: Path) -> str:
    """Two consumers on a GPU, by marks in their instructions: without turns, with turns, the finished kernel."""
    said = {"two consumers": "without turns", "turns": "with turns", "next block early": "the finished kernel"}
    panels = []
    for row in json.loads((results / MEASURED).read_text())["rows"]:
        if row["step"] not in said:
            continue
        marks, rows = attention_timeline.marks_in(row), []
        for me in (0, 1):
            bars = [(start, end - start, colours[2 * me])
                    for spans, colours in ((attention_timeline.computing, TILES), (attention_timeline.issuing, PALE))
                    for start, end in spans(marks, 1 + me) if STEADY[0] < start and end < STEADY[1]]  # fmt: skip
            rows.append((f"consumer {me}", bars))
        both = f"both compute in {100 * row['both_compute']:.0f} % of all clocks"
        panels.append(Panel(f"{said[row['step']]}   ({both})", rows, STEADY[1], STEADY[0]))
    return traced.draw(panels, "clocks of one SM of an H200: dark, threads compute; pale, they issue products")


def gradient_products() -> str:
    """Five tiles of queries through the kernel of gradients: each product, and what the consumers' threads do."""
    of, length = Attention(), 400
    config = backward_config(of)
    kernel, padded = attention_backward.build(of, config), config.padded(length)
    sizes = {"B": 1, "S": length, "T": config.tile_n, "H": 1, "G": 1, "P": padded,
             "W": config.sum_elements(of, padded), "places": config.turns(1, padded)}  # fmt: skip
    found = traced.traced(kernel, *zeros_for(kernel, sizes), out=outputs_for(kernel, sizes), scale=1.0, factor=1.0,
                          section=1)  # fmt: skip
    depths = (of.depth, of.columns, config.tile_m, config.tile_n, config.tile_m)
    kinds = [kind for kind, depth in enumerate(depths) for _ in range(depth // 16)]  # of a tile, in order
    rows: list[Row] = []
    for kind, name in enumerate(("S = K Q", "dP = V dO", "dV += P dO", "dQ = K dS", "dK += dS Q")):
        bars = []
        for me in range(config.consumers):
            own = [e for e in traced.events(found, traced.MATRIX) if e.warp // 4 == 1 + me]
            bars += [(e.busy[0], e.busy[1] - e.busy[0], TILES[2 * me])
                     for n, e in enumerate(own) if kinds[n % len(kinds)] == kind]  # fmt: skip
        rows.append((name, traced.joined(bars)))
    for me in range(config.consumers):
        runs = traced.events(found, traced.RUN, warp=4 * (1 + me))
        rows.append((f"threads of consumer {me}", traced.joined([(e.start, e.clocks, TILES[2 * me]) for e in runs])))
    work = sum(e.busy[1] - e.busy[0] for e in traced.events(found, traced.MATRIX))
    busy = f"tensor core busy {100 * work / found.end:.0f} % of {found.end:,.0f} clocks"
    title = f"{config.tile_n} keys, {length} queries   ({busy})"
    return traced.draw([Panel(title, rows, found.end)], "clocks of an H200, by the package's model")


# -- dividing K ----------------------------------------------------------------------------------------------------

TILE_COUNT, K_TILES, CTAS = 9, 16, 4


def divided() -> str:
    """Nine tiles on four CTAs, three ways; one colour per tile, paler for a part of a tile."""
    found = {
        "data-parallel": schedules.data_parallel(TILE_COUNT, K_TILES, CTAS),
        "split-K, two splits": schedules.split_k(TILE_COUNT, K_TILES, CTAS, 2),
        "stream-K": schedules.stream_k(TILE_COUNT, K_TILES, CTAS),
    }
    drawn, axes = figure(7.6, 2.0, 1, 3, sharey=True)
    longest = max(one.time for one in found.values())
    for each, (name, schedule) in zip(axes, found.items(), strict=True):
        _schedule(each, schedule, longest)
        bare(each, f"{name}\n{schedule.time} k-tiles, {100 * schedule.busy:.0f} % busy")
        each.title.set_fontsize(7)
        each.set_xlabel("k-tiles", fontsize=7)
    axes[0].set_ylabel("CTAs", fontsize=7)
    return svg(drawn)


def _schedule(axes: Any, schedule: Schedule, longest: int) -> None:
    from matplotlib.patches import Rectangle

    for cta, pieces in enumerate(schedule.ctas):
        for piece in pieces:
            whole = piece.last - piece.first == K_TILES
            colour = GROUPS[piece.tile % len(GROUPS)]
            axes.add_patch(Rectangle((piece.start, cta), piece.end - piece.start, 0.86, facecolor=colour,
                                     alpha=1 if whole else 0.55, edgecolor="white", linewidth=0.6))  # fmt: skip
            axes.text((piece.start + piece.end) / 2, cta + 0.46, str(piece.tile), ha="center", va="center", fontsize=6,
                      color="white" if whole else INK)  # fmt: skip
    axes.set_xlim(0, longest)
    axes.set_ylim(len(schedule.ctas), 0)


# -- launches ------------------------------------------------------------------------------------------------------


def launch_times(results: Path) -> dict[tuple[int, int, int], dict[str, float]]:
    """Median microseconds from the start of one kernel to the start of the next, by shape and launch method."""
    rows = json.loads((results / LAUNCHES).read_text())["rows"]
    found: dict[tuple[int, int, int], dict[str, float]] = {}
    for row in rows:
        if row["provider"] == "warploom":
            found.setdefault((row["m"], row["n"], row["k"]), {})[row["launch"]] = row["us"]["median"]
    return found


def launches(results: Path) -> str:
    """A sequence of equal kernels, launched in four ways: a bar begins as soon as the previous kernel allows."""
    times = launch_times(results)
    shapes = [shape for shape in times if shape in ((512, 512, 512), (16, 4096, 14336))]
    drawn, axes = figure(7.6, 2.5, 1, len(shapes))
    for each, shape in zip(axes, sorted(shapes), strict=True):
        least, span = min(times[shape].values()), 4.2 * max(times[shape].values())
        for at, way in enumerate(WAYS):
            period = times[shape][way]
            starts = [number * period for number in range(int(span / period) + 1)]
            each.barh(at, span, 0.8, color=FAINT, zorder=1)
            for number, start in enumerate(starts):
                length = min(0.94 * least, span - start)
                each.barh(at, length, 0.8, left=start, color=TILES[number % 2 * 2], zorder=2)
        each.set_yticks(range(len(WAYS)), [f"{NAMES[way]}: {times[shape][way]:.4g} us" for way in WAYS], fontsize=7)
        each.set_ylim(len(WAYS) - 0.4, -0.6)
        each.set_xlim(0, span)
        plain(each, " x ".join(map(str, shape)), "microseconds")
        each.grid(False)
        each.tick_params(labelsize=7)
    return svg(drawn)


# -- several GPUs --------------------------------------------------------------------------------------------------


class Devices(Observer):
    """Activities of each GPU, by steps of the emulator: (step, device, what, owner of the rows)."""

    def __init__(self) -> None:
        self.step = 0
        self.found: list[tuple[int, int, str, int]] = []

    def issued(self, operation: AsyncOperation) -> None:
        self.step += 1
        device = operation.issuer.frame.cta.device.index
        boxes = [place for place in operation.targets if isinstance(place, Box)]
        if boxes and operation.kind == "store":
            self.found.append((self.step, device, "store", int(boxes[0].coordinates[-1])))

    def accessed(self, frame: Frame, how: str, place: Lanes, values: Any) -> None:
        self.step += 1
        if how == "writes" and place.space == "global" and place.size * place.count == 16:
            self.found.append((self.step, frame.cta.device.index, "push", frame.cta.device.index))


def devices(ranks: int = 4) -> str:
    """Four emulated GPUs gather A and multiply: pushes, and whose rows each GPU stores, by steps of the emulator."""
    import ml_dtypes
    import numpy as np

    from warploom.collective.tile import timeout_record
    from warploom.collective.tile.peer_signals import STATE_WORDS
    from warploom.kernels.hopper import gemm_all_gather
    from warploom.kernels.hopper.description import Config

    config, rows, n, k = Config(ctas=1, pdl=False, tile_m=128, tile_n=64, stages=3), 256, 128, 128
    seen: list[Devices] = []

    def watcher(machine: Machine) -> Devices:
        seen.append(Devices())
        return seen[-1]

    def each(make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(ranks)]

    record = np.zeros(timeout_record.words(256), np.uint32)
    record[timeout_record.TIMEOUT] = 1000
    gemm_all_gather.build(ranks, config=config).emulate(
        each(lambda: np.zeros((1, rows, k), ml_dtypes.bfloat16)), each(lambda: np.zeros((n, k), ml_dtypes.bfloat16)),
        each(lambda: np.zeros((ranks, rows, k), ml_dtypes.bfloat16)),
        each(lambda: np.zeros(gemm_all_gather.counters(rows, ranks, config), np.uint32)),
        each(lambda: np.zeros(STATE_WORDS, np.uint32)), each(record.copy), range(ranks),
        devices=ranks, machine=H200(sms=2), schedule="random", seed=1, check=False, watch=watcher,
    )  # fmt: skip
    found, last = seen[-1].found, seen[-1].step
    drawn, axes = figure(7.6, 2.7)
    labels = []
    for device in range(ranks):
        for line, what in enumerate(("push", "store")):
            at = 2 * device + line
            axes.barh(at, last, 0.84, color=FAINT, zorder=1)
            mine = [(step, owner) for step, gpu, kind, owner in found if (gpu, kind) == (device, what)]
            for owner in range(ranks):
                steps = [step for step, of in mine if of == owner]
                colour = (PALE if what == "push" else TILES)[owner]
                wide = last / 160 if what == "store" else last / 400
                bars = traced.joined([(step, wide, colour) for step in steps], 0 if what == "store" else last / 150)
                axes.broken_barh([bar[:2] for bar in bars], (at - 0.42, 0.84), facecolors=colour, zorder=2)
            labels.append(f"GPU {device} " + ("pushes its rows" if what == "push" else "stores tiles"))
    axes.set_yticks(range(2 * ranks), labels, fontsize=7)
    axes.set_ylim(2 * ranks - 0.4, -0.6)
    axes.set_xlim(0, last)
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "steps of the emulator, in an order drawn at random; a colour for the owner of the rows", fontsize=7
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return svg(drawn)


def pictures(results: Path) -> dict[str, Callable[[], str]]:
    """The pictures of this file, by name."""
    return {
        "softmax-turns": turns,
        "softmax-turns-measured": partial(turns_measured, results),
        "gradient-products": gradient_products,
        "dividing-k": divided,
        "launches": partial(launches, results),
        "devices": devices,
    }
