"""The verifier's errors, and that there are none in texts that assemble."""

from __future__ import annotations

import subprocess

import pytest

from tests.asm.ptx_texts import FOREIGN, kernel
from tests.errors import refused
from tests.isa import examples
from tests.isa.assembling import find_ptxas
from warploom import asm
from warploom.errors import SourceLocation, VerificationError
from warploom.isa import arch
from warploom.isa.instructions import table


def findings(text: str, arch: str | None = None) -> list[VerificationError]:
    return asm.verify(asm.parse(text, "text.ptx"), arch)


def only(text: str, arch: str | None = None) -> VerificationError:
    found = findings(text, arch)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_texts_that_assemble_have_no_finding(path):
    assert findings(path.read_text()) == []


def test_every_example_of_the_instruction_table_has_no_finding():
    every = [example for form in table.FORMS for example in examples.examples(form)]
    for (target, version), group in examples.grouped(every).items():
        text, _ = examples.kernel_text([example.text for example in group], target, version)
        assert [str(finding) for finding in findings(text)] == []


# -- target and version ------------------------------------------------------------------------------------------


def test_sm_90_where_sm_90a_is_needed_is_told_which_target_to_write():
    found = only(kernel("    wgmma.fence.sync.aligned;", target="sm_90"))
    assert "needs sm_90a, the target is sm_90" in found.what
    assert "write sm_90a" in found.hint
    assert found.where == SourceLocation("text.ptx", 14)


@pytest.mark.parametrize(
    "body, target, code, needs",
    [
        ("mapa.shared::cluster.u32 %r1, %r2, 0;", "sm_80", "target-lacks-it", "sm_90"),
        ("cp.async.ca.shared.global [%r1], [%d1], 16;", "sm_75", "target-lacks-it", "sm_80"),
        ("mov.u32 %r1, %cluster_ctarank;", "sm_80", "target-lacks-it", "sm_90"),
        ("ld.global.L2::evict_last.b32 %r1, [%d1];", "sm_90a", "unknown-instruction", "evict_last"),
        ("mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %d1;", "sm_80", "target-lacks-it", "sm_90"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "sm_90", "target-lacks-it", "sm_90a"),
    ],
)
def test_what_the_target_lacks_is_named(body, target, code, needs):
    found = only(kernel("    " + body, target, "8.7"))
    assert found.code == code and needs in found.what


def test_an_instruction_newer_than_the_version_is_named():
    found = only(kernel("    elect.sync _|%p1, -1;", "sm_90", "7.8"))
    assert "needs PTX 8.0, the text says .version 7.8" in found.what


@pytest.mark.parametrize(
    "target, machine, runs",
    [
        ("sm_90a", "sm_90a", True),
        ("sm_80", "sm_90a", True),
        ("sm_90a", "sm_100a", False),
        ("sm_90a", "sm_90", False),
        ("sm_90", "sm_80", False),
        ("sm_100f", "sm_103a", True),
    ],
)
def test_a_text_runs_on_its_own_chip_or_a_later_one_unless_it_is_for_that_chip_only(target, machine, runs):
    found = findings(kernel("", target, "8.8"), machine)
    assert [f"cannot run on {machine}" in finding.what for finding in found] == ([] if runs else [True])


def test_an_unknown_target_is_refused_with_the_known_ones():
    found = findings(kernel("", "sm_12345"))
    assert found[0].code == "target-lacks-it" and "sm_12345" in found[0].what
    assert "sm_90a" in found[0].expected


@pytest.mark.parametrize("version", ["8.9", "8.10", "2.9"])
def test_a_version_that_there_never_was_is_refused_with_those_there_have_been(version):
    found = findings(kernel("    ret;", version=version))[0]
    assert (found.code, found.got) == ("target-lacks-it", f".version {version}") and "7.0 to 7.8" in found.expected


@pytest.mark.parametrize("version", ["9.99", "99.0"])
def test_a_version_after_the_newest_known_is_a_note_and_an_unknown_instruction_still_an_error(version):
    text = kernel("    ret;", version=version)
    assert findings(text) == []
    assert version in asm.newer(asm.parse(text))
    assert asm.newer(asm.parse(kernel("    ret;"))) == ""
    assert [error.code for error in findings(kernel("    novel.b32;", version=version))] == ["unknown-instruction"]


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
def test_the_versions_up_to_that_of_ptxas_are_those_it_takes(tmp_path):
    oldest = arch.get("sm_75").ptx  # of the targets of today's ptxas
    path = tmp_path / "empty.ptx"
    taken = set()
    for version in ((major, minor) for major in range(6, 11) for minor in range(10) if (major, minor) >= oldest):
        path.write_text(f".version {version[0]}.{version[1]}\n.target sm_75\n.address_size 64\n.entry k() {{ ret; }}\n")
        done = subprocess.run(
            [find_ptxas(), "-arch=sm_75", "-o", str(tmp_path / "cubin"), str(path)], capture_output=True
        )
        if done.returncode == 0:
            taken.add(version)
    assert taken == {version for version in arch.PTX_VERSIONS if oldest <= version <= max(taken)}


def test_a_version_that_no_ptxas_here_knows_yet_is_taken():
    assert not asm.verify(asm.parse(kernel("    ret;", version="9.2")))


def test_a_version_older_than_the_target_is_refused():
    assert "PTX 7.8 does not know the target sm_90a" in only(kernel("", "sm_90a", "7.8")).what


# -- instructions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n, allowed", [(8, True), (248, True), (256, True), (250, False), (264, False), (0, False)])
def test_wgmma_takes_multiples_of_eight_up_to_256(n, allowed):
    registers = ", ".join(f"%a{i}" for i in range(n // 2))
    text = kernel(
        f"    .reg .f32 %a<200>;\n    wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16"
        f" {{{registers}}}, %d1, %d2, 1, 1, 1, 0, 0;"
    )
    found = findings(text)
    if allowed:
        assert found == []
    else:
        assert len(found) == 1 and f"multiple of 8 from 8 to 256, and is {n}" in found[0].what


@pytest.mark.parametrize(
    "body, part",
    [
        ("add.s32 %s1, %s2, 1.5;", "floating-point constant where .s32"),
        ("add.s32 %s1, %s2, %f1;", "declared .f32, where .s32"),
        ("add.s32 %s1, %s2;", "3 operands, not 2"),
        ("frobnicate.b32 %r1;", "not a known instruction"),
        ("add.s32 %s1, %s2, %s9;", "'%s9', is not declared"),
        ("add.s32 %s1, %s2, smem;", "`smem` is a variable"),
        ("@%p9 bra DONE; DONE:", "'%p9', is not declared"),
        ("@%r1 bra DONE; DONE:", "not a predicate"),
        ("bra NOWHERE;", "'NOWHERE'"),
        ("bra smem;", "which is a variable"),
        ("bra INNER; { INNER: }", "'INNER'"),
        ("ld.global.b32 %r1, [smem];", "reaches .global memory, `smem` is a .shared variable"),
        ("ld.param.u64 %d1, [unheard];", "'unheard', is not declared"),
        ("ld.shared.b32 %r1, [16];", "constant address"),
        ("mov.u32 %r1, %tid.q;", "%tid.q"),
        ("{ .reg .b32 local; } mov.b32 local, 0;", "'local', is not declared"),
    ],
)
def test_a_wrong_instruction_is_said_in_one_sentence_at_its_line(body, part):
    found = only(kernel(f"    {body}"))
    assert part in found.what
    assert found.where == SourceLocation("text.ptx", 14)


def test_a_typing_mistake_in_a_name_gets_a_hint():
    assert only(kernel("    bra LOOOP; LOOP:")).hint == "did you mean LOOP?"


RIGHT_AND_WRONG = [
    ("add.u32 %r1, %r2, %r3;", "add.u32 %r1, %r2, %f1;"),
    ("add.u32 %r1, %r2, %r3;", "add.u32 %r1, %r2, %nothing;"),
    ("add.u32 %r1, %r2, 3;", "add.u32 %r1, 3, 0f3F800000;"),
    ("add.u32 %r1, %r2, 3;", "add.u32 3, %r2, %r1;"),
    ("@%p1 add.u32 %r1, %r2, %r3;", "@%r1 add.u32 %r1, %r2, %r3;"),
    ("and.pred %p1, %p2, !%p1;", "and.pred !%p1, %p2, %p1;"),
    ("mov.b32 %r1, %tid.x;", "mov.b32 %r1, %tid.q;"),
    ("mov.b64 %d1, {%r1, %r2};", "mov.b64 %d1, {%r1, %r2, %r3};"),
    ("mov.b64 %d1, {%r1, %r2};", "mov.b64 %d1, {%r1, %h1};"),
    ("ld.global.u32 %r1, [%d1+4];", "ld.global.u32 %r1, [%f1+4];"),
    ("ld.global.u32 %r1, [%d1];", "ld.global.u32 %r1, [smem];"),
    ("bra here;", "bra nowhere;"),
]


@pytest.mark.parametrize("right, wrong", RIGHT_AND_WRONG)
def test_a_mistake_is_found_each_time_among_right_instructions_of_the_same_opcode(right: str, wrong: str):
    body = "\n    ".join(("here:", right, wrong, right, wrong, wrong))
    assert [finding.where.line for finding in findings(kernel(body))] == [16, 18, 19]


def test_a_name_is_checked_by_what_it_means_in_its_own_block():
    inner = "    {\n    .reg .f32 %r1;\n    add.u32 %r1, %r2, %r3;\n    }\n    add.u32 %r1, %r2, %r3;"
    assert [finding.where.line for finding in findings(kernel("    add.u32 %r1, %r2, %r3;\n" + inner))] == [17]


def test_inner_blocks_may_use_names_anew():
    assert (
        findings(
            kernel("    { .reg .f32 %r1; add.f32 %r1, %r1, 1.0; } add.s32 %r1, %r1, 1; { A: bra A; } { A: bra A; }")
        )
        == []
    )


def test_the_location_is_the_python_line_where_the_text_has_one():
    text = kernel("    .loc 1 41 8\n    add.s32 %s1, %s2, 1.5;") + '.file 1 "mykernel.py"\n'
    assert only(text).where == SourceLocation("mykernel.py", 41, 8)


def test_findings_come_in_the_order_of_the_text():
    text = kernel("    bra A;\n    add.s32 %s1, %s2, 1.5;\n    bra B;")
    assert [finding.where.line for finding in findings(text)] == [14, 15, 16]


def test_check_raises_the_first_finding():
    module = asm.parse(kernel("    bra A;\n    bra B;"))
    with refused("undeclared-name"):
        asm.check(module)
    assert asm.check(asm.parse(kernel(""))) is None


# -- declarations and limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, name",
    [
        ("L: L:", "L"),
        (".reg .b32 %r3;", "%r3"),
        (".shared .b32 x; .reg .b32 x;", "x"),
        (".reg .b32 pointer;", "pointer"),
    ],
)
def test_a_name_declared_twice_in_one_block_is_found(body, name):
    found = only(kernel("    " + body))
    assert f"{name!r} is declared twice" in found.what


def test_a_kernel_defined_twice_is_found():
    text = kernel("") + ".visible .entry k() { ret; }\n"
    assert "'k' is defined twice" in only(text).what


@pytest.mark.parametrize(
    "directive, target, part",
    [
        (".maxntid 2048, 1, 1", "sm_90a", "2048 threads"),
        (".reqntid 32, 33", "sm_90a", "1056 threads"),
        (".reqnctapercluster 17", "sm_90a", "17 CTAs"),
        (".reqnctapercluster 2", "sm_80", "needs sm_90"),
    ],
)
def test_a_head_that_asks_too_much_is_found(directive, target, part):
    text = kernel("", target).replace("\n{\n", f"\n{directive}\n{{\n")
    assert part in only(text).what


@pytest.mark.parametrize(
    ("body", "function", "refused"),
    [
        ("mov.u32 %r1, a;", "", False),  # as nvcc -rdc=true writes it: the variables of all kernels in front of them
        ("mov.u32 %r1, a;\nst.shared.u32 [b], %r1;", "", True),
        ("mov.u32 %r1, a;\ncall f;", "ld.shared.u32 %r1, [b];", True),
        ("mov.u32 %r1, a;", "ld.shared.u32 %r1, [b];", False),
    ],
)
def test_shared_variables_of_a_module_count_where_they_are_used(body: str, function: str, refused: bool):
    text = (
        ".version 8.4\n.target sm_90\n.address_size 64\n.shared .b8 a[40000];\n.weak .shared .b8 b[40000];\n"
        f".func f()\n{{\n.reg .b32 %r<2>;\n{function}\nret;\n}}\n.entry k()\n{{\n.reg .b32 %r<2>;\n{body}\nret;\n}}\n"
    )
    found = [error.what for error in asm.verify(asm.parse(text))]
    assert found == (["the kernel k declares 80000 bytes of static shared memory"] if refused else [])


def test_too_much_static_shared_memory_is_found():
    assert "49153 bytes" in only(kernel("    .shared .b8 more[49153];")).what


def test_unreasonably_many_registers_are_refused_without_listing_them():
    assert "too many registers" in findings(kernel("    .reg .b32 %many<2000000000>;"))[0].what


def test_a_constant_out_of_range_is_found_behind_one_that_is_in_range():
    text = (
        ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nbar.sync 1;\nbar.sync 16;\nret;\n}\n"
    )
    (error,) = asm.verify(asm.parse(text))
    assert (error.code, error.where.line) == ("immediate-range", 7)


def test_a_label_declared_twice_is_reported_where_it_stands_again():
    head = ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry k()\n"
    text = head + "{\nagain:\n  bar.sync 0;\nagain:\n  ret;\n}\n"
    (problem,) = asm.verify(asm.parse(text))
    assert problem.where.line == 9
