"""How fast DRAM serves short grids that start while the one before still runs.

`launch.stream` (`tpc_pairs`) reads 4 MB per CTA. Here each CTA reads 96 KiB to 1.5 MiB, and each launch of a graph its
own piece of an array. `alone`: without dependent launch. `late`: each CTA waits for the previous grid before its first
load. `early`: it fills its ring first. A CTA takes an SM. It leaves its SM and three times: of its start, of the end of
its wait, and of its last bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from warploom.isa.dtypes import bf16, u32, u64
from warploom.lang import Kernel, Tile, kernel, ptx

from .copies import WIDTH, refilled
from .launches import Launch
from .tpc_pairs import COLUMNS, PITCH, ROWS, issue, ring_of

BOX = ROWS * 128
STAGES = 12
LAUNCHES = 48
"""Of a graph; their pieces are more than L2 holds, but for the shortest."""
LENGTHS = (6, 12, 24, 48, 96)
"""Boxes of a CTA."""
GRIDS = ((56, 1), (66, 1), (75, 1), (78, 1), (78, 3), (88, 1), (88, 4), (104, 4), (112, 1), (112, 2), (132, 1))
"""CTAs, and CTAs of a cluster."""
WHEN = ("alone", "late", "early")
WORDS = 4
"""That a CTA leaves: its SM, and the lower halves of three times in nanoseconds."""


def rows_of(ctas: int, boxes: int) -> int:
    """Rows of the array that a grid reads."""
    return -(-ctas * boxes // COLUMNS) * ROWS


def stream(name: str, ctas: int, cluster: int, boxes: int, when: str) -> Kernel:
    """Each CTA reads its own boxes."""
    stages = min(STAGES, boxes)

    @kernel(
        in_specs=(Tile(rows_of(ctas, boxes), PITCH // 2, bf16, box=(WIDTH, ROWS), swizzle="128B"),),
        out_specs=(Tile("M", u32),), grid=(ctas, 1, 1), block=32, cluster=(cluster, 1, 1), arch="sm_90a",
        pdl=when != "alone", name=name.replace(".", "_"),
    )  # fmt: skip
    def program(array, out):
        begun = ptx.special.globaltimer_lo()
        first = ptx.special.tid.x() == 0
        ring, full, phase = ring_of(STAGES, first)  # so that it takes an SM
        if when != "alone":
            ptx.griddepcontrol.launch_dependents()
        if when == "late":
            ptx.griddepcontrol.wait()
        at = (ptx.special.ctaid.x() * boxes).copy()
        state = array, ring, full, at, (1 << 24) - 1, phase, first
        with ptx.if_(first):
            for stage in range(stages):
                issue(state, stage)
        if when == "early":
            ptx.griddepcontrol.wait()
        waited = ptx.special.globaltimer_lo()
        body, finish = refilled(stages, issue)
        for _ in ptx.range(boxes // stages - 1, unroll=False):
            body(state)
        finish(state)
        ended = ptx.special.globaltimer_lo()
        (pointer,) = ptx.global_ptrs(out)
        with ptx.if_(first):
            place = ptx.addr(pointer + (ptx.special.ctaid.x() * (WORDS * 4)).to(u64))
            ptx.store(place, [ptx.special.smid(), begun, waited, ended])

    return program


def launches() -> Iterator[Launch]:
    for ctas, cluster in GRIDS:
        for boxes in LENGTHS:
            for when in WHEN:
                name = f"launch.short_stream.{when}.boxes{boxes}.ctas{ctas}" + f".cluster{cluster}" * (cluster > 1)
                piece = rows_of(ctas, boxes) * PITCH
                yield Launch(
                    name, partial(stream, name, ctas, cluster, boxes, when),
                    f"{boxes} boxes of {BOX} bytes by each of {ctas} CTAs, from DRAM: {when}",
                    {"ctas": ctas, "cluster": cluster, "boxes": boxes, "bytes": ctas * boxes * BOX, "when": when,
                     "launches": LAUNCHES},
                    (rows_of(ctas, boxes), PITCH // 2), (WORDS * ctas,), piece,
                )  # fmt: skip
