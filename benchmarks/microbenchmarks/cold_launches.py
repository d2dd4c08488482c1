"""Short launches on data that no cache has, as in `predict_unseen.py`: what the first loads of a launch cost.

Each launch of a graph reads its own piece of an array, 16 bytes per thread, a CTA of 256 threads per 4 KiB. `warm`: all
launches read one piece; `cold`: pieces follow each other; `far`: each begins 4 MiB after the one before, so that it is
on other pages, too. `twice`: the second load depends on the first; `copied`: the piece is stored again.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import u32, u64
from warploom.lang import Kernel, Tile, kernel, ptx, reg

from .launches import SMS, Launch

THREADS, WORDS = 256, 4
BYTES = THREADS * WORDS * 4
"""Of a CTA."""
LAUNCHES = 512
"""Of a graph; their pieces are more than L2 holds."""
APART = 4 << 20


def cold(name: str, what: str, ctas: int) -> Kernel:
    @kernel(
        in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(ctas, 1, 1), block=THREADS, arch="sm_90a",
        name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        source, target = ptx.global_ptrs(data, out)
        at = (ptx.special.ctaid.x() * BYTES + ptx.special.tid.x() * (WORDS * 4)).to(u64)
        total = reg.scalar(u32, init=0)
        loads = {"empty": 0, "read": 1, "copied": 1, "twice": 2}[what]
        values = [total]
        for turn in range(loads):  # the data are zeros
            values = ptx.load(u32, ptx.addr(source + at + values[0].to(u64), turn * ctas * BYTES), vector=WORDS)
            for value in values:
                total ^= value
        if what == "copied":
            ptx.store(ptx.addr(target + at), values)
        else:
            with ptx.if_(total == 0x7FC0_DEAD):
                ptx.store(ptx.addr(target), total)

    return program


def launches() -> Iterator[Launch]:
    for ctas in (SMS // 4, SMS, 4 * SMS):
        for what in ("empty", "read", "twice", "copied"):
            piece = ctas * BYTES * (2 if what == "twice" else 1)
            for where, apart in (("warm", 0), ("cold", piece), ("far", max(APART, piece))):
                if what == "empty" and where != "warm":
                    continue
                name = f"launch.first.{what}.{where}.ctas{ctas}"
                yield Launch(
                    name, lambda name=name, what=what, ctas=ctas: cold(name, what, ctas),  # type: ignore[misc]
                    f"{ctas} CTAs of {THREADS} threads that load 16 bytes each: {what}, {where}",
                    {"ctas": ctas, "what": what, "where": where, "bytes": piece, "apart": apart, "launches": LAUNCHES},
                    (piece // 4,), (ctas * BYTES // 4 if what == "copied" else 32,), apart,
                )  # fmt: skip
