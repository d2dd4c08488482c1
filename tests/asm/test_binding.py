"""Binding an instruction to its row: which row, operands by name, and what does not match."""

from __future__ import annotations

import pytest

from tests.errors import refused
from warploom import asm
from warploom.asm.binding import bind
from warploom.asm.nodes import Integer, Register, Sink
from warploom.errors import SourceLocation
from warploom.isa.instructions.schema import Form, Match

FORMS = (
    Form("add.float", "add{.ftz}.f32", ">d:f32, a:f32, b:f32"),
    Form("add.int", "add.type", ">d:type, a:type, b:type", {"type": "s32 u32 u64"}),
    Form("mov", "mov.type", ">d:type, a:type&any", {"type": "b32 b64 u64 f32 pred"}),
    Form("mov.pack", "mov.b64", ">d:b64, a:b32*2"),
    Form("mov.unpack", "mov.b64", ">d:b32*2, a:b64!"),
    Form("ld", "ld.global{.vec}.type", ">d:type*vec, [a@global]", {"vec": "v2 v4", "type": "u8 u32 f32"}),
    Form("shfl", "shfl.idx.b32", ">d:b32|p:pred, a:b32, lane:u32, c:u32?, mask:b32?"),
    Form("tma", "tma.dim", "[map,c], size:imm", {"dim": "1d 2d 3d"}),
    Form("fma.half", "fma.type", ">d:type, a:type", {"type": "f16 bf16 bf16x2"}),
    Form("dot", "dot.shape", "+d:f32*n, a:b64", {"shape": "re:n\\d+"}, lengths={"n": lambda m: int(m["shape"][1:])}),
    Form("bra", "bra", "target:label"),
)

REGISTERS = {
    "%p": "pred", "%h": "b16", "%g": "f16", "%r": "b32", "%s": "s32", "%u": "u32", "%f": "f32",
    "%d": "b64", "%x": "u64", "v": "v4.f32",
}  # fmt: skip


def match(opcode: str) -> tuple[Match, ...]:
    base, *modifiers = opcode.split(".")
    found = [(form, form.match(tuple(modifiers))) for form in FORMS if form.base == base]
    return tuple(Match(form, chosen) for form, chosen in found if chosen is not None)


def instruction(text: str):
    module = asm.parse(f".version 8.7\n.target sm_90a\n.entry k() {{\n{text}\n}}", "text.ptx")
    (found,) = module.entries[0].body
    return found


def bound(text: str, declarations=REGISTERS):
    return bind(instruction(text), declarations, match)


@pytest.mark.parametrize(
    "text, key",
    [
        ("add.f32 %f, %f, 1.0;", "add.float"),
        ("add.ftz.f32 %r, %f, 0f3F800000;", "add.float"),
        ("add.s32 %s, %u, -1;", "add.int"),
        ("mov.b64 %d, %x;", "mov"),
        ("mov.b64 %d, {%r, %f};", "mov.pack"),
        ("mov.b64 {%r, _}, %d;", "mov.unpack"),
        ("mov.b32 %f, 0f3F800000;", "mov"),
        ("mov.u64 %d, smem+16;", "mov"),
        ("mov.pred %p, !%p;", "mov"),
        ("ld.global.u8 %r, [%d];", "ld"),
        ("ld.global.f32 {%f}, [%d];", "ld"),
        ("ld.global.v4.f32 {%f, _, %r, %f}, [%d+16];", "ld"),
        ("ld.global.v4.f32 v, [%d];", "ld"),
        ("add.f32 %f, v.x, v.w;", "add.float"),
        ("shfl.idx.b32 %f, %r, 0;", "shfl"),
        ("shfl.idx.b32 %r|%p, %r, 0, 31, -1;", "shfl"),
        ("tma.2d [%d, {%r, 0}], 16;", "tma"),
        ("fma.f16 %g, %h;", "fma.half"),
        ("fma.bf16x2 %r, %r;", "fma.half"),
        ("dot.n3 {%f, %f, %r}, %d;", "dot"),
        ("bra LOOP;", "bra"),
        ("add.f32 %f, %undeclared, %f;", "add.float"),
    ],
)
def test_the_row_is_the_one_whose_operands_fit(text, key):
    assert bound(text).match.form.key == key


def test_operands_have_the_rows_names_and_both_halves_of_a_pair_their_own():
    found = bound("shfl.idx.b32 %r|_, %f, 7;").operands
    assert found == {"d": Register("%r"), "p": Sink(), "a": Register("%f"), "lane": Integer(7)}


def test_one_operand_in_braces_loses_them_where_the_row_has_none():
    assert bound("ld.global.f32 {%f}, [%d];").operands["d"] == Register("%f")


def test_without_declarations_only_kinds_and_lengths_are_checked():
    assert bound("add.f32 %d, %p, %f;", None).match.form.key == "add.float"


@pytest.mark.parametrize(
    "text, got, expected",
    [
        ("add.f32 %f, %f;", "add.f32 %f, %f;", "d, a, b"),
        ("shfl.idx.b32 %r, %r;", "shfl.idx.b32 %r, %r;", "d|p, a, lane, (c), (mask)"),
        ("add.s32 %s, %f, %s;", "`%f`", "an integer or .b register of 32 bits"),
        ("add.s32 %s, %s, 1.5;", "`1.5`", "an integer constant"),
        ("add.f32 %f, %f, 1;", "`1`", "a floating-point constant such as 0f3F800000 or 1.0"),
        ("add.f32 %f, %f, %s;", "`%s`", "a .f32 or .b register of 32 bits"),
        ("add.s32 %d, %s, %s;", "`%d`", "an integer or .b register of 32 bits"),
        ("add.u64 %x, %x, %u;", "`%u`", "an integer or .b register of 64 bits"),
        ("add.s32 _, %s, %s;", "`_`", "a register"),
        ("add.s32 %s, _, %s;", "`_`", "a register"),
        ("add.s32 4, %s, %s;", "`4`", "a .s32 register"),
        ("add.s32 %s, %s, smem+4;", "`smem+4`", "a register"),
        ("add.s32 %s, %s, [%d];", "`[%d]`", "a .s32 register"),
        ("add.s32 %s, %s, !%s;", "`!%s`", "a .s32 register without `!`"),
        ("add.u32 %u, %tid.x, 1;", "`%tid.x`", "a .u32 register"),
        ("mov.b32 %tid.x, %r;", "`%tid.x`", "a .b32 register"),
        ("mov.u64 %x, %tid.x;", "`%tid.x`", "a .u64 operand"),
        ("ld.global.v4.f32 {%f, %f}, [%d];", "2", "4 for these modifiers"),
        ("ld.global.v4.f32 %f, [%d];", "`%f`", "{…} with 4 operands"),
        ("ld.global.f32 %f, %d;", "`%d`", "an address in brackets"),
        ("ld.global.f32 %f, [%f];", "`[%f]`", "an integer or .b register of 32 or 64 bits"),
        ("ld.global.f32 %s, [%d];", "`%s`", "a .f32 or .b register of 32 bits or more"),
        ("ld.global.u32 %h, [%d];", "`%h`", "an integer or .b register of 32 bits or more"),
        ("tma.2d [%d, {%r}], 16;", "`[%d, {%r}]`", "2 coordinates, innermost first"),
        ("tma.2d [%d], 16;", "`[%d]`", "`[map, {coordinates}]`"),
        ("tma.1d [%d, {%r}], %r;", "`%r`", "an integer constant"),
        ("fma.bf16 %g, %g;", "`%g`", "a .b register of 16 bits"),
        ("fma.f16 %g, 1.0;", "`1.0`", "a .f16 value in a register: PTX has no constants of this type"),
        ("dot.n4 {%f, %f, %r}, %d;", "3", "4 for these modifiers"),
        ("bra %r;", "`%r`", "the name of a label"),
        ("mov.b32 %r|%p, %r;", "`%r|%p`", "one operand"),
    ],
)
def test_what_does_not_fit_is_said_with_the_users_location(text, got, expected):
    with refused("wrong-operands", got, expected) as caught:
        bound(text)
    assert caught.value.where == SourceLocation("text.ptx", 4)


@pytest.mark.parametrize("text", ["addd.f32 %f, %f, %f;", "add.f33 %f, %f, %f;", "add.rn.rn.f32 %f, %f, %f;"])
def test_an_unknown_opcode_is_refused_with_the_nearest_spelling(text):
    with refused("unknown-instruction") as caught:
        bind(instruction(text), REGISTERS)
    assert "`add." in caught.value.hint
