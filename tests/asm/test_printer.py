"""Tree to text: reading it back gives the same tree, for foreign texts and for any tree at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.asm.ptx_texts import FOREIGN, kernel
from warploom import asm
from warploom.asm.nodes import (
    Address,
    Block,
    Comment,
    Directive,
    Float,
    Function,
    Group,
    Guard,
    Instruction,
    Integer,
    Label,
    LocDirective,
    Module,
    Pair,
    Register,
    RegisterDeclaration,
    Sink,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
    walk,
)
from warploom.asm.printer import to_text
from warploom.errors import PtxSyntaxError, SourceLocation


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_foreign_text_comes_back_as_the_same_tree(path):
    module = asm.parse(path.read_text(), path.name)
    text = module.to_text()
    assert asm.parse(text) == module
    assert asm.parse(text).to_text() == text


# -- trees of every shape ----------------------------------------------------------------------------------------

plain_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_$]{1,5}|[%$][A-Za-z0-9_$]{1,5}", fullmatch=True).filter(
    lambda name: name != "WARP_SZ"
)
names = plain_names | st.sampled_from(["a b", "f(int)", "x::y"])
offsets = st.integers(-(2**31), 2**31)
registers = st.builds(Register, names) | st.sampled_from([Register("%tid.x"), Register("%laneid")])
integers = st.builds(Integer, st.integers(-(2**63), 2**64 - 1))
floats = st.builds(Float, st.integers(0, 2**32 - 1), st.just(32)) | st.builds(
    Float, st.integers(0, 2**64 - 1), st.just(64)
)
symbols = st.builds(Symbol, names, offsets.filter(bool))
addresses = st.builds(Address, st.builds(Register, names) | st.builds(Integer, st.integers(0, 2**32)), offsets)
numbered_addresses = addresses.map(lambda found: replace(found, offset=0) if isinstance(found.base, Integer) else found)
scalars = registers | integers | floats | st.just(Sink())
negated = st.builds(Register, plain_names, st.just(True))
vectors = st.builds(Vector, st.lists(scalars, min_size=1, max_size=4).map(tuple))
tensor_addresses = st.builds(
    TensorAddress, numbered_addresses, st.lists(registers | integers, min_size=1, max_size=5).map(tuple)
)
pairs = st.builds(Pair, registers, registers | st.just(Sink()))
operands = (
    scalars | negated | symbols | numbered_addresses | vectors | tensor_addresses | pairs | st.just(Register("%r1.h0"))
)
opcodes = st.sampled_from(
    ["add.f32", "ld.global.L1::no_allocate.v4.f32", "bar.sync", "ret", "unheard.of::thing.m64n8k16"]
)
guards = st.none() | st.builds(Guard, names, st.booleans())
groups = st.builds(Group, st.lists(scalars, max_size=3).map(tuple))
instructions = st.builds(Instruction, opcodes, st.lists(operands, max_size=4).map(tuple), guards) | st.builds(
    Instruction, st.just("call.uni"), st.tuples(groups, registers, groups), guards
)
types = st.sampled_from(["b32", "f32", "u64", "pred", "b8"])
register_declarations = st.builds(
    RegisterDeclaration,
    types,
    st.lists(names, min_size=1, max_size=3).map(tuple),
    vector=st.sampled_from([None, "v2", "v4"]),
) | st.builds(RegisterDeclaration, types, st.tuples(names), st.integers(0, 10**9))
variables = st.builds(
    Variable,
    st.sampled_from(["shared", "global", "local", "const", "param"]),
    types,
    names,
    st.lists(st.integers(-1, 4096), max_size=3).map(tuple),
    st.none() | st.sampled_from([1, 16, 1024]),
    st.sampled_from(["", "extern", "visible", "weak", "common"]),
    st.sampled_from(["", "3", "{1, 2}", "{{0f3F800000, 1.0}, {message}}"]),
    st.sampled_from([(), (".v4",), (".attribute(.managed)",)]),
)
parameters = st.builds(
    Variable,
    st.just("param"),
    types,
    names,
    st.lists(st.integers(1, 4096), max_size=1).map(tuple),
    st.none() | st.just(64),
    attributes=st.sampled_from([(), (".ptr",), (".ptr", ".global", ".align 16")]),
)
labels = st.builds(Label, names).map(lambda label: (label,))
directives = st.just((Directive("pragma", '"nounroll"'),)) | st.builds(
    lambda name, table: (Label(name), table),
    names,
    st.sampled_from(
        [
            Directive("branchtargets", "A, B"),
            Directive("calltargets", "f"),
            Directive("callprototype", "(.param .b32 _) _ (.param .b64 _)"),
            Directive("callprototype", "_ (.param .b64 _) .noreturn"),
        ]
    ),
)
locs = st.builds(
    LocDirective,
    st.integers(0, 9),
    st.integers(0, 10**6),
    st.integers(0, 200),
    st.sampled_from(["", ", function_name info, inlined_at 1 20 5"]),
)
leaves = labels | directives | (instructions | register_declarations | variables | locs).map(lambda leaf: (leaf,))


def bodies(statements, most):
    """A table stands behind its label, so that statements come one or two at once."""
    return st.lists(statements, max_size=most).map(lambda found: tuple(chain.from_iterable(found)))


statements = st.recursive(
    leaves, lambda inner: st.builds(Block, bodies(inner, 4)).map(lambda block: (block,)), max_leaves=12
)
functions = st.builds(
    Function,
    st.just("entry"),
    names,
    st.lists(parameters, max_size=3).map(tuple),
    linkage=st.sampled_from(["", "visible", "weak"]),
    directives=st.sampled_from(
        [(), (Directive("maxntid", "384, 1, 1"), Directive("explicitcluster")), (Directive("pragma", '"x", "y"'),)]
    ),
    body=st.none() | bodies(statements, 8),
) | st.builds(
    Function,
    st.just("func"),
    names,
    st.lists(parameters, max_size=2).map(tuple),
    st.lists(parameters, max_size=1).map(tuple),
    body=st.none() | bodies(statements, 4),
)
module_items = (
    functions
    | variables
    | st.sampled_from(
        [
            Directive("file", '1 "kernels/a b.py"'),
            Directive("file", '2 "b.py", 12, 13'),
            Directive("section", ".debug_str\n{\ninfo:\n.b8 95,0\n}"),
            Directive("alias", "f, g"),
        ]
    )
)
modules = st.builds(
    Module,
    st.tuples(st.integers(1, 99), st.integers(0, 9)),
    st.sampled_from([("sm_90a",), ("sm_80", "debug")]),
    st.sampled_from([None, 32, 64]),
    st.lists(module_items, max_size=5).map(tuple),
)


@settings(max_examples=50)
@given(modules)
def test_any_tree_comes_back(module):
    assert asm.parse(module.to_text()) == module


@settings(max_examples=50)
@given(modules, st.floats(0, 1))
def test_any_text_cut_anywhere_parses_or_is_a_syntax_error(module, where):
    text = module.to_text()
    cut = text[: int(where * len(text))]
    try:
        asm.parse(cut)
    except PtxSyntaxError as error:
        assert error.where.line <= cut.count("\n") + 1


# -- spelling ----------------------------------------------------------------------------------------------------


def test_constants_print_as_they_were_written_and_new_ones_in_hexadecimal_bits():
    text = kernel("    mov.u32 %r1, 0x10;\n    mov.f32 %f1, 1.0;")
    assert "mov.u32 %r1, 0x10;" in asm.parse(text).to_text()
    instruction = Instruction("mov.f32", (Register("%f1"), Float(0x3F800000, 32)))
    printed = Module((8, 7), ("sm_90a",), items=(Function("entry", "k", body=(instruction,)),)).to_text()
    assert "    mov.f32 %f1, 0f3F800000;\n" in printed


def test_a_comment_is_printed_and_forgotten_by_the_parser():
    body = (Comment("the producer\nfills the ring"), Instruction("ret"))
    module = Module((8, 7), ("sm_90a",), items=(Function("entry", "k", body=body),))
    assert "    // the producer\n    // fills the ring\n    ret;\n" in module.to_text()
    assert asm.parse(module.to_text()).entries[0].body == (Instruction("ret"),)


# -- line information --------------------------------------------------------------------------------------------


def at(line: int, file: str = "warploom/kernels/a.py") -> Instruction:
    return Instruction("ret", location=SourceLocation(file, line, 4))


def test_line_information_comes_from_the_locations():
    module = Module((8, 7), ("sm_90a",), items=(Function("entry", "k", body=(at(3), at(3), at(5), at(1, "b.py"))),))
    text = to_text(module, line_info=True)
    assert '.file 1 "warploom/kernels/a.py"\n.file 2 "b.py"\n' in text
    assert [line.strip() for line in text.splitlines() if ".loc" in line] == [".loc 1 3 4", ".loc 1 5 4", ".loc 2 1 4"]
    again = asm.parse(text).entries[0]
    found = [statement.location for statement in walk(again.body) if isinstance(statement, Instruction)]
    assert found == [statement.location for statement in module.entries[0].body]


def test_line_information_keeps_what_the_tree_already_says():
    text = kernel("    .loc 1 7 0\n    mov.u32 %r1, 0;") + '.file 1 "a.py"\n'
    module = asm.parse(text)
    assert to_text(module, line_info=True) == to_text(module)


def test_without_being_asked_no_line_information_is_added():
    module = Module((8, 7), ("sm_90a",), items=(Function("entry", "k", body=(at(3),)),))
    assert ".loc" not in module.to_text() and ".file" not in module.to_text()
