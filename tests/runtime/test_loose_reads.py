"""Loads that race with a store are an error only if something that the kernel stores depends on them."""

from __future__ import annotations

import numpy as np
import pytest

from warploom import emulate
from warploom.sanitizer.rules import Example

TWICE = """
and.b32 %r0, %idx, 31;
shl.b32 %r0, %r0, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
ld.global.u32 %r2, [%d2];
add.u32 %r3, %r2, 1;
setp.lt.u32 %p2, %idx, 32;
@%p2 st.global.u32 [%d2], %r3;
"""
"""Both warps load the same words, and the first one stores."""
USES = {
    "nobody uses what the other warp loads": ("", "warning"),
    "it is stored elsewhere": ("@!%p2 st.global.u32 [%d2+512], %r2;\n", "error"),
    "it decides what is stored": (
        "setp.gt.u32 %p3, %r2, 1000;\nselp.u32 %r3, 1, 2, %p3;\n@!%p2 st.global.u32 [%d2+512], %r3;\n", "error",
    ),
    "it is a flag that is set": (
        "setp.ne.u32 %p3, %r2, 0;\nselp.u32 %r3, 1, 2, %p3;\n@!%p2 st.global.u32 [%d2+512], %r3;\n", "error",
    ),
    "it is an address": (
        "and.b32 %r4, %r2, 1023;\nmul.wide.u32 %d3, %r4, 4;\nadd.u64 %d3, %d3, %data;\n"
        "@!%p2 st.global.u32 [%d3+1024], %idx;\n", "error",
    ),
    "there is another race": ("@!%p2 st.global.u32 [%d2+512], 7;\n@%p2 st.global.u32 [%d2+512], 8;\n", "error"),
}  # fmt: skip


@pytest.mark.parametrize("schedule", ["lazy", "eager", "starve"])
@pytest.mark.parametrize("more, severity", USES.values(), ids=USES)
def test_a_race_that_nothing_stored_depends_on_is_a_warning(more: str, severity: str, schedule: str) -> None:
    data = np.arange(2048, dtype=np.uint32)
    report = emulate(Example(TWICE + more).text(), data, grid=1, block=64, schedule=schedule)
    assert {one.severity for one in report.findings if one.rule == "global-data-race"} == {severity}
    assert data[:32].tolist() == list(range(1, 33)), "the second run is on copies"


@pytest.mark.parametrize("more, severity", USES.values(), ids=USES)
def test_so_is_one_of_lanes_of_a_warp(more: str, severity: str) -> None:
    """Both halves of a warp load the same words, and the first one stores."""
    data = np.arange(2048, dtype=np.uint32)
    text = Example(TWICE.replace("%idx, 31;", "%idx, 15;").replace("%idx, 32;", "%idx, 16;") + more).text()
    report = emulate(text, data, grid=1, block=32)
    assert {one.severity for one in report.findings if one.rule == "global-lane-race"} == {severity}


def test_a_barrier_orders_the_two() -> None:
    data = np.arange(2048, dtype=np.uint32)
    text = Example(TWICE.replace("setp.lt", "bar.sync 0;\nsetp.lt")).text()
    assert not emulate(text, data, grid=1, block=64).findings
