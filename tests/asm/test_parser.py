"""PTX text to tree: what each construct becomes, and where an error points."""

from __future__ import annotations

import struct

import pytest

from tests.asm.ptx_texts import FOREIGN, kernel
from tests.errors import refused
from warploom import asm
from warploom.asm.nodes import (
    Address,
    Block,
    Directive,
    Float,
    Function,
    Group,
    Guard,
    Instruction,
    Integer,
    Label,
    LocDirective,
    Pair,
    Register,
    RegisterDeclaration,
    Sink,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)
from warploom.errors import PtxSyntaxError, SourceLocation, VerificationError

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def body_of(text: str) -> tuple:
    """The statements of a kernel with this body."""
    (entry,) = asm.parse(f"{HEAD}.entry k() {{ {text} }}").entries
    return entry.body


def instruction(text: str) -> Instruction:
    (found,) = body_of(text)
    return found


def operand(text: str):
    return instruction(f"op.b32 {text};").operands[0]


def items(text: str) -> tuple:
    return asm.parse(HEAD + text).items


# -- operands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        ("%r1", Register("%r1")),
        ("%tid.x", Register("%tid.x")),
        ("name", Register("name")),
        ("!%p1", Register("%p1", negated=True)),
        ("_", Sink()),
        ("smem+16", Symbol("smem", 16)),
        ("smem+-16", Symbol("smem", -16)),
        ("[%rd1]", Address(Register("%rd1"))),
        ("[%rd1+-8]", Address(Register("%rd1"), -8)),
        ("[%rd1 + 4*2]", Address(Register("%rd1"), 8)),
        ("[smem+0x10]", Address(Register("smem"), 16)),
        ("[64]", Address(Integer(64))),
        ("[%rd1+4].unified", Address(Register("%rd1"), 4, unified=True)),
        ("{%f1, _}", Vector((Register("%f1"), Sink()))),
        ("%p1|%p2", Pair(Register("%p1"), Register("%p2"))),
        ("%r1 | _", Pair(Register("%r1"), Sink())),
        ("[%rd1, {%r1, 0}]", TensorAddress(Address(Register("%rd1")), (Register("%r1"), Integer(0)))),
        ("[map+64, {%r1}]", TensorAddress(Address(Register("map"), 64), (Register("%r1"),))),
        ("%r1.h10", Register("%r1.h10")),
        (
            "[texture, sampler, {%f1, %f2}]",
            TensorAddress(Address(Register("texture")), (Register("%f1"), Register("%f2")), Register("sampler")),
        ),
    ],
)
def test_an_operand_becomes_its_node(text, expected):
    assert operand(text) == expected


@pytest.mark.parametrize(
    "text, value",
    [
        ("12", 12), ("12U", 12), ("-5", -5), ("0x1F", 31), ("0X1fU", 31), ("0b101", 5), ("017", 15), ("0", 0),
        ("0xFFFFFFFFFFFFFFFF", 2**64 - 1), ("WARP_SZ", 32), ("2+3*4", 14), ("(2+3)*4", 20), ("1<<4|1", 17),
        ("-7/2", -3), ("~0", -1), ("8 % 3", 2), ("-(2+3)", -5), ("2*!0", 2),
        ("(.u64)-1 >> 63", 1), ("(.s64)0xFFFFFFFFFFFFFFFF", -1), ("1 ? 2 : 3", 2), ("0 ? 2 : 0 ? 3 : 4", 4),
        ("2 < 1", 0), ("1 < 2 == 1", 1), ("1 & 3 == 3", 1), ("1 || 0 && 0", 1), ("7 && 9", 1), ("1 << 2 <= 4", 1),
        ("3 != 3", 0), ("-1 < 1U", 0), ("-7 % 3", 0), ("~0 / 2", 2**63 - 1), ("-1 >> 1", -1), ("1U - 2 > 0", 1),
    ],
)  # fmt: skip
def test_integer_constants_follow_c(text, value):
    assert operand(text) == Integer(value)


@pytest.mark.parametrize(
    "text, value, bits",
    [
        ("0f3F800000", 1.0, 32),
        ("0d3FF0000000000000", 1.0, 64),
        ("1.5", 1.5, 64),
        ("-1.5e3", -1500.0, 64),
        ("-0d0000000000000000", -0.0, 64),
        ("(1.0 + 2.0) * 2.0", 6.0, 64),
    ],
)
def test_floating_point_constants_keep_their_bits(text, value, bits):
    packed = struct.pack("<f" if bits == 32 else "<d", value)
    assert operand(text) == Float(int.from_bytes(packed, "little"), bits)


def test_a_constant_keeps_its_spelling():
    assert operand("0x10").text == "0x10"


# -- statements --------------------------------------------------------------------------------------------------


def test_an_instruction_has_guard_opcode_and_operands():
    found = instruction("@!%p1 mad.lo.s32 %r1, %r2, 4, %r3;")
    assert found.guard == Guard("%p1", negated=True)
    assert found.opcode == "mad.lo.s32"
    assert found.operands == (Register("%r1"), Register("%r2"), Integer(4), Register("%r3"))


def test_an_opcode_may_have_blanks_before_its_dots():
    assert instruction("ld .global .f32 %f1, [%rd1];").opcode == "ld.global.f32"


def test_modifiers_with_colons_belong_to_the_opcode():
    text = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];"
    )
    assert instruction(text).modifiers[-1] == "mbarrier::complete_tx::bytes"


def test_an_unknown_opcode_is_read_like_any_other():
    found = instruction("frobnicate.v9.q7 {%r1, _}, [%rd1+4], %p1|%p2, 0x10;")
    assert found.opcode == "frobnicate.v9.q7"
    assert len(found.operands) == 4


def test_several_statements_may_share_a_line_and_one_may_span_lines():
    found = body_of("A: mov.u32 %r1, 0; B:\nadd.u32\n %r1,\n %r1, 1; bra A;")
    assert [type(statement) for statement in found] == [Label, Instruction, Label, Instruction, Instruction]


def test_comments_end_at_the_first_end_mark_as_in_c():
    assert len(body_of("/* a /* b */ ret; // c /* d\n ret; /* \n; */")) == 2


def test_inline_assembly_is_a_block_with_its_own_names():
    (block,) = body_of("// begin inline asm\n{ .reg .pred p; setp.ne.u32 p, %r1, 0; }\n// end inline asm\n")
    assert isinstance(block, Block)
    assert block.statements[0] == RegisterDeclaration("pred", ("p",))


def test_register_declarations_keep_their_counts():
    found = body_of(".reg .f32 %f<16>; .reg .pred p, q; .reg .b32 a<2>, b; .reg .v4 .f32 v;")
    assert found == (
        RegisterDeclaration("f32", ("%f",), 16),
        RegisterDeclaration("pred", ("p", "q")),
        RegisterDeclaration("b32", ("a",), 2),
        RegisterDeclaration("b32", ("b",)),
        RegisterDeclaration("f32", ("v",), None, "v4"),
    )


def test_a_call_groups_its_arguments():
    found = instruction("call.uni (result), printf, (a, 2), prototype;")
    assert found.operands == (
        Group((Register("result"),)),
        Register("printf"),
        Group((Register("a"), Integer(2))),
        Register("prototype"),
    )
    assert instruction("call f, ();").operands == (Register("f"), Group(()))


def test_branch_targets_and_prototypes_keep_their_text():
    found = body_of('t: .branchtargets A, B; p: .callprototype (.param .b32 _) _ (.param .b64 _); .pragma "nounroll";')
    assert [statement for statement in found if isinstance(statement, Directive)] == [
        Directive("branchtargets", "A, B"),
        Directive("callprototype", "(.param .b32 _) _ (.param .b64 _)"),
        Directive("pragma", '"nounroll"'),
    ]


# -- modules -----------------------------------------------------------------------------------------------------


def test_variables_have_space_alignment_dimensions_and_initializer():
    found = items(
        ".extern .shared .align 16 .b8 dynamic[];"
        ".visible .global .align 4 .v4 .f32 table[2][3] = {{1.0, 2.0}, {0}};"
        ".const .u64 one = 1, two = 2;"
        ".global .attribute(.managed) .s32 managed;"
    )
    assert found == (
        Variable("shared", "b8", "dynamic", (-1,), 16, "extern"),
        Variable("global", "f32", "table", (2, 3), 4, "visible", "{{1.0, 2.0}, {0}}", (".v4",)),
        Variable("const", "u64", "one", initializer="1"),
        Variable("const", "u64", "two", initializer="2"),
        Variable("global", "s32", "managed", attributes=(".attribute(.managed)",)),
    )


def test_a_kernel_has_parameters_directives_and_body():
    (kernel_,) = items(
        ".visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 64 .b8 map[128])\n"
        ".maxntid 384, 1, 1\n.minnctapersm 1 .reqnctapercluster 2, 1, 1 .explicitcluster "
        ".maxclusterrank 4 .maxnreg 64\n"
        '.pragma "nounroll"; { ret; }'
    )
    assert kernel_.parameters == (
        Variable("param", "u64", "p", attributes=(".ptr", ".global", ".align 16")),
        Variable("param", "b8", "map", (128,), 64),
    )
    assert kernel_.directive("maxntid") == (384, 1, 1)
    assert kernel_.directive("reqnctapercluster") == (2, 1, 1)
    assert kernel_.directive("explicitcluster") == ()
    assert kernel_.directive("maxclusterrank") == (4,)
    assert kernel_.directive("reqntid") is None


def test_sizes_of_a_kernel_may_be_spelled_as_any_integer():
    (kernel_,) = items(".entry k() .maxntid WARP_SZ, 010, 1U { ret; }")
    assert kernel_.directive("maxntid") == (32, 8, 1)


def test_a_prototype_has_results_and_no_body():
    (found,) = items(".extern .func (.param .b32 result) vprintf (.param .b64 a, .param .b64 b) .noreturn ;")
    assert isinstance(found, Function)
    assert found.body is None
    assert (found.kind, found.name, found.linkage) == ("func", "vprintf", "extern")
    assert [result.name for result in found.results] == ["result"]


def test_quoted_names_lose_their_quotes():
    module = asm.parse(HEAD + '.visible .entry "a b"() { "L 1": bra "L 1"; }')
    assert module.entries[0].name == "a b"
    assert module.entries[0].body == (Label("L 1"), Instruction("bra", (Register("L 1"),)))
    assert asm.parse(module.to_text()) == module


def test_sections_keep_their_data():
    (section,) = items(".section .debug_str\n{\ninfo: .b8 95, 90 // name\n.b8 0\n}")
    assert section.name == "section"
    assert section.text.startswith(".debug_str") and ".b8 95, 90" in section.text


# -- locations ---------------------------------------------------------------------------------------------------


def test_an_instruction_knows_the_loc_line_and_its_ptx_line():
    module = asm.parse(
        HEAD + ".entry k() {\nret;\n.loc 1 20 5\nret;\n.loc 7 1 1\nret;\n"
        ".loc 1 9 3, function_name $L__info+16, inlined_at 1 20 5\nret; }\n"
        '.file 1 "kernel.py"',
        "text.ptx",
    )
    first, _, second, _, unknown_file, loc, inlined = module.entries[0].body
    assert (first.location, first.ptx_line) == (SourceLocation("text.ptx", 5), 5)
    assert (second.location, second.ptx_line) == (SourceLocation("kernel.py", 20, 5), 7)
    assert unknown_file.location == SourceLocation("text.ptx", 9)
    assert loc == LocDirective(1, 9, 3, ", function_name $L__info+16, inlined_at 1 20 5")
    assert inlined.location == SourceLocation("kernel.py", 20, 5, ("kernel.py:9:3",)), "the caller comes first"
    assert module.files == {1: "kernel.py"}


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, line, column, got",
    [
        ("", 1, 1, "the end of the text"),
        (".version 8.7\n.entry k() {}", 2, 1, "`.entry`"),
        (".version eight", 1, 10, "`eight`"),
        (HEAD + ".entry k() {\n  add.u32 %r1, %r2\n  ret;\n}", 5, 19, "the end of the line"),
        (HEAD + ".entry k() {\n  add.u32 %r1, %r2 %r3;\n}", 5, 20, "`%r3`"),
        (HEAD + ".entry k() {\n  add.u32 %r1, , %r3;\n}", 5, 16, "`,`"),
        (HEAD + ".entry k() {\n  ld.u32 %r1, [%r2;\n}", 5, 19, "`;`"),
        (HEAD + ".entry k() {\n  mov.u32 %r1, 0xZZ;\n}", 5, 16, "`0xZZ`"),
        (HEAD + ".entry k() {\n  mov.u32 %r1, 0f3F80;\n}", 5, 16, "`0f3F80`"),
        (HEAD + ".entry k() {\n  mov.u64 %r1, 0x80000000000000000;\n}", 5, 16, "`0x80000000000000000`"),
        (HEAD + ".entry k() {\n  mov.u32 %r1, 1/0;\n}", 5, 17, "`/`"),
        (HEAD + ".entry k() {\n  .reg .q32 %r1;\n}", 5, 8, "`.q32`"),
        (HEAD + ".entry k() {\n  @%p1;\n}", 5, 7, "`;`"),
        (HEAD + ".entry k() {\n  ret;\n", 6, 1, "the end of the text"),
        (HEAD + ".entry k() { ret; } /* open", 4, 21, None),
        (HEAD + '.file 1 "open', 4, 9, None),
        (HEAD + ".entry k() { ret; } §", 4, 21, None),
        (HEAD + "ret;", 4, 1, "`ret`"),
    ],
)
def test_an_error_names_line_and_column(text, line, column, got):
    with refused("ptx-syntax", got) as caught:
        asm.parse(text, "text.ptx")
    assert caught.value.where == SourceLocation("text.ptx", line, column)


@pytest.mark.parametrize("opening, closing", [("{", "}"), ("mov.b32 %r1, ", "")])
def test_deep_nesting_is_an_error_not_a_crash(opening, closing):
    inside = opening * 5000 + closing * 5000 if closing else opening + "-(" * 5000 + "1" + ")" * 5000 + ";"
    with refused("ptx-syntax"):
        asm.parse(kernel(inside))


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_text_cut_short_is_refused_in_words(path):
    text = path.read_text()
    step = max(1, len(text) // 40)
    for end in range(0, len(text) - 2, step):
        with_cut = text[:end]
        try:
            asm.check(asm.parse(with_cut, "cut.ptx"))
        except (PtxSyntaxError, VerificationError) as error:
            assert str(error)
        else:  # the cut fell outside every body
            assert with_cut.count("{") == with_cut.count("}")


def test_a_kernel_cut_in_half_is_a_syntax_error():
    text = kernel("    mov.u32 %r1, %tid.x;\n    add.u32 %r1, %r1, 1;\n    mov.b32 %r2, {%h1, %h2};")
    start = text.index("{\n") + 1
    for end in range(start, text.rindex("}")):
        with pytest.raises(PtxSyntaxError):
            asm.parse(text[:end])


@pytest.mark.parametrize("number", ["0f437C0p00", "0d3FF000000000000p", "0f3F_80000", "0x1_0"])
def test_what_only_looks_like_a_number_is_refused(number: str) -> None:
    head = ".version 8.7\n.target sm_90a\n.address_size 64\n"
    text = f"{head}.visible .entry k()\n{{\n.reg .f32 %f<2>;\nmov.f32 %f1, {number};\nret;\n}}\n"
    with pytest.raises(PtxSyntaxError):
        asm.parse(text)


def test_a_chain_of_inlined_calls_leads_to_the_author_s_line() -> None:
    text = (
        HEAD + '.file 1 "kernel.py"\n.file 2 "library.py"\n.entry k() {\n.loc 1 7 1\nret;\n'
        ".loc 2 50 2, function_name $L+0, inlined_at 1 7 1\nret;\n"
        ".loc 2 90 3, function_name $L+8, inlined_at 2 50 2\nret; }\n"
    )
    code = [one for one in asm.parse(text).entries[0].body if isinstance(one, Instruction)]
    assert [str(one.location) for one in code] == [
        "kernel.py:7:1", "kernel.py:7:1 (inlined library.py:50:2)",
        "kernel.py:7:1 (inlined library.py:50:2, library.py:90:3)",
    ]  # fmt: skip


def test_a_long_chain_of_inlined_calls_is_named_by_its_ends_without_folders() -> None:
    chain = tuple(f"/usr/include/cccl/file{number}.h:{number}:5" for number in range(1, 8))
    place = SourceLocation("kernel.cu", 7, 1, chain)
    assert str(place) == "kernel.cu:7:1 (inlined file1.h:1:5, file2.h:2:5, 4 more, file7.h:7:5)"
