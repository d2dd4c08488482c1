"""Barriers, fences and clusters: from the arrival to the thread that waited for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warploom.isa.dtypes import u32
from warploom.lang import ptx, reg, smem

from .harness import Body, Measurement, loop

REPETITIONS, COUNT = 512, 4


def _simple(name: str, emit: Callable[[object], object], of: str, *, warps: int = 1, ctas: int = 1, cluster: int = 1,
            prepare: Callable[..., object] = lambda _: ()) -> Measurement:  # fmt: skip
    def body(state):
        for _ in range(COUNT):
            emit(state)

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=REPETITIONS, warps=warps, ctas=ctas, cluster=cluster, prepare=prepare),
        operations=COUNT, repetitions=REPETITIONS, of=of, ctas=ctas, facts={"warps": warps},
    )  # fmt: skip


def _own_barrier(data):
    bar = smem.mbarrier(1)
    with ptx.if_(ptx.special.tid.x() == 0):
        ptx.mbarrier.init(bar[0], 1)
        ptx.fence.mbarrier_init()
    return bar, reg.scalar(u32, init=0)


def _arrive_and_wait(state) -> None:
    """One thread arrives and waits for the phase it completes."""
    bar, phase = state
    ptx.mbarrier.arrive(bar[0], pred=ptx.special.tid.x() == 0)
    ptx.mbarrier.wait(bar[0], phase)
    phase ^= 1


def _passed_wait(state) -> None:
    """A wait for a completed phase: nothing but the test."""
    bar, _ = state
    ptx.mbarrier.wait(bar[0], 1)


def _two_barriers(data):
    bars = smem.mbarrier(2)
    with ptx.if_(ptx.special.tid.x() == 0):
        for i in range(2):
            ptx.mbarrier.init(bars[i], 1)
        ptx.fence.mbarrier_init()
    return bars, reg.scalar(u32, init=0)


def _ping_pong(state) -> None:
    """Warp 0 arrives for warp 1, which arrives for warp 0: two hand-overs."""
    bars, phase = state
    thread = ptx.special.tid.x()
    with ptx.if_(thread < 32):
        ptx.mbarrier.arrive(bars[0], pred=thread == 0)
        ptx.mbarrier.wait(bars[1], phase)
    with ptx.else_():
        ptx.mbarrier.wait(bars[0], phase)
        ptx.mbarrier.arrive(bars[1], pred=thread == 32)
    phase ^= 1


def _remote_barriers(data):
    bars = smem.mbarrier(1)
    with ptx.if_(ptx.special.tid.x() == 0):
        ptx.mbarrier.init(bars[0], 1)
        ptx.fence.mbarrier_init()
    ptx.cluster.sync()
    rank = ptx.special.cluster_ctarank()
    return bars, rank, (rank ^ 1).copy(), reg.scalar(u32, init=0)


def _remote(relaxed: bool) -> Body:
    def emit(state) -> None:
        """CTA 0 arrives in CTA 1, which arrives in CTA 0: two hand-overs."""
        bars, rank, other, phase = state
        first = ptx.special.tid.x() == 0
        with ptx.if_(rank == 0):
            ptx.mbarrier.arrive_remote(bars[0], other, pred=first, relaxed=relaxed)
            ptx.mbarrier.wait(bars[0], phase)
        with ptx.else_():
            ptx.mbarrier.wait(bars[0], phase)
            ptx.mbarrier.arrive_remote(bars[0], other, pred=first, relaxed=relaxed)
        phase ^= 1

    return emit


def _remote_chain(data):
    cell = smem.array(u32, 32, align=128, name="cell")
    rank = ptx.special.cluster_ctarank()
    ptx.store(cell[0], ptx.cluster.map_shared(cell[0], rank).register())  # a cell holds its own address
    ptx.cluster.sync()
    address = reg.scalar(u32)
    ptx.inst.mov.u32(address, ptx.cluster.map_shared(cell[0], rank ^ 1).register())
    return (address,)


def _remote_load(state) -> None:
    ptx.inst("ld.volatile.shared::cluster.u32", state[0], ptx.addr(state[0]))


def pushes(name: str, warps: int, cluster: int, ctas: int) -> Measurement:
    """Each warp stores 512 bytes at a time to the next CTA of its cluster (st.async), which waits for all of them."""
    count, repetitions = 8, 64
    each = 16 * 32 * warps

    def prepare(data):
        sums = smem.array(u32, (count * each // 4,), align=128, name="sums")
        bars = smem.mbarrier(1)
        thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()
        with ptx.if_(thread == 0):
            ptx.mbarrier.init(bars[0], 1)
            ptx.fence.mbarrier_init()
        ptx.cluster.sync()
        other = ((rank + 1) & (cluster - 1)).copy()
        target = ptx.cluster.map_shared(sums[thread * 4], other)
        values = [(thread + i).copy() for i in range(4)]
        return bars, target, ptx.cluster.map_shared(bars[0], other), values, reg.scalar(u32, init=0), thread

    def body(state):
        bars, target, barrier, values, phase, thread = state
        ptx.mbarrier.arrive_expect_tx(bars[0], count * each, pred=thread == 0)
        for at in range(count):
            ptx.inst("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32", target + at * each, values,
                     barrier)  # fmt: skip
        ptx.mbarrier.wait(bars[0], phase, scope="cluster")
        ptx.cluster.sync()
        phase ^= 1

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, warps=warps, ctas=ctas, cluster=cluster,
                           prepare=prepare),
        operations=count * warps, repetitions=repetitions, bytes=count * each, ctas=ctas,
        of=f"st.async of 512 bytes to the next of {cluster} CTAs, {count} of each of {warps} warps, then a barrier",
        facts={"warps": warps, "cluster": cluster},
    )  # fmt: skip


def pulls(warps: int, cluster: int, ctas: int, meets: bool = False) -> Measurement:
    """Each warp loads 128 bytes at a time from the next CTA of its cluster, eight loads in flight.

    meets: after each eight the cluster meets at its barrier, whose arrivals may take the same way.
    """
    count, name = 8, f"rate.lds_remote.{'meets.' if meets else ''}w{warps}.cluster{cluster}.ctas{ctas}"

    def prepare(data):
        cells = smem.array(u32, (count * 32 * warps,), align=128, name="cells")
        thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()
        for at in range(count):
            ptx.store(cells[thread + at * 32 * warps], thread)
        ptx.cluster.sync()
        return ptx.cluster.map_shared(cells[thread], (rank + 1) & (cluster - 1)), reg.scalar(u32, init=0)

    def body(state):
        address, total = state
        loaded = [reg.scalar(u32) for _ in range(count)]
        for at, value in enumerate(loaded):
            ptx.inst("ld.volatile.shared::cluster.u32", value, ptx.addr(address, at * 128 * warps))
        for value in loaded:
            total += value
        if meets:
            ptx.cluster.sync()

    def finish(state):
        ptx.cluster.sync()
        return [state[1]]

    return Measurement(
        name, lambda: loop(name, body, repetitions=64, warps=warps, ctas=ctas, cluster=cluster, prepare=prepare,
                           finish=finish),
        operations=count * warps, repetitions=64, bytes=count * warps * 128, ctas=ctas,
        of=f"ld.shared::cluster of 128 bytes from the next of {cluster} CTAs, {count} of each of {warps} warps",
        facts={"warps": warps, "cluster": cluster},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    yield _simple(
        "latency.mbarrier.arrive_wait", _arrive_and_wait, "arrive, then wait, by one warp", prepare=_own_barrier
    )
    yield _simple("latency.mbarrier.passed_wait", _passed_wait, "a wait that passes at once", prepare=_own_barrier)
    yield _simple(
        "latency.mbarrier.ping_pong", _ping_pong, "two hand-overs between warps", warps=2, prepare=_two_barriers
    )
    for relaxed in (True, False):
        order = "relaxed" if relaxed else "release"
        yield _simple(
            f"latency.mbarrier.remote_{order}", _remote(relaxed), "two hand-overs between CTAs of a cluster",
            ctas=2, cluster=2, prepare=_remote_barriers,
        )  # fmt: skip
    for warps in (1, 4, 8, 12, 32):
        yield _simple(f"latency.bar_sync.w{warps}", lambda _: ptx.bar.sync(0), "bar.sync", warps=warps)
    yield _simple("latency.cluster_barrier", lambda _: ptx.cluster.sync(), "barrier.cluster arrive and wait", warps=4,
                  ctas=2, cluster=2)  # fmt: skip
    for ctas in (4, 132, 1056):
        yield _simple(f"latency.cluster_barrier.w8.ctas{ctas}", lambda _: ptx.cluster.sync(),
                      "barrier.cluster of four CTAs", warps=8, ctas=ctas, cluster=4)  # fmt: skip
    yield _simple("latency.fence.proxy_async", lambda _: ptx.fence.proxy_async_shared_cta(),
                  "fence.proxy.async of shared memory",
                  warps=4)  # fmt: skip
    yield _simple("latency.fence.proxy_async_all", lambda _: ptx.fence.proxy_async(), "fence.proxy.async", warps=4)
    yield _simple("latency.fence.gpu", lambda _: ptx.fence.acq_rel("gpu"), "fence.acq_rel.gpu", warps=4)
    yield _simple("latency.fence.cta", lambda _: ptx.fence.acq_rel("cta"), "fence.acq_rel.cta", warps=4)
    for warps, cluster, ctas in ((4, 2, 2), (8, 2, 2), (8, 2, 132), (8, 4, 132), (1, 2, 2)):
        yield pushes(f"rate.st_async.w{warps}.cluster{cluster}.ctas{ctas}", warps, cluster, ctas)
    for warps, cluster, ctas in ((8, 2, 2), (8, 2, 132), (8, 4, 132), (8, 4, 1056)):
        yield pulls(warps, cluster, ctas)
    for ctas in (132, 1056):
        yield pulls(8, 4, ctas, meets=True)
    yield _simple("latency.lds_remote", _remote_load, "a dependent load from the other CTA's shared memory", ctas=2,
                  cluster=2, prepare=_remote_chain)  # fmt: skip
