"""Zeroing shared memory before TMA and products use it, and what a grid's prologue costs behind the grid before it.

`rate.clear` is one warpgroup that zeroes the last rows of several panels of 64 rows of 128 bytes, 16 bytes a lane, in a
loop that ptxas does not unroll, followed by a proxy fence and a barrier. `launch.prologue` is a stream of dependent
launches whose CTAs take a whole SM each. Before they wait for the grid in front, they do nothing, spin, or zero their
shared memory; then they spin. Where two grids have a free SM for each CTA, the prologue is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from warploom.isa.dtypes import b32, u32
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem

from .harness import Measurement, loop
from .launches import Launch

ROWS, ROW_BYTES, THREADS = 64, 128, 128
PANELS, SPUN, WORKED = 24, 2000, 3000


def clear(start, panels: int, rows: int) -> None:
    """Zero the last rows of some panels with a warpgroup."""
    panel_bytes = ROWS * ROW_BYTES
    for panel in ptx.range(0, panels * panel_bytes, panel_bytes, unroll=False):
        first = (ROWS - rows) * ROW_BYTES + ptx.special.tid.x() * 16
        for at in ptx.range(first, panel_bytes, THREADS * 16, unroll=False):
            zero = reg.array(b32, 4, init=0)
            ptx.inst("st.shared.v4.b32", ptx.addr(start + panel + at), zero)
    ptx.fence.proxy_async_shared_cta()
    ptx.bar.sync(1, THREADS)


def cleared(name: str, panels: int, rows: int) -> Kernel:
    def prepare(_):
        return smem.array(u32, PANELS * ROWS * ROW_BYTES // 4, align=1024, name="ring")[0].register().copy()

    return loop(name, lambda start: clear(start, panels, rows), repetitions=16, warps=4, prepare=prepare)


def prologue(name: str, ctas: int, what: str) -> Kernel:
    @kernel(
        in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(ctas, 1, 1), block=THREADS, arch="sm_90a",
        pdl=True, name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        ring = smem.array(u32, PANELS * ROWS * ROW_BYTES // 4, align=1024, name="ring")
        ptx.griddepcontrol.launch_dependents()
        if what == "clear":
            clear(ring[0].register().copy(), PANELS, 32)
        elif what == "spin":
            spin(SPUN)
        ptx.griddepcontrol.wait()
        spin(WORKED)
        (pointer,) = ptx.global_ptrs(out)
        with ptx.if_((ptx.special.ctaid.x() + ptx.special.tid.x()) == 0):
            ptx.store(ptx.addr(pointer), ptx.special.tid.x())

    return program


def spin(clocks: int) -> None:
    start = ptx.special.clock64()
    with ptx.while_(lambda: ptx.special.clock64() - start < clocks):
        pass


def measurements() -> Iterator[Measurement]:
    for panels, rows in ((8, 64), (16, 24), (24, 8), (24, 24), (24, 64)):
        name = f"rate.clear.panels{panels}.rows{rows}"
        yield Measurement(
            name, partial(cleared, name, panels, rows), operations=1, repetitions=16, bytes=panels * rows * ROW_BYTES,
            of=f"a warpgroup zeroes the last {rows} rows of each of {panels} panels of shared memory",
            facts={"panels": panels, "rows": rows},
        )  # fmt: skip


def launches() -> Iterator[Launch]:
    for ctas in (44, 60, 66, 72, 80, 108, 132):
        for what in ("none", "spin", "clear"):
            name = f"launch.prologue.{what}.ctas{ctas}"
            yield Launch(name, partial(prologue, name, ctas, what),
                         f"dependent launches of {ctas} CTAs that take an SM each; before they wait: {what}",
                         {"ctas": ctas, "what": what, "spun": SPUN, "worked": WORKED,
                          "cleared": PANELS * 32 * ROW_BYTES})  # fmt: skip
