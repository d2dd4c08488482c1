"""Declarations, directives and calls: what ptxas takes is taken, and what it refuses is refused."""

from __future__ import annotations

import subprocess

import pytest

from tests.isa.assembling import find_ptxas
from warploom import asm
from warploom.errors import PtxSyntaxError, VerificationError

REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .u32 %u<4>;"
DOUBLED = ".func (.reg .b32 out) f(.reg .u32 a) { add.u32 out, a, a; ret; }"
BY_VALUE = ".func g(.param .align 8 .b8 a[8]) { ret; }"
POINTER = "mov.u64 %rd1, f;"
PROTOTYPE = "pr: .callprototype (.reg .b32 _) _ (.reg .u32 _);"

PACKED = ".reg .f16x2 x; .reg .b32 b; .reg .u32 w; .reg .f32 s; mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32 "
PACKED += "{{s, s, s, s}}, {{{1}, {1}, {1}, {1}}}, {{b, b}}, {{s, s, s, s}};"
TAKEN = [
    {"head": DOUBLED, "body": "call (%r1), f, (%r2); call (%r1), f, (5); call (_), f, (%u1);"},
    {"head": DOUBLED, "body": f"{PROTOTYPE} {POINTER} call (%r1), %rd1, (%r2), pr;"},
    {"head": BY_VALUE, "body": "{ .param .align 8 .b8 x[8]; call g, (x); } { .param .align 8 .b8 x[8]; call g, (x); }"},
    {"body": "targets: .branchtargets A, B; brx.idx %r1, targets; A: ret; B: ret;"},
    {"head": ".global .u32 v; .global .u64 w[2] = {v+4, generic(v)}; .global .u8 b[2] = {0xff(v), 3};"},
    {"head": ".global .f32 v[2][2] = {{1.0, 2.0}, {0f00000000}}; .global .b8 s[] = {1, 2}; .const .b32 c = 1.5;"},
    {"head": ".global .v2 .b32 v = {1, 2}; .extern .shared .b8 s[]; .global .align 4096 .b32 a;"},
    {"body": "mov.b32 %r1, 1; { mov.b32 %r1, 2; .reg .b64 %r1; mov.b64 %r1, 3; }"},
    {"body": "mov.u32 %r1, %tid.x; .reg .b32 %tid; mov.u32 %tid, %ntid.x;"},
    {"body": ".reg .v4 .f32 %tid; mov.f32 %f1, %tid.x;"},
    {"head": ".global .f32 v[3] = {-0d3ff0000000000000, .5, -(1.0)};"},
    {"head": ".global .b32 b = 0f3f800000; .global .u32 n = WARP_SZ+1;"},
    {"head": ".global .u32 v; .global .u64 w[4] = {v+1?2:3, generic(v)+-4, v+(1<<2), 0xff0000(v+4)};"},
    {"head": DOUBLED + ".global .u64 w = f; .global .u8 b[2] = {0xFF00(f), 255(f)};"},
    {"body": "mov.f32 %f1, (0f3f800000); mov.f32 %f1, -.5e3; mov.u32 %r1, !!1; mov.u32 %r1, WARP_SZ*2;"},
    {"directives": '.pragma "a", "b";'},
    {"head": ".global .u32 a[2] = {}, b[2][2] = {{}, {1}}; .global .u8 c[18446744073709551618] = {1, 2};"},
    {"head": DOUBLED, "body": f"{POINTER} t: .calltargets f; call (%r1), %rd1, (%r2), t;"},
    {"head": DOUBLED + ".entry e() { ret; }", "body": "t: .calltargets f, f, e, k; { u: .calltargets f; }"},
    {"head": ".func (.reg .b32 a, .reg .b32 b) f(.reg .b32 c, .param .b32 d) { ret; }"},
    {"body": "t: .callprototype (.reg .b32 _, .reg .b32 _) _ (.param .b32 _[]); u: .callprototype _; ret;"},
    {"body": "mov.u32 %r1, %laneid; mov.u32 %r1, %tid.x; %laneid: bra %laneid; { %tid: bra %tid; }"},
    {"body": "%laneid: { .reg .b32 %laneid; mov.b32 %laneid, 1; }"},
    {"body": '%A: bra %A; .reg .align 8 .v2 .b32 x; .pragma "nounroll";'},
    {"head": '# 3 "a.cu"\n#line 4 "a.cu" 1\n', "parameters": ".param .u64 .ptr .global .align 16 a"},
    {"directives": ".maxntid 128 .minnctapersm 2 .maxnreg 64"},
    {"parameters": ".param .align 8 .b8 a[32760]"},
    {"body": PACKED.format("bf16", "b")},
    {"body": PACKED.format("f16", "x")},
]
"""Parts of kernels that ptxas takes."""

REFUSED = {
    "elements": [
        {"head": f".global .u32 a{value};"}
        for value in (
            "[4] = {1,,2}",
            "[4] = {,1}",
            "[4] = {1,}",
            "[2][2] = {{1}{2}}",
            "[2] = {1}{2}",
            "[] = {}",
            "[2] = 1 {2}",
        )
    ],
    "more than 64 bits": [
        {"body": f"mov.u64 %rd1, {value};"}
        for value in ("99999999999999999999", "0x80000000000000000", f"0b1{'0' * 64}", f"0{'7' * 24}")
    ],
    "linkage": [
        {"head": f"{words} .global .u32 a;"}
        for words in (".visible .visible", ".extern .visible", ".weak .visible", ".visible .weak")
    ]
    + [{"head": ".visible .weak .func f() { ret; }"}, {"body": ".extern .visible .shared .b8 s[];"}],
    "names": [
        {"head": text.format(name)}
        for name in ("%tid", "%laneid", "_", "WARP_SZ")
        for text in (".entry {}() {{ ret; }}", ".func {}() {{ ret; }}", ".global .u32 {};")
    ],
    "words of a pointer": [
        {"parameters": f".param {words} a"}
        for words in (".ptr .u64", ".u64 .align 8 .ptr", ".u64 .ptr .align 8 .global", ".global .u64")
    ],
    "tables of targets": [
        {"body": f"{table}: .branchtargets {targets}; brx.idx %r1, {table}; A: ret; B: ret;"}
        for table, targets in (("t", "A,,B"), ("t", "A, B,"), ("t", ", A"), ("t", "A B"))
    ]
    + [
        {"head": DOUBLED, "body": f"{POINTER} t: .calltargets {targets}; call (%r1), %rd1, (%r2), t;"}
        for targets in ("f,, f", "f, g", "g")
    ]
    + [
        {"head": DOUBLED + ".global .b32 v;", "body": f"t: .calltargets {targets};"}
        for targets in ("nosuch", "f, nosuch", "v", "%r1", "t", "later")
    ]
    + [{"head": DOUBLED, "body": ".reg .b32 f; t: .calltargets f;"}]
    + [
        {"head": DOUBLED + ".func g() { ret; }", "body": f"{POINTER} t: .calltargets f, {more}; call {call}, t;"}
        for more, call in (("g", "(%r1), %rd1, (%r2)"), ("f", "%rd1, (%r2)"), ("f", "(%r1), %rd1, (%rd2)"))
    ],
    "prototypes": [
        {"body": f"{POINTER} {PROTOTYPE} call {call}, pr;", "head": DOUBLED}
        for call in ("(%r1), %rd1, (%rd2)", "(%r1), %rd1, (%r2, %r3)", "%rd1, (%r2)", "(%r1), %rd1")
    ]
    + [
        {"body": f"t: .callprototype {text}; ret;"}
        for text in (
            "_ (.shared .b32 _)",
            "(.param .b32 _, .param .b32 _) _ ()",
            "(.param .b33 _) _ ()",
            "_ (.b32 _)",
            "_ (.param .b32 _[-1])",
            "(.param .align 3 .b8 _[3]) _ ()",
            "_ (.param .b32 _) .abi_preserve 8",
        )
    ],
    "formals": [
        {"head": f".func {head} {{ ret; }}"}
        for head in (
            "(.param .b32 a, .param .b32 b) f()",
            "(.reg .b32 a, .param .b32 b) f()",
            "(.shared .b32 a) f()",
            "f(.local .b32 a)",
            "f(.const .b32 a)",
        )
    ],
    "labels named like special registers": [
        {"body": "bra %laneid; %laneid:"},
        {"body": "%laneid: mov.u32 %r1, %laneid;"},
        {"body": "bra %tid; %tid:"},
        {"body": "%tid: mov.u32 %r1, %tid.x;"},
        {"body": "%tid: { mov.u32 %r1, %tid.x; }"},
        {"body": "t: .branchtargets %laneid; %laneid:"},
        {"body": "%laneid: %laneid:"},
    ],
    "results that nobody takes": [
        {"body": text}
        for text in (
            "ld.global.v2.u32 {_, _}, [%rd1];",
            "mov.b64 {_, _}, %rd1;",
            "shfl.sync.idx.b32 _|%p, %r1, 0, 31, -1;",
            "elect.sync %r1|_, -1;",
            "lop3.or.b32 %r1|_, %r1, %r2, %r2, 63, %p;",
            "setp.eq.s32 _|_, %r1, %r2;",
            "mbarrier.test_wait.b64 _, [%rd1], %rd1;",
        )
    ],
    "fragments": [{"body": PACKED.format("bf16", "x")}, {"body": PACKED.format("f16", "w")}],
    "calls": [
        {"head": DOUBLED, "body": "call (%r1), f, ();"},
        {"head": DOUBLED, "body": "call (%r1), f, (%r2, %r3);"},
        {"head": DOUBLED, "body": "call f, (%r2);"},
        {"head": DOUBLED, "body": "call (%r1), f, (%f1);"},
        {"head": DOUBLED, "body": "call (%rd1), f, (%r2);"},
        {"head": DOUBLED, "body": "call (%r1), f, (1.0);"},
        {"head": DOUBLED, "body": f"{POINTER} call (%r1), %rd1, (%r2);"},
        {"head": BY_VALUE, "body": "{ .param .align 4 .b8 x[8]; call g, (x); }"},
        {"head": BY_VALUE, "body": "{ .param .align 8 .b8 x[16]; call g, (x); }"},
        {"head": BY_VALUE, "body": "call g, (%rd1);"},
        {"head": ".global .b32 v;", "body": "call v;"},
        {"body": "call k;"},
        {"body": "call 1;"},
        {"body": "A: brx.idx %r1, A;"},
        {"head": ".func f(.reg .b64 a); .func f(.reg .b32 a) { ret; }"},
    ],
    "used before they are declared": [
        {"body": "mov.u32 %x, 1; .reg .b32 %x;"},
        {"body": "mov.u32 %r1, x; .shared .b32 x;"},
        {"body": "@%p bra A; .reg .pred %p; A:"},
        {"body": "brx.idx %r1, targets; targets: .branchtargets A; A:"},
        {"body": "mov.u64 %rd1, f; call (%r1), %rd1, (%r2), pr; " + PROTOTYPE, "head": DOUBLED},
        {"body": "call f; ret; } .func f() {"},
        {"head": ".global .u64 v = w; .global .u64 w;"},
    ],
    "special registers that a declaration hides": [
        {"body": ".reg .b32 %tid; mov.u32 %r1, %tid.x;"},
        {"body": ".reg .b32 %ctaid; { mov.u32 %r1, %ctaid.y; }"},
        {"body": ".shared .b32 %ntid; mov.u32 %r1, %ntid.x;"},
    ],
    "variables": [
        {"head": ".shared .align 3 .b8 s[64];"},
        {"head": ".shared .b8 s[0];"},
        {"head": ".global .b8 s[];"},
        {"head": ".global .pred s;"},
        {"head": ".global .v4 .b64 s;"},
        {"head": ".local .b8 s[4];"},
        {"head": ".const .b8 s[65537];"},
        {"head": ".global .b32 k;"},
        {"body": ".reg .bf16 x;"},
        {"body": ".reg .v4 .pred x;"},
        {"body": ".visible .shared .b32 x;"},
    ],
    "initial values": [
        {"head": ".shared .b32 s = 1;"},
        {"head": ".global .b8 s[2] = {1, 2, 3};"},
        {"head": ".global .f32 s[2] = {1, 2};"},
        {"head": ".global .u16 s = 1.0;"},
        {"head": ".global .f16 s = 1.0;"},
        {"head": ".global .b32 s[2][2] = {1, 2, 3, 4};"},
        {"head": ".global .b32 v; .global .b64 s = v;"},
        {"head": ".shared .b32 v; .global .u64 s = v;"},
        *(
            {"head": f".global .u32 v; .global .u64 w = {value};"}
            for value in (
                "(v)",
                "v-4",
                "4+v",
                "-v",
                "v[1]",
                "v*2",
                "v+1.0",
                "generic(v+4)",
                "0x80(v)",
                "0xff(v)+1",
                "-1(v)",
                "08",
                "1u",
                "1_0",
                "1 2",
                "0x",
                "7/0",
                "-0f3f800000",
            )
        ),
        *({"head": f".global .b32 w = {value};"} for value in ("0f3f80", "1.0e400", "1e-310", "1.0*2", "-0f3f800000")),
        {"head": DOUBLED + ".global .u64 w = f+4;"},
    ],
    "constants": [
        {"body": "mov.f64 %rd1, 1.0e400;"},
        {"body": "mov.f32 %f1, 1e-310;"},
        {"head": ".shared .align 4294967296 .b8 a[8];"},
        {"body": ".reg .b32 WARP_SZ;"},
        {"body": "WARP_SZ: ret;"},
    ],
    "directives of bodies": [
        {"body": ".maxntid 3"},
        {"body": ".section .debug_str { .b8 1 }"},
        {"body": ".branchtargets A; A:"},
        {"body": "targets: .branchtargets; A:"},
        {"body": "pr: .callprototype ();"},
        {"body": "pr: .callprototype (.reg .b32 _) _ (.reg .b32 _) .noreturn;"},
        {"body": '.pragma "a"'},
        {"body": "bra A+4; A:"},
        {"body": "mov.v2.b32 {%r1, %r2}, {%r3+1, %r4};"},
        {"body": "cvt.pack.sat.s16.s32 %r1, %r2, %tid.x;"},
        {"body": ".reg .align 3 .b32 x;"},
    ],
    "parameters": [
        {"parameters": ".param .u64 .ptr .align 16 .global a"},
        {"parameters": ".param .u64 .ptr .param a"},
        {"parameters": ".param .f16x2 a"},
        {"parameters": ".param .b8 a[2][3]"},
        {"body": ".shared .b8 .align 8 a[8];"},
    ],
    "functions": [
        {"head": ".func f() .maxntid 32 { ret; }"},
        {"head": '.func f() .pragma "nounroll"; { ret; }'},
        {"head": ".func f() .noreturn .noreturn { ret; }"},
        {"directives": ".pragma nounroll;"},
        {"directives": ".unified"},
        {"head": ".global .u64 s = nothing;"},
    ],
    "kernels": [
        {"parameters": ".param .pred a"},
        {"parameters": ".param .v2 .f32 a"},
        {"parameters": ".param .u64 .ptr .global .align 3 a"},
        {"parameters": ".param .align 8 .b8 a[32768]"},
        {"parameters": ".reg .u64 a"},
        {"parameters": ".param .u64 a", "body": "st.param.u64 [a], %rd1;"},
        {"directives": ".reqntid 0, 1, 1"},
        {"directives": ".maxntid 1, 2, 3, 4"},
        {"directives": ".maxntid 64 .reqntid 64"},
        {"directives": ".maxclusterrank 8 .reqnctapercluster 2"},
        {"options": ", map_f64_to_f32"},
        {"size": "32"},
        {"body": ";;"},
    ],
}
"""Parts of kernels that ptxas refuses."""


def module(*, head="", parameters="", directives="", body="", options="", size="64"):  # type: ignore[no-untyped-def]
    return f""".version 8.8
.target sm_90a{options}
.address_size {size}
{head}
.visible .entry k({parameters}) {directives}
{{
{REGISTERS}
{body}
ret;
}}
"""


def ptxas_takes(text: str) -> bool:
    ptxas = find_ptxas()
    assert ptxas is not None
    command = [ptxas, "-arch=sm_90a", "-O0", "/dev/stdin", "-o", "/dev/null"]
    return subprocess.run(command, input=text, capture_output=True, text=True).returncode == 0


@pytest.mark.parametrize("part", TAKEN)
def test_what_ptxas_takes_is_taken(part: dict[str, str]) -> None:
    assert asm.verify(asm.parse(module(**part))) == []


@pytest.mark.parametrize("group", REFUSED)
def test_what_ptxas_refuses_is_refused(group: str) -> None:
    for part in REFUSED[group]:
        with pytest.raises((VerificationError, PtxSyntaxError)):
            asm.check(asm.parse(module(**part)))


@pytest.mark.full
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")
def test_ptxas_agrees() -> None:
    assert [part for part in TAKEN if not ptxas_takes(module(**part))] == []
    assert [part for parts in REFUSED.values() for part in parts if ptxas_takes(module(**part))] == []


def test_a_wrong_call_is_shown_at_its_line() -> None:
    (found,) = asm.verify(asm.parse(module(head=DOUBLED, body="call (%r1), f, ();")))
    assert (found.code, found.where.line, found.expected) == ("wrong-operands", 8, "1")  # type: ignore[union-attr]
