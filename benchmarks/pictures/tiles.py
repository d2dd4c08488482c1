"""Pictures of tiles: their order, how they fill waves, and the savings of larger ones.

The orders are those of `collective.raster`: the emulator runs the kernels' own device code, one thread per tile.
"""

from __future__ import annotations

from typing import Any

from warploom.collective.tile.raster import Order, along_rows, grouped, hilbert
from warploom.lab.roofline import SMS, waves
from warploom.lang import Tile, kernel, ptx, reg
from warploom.types import u32, u64

from .style import FAINT, INK, MIDDLE, PALE, TILES, bare, figure, plain, svg

ORDERS: dict[str, Order] = {
    "along rows": along_rows, "bands of 4": grouped(4), "bands of 8": grouped(8), "Hilbert, squares of 8": hilbert(3),
}  # fmt: skip
THREADS = 32


def walk(order: Order, rows: int, columns: int) -> list[tuple[int, int]]:
    """(row, column) of each tile of a grid in an order, as a kernel's threads compute them."""
    import numpy as np

    count = rows * columns

    @kernel(out_specs=(Tile(count, 2, u32),), grid=(-(-count // THREADS),), block=THREADS, arch="sm_80")
    def places(C: Any) -> None:
        number = ptx.special.ctaid.x() * THREADS + ptx.special.tid.x()
        with ptx.if_(number < count):
            row, column = order(number, reg.scalar(u32, init=rows), reg.scalar(u32, init=columns))
            ptx.store(ptx.addr(C.pointer() + (number * 8).to(u64)), [row, column])

    found = places.emulate(np.zeros((count, 2), np.uint32), check=False).outputs[0]
    return [(int(row), int(column)) for row, column in found]


def orders(side: int = 16, at_a_time: int = 33) -> str:
    """Four raster orders of a square grid: the path, the tiles of one wave, and the blocks of A and B they need."""
    from matplotlib.patches import Rectangle

    drawn, axes = figure(7.6, 2.35, 1, len(ORDERS))
    for each, (name, order) in zip(axes, ORDERS.items(), strict=True):
        path = walk(order, side, side)
        wave = set(path[at_a_time : 2 * at_a_time])
        each.add_patch(Rectangle((0, 0), side, side, facecolor=FAINT))
        for r, c in wave:
            each.add_patch(Rectangle((c, r), 1, 1, facecolor=MIDDLE[0]))
        each.set_xlim(0, side)
        each.set_ylim(side, 0)
        each.set_aspect("equal")
        each.plot([c + 0.5 for _, c in path], [r + 0.5 for r, _ in path], color=INK, linewidth=0.5)
        needed = len({r for r, _ in wave}) + len({c for _, c in wave})
        bare(each, name)
        each.set_xlabel(f"second wave of {at_a_time}: {needed} blocks", fontsize=7)
    return svg(drawn)


def quantisation() -> str:
    """The share of useful slots, for N from 1024 to 8192, M = 4096, four tiles."""
    tiles = ((64, 64, 2), (128, 128, 1), (128, 256, 1), (256, 192, 1))
    drawn, axes = figure(7.6, 2.7)
    extents = range(1024, 8193, 64)
    for (m, n, ctas), colour in zip(tiles, ("#8a8a8a", *TILES[1:3], TILES[0]), strict=False):
        shares = [waves(4096, extent, m, n, SMS["H200"] * ctas).efficiency for extent in extents]
        label = f"{m} x {n}" + (f", {ctas} CTAs on an SM" if ctas > 1 else "")
        axes.plot(extents, [100 * share for share in shares], color=colour, linewidth=1.2, label=label)
    plain(axes, "What tiles and waves leave of the peak: M = 4096, 132 SMs", "N", "%")
    axes.set_ylim(0, 101)
    axes.set_xticks(range(1024, 8193, 1024))
    axes.legend(fontsize=7, frameon=False, ncols=4, loc="lower center")
    return svg(drawn)


def edges(m: int = 300, n: int = 600, tile: tuple[int, int] = (128, 128), sms: int = 6) -> str:
    """Tiles that cross the edge of an array, and the waves they make on a few multiprocessors."""
    found = waves(m, n, *tile, at_a_time=sms)
    drawn, axes = figure(7.6, 2.3, 1, 2, gridspec_kw={"width_ratios": [1, 1.25]})
    from matplotlib.patches import Rectangle

    for row in range(found.rows):
        for column in range(found.columns):
            axes[0].add_patch(Rectangle((column * tile[1], row * tile[0]), tile[1], tile[0], facecolor=FAINT,
                                        edgecolor="white"))  # fmt: skip
            number = row * found.columns + column
            axes[0].text(column * tile[1] + tile[1] / 2, row * tile[0] + tile[0] / 2, str(number), ha="center",
                         va="center", fontsize=8, color=INK)  # fmt: skip
    axes[0].add_patch(Rectangle((0, 0), n, m, facecolor=TILES[0], alpha=0.35))
    axes[0].set_xlim(0, found.columns * tile[1])
    axes[0].set_ylim(found.rows * tile[0], 0)
    axes[0].set_aspect("equal")
    bare(axes[0], f"C {m} x {n}: {100 * found.tile_efficiency:.0f} % of its tiles")
    rounds = -(-found.tiles // found.at_a_time)
    for number in range(rounds * found.at_a_time):
        used = number < found.tiles
        place = (number // found.at_a_time, number % found.at_a_time)
        axes[1].add_patch(Rectangle(place, 1, 1, facecolor=MIDDLE[0] if used else FAINT, edgecolor="white"))
        axes[1].text(place[0] + 0.5, place[1] + 0.5, str(number) if used else "", ha="center", va="center", fontsize=8)
    axes[1].set_xlim(0, rounds)
    axes[1].set_ylim(found.at_a_time, 0)
    bare(axes[1], f"{found.tiles} tiles on {sms} SMs: {100 * found.wave_efficiency:.0f} % of the slots")
    axes[1].set_xlabel("waves", fontsize=8)
    axes[1].set_ylabel("SMs", fontsize=8)
    return svg(drawn)


def larger() -> str:
    """Multiply-adds per element that a tile loads: the tiles of the rungs, drawn to scale."""
    from matplotlib.patches import Rectangle

    shapes = ((64, 64, "rung 8"), (128, 128, "rungs 9-11"), (128, 256, "rungs 12-19"), (256, 192, "rungs 21-23"))
    drawn, axes = figure(7.6, 2.3)
    left = 0.0
    for m, n, rungs in shapes:
        axes.add_patch(Rectangle((left + 30, 30), n, m, facecolor=TILES[0], alpha=0.8))
        axes.add_patch(Rectangle((left, 30), 24, m, facecolor=TILES[1]))
        axes.add_patch(Rectangle((left + 30, 0), n, 24, facecolor=TILES[2]))
        axes.text(left + 30 + n / 2, 30 + m / 2, f"{m * n / (m + n):.0f}", ha="center", va="center", fontsize=11,
                  color="white")  # fmt: skip
        axes.text(left + 30, 30 + m + 14, f"{m} x {n}, {rungs}", fontsize=7, va="center", color=INK)
        left += n + 110
    axes.set_xlim(-8, left - 40)
    axes.set_ylim(312, -6)
    axes.set_aspect("equal")
    bare(axes, "Multiply-adds for each element loaded: m n / (m + n).   Ochre: rows of A.   Blue: rows of B.")
    return svg(drawn)


def tail(clusters: int = 66, size: int = 8192, tile: tuple[int, int] = (256, 192)) -> str:
    """The waves of a product in tiles, by pairs: with a whole last wave, and with the tail of `Persistent` split."""
    from matplotlib.patches import Rectangle

    pairs = -(-size // (2 * tile[0])) * -(-size // tile[1])
    full, rest = divmod(pairs, clusters)
    halves = rest * 2 <= clusters
    drawn, axes = figure(7.6, 2.6, 1, 2, sharey=True)
    for each, split in zip(axes, (False, True), strict=True):
        for wave in range(full):
            each.add_patch(Rectangle((wave, 0), 0.94, clusters, facecolor=MIDDLE[0]))
        if split and halves:
            each.add_patch(Rectangle((full, 0), 0.47, 2 * rest, facecolor=TILES[1]))
            each.add_patch(Rectangle((full, 2 * rest), 0.47, clusters - 2 * rest, facecolor=FAINT))
            title = f"{2 * rest} clusters, half of K for each CTA: {full + 0.5} waves"
        else:
            each.add_patch(Rectangle((full, 0), 0.94, rest, facecolor=TILES[1]))
            each.add_patch(Rectangle((full, rest), 0.94, clusters - rest, facecolor=FAINT))
            title = f"{rest} clusters have a pair in the last wave: {full + 1} waves"
        each.set_xlim(0, full + 1)
        each.set_ylim(clusters, 0)
        plain(each, title, "waves", "clusters")
        each.grid(False)
    return svg(drawn)


def outer(lane: int = 5) -> str:
    """Rung 4 step by step: the CTA's load of a k-tile, a warp's product for one k, and a lane's share of it."""
    from warploom.kernels.ladder import r04_warp_tiling as rung

    side, warp = rung.Config().tile_m, rung.WARP
    drawn, axes = figure(7.6, 2.7, 1, 3)
    steps = (
        (3 * side, side, side, rung.TILE_K, f"a CTA: {side} x {side} of C,\n{rung.TILE_K} of k at a time"),
        (side, warp, warp, 1, f"a warp: {warp} x {warp} of it,\none k at a time: an outer product"),
    )
    for each, (whole, part, at, deep, title) in zip(axes, steps, strict=False):
        wide, place = whole * 0.2, whole * (0.14 if deep > 1 else 0.08)
        thick = whole * (0.06 if deep > 1 else 0.03)
        _boxes(each, [(0, 0, whole, whole, FAINT), (at, at, part, part, TILES[0]),
                      (-wide, 0, wide * 0.8, whole, FAINT), (-place, at, thick, part, TILES[1]),
                      (0, -wide, whole, wide * 0.8, FAINT), (at, -place, part, thick, TILES[2])])  # fmt: skip
        each.set_xlim(-wide, whole)
        each.set_ylim(whole, -wide)
        bare(each, title)
    down, across = lane // 4 * rung.ROWS, lane % 4 * rung.VECTOR
    gap, pieces = warp * 0.2, []
    for slice_ in range(0, warp, rung.SLICE):
        pieces.append((across + slice_, down, rung.VECTOR, rung.ROWS, TILES[0]))
        pieces.append((across + slice_, -gap * 0.7, rung.VECTOR, gap * 0.4, TILES[2]))
    _boxes(axes[2], [(0, 0, warp, warp, FAINT), (-gap * 0.7, down, gap * 0.4, rung.ROWS, TILES[1]), *pieces])
    axes[2].set_xlim(-gap, warp)
    axes[2].set_ylim(warp, -gap)
    held = rung.ROWS * rung.COLUMNS
    bare(
        axes[2],
        f"lane {lane}: {rung.ROWS} x {rung.COLUMNS} of that, {held} fma\nfrom {rung.ROWS + rung.COLUMNS} floats",
    )
    for each in axes:
        each.set_aspect("equal")
    return svg(drawn)


def tiling(side: int = 4, at: tuple[int, int] = (1, 2), shown: tuple[int, ...] = (0, 1, 3)) -> str:
    """A CTA of rung 3 step by step: the tiles of A and B in shared memory, and the growing tile of C."""
    drawn, axes = figure(7.6, 2.7, 1, len(shown))
    row, column, gap = *at, 0.4
    for each, step in zip(axes, shown, strict=True):
        boxes = [
            (0.0, 0.0, side, side, FAINT),
            (-side - gap, 0.0, side, side, FAINT),
            (0.0, -side - gap, side, side, FAINT),
        ]
        for k in range(step + 1):
            newest = k == step
            boxes.append((-side - gap + k, row, 1, 1, TILES[1] if newest else PALE[1]))
            boxes.append((column, -side - gap + k, 1, 1, TILES[2] if newest else PALE[2]))
        boxes.append((column, row, 1, 1, TILES[0] if step == side - 1 else MIDDLE[0]))
        _boxes(each, boxes)
        each.text(column + 0.5, row + 0.5, f"{step + 1}/{side}", ha="center", va="center", fontsize=6, color="white")
        for x, y, name in (
            (-side / 2 - gap, side + 0.5, "A"),
            (side / 2, side + 0.5, "C"),
            (side + 0.4, -side / 2, "B"),
        ):
            each.text(x, y, name, ha="center", va="center", fontsize=8, color=INK)
        each.set_xlim(-side - gap, side + 0.8)
        each.set_ylim(side + 1, -side - gap)
        each.set_aspect("equal")
        bare(each, f"k-tile {step}: fetch, meet, multiply, meet")
        each.title.set_fontsize(7)
    return svg(drawn)


def _boxes(axes: Any, boxes: list[tuple[float, float, float, float, str]]) -> None:
    """Rectangles: left, top, width, height, colour."""
    from matplotlib.patches import Rectangle

    for left, top, width, height, colour in boxes:
        axes.add_patch(Rectangle((left, top), width, height, facecolor=colour, edgecolor="white", linewidth=0.4))


PICTURES = {
    "orders": orders, "quantisation": quantisation, "edges": edges, "larger": larger, "tail": tail, "outer": outer,
    "tiling": tiling,
}  # fmt: skip
