"""Pictures of layouts: which lane accesses what in global memory, in shared memory and in tensor-core fragments.

Swizzles come from `isa.swizzle`, fragments from `isa.fragments`; the accesses are read from emulated runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.frame import Frame
from warploom.emulator.machine.machine import Machine
from warploom.emulator.machine.memory import Region
from warploom.emulator.machine.places import Lanes
from warploom.isa import fragments
from warploom.isa.descriptors import ADDRESS_MASK, Descriptor
from warploom.isa.fragments import Fragment
from warploom.isa.swizzle import Swizzle
from warploom.kernels.ladder import find
from warploom.lang import Kernel

from .style import ACCENT, FAINT, GROUPS, INK, MIDDLE, PALE, TILES, bare, cells, figure, plain, svg

LINE, CHUNK = 128, 16
BANKS, BANK_BYTES, SECTOR = 32, 4, 32


def swizzles() -> str:
    """Eight rows of shared memory under three swizzles; a column of the tile is outlined."""
    shown = (("rows of 128 bytes as they come", None, 128), ("64B: rows of 64", Swizzle.B64, 64),
             ("128B: rows of 128", Swizzle.B128, 128))  # fmt: skip
    drawn, axes = figure(7.6, 2.75, 1, 3)
    for each, (name, swizzle, span) in zip(axes, shown, strict=True):
        colours, labels = [], []
        groups: set[int] = set()
        for line in range(8):
            places = range(line * LINE, (line + 1) * LINE, CHUNK)
            held = [swizzle.apply(place) if swizzle is not None else place for place in places]
            colours.append([GROUPS[at % span // CHUNK] for at in held])
            labels.append([f"{at // span}.{at % span // CHUNK}" for at in held])
            for column, at in enumerate(held):
                if at % span < CHUNK and at // span < 8:
                    groups.add(column)
        cells(each, colours, labels, 6)
        bare(each, name)
        each.set_xlabel(
            f"chunk 0 of rows 0-7: {len(groups)} group{'s' if len(groups) > 1 else ''} of banks", fontsize=7
        )
    axes[0].set_ylabel("lines of 128 bytes", fontsize=7)
    return svg(drawn)


def swizzle_bits(chunk: int = 3) -> str:
    """Bits of the addresses of one chunk in eight rows of 128 bytes, before and after the 128B swizzle."""
    drawn, axes = figure(7.6, 2.5, 1, 3, gridspec_kw={"width_ratios": [6, 6, 8]})
    before = [row * LINE + chunk * CHUNK for row in range(8)]
    after = [Swizzle.B128.apply(place) for place in before]
    for each, places, name in ((axes[0], before, "row | chunk"), (axes[1], after, "after row ^ chunk")):
        bits = [[place >> bit & 1 for bit in range(9, 3, -1)] for place in places]
        colours = [[PALE[0]] * 3 + [PALE[1] if place == old else MIDDLE[1]] * 3
                   for place, old in zip(places, before, strict=True)]  # fmt: skip
        cells(each, colours, [[str(bit) for bit in row] for row in bits], 7)
        bare(each, name)
        each.set_xticks([at + 0.5 for at in range(6)], [str(bit) for bit in range(9, 3, -1)], fontsize=7)
        each.tick_params(axis="x", length=0)
        each.set_xlabel("bits of the address", fontsize=7)
    axes[0].set_yticks([row + 0.5 for row in range(8)], [f"row {row}" for row in range(8)], fontsize=7)
    axes[0].tick_params(axis="y", length=0)
    held = [place % LINE // CHUNK for place in after]
    colours = [[GROUPS[column] if column == at else FAINT for column in range(8)] for at in held]
    labels = [[f"{row}.{chunk}" if column == at else "" for column in range(8)] for row, at in enumerate(held)]
    cells(axes[2], colours, labels, 6)
    bare(axes[2], f"where chunk {chunk} of each row lies")
    axes[2].set_xlabel("groups of four banks", fontsize=7)
    return svg(drawn)


def owners() -> str:
    """Which lane holds which element: one matrix of ldmatrix, A and C of mma.sync, the accumulator of wgmma."""
    import numpy as np

    drawn, axes = figure(7.6, 3.1, 1, 4, gridspec_kw={"width_ratios": [8, 16, 8, 11]})
    shown = (
        ("ldmatrix\n8 x 8, 16 bits", fragments.matrix_b16()),
        ("A of mma.sync\n16 x 16, 16 bits", fragments.mma_a(16, 16, 16)),
        ("C of mma.sync\n16 x 8, f32", fragments.mma_c(16)),
    )  # fmt: skip
    for each, (name, fragment) in zip(axes, shown, strict=False):
        lanes = _thread_of(fragment)
        cells(each, [[GROUPS[t // 4] for t in row] for row in lanes], [[str(t) for t in row] for row in lanes], 5.5)
        bare(each, name)
    threads = np.array(_thread_of(fragments.warpgroup_d(16)))
    mark, each = 37, axes[3]
    _warps(each, threads // 32)
    rows, columns = np.nonzero(threads == mark)
    each.plot(columns + 0.5, rows + 0.5, "s", color=ACCENT, markersize=3)
    bare(each, "D of wgmma\n64 x 16, f32")
    each.set_xlabel(f"one colour per warp;\nred: thread {mark}", fontsize=7)
    return svg(drawn)


def _thread_of(fragment: Fragment) -> list[list[int]]:
    """The thread that holds each element, by row and column."""
    return [[int(place) // fragment.per_register % fragment.threads for place in row] for row in fragment.owner]


# -- read off runs -------------------------------------------------------------------------------------------------


class Accesses(Observer):
    """Bytes that lanes access: (what, space, warp, lane numbers, byte offsets, bytes, region), in order."""

    def __init__(self, keep: Callable[[str, str, int], bool]) -> None:
        self.keep = keep
        self.found: list[tuple[str, str, int, Any, Any, int, Region]] = []

    def accessed(self, frame: Frame, how: str, place: Lanes, values: Any) -> None:
        what = {"reads": "read", "writes": "write"}.get(how)
        if what is not None:
            self._note(what, frame, place.space, place.region, place.index, place.size, place.count, place.lanes)

    def _note(
        self, what: str, frame: Frame, space: str, region: Region, index: Any, size: int, count: int, lanes: Any
    ) -> None:
        for part in range(frame.warps):
            mine = lanes // 32 == part
            if self.keep(what, space, frame.first_warp + part) and mine.any():
                self.found.append((what, space, frame.first_warp + part, lanes[mine] % 32, index[mine] * size,
                                   size * count, region))  # fmt: skip


def observed(kernel: Kernel, keep: Callable[[str, str, int], bool], *arrays: Any) -> Accesses:
    """The accesses of an emulated run that `keep(what, space, warp)` selects."""
    seen: list[Accesses] = []

    def watch(machine: Machine) -> Accesses:
        seen.append(Accesses(keep))
        return seen[-1]

    kernel.emulate(*arrays, check=False, watch=watch)
    return seen[-1]


def coalescing(side: int = 32) -> str:
    """What warp 0 of rungs 1 and 2 accesses in its first step: 32 elements of A or one, in how many sectors."""
    import numpy as np

    drawn, axes = figure(7.6, 4.9, 2, 3)
    zeros = np.zeros((side, side), np.float32)
    for line, number in zip(axes, (1, 2), strict=True):
        found = observed(find(number).build(), lambda what, space, warp: space == "global" and warp == 0, zeros, zeros)
        reads = [each for each in found.found if each[0] == "read"][:2]
        (write,) = [each for each in found.found if each[0] == "write"][:1]
        for each, name, access in zip(line, "ABC", (*reads, write), strict=True):
            sectors = {int(at) // SECTOR for at in access[4]}
            wide = SECTOR // zeros.itemsize
            from matplotlib.patches import Rectangle

            each.add_patch(Rectangle((0, 0), side, side, facecolor=FAINT))
            for sector in sorted(sectors):
                row, column = divmod(sector * wide, side)
                each.add_patch(Rectangle((column, row), wide, 1, facecolor=PALE[1], edgecolor="white", linewidth=0.3))
            places = sorted({divmod(int(at) // zeros.itemsize, side) for at in access[4]})
            each.plot([c + 0.5 for _, c in places], [r + 0.5 for r, _ in places], "s", color=TILES[0], markersize=2)
            each.set_xlim(0, side)
            each.set_ylim(side, 0)
            each.set_aspect("equal")
            verb = "stores" if name == "C" else "reads"
            bare(each, f"rung {number} {verb} {name}")
            many = f"{len(places)} element{'s' if len(places) > 1 else ''}"
            each.set_xlabel(f"{many}, {len(sectors)} sector{'s' if len(sectors) > 1 else ''}", fontsize=8)
    return svg(drawn)


def results() -> str:
    """Which warp computes which part of a CTA's tile of C, and one thread's elements, on four rungs."""
    import ml_dtypes
    import numpy as np

    shown = ((2, 32, 32, np.float32), (4, 128, 128, np.float32), (5, 128, 128, ml_dtypes.bfloat16),
             (8, 64, 64, ml_dtypes.bfloat16))  # fmt: skip
    drawn, axes = figure(7.6, 2.45, 1, len(shown))
    for each, (number, m, n, dtype) in zip(axes, shown, strict=True):
        a, b = np.zeros((m, 32), dtype), np.zeros((n, 32), dtype)
        b = np.zeros((32, n), dtype) if find(number).layout == "NN" else b
        found = observed(find(number).build(), lambda what, space, warp: (what, space) == ("write", "global"), a, b)
        size = np.dtype(dtype).itemsize
        warps = np.zeros((m, n), int)
        mine: set[tuple[int, int]] = set()
        for _, _, warp, lanes, at, width, _ in found.found:
            for lane, start in zip(lanes, at, strict=True):
                for place in range(int(start) // size, (int(start) + width) // size):
                    warps[divmod(place, n)] = warp
                    if (warp, int(lane)) == (0, 5):
                        mine.add(divmod(place, n))
        _warps(each, warps)
        each.plot([c + 0.5 for _, c in sorted(mine)], [r + 0.5 for r, _ in sorted(mine)], "s", color=ACCENT,
                  markersize=108 / n * 0.9 if n > 32 else 3)  # fmt: skip
        bare(each, f"rung {number}: {m} x {n}")
        each.set_xlabel(f"thread 5 holds {len(mine)}", fontsize=8)
    return svg(drawn)


def _warps(axes: Any, warps: Any) -> None:
    """Parts of a row that belong to one warp, as rectangles over as many equal rows as possible."""
    from matplotlib.patches import Rectangle

    rows, columns = warps.shape
    row = 0
    while row < rows:
        high = row + 1
        while high < rows and (warps[high] == warps[row]).all():
            high += 1
        column = 0
        while column < columns:
            wide = column + 1
            while wide < columns and warps[row][wide] == warps[row][column]:
                wide += 1
            colour = PALE[int(warps[row][column]) % len(PALE)]
            axes.add_patch(Rectangle((column, row), wide - column, high - row, facecolor=colour, edgecolor="white",
                                     linewidth=0.4))  # fmt: skip
            column = wide
        row = high
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_aspect("equal")


def banks() -> str:
    """The banks that warp 0 of rung 4 accesses when it writes four k's of eight rows, with and without the rotation."""
    import numpy as np

    from warploom.kernels.ladder import r04_warp_tiling as rung

    zeros = np.zeros((rung.WARP * 2, rung.TILE_K), np.float32)
    found = observed(
        rung.build(), lambda what, space, warp: what == "write" and "shared" in space and warp == 0, zeros, zeros
    )
    lanes, at = found.found[0][3], found.found[0][4]
    start = int(min(each[4].min() for each in found.found))
    words = (at - start) // BANK_BYTES
    line, place = words // (rung.WARP * 2), words % (rung.WARP * 2)
    plainly = place ^ (line // rung.VECTOR * rung.SWIZZLE)
    drawn, axes = figure(7.6, 2.4, 1, 2, sharey=True)
    for each, columns, name in ((axes[0], plainly, "without: element (k, row) at row"),
                                (axes[1], place, "as it is: at row ^ (k / 4 * 8)")):  # fmt: skip
        met = [int(column) % BANKS for column in columns]
        most = max(met.count(bank) for bank in met)
        each.plot(met, list(lanes), "s", color=TILES[0] if most == 1 else ACCENT, markersize=4)
        plain(each, f"{name}: {most} lane{'s' if most > 1 else ''} in a bank", "bank", "lane")
        each.set_xlim(-1, BANKS)
        each.set_ylim(BANKS, -1)
    return svg(drawn)


def descriptor() -> str:
    """The bits of a wgmma descriptor by field, and the bits of an address that a swizzle changes: both determined by
    trial."""
    names = {
        "start": "address / 16", "leading_offset": "leading offset / 16", "stride_offset": "stride offset / 16",
        "base_offset": "base offset", "swizzle": "swizzle",
    }  # fmt: skip
    plain_one = Descriptor(0, 0, 0, Swizzle.NONE)
    full = {"swizzle": Swizzle.B32, "base_offset": 7} | dict.fromkeys(list(names)[:3], ADDRESS_MASK & ~15)
    drawn, axes = figure(7.6, 2.3, 2, 1, gridspec_kw={"height_ratios": [1, 1.5]})
    owner = ["" for _ in range(64)]
    for name, value in full.items():
        bits = replace(plain_one, **{name: value}).encode()
        owner = [name if bits >> bit & 1 else before for bit, before in enumerate(owner)]
    colours = [GROUPS[list(names).index(name)] if name else FAINT for name in owner]
    cells(axes[0], [colours[::-1]], [[str(bit) if owner[bit] else "" for bit in range(63, -1, -1)]], 4.5)
    axes[0].set_aspect("auto")
    bare(axes[0], "a descriptor, bits 63 to 0")
    for name, said in names.items():
        places = [63 - bit for bit in range(64) if owner[bit] == name]
        axes[0].text(sum(places) / len(places) + 0.5, 1.25, said, ha="center", va="center", fontsize=6.5, color=INK,
                     clip_on=False)  # fmt: skip
    lines = ((name, Swizzle(name)) for name in ("128B", "64B", "32B"))
    width, rows = 12, []
    for name, swizzle in lines:
        changed = {}
        for source in range(width):
            moved = swizzle.apply(1 << source) ^ (1 << source)
            changed |= {bit: source for bit in range(width) if moved >> bit & 1}
        rows.append((name, changed))
    colours = [[TILES[0] if bit in changed else PALE[0] if bit in changed.values() else FAINT
                for bit in range(width - 1, -1, -1)] for _, changed in rows]  # fmt: skip
    labels = [[f"{bit} ^ {changed[bit]}" if bit in changed else str(bit) for bit in range(width - 1, -1, -1)]
              for _, changed in rows]  # fmt: skip
    cells(axes[1], colours, labels, 6.5)
    axes[1].set_aspect("auto")
    bare(axes[1], "an address under each swizzle, bits 11 to 0: dark bits change")
    axes[1].set_yticks([row + 0.5 for row in range(len(rows))], [name for name, _ in rows], fontsize=7)
    axes[1].tick_params(axis="y", length=0)
    return svg(drawn)


PICTURES = {
    "swizzles": swizzles, "swizzle-bits": swizzle_bits, "owners": owners, "coalescing": coalescing, "results": results,
    "banks": banks, "descriptor": descriptor,
}  # fmt: skip
