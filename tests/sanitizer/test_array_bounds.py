"""An access stays in the shared array from whose address it is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom import asm, ptx, smem
from warploom.emulator import api
from warploom.emulator.machine.finding import Finding
from warploom.errors import ArgumentError
from warploom.lang import Tile, kernel
from warploom.runtime import launch_file
from warploom.sanitizer import Sanitizer
from warploom.testing import check_text
from warploom.types import u32, u64

RULE = "shared-array-overflow"
TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 data)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .shared .align 16 .b8 first[128];
    .shared .align 16 .b8 second[128];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, first;
    mov.u32 %r3, second;
    st.shared.u32 [second], 0;
    BODY
    ret;
}
"""


def found(body: str, dynamic: int = 0) -> list[Finding]:
    """Bounds that are left when one warp runs this."""
    report = api.run(
        asm.parse(TEXT.replace("BODY", body), name="k.ptx"), "k", [np.zeros(64, np.uint32)], grid=(1, 1, 1),
        block=(32, 1, 1), dynamic_smem=dynamic, watch=[Sanitizer],
    )  # fmt: skip
    return [finding for finding in report.findings if finding.rule == RULE]


OUT = {
    "a constant too many": "add.u32 %r4, %r2, %r1;\nst.shared.u32 [%r4+4], %r0;",
    "below the beginning": "sub.u32 %r4, %r3, 4;\nadd.u32 %r4, %r4, %r1;\nst.shared.u32 [%r4], %r0;",
    "by a generic address": "cvta.shared.u32 %r5, first;\ncvt.u64.u32 %d0, %r2;\ncvta.shared.u64 %d1, %d0;\n"
    "cvt.u64.u32 %d2, %r1;\nadd.u64 %d1, %d1, %d2;\nst.u32 [%d1+4], %r0;",
    "of two arrays, behind both": "setp.lt.u32 %p0, %r0, 16;\nselp.b32 %r4, %r2, %r3, %p0;\nadd.u32 %r4, %r4, %r1;\n"
    "st.shared.u32 [%r4+256], %r0;",
    "through a loop": "mov.u32 %r5, 0;\nagain:\nmad.lo.u32 %r4, %r5, 4, %r2;\nst.volatile.shared.u32 [%r4], 1;\n"
    "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 33;\n@%p1 bra again;",
    "from a static array into the launch's": "add.u32 %r4, %r3, %r1;\nst.shared.u32 [%r4+64], %r0;\n"
    "mov.u32 %r6, dynamic;",
}
IN = {
    "the whole array": "add.u32 %r4, %r2, %r1;\nst.shared.u32 [%r4], %r0;",
    "a swizzled place": "xor.b32 %r4, %r1, 96;\nadd.u32 %r4, %r4, %r3;\nst.shared.u32 [%r4], %r0;",
    "a pointer that began before the array": "add.u32 %r4, %r2, %r1;\nadd.u32 %r4, %r4, -4;\n"
    "st.shared.u32 [%r4+4], %r0;",
    "one of two": "setp.lt.u32 %p0, %r0, 16;\nselp.b32 %r4, %r2, %r3, %p0;\nadd.u32 %r4, %r4, %r1;\n"
    "st.shared.u32 [%r4], %r0;",
    "an address that is not known": "ld.shared.u32 %r4, [second];\nadd.u32 %r4, %r4, 1024;\n"
    "ld.shared.u32 %r5, [%r4+64];",
}


@pytest.mark.parametrize("case", OUT)
def test_what_leaves_its_array(case):
    dynamic = 1024 if "launch" in case else 0
    (finding,) = found(OUT[case] + "\nst.shared.u32 [second+64], 0;" * (case == "never"), dynamic or 512)
    assert finding.severity == "error"


@pytest.mark.parametrize("case", IN)
def test_what_stays_in_its_array(case):
    assert found(IN[case]) == []


def test_the_message_names_both_arrays():
    (finding,) = found(OUT["a constant too many"])
    assert "`first`" in finding.summary and "`second`" in finding.summary and "4 bytes past its end" in finding.summary


def test_arrays_of_smem():
    @kernel(out_specs=(Tile("N", u32),), grid=(1,), block=(32,), arch="sm_80")
    def overflows(Y):
        a, b = smem.array(u32, 16), smem.array(u32, 16)
        lane = ptx.special.tid.x()
        ptx.store(b[0], lane)
        ptx.store(a[lane], lane)
        ptx.store(ptx.addr(ptx.global_ptrs(Y)[0] + lane.to(u64) * 4), lane)

    y = np.zeros(32, np.uint32)
    report = overflows.emulate(y)
    assert RULE in {finding.rule for finding in report.findings}


LAUNCH = """
grid = [1]
block = [32]
dynamic_smem = 512

[[parameter]]
kind = "buffer"
dtype = "u32"
shape = [64]

"""
PARTS = """
[[shared]]
name = "left"
size = 128

[[shared]]
name = "right"
offset = 128
size = 256
count = 2
"""


def described(folder: Path, body: str, shared: str):
    text = folder / "k.ptx"
    text.write_text(TEXT.replace("BODY", body))
    launch_file.beside(text).write_text(LAUNCH + shared)
    return check_text(text)


def test_arrays_that_a_launch_description_names(tmp_path):
    left = "mov.u32 %r6, dynamic;\nadd.u32 %r4, %r6, %r1;\nst.shared.u32 [%r4+OFFSET], %r0;"
    assert described(tmp_path, left.replace("OFFSET", "0"), PARTS).ok
    assert described(tmp_path, left.replace("OFFSET", "256"), PARTS).ok  # a constant may lead to another array
    assert described(tmp_path, left.replace("OFFSET", "4"), "").ok
    (error,) = described(tmp_path, left.replace("OFFSET", "4"), PARTS).errors
    assert error.rule == RULE and "right[0]" in error.address


def test_a_description_of_arrays_that_are_none(tmp_path):
    for shared in (PARTS.replace("size = 128", "size = 0"), PARTS.replace("count = 2", "count = 3"),
                   '[[shared]]\nname = "a"\nsize = 4\nvariable = "other"\n'):  # fmt: skip
        with pytest.raises(ArgumentError) as error:
            described(tmp_path, "", shared)
        assert error.value.code == "launch-description"
