"""A prediction says what the launch waits for that it does not know."""

import numpy as np
import pytest

from warploom import predict
from warploom.timing.left_out import LOCKS, SLEEPS, WATCHES

LOOPS = {
    SLEEPS: "nanosleep.u32 1000;",
    WATCHES: "again: mov.u32 %a, %clock; setp.lt.u32 %p, %a, 2000; @%p bra again;",
    LOCKS: "again: atom.acquire.gpu.global.cas.b32 %a, [%y], 0, 1; setp.ne.u32 %p, %a, 0; @%p bra again;"
    " atom.release.gpu.global.exch.b32 %a, [%y], 0;",
    "": "nanosleep.u32 0; mov.u32 %a, %clock; setp.lt.u32 %p, %a, 2000; @%p bra on; add.u32 %a, %a, 1; on:",
}


@pytest.mark.parametrize("note", LOOPS)
def test_a_prediction_notes_sleeps_clocks_and_locks(note):
    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry waits(.param .u64 y)
{
.reg .pred %p;
.reg .b32 %a;
.reg .b64 %y;
ld.param.u64 %y, [y];
BODY
ret;
}
""".replace("BODY", LOOPS[note].replace("; ", ";\n"))
    assert predict(text, np.zeros(4, np.uint32), grid=(4,), block=(1,)).note == note
