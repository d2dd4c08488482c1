"""Names, hover and completion: the server's answers, without the protocol."""

from __future__ import annotations

from warploom.editor.completion import complete
from warploom.editor.hover import hover
from warploom.editor.names import names_of
from warploom.editor.reading import read

TEXT = """.version 8.0
.target sm_80
.address_size 64
.shared .align 16 .b8 tile[1024];
.visible .entry first(.param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
LOOP:
  mov.u32 %r10, %tid.x;
  {
    .reg .b32 %r1;
    mov.u32 %r1, tile;
    add.u32 %r10, %r1, %r2;
  }
  setp.lt.u32 %p1, %r1, 4;
  @%p1 bra LOOP;
  ret;
}
.visible .entry second(.param .u64 out)
{
  .reg .b32 %r<2>;
  bra DONE;
DONE:
  mov.u32 %r1, 0;
  wgmma.fence.sync.aligned;
}
"""


def declared_at(use: str, nth: int = 0) -> tuple[str, int] | None:
    """The declaration, and its line, of the nth word of the text that is spelled so."""
    names = names_of(read(TEXT).tokens)
    at = -1
    for _ in range(nth + 1):
        at = TEXT.index(use, at + 1)
    found = names.at(at)
    return None if found is None else (found.text, names.tokens.line(found.token))


def said_of(word: str, text: str = TEXT) -> str:
    reading = read(text)
    found = hover(reading, names_of(reading.tokens), text.index(word) + 1)
    assert found is not None
    return found[2]


def proposed(typed: str, before: str = "mov.u32 %r1, 0;\n") -> set[str]:
    """What is proposed after text typed into the second kernel."""
    at = TEXT.rindex(before) + len(before)
    text = TEXT[:at] + typed + "\n" + TEXT[at:]
    return {each.text for each in complete(text, names_of(read(text).tokens), at + len(typed))}


def test_a_numbered_register_is_declared_by_its_range() -> None:
    assert declared_at("%r10,") == (".reg .b32 %r<12>", 8)


def test_a_register_of_an_inner_block_hides_the_one_outside() -> None:
    assert declared_at("%r1, tile") == (".reg .b32 %r1", 14)
    assert declared_at("%r1, 4") == (".reg .b32 %r<12>", 8)


def test_a_label_may_come_late_and_belongs_to_its_function() -> None:
    assert declared_at("DONE;") == ("DONE:", 26)
    assert declared_at("LOOP;") == ("LOOP:", 11)


def test_each_kernel_has_its_own_parameters() -> None:
    assert declared_at("out]") == (".param .u64 out", 5)
    assert declared_at("tile;") == (".shared .align 16 .b8 tile[1024]", 4)


def test_hover_over_an_opcode_gives_operands_types_target_and_section() -> None:
    said = said_of("setp.lt")
    assert "| `a` | .u32 | read | `%r1` |" in said
    assert "sm_50" in said and "PTX ISA 9.7.6.2" in said


def test_hover_says_that_the_target_lacks_an_instruction() -> None:
    assert "the target sm_80 lacks it" in said_of("wgmma.fence")
    assert "lacks" not in said_of("wgmma.fence", TEXT.replace("sm_80", "sm_90a"))


def test_hover_over_names_gives_their_declarations() -> None:
    assert ".reg .b32 %r<12>" in said_of("%r10,")
    assert "thread index" in said_of("%tid.x")
    assert "not declared" in said_of("%r99", TEXT.replace("ret;", "mov.u32 %r1, %r99;\n ret;"))


def test_hover_over_half_an_opcode_gives_its_forms() -> None:
    assert "```\nwgmma.fence.sync.aligned" in said_of("wgmma.fe", TEXT.replace("wgmma.fence.sync.aligned", "wgmma.fe"))


def test_opcodes_and_then_their_modifiers_are_proposed() -> None:
    assert {"mul", "mul24", "multimem"} & proposed("mul") >= {"mul", "mul24"}
    assert proposed("cp.async.") >= {"bulk", "ca", "cg", "commit_group", "wait_group", "mbarrier"}
    assert proposed("fma.r") == {"rn", "rz", "rm", "rp"}
    assert proposed("@%p1 setp.g") >= {"gt", "ge"}


def test_names_that_are_visible_are_proposed_as_operands() -> None:
    assert {"%r1", "%r0"} & proposed("add.u32 %r1, %r") and "%rd1" not in proposed("add.u32 %r1, %r")
    assert proposed("bra ") == {"DONE"}
    assert "out" in proposed("ld.param.u64 %r1, [") and "tile" in proposed("mov.u32 %r1, ti")
    assert proposed("mov.u32 %r1, %tid.") == {"%tid.x", "%tid.y", "%tid.z", "%tid.w"}


def test_a_guard_proposes_predicates_only() -> None:
    at = TEXT.index("@%p1") + 1
    assert {each.text for each in complete(TEXT, names_of(read(TEXT).tokens), at)} == {"%p1"}
