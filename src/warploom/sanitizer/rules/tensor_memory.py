"""Rules about tensor memory and the operations of tcgen05."""

from __future__ import annotations

from functools import partial

from .schema import CLUSTER_SYNC, ERROR, INIT, WARNING, Example, Rule, load, wait

Blackwell = partial(Example, target="sm_100a")
ALLOC = """
setp.lt.u32 %p2, %tid, 32;
@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], 32;
bar.sync 0;
ld.shared.u32 %r8, [bar+8];
"""
"""Warp 0 allocates 32 columns; %r8 is the first, in all threads."""
FREE = """
bar.sync 0;
@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
"""
DESCRIPTOR = """
mov.u32 %r3, tile;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d0, %r3;
or.b64 %d0, %d0, 0x0000401000080000;
"""
"""%d0: A, 128 x 16 bf16, and B, its first rows, without swizzle."""
READY = INIT + ALLOC + load(4096) + wait() + DESCRIPTOR


def multiply(adds: int = 0, n: int = 16, who: str = "%first") -> str:
    """One product, 128 x n, into the first columns."""
    return f"""
setp.ne.u32 %p3, {adds}, 0;
@{who} tcgen05.mma.cta_group::1.kind::f16 [%r8], %d0, %d0, {0x08000490 | n >> 3 << 17:#x}, %p3;
"""


COMMIT = """
@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
"""
LOAD = """
tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r9, %r10, %r11, %r12}, [%r8];
"""
WAIT_LOAD = """
tcgen05.wait::ld.sync.aligned;
"""
DONE = COMMIT + wait(1, "1")
USE = "add.u32 %r13, %r9, %r10;\n"
READ = LOAD + WAIT_LOAD + USE
_RIGHT = Blackwell(READY + multiply() + DONE + READ + FREE)
PAIR_ALLOC = """
setp.lt.u32 %p2, %tid, 32;
@%p2 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [bar+8], 32;
bar.sync 0;
ld.shared.u32 %r8, [bar+8];
"""
PAIR_FREE = """
@%p2 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 32;
"""
_SECTION = "9.7.16.6"

RULES = (
    Rule(
        "tensor-memory-race",
        "T1, T2, T5, T13",
        ERROR,
        "Cells of tensor memory are accessed while an operation may still write them",
        "Products, copies, loads and stores of tensor memory are asynchronous, and few of them are in order by "
        "themselves: products of one thread on one accumulator, and copies and shifts before a product. Everything "
        "else needs completion: tcgen05.commit and a wait for its mbarrier, or tcgen05.wait::st.",
        _SECTION,
        "commit the operation and wait for the mbarrier (of stores: tcgen05.wait::st) before the cells are used",
        Blackwell(READY + multiply() + READ + DONE + FREE),
        _RIGHT,
    ),
    Rule(
        "tensor-memory-overwritten",
        "T3, T4",
        ERROR,
        "Cells of tensor memory are written while somebody may still read them",
        "A load of tensor memory is asynchronous too: whoever writes the cells next must know that it is over. The "
        "epilogue waits for its loads (tcgen05.wait::ld) and then tells the thread that issues the next product.",
        _SECTION,
        "tcgen05.wait::ld, then an arrival that the writer waits for",
        Blackwell(READY + multiply() + DONE + LOAD + multiply() + COMMIT + wait(0, "2") + WAIT_LOAD + FREE),
        Blackwell(
            READY + multiply() + DONE + READ + "bar.sync 0;\n" + multiply() + COMMIT + wait(0, "2") + FREE
        ),
    ),
    Rule(
        "tensor-memory-uninitialised",
        "T14",
        ERROR,
        "Cells of tensor memory are read that nothing has written",
        "After an allocation tensor memory holds what others have left there. A product that adds reads its "
        "accumulator; scale factors must stand in all four quarters of the lanes.",
        "9.7.16.1",
        "let the first product not add (enable-input-d false), or store zeros first; copy scale factors with .warpx4",
        Blackwell(READY + multiply(1) + DONE + READ + FREE),
        _RIGHT,
    ),
    Rule(
        "tensor-memory-order",
        "T23",
        WARNING,
        "An order between operations of tcgen05 is relied upon that the PTX ISA does not list",
        "Products on accumulators of different shape, and a copy over cells that an earlier product reads, are in "
        "order on today's chips when one thread issues them; the ISA lists neither.",
        "9.7.16.6.2",
        "commit and wait between the two, or use other columns",
        Blackwell(READY + multiply(n=32) + multiply() + DONE + READ + FREE),
        Blackwell(READY + multiply() + multiply(1) + DONE + READ + FREE),
    ),
    Rule(
        "missing-tensor-fence",
        "",
        ERROR,
        "Tensor memory is handed from thread to thread without tcgen05.fence",
        "By the ISA's text an operation follows synchronisation only after fence::after_thread_sync, and comes before "
        "it only ahead of fence::before_thread_sync. CUTLASS and Triton emit neither, so this is reported in strict "
        "mode alone.",
        "9.7.16.11",
        "tcgen05.fence::before_thread_sync before the arrival, tcgen05.fence::after_thread_sync after the wait",
    ),
    Rule(
        "tensor-load-not-waited",
        "T24",
        ERROR,
        "A register that tcgen05.ld loads is touched before tcgen05.wait::ld",
        "The load is asynchronous: until the wait its registers may be written at any time.",
        "9.7.16.8.3",
        "tcgen05.wait::ld.sync.aligned before the registers are read or written",
        Blackwell(READY + multiply() + DONE + LOAD + USE + WAIT_LOAD + FREE),
        _RIGHT,
    ),
    Rule(
        "commit-by-another-thread",
        "T6",
        ERROR,
        "tcgen05.commit by a thread that has issued nothing",
        "A commit tells of the operations of its own thread. Where that has none the barrier is told at once. Two "
        "regions of elect.sync need not elect the same lane.",
        "9.7.16.12.1",
        "let the thread that issues the products commit them",
        Blackwell(
            READY + multiply() + "setp.eq.u32 %p4, %tid, 1;\n" + COMMIT.replace("%first", "%p4") + wait(1, "1")
            + READ + FREE
        ),
        _RIGHT,
    ),
    Rule(
        "product-by-several-lanes",
        "T16",
        ERROR,
        "tcgen05.mma, cp or shift by more than one lane of a warp",
        "One thread issues these operations; each lane that executes one starts an operation of its own. Hangs have "
        "been seen.",
        "9.7.16.10.9",
        "guard it with the predicate of elect.sync",
        Blackwell(READY + multiply(who="%p2") + DONE + READ + FREE),
        _RIGHT,
    ),
    Rule(
        "freed-columns-in-use",
        "T12, T17",
        ERROR,
        "Columns of tensor memory are freed while an operation may still use them",
        "The next CTA on the SM gets the columns at once.",
        "9.7.16.7.1",
        "wait for the last operation, then a barrier of all who access the columns, then tcgen05.dealloc",
        Blackwell(READY + multiply() + COMMIT + FREE + wait(1, "1")),
        _RIGHT,
    ),
    Rule(
        "columns-not-freed",
        "T17",
        ERROR,
        "A CTA exits with columns of tensor memory that it has not freed",
        "The columns stay taken: a later kernel hangs or faults.",
        "9.7.16.7.1",
        "tcgen05.dealloc of every allocation, with its size",
        Blackwell(READY + multiply() + DONE + READ),
        _RIGHT,
    ),
    Rule(
        "growing-allocation",
        "T17",
        ERROR,
        "A CTA allocates more columns than it did before",
        "The sizes of a CTA's allocations must not grow: two CTAs on an SM could wait for each other.",
        "9.7.16.7.1",
        "allocate the largest first",
        Blackwell(
            ALLOC + "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar], 64;\nbar.sync 0;\n"
            "ld.shared.u32 %r9, [bar];\n" + FREE
            + "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 64;\n"
        ),
        Blackwell(
            ALLOC + "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar], 32;\nbar.sync 0;\n"
            "ld.shared.u32 %r9, [bar];\n" + FREE
            + "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;\n"
        ),
    ),
    Rule(
        "pair-frees-before-peer-has-columns",
        "T18",
        ERROR,
        "A CTA of a pair frees columns, and the other may not have come out of its allocation",
        "On hardware the launch fails (NVIDIA/cutlass issue 3435): a cluster barrier anywhere between the two keeps it "
        "from happening.",
        "9.7.16.7.1",
        "a cluster barrier between tcgen05.alloc and tcgen05.dealloc of cta_group::2",
        Blackwell(CLUSTER_SYNC + PAIR_ALLOC + PAIR_FREE, cluster=2),
        Blackwell(CLUSTER_SYNC + PAIR_ALLOC + CLUSTER_SYNC + PAIR_FREE, cluster=2),
    ),
)  # fmt: skip
