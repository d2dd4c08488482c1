"""Uninitialised memory and absent lanes: errors only if something that is stored depends on them."""

from __future__ import annotations

import numpy as np
import pytest

from warploom import config
from warploom.runtime import emulate

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<6>;
  .reg .b32 %f<2>;
  .reg .pred %p<2>;
  .shared .align 16 .b8 tile[128];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 2;
  add.u32 %r2, %r2, %r3;
  cvt.u64.u32 %rd2, %r3;
  add.u64 %rd1, %rd1, %rd2;
  setp.lt.u32 %p1, %r1, 20;
  @%p1 st.shared.u32 [%r2], %r1;
  ld.shared.u32 %r4, [%r2];
  RESULT
  @%p1 st.global.u32 [%rd1], %r5;
  ret;
}
"""
OF_THE_ROW_ALONE = "add.u32 %r5, %r4, 1;"
OF_THE_ROW_BEHIND = "shfl.sync.down.b32 %r5, %r4, 1, 31, -1;"
ONE_SIGN = "max.s32 %r5, %r4, 0;\nshfl.sync.down.b32 %r5, %r5, 1, 31, -1;"

BOUNDED = (
    OF_THE_ROW_BEHIND
    + """
mov.b32 %f1, %r5;
OF.f32 %f1, %f1, LIMIT;
cvt.rzi.s32.f32 %r5, %f1;
"""
)
LARGEST = BOUNDED.replace("OF", "max").replace("LIMIT", "0f447A0000")
SMALLEST = BOUNDED.replace("OF", "min").replace("LIMIT", "0fC47A0000")


def found(result: str, schedule: str) -> tuple[set[str], np.ndarray]:
    out = np.zeros(32, np.int32)
    report = emulate(TEXT.replace("RESULT", result), out, grid=1, block=32, schedule=schedule)
    assert all(finding.severity == "error" for finding in report.findings)
    return {finding.rule for finding in report.findings}, out


@pytest.mark.parametrize("schedule", ["lazy", "explore"])
@pytest.mark.parametrize(
    ("result", "rules"),
    [
        (OF_THE_ROW_ALONE, set()),
        (OF_THE_ROW_BEHIND, {"uninitialised-shared-read"}),
        (ONE_SIGN, {"uninitialised-shared-read"}),
        (LARGEST, {"uninitialised-shared-read"}),  # NaN and numbers below 1000 would not show
        (SMALLEST, {"uninitialised-shared-read"}),
    ],
)
def test_a_read_is_found_where_what_is_stored_depends_on_it(result: str, rules: set[str], schedule: str) -> None:
    assert found(result, schedule)[0] == rules


def test_the_arrays_are_those_of_the_first_run() -> None:
    rules, out = found(OF_THE_ROW_ALONE, "lazy")
    assert not rules
    np.testing.assert_array_equal(out, np.where(np.arange(32) < 20, np.arange(32) + 1, 0))


SHUFFLE = """
  setp.lt.u32 %p1, %r1, COUNT;
  @!%p1 exit;
  shfl.sync.down.b32 %r4, %r1, BY, 31, MASK;
  add.u32 %r5, %r1, %r4;
  setp.eq.u32 %p1, %r1, 0;
"""


@pytest.mark.parametrize(
    ("count", "by", "mask", "rules"),
    [
        (32, 16, "-1", set()),
        (16, 8, "0xffff", set()),  # lanes 8 to 15 get what nobody has, and do not store it
        (8, 8, "-1", {"shuffle-from-absent-lane"}),  # a tree for whole warps in a CTA of eight threads
    ],
)
def test_a_shuffle_from_a_lane_that_is_not_there_is_found_where_it_matters(
    count: int, by: int, mask: str, rules: set[str]
) -> None:
    text = SHUFFLE.replace("COUNT", str(count)).replace("BY", str(by)).replace("MASK", mask)
    head, tail = TEXT.split("  setp.lt")[0], "  @%p1 st.global.u32 [%rd1], %r5;\n  ret;\n}\n"
    report = emulate(head + text + tail, np.zeros(32, np.int32), grid=1, block=32)
    assert {finding.rule for finding in report.findings} == rules


COLUMNS = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<8>;
  .reg .pred %p<2>;
  .shared .align 16 .b8 place[16];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, place;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;
  bar.sync 0;
  ld.shared.u32 %r3, [%r2];
  setp.ge.s32 %p1, %r1, TURNS;
  @!%p1 tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r1};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r3];
  tcgen05.wait::ld.sync.aligned;
  RESULT
  st.global.u32 [%rd1], %r5;
  bar.sync 0;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;
  ret;
}
"""


REPLACED = "selp.b32 %r5, 9, %r4, %p1;"


@pytest.mark.parametrize(
    ("turns", "result", "strict", "severities"),
    [
        (0, REPLACED, False, {"warning"}),
        (0, REPLACED, True, {"error"}),
        (0, "mov.b32 %r5, %r4;", False, {"error"}),
        (32, REPLACED, True, set()),
    ],
    ids=["replaced", "replaced, strict", "stored", "written"],
)
def test_a_load_of_columns_that_nothing_has_written_is_an_error_where_it_matters(
    turns: int, result: str, strict: bool, severities: set[str]
) -> None:
    """Triton's attention loads the product of a loop's first turn in front of it, and the loop may make no turn."""
    text = COLUMNS.replace("TURNS", str(turns)).replace("RESULT", result)
    with config.override(emulator={"strict": strict}):
        report = emulate(text, np.zeros(32, np.int32), grid=1, block=32)
    assert {one.severity for one in report.findings if one.rule == "tensor-memory-uninitialised"} == severities
