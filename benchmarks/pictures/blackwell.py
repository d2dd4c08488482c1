"""Pictures of the kernels for sm_100: timelines, the pair, scale factors, launch control. None was run on hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.collective.tile.warp_roles import LOAD, MULTIPLY
from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.frame import Frame
from warploom.emulator.machine.machine import Machine
from warploom.emulator.machine.places import Lanes
from warploom.isa.tensor_cells import accumulator, factor_bytes, factor_place
from warploom.kernels.blackwell import attention, gemm, minimal, specialised
from warploom.kernels.blackwell.attention_config import STRANDS
from warploom.kernels.blackwell.description import ROWS, Config
from warploom.kernels.hopper.attention_config import LOG2_E, Attention, section
from warploom.lang import Kernel
from warploom.runtime import B200
from warploom.timing import Timeline

from . import traced
from .style import FAINT, INK, MIDDLE, PALE, TILES, bare, cells, figure, svg
from .traced import Panel, Row

UNIT = "clocks of an H200, as if it had Blackwell's matrix unit; emulated, not run on hardware"
EPILOGUE_WARP = 4


def zeros(*shape: int) -> Any:
    import ml_dtypes
    import numpy as np

    return np.zeros(shape, ml_dtypes.bfloat16)


def gemm_timeline(kernel: Kernel, m: int, n: int, k: int) -> Timeline:
    return traced.traced(kernel, zeros(m, k), zeros(n, k))


def one_cta() -> str:
    """`minimal`: copies, products and the epilogue alternate."""
    k = 512
    found = gemm_timeline(minimal.build(), 128, 128, k)
    loads = [e.start for e in traced.events(found, traced.COPY) if "tcgen05.ld" in e.what]
    rows: list[Row] = [
        *traced.copies(found, lambda number, stage: PALE[0]),
        traced.products(found, lambda number: TILES[0]),
        ("threads store", [(min(loads), found.end - min(loads), MIDDLE[0])]),
    ]
    return traced.draw([Panel(f"minimal: 128 x 128 x {k}{busy(found)}", rows, found.end)], UNIT)


def busy(found: Timeline, end: float | None = None) -> str:
    """The tensor core's share of busy time, in words."""
    work = sum(e.busy[1] - e.busy[0] for e in traced.events(found, traced.MATRIX))
    return f"   (tensor core busy {100 * work / (end or found.end):.0f} % of {end or found.end:,.0f} clocks)"


def persistent_rows(found: Timeline, tiles: int) -> list[Row]:
    """Copies, products, and the epilogue of each tile: dark while the accumulator is held, pale while it is stored."""
    count = len(traced.events(found, traced.MATRIX))
    fillings = len({(e.phase, e.stage) for e in traced.events(found, traced.COPY) if e.barrier == "full"})
    ends = traced.between(found, EPILOGUE_WARP, "accumulator.full")
    freed = traced.releases(found, "accumulator.empty", EPILOGUE_WARP)
    bars = []
    for tile, ((start, end), free) in enumerate(zip(ends, freed, strict=True)):
        bars += [(start, free - start, TILES[tile % 4]), (free, end - free, MIDDLE[tile % 4])]
    return [
        *traced.copies(found, lambda number, stage: PALE[number * tiles // fillings % 4]),
        traced.products(found, lambda number: TILES[number * tiles // count % 4]),
        ("epilogue", bars),
    ]


def roles() -> str:
    """`specialised` on two tiles: a warp that loads, one that multiplies, and the epilogue, all at once."""
    found = gemm_timeline(specialised.build(specialised.Config(tile_n=128)), 256, 128, 1024)
    rows: list[Row] = [
        (f"warp {warp}, {role}", working(found, warp, colour))
        for warp, role, colour in ((LOAD, "load", PALE[0]), (MULTIPLY, "multiply", TILES[0]))
    ]
    rows += [traced.products(found, lambda number: TILES[0]), ("warp 4, epilogue", working(found, 4, MIDDLE[0]))]
    return traced.draw([Panel(f"specialised: 128 x 128 x 1024{busy(found)}", rows, found.end)], UNIT)


def few_rows(tokens: int = 16, columns: int = 512) -> str:
    """The matrix unit's M of 128: with rows of A most of a product is padding, with rows of B nothing is."""
    drawn, (left, right) = figure(7.6, 2.4, 1, 2, gridspec_kw={"width_ratios": [2, 1]})
    for column in range(0, columns, 256):
        left.add_patch(rectangle(column, 0, 254, tokens, MIDDLE[0]))
        left.add_patch(rectangle(column, tokens, 254, ROWS - tokens, FAINT))
    text(left, columns / 2, (ROWS + tokens) / 2, f"{ROWS - tokens} of {ROWS} rows of each product are padding")
    left.set_xlim(0, columns)
    left.set_ylim(ROWS, 0)
    bare(left, f"D: M = {ROWS} rows of A, of which {tokens} exist; N = 256 columns")
    for row in range(0, columns, ROWS):
        right.add_patch(rectangle(0, row, tokens, ROWS - 4, MIDDLE[row // ROWS % 4]))
        text(right, 3.2 * tokens, row + ROWS / 2, f"rows {row} to {row + ROWS - 1} of B")
    right.set_xlim(0, 5 * tokens)
    right.set_ylim(columns, 0)
    right.set_aspect("auto")
    bare(right, f"Dᵀ: M = {ROWS} rows of B, N = {tokens}")
    return svg(drawn)


def accumulators() -> str:
    """`specialised` with one accumulator and with two: the epilogue after the products, or overlapped with the next."""
    panels = []
    for buffers in (1, 2):
        config = specialised.Config(tile_n=128, buffers=buffers)
        found = gemm_timeline(specialised.build(config), 4096, 2304, 1024)
        tiles = len(traced.between(found, EPILOGUE_WARP, "accumulator.full"))
        said = "one accumulator" if buffers == 1 else "two accumulators"
        panels.append(Panel(f"{said}: {tiles} tiles of 128 x 128 x 1024{busy(found)}",
                            persistent_rows(found, tiles), found.end))  # fmt: skip
    return traced.draw(panels, UNIT)


def launch_control(tiles: int = 18, sms: int = 4, seed: int = 3) -> str:
    """Which cluster computes which tile of C, in order, for three answers of launch control."""
    drawn, axes = figure(7.6, 2.6, 1, 3)
    for each, (how, said) in zip(axes, ANSWERS.items(), strict=True):
        done = walked(how, tiles, sms, seed)
        for row, mine in enumerate(done):
            colours = [TILES[row % 4] if at == 0 else MIDDLE[row % 4] for at in range(len(mine))]
            for at, (tile, colour) in enumerate(zip(mine, colours, strict=True)):
                each.add_patch(rectangle(at, row, 0.94, 0.86, colour))
                each.text(at + 0.47, row + 0.46, str(tile), ha="center", va="center", fontsize=6,
                          color="white" if at == 0 else INK)  # fmt: skip
        each.set_xlim(0, max(6, *(len(mine) for mine in done)))
        each.set_ylim(tiles, 0)
        bare(each, said)
        each.set_xlabel("tiles of a cluster, in its order", fontsize=7)
    axes[0].set_ylabel("clusters that ran", fontsize=7)
    return svg(drawn)


ANSWERS = {"grant": "always granted", "random": "granted at random", "decline": "always declined"}


def walked(how: str, tiles: int, sms: int, seed: int) -> list[list[int]]:
    """The tiles that each cluster of an emulated run stored, by clusters in the order of their first CTA."""
    import numpy as np

    config = Config(tile_m=ROWS, tile_n=16, stages=10)  # so that a CTA fills its multiprocessor
    kernel = gemm.build(config)
    seen: list[Stores] = []

    def watch(machine: Machine) -> Stores:
        seen.append(Stores(tiles))
        return seen[-1]

    kernel.emulate(
        zeros(ROWS * tiles, 64), zeros(16, 64), np.zeros((ROWS * tiles, 16), zeros(1).dtype), check=False, watch=watch,
        schedule="random", seed=seed, machine=B200(sms=sms, launch_control=how),
    )  # fmt: skip
    return [list(dict.fromkeys(mine)) for _, mine in sorted(seen[-1].of.items())]


class Stores(Observer):
    """The tiles of 128 rows to which each CTA stores, in order."""

    def __init__(self, tiles: int) -> None:
        self.tiles = tiles
        self.of: dict[int, list[int]] = {}

    def accessed(self, frame: Frame, how: str, place: Lanes, values: Any) -> None:
        if how == "writes" and place.space == "global":
            for at in place.index[:1]:
                tile = int(at) * place.size // (ROWS * 16 * 2)
                self.of.setdefault(frame.cta.index[0], []).append(tile)


def pair() -> str:
    """Which CTA loads and holds which part of a tile of 256 x 256: two CTAs, one issuing thread."""
    config = Config()
    drawn, axes = figure(7.6, 3.1, 1, 2)
    blocks = accumulator(config.tile_m, config.tile_n, config.group)
    for who, each in enumerate(axes):
        (block,) = [one for one in blocks if one.who == who]
        rows = block.rows
        each.add_patch(rectangle(0, 0, 40, ROWS, PALE[1]))
        text(each, 20, 64, f"A\nrows {rows.start}\nto {rows.stop - 1}")
        for half in range(config.group):
            mine = half == who
            each.add_patch(rectangle(50 + half * config.columns, -52, config.columns - 2, 40,
                                     PALE[2] if mine else FAINT))  # fmt: skip
            where = "" if mine else "\nof the other CTA"
            text(each, 50 + (half + 0.5) * config.columns, -32,
                 f"B, columns {half * config.columns} to {(half + 1) * config.columns - 1}{where}")  # fmt: skip
        each.add_patch(rectangle(50, 0, config.tile_n - 2, ROWS, MIDDLE[0]))
        text(each, 50 + config.tile_n / 2, 64,
             f"D in tensor memory: lanes 0 to 127 are rows {rows.start} to {rows.stop - 1},\n"
             f"columns 0 to {config.tile_n - 1}")  # fmt: skip
        each.set_xlim(-2, 50 + config.tile_n)
        each.set_ylim(ROWS + 4, -74)
        bare(each, f"CTA {who}" + (": its thread issues for both" if who == 0 else ": loads and stores its own"))
    return svg(drawn)


def text(axes: Any, x: float, y: float, said: str, size: float = 7) -> None:
    axes.text(x, y, said, ha="center", va="center", fontsize=size, color=INK)


def rectangle(left: float, top: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, top), width, height, facecolor=colour, edgecolor="white", linewidth=0.5)


def scale_factors() -> str:
    """An atom of scale factors in shared memory, and where one tcgen05.cp puts it in tensor memory."""
    drawn, (left, right) = figure(7.6, 3.2, 1, 2, gridspec_kw={"width_ratios": [16, 9]})
    place = factor_bytes()
    lines = (0, 1, 2, 31)
    held = [["" for _ in range(16)] for _ in lines]
    colours = [[FAINT for _ in range(16)] for _ in lines]
    for row in range(place.shape[0]):
        for factor in range(place.shape[1]):
            line, byte = divmod(int(place[row, factor]), 16)
            if line in lines:
                at = lines.index(line)
                held[at][byte] = f"{row}.{factor}"
                colours[at][byte] = PALE[row // 32]
    cells(left, colours, held, 5)
    bare(left, "an atom in shared memory: row.factor")
    left.set_yticks([at + 0.5 for at in range(len(lines))], [f"line {line}" for line in lines], fontsize=7)
    left.tick_params(axis="y", length=0)
    left.set_xlabel("512 bytes in 32 lines of 16; one colour per 32 rows", fontsize=7)
    shown = (0, 1, 31, 32, 33, 63, 64, 96, 127)
    held = [["" for _ in range(4)] for _ in shown]
    for row in range(place.shape[0]):
        lane, column, _ = factor_place(row, 0)
        for at, each in enumerate(shown):
            if each % 32 == lane:
                held[at][column] = f"row {row}"
    cells(right, [[PALE[column] for column in range(4)] for _ in shown], held, 6)
    right.set_aspect("auto")
    bare(right, "in tensor memory: 4 factors in a cell")
    right.set_yticks([at + 0.5 for at in range(len(shown))], [f"lane {lane}" for lane in shown], fontsize=7)
    right.tick_params(axis="y", length=0)
    right.set_xlabel("4 columns, the same in each quarter", fontsize=7)
    return svg(drawn)


def strands() -> str:
    """Attention on sm_100: two tiles of queries alternate."""
    of = Attention(head_dim=128, value_dim=128)
    q, k = zeros(1, 256, 1, 128), zeros(1, 1024, 1, 128)
    numbers = {"scale": of.head_dim**-0.5 * LOG2_E, "section": section(of, False, k.shape[1], 1, 1)}
    found = traced.traced(attention.build(of), q, k, k, **numbers)
    rows: list[Row] = [("tensor core", strand_products(found, of.head_dim))]
    for strand, warp in enumerate((0, 4)):
        rows.append((f"softmax {strand}", working(found, warp, TILES[2 * strand])))
    rows.append(("correction", working(found, 8, TILES[3])))
    begin = min(start for start, _, _ in rows[1][1])
    title = f"256 queries, 1024 keys, head dimension 128{busy(found)}"
    return traced.draw([Panel(title, rows, found.end, max(0.0, begin - 2500))], UNIT)


def strand_products(found: Timeline, wide: int) -> list[traced.Bar]:
    """Products by strand: dark for S = Q K, lighter for O += P V. Strands 0 and 1 alternate in both kinds."""
    bars: list[traced.Bar] = []
    steps, each = traced.events(found, traced.MATRIX), wide // 16
    before: dict[bool, int] = {True: 0, False: 0}
    for at in range(0, len(steps), each):
        scores = steps[at].line == steps[0].line
        strand = before[scores] % STRANDS
        before[scores] += 1
        for e in steps[at : at + each]:
            bars.append((e.busy[0], e.busy[1] - e.busy[0], (TILES if scores else MIDDLE)[2 * strand]))
    return traced.joined(bars)


def working(found: Timeline, warp: int, colour: str) -> list[traced.Bar]:
    """What a warp does; its waits are omitted."""
    return traced.joined([(e.start, e.clocks, colour) for e in traced.events(found, traced.RUN, warp=warp)])


PICTURES: dict[str, Callable[[], str]] = {
    "one-cta": one_cta, "accumulators": accumulators, "launch-control": launch_control, "pair": pair,
    "scale-factors": scale_factors, "strands": strands, "roles": roles, "few-rows": few_rows,
}  # fmt: skip
