"""An instruction and its row: which row, operands by name, and what does not fit."""

from __future__ import annotations

import pytest

from tests.errors import refused
from warploom import asm
from warploom.asm.binding import bind
from warploom.asm.nodes import Integer, Register, Sink
from warploom.errors import SourceLocation, VerificationError
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
    "text, part",
    [
        ("add.f32 %f, %f;", "3 operands, not 2"),
        ("shfl.idx.b32 %r, %r;", "3 to 5 operands, not 2"),
        ("add.s32 %s, %f, %s;", "declared .f32, where .s32 is needed"),
        ("add.s32 %s, %s, 1.5;", "floating-point constant where .s32 is needed"),
        ("add.f32 %f, %f, 1;", "an integer constant where .f32 is needed"),
        ("add.f32 %f, %f, %s;", "declared .s32, where .f32 is needed"),
        ("add.s32 %d, %s, %s;", "declared .b64"),
        ("add.u64 %x, %x, %u;", "declared .u32"),
        ("add.s32 _, %s, %s;", "cannot be thrown away"),
        ("add.s32 %s, _, %s;", "`_`"),
        ("add.s32 4, %s, %s;", "is a constant"),
        ("add.s32 %s, %s, smem+4;", "address of a variable"),
        ("add.s32 %s, %s, [%d];", "is not a register"),
        ("add.s32 %s, %s, !%s;", "cannot be negated"),
        ("add.u32 %u, %tid.x, 1;", "special register"),
        ("mov.b32 %tid.x, %r;", "writes a special register"),
        ("mov.u64 %x, %tid.x;", "%tid.x, a .u32"),
        ("ld.global.v4.f32 {%f, %f}, [%d];", "2 elements in braces, not 4"),
        ("ld.global.v4.f32 %f, [%d];", "lacks its braces"),
        ("ld.global.f32 %f, %d;", "is not an address"),
        ("ld.global.f32 %f, [%f];", "takes its address from"),
        ("ld.global.f32 %s, [%d];", "declared .s32, where .f32"),
        ("ld.global.u32 %h, [%d];", "declared .b16"),
        ("tma.2d [%d, {%r}], 16;", "1 coordinate, the map has 2 dimensions"),
        ("tma.2d [%d], 16;", "not a tensor address"),
        ("tma.1d [%d, {%r}], %r;", "is not a constant"),
        ("fma.bf16 %g, %g;", "declared .f16, where .bf16"),
        ("fma.f16 %g, 1.0;", "where .f16 is needed"),
        ("dot.n4 {%f, %f, %r}, %d;", "3 elements in braces, not 4"),
        ("bra %r;", "is not a label"),
        ("mov.b32 %r|%p, %r;", "is not a pair"),
    ],
)
def test_what_does_not_fit_is_said_with_the_users_location(text, part):
    with pytest.raises(VerificationError) as caught:
        bound(text)
    assert part in str(caught.value)
    assert caught.value.where == SourceLocation("text.ptx", 4)


@pytest.mark.parametrize("text", ["addd.f32 %f, %f, %f;", "add.f33 %f, %f, %f;", "add.rn.rn.f32 %f, %f, %f;"])
def test_an_unknown_opcode_is_refused_with_the_nearest_spelling(text):
    with refused("unknown-instruction") as caught:
        bind(instruction(text), REGISTERS)
    assert "`add." in caught.value.hint
