"""Short-lived CTAs, alone and in clusters, and the CTA that comes last: what a grid pays besides its work.

`launch.short` starts many CTAs of 256 threads that do one thing each. Clusters differ from single CTAs in how fast they
start, in how many reside, and in their barriers. `launch.last` lets each CTA share a few sums and count its arrival;
with `adds`, the last one adds all of them up.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import f32, u32, u64
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem

from .launches import SMS, Launch

THREADS, PER_SM = 256, 64
WHAT = ("empty", "spin", "sync", "sync2", "pulled", "pushed", "copied")


def short(name: str, what: str, cluster: int) -> Kernel:
    """CTAs that spin for 2000 clocks, pass one or two barriers of their cluster, load a word from each CTA or store one
    to another CTA between two barriers, or copy a row."""

    @kernel(
        in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(PER_SM * SMS, 1, 1), block=THREADS,
        cluster=(cluster, 1, 1), arch="sm_90a", name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        source, target = ptx.global_ptrs(data, out)
        cells, thread = smem.array(u32, THREADS, name="cells"), ptx.special.tid.x()
        total = reg.scalar(u32, init=0)
        if what == "spin":
            start = ptx.special.clock64()
            with ptx.while_(lambda: ptx.special.clock64() - start < 2000):
                pass
        if what in ("sync", "sync2", "pulled", "pushed"):
            ptx.store(cells[thread], thread)
            ptx.cluster.sync()
        if what == "pulled":
            for rank in range(cluster):
                total += ptx.load(u32, ptx.cluster.map_shared(cells[thread], rank), space="shared::cluster")
        if what == "pushed":
            place = ptx.cluster.map_shared(cells[thread], (ptx.special.cluster_ctarank() + thread) % cluster)
            ptx.inst("st.shared::cluster.u32", ptx.addr(place), thread)
        if what in ("sync2", "pulled", "pushed"):
            ptx.cluster.sync()
        if what == "copied":
            at = (ptx.special.ctaid.x() * THREADS + thread).to(u64) * u32.bytes
            ptx.store(ptx.addr(target + at), ptx.load(u32, ptx.addr(source + at)))
        with ptx.if_(total == 0x7FC0_DEAD):
            ptx.store(ptx.addr(target), total)

    return program


def last(name: str, ctas: int, adds: bool) -> Kernel:
    """Each CTA writes a row of sums, and one thread counts; the last CTA adds the rows up."""

    @kernel(
        in_specs=(Tile("N", u32, inout=True),), out_specs=(Tile("M", u32),), grid=(ctas, 1, 1), block=THREADS,
        arch="sm_90a", name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        counter, rows = ptx.global_ptrs(data, out)
        arrived, thread = smem.array(u32, 1, name="arrived"), ptx.special.tid.x()
        mine = rows + (ptx.special.ctaid.x() * THREADS + thread).to(u64) * f32.bytes
        ptx.store(ptx.addr(mine), thread.to(f32))
        ptx.bar.sync(0)
        with ptx.if_(thread == 0):
            ptx.fence.acq_rel("gpu")
            ptx.store(arrived[0], ptx.atomic.inc(ptx.addr(counter), ctas - 1))
            ptx.fence.acq_rel("gpu")
        ptx.bar.sync(0)
        if adds:
            with ptx.if_(ptx.load(u32, arrived[0]) == ctas - 1):
                total = reg.scalar(f32, init=0.0)
                for row in ptx.range(ctas):
                    place = rows + (row * THREADS + thread).to(u64) * f32.bytes
                    total += ptx.load(f32, ptx.addr(place), cache="cg")
                ptx.store(ptx.addr(rows + thread.to(u64) * f32.bytes), total)

    return program


def launches() -> Iterator[Launch]:
    words = (PER_SM * SMS * THREADS,)
    for cluster in (1, 2, 4, 8):
        for what in WHAT:
            if cluster == 1 and what not in ("empty", "spin", "copied"):
                continue
            name = f"launch.short.{what}.cluster{cluster}"
            yield Launch(
                name, lambda name=name, what=what, cluster=cluster: short(name, what, cluster),  # type: ignore[misc]
                f"{PER_SM} CTAs of {THREADS} threads for each SM: {what}",
                {"what": what, "cluster": cluster, "ctas": PER_SM * SMS, "threads": THREADS}, words, written=words,
            )  # fmt: skip
    for ctas in (8, SMS):
        for adds in (False, True):
            name = f"launch.last{'.adds' if adds else ''}.ctas{ctas}"
            yield Launch(
                name, lambda name=name, ctas=ctas, adds=adds: last(name, ctas, adds),  # type: ignore[misc]
                "a CTA on each SM shares 256 sums and counts" + ("; the last adds all" if adds else ""),
                {"ctas": ctas, "adds": adds}, written=(ctas * THREADS,),
            )  # fmt: skip
