"""Rules about mbarriers, clusters and exits."""

from __future__ import annotations

from .schema import CLUSTER_SYNC, ERROR, FILL, INIT, PEER, READ, STORE, STORED, WARNING, Example, Rule, load, wait

_SECOND = """
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+256], [%data], 256, [bar];
"""

_TWO_ARRIVALS = (
    "@%first mbarrier.init.shared::cta.b64 [bar], 2;\nbar.sync 0;\nand.b32 %r4, %tid, 63;\n"
    "setp.eq.u32 %p3, %r4, 0;\n@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n" + wait() + "bar.sync 0;\n"
)
"""Threads 0 and 64 complete the first phase."""

RULES = (
    Rule(
        "mbarrier-init-not-visible",
        "M1, M2",
        ERROR,
        "A barrier is used by threads that may not have seen its initialisation",
        "mbarrier.init writes memory as st does. Whoever uses the barrier synchronises with the thread that "
        "initialised it: by bar.sync in a CTA, by the cluster's barrier across CTAs.",
        "9.7.13.15.9",
        "bar.sync (in a cluster: fence.mbarrier_init.release.cluster and the cluster's barrier) after mbarrier.init",
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 128;\nmov.u32 %r3, 0;\n"
            "spin:\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 50;\n@%p2 bra spin;\n"
            "mbarrier.arrive.shared::cta.b64 %d0, [bar];" + wait()
        ),
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 128;\nbar.sync 0;\nmbarrier.arrive.shared::cta.b64 "
            "%d0, [bar];" + wait()
        ),
    ),
    Rule(
        "mbarrier-bytes-accessed",
        "M3",
        ERROR,
        "The bytes of a live mbarrier are read or written as data",
        "Only mbarrier instructions may touch a valid mbarrier.",
        "9.7.13.15.1",
        "mbarrier.inval first, or give the data a place of its own",
        Example(INIT + "ld.shared.u64 %d0, [bar];"),
        Example(INIT + "ld.shared.u64 %d0, [tile];"),
    ),
    Rule(
        "mbarrier-used-when-invalid",
        "M1",
        ERROR,
        "An mbarrier is used after mbarrier.inval",
        "Its bytes are plain memory again and mean nothing to mbarrier instructions.",
        "9.7.13.15.10",
        "mbarrier.inval only after the last use, or mbarrier.init again",
        Example(
            INIT + "@%first mbarrier.inval.shared::cta.b64 [bar];\n@%first mbarrier.arrive.shared::cta.b64 _, [bar];"
        ),
        Example(INIT + "@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];" + wait()),
    ),
    Rule(
        "surplus-arrival",
        "M4",
        ERROR,
        "More arrivals come in a phase than the barrier was initialised for",
        "The pending count would fall below zero, and later phases would complete at the wrong time.",
        "9.7.13.15.3",
        "give mbarrier.init the number of arrivals of each phase, and wait for a phase before arriving for the next",
        Example(INIT + load(512, 1024) + "@%first mbarrier.arrive.shared::cta.b64 _, [bar];" + wait()),
        Example(INIT + load(512) + wait()),
    ),
    Rule(
        "double-arrival",
        "M4",
        WARNING,
        "A thread arrives twice in a phase, in the place of another",
        "A phase counts arrivals, not threads: with the right number it completes whoever came. The thread that did "
        "not come has released nothing, and may still be at work.",
        "9.7.13.15.13",
        "let each thread arrive once in each phase, and wait for a phase before arriving for the next",
        Example(_TWO_ARRIVALS + "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n" * 2 + wait(1, "1")),
        Example(_TWO_ARRIVALS + "@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n" + wait(1, "1")),
    ),
    Rule(
        "bytes-in-later-phase",
        "M7, M8",
        ERROR,
        "Bytes of a copy arrive after the phase they were meant for",
        "A phase completes when its arrivals and the announced bytes are there. If fewer bytes are announced than the "
        "copies bring, it completes early, and the rest count against the next phase.",
        "9.7.13.15.5",
        "announce exactly the bytes of all copies of the phase, filled ones included, before or with the arrival",
        Example(INIT + load(256, 256) + _SECOND + wait()),
        Example(INIT + load(256, 512) + _SECOND + wait()),
    ),
    Rule(
        "phase-not-observed",
        "M10",
        WARNING,
        "Threads arrive for a phase and nobody has seen the one before complete",
        "At least one wait must have returned true for a phase before anybody arrives for the next.",
        "9.7.13.15.4",
        "wait for each phase before the first arrival on the next",
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n"
            "@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];\n@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];"
        ),
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n"
            "@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];"
            + wait()
            + "bar.sync 0;\n@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];"
            + wait(1, "1")
        ),
    ),
    Rule(
        "byte-count-mismatch",
        "M6, M17",
        ERROR,
        "The bytes announced for a phase are not those that copies bring",
        "With too many announced the phase never completes; with too few it completes early or never.",
        "9.7.13.15.5",
        "announce exactly the bytes of all copies of the phase: what is filled outside a tensor counts too",
        Example(INIT + load(512, 528) + wait()),
        Example(INIT + load(512) + wait()),
    ),
    Rule(
        "cta-may-not-have-started",
        "M13",
        ERROR,
        "A CTA reaches into another that may not have started",
        "The shared memory of another CTA of the cluster is there once that CTA has started. The cluster's barrier at "
        "the kernel's start tells; its arrivals may be relaxed for that.",
        "9.7.13.3, 5.1.6",
        "barrier.cluster.arrive and wait before the first access to another CTA",
        Example(
            "mov.u32 %r5, tile;\nxor.b32 %r4, %rank, 1;\nmapa.shared::cluster.u32 %r5, %r5, %r4;\n"
            "@%first st.shared::cluster.u32 [%r5], %tid;" + CLUSTER_SYNC,
            cluster=2,
        ),
        Example(
            CLUSTER_SYNC + "mov.u32 %r5, tile;\nxor.b32 %r4, %rank, 1;\nmapa.shared::cluster.u32 %r5, %r5, %r4;\n"
            "@%first st.shared::cluster.u32 [%r5], %tid;" + CLUSTER_SYNC,
            cluster=2,
        ),
    ),
    Rule(
        "cta-may-have-exited",
        "M13",
        ERROR,
        "A CTA reaches into another that may have exited",
        "Shared memory of another CTA of the cluster is there only while that CTA runs. It must wait for what others "
        "do to it: by the cluster's barrier at its end, or by the barrier that the last arrival completes.",
        "9.7.13.3, 5.1.6",
        "end the kernel with barrier.cluster.arrive and wait, or let each CTA wait for all arrivals on its barriers",
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;"
            + CLUSTER_SYNC
            + PEER
            + "@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];",
            cluster=2,
        ),
        Example(
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;"
            + CLUSTER_SYNC
            + PEER
            + "@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
            + CLUSTER_SYNC,
            cluster=2,
        ),
    ),
    Rule(
        "exit-with-pending-work",
        "L11, R10",
        ERROR,
        "A CTA exits while asynchronous operations still use its shared memory",
        "The shared memory of a CTA that has exited belongs to the next. A bulk store must have read its source "
        "(wait_group.read at least), a load must have arrived, an MMA that reads it must have been waited for.",
        "9.7.9.25.1, 9.7.15.7.3",
        "wait for every operation before the exit",
        Example(FILL + "fence.proxy.async;\nbar.sync 0;" + STORE),
        Example(FILL + "fence.proxy.async;\nbar.sync 0;" + STORE + STORED),
    ),
    Rule(
        "uninitialised-shared-read",
        "L6",
        WARNING,
        "Shared memory is read that nothing has written",
        "Shared memory holds anything when a CTA starts.",
        "5.1.6",
        "write it first, or read only what was written",
        Example(READ),
        Example(FILL + "bar.sync 0;" + READ),
    ),
)
