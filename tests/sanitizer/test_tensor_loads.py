"""A load of tensor memory whose registers are read before wait::ld: the value is right, but nothing else is ordered.

PTX ISA 9.7.16.6.4.5. LLVM moves arithmetic before the wait (Triton 3.9), and CuTe's tutorials have no wait at all.
They store what they loaded before they tell anyone, and what is stored has been loaded: a warning. Otherwise the
missing wait is an error, as is one that comes too late: the warp does not rely on its registers.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.sanitizer.running import SCHEDULES, run
from tests.sanitizer.tensor_pieces import (
    ALLOC,
    COMMIT,
    DESCRIPTOR,
    DONE,
    FREE,
    LOAD,
    READY,
    USE,
    WAIT_LOAD,
    Blackwell,
    multiply,
)
from warploom import asm
from warploom.emulator import api
from warploom.sanitizer import Sanitizer

from .pieces import INIT, load, wait

KEEP = """
shl.b32 %r0, %idx, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %data, %d2;
st.global.u32 [%d2], %r9;
"""
SUM = USE + KEEP.replace("%r9", "%r13")
ONES = """
shl.b32 %r0, %idx, 5;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
mov.u32 %r2, 0x3F803F80;
st.shared.v4.b32 [%r1], {%r2, %r2, %r2, %r2};
st.shared.v4.b32 [%r1+16], {%r2, %r2, %r2, %r2};
fence.proxy.async;
bar.sync 0;
"""
PRODUCT = INIT + ALLOC + ONES + DESCRIPTOR + multiply() + COMMIT + wait(0, "1")
AGAIN = "bar.sync 0;\n" + multiply() + COMMIT + wait(1, "2")


def severities(example: Blackwell, schedule: str = "lazy", seed: int = 0) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in run(example, schedule, seed).findings}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=str)
@pytest.mark.parametrize("late", [WAIT_LOAD, ""], ids=["waited for later", "never waited for"])
def test_what_is_read_early_is_what_was_loaded(late: str, schedule: str, seed: int) -> None:
    report = run(Blackwell(PRODUCT + LOAD + KEEP + late + FREE), schedule, seed)
    assert report.outputs[0][:128].view(np.float32).tolist() == [16.0] * 128
    assert [finding for finding in report.findings if finding.severity == "error"] == []


def test_an_early_read_breaks_no_rule_if_the_warp_waits_before_it_tells_anyone() -> None:
    assert severities(Blackwell(READY + multiply() + DONE + LOAD + USE + WAIT_LOAD + FREE)) == {}


def test_a_load_that_is_never_waited_for_is_a_warning_and_in_strict_mode_an_error() -> None:
    example = Blackwell(READY + multiply() + DONE + LOAD + USE + FREE)
    rules = {"tensor-load-not-waited", "freed-columns-in-use"}
    assert severities(example) == dict.fromkeys(rules, "warning")
    report = api.run(
        asm.parse(example.text()), "k", [np.zeros(8192, np.uint32)], grid=(1, 1, 1), block=(example.threads, 1, 1),
        watch=[lambda machine: Sanitizer(machine, strict=True)],
    )  # fmt: skip
    assert "freed-columns-in-use" in {finding.rule for finding in report.findings if finding.severity == "error"}


def test_the_warning_names_the_load_and_the_first_instruction_that_reads_it() -> None:
    example = Blackwell(PRODUCT + LOAD + KEEP + FREE)
    (finding,) = (one for one in run(example, "lazy", 0).findings if one.rule == "tensor-load-not-waited")
    lines = example.text().splitlines()
    reads, loads = (lines[place.line - 1] for place in finding.locations)
    assert "st.global.u32 [%d2], %r9;" in reads and "tcgen05.ld" in loads


@pytest.mark.parametrize(("later", "severity"),
                         [(KEEP, "error"), (WAIT_LOAD, "error"), (USE, "warning"), ("", "warning")],
                         ids=["stored", "waited for", "computed with", "never read"])  # fmt: skip
def test_columns_freed_under_a_load_are_an_error_if_what_it_gives_is_used_later(later: str, severity: str) -> None:
    """CuTe DSL's attention has warps whose rows are all beyond the last query: they load S and use none of it."""
    found = severities(Blackwell(READY + multiply() + DONE + LOAD + FREE + later))
    assert found["freed-columns-in-use"] == severity


@pytest.mark.parametrize(("between", "severity"), [("", "error"), (LOAD, "warning")], ids=["read", "loaded again"])
def test_a_load_that_another_one_replaces_before_anybody_reads_it_does_no_harm(between: str, severity: str) -> None:
    """The product overwrites what the first load may still be reading."""
    body = PRODUCT + LOAD + AGAIN + between + KEEP + WAIT_LOAD + FREE
    assert severities(Blackwell(body))["tensor-memory-overwritten"] == severity


@pytest.mark.parametrize(
    ("between", "later", "severity"),
    [
        (USE + WAIT_LOAD, "", None), (SUM, "", "warning"), (SUM, WAIT_LOAD, "error"), (KEEP, "", "error"),
        (USE, "", "error"), ("", "", "error"),
    ],
    ids=["waited for", "all stored", "waited for too late", "one stored", "computed with", "neither"],
)  # fmt: skip
def test_what_is_not_waited_for_may_be_overwritten_once_all_that_is_needed_has_been_stored(
    between: str, later: str, severity: str | None
) -> None:
    """FlashAttention-4 and CUTLASS's attention rely on it, the ISA does not promise it. Arithmetic may be moved."""
    found = severities(Blackwell(PRODUCT + LOAD + between + AGAIN + SUM + later + FREE))
    assert found.get("tensor-memory-overwritten") == severity


ONE_LANE = """
st.shared.u32 [spare], %idx;
and.b32 %r0, %idx, 31;
setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.arrive.shared::cta.b64 _, [told];
""" + wait(0, "t", "told")
TOLD = (
    ".shared .align 8 .b64 told;\n.shared .b32 spare;\n@%first mbarrier.init.shared::cta.b64 [told], 4;\nbar.sync 0;\n"
)


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        (USE + WAIT_LOAD, "", None), (KEEP, "", "warning"), (KEEP, WAIT_LOAD, "error"), (USE, WAIT_LOAD, "error"),
        ("", WAIT_LOAD, "error"), ("", KEEP, "error"),
    ],
    ids=["waited for", "stored", "waited for too late", "computed with", "neither", "stored too late"],
)  # fmt: skip
def test_one_lane_tells_for_its_warp_that_what_the_whole_warp_loaded_has_been_stored(
    before: str, after: str, severity: str | None
) -> None:
    """CuTe DSL's blockwise product of pairs: an elected lane releases the accumulator. Its warp loaded together."""
    body = TOLD + PRODUCT + LOAD + before + ONE_LANE + multiply() + COMMIT + wait(1, "2") + after + FREE
    assert severities(Blackwell(body)).get("tensor-memory-overwritten") == severity


@pytest.mark.parametrize(("values", "severity"), [(SUM, "warning"), ("", "error")], ids=["stored", "not read"])
def test_a_warp_may_store_over_what_it_loaded_and_has_stored_elsewhere(values: str, severity: str) -> None:
    """CUTLASS's stream-K: partial sums go to memory, then their total back; the wait at the end is for other loads."""
    back = "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r8], {%idx, %idx, %idx, %idx};\ntcgen05.wait::st.sync.aligned;\n"
    body = PRODUCT + LOAD + (SUM + KEEP.replace("%r9", "%r11") + KEEP.replace("%r9", "%r12") if values else "")
    found = severities(Blackwell(body + back + WAIT_LOAD + FREE))
    assert found["tensor-memory-overwritten"] == severity


def test_in_strict_mode_what_has_only_been_read_may_not_be_overwritten() -> None:
    example = Blackwell(PRODUCT + LOAD + USE + AGAIN + WAIT_LOAD + FREE)
    report = api.run(
        asm.parse(example.text()), "k", [np.zeros(8192, np.uint32)], grid=(1, 1, 1), block=(example.threads, 1, 1),
        watch=[lambda machine: Sanitizer(machine, strict=True)],
    )  # fmt: skip
    assert "tensor-memory-overwritten" in {finding.rule for finding in report.findings if finding.severity == "error"}


@pytest.mark.parametrize(
    ("first", "severity"), [("add.u32 %r4, %r9, 1;\n", "warning"), ("", "error")], ids=["read before", "not read"]
)
def test_a_register_that_is_loaded_and_written_again_wants_a_wait(first: str, severity: str) -> None:
    found = severities(Blackwell(PRODUCT + LOAD + first + "mov.u32 %r9, 7;\n" + WAIT_LOAD + FREE))
    assert found["tensor-load-not-waited"] == severity


def test_one_lane_of_each_of_two_warps_is_no_product_by_several_lanes() -> None:
    """Two warps may execute an instruction at once; each starts a product of its own accumulator."""
    both = """
and.b32 %r0, %idx, 31;
setp.eq.u32 %p1, %r0, 0;
setp.lt.u32 %p0, %idx, 64;
and.pred %p1, %p1, %p0;
shr.u32 %r1, %idx, 1;
and.b32 %r1, %r1, 16;
add.u32 %r1, %r8, %r1;
setp.ne.u32 %p3, 0, 0;
@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r1], %d0, %d0, 0x8040490, %p3;
@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
"""
    init = INIT.replace("[bar], 1", "[bar], 2")
    body = init + ALLOC + ONES + DESCRIPTOR + both + wait(0, "1") + LOAD + WAIT_LOAD + USE + FREE
    assert "product-by-several-lanes" not in severities(Blackwell(body))


OVERWRITES = (
    ".shared .align 8 .b64 more[2];\n@%first mbarrier.init.shared::cta.b64 [more], 4;\n"
    + PRODUCT + "AFTER\n" + LOAD + WAIT_LOAD + USE + """
    BEFORE
    and.b32 %r6, %idx, 31;
    setp.eq.u32 %p4, %r6, 0;
    @%p4 mbarrier.arriveHOW.shared::cta.b64 _, [more];
    @!%first bra over;
    again:
    mbarrier.try_wait.parityWAITS.shared::cta.b64 %p0, [more], 0;
    @!%p0 bra again;
    AFTER
    """ + multiply() + COMMIT + "over:\n" + wait(1, "2") + FREE
)  # fmt: skip
"""Each warp loads, waits for its loads and says so; then a product overwrites the columns."""
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"


@pytest.mark.parametrize(("arrives", "waits", "before", "after", "rules"), [
    ("", "", "", "", set()),
    (".relaxed.cta", ".relaxed.cta", BEFORE, AFTER, set()),
    (".relaxed.cta", "", BEFORE, "", set()),
    (".relaxed.cta", "", "", "", {"missing-tensor-fence"}),
    ("", ".relaxed.cta", "", "", {"tensor-memory-overwritten"}),
    (".relaxed.cta", ".relaxed.cta", "", AFTER, {"missing-tensor-fence"}),
    (".relaxed.cta", ".relaxed.cta", BEFORE, "", {"tensor-memory-overwritten"}),
], ids=["release, acquire", "relaxed, fenced", "relaxed and fenced, acquire", "relaxed arrival", "relaxed wait",
        "not fenced before", "not fenced after"])  # fmt: skip
def test_relaxed_arrivals_and_waits_need_the_fences_of_tcgen05(
    arrives: str, waits: str, before: str, after: str, rules: set[str]
) -> None:
    """As in the ISA's examples (9.7.16.6.4); release and acquire order what is complete without them."""
    body = OVERWRITES.replace("HOW", arrives).replace("WAITS", waits).replace("BEFORE", before).replace("AFTER", after)
    assert {rule for rule, severity in severities(Blackwell(body)).items() if severity == "error"} == rules


@pytest.mark.parametrize(("waits", "fence", "rules"), [
    ("", "", set()),
    (".relaxed.cta", AFTER, set()),
    (".relaxed.cta", "fence.acquire.sync_restrict::shared::cluster.cluster;", set()),
    (".relaxed.cluster", "fence.acq_rel.cta;", {"tensor-memory-race"}),
    (".relaxed.cta", "", {"tensor-memory-race"}),
], ids=["acquire", "relaxed, fence of tcgen05", "relaxed, fence", "a fence of less scope", "relaxed"])  # fmt: skip
def test_columns_may_be_freed_behind_a_relaxed_wait_for_the_product_and_a_fence(
    waits: str, fence: str, rules: set[str]
) -> None:
    """As in CuTe DSL's kernels of `cute_ext`: what holds of the load holds of the deallocation behind it."""
    seen = COMMIT + wait(0, "1").replace("try_wait.parity", f"try_wait.parity{waits}") + fence
    made = PRODUCT[: PRODUCT.index(COMMIT)] + seen + LOAD + WAIT_LOAD + USE + FREE
    assert {rule for rule, severity in severities(Blackwell(made)).items() if severity == "error"} == rules


FENCED = "fence.acquire.sync_restrict::shared::cluster.cluster;"


@pytest.mark.parametrize(("waits", "fence", "rules"), [
    (".relaxed.cta", FENCED, set()),
    (".relaxed.cluster", FENCED, set()),
    (".relaxed.cluster", "fence.acquire.cta;", {"copy-not-waited"}),
    (".relaxed.cta", "", {"copy-not-waited"}),
    (".acquire.cta", "", set()),
])  # fmt: skip
def test_a_fence_behind_a_relaxed_wait_acquires_what_the_barrier_tells_of(waits: str, fence: str, rules: set[str]):
    """As in CuTe DSL's pairs of `cute_ext`, whose product reads what a copy has written (8.7, acquire patterns)."""
    body = INIT + ALLOC + load(4096) + wait().replace("try_wait.parity", f"try_wait.parity{waits}") + fence
    body += DESCRIPTOR + multiply() + DONE + LOAD + WAIT_LOAD + USE + FREE
    assert {rule for rule, severity in severities(Blackwell(body)).items() if severity == "error"} == rules


@pytest.mark.parametrize(
    ("first", "second", "handed", "severity"),
    [("", "", "", None), (AFTER, AFTER, BEFORE, None), (AFTER, AFTER, "", "warning"), (AFTER, "", BEFORE, "warning")],
)
def test_a_kernel_that_uses_fences_of_tcgen05_is_warned_where_it_lacks_one(
    first: str, second: str, handed: str, severity: str | None
) -> None:
    """CUTLASS and Triton emit none. Two loads by other warps follow a product each."""
    again = handed + "bar.sync 0;\n" + first + multiply() + COMMIT + wait(1, "2")
    body = PRODUCT + first + LOAD + WAIT_LOAD + USE + again + second + LOAD + WAIT_LOAD + USE + FREE
    assert severities(Blackwell(body)).get("missing-tensor-fence") == severity


@pytest.mark.parametrize(("between", "found"), [(True, {}), (False, {"tensor-memory-race": "error"})])
def test_a_copy_comes_before_a_shift_if_a_product_of_the_thread_is_in_between(between: bool, found: dict[str, str]):
    """The ISA orders copies before products, and products before shifts (9.7.16.6.2)."""
    product = "@%first tcgen05.mma.cta_group::1.kind::f16 [%r8], [%r8+16], %d0, 0x8040490, %p3;\n"
    body = ("setp.ne.u32 %p3, 0, 0;\n@%first tcgen05.cp.cta_group::1.128x256b [%r8+16], %d0;\n" + product * between
            + "@%first tcgen05.shift.cta_group::1.down [%r8+16];\n" + COMMIT + wait(1, "1"))  # fmt: skip
    assert severities(Blackwell(READY + body + FREE)) == found
