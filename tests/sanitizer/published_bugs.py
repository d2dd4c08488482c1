"""Small kernels with the bugs that others have published: the same missing edge, and nothing else of their code.

Each is a body for `rules.schema.Example`; `fixed` is the same kernel with the edge in place. docs/published-bugs.md
lists them with what they did to people.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sanitizer.pieces import CLUSTER_SYNC, COMMIT, DESCRIPTORS, FENCE_MMA, WAIT_MMA, ZERO, load, multiply, wait
from warploom.sanitizer.rules.schema import Example


@dataclass(frozen=True)
class Bug:
    """One class of bug.

    Attributes:
        rule: that must find it; severity: of that rule.
        sources: where it was published.
        mirrored: the rule that finds it where the schedule lets the second access come first.
        or_hangs: under schedules that finish asynchronous work at once it is a deadlock instead.
    """

    name: str
    rule: str
    sources: tuple[str, ...]
    bad: Example
    fixed: Example
    severity: str = "error"
    mirrored: str = ""
    or_hangs: bool = False


FENCE = "fence.proxy.async.shared::cta;\n"
FLASH_KDA = "https://github.com/MoonshotAI/FlashKDA/issues/24"
FAST = "https://github.com/pranjalssh/fast.cu (kernel 12)"
PYPTX = "https://github.com/patrick-toulme/pyptx (examples/hopper/gemm_highperf_hopper.py)"

# -- an epilogue: accumulators to shared memory with stmatrix, from there by bulk store --------------------------------

_STMATRIX = """
and.b32 %r0, %idx, 31;
shr.u32 %r1, %idx, 5;
shl.b32 %r0, %r0, 4;
shl.b32 %r1, %r1, 9;
mov.u32 %r2, tile;
add.u32 %r2, %r2, %r0;
add.u32 %r2, %r2, %r1;
mov.u32 %r3, 0;
TILE:
WAIT
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%idx, %idx, %idx, %idx};
FENCE
bar.sync 0;
@%first cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 2048;
@%first cp.async.bulk.commit_group;
add.u64 %data, %data, 2048;
add.u32 %r3, %r3, 1;
setp.lt.u32 %p2, %r3, TILES;
@%p2 bra TILE;
END
"""


def _epilogue(fence: str = FENCE, before: str = "", end: str = "", tiles: int = 1) -> Example:
    text = _STMATRIX.replace("FENCE", fence).replace("WAIT", before).replace("END", end)
    return Example(text.replace("TILES", str(tiles)))


_STORED = "@%first cp.async.bulk.wait_group 0;"
_READ_OUT = "@%first cp.async.bulk.wait_group.read 0;\nbar.sync 0;"

# -- a ring of two stages that a producer fills and consumers read with ld.shared --------------------------------------

_RING = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], 4;
bar.sync 0;
mov.u32 %r3, 0;
setp.lt.u32 %p2, %idx, 128;
@%p2 bra consumer;
setp.ne.u32 %p3, %idx, 128;
@%p3 bra done;
fill:
not.b32 %r4, %r3;
and.b32 %r4, %r4, 1;
room:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], %r4;
@!%p0 bra room;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 512, [bar];
add.u32 %r3, %r3, 1;
setp.lt.u32 %p4, %r3, 3;
@%p4 bra fill;
bra done;
consumer:
and.b32 %r4, %r3, 1;
full:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], %r4;
@!%p0 bra full;
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
FENCE
bar.warp.sync -1;
and.b32 %r5, %idx, 31;
setp.eq.u32 %p5, %r5, 0;
@%p5 mbarrier.arrive.shared::cta.b64 _, [bar+8];
add.u32 %r3, %r3, 1;
setp.lt.u32 %p4, %r3, 3;
@%p4 bra consumer;
done:
"""

# -- a map in global memory, rewritten for each group ------------------------------------------------------------------

_GROUPS = """
@!%first bra done;
mbarrier.init.shared::cta.b64 [bar], 1;
add.u64 %d3, %data, 4096;
add.u64 %d4, %data, 1024;
ZEROS
tensormap.replace.tile.rank.global.b1024.b32 [%d4], 0;
tensormap.replace.tile.box_dim.global.b1024.b32 [%d4], 0, 64;
tensormap.replace.tile.global_dim.global.b1024.b32 [%d4], 0, 64;
tensormap.replace.tile.element_stride.global.b1024.b32 [%d4], 0, 1;
tensormap.replace.tile.elemtype.global.b1024.b32 [%d4], 2;
mov.u32 %r3, 0;
mov.u32 %r5, tile;
group:
tensormap.replace.tile.global_address.global.b1024.b64 [%d4], %d3;
fence.proxy.tensormap::generic.release.gpu;
fence.proxy.tensormap::generic.acquire.gpu [%d4], 128;
COPY
add.u32 %r5, %r5, 256;
add.u32 %r3, %r3, 1;
setp.lt.u32 %p2, %r3, 2;
@%p2 bra group;
END
done:
""".replace("ZEROS", "\n".join(f"st.global.u64 [%d4+{8 * word}], 0;" for word in range(16)))
_GROUP_LOAD = """
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r5], [%d4, {0}], [bar];
"""
_GROUP_EXPECT_BOTH = _GROUP_LOAD.replace("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;", "")
_DRAIN = "and.b32 %r4, %r3, 1;\nlast:\nmbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], %r4;\n@!%p0 bra last;\n"
_GROUP_STORE = """
st.shared.u32 [%r5], 1;
fence.proxy.async;
cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d4, {0}], [%r5];
cp.async.bulk.commit_group;
"""
_FILLED = "".join(f"st.shared.u32 [tile+{at}], 0;\n" for at in range(0, 512, 4))
_STORES = _GROUPS.replace("bra done;", "bra done;\n" + _FILLED, 1)
_LOADS_BAD = _GROUPS.replace("mov.u32 %r3", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;\nmov.u32 %r3", 1)

# -- a product ---------------------------------------------------------------------------------------------------------

_BARRIER = "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n"
_SPIN = "mov.u32 %r7, 0;\nspin:\nadd.u32 %r7, %r7, 1;\nsetp.lt.u32 %p6, %r7, 200;\n@%p6 bra spin;\n"
_MULTIPLY = DESCRIPTORS + FENCE_MMA + multiply() + COMMIT
_A_REGISTERS = """
mov.u32 %r8, %idx;
mov.u32 %r9, %idx;
mov.u32 %r10, %idx;
mov.u32 %r11, %idx;
mov.u32 %r3, 0;
turn:
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r8, %r9, %r10, %r11}, %d1, 1, 1, 1, 0;
wgmma.commit_group.sync.aligned;
EARLY
add.u32 %r8, %r8, 1;
LATE
add.u32 %r3, %r3, 1;
setp.lt.u32 %p2, %r3, 2;
@%p2 bra turn;
wgmma.wait_group.sync.aligned 0;
"""


def _a_registers(early: str, late: str) -> Example:
    body = ZERO + _BARRIER + load(4096) + wait() + DESCRIPTORS + _A_REGISTERS
    return Example(body.replace("EARLY", early).replace("LATE", late))


def _stage_given_back(before: str) -> Example:
    """The stage is filled again once the warpgroup has arrived; one thread loads."""
    body = ZERO + _BARRIER + load(4096) + wait() + _MULTIPLY + before + "bar.sync 0;\n" + load(4096)
    return Example(body + WAIT_MMA + wait(1, "1"))


# -- clusters ----------------------------------------------------------------------------------------------------------

_PEER_BARRIER = "xor.b32 %r4, %rank, 1;\nmov.u32 %r5, bar;\nmapa.shared::cluster.u32 %r5, %r5, %r4;\n"
_CLUSTER_START = (
    "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nfence.mbarrier_init.release.cluster;\n" + CLUSTER_SYNC
)
_GIVE_DATA = """
mov.u32 %r6, tile;
xor.b32 %r4, %rank, 1;
mapa.shared::cluster.u32 %r6, %r6, %r4;
mov.u32 %r5, bar;
mapa.shared::cluster.u32 %r5, %r5, %r4;
@%first st.shared::cluster.u32 [%r6], %idx;
@%first mbarrier.arriveRELEASE.shared::cluster.b64 _, [%r5];
take:
mbarrier.try_wait.parityACQUIRE.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra take;
ld.shared.u32 %r2, [tile];
"""


def _exchange(release: str, acquire: str) -> Example:
    body = _CLUSTER_START + _GIVE_DATA.replace("RELEASE", release).replace("ACQUIRE", acquire) + CLUSTER_SYNC
    return Example(body, cluster=2)


_FREE_STAGE = "@%first mbarrier.arriveRELEASE.shared::cluster.b64 _, [%r5];\n"


_RELEASED = _CLUSTER_START + _PEER_BARRIER + _FREE_STAGE.replace("RELEASE", ".release.cluster")


def _multicast(mask: int) -> Example:
    """Both CTAs wait for a tile that rank 0 is to send to both."""
    send = (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[tile], [%data], 512, [bar], {mask};"
    )
    body = (
        _CLUSTER_START
        + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;\n"
        + "setp.eq.u32 %p2, %rank, 0;\nand.pred %p2, %p2, %first;\n@%p2 "
        + send
        + wait()
        + CLUSTER_SYNC
    )
    return Example(body, cluster=2)


# -- between grids of copies -------------------------------------------------------------------------------------------


def _message(wait_for_store: str) -> Example:
    """CTA 0 stores a tile with TMA and raises a flag, CTA 1 sees the flag and reads the tile."""
    return Example(
        f"""
mov.u32 %r6, %ctaid.x;
setp.eq.u32 %p2, %r6, 0;
@!%p2 bra reader;
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.u32 [%r1], %idx;
{FENCE}
bar.sync 0;
@!%first bra done;
cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 512;
cp.async.bulk.commit_group;
{wait_for_store}
st.release.gpu.global.u32 [%data+2048], 77;
cp.async.bulk.wait_group 0;
bra done;
reader:
@!%first bra done;
look:
ld.acquire.gpu.global.u32 %r2, [%data+2048];
setp.ne.u32 %p3, %r2, 77;
@%p3 bra look;
ld.global.u32 %r3, [%data];
done:
""",
        grid=2,
    )


def _polled(fence: str) -> Example:
    """CTA 0 writes tokens with st and raises a flag, CTA 1 polls the flag and fetches the tokens by bulk copy."""
    return Example(
        f"""
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
@!%first bra done;
mov.u32 %r6, %ctaid.x;
setp.eq.u32 %p2, %r6, 0;
@!%p2 bra reader;
st.global.u32 [%data], 5;
st.release.gpu.global.u32 [%data+2048], 77;
bra done;
reader:
ld.acquire.gpu.global.u32 %r2, [%data+2048];
setp.ne.u32 %p3, %r2, 77;
@%p3 bra reader;
{fence}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 512, [bar];
here:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra here;
done:
""",
        grid=2,
    )


def _copied(newest: int) -> Example:
    """Load, store, load again into the same place: the store in between must have read it."""
    store = f"""
@%first cp.async.bulk.global.shared::cta.bulk_group [%data+4096], [tile], 512;
@%first cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group.read {newest};
"""
    return Example(_BARRIER + load(512) + wait() + store + load(512) + wait(1, "1") + _STORED)


BUGS = (
    Bug(
        "an epilogue without a proxy fence", "generic-write-before-async-read", (FLASH_KDA, FAST, PYPTX),
        _epilogue(fence="", end=_STORED), _epilogue(end=_STORED),
    ),
    Bug(
        "a staging buffer refilled after only one thread has waited", "store-source-overwritten",
        (
            "https://github.com/tile-ai/TileOPs/pull/1550", "https://github.com/NVIDIA/TransformerEngine/pull/3417",
            FAST, PYPTX,
        ),
        _epilogue(before="cp.async.bulk.wait_group 0;", end=_STORED, tiles=2),
        _epilogue(before=_READ_OUT, end=_STORED, tiles=2), mirrored="data-race",
    ),
    Bug(
        "an exit with the last store in flight", "exit-with-pending-work", (FAST, PYPTX),
        _epilogue(), _epilogue(end=_STORED),
    ),
    Bug(
        "a wait for one store too "
        "few", "store-source-overwritten", ("https://github.com/deepseek-ai/DeepEP/issues/657",),
        _copied(1), _copied(0),
    ),
    Bug(
        "a stage refilled by TMA after ld.shared", "generic-access-before-async-write",
        (
            "https://github.com/deepseek-ai/DeepEP/pull/642", "https://github.com/NVIDIA/TransformerEngine/pull/2695",
            "https://github.com/NVIDIA/nccl-extensions/issues/8", "https://github.com/deepseek-ai/DeepGEMM/pull/389",
        ),
        Example(_RING.replace("FENCE", ""), threads=160), Example(_RING.replace("FENCE", FENCE), threads=160),
        severity="warning",
    ),
    Bug(
        "a tensor map rewritten under its loads", "tensor-map-in-use",
        (
            "https://github.com/deepseek-ai/DeepGEMM/pull/343", "https://github.com/deepseek-ai/DeepGEMM/pull/431",
            "https://github.com/facebookexperimental/triton/pull/680",
        ),
        Example(_LOADS_BAD.replace("COPY", _GROUP_EXPECT_BOTH).replace("END", wait())),
        Example(_GROUPS.replace("COPY", _GROUP_LOAD + _DRAIN).replace("END", "")),
    ),
    Bug(
        "a tensor map rewritten under its "
        "stores", "tensor-map-in-use", ("https://github.com/NVIDIA/cutlass/issues/2162",),
        Example(_STORES.replace("COPY", _GROUP_STORE).replace("END", _STORED)),
        Example(_STORES.replace("COPY", _GROUP_STORE + "cp.async.bulk.wait_group 0;\n").replace("END", "")),
    ),
    Bug(
        "a multicast that leaves one CTA out", "byte-count-mismatch",
        ("https://github.com/deepseek-ai/DeepGEMM/pull/415", "https://github.com/deepseek-ai/DeepGEMM/pull/429"),
        _multicast(1), _multicast(3),
    ),
    Bug(
        "A registers of a wgmma loaded again too early", "wgmma-register-in-flight",
        ("https://github.com/deepseek-ai/DeepGEMM/pull/448",),
        _a_registers("", "wgmma.wait_group.sync.aligned 0;"), _a_registers("wgmma.wait_group.sync.aligned 0;", ""),
    ),
    Bug(
        "data for another CTA over a barrier of .cta scope", "hand-off-scope",
        (
            "https://github.com/NVIDIA/cutlass/issues/3324", "https://github.com/NVIDIA/cutlass/issues/3647",
            "https://github.com/triton-lang/triton/pull/10922",
        ),
        _exchange("", ""), _exchange(".release.cluster", ".acquire.cluster"),
    ),
    Bug(
        "an arrival on another CTA's barrier without a scope", "remote-arrival-scope", (FAST, PYPTX),
        Example(_CLUSTER_START + _PEER_BARRIER + _FREE_STAGE.replace("RELEASE", "") + wait() + CLUSTER_SYNC, cluster=2),
        Example(
            _CLUSTER_START + _PEER_BARRIER + _FREE_STAGE.replace("RELEASE", ".release.cluster")
            + wait(scope=".acquire.cluster") + CLUSTER_SYNC, cluster=2,
        ),
        severity="warning",
    ),
    Bug(
        "an exit while others still arrive", "cta-may-have-exited",
        (
            FAST, PYPTX, "https://github.com/sgl-project/sglang/pull/32954",
            "https://github.com/facebookexperimental/triton/pull/1105",
        ),
        Example(_RELEASED, cluster=2), Example(_RELEASED + CLUSTER_SYNC, cluster=2),
    ),
    Bug(
        "a wait moved after the "
        "product", "copy-not-waited", ("https://github.com/facebookexperimental/CUTracer/pull/106",),
        Example(ZERO + _BARRIER + load(4096) + _SPIN + _MULTIPLY + wait() + WAIT_MMA),
        Example(ZERO + _BARRIER + load(4096) + _SPIN + wait() + _MULTIPLY + WAIT_MMA),
    ),
    Bug(
        "a wait left out, hidden by a spin loop", "copy-not-waited",
        ("https://github.com/facebookexperimental/CUTracer/pull/106",),
        Example(ZERO + _BARRIER + load(4096) + _SPIN + _MULTIPLY + WAIT_MMA),
        Example(ZERO + _BARRIER + load(4096) + wait() + _MULTIPLY + WAIT_MMA),
    ),
    Bug(
        "a stage given back while its wgmma still runs", "operand-overwritten",
        (
            "https://github.com/facebookexperimental/triton/pull/1278", "https://github.com/tile-ai/tilelang/issues/2613",
        ),
        _stage_given_back(""), _stage_given_back(WAIT_MMA),
    ),
    Bug(
        "a flag raised before the TMA store is complete", "copy-to-global-not-complete",
        ("https://github.com/triton-lang/triton/pull/10415",),
        _message("cp.async.bulk.wait_group.read 0;"), _message("cp.async.bulk.wait_group 0;"),
    ),
    Bug(
        "tokens polled by ld and fetched by TMA", "global-proxy-fence",
        ("https://github.com/deepseek-ai/DeepEP/issues/621", "https://github.com/deepseek-ai/DeepEP/pull/632"),
        _polled(""), _polled("fence.proxy.async.global;"),
    ),
)  # fmt: skip
