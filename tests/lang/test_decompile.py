"""A PTX text as a Python kernel: the result has the same meaning as the text, and reads like a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warploom import asm, emulate
from warploom.asm.equivalence import normal_form
from warploom.errors import VerificationError, WarploomError
from warploom.kernels import ladder
from warploom.kernels.walkthrough import build_gemm_m64n64
from warploom.lang.decompile import to_python

FOREIGN = sorted((Path(__file__).parents[1] / "foreign").rglob("*.ptx"))
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
POINTERS = {"mixed_sm80.ptx:calls", "mixed_sm90a.ptx:calls", "unsupported_sm90a.ptx:through_pointer"}
"""Kernels that call through a pointer, which the language has no form for."""


def run(written: str) -> dict[str, Any]:
    """The names that a written file defines."""
    names: dict[str, Any] = {"__name__": "written"}
    exec(compile(written, "written", "exec"), names)
    return names


def again(text: str, entry: str = "k") -> str:
    """The PTX of the Python of a text."""
    names = run(to_python(text, entry))
    return names[entry].ptx()


def kernel(body: str) -> str:
    declared = ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<4>;"
    return f"{HEAD}.visible .entry k(.param .u64 out)\n{{ {declared}\n{body}\n}}\n"


def lines(written: str) -> list[str]:
    """The statements of the function, those that declare left out, opcodes shortened."""
    body = written.split("):\n", 1)[1].splitlines()
    return [line.strip().removeprefix("with ").removeprefix("ptx.") for line in body if "= reg." not in line]


# -- the same text ---------------------------------------------------------------------------------------------------


@pytest.mark.sample(4, all=4)
@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.name)
def test_a_foreign_text_says_the_same_as_python(path: Path) -> None:
    text = path.read_text()
    module = asm.parse(text)
    for entry in module.entries:
        try:
            made = run(to_python(text, entry.name))[entry.name].ptx()
        except VerificationError as error:
            assert (error.code, f"{path.name}:{entry.name}" in POINTERS) == ("no-python-form", True)
            continue
        assert normal_form(asm.parse(made), entry.name) == normal_form(module, entry.name)


@pytest.mark.sample(4, full=len(ladder.RUNGS))
@pytest.mark.parametrize("rung", ladder.RUNGS, ids=lambda rung: rung.name)
def test_a_rung_of_the_ladder_says_the_same_as_python(rung: ladder.Rung) -> None:
    built = rung.build()
    made = run(built.to_python())[built.name]
    assert normal_form(asm.parse(made.ptx()), built.name) == normal_form(asm.parse(built.ptx()), built.name)


def test_the_walkthrough_computes_the_same_as_python() -> None:
    built = build_gemm_m64n64(64, 64, 32)
    made = run(built.to_python())[built.name]
    draw = np.random.default_rng(1)
    import ml_dtypes

    a, b = (draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((64, 32), (32, 64)))
    wanted = built.emulate(a, b).outputs[0]
    assert np.array_equal(built.emulate(a, b, ptx=made.ptx()).outputs[0], wanted)


@pytest.mark.parametrize(
    "change",
    [
        ("add.u32 %r2", "sub.u32 %r2"),
        ("%r2, %r1, 3", "%r2, %r1, 4"),
        ("@%p1", "@!%p1"),
        ("bra L;", "bra M;"),
        ("[%rd1+4]", "[%rd1+8]"),
        ("%r2, %r1, 3", "%r2, %r2, 3"),
        (".u64 out", ".u32 out"),
    ],
)
def test_texts_that_differ_in_one_word_have_different_forms(change: tuple[str, str]) -> None:
    text = kernel("L: ld.param.u64 %rd1, [out];\nadd.u32 %r2, %r1, 3;\nst.global.u32 [%rd1+4], %r2;\n"
                  "setp.eq.u32 %p1, %r2, 0;\n@%p1 bra L;\nM: ret;")  # fmt: skip
    other = text.replace(*change)
    assert other != text
    assert normal_form(asm.parse(text), "k") != normal_form(asm.parse(other), "k")
    assert normal_form(asm.parse(text), "k") == normal_form(asm.parse(text.replace("%r2", "%r7")), "k")


# -- control flow ----------------------------------------------------------------------------------------------------


def test_a_jump_over_a_stretch_is_an_if_and_one_over_two_an_else() -> None:
    text = kernel("@%p1 bra A;\nmov.u32 %r1, 1;\nbra B;\nA: mov.u32 %r1, 2;\nB: @!%p2 bra C;\nmov.u32 %r1, 3;\nC: ret;")
    assert lines(to_python(text)) == [
        "if_(p[1].negated):",
        "inst.mov.u32(r[1], 1)",
        "else_():",
        "inst.mov.u32(r[1], 2)",
        "if_(p[2]):",
        "inst.mov.u32(r[1], 3)",
        "inst.ret()",
    ]
    assert normal_form(asm.parse(again(text)), "k") == normal_form(asm.parse(text), "k")


def test_a_jump_back_is_a_loop_and_jumps_to_its_ends_break_and_continue() -> None:
    text = kernel("L: @%p1 bra E;\n@%p2 bra L;\nadd.u32 %r1, %r1, 1;\nbra.uni L;\nE: ret;")
    assert lines(to_python(text)) == [
        "loop():", "break_(p[1])", "continue_(p[2])", "inst.add.u32(r[1], r[1], 1)", "inst.ret()"
    ]  # fmt: skip
    text = kernel("L: @%p2 bra N;\nadd.u32 %r1, %r1, 1;\nN: @%p1 bra L;\nret;")
    assert lines(to_python(text)) == [
        "do_while(lambda: p[1]):", "continue_(p[2])", "inst.add.u32(r[1], r[1], 1)", "inst.ret()"
    ]  # fmt: skip


def test_jumps_into_and_between_loops_stay_jumps() -> None:
    text = kernel("@%p3 bra M;\nL: @%p1 bra E;\nM: add.u32 %r1, %r1, 1;\n@%p2 bra M;\nbra L;\nE: ret;")
    written = to_python(text)
    assert "ptx.goto(" in written and "ptx.place(" in written
    assert normal_form(asm.parse(again(text)), "k") == normal_form(asm.parse(text), "k")


def test_a_table_of_branches_stays_one() -> None:
    text = kernel("T: .branchtargets A, B;\nbrx.idx %r1, T;\nA: mov.u32 %r1, 1;\nB: ret;")
    assert "T = ptx.branch_targets(A, B)" in to_python(text)
    assert normal_form(asm.parse(again(text)), "k") == normal_form(asm.parse(text), "k")


def test_loops_and_branches_compute_what_the_text_computes() -> None:
    # The steps of Collatz's sequence from each thread's number on, at most 40 of them.
    text = kernel(
        """
        ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd1, %rd1;
        mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
        add.u32 %r1, %r1, 1; mov.u32 %r2, 0;
        LOOP: setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE;
        setp.ge.u32 %p1, %r2, 40; @%p1 bra DONE;
        add.u32 %r2, %r2, 1; and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra EVEN;
        mad.lo.u32 %r1, %r1, 3, 1; bra LOOP;
        EVEN: shr.u32 %r1, %r1, 1; bra LOOP;
        DONE: st.global.u32 [%rd1], %r2; ret;"""
    )
    made = run(to_python(text))["k"]
    out = np.zeros(64, np.uint32)
    made.emulate(out, grid=(1, 1, 1), block=(64, 1, 1))
    wanted = np.zeros(64, np.uint32)
    emulate(text, wanted, grid=(1, 1, 1), block=(64, 1, 1))
    assert np.array_equal(out, wanted) and out[:7].tolist() == [0, 1, 7, 2, 5, 8, 16]


# -- operands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, said",
    [
        ("mov.f32 %f1, 0f3FC00000;", "1.5"),
        ("mov.f32 %f1, 0f7FC00001;", "ptx.constant('0f7FC00001')"),
        ("mov.b32 %r1, 0f3FC00000;", "ptx.constant('0f3FC00000')"),
        ("mov.f64 %d1, 0d3FF8000000000000;", "1.5"),
        ("mov.u32 %r1, -1;", "ptx.constant('-1')"),
        ("mov.u32 %r1, 0xFF;", "0xff"),
        ("@!%p1 mov.u32 %r1, %ctaid.y;", "ptx.special.ctaid.y, pred=p[1].negated"),
        ("setp.lt.and.u32 %p1|%p2, %r1, 3, !%p3;", "ptx.pair(p[1], p[2]), r[1], 3, p[3].negated"),
        ("ld.global.v2.u32 {%r1, %r2}, [%rd1+8];", "[r[1], r[2]], ptx.addr(rd[1], 8)"),
        ("ld.shared.u32 %r1, [tile+12];", "ptx.addr(tile, 12)"),
        ("{ .reg .b32 tmp; mov.u32 tmp, 1; { .reg .b32 tmp; mov.u32 tmp, 2; } mov.u32 %r1, tmp; }", "tmp_2, 2"),
    ],
)
def test_an_operand_keeps_its_bits(body: str, said: str) -> None:
    text = kernel(f".reg .f32 %f<4>; .reg .f64 %d<4>; .shared .align 16 .b8 tile[64];\n{body}\nret;")
    assert said in to_python(text)
    assert normal_form(asm.parse(again(text)), "k") == normal_form(asm.parse(text), "k")


def test_functions_that_are_called_come_along_as_text() -> None:
    text = (
        f"{HEAD}.const .align 4 .b8 table[4] = {{1, 2, 3, 4}};\n"
        ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %a<3>; ld.param.u32 %a1, [x];\n"
        "ld.const.u8 %a2, [table]; add.u32 %a1, %a1, %a1; st.param.b32 [r], %a1; ret; }\n"
        ".visible .entry k(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [out];\n"
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], 21; call.uni (b), twice, (a); ld.param.b32 %r1, [b]; }\n"
        "st.global.u32 [%rd1], %r1; ret; }\n"
    )
    written = to_python(text)
    assert "ptx.call('twice', [a], results=[b], opcode='call.uni')" in written
    out = np.zeros(1, np.uint32)
    run(written)["k"].emulate(out, grid=(1, 1, 1), block=(1, 1, 1))
    assert out[0] == 42


def test_what_has_no_form_is_refused_with_a_code() -> None:
    text = kernel(".reg .b64 %f; P: .callprototype _ ();\nmov.u64 %f, 0;\ncall %f, P;\nret;")
    with pytest.raises(WarploomError) as caught:
        to_python(text)
    assert caught.value.code == "no-python-form"
    with pytest.raises(WarploomError) as caught:
        to_python(kernel("ret;"), "other")
    assert caught.value.code == "not-this-text"
