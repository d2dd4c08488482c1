"""The instruction table against ptxas: it accepts every choice of every row, and refuses what the table refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from tests.isa import examples
from tests.isa.assembling import find_ptxas, newest_ptx, refused
from tests.isa.examples import Example, arch_number, first_ptx, needs_of
from warploom import asm
from warploom.emulator.ops import HANDLERS, RUN_BY_THE_CORE, unsupported
from warploom.errors import SourceLocation
from warploom.isa.instructions import nearest, table
from warploom.isa.instructions.nearest import suggest
from warploom.isa.instructions.schema import Form

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
TYPES = (
    "pred b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 "
    "f16 bf16 f32 tf32 f64 f16x2 bf16x2 u16x2 s16x2 e4m3x2 e5m2x2"
).split()


def accepted_by_ptxas(found: Iterable[Example]) -> dict[str, str]:
    """Instructions ptxas refuses, with its message, each tried on the oldest target and version its row names."""
    messages = {}
    known = [example for example in found if example.version <= newest_ptx()]
    for (target, version), group in examples.grouped(known).items():
        for index, message in refused([example.text for example in group], target, version).items():
            messages[f"{group[index].form.key}: {group[index].text} ({target}, PTX {version})"] = message
    return messages


@needs_ptxas
@pytest.mark.parametrize("family", table.FAMILIES, ids=lambda family: family.__name__.split(".")[-1])
def test_ptxas_accepts_every_choice_of_every_row(family):
    found = [example for form in family.FORMS for example in examples.examples(form)]
    assert accepted_by_ptxas(found) == {}


def test_every_row_has_an_example():
    assert [form.key for form in table.FORMS if not examples.examples(form)] == []


def test_row_keys_are_unique():
    keys = [form.key for form in table.FORMS]
    assert sorted(keys) == sorted(set(keys))


def test_every_row_names_its_section():
    assert [form.key for form in table.FORMS if not re.match(r"\d+(\.\d+)+", form.section)] == []


def test_every_example_is_read_by_its_own_row():
    for form in table.FORMS:
        for example in examples.examples(form):
            opcode = example.text.split()[0].rstrip(";")
            assert form in [match.form for match in table.match(opcode)], example.text


def refused_by_verifier(instructions: list[str], target: str, version: tuple[int, int]) -> dict[int, str]:
    """Index of each instruction that `asm.verify` refuses -> its message."""
    text, places = examples.kernel_text(instructions, target, version)
    bad = {}
    for error in asm.verify(asm.parse(text)):
        assert isinstance(error.where, SourceLocation) and error.where.line in places, str(error)
        bad[places[error.where.line]] = str(error)
    return bad


@pytest.mark.parametrize("family", table.FAMILIES, ids=lambda family: family.__name__.split(".")[-1])
def test_the_verifier_accepts_every_choice_of_every_row(family):
    found = [example for form in family.FORMS for example in examples.examples(form)]
    messages = {}
    for (target, version), group in examples.grouped(found).items():
        for index, message in refused_by_verifier([example.text for example in group], target, version).items():
            messages[f"{group[index].form.key}: {group[index].text} ({target}, PTX {version})"] = message
    assert messages == {}


def test_every_row_runs_in_the_emulator_or_is_listed_as_unsupported():
    keys = table.keys()
    assert set(HANDLERS) <= set(keys), "a handler for no row"
    without = set(unsupported(keys))
    assert without.isdisjoint(HANDLERS)
    assert without | set(HANDLERS) | RUN_BY_THE_CORE == set(keys)
    arithmetic = (table.integer, table.floating, table.logic, table.compare, table.convert, table.move)
    assert without.isdisjoint(form.key for family in arithmetic for form in family.FORMS)


# -- mutants -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are compared, not hints, which take their time."""
    monkeypatch.setattr(nearest, "suggest", lambda opcode: "")


def accepted_mutants(mutants: list[tuple[str, str, tuple[int, int]]]) -> list[str]:
    """Of (instruction, target, version), those that ptxas or the verifier (`refused_by_verifier`) accepts."""
    groups: dict[tuple[str, tuple[int, int]], list[str]] = {}
    for text, target, version in mutants:
        groups.setdefault((target, version), []).append(text)
    alive = []
    for (target, version), texts in groups.items():
        for judge in (refused, refused_by_verifier) if version <= newest_ptx() else (refused_by_verifier,):
            bad = judge(texts, target, version)
            accepted = [text for index, text in enumerate(texts) if index not in bad]
            alive += [f"{text} ({target}, PTX {version}: {judge.__name__})" for text in accepted]
    return alive


def first_example(form: Form) -> Example:
    return examples.examples(form)[0]


def opcode_of(text: str) -> str:
    return text.split()[0].rstrip(";")


@needs_ptxas
@pytest.mark.usefixtures("no_suggestions")
def test_an_unknown_modifier_is_refused():
    mutants = []
    for form in table.FORMS:
        example = first_example(form)
        opcode = opcode_of(example.text)
        mutant = f"{opcode}.sometimes"
        assert table.match(mutant) == ()
        mutants.append((mutant + example.text[len(opcode) :], example.target, example.version))
    # Each such error ends ptxas at once, so only some go to it.
    assert accepted_mutants(mutants[::32]) == []


@needs_ptxas
@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("part", range(2))
@pytest.mark.usefixtures("no_suggestions")
def test_a_type_the_table_does_not_list_is_refused(part: int):
    """The table leaves nothing out: another type instead of a row's type is either a row, or illegal.

    The operands keep the registers of the row's own type, and fresh ones of the mutant's type stand in a second try.
    Every 16th of some 6,000 is tried (all were, with ptxas 13.0.88).
    """
    mutants = []
    for form in (
        *table.integer.FORMS,
        *table.floating.FORMS,
        *table.packed.FORMS,
        *table.logic.FORMS,
        *table.compare.FORMS,
    ):
        example = first_example(form)
        opcode = opcode_of(example.text)
        words = opcode.split(".")
        kind = words[-1]
        for other in TYPES:
            mutant = ".".join([*words[:-1], other])
            if kind not in TYPES or table.match(mutant):
                continue
            if words[0] in ("addc", "subc", "madc") and other in ("u16", "s16"):
                continue  # ptxas takes these although the manual does not list them, and .cc not: left out
            operands = example.text[len(opcode) :]
            mutants.append((mutant + operands, "sm_90", (8, 7)))
            retyped = operands.replace(
                f"%{examples.register_class_or(kind)}_", f"%{examples.register_class_or(other)}_"
            )
            if retyped != operands:
                mutants.append((mutant + retyped, "sm_90", (8, 7)))
    assert accepted_mutants(mutants[16 * part :: 32]) == []


@needs_ptxas
def test_a_target_older_than_a_row_names_is_refused():
    mutants = []
    for form in table.FORMS:
        example = first_example(form)
        needed = arch_number(example.arch)
        older = [target for target in TARGETS if arch_number(target) < needed]
        if needed > 75 and older:
            target = older[-1]
            mutants.append((example.text, target, max(example.version, first_ptx(target))))
        if example.arch.endswith("a") and example.arch[:-1] in TARGETS:
            mutants.append((example.text, example.arch[:-1], example.version))
    assert accepted_mutants(mutants) == []


@needs_ptxas
def test_an_operand_of_the_wrong_class_is_refused():
    """A float register where an integer stands, an integer where a float stands, no predicate where one is needed."""
    wrong = {
        "s32": "f32",
        "u32": "f32",
        "s64": "f64",
        "u64": "f64",
        "f32": "s32",
        "f64": "s64",
        "pred": "b32",
        "b32": "f64",
        "b64": "f32",
    }
    mutants = []
    for family in (table.integer, table.floating, table.packed, table.logic, table.compare, table.convert, table.move):
        for form in family.FORMS:
            example = first_example(form)
            opcode, _, operands = example.text.partition(" ")
            kinds = re.findall(r"%([a-z]+\d*)_", operands)
            for at, kind in enumerate(kinds):
                if form.key == "fns" and at == 3 or form.key == "cvt.pack.merge" and at == 3:
                    continue  # ptxas takes any register of 32 bits here, and one of 64 for cvt.pack's c
                if kind in wrong:
                    parts = re.split(r"(%[a-z]+\d*_\d+)", operands)
                    parts[2 * at + 1] = f"%{wrong[kind]}_{50 + at}"
                    mutants.append((f"{opcode} {''.join(parts)}", "sm_90", max((8, 7), example.version)))
    assert accepted_mutants(mutants) == []


@needs_ptxas
def test_a_ptx_version_older_than_a_row_names_is_refused():
    mutants = []
    for form in table.FORMS:
        example = first_example(form)
        lowest = first_ptx(example.target)
        if example.ptx > lowest:
            major, minor = example.ptx
            older = (major, minor - 1) if minor else {7: (6, 5), 8: (7, 8)}[major]
            mutants.append((example.text, example.target, older))
    assert accepted_mutants(mutants) == []


def test_a_missing_mandatory_modifier_is_refused_by_the_table():
    for opcode in ("mul.s32", "fma.f32", "setp.s32", "cvt.f32.s32.rn", "add", "mad.lo", "shf.l.b32", "div.f32"):
        assert table.match(opcode) == (), opcode


NEAREST = {
    "add.rzz.f32": "add.rz.f32", "fmaa.rn.f32": "fma.rn.f32", "mul.low.u32": "mul.lo.u32",
    # a letter that is wrong: nothing is added next to it
    "st.global.u33": "st.global.u32", "st.globl.u32": "st.global.u32", "ld.global.f23": "ld.global.f32",
    "fma.rn.f23": "fma.rn.f32", "ld.const.u23": "ld.const.u32", "fence.proxy.asinc": "fence.proxy.async",
    # words that are missing are added, and none that was meant is changed
    "mul.u32": "mul.lo.u32", "ld.global": "ld.global.b32", "ex2.f32": "ex2.approx.f32", "fma.f32": "fma.rn.f32",
    "ldmatrix.x4.b16": "ldmatrix.sync.aligned.m8n8.x4.b16", "wgmma.wait": "wgmma.wait_group.sync.aligned",
    "wgmma.mma_async.m64n64k16.f32.bf16.bf16": "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
    "tcgen05.ld": "tcgen05.ld.sync.aligned.32x32b.x1.b32", "vote.ballot.b32": "vote.sync.ballot.b32",
    # words that do not go together
    "ld.shared.v3.f32": "ld.shared.v2.f32", "st.global.v8.u8": "st.global.u8",
    "mbarrier.try_wait.parity.b32": "mbarrier.try_wait.parity.b64", "mbarier.init.b64": "mbarrier.init.b64",
}  # fmt: skip


def test_suggest_names_the_nearest_spelling():
    assert suggest("xyzzy") == ""
    for opcode, near in NEAREST.items():
        assert suggest(opcode) == near and table.match(near), opcode


def test_what_a_choice_needs_is_the_later_of_row_and_choice():
    form = next(form for form in table.FORMS if form.key == "max.f32")
    assert needs_of(form, {"NaN": None}) == ("sm_50", (1, 0))
    assert needs_of(form, {"NaN": "NaN"}) == ("sm_80", (7, 0))
