"""Small programs for the tests of the runtime."""

from __future__ import annotations

from warploom.isa.dtypes import f32, u32
from warploom.runtime import ArraySpec, Parameter, Program

SCALE_ADD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .f32 alpha)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<8>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p, %r4, %r5;
    @%p bra DONE;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.f32 %f1, [alpha];
    mul.wide.u32 %rd4, %r4, 4;
    add.s64 %rd1, %rd1, %rd4;
    add.s64 %rd2, %rd2, %rd4;
    add.s64 %rd3, %rd3, %rd4;
    ld.global.f32 %f2, [%rd1];
    ld.global.f32 %f3, [%rd2];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd3], %f4;
DONE:
    ret;
}
"""
"""c = alpha * a + b over n elements."""

PROGRAM = Program(
    SCALE_ADD,
    "scale_add",
    arrays=(ArraySpec("a", ("n",), f32), ArraySpec("b", ("n",), f32), ArraySpec("c", ("n",), f32, "out")),
    parameters=(
        Parameter("a", "pointer", f32),
        Parameter("b", "pointer", f32),
        Parameter("c", "pointer", f32),
        Parameter("n", "scalar", u32),
        Parameter("alpha", "scalar", f32),
    ),
    grid=lambda dims, machine: (-(-dims["n"] // 64),),
    block=(64,),
)
