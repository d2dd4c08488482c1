"""What right kernels for Blackwell do although the ISA forbids it: a warning, and in strict mode an error.

What looks like it and would go wrong on a chip is an error in both modes. Not run on hardware.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from tests.sanitizer.misuse_blackwell import SCALES, SF, cases, scaled
from tests.sanitizer.pieces import CLUSTER_SYNC, INIT, load, wait
from tests.sanitizer.running import run
from tests.sanitizer.tensor_pieces import ALLOC, DONE, FREE, PAIR_ALLOC, PAIR_FREE, READ, READY, Blackwell, multiply
from warploom.sanitizer import Sanitizer
from warploom.sanitizer.rules import Example

HANDED = next(case.bad for case in cases() if case.number == "T22" and "to the other with .cta scope" in case.what)
"""Each CTA of a pair fills its tile, fences, and tells the one that multiplies by an arrival at .cta scope."""
FENCE = "fence.proxy.async;\nbar.sync 0;\n"


def severity(rule: str, example: Example, strict: bool = False) -> set[str]:
    found = run(example, watch=partial(Sanitizer, strict=strict)).findings
    return {one.severity for one in found if one.rule == rule}


def handed(arrives: str, waits: str = "", fence: str = FENCE) -> Example:
    body = HANDED.body.replace(".release.cta.shared::cluster", f"{arrives}.shared::cluster")
    assert body.count(FENCE) == 1
    return replace(HANDED, body=body.replace(".acquire.cluster", waits).replace(FENCE, fence))


@pytest.mark.parametrize(("strict", "found"), [(False, {"warning"}), (True, {"error"})])
def test_an_arrival_without_a_scope_may_tell_a_pair_of_what_its_cta_stored_and_fenced(strict: bool, found: set[str]):
    """As CUTLASS's ClusterBarrier, DeepGEMM's pairs and FlashAttention-4's do."""
    assert severity("hand-off-scope", handed(""), strict) == found


@pytest.mark.parametrize(
    ("arrives", "waits"), [(".release.cta", ""), ("", ".acquire.cta"), (".release.cta", ".acquire.cta")]
)
def test_a_scope_of_one_cta_that_is_written_out_is_an_error(arrives: str, waits: str):
    assert severity("hand-off-scope", handed(arrives, waits)) == {"error"}


def test_the_scope_of_the_cluster_on_both_sides_is_right():
    assert severity("hand-off-scope", handed(".release.cluster", ".acquire.cluster")) == set()


def test_without_a_proxy_fence_an_arrival_without_a_scope_is_an_error():
    assert severity("hand-off-scope", handed("", fence="bar.sync 0;\n")) == {"error"}


def test_a_fence_behind_the_arrival_does_not_help():
    late = handed("", fence="bar.sync 0;\n")
    arrival = re.search(r"@%first mbarrier\.arrive\.shared::cluster.*\n", late.body)
    assert arrival is not None
    late = replace(late, body=late.body.replace(arrival[0], f"{arrival[0]}fence.proxy.async;\n"))
    assert severity("hand-off-scope", late) == {"error"}


COPIED = """
shl.b32 %r3, %idx, 4;
mov.u32 %r4, tile;
add.u32 %r4, %r4, %r3;
cvt.u64.u32 %d2, %r3;
add.u64 %d2, %data, %d2;
cp.async.cg.shared.global [%r4], [%d2], 16;
cp.async.wait_all;
"""


def test_bytes_of_cp_async_need_the_scope_of_the_cluster():
    """NVIDIA/cutlass#3324 and #3643: wrong values on a chip."""
    fine, bad = (
        handed(arrives, waits, COPIED + FENCE)
        for arrives, waits in ((".release.cluster", ".acquire.cluster"), ("", ""))
    )
    assert severity("hand-off-scope", fine) == severity("copy-not-waited", fine) == set()
    assert "error" in severity("hand-off-scope", bad)


COUNTS = """
shr.u32 %r3, %idx, 5;
setp.eq.u32 %p2, %r3, 0;
@%p2 bra first;
setmaxnreg.dec.sync.aligned.u32 OTHERS;
bra met;
first:
FIRST
met:
"""


@pytest.mark.parametrize(("first", "others", "usual", "strict"), [
    ("setmaxnreg.dec.sync.aligned.u32 24;", 88, {"warning"}, {"error"}),
    ("", 88, {"error"}, {"error"}),
    ("setmaxnreg.dec.sync.aligned.u32 88;", 88, set(), set()),
    ("elect.sync _|%p3, -1; @%p3 setmaxnreg.dec.sync.aligned.u32 88;", 88, {"error"}, {"error"}),
], ids=["each warp its own count", "one warp none", "all the same", "one thread of a warp"])  # fmt: skip
def test_warps_of_a_warpgroup_may_ask_for_different_counts(first: str, others: int, usual: set[str], strict: set[str]):
    """As FlashAttention-4's, CUTLASS's example 77 and CuTe DSL's product of two types do.

    A warp's elected thread alone, as in DeepGEMM's hc_prenorm, is an error that does not stop the run.
    """
    body = COUNTS.replace("OTHERS", str(others)).replace("FIRST", first)
    example = Example(body, directives=".maxnreg 168", target="sm_100a")
    assert severity("setmaxnreg-not-by-warpgroup", example) == usual
    assert severity("setmaxnreg-not-by-warpgroup", example, strict=True) == strict


@pytest.mark.parametrize(("threads", "found"), [(32, "warning"), (64, "error")])
def test_the_only_warp_of_the_last_warpgroup_may_ask_for_a_count(threads: int, found: str):
    """As that of CuTe DSL's kernels for sm_120 with five warps; one of two warps that does is an error."""
    body = "setp.lt.u32 %p2, %idx, 32; @!%p2 bra met; setmaxnreg.dec.sync.aligned.u32 40; met:"
    example = Example(body, directives=".maxnreg 168", target="sm_100a", threads=threads)
    assert severity("setmaxnreg-not-by-warpgroup", example) == {found}
    assert severity("setmaxnreg-not-by-warpgroup", example, strict=True) == {"error"}


ADDRESS = """
setp.lt.u32 %p2, %idx, 32;
@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], 32;
@%first st.shared.u32 [tile], 7;
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
ld.shared.u32 %r8, [bar+8];
OTHER
bar.sync 0;
@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
"""


@pytest.mark.parametrize(("other", "usual"), [("", {"warning"}), ("ld.shared.u32 %r9, [tile];", {"warning", "error"})])
def test_the_address_of_columns_may_be_read_behind_a_relaxed_barrier_of_the_cluster(other: str, usual: set[str]):
    """As DeepGEMM's pairs do: tcgen05.alloc blocks until it has stored the address. A plain store does not."""
    body = ADDRESS.replace("OTHER", other)
    assert severity("data-race", Blackwell(body)) == usual
    assert severity("data-race", Blackwell(body), strict=True) == {"error"}
    assert severity("data-race", Blackwell(body.replace(".relaxed", ""))) == set()


@pytest.mark.parametrize(("who", "rules"), [("%p2", set()), ("%p3", {"data-race"})], ids=["its warp", "another warp"])
def test_the_warp_that_allocates_columns_may_read_their_address_at_once(who: str, rules: set[str]):
    """As the warp that multiplies does in FlashInfer's TGV product: all lanes execute tcgen05.alloc, and it blocks."""
    body = f"""
    setp.lt.u32 %p2, %idx, 32;
    not.pred %p3, %p2;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], 32;
    @{who} ld.shared.u32 %r9, [bar+8];
    bar.sync 0;
    ld.shared.u32 %r8, [bar+8];
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
    """
    found = run(Blackwell(body, threads=64)).findings
    assert {one.rule for one in found if one.severity == "error"} - {"uninitialised-shared-read"} == rules


@pytest.mark.parametrize(("product", "usual", "strict"), [
    (multiply().replace("0x8040490", "0x4040490"), {"warning"}, {"error"}), (multiply(), set(), set()),
    ("", {"error"}, {"error"}),
], ids=["64 rows", "128 rows", "no product"])  # fmt: skip
def test_a_load_may_take_the_lanes_that_a_product_of_64_rows_leaves_out(
    product: str, usual: set[str], strict: set[str]
):
    """As CUTLASS's example 93 does, which uses half of what it loads."""
    example = Blackwell(READY + product + DONE + READ + FREE)
    assert severity("tensor-memory-uninitialised", example) == usual
    assert severity("tensor-memory-uninitialised", example, strict=True) == strict


@pytest.mark.parametrize(("n", "whole", "found"), [
    (8, 0, set()), (16, 0, set()), (24, 0, {"error"}), (48, 1, set()), (56, 1, {"error"}),
])  # fmt: skip
def test_a_product_reads_the_scale_factors_of_its_rows_alone(n: int, whole: int, found: set[str]):
    """As in Gluon's product of 16 tokens, whose factors take half of the lanes of each quarter."""
    product = scaled(n, "%r8+56").replace("[%r8+56], %p3", "[%r8+60], %p3")
    written = "mov.u32 %r9, 0x7f7f7f7f;\n" + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+60], {%r9};\n" * whole
    written += f"tcgen05.st.sync.aligned.16x32bx2.x1.b32 [%r8+{60 + whole}], 0, {{%r9}};\n"
    body = INIT + ALLOC + load(4096) + wait() + SCALES + SF.replace("16]", "56]") + written
    body += "tcgen05.wait::st.sync.aligned;\nbar.sync 0;\n" + product + DONE + READ + FREE
    example = Blackwell(body.replace("[bar+8], 32", "[bar+8], 64").replace("%r8, 32", "%r8, 64"))
    assert severity("tensor-memory-uninitialised", example) == found


TOLD = """
@%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
mov.u32 %r2, %cluster_ctarank;
xor.b32 %r2, %r2, 1;
mapa.shared::cluster.u32 %r3, tile, %r2;
mapa.shared::cluster.u32 %r4, bar, %r2;
@%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3], [tile+1024], 16, [%r4];
"""
"""Each CTA of a pair sends bytes to the other."""


@pytest.mark.parametrize(("sent", "rules"), [
    (PAIR_ALLOC + TOLD, set()), (TOLD + PAIR_ALLOC, {"pair-frees-before-peer-has-columns"}),
], ids=["behind its allocation", "before"])  # fmt: skip
def test_bytes_from_its_peer_tell_a_cta_that_the_peer_has_its_columns(sent: str, rules: set[str]):
    """As CuTe DSL's primitives for pairs do: no barrier of the cluster follows the allocation."""
    found = run(Blackwell(INIT + CLUSTER_SYNC + sent + wait() + PAIR_FREE + CLUSTER_SYNC, cluster=2)).findings
    assert {one.rule for one in found} & {"pair-frees-before-peer-has-columns"} == rules
