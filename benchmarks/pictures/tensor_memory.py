"""Pictures of tensor memory: the accumulator of each kind of product, and which thread reads which cell.

Drawn from `isa.tensor_memory` and `isa.tensor_cells`, which the emulator and the DSL also read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.isa import tensor_cells
from warploom.isa.instructions.tcgen05 import REGISTERS_OF_X1
from warploom.isa.tensor_memory import DATA_PATHS, LANES, QUARTER, DataPath

from .style import FAINT, GROUPS, INK, MIDDLE, PALE, bare, cells, figure, svg

EXTENT_N = 64
"""Columns of the accumulators shown."""
_SHAPES = {"16x64b": 1, "16x128b": 2, "16x256b": 4}
"""Registers shown of each fragment."""


def data_paths() -> str:
    """The seven layouts: lanes downwards, columns to the right; one colour for each block of rows of D."""
    panels = [(path, who) for path in DATA_PATHS for who in range(path.group)]
    drawn, axes = figure(7.6, 4.6, 2, 5)
    for each, (path, who) in zip(axes.ravel(), panels, strict=True):
        _data_path(each, path, who)
    axes[0][0].set_ylabel("128 lanes, by quarters", fontsize=7)
    axes[1][0].set_ylabel("128 lanes, by quarters", fontsize=7)
    return svg(drawn)


def _data_path(axes: Any, path: DataPath, who: int) -> None:
    from matplotlib.patches import Rectangle

    axes.set_xlim(0, EXTENT_N)
    axes.set_ylim(LANES, 0)
    axes.add_patch(Rectangle((0, 0), EXTENT_N, LANES, facecolor=FAINT))
    blocks = [
        block
        for block in tensor_cells.accumulator(path.m, EXTENT_N, path.group, path.name == "C", path.name in "EG")
        if block.who == who
    ]
    for block in blocks:
        lanes, rows = np.arange(LANES)[block.lanes], np.arange(path.m)[block.rows]
        left, right = block.columns.start, block.columns.stop
        colours = PALE if left == 0 else MIDDLE
        for start in range(0, lanes.size, 16):
            lane, row = int(lanes[start]), int(rows[start])
            colour = colours[row // 32 % 4]
            axes.add_patch(Rectangle((block.cells.start, lane), block.cells.stop, 16, facecolor=colour))
            whose = f"m {row}, n {left}..{right - 1}" if path.parts > 1 else f"m {row}.."
            axes.text(1, lane + 11, whose, fontsize=4.6, color=INK)
    for lane in range(QUARTER, LANES, QUARTER):
        axes.axhline(lane, color="white", linewidth=1.2)
    of = f", CTA {who}" if path.group == 2 else ""
    kind = {"C": ", sparse", "E": ", .ws", "G": ", .ws"}.get(path.name, "")
    bare(axes, f"{path.name}: M {path.m}{kind}{of}")
    axes.title.set_fontsize(7)


def register_fragments() -> str:
    """Which thread of a warp holds which cell of 16 lanes, for the three shapes that mma.sync's fragments have."""
    drawn, axes = figure(7.6, 3.2, 1, 3, gridspec_kw={"width_ratios": [2, 4, 8]})
    for each, (shape, count) in zip(axes, _SHAPES.items(), strict=True):
        lanes, columns = tensor_cells.fragment(shape, count)
        width = int(columns.max()) + 1
        threads = np.full((QUARTER // 2, width), -1)
        registers = np.zeros_like(threads)
        for register in range(count):
            for thread in range(QUARTER):
                place = lanes[register, thread], columns[register, thread]
                threads[place], registers[place] = thread, register
        colours = [[GROUPS[thread // 4] for thread in row] for row in threads.tolist()]
        labels = [
            [f"{thread}:{register}" for thread, register in zip(row, held, strict=True)]
            for row, held in zip(threads.tolist(), registers.tolist(), strict=True)
        ]
        cells(each, colours, labels, 4.5)
        bare(each, f"{shape}.x{count // REGISTERS_OF_X1[shape]}")
        each.set_xlabel("columns; a cell says thread:register", fontsize=7)
    axes[0].set_ylabel("16 lanes", fontsize=7)
    return svg(drawn)


PICTURES = {"tensor-memory": data_paths, "tensor-fragments": register_fragments}
