"""Completions: opcodes and their modifiers from the instruction table, names from the declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..isa.instructions import table
from ..isa.instructions.schema import Form
from ..isa.special_registers import SPECIAL_REGISTERS
from .names import Names

DIRECTIVES = (
    "version", "target", "address_size", "visible", "extern", "weak", "entry", "func", "param", "reg", "shared",
    "global", "const", "local", "align", "maxntid", "reqntid", "minnctapersm", "maxnreg", "reqnctapercluster",
    "explicitcluster", "maxclusterrank", "pragma", "branchtargets", "file", "loc", "section",
)  # fmt: skip
_STATEMENT = re.compile(r"^\s*(?:@!?[\w%$]+\s+)?([\w.:$%]*)$")
_GUARD = re.compile(r"^\s*@!?([\w%$]*)$")
_WORD = re.compile(r"[\w%$.]*$")


@dataclass(frozen=True)
class Proposal:
    """One completion. kind: "opcode", "modifier", "register", "label", "variable", "directive"; detail: one line;
    typed: number of characters before the cursor that it replaces."""

    text: str
    kind: str
    detail: str
    typed: int


def complete(text: str, names: Names, offset: int) -> list[Proposal]:
    """The completions at an offset, given the text before it."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    if "//" in line:
        return []
    before = re.split(r"[;{}]|^\s*[\w$%]+:(?!:)", line)[-1]
    if "[" in line.rpartition(";")[2] or "(" in line:
        before = line.rpartition(";")[2]
    guard = _GUARD.match(before)
    if guard:
        return list(_registers(names, offset, guard[1], ("pred",)))
    statement = _STATEMENT.match(before)
    if statement and not _inside_operands(text, offset - len(before)):
        word = statement[1]
        if word.startswith("."):
            return [Proposal(each, "directive", "", len(word) - 1) for each in DIRECTIVES if each.startswith(word[1:])]
        return list(_opcodes(word))
    word = _WORD.search(line)[0]  # type: ignore[index]
    opcode = before.split()[0] if before.split() else ""
    if opcode.startswith("@"):
        opcode = (before.split() + [""])[1]
    if opcode.split(".")[0] in ("bra", "brx") and not word.startswith("%"):
        return list(_named(names, offset, word, ("label",)))
    return [*_registers(names, offset, word, ()), *_named(names, offset, word, ("variable", "parameter", "func"))]


def _inside_operands(text: str, offset: int) -> bool:
    """True if an instruction from an earlier line continues here: its last line ends with a comma or brace."""
    last = re.sub(r"//[^\n]*|/\*.*?\*/", "", text[:offset], flags=re.DOTALL).rstrip()
    return last.endswith((",", "(", "[")) or (last.endswith("{") and "," in last.rpartition("\n")[2])


# -- opcodes -----------------------------------------------------------------------------------------------------


def _opcodes(word: str) -> Iterator[Proposal]:
    base, *modifiers = word.split(".")
    if not modifiers:
        bases: dict[str, Form] = {}
        for form in table.FORMS:
            bases.setdefault(form.base, form)
        for name, form in bases.items():
            if name.startswith(base):
                yield Proposal(name, "opcode", _since(form), len(word))
        return
    *done, begun = modifiers
    found: dict[str, Form] = {}
    for form in table.rows_of(base):
        for choice in next_modifiers(form, tuple(done)):
            found.setdefault(choice, form)
    for choice, form in sorted(found.items()):
        if choice.startswith(begun):
            yield Proposal(choice, "modifier", f"{form.opcode} · {_since(form)}", len(begun))


def next_modifiers(form: Form, done: tuple[str, ...]) -> set[str]:
    """The modifiers that may follow those given, for one row; a slot read by a pattern proposes none."""
    slots = form.modifier_slots
    found: set[str] = set()
    seen: set[tuple[int, int]] = set()

    def walk(at: int, position: int) -> None:
        if at == len(slots) or (at, position) in seen:
            return
        seen.add((at, position))
        slot = slots[at]
        if position == len(done):
            found.update(slot.choices)
        elif slot.accepts(done[position]):
            walk(at + 1, position + 1)
        if slot.optional:
            walk(at + 1, position)

    walk(0, 0)
    return found


def _since(form: Form) -> str:
    section = f" · PTX ISA {form.section}" if form.section else ""
    return f"{form.arch}, PTX {form.ptx[0]}.{form.ptx[1]}{section}"


# -- names -------------------------------------------------------------------------------------------------------


def _registers(names: Names, offset: int, word: str, types: tuple[str, ...]) -> Iterator[Proposal]:
    """Declared registers: by name, or those of `%r<16>` that the text already uses."""
    scope = names.scope_at(offset)
    said: set[str] = set()
    for definition in scope.visible():
        if definition.kind != "register" or (types and definition.type not in types):
            continue
        used = [names.tokens.texts[token] for token in definition.uses] or [f"{definition.name}0"]
        for name in sorted(set(used)) if definition.count is not None else [definition.name]:
            if name.startswith(word) and name not in said and not (name == word and definition.count):
                said.add(name)
                yield Proposal(name, "register", definition.text, len(word))
    if not types:
        for name, special in SPECIAL_REGISTERS.items():
            if name.startswith(word) and word:
                yield Proposal(name, "register", special.meaning, len(word))


def _named(names: Names, offset: int, word: str, kinds: tuple[str, ...]) -> Iterator[Proposal]:
    said: set[str] = set()
    for definition in names.scope_at(offset).visible():
        if definition.kind in kinds and definition.name.startswith(word) and definition.name not in said:
            said.add(definition.name)
            yield Proposal(definition.name, definition.kind, definition.text, len(word))
