"""As `published_bugs`, of Blackwell kernels: tensor memory, pairs of CTAs, cluster launch control. Not run on hardware.

PYPTX_SUITE is a program whose author expects 64 of four products of ones and pins 48, which the chip gave: `RACE` has
all that is wrong with it, and each part alone.
"""

from __future__ import annotations

from tests.sanitizer.pieces import CLUSTER_SYNC, INIT, load, wait
from tests.sanitizer.tensor_pieces import (
    ALLOC,
    COMMIT,
    DESCRIPTOR,
    DONE,
    FREE,
    PAIR_ALLOC,
    PAIR_FREE,
    READ,
    READY,
    Blackwell,
    multiply,
)

from .published_bugs import Bug

PYPTX_SUITE = "https://github.com/patrick-toulme/pyptx (examples/blackwell/tcgen05_accum_probe.py)"
PRIMITIVES = "https://github.com/NVIDIA/cutlass (CuTe DSL, primitives/cluster_tmem_reduce)"
ONES = """
shl.b32 %r0, %idx, 5;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
mov.u32 %r2, 0x3F803F80;
st.shared.v4.b32 [%r1], {%r2, %r2, %r2, %r2};
st.shared.v4.b32 [%r1+16], {%r2, %r2, %r2, %r2};
"""
"""Each thread fills 32 bytes of the tile with ones (bf16)."""
FENCE = "fence.proxy.async;\n"
FOUR = "".join(multiply(min(number, 1)) for number in range(4))
"""Four products of 16 ones: 64 in each cell."""
STORE = """
cvt.rn.f32.u32 %f1, %idx;
mov.b32 %f0, %r9;
shl.b32 %r0, %idx, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %data, %d2;
st.global.f32 [%d2], %f0;
"""


def accumulate(fence: str = FENCE, parity: int = 0) -> Blackwell:
    """The probe: fill, four products, a commit, a wait, a load."""
    fill = INIT + ALLOC + ONES + fence + "bar.sync 0;\n" + DESCRIPTOR
    return Blackwell(fill + FOUR + COMMIT + wait(parity, "1") + READ + STORE + FREE)


RACE = accumulate(fence="", parity=1)
SECOND_INIT = Blackwell(READY + "@%first mbarrier.init.shared::cta.b64 [bar], 1;\n" + FREE)
ADDRESS_OF_EACH_LANE = Blackwell(
    READY + multiply() + DONE + "and.b32 %r0, %idx, 31;\nshl.b32 %r0, %r0, 16;\nadd.u32 %r8, %r8, %r0;\n" + READ + FREE
)
COPY = """
mov.u32 %r3, tile;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d0, %r3;
or.b64 %d0, %d0, 0x0000400800000000;
@%first tcgen05.cp.cta_group::1.128x128b [%r8], %d0;
"""
"""128 rows of 16 bytes."""
COPIED = INIT + ALLOC + load(4096) + wait() + COPY
REQUEST = """
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
@%first clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [tile], [bar];
"""
PAIR_COMMIT = """
mov.u16 %h0, 3;
setp.eq.u32 %p5, %rank, 0;
and.pred %p5, %p5, %first;
@%p5 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], %h0;
"""
_STORED = """
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8], {%idx, %idx, %idx, %idx, %idx, %idx, %idx, %idx};
tcgen05.wait::st.sync.aligned;
"""
_SHIFT = (
    _STORED
    + """
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
setp.eq.u32 %p5, %rank, 0;
and.pred %p5, %p5, %first;
@%p5 tcgen05.shift.cta_group::2.down [%r8];
"""
)
"""Something of the pair that a commit tells of."""
_H0 = ".reg .b16 %h0;\n"
_PAIR = _H0 + INIT + CLUSTER_SYNC + PAIR_ALLOC
_PAIR_DONE = CLUSTER_SYNC + PAIR_FREE

BUGS: tuple[Bug, ...] = (
    Bug(
        "a wait for a parity that a fresh barrier lets through",
        "tensor-memory-race",
        (PYPTX_SUITE,),
        accumulate(parity=1),
        accumulate(),
        or_hangs=True,
    ),
    Bug(
        "a tile filled by threads and multiplied without a proxy fence",
        "generic-write-before-async-read",
        (PYPTX_SUITE,),
        accumulate(fence=""),
        accumulate(),
    ),
    Bug(
        "a copy into tensor memory awaited by wait::st",
        "tensor-memory-race",
        (PRIMITIVES,),
        Blackwell(COPIED + "tcgen05.wait::st.sync.aligned;\n" + READ + DONE + FREE),
        Blackwell(COPIED + DONE + READ + FREE),
    ),
    Bug(
        "columns of a pair freed before the peer has its own",
        "pair-frees-before-peer-has-columns",
        ("https://github.com/NVIDIA/cutlass/issues/3435",),
        Blackwell(_PAIR + PAIR_FREE, cluster=2),
        Blackwell(_PAIR + _PAIR_DONE, cluster=2),
    ),
    Bug(
        "columns of a pair freed while the peer may still use them",
        "pair-frees-while-peer-uses-columns",
        (
            "https://github.com/triton-lang/triton/pull/8874",
            "https://github.com/facebookexperimental/triton/pull/1707",
        ),
        Blackwell(_PAIR + CLUSTER_SYNC + _STORED + "bar.sync 0;\n" + PAIR_FREE, cluster=2),
        Blackwell(_PAIR + CLUSTER_SYNC + _STORED + _PAIR_DONE, cluster=2),
        severity="warning",
    ),
    Bug(
        "columns of a pair allocated before the peer runs",
        "cta-may-not-have-started",
        (
            "https://github.com/triton-lang/triton/pull/10735",
            "https://github.com/facebookexperimental/triton/pull/1444",
        ),
        Blackwell(PAIR_ALLOC + _PAIR_DONE, cluster=2),
        Blackwell(CLUSTER_SYNC + PAIR_ALLOC + _PAIR_DONE, cluster=2),
        severity="warning",
    ),
    Bug(
        "an exit while a commit of the pair still arrives",
        "cta-may-have-exited",
        (
            "https://github.com/triton-lang/triton/pull/10656",
            "https://github.com/facebookexperimental/triton/pull/1105",
        ),
        Blackwell(_PAIR + CLUSTER_SYNC + PAIR_FREE + PAIR_COMMIT, cluster=2),
        Blackwell(_PAIR + _SHIFT + PAIR_COMMIT + wait(scope=".acquire.cluster") + _PAIR_DONE, cluster=2),
    ),
    Bug(
        "an exit with a request for a cluster on its way",
        "exit-with-pending-work",
        ("https://github.com/Dao-AILab/quack (AI/clc_spurious_invalid_investigation.md)",),
        Blackwell(INIT + REQUEST),
        Blackwell(INIT + REQUEST + wait()),
    ),
)

STOPS: dict[str, tuple[Blackwell, str]] = {
    "a barrier initialised again while it is live (pyptx)": (SECOND_INIT, "a second time"),
    "an address for each lane (pyptx)": (ADDRESS_OF_EACH_LANE, "different tensor-memory addresses"),
    "a commit to a CTA that the cluster lacks (NVIDIA/cutlass#3658)": (
        Blackwell(_PAIR + PAIR_COMMIT.replace("%h0, 3", "%h0, 12") + _PAIR_DONE, cluster=2),
        "the multicast mask is",
    ),
}
"""What the machine itself refuses: the example, and a piece of the message."""
