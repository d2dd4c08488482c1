"""Rules about global memory and about what a grid shares with others."""

from __future__ import annotations

from .schema import ERROR, FILL, WARNING, Example, Rule

_MINE = """
mov.u32 %r6, %ctaid.x;
shl.b32 %r0, %tid, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
"""
"""%d2: the thread's own word of the buffer; %r6: the CTA."""
_MEET = "bar.sync 0;\n"


def _flag(release: str, acquire: str, read: str = "ld.global.u32 %r3, [%data];") -> str:
    """CTA 0 writes a word and raises a flag, CTA 1 waits for the flag and reads the word."""
    return f"""
@!%first bra done;
mov.u32 %r6, %ctaid.x;
setp.eq.u32 %p2, %r6, 0;
@!%p2 bra reader;
st.global.u32 [%data], 7;
{release}
bra done;
reader:
{acquire}
setp.ne.u32 %p3, %r2, 77;
@%p3 bra reader;
{read}
done:
"""


_RAISE = "st.release.gpu.global.u32 [%data+128], 77;"
_LOOK = "ld.acquire.gpu.global.u32 %r2, [%data+128];"
_LOAD = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first st.global.u32 [%data], 7;
FENCE
bar.sync 0;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 512, [bar];
wait_0:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra wait_0;
"""


_MAP = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
@!%first bra done;
add.u64 %d3, %data, 4096;
add.u64 %d4, %data, 1024;
ZEROS
tensormap.replace.tile.global_address.global.b1024.b64 [%d4], %d3;
tensormap.replace.tile.rank.global.b1024.b32 [%d4], 0;
tensormap.replace.tile.box_dim.global.b1024.b32 [%d4], 0, 64;
tensormap.replace.tile.global_dim.global.b1024.b32 [%d4], 0, 64;
tensormap.replace.tile.element_stride.global.b1024.b32 [%d4], 0, 1;
tensormap.replace.tile.elemtype.global.b1024.b32 [%d4], 2;
FENCES
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%d4, {0}], [bar];
wait_0:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra wait_0;
done:
""".replace("ZEROS", "\n".join(f"st.global.u64 [%d4+{8 * word}], 0;" for word in range(16)))
_MAP_FENCES = """
fence.proxy.tensormap::generic.release.gpu;
fence.proxy.tensormap::generic.acquire.gpu [%d4], 128;
"""
_REWRITE = "@%first tensormap.replace.tile.global_address.global.b1024.b64 [%d4], %d3;\n"


def _overhanging(extent: int) -> str:
    """A tensor store of 8 rows of f32, 128 bytes apart, that end at `extent`."""
    fields = (
        ("global_address", "b64", "%data"),
        ("rank", "b32", "1"),
        ("box_dim", "b32", "0, 16"),
        ("box_dim", "b32", "1, 8"),
        ("global_dim", "b32", f"0, {extent}"),
        ("global_dim", "b32", "1, 8"),
        ("global_stride", "b64", "0, 128"),
        ("element_stride", "b32", "0, 1"),
        ("element_stride", "b32", "1, 1"),
        ("elemtype", "b32", "7"),
    )
    lines = [f"st.global.u64 [%d4+{8 * word}], 0;" for word in range(16)]
    lines += [f"tensormap.replace.tile.{field}.global.b1024.{kind} [%d4], {value};" for field, kind, value in fields]
    return (
        FILL
        + "fence.proxy.async;\nbar.sync 0;\n@!%first bra done;\nadd.u64 %d4, %data, 4096;\n"
        + "\n".join(lines)
        + _MAP_FENCES
        + "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d4, {0, 0}], [tile];\n"
        + "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\ndone:\n"
    )


def _stored(wait: str) -> str:
    return (
        FILL
        + "fence.proxy.async;\nbar.sync 0;\n"
        + "@%first cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 512;\n"
        + "@%first cp.async.bulk.commit_group;\n"
        + wait
        + "bar.sync 0;\nld.global.u32 %r3, [%data];\n@%first cp.async.bulk.wait_group 0;"
    )


RULES = (
    Rule(
        "global-data-race",
        "R18",
        ERROR,
        "Two threads touch the same bytes of global memory, one of them writes, and nothing orders them",
        "CTAs run in any order, and one may see the writes of another late, in part, or never. Within a CTA a barrier "
        "orders threads; between CTAs only a release that the other side acquires does.",
        "8.7.1, 8.9.5",
        "give each thread bytes of its own, or put a barrier (in a CTA) or a released and acquired flag (between CTAs) "
        "in between",
        Example(
            _MINE + "st.global.u32 [%d2], %tid;\nxor.b32 %r0, %r0, 256;\ncvt.u64.u32 %d2, %r0;\n"
            "add.u64 %d2, %d2, %data;\nld.global.u32 %r3, [%d2];"
        ),
        Example(
            _MINE + "st.global.u32 [%d2], %tid;\nbar.sync 0;\nxor.b32 %r0, %r0, 256;\ncvt.u64.u32 %d2, %r0;\n"
            "add.u64 %d2, %d2, %data;\nld.global.u32 %r3, [%d2];"
        ),
    ),
    Rule(
        "same-value-race",
        "R18",
        WARNING,
        "Two threads write the same value to the same bytes, and nothing orders them",
        "It is a data race, and whichever comes last leaves the same bytes. Compilers write so where several warps "
        "hold the same values. It costs the stores, and becomes wrong as soon as the values differ.",
        "8.7.1",
        "let one thread write",
        Example("st.shared.u32 [tile], 7;"),
        Example("@%first st.shared.u32 [tile], 7;"),
    ),
    Rule(
        "global-hand-off",
        "R17, R18",
        ERROR,
        "A flag in global memory hands over data, but does not order it",
        "A flag orders the data after it only if it is written with .release (or after a fence), read with .acquire "
        "(or before a fence), and the scopes of both reach the other thread: .gpu between CTAs of different clusters, "
        ".sys between GPUs. A relaxed atomic moves its own word and nothing else.",
        "8.5, 8.9.4",
        "st.release.gpu (or fence.acq_rel.gpu, then a relaxed store) in the writer, ld.acquire.gpu in the reader; .sys "
        "in place of .gpu where they are on different GPUs",
        Example(_flag(_RAISE.replace(".release.gpu", ".release.cta"), _LOOK), grid=2),
        Example(_flag(_RAISE, _LOOK), grid=2),
    ),
    Rule(
        "global-proxy-fence",
        "R1",
        ERROR,
        "A copy touches global memory that threads have written, without a proxy fence",
        "TMA and bulk copies go to global memory through the async proxy, st and atom through the generic one. A "
        "barrier or a flag orders threads, not proxies.",
        "9.7.9.25.2, 8.9.5",
        "let every thread that wrote execute fence.proxy.async (or fence.proxy.async.global) before the barrier or "
        "flag",
        Example(_LOAD.replace("FENCE", "")),
        Example(_LOAD.replace("FENCE", "fence.proxy.async.global;")),
    ),
    Rule(
        "tensor-map-fence",
        "R14",
        ERROR,
        "A copy uses a tensor map that the kernel has written, without the fences of the tensormap proxy",
        "TMA reads maps through a proxy of its own. The writer publishes the map, the user acquires it by its address, "
        "and a barrier or a flag stands between the two if they are not one thread.",
        "9.7.13.4, 9.7.13.16",
        "fence.proxy.tensormap::generic.release.gpu after the write, fence.proxy.tensormap::generic.acquire.gpu "
        "[map], 128 in front of the copy",
        Example(_MAP.replace("FENCES", "")),
        Example(_MAP.replace("FENCES", _MAP_FENCES)),
    ),
    Rule(
        "tensor-map-in-use",
        "R14",
        ERROR,
        "A tensor map is rewritten while a copy may still read it",
        "A copy reads its map some time after its issue, like its data.",
        "9.7.9.25.1",
        "wait for the copies that use the map before it is rewritten",
        Example(_MAP.replace("FENCES", _MAP_FENCES).replace("wait_0:", _REWRITE + "wait_0:")),
        Example(_MAP.replace("FENCES", _MAP_FENCES) + _REWRITE),
    ),
    Rule(
        "tensor-store-overhang",
        "L5",
        ERROR,
        "A tensor store writes past the innermost extent",
        "Tensor stores and reductions write rows in whole 16-byte pieces. If the innermost extent is not a multiple of "
        "16 bytes, the elements after it, up to the next multiple, are written too, with what the box holds there. "
        "Loads and the other dimensions are exact. Measured on an H200; the PTX ISA and the driver's API do not say "
        "it. It is a warning where that memory is only what fills the rows up to 16 bytes.",
        "9.7.9.27.1.2",
        "an innermost extent of whole 16 bytes, or memory after it that nobody else uses "
        "(Tile(..., overhang=True) says so)",
        Example(_overhanging(13)),
        Example(_overhanging(12)),
    ),
    Rule(
        "before-grid-wait",
        "R22",
        WARNING,
        "Global memory is touched before griddepcontrol.wait",
        "With dependent launch the grid in front may still be running: what it writes is not there yet, and what it "
        "reads must not be overwritten. What it does not touch (weights, say) may be read before the wait, so it is a "
        "warning.",
        "9.7.13.13",
        "griddepcontrol.wait in front of the access, in this thread or in one that it synchronises with after the wait",
        Example(_MINE + "ld.global.u32 %r3, [%d2];\ngriddepcontrol.wait;"),
        Example(_MINE + "griddepcontrol.wait;\nld.global.u32 %r3, [%d2];"),
    ),
    Rule(
        "copy-to-global-not-complete",
        "R13",
        ERROR,
        "Global memory is touched that a bulk store may still be writing",
        "cp.async.bulk.wait_group.read waits until the source has been read, not until the destination is written. "
        "Whoever reads the result needs the wait without .read, in the thread that issued the store, and then a "
        "barrier or flag.",
        "9.7.9.27.2.2",
        "cp.async.bulk.wait_group without .read in the issuing thread, then a barrier (or a released flag), then read",
        Example(_stored("@%first cp.async.bulk.wait_group.read 0;\n")),
        Example(_stored("@%first cp.async.bulk.wait_group 0;\n")),
    ),
)
