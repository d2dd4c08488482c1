"""Tensor memory: additional findings in strict mode, and what a commit orders."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.sanitizer.pieces import INIT, load, wait
from tests.sanitizer.running import rules, run
from tests.sanitizer.tensor_pieces import ALLOC, COMMIT, DONE, FREE, READY, Blackwell, multiply
from warploom import asm
from warploom.emulator import api
from warploom.isa.instruction_descriptor import InstructionDescriptor
from warploom.sanitizer import Sanitizer

STORE = """
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%idx};
tcgen05.wait::st.sync.aligned;
"""


def strict_rules(body: str) -> set[str]:
    example = Blackwell(body)
    report = api.run(
        asm.parse(example.text(), name="example.ptx"), "k", [np.zeros(2048, np.uint32)], grid=(1, 1, 1),
        block=(example.threads, 1, 1), watch=[partial(Sanitizer, strict=True)],
    )  # fmt: skip
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("mov.u32 %r9, %r8;", True),
        ("shr.u32 %r10, %idx, 5;\nand.b32 %r10, %r10, 3;\nshl.b32 %r10, %r10, 21;\nadd.u32 %r9, %r8, %r10;", False),
    ],
    ids=["lane 0 of every warp", "its own quarter"],
)
def test_a_warp_that_names_the_lanes_of_another_is_told_so_in_strict_mode_alone(address: str, found: bool):
    body = f"{ALLOC}{address}\n{STORE}{FREE}"
    assert rules(Blackwell(body)) == set()
    assert ("tensor-address-of-another-warp" in strict_rules(body)) is found


@pytest.mark.parametrize("reads_first", [True, False], ids=["read, commit", "commit, read"])
def test_a_commit_carries_what_its_thread_did_before_it_and_not_what_it_does_then(reads_first: bool):
    """Thread 0 reads a word and commits; warp 1 waits for the commit, fences, and a copy of thread 32 overwrites it."""
    read = "@%first ld.shared.u32 %r3, [tile];\n"
    commit = "@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n"
    body = f"""
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    @%first mbarrier.init.shared::cta.b64 [bar+8], 1;
    @%first st.shared.u32 [tile], 0;
    bar.sync 0;
    setp.eq.u32 %p2, %idx, 32;
    {read + commit if reads_first else commit + read}
    @!%p2 bra done;
    wait_0:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra wait_0;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar+8], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 16, [bar+8];
    wait_1:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], 0;
    @!%p0 bra wait_1;
    done:
    bar.sync 0;
    """
    found = {finding.rule for finding in run(Blackwell(body, threads=64)).findings}
    assert ("generic-access-before-async-write" in found or "data-race" in found) is not reads_first


MET = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first fence.mbarrier_init.release.cluster;
@%first mbarrier.init.shared::cta.b64 [bar+8], 1;
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r4, %rank, 1;
mov.u32 %r5, bar;
mapa.shared::cluster.u32 %r5, %r5, %r4;
"""
"""The second barrier of each CTA is initialised after the fence; %r5: the peer's first."""
EXCHANGE = """
@%first mbarrier.arrive.shared::cluster.b64 _, [%r5];
wait_0:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra wait_0;
"""
SECOND = """
@%first mbarrier.arrive.shared::cluster.b64 _, [%r5+8];
wait_1:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], 0;
@!%p0 bra wait_1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""


FENCE = "@%first fence.mbarrier_init.release.cluster;\n"


@pytest.mark.parametrize(
    ("begin", "between", "strict", "severity"),
    [
        (MET, "", False, "warning"), (MET, "", True, "error"), (MET, EXCHANGE, True, "warning"),
        (MET.replace(FENCE, ""), "", False, "error"), (FENCE + MET.replace(FENCE, ""), "", False, "error"),
        (MET.replace("barrier.cluster.wait.aligned;", ""), "", False, "error"),
    ],
    ids=["behind", "strict", "heard since", "no fence", "fence ahead of all", "not met"],
)  # fmt: skip
def test_a_barrier_behind_the_fence_is_a_warning_if_the_fence_published_others_and_the_cluster_met(
    begin: str, between: str, strict: bool, severity: str
):
    """CUTLASS initialises a barrier after the last fence, and uses it when the kernel ends."""
    body = begin + between + SECOND
    if "barrier.cluster.wait" not in begin:
        end = "barrier.cluster.arrive.aligned;"
        body = body.replace(end, f"barrier.cluster.wait.aligned;\n{end}")
    found = run(Blackwell(body, cluster=2, threads=32), watch=partial(Sanitizer, strict=strict)).findings
    assert {one.severity for one in found if one.rule == "mbarrier-init-not-visible"} == {severity}


@pytest.mark.parametrize(("begin", "severity"), [(MET, "warning"), (MET.replace(FENCE, ""), "error")])
def test_so_it_is_for_another_warp_of_the_cta_that_waits_for_it(begin: str, severity: str):
    """The epilogue of CUTLASS's example 78."""
    found = run(Blackwell(begin + SECOND, cluster=2, threads=64)).findings
    assert {one.severity for one in found if one.rule == "mbarrier-init-not-visible"} == {severity}


@pytest.mark.parametrize(("peer", "severity"), [("ld.shared.u32 %r2, [tile];", "warning"),
                                                ("st.shared.u32 [tile], 7;", "error")])  # fmt: skip
def test_too_small_a_scope_is_a_warning_where_what_is_overwritten_has_been_read(peer: str, severity: str):
    """The peer reads or writes a word of its own and says so at .cta scope; then this CTA writes there."""
    body = f"""
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    @%first st.shared.u32 [tile], 0;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    setp.eq.u32 %p2, %rank, 1;
    and.pred %p2, %p2, %first;
    setp.eq.u32 %p3, %rank, 0;
    and.pred %p3, %p3, %first;
    mov.u32 %r5, bar;
    mapa.shared::cluster.u32 %r5, %r5, 0;
    mov.u32 %r6, tile;
    mapa.shared::cluster.u32 %r6, %r6, 1;
    @%p2 {peer}
    @%p2 mbarrier.arrive.shared::cluster.b64 _, [%r5];
    @!%p3 bra done;
    wait_0:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra wait_0;
    st.shared::cluster.u32 [%r6], %idx;
    done:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    """
    found = run(Blackwell(body, cluster=2)).findings
    assert {one.severity for one in found if one.rule == "hand-off-scope"} == {severity}


FACTORS = """
mov.u32 %r3, tile;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d0, %r3;
or.b64 %d0, %d0, 0x0000400800800000;
add.u32 %r4, %r8, 16;
"""
"""%d0: A, 128 x 32 bytes, B, its first rows, and factors, all without swizzle; %r4: the columns of all factors."""
COPY_FACTORS = "@%first tcgen05.cp.cta_group::1.32x128b.warpx4 [%r4], %d0;\n"


def scaled(adds: int) -> str:
    """A product whose operands' factors stand in the cells that %r4 names."""
    bits = InstructionDescriptor("mxf8f6f4", 128, 16, "e4m3", "e4m3", scale="ue8m0").encode()
    return f"""
    setp.ne.u32 %p3, {adds}, 0;
    @%first tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r8], %d0, %d0, {bits:#x}, [%r4], [%r4], %p3;
    """


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (COPY_FACTORS + scaled(0), {("tensor-memory-order", "warning")}),
        (COPY_FACTORS, {("tensor-memory-race", "error")}),
    ],
    ids=["read in between", "never read"],
)
def test_factors_are_replaced_in_the_order_of_the_products_that_read_them(first: str, expected: set[object]):
    """CUTLASS copies the factors of each stage to the same cells: a copy follows the product before, and with it the
    copy that this product has read."""
    ready = INIT + ALLOC + load(4096) + wait() + FACTORS
    found = run(Blackwell(ready + first + COPY_FACTORS + scaled(0) + COMMIT + wait(1, "1") + FREE)).findings
    relevant = {(one.rule, one.severity) for one in found if one.rule.startswith("tensor-memory-")}
    assert relevant == expected


OVER = "@%first tcgen05.mma.cta_group::1.kind::f16 [%r4], %d0, %d0, 0x8040490, %p3;\n"
"""A product whose D is where the factors are."""


@pytest.mark.parametrize("schedule", ["lazy", "random", "starve"])
@pytest.mark.parametrize(("wait_first", "expected"), [(False, {("tensor-memory-order", "warning")}), (True, set())])
def test_a_product_over_what_the_product_before_reads_is_in_no_list(
    wait_first: bool, expected: set[object], schedule: str
):
    """CUTLASS's and FlashAttention's kernels multiply into the columns of P after the product that reads P."""
    between = COMMIT + wait(1, "1") if wait_first else ""
    ready = INIT + ALLOC + load(4096) + wait() + FACTORS + COPY_FACTORS
    ends = wait(0, "2") if wait_first else wait(1, "1")
    body = ready + scaled(0) + between + OVER + COMMIT + ends + FREE
    found = run(Blackwell(body), schedule, 1).findings
    assert {(one.rule, one.severity) for one in found if one.rule.startswith("tensor-memory-")} == expected


@pytest.mark.parametrize(
    ("commits", "found"),
    [(COMMIT + COMMIT, {"surplus-arrival"}), (DONE + COMMIT, set())],
    ids=["twice", "after a wait"],
)
def test_a_commit_behind_one_that_completes_the_phase_is_one_too_many(commits: str, found: set[str]):
    """Both may arrive before anyone looks: the second phase hides the first from those that wait for it."""
    body = READY + multiply() + commits + FREE
    report = run(Blackwell(body), schedule="eager")
    assert {one.rule for one in report.findings} & {"surplus-arrival"} == found


STORE_A = """
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {%idx, %idx, %idx, %idx, %idx, %idx, %idx, %idx};
tcgen05.wait::st.sync.aligned;
bar.sync 0;
setp.ne.u32 %p3, 0, 0;
"""


def moving(column: int = 0, how: str = ".ashift") -> str:
    """A product of 128 x 8 with the A in columns 16 to 23, which it moves."""
    return f"@%first tcgen05.mma.cta_group::1.kind::f16{how} [%r8+{column}], [%r8+16], %d0, 0x8020490, %p3;\n"


LOAD_A = (
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, [%r8+16];\ntcgen05.wait::ld.sync.aligned;\nadd.u32 %r9, %r9, 1;\n"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (moving() + moving() + COMMIT + wait(1, "1") + LOAD_A, set()),
        (moving() + moving(8, "") + COMMIT + wait(1, "1"), {"tensor-memory-race"}),
        (moving(how="") + moving(8, "") + COMMIT + wait(1, "1"), set()),
        (moving() + "@%first tcgen05.shift.cta_group::1.down [%r8+16];\n" + moving(8, "") + COMMIT + wait(1, "1"),
         set()),
        (moving() + LOAD_A + COMMIT + wait(1, "1"), {"tensor-memory-race"}),
        (moving() + COMMIT + wait(1, "1") + moving(8, "") + COMMIT + wait(0, "2"), set()),
        (moving(how="") + moving(8) + COMMIT + wait(1, "1"), {"tensor-memory-order"}),
    ],
    ids=["a chain", "another D", "another D, none moves", "a shift between", "a load", "complete", "moved under one"],
)  # fmt: skip
def test_a_product_that_moves_its_a_has_written_it(body: str, expected: set[str]):
    """Products of one accumulator follow one another; those of two are in no order, and the second reads A too."""
    found = run(Blackwell(READY + STORE_A + body + FREE)).findings
    assert {one.rule for one in found if one.rule.startswith("tensor-memory-")} == expected
