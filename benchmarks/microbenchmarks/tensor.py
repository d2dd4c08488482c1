"""wgmma, dense and sparse: clocks by shape, type and source of A, and the latency of one."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import b32, bf16, e4m3, f32, u32
from warploom.isa.shared_layout import SharedLayout  # noqa: F401 - the layouts of the tiles below
from warploom.lang import Kernel, Tile, ptx, reg, smem
from warploom.lang.wgmma import accumulators

from .harness import Measurement, loop

REPETITIONS = 64
STAGES = 2
M = 64
SLICES = 4
"""Slices of k in a stage: 128 bytes."""
MAGNITUDES = 0x7FFF7FFF
"""All but the signs of two numbers of 16 bits."""
METADATA = 0xCCCCCCCC
"""The first and the last of every four elements are stored (PTX ISA 9.7.15.6.1)."""


def wgmma_loop(
    name: str, n: int, *, dtype=bf16, in_registers: bool = False, groups: int = 1, single: bool = False,
    repetitions: int = REPETITIONS, ctas: int = 1, stages: int = STAGES, filled: bool = False, sparse: bool = False,
    loaded: bool = False, positive: bool = False,
) -> Kernel:  # fmt: skip
    """`groups` warpgroups, each 64 x n: all slices of all stages in one group, then a wait.

    single: one instruction and a wait for it. filled: TMA loads the tiles from the input. sparse: A is 2:4 sparse, so B
    is twice as deep, and every thread's metadata selects the first and the last of every four elements. loaded: A in
    registers is the input's, another one for each slice of k; positive: its absolute values.
    """
    depth, span = 128 // dtype.bytes, 2 if sparse else 1

    def prepare(data):
        a = smem.wgmma_tile(dtype, (M * groups, depth), stages=stages, name="a")
        b = smem.wgmma_tile(dtype, (n, depth), stages=stages * span, name="b")
        if filled:
            full = smem.mbarrier(1)
            with ptx.if_(ptx.special.tid.x() == 0):
                ptx.mbarrier.init(full[0], 1)
                ptx.fence.mbarrier_init()
                ptx.mbarrier.arrive_expect_tx(full[0], (a.bytes + b.bytes * span) * stages)
                for stage in range(stages * span):
                    for tile, at in (*([(a[stage], 0)] if stage < stages else []), (b[stage], 64)):
                        for row in range(0, tile.rows_count, 8):
                            ptx.cp.async_.bulk.tensor_2d(
                                tile.rows(row, 8), data.tma_desc(), (0, (at + stage * 512 + row) % 1024), full[0]
                            )
            ptx.bar.sync(0)
            ptx.mbarrier.wait(full[0], 0)
        acc = reg.array(f32, accumulators(n, f32), init=0.0)
        group = ptx.special.tid.x() >> 7
        ptx.inst.shfl.sync.idx.b32(group, group, 0, 31, -1)
        left = [a[stage].rows((group << 6).copy(), M) for stage in range(stages)]
        fragment = reg.array(b32, 4 * SLICES if loaded else 4)
        for at in range(len(fragment)):
            if loaded:
                (pointer,) = ptx.global_ptrs(data)
                place = pointer + (ptx.special.tid.x() + at * 128 * groups).to(pointer.dtype) * 4
                word = ptx.load(u32, ptx.addr(place))
                fragment[at] = (word & MAGNITUDES if positive else word).view(b32)
            else:
                fragment[at] = (ptx.special.tid.x() * 0x01230123 + at).view(b32)
        kept = reg.scalar(u32, init=METADATA) if sparse else None
        return acc, left, [b[stage] for stage in range(stages * span)], fragment, kept

    def body(state):
        acc, left, right, fragment, kept = state
        ptx.wgmma.fence()
        for stage in range(stages):
            for k in range(left[stage].k_slices):
                if single and (stage or k):
                    continue
                turn, each = stage * left[stage].k_slices + k, left[stage].k_slices // span
                ptx.wgmma.mma_async(
                    shape=(M, n, span * 32 // dtype.bytes), dtype_d=f32, dtype_a=dtype, dtype_b=dtype, d=acc,
                    a=[fragment[at % len(fragment)] for at in range(4 * k, 4 * k + 4)] if in_registers
                    else left[stage].k(k),
                    b=right[turn // each].k(turn % each, span),
                    metadata=kept,
                )  # fmt: skip
        ptx.wgmma.commit_group()
        ptx.wgmma.wait_group(0)

    return loop(
        name, body, repetitions=repetitions, warps=4 * groups, ctas=ctas, prepare=prepare, finish=lambda s: list(s[0]),
        array=Tile(1024, depth, dtype, box=(depth, 8), swizzle="128B"),
    )  # fmt: skip


def _measurement(name: str, n: int, stages: int = STAGES, **options) -> Measurement:
    single = options.get("single", False)
    dtype = options.get("dtype", bf16)
    groups = options.get("groups", 1)
    return Measurement(
        name, lambda: wgmma_loop(name, n, stages=stages, **options), operations=1 if single else 4 * stages,
        repetitions=REPETITIONS,
        of=f"wgmma{'.sp' * options.get('sparse', False)} m64n{n} of a warpgroup, {dtype}"
        + (", A in registers" if options.get("in_registers") else "")
        + (", each waited for" if single else f", {4 * stages} in a group"),
        elements=(1024, 128 // dtype.bytes), data=f"normal:{dtype}",
        facts={"n": n, "groups": groups, "in_group": 1 if single else 4 * stages},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for n in (8, 16, 32, 64, 128, 192, 256):
        yield _measurement(f"rate.wgmma.bf16.n{n}.ss", n, stages=4)
        yield _measurement(f"rate.wgmma.bf16.n{n}.rs", n, stages=4, in_registers=True)
    for n in (64, 128, 256):
        yield _measurement(f"rate.wgmma.e4m3.n{n}.ss", n, dtype=e4m3)
    for n in (64, 128, 192, 256):
        yield _measurement(f"rate.wgmma_sp.bf16.n{n}.ss", n, stages=2, sparse=True)
        yield _measurement(f"rate.wgmma_sp.bf16.n{n}.rs", n, stages=2, sparse=True, in_registers=True)
    for n in (64, 192, 256):
        yield _measurement(f"rate.wgmma_sp.e4m3.n{n}.ss", n, dtype=e4m3, stages=2, sparse=True)
    yield _measurement("rate.wgmma_sp.bf16.n192.ss.g2", 192, groups=2, sparse=True)
    yield _measurement("latency.wgmma_sp.bf16.n192.ss", 192, stages=2, single=True, sparse=True)
    for n in (8, 64, 256):
        yield _measurement(f"latency.wgmma.bf16.n{n}.ss", n, single=True)
        yield _measurement(f"latency.wgmma.bf16.n{n}.rs", n, single=True, in_registers=True)
    yield _measurement("latency.wgmma.group4.n256.ss", 256, stages=1)
    yield _measurement("rate.wgmma.bf16.n64.ss.g2", 64, groups=2)
    yield _measurement("rate.wgmma.bf16.n256.ss.g2", 256, groups=2)
    yield _measurement("rate.wgmma.bf16.n128.ss.g2", 128, groups=2)
