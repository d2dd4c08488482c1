"""Rules about who may touch shared memory when: data races, in and across the two proxies."""

from __future__ import annotations

from .schema import (
    CLUSTER_SYNC,
    COMMIT,
    DESCRIPTORS,
    ERROR,
    FENCE_MMA,
    FILL,
    INIT,
    MMA,
    PEER,
    READ,
    STORE,
    STORED,
    WAIT_MMA,
    WARNING,
    ZERO,
    Example,
    Rule,
    load,
    multiply,
    wait,
)

_FENCE = "fence.proxy.async;\n"
_LOADED = INIT + load(4096) + wait()
_CP_ASYNC = """
shl.b32 %r0, %tid, 4;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
cp.async.cg.shared.global [%r1], [%d2], 16;
add.u32 %r1, %r1, 2048;
add.u64 %d2, %d2, 2048;
cp.async.cg.shared.global [%r1], [%d2], 16;
cp.async.commit_group;
"""

_NEXT_LANE = """
xor.b32 %r0, %r0, 4;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""
_NEIGHBOUR = """
xor.b32 %r0, %r0, 256;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""

_HAND_OVER = (
    """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
"""
    + CLUSTER_SYNC
    + """
mov.u32 %r6, tile;
mapa.shared::cluster.u32 %r6, %r6, 1;
mov.u32 %r5, bar;
mapa.shared::cluster.u32 %r5, %r5, 1;
setp.eq.u32 %p2, %rank, 0;
and.pred %p2, %p2, %first;
setp.eq.u32 %p3, %rank, 1;
and.pred %p3, %p3, %first;
@%p2 st.shared::cluster.u32 [%r6], %tid;
@%p2 mbarrier.arriveSCOPE.shared::cluster.b64 _, [%r5];
@!%p3 bra done;
again:
mbarrier.try_wait.parityWAIT.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra again;
ld.shared.u32 %r2, [tile];
done:
"""
    + CLUSTER_SYNC
)

RULES = (
    Rule(
        "data-race",
        "R18",
        ERROR,
        "Two threads touch the same bytes, one of them writes, and nothing orders them",
        "Without a barrier, or a release that the other side acquires, either may come first, and a reader may see any "
        "mixture.",
        "8.7.1, 8.9.5",
        "put a barrier (bar.sync, an mbarrier, barrier.cluster) between the two accesses",
        Example(FILL + _NEIGHBOUR),
        Example(FILL + "bar.sync 0;" + _NEIGHBOUR + "bar.sync 0;"),
    ),
    Rule(
        "generic-write-before-async-read",
        "R1, R4",
        ERROR,
        "A bulk store reads what threads have written, without a proxy fence",
        "st, stmatrix and their kin write through the generic proxy, copies read through the async proxy. A barrier "
        "orders threads, not proxies: each thread that wrote executes fence.proxy.async before the barrier, or the "
        "thread that issues the copy does so after it.",
        "9.7.9.25.2, 8.9.5",
        "let every thread that wrote execute fence.proxy.async before the barrier in front of the copy",
        Example(FILL + "bar.sync 0;" + STORE + STORED),
        Example(FILL + _FENCE + "bar.sync 0;" + STORE + STORED),
    ),
    Rule(
        "generic-write-before-wgmma-read",
        "R2, R4",
        ERROR,
        "A wgmma reads what threads have written to shared memory, without a proxy fence",
        "wgmma reads its operands in shared memory through the async proxy. wgmma.fence orders registers only.",
        "9.7.15.7.1, 9.7.9.25.2",
        "let every thread that wrote execute fence.proxy.async, then a barrier, then wgmma.fence",
        Example(
            ZERO
            + FILL
            + "".join(f"st.shared.u32 [%r1+{512 * i}], %tid;\n" for i in range(1, 8))
            + "bar.sync 0;"
            + DESCRIPTORS
            + MMA
        ),
        Example(
            ZERO
            + FILL
            + "".join(f"st.shared.u32 [%r1+{512 * i}], %tid;\n" for i in range(1, 8))
            + _FENCE
            + "bar.sync 0;"
            + DESCRIPTORS
            + MMA
        ),
    ),
    Rule(
        "cp-async-before-wgmma",
        "R2",
        WARNING,
        "A wgmma or a bulk store reads what cp.async has written, without a proxy fence",
        "cp.async (not bulk) writes through the generic proxy. Compilers are known to leave the fence out here, so it "
        "is a warning.",
        "9.7.9.25.2",
        "execute fence.proxy.async after cp.async.wait_group, before the barrier",
        Example(ZERO + _CP_ASYNC + "cp.async.wait_group 0;\nbar.sync 0;" + DESCRIPTORS + MMA),
        Example(ZERO + _CP_ASYNC + "cp.async.wait_group 0;\n" + _FENCE + "bar.sync 0;" + DESCRIPTORS + MMA),
    ),
    Rule(
        "generic-access-before-async-write",
        "R3",
        WARNING,
        "A copy overwrites what threads have read or written, without a proxy fence",
        "The barrier orders the copy's issue after the threads' accesses, but the accesses go through another proxy. "
        "Much code leaves the fence out after reads, and corruption by it has been seen, so it is a warning.",
        "8.9.5",
        "let the threads that read execute fence.proxy.async before they release the buffer",
        Example(_LOADED + READ + "bar.sync 0;" + load(512) + wait(1, "1")),
        Example(_LOADED + READ + _FENCE + "bar.sync 0;" + load(512) + wait(1, "1")),
    ),
    Rule(
        "copy-not-waited",
        "R5",
        ERROR,
        "The destination of a copy is touched before the copy is complete",
        "A bulk copy writes when it likes until its bytes have arrived at its mbarrier; only a wait that sees the "
        "phase complete makes them visible.",
        "9.7.9.25.1",
        "wait for the mbarrier's phase (mbarrier.try_wait in a loop) in every thread that reads the data",
        Example(INIT + load(512) + READ + wait()),
        Example(INIT + load(512) + wait() + READ),
    ),
    Rule(
        "stale-phase-wait",
        "M9",
        ERROR,
        "A wait passes because it names the parity of an older phase",
        "A parity wait passes when the phase of that parity is complete, also if that is the one before. A fresh "
        "barrier passes a wait for parity 1 at once. So who waits with the wrong parity does not wait.",
        "9.7.13.15",
        "start at phase 0 when waiting for data, at phase 1 when waiting for room, and flip it at each turn "
        "of the ring",
        Example(INIT + load(512) + wait(1) + READ + wait(0, "1")),
        Example(INIT + load(512) + wait(0) + READ),
    ),
    Rule(
        "operand-overwritten",
        "R6, R7",
        ERROR,
        "Shared memory is overwritten while a wgmma may still read it",
        "A wgmma reads its operands when it executes, not when it is issued. The stage may be given back only after a "
        "wgmma.wait_group that covers it.",
        "9.7.15.7.3",
        "arrive on the barrier that frees the stage after wgmma.wait_group, not before",
        Example(
            ZERO
            + _LOADED
            + DESCRIPTORS
            + FENCE_MMA
            + multiply()
            + COMMIT
            + "bar.sync 0;"
            + load(512)
            + WAIT_MMA
            + wait(1, "1")
        ),
        Example(ZERO + _LOADED + DESCRIPTORS + MMA + "bar.sync 0;" + load(512) + wait(1, "1")),
    ),
    Rule(
        "store-source-overwritten",
        "R11",
        ERROR,
        "The source of a bulk store is overwritten before it has been read",
        "The store reads shared memory some time after its issue. The thread that issued it waits "
        "(cp.async.bulk.wait_group.read) and then lets the others write, by a barrier.",
        "9.7.9.25.1",
        "cp.async.bulk.wait_group.read in the issuing thread, then a barrier, then write",
        Example(FILL + _FENCE + "bar.sync 0;" + STORE + "bar.sync 0;\nst.shared.u32 [%r1], 0;" + STORED),
        Example(
            FILL + _FENCE + "bar.sync 0;" + STORE + "@%first cp.async.bulk.wait_group.read 0;\nbar.sync 0;\n"
            "st.shared.u32 [%r1], 0;" + STORED
        ),
    ),
    Rule(
        "wait-by-another-thread",
        "R12",
        WARNING,
        "A thread waits for bulk groups that another thread has issued",
        "Bulk groups belong to the thread that committed them. In any other thread the wait passes at once.",
        "9.7.9.27.2",
        "let the thread that issued the store wait, then tell the others by a barrier",
        Example(
            FILL
            + _FENCE
            + "bar.sync 0;"
            + STORE
            + "bar.sync 0;\nsetp.eq.u32 %p2, %tid, 32;\n@%p2 cp.async.bulk.wait_group 0;"
            + STORED
        ),
        Example(FILL + _FENCE + "bar.sync 0;" + STORE + STORED),
    ),
    Rule(
        "overlapping-copies",
        "R15",
        ERROR,
        "Two copies in flight write the same bytes",
        "Nothing orders copies among themselves, not even those of one thread or one group.",
        "9.7.9.25.3.2, 8.9.1.1",
        "wait for the first copy before the second is issued, or give them different destinations",
        Example(
            INIT + load(512, 1024) + "@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[tile+256], [%data], 512, [bar];" + wait()
        ),
        Example(
            INIT + load(512, 1024) + "@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[tile+512], [%data], 512, [bar];" + wait()
        ),
    ),
    Rule(
        "cp-async-not-waited",
        "R16",
        ERROR,
        "Data of a cp.async is used before it is there for this thread",
        "cp.async.wait_group makes the copies of the executing thread visible to that thread. Others need a barrier "
        "after the wait.",
        "9.7.9.25.3.3",
        "cp.async.wait_group first, then bar.sync (or cp.async.mbarrier.arrive and a wait), then read",
        Example(_CP_ASYNC + "bar.sync 0;\ncp.async.wait_group 0;" + READ),
        Example(_CP_ASYNC + "cp.async.wait_group 0;\nbar.sync 0;" + READ),
    ),
    Rule(
        "hand-off-scope",
        "R17",
        ERROR,
        "Data goes to another CTA over a barrier of .cta scope",
        "An arrival without .release.cluster carries none of its thread's memory accesses to another CTA, and a wait "
        "without .acquire.cluster takes none.",
        "9.7.13.15, 8.5",
        "mbarrier.arrive.release.cluster.shared::cluster in the writer, mbarrier.try_wait….acquire.cluster "
        "in the reader",
        Example(_HAND_OVER.replace("SCOPE", "").replace("WAIT", ""), cluster=2),
        Example(_HAND_OVER.replace("SCOPE", ".release.cluster").replace("WAIT", ".acquire.cluster"), cluster=2),
    ),
    Rule(
        "remote-arrival-scope",
        "R17",
        WARNING,
        "An arrival on another CTA's barrier releases nothing there",
        "It is enough where it only says that a finished asynchronous operation no longer reads (a wgmma that was "
        "waited for), and faster. It hands over no data.",
        "9.7.13.15",
        "nothing, if only asynchronous reads are meant; else .release.cluster, with .acquire.cluster at the wait",
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;"
            + CLUSTER_SYNC
            + PEER
            + "@%first mbarrier.arrive.shared::cluster.b64 _, [%r5];"
            + wait()
            + CLUSTER_SYNC,
            cluster=2,
        ),
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;"
            + CLUSTER_SYNC
            + PEER
            + "@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
            + wait(scope=".acquire.cluster")
            + CLUSTER_SYNC,
            cluster=2,
        ),
    ),
    Rule(
        "lane-race",
        "R19",
        ERROR,
        "Two lanes of a warp touch the same bytes, and have not met",
        "Lanes are threads of their own: they may run apart, and a shuffle or a vote orders no memory. GPUs of today "
        "mostly keep the lanes of straight code together, so it seldom shows. Different values that lanes store to one "
        "address with one instruction are a warning: one of them stays.",
        "8.9.4, 9.7.13.2",
        "bar.warp.sync between the two accesses",
        Example(FILL + _NEXT_LANE),
        Example(FILL + "bar.warp.sync -1;\n" + _NEXT_LANE),
    ),
    Rule(
        "warp-synchronous",
        "R19",
        WARNING,
        "One thread speaks for its warp, whose threads have not met",
        "Threads of a warp may run apart. A release by one of them covers what the others did only after a "
        "bar.warp.sync or another barrier of theirs.",
        "8.9.4, 9.7.13.2",
        "bar.warp.sync (or a CTA barrier) before the one thread arrives",
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 4;\nbar.sync 0;"
            + FILL
            + "and.b32 %r4, %tid, 31;\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 mbarrier.arrive.shared::cta.b64 %d0, [bar];"
            + wait()
            + _NEIGHBOUR
        ),
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 4;\nbar.sync 0;"
            + FILL
            + "bar.warp.sync -1;\nand.b32 %r4, %tid, 31;\nsetp.eq.u32 %p2, %r4, 0;\n"
            "@%p2 mbarrier.arrive.shared::cta.b64 %d0, [bar];" + wait() + _NEIGHBOUR
        ),
    ),
)
