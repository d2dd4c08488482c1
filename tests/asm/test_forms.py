"""Instructions of one form are read alike, each with its own operands."""

from __future__ import annotations

from warploom.asm.binding import bind
from warploom.asm.forms import FormBinder
from warploom.asm.nodes import Instruction, walk
from warploom.asm.parser import parse

TYPES = {**{f"%r{n}": "b32" for n in range(8)}, **{f"%rd{n}": "b64" for n in range(4)}, "%p1": "pred", "%p2": "pred"}
BODY = """
    add.s32 %r1, %r1, %r1;
    add.s32 %r1, %r2, %r3;
    add.s32 %r4, %r2, 7;
    add.s32 %r5, %r3, -9;
    ld.global.b32 {%r1}, [%rd1];
    ld.global.b32 {%r2}, [%rd2+8];
    ld.global.v2.b32 {%r1, %r2}, [%rd1];
    ld.global.v2.b32 {%r3, %r3}, [%rd3+16];
    setp.lt.s32 %p1|%p2, %r1, %r2;
    setp.lt.s32 %p2|%p1, %r3, %r4;
    mov.b64 %rd1, {%r1, %r2};
    mov.b64 %rd2, {%r2, %r1};
    mov.b64 {%r3, _}, %rd1;
    mov.b64 {%r4, _}, %rd2;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    @%p1 bra end;
    @%p2 bra end;
end:
    ret;
"""


def test_a_form_is_read_as_each_of_its_instructions_is():
    module = parse(f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{BODY}}}\n")
    binder = FormBinder()
    instructions = [one for one in walk(module.entries[0].body or ()) if isinstance(one, Instruction)]
    assert [binder.bind(one, TYPES) for one in instructions] == [bind(one, TYPES) for one in instructions]
