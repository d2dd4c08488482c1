"""Rules about wgmma, its operands and its registers."""

from __future__ import annotations

from .schema import (
    COMMIT,
    DESCRIPTORS,
    ERROR,
    FENCE_MMA,
    INIT,
    MMA,
    PERFORMANCE,
    WAIT_MMA,
    WARNING,
    ZERO,
    Example,
    Rule,
    load,
    multiply,
    wait,
)

_READY = ZERO + INIT + load(4096) + wait() + DESCRIPTORS
_USE = "add.f32 %f8, %f0, %f1;\n"

_SWIZZLED = (
    ZERO
    + """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
@!%first bra loaded;
add.u64 %d4, %data, 4096;
"""
    + "".join(f"st.global.u64 [%d4+{8 * word}], 0;\n" for word in range(16))
    + "".join(
        f"tensormap.replace.tile.{field}.global.b1024.{kind} [%d4], {value};\n"
        for field, kind, value in (
            ("global_address", "b64", "%data"),
            ("rank", "b32", "1"),
            ("box_dim", "b32", "0, 16"),
            ("box_dim", "b32", "1, 64"),
            ("global_dim", "b32", "0, 16"),
            ("global_dim", "b32", "1, 64"),
            ("global_stride", "b64", "0, 32"),
            ("element_stride", "b32", "0, 1"),
            ("element_stride", "b32", "1, 1"),
            ("elemtype", "b32", "10"),
            ("swizzle_mode", "b32", "1"),
        )
    )
    + """
fence.proxy.tensormap::generic.release.gpu;
fence.proxy.tensormap::generic.acquire.gpu [%d4], 128;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%d4, {0, 0}], [bar];
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile+2048], [%d4, {0, 0}], [bar];
loaded:
"""
    + wait()
    + DESCRIPTORS
)
"""Two tiles of 64 rows of 16 bf16, written by TMA with the 32-byte swizzle; descriptors without a swizzle."""

RULES = (
    Rule(
        "wgmma-register-in-flight",
        "R8, R10",
        ERROR,
        "A register of a wgmma in flight is touched",
        "The accumulator, and A where it is in registers, belong to the operation until the warp has waited for it. "
        "The wait covers only groups that were committed.",
        "9.7.15.7.3",
        "wgmma.commit_group, then wgmma.wait_group that covers the group, then use the registers",
        Example(_READY + FENCE_MMA + multiply() + WAIT_MMA + _USE + COMMIT + WAIT_MMA),
        Example(_READY + MMA + _USE),
    ),
    Rule(
        "missing-wgmma-fence",
        "R9",
        ERROR,
        "A wgmma uses registers that were touched since the last wgmma.fence",
        "wgmma.fence orders the warp's registers with wgmma: before the first one, and whenever a register of the next "
        "one was touched or its accumulator's shape changes.",
        "9.7.15.7.1",
        "wgmma.fence.sync.aligned in front of the wgmma",
        Example(_READY + multiply() + COMMIT + WAIT_MMA),
        Example(_READY + MMA),
    ),
    Rule(
        "uninitialised-register",
        "L6",
        WARNING,
        "A register is read that nothing has written",
        "Registers hold anything at the start. This one is written nowhere in front of the read, whichever way the "
        "kernel takes. Compilers do so for values that do not matter, so it is a warning.",
        "5.2.1",
        "write the register first, or correct its name",
        Example("add.u32 %r2, %r3, %tid;"),
        Example("mov.u32 %r3, 1;\nadd.u32 %r2, %r3, %tid;"),
    ),
    Rule(
        "uninitialised-accumulator",
        "L6",
        ERROR,
        "A wgmma adds to an accumulator that nothing has written",
        "With scale-d true the accumulator is read. Registers hold anything at the start.",
        "9.7.15.5",
        "set the accumulator to zero, or pass scale-d false to the first wgmma",
        Example(INIT + load(4096) + wait() + DESCRIPTORS + FENCE_MMA + multiply(1) + COMMIT + WAIT_MMA),
        Example(INIT + load(4096) + wait() + DESCRIPTORS + FENCE_MMA + multiply(0) + COMMIT + WAIT_MMA),
    ),
    Rule(
        "uninitialised-operand",
        "L6",
        ERROR,
        "A wgmma reads shared memory that nothing has written",
        "Part of the operand was never filled: a tile smaller than the descriptor says, or a wrong start.",
        "9.7.15.5.1.2",
        "fill the whole tile (a copy fills what is outside its tensor with zeros), or correct the descriptor",
        Example(ZERO + INIT + load(2048) + wait() + DESCRIPTORS + MMA),
        Example(_READY + MMA),
    ),
    Rule(
        "layout-mismatch",
        "L4",
        ERROR,
        "A wgmma reads a tile in another layout than the one TMA wrote",
        "The swizzle of the tensor map and that of the descriptor must agree, and leading and stride offsets must be "
        "those of the layout.",
        "5.5.7, 9.7.15.5.1.2",
        "make box, swizzle and descriptor from one layout (isa.shared_layout)",
        Example(_SWIZZLED + MMA),
        Example(_SWIZZLED + "or.b64 %d0, %d0, 0xC000000000000000;\nadd.u64 %d1, %d0, 128;\n" + MMA),
    ),
    Rule(
        "setmaxnreg-without-cap",
        "L9",
        PERFORMANCE,
        "setmaxnreg in a kernel whose registers at launch are not fixed",
        "ptxas ignores it there (note C7508), and then no registers are moved. Tried with ptxas 13.0 for sm_90a, 32 to "
        "1024 threads: with .maxnreg it is honoured, and with .reqntid or .maxntid together with .minnctapersm. With "
        ".reqntid or .maxntid alone it is ignored, unless the kernel has a wgmma so large that two CTAs do not fit an "
        "SM: its accumulators, A where that is in registers, and 26 more. For 384 threads that is m64n112 and up (168 "
        "registers at launch), for 256 threads m64n208. Clusters, the other registers, and where the wgmma stands "
        "change nothing (tests/emulator/test_register_budget.py).",
        "9.7.19.5",
        "say .maxnreg, or .minnctapersm with the block size",
        Example("setmaxnreg.dec.sync.aligned.u32 40;"),
        Example("setmaxnreg.dec.sync.aligned.u32 40;", directives=".maxnreg 168"),
    ),
    Rule(
        "setmaxnreg-budget",
        "L9",
        ERROR,
        "setmaxnreg asks for more registers than the CTA has",
        "A CTA has what it was launched with: threads times registers. An increase takes from what decreases gave "
        "back, and blocks until there is enough.",
        "9.7.19.5",
        "let the sum over all warps stay within threads times registers at launch: 384 x 168 = 128 x (40 + 2 x 232)",
        Example("setmaxnreg.inc.sync.aligned.u32 232;", directives=".maxnreg 168"),
        Example(
            "setp.lt.u32 %p2, %tid, 128;\n@%p2 bra less;\nsetmaxnreg.inc.sync.aligned.u32 232;\nbra done;\nless:\n"
            "setmaxnreg.dec.sync.aligned.u32 104;\ndone:",
            threads=256,
            directives=".maxnreg 168",
        ),
    ),
    Rule(
        "setmaxnreg-not-by-warpgroup",
        "L9",
        ERROR,
        "The warps of a warpgroup set different register counts",
        "All warps of a warpgroup must execute the same setmaxnreg.",
        "9.7.19.5",
        "choose the role by warpgroup, not by warp",
        Example(
            "shr.u32 %r3, %tid, 5;\nsetp.eq.u32 %p2, %r3, 0;\n@!%p2 bra "
            "skip;\nsetmaxnreg.dec.sync.aligned.u32 40;\nskip:",
            directives=".maxnreg 168",
        ),
        Example("setmaxnreg.dec.sync.aligned.u32 40;", directives=".maxnreg 168"),
    ),
)
