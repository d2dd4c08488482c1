"""Instructions that share a line, as those of inline assembly do, are counted like those on lines of their own."""

import numpy as np
import pytest

from warploom import predict
from warploom.runtime.own_lines import with_own_lines
from warploom.timing.instructions import Facts

HEAD = """.version 8.0
.target sm_90a
.address_size 64
"""
SUMS = """.visible .entry sums(.param .u64 x, .param .u64 y)
{
.reg .pred %more;
.reg .b32 %i, %n;
.reg .b64 %x, %y, %at;
.reg .f32 %sum, %one;
ld.param.u64 %x, [x];
ld.param.u64 %y, [y];
mov.f32 %sum, 0f00000000;
mov.u32 %n, 0;
again:
ld.global.f32 %one, [%x];
add.f32 %sum, %sum, %one;
add.u64 %x, %x, 16;
add.u32 %n, %n, 1;
setp.lt.u32 %more, %n, 1000;
@%more bra again;
mov.u32 %i, %tid.x;
mul.wide.u32 %at, %i, 4;
add.u64 %y, %y, %at;
st.global.f32 [%y], %sum;
ret;
}
"""


@pytest.mark.full
def test_a_loop_on_one_line_takes_as_long_as_on_several():
    x, y = np.zeros(4000, np.float32), np.zeros(1024, np.float32)
    several, one = (predict(HEAD + text, x, y, grid=132, block=1024).us for text in (SUMS, SUMS.replace(";\n", "; ")))
    assert one == pytest.approx(several)
    assert one > 132 * 32 * 1000 / 132 / 1980  # a load of each warp passes the memory pipe, one a clock


def test_an_inlined_function_has_its_lines_again():
    text = HEAD + ".func f()\n{\n.reg .b32 %a;\nmov.u32 %a, 1; add.u32 %a, %a, 1;\nret;\n}\n"
    line = text.splitlines().index("mov.u32 %a, 1; add.u32 %a, %a, 1;") + 1
    pcs = [Facts(pc, "", "none", 0.0, "none", frozenset(), frozenset(), ptx_line=line) for pc in range(4)]
    printed, found = with_own_lines(text, pcs)
    words = [printed.splitlines()[one.ptx_line - 1].split()[0] for one in found]
    assert words == ["mov.u32", "add.u32", "mov.u32", "add.u32"]
    assert with_own_lines(printed, found) == (printed, found)
