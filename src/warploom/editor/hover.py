"""Hover texts: an opcode is explained by its row of the instruction table, a name by its declaration."""

from __future__ import annotations

from dataclasses import fields

from ..asm.binding import bind
from ..asm.lexer import DIRECTIVE, WORD
from ..asm.nodes import Instruction
from ..asm.parser import parse
from ..asm.printer import operand_text
from ..errors import ArgumentError, WarploomError
from ..isa import arch as arches
from ..isa.effects import Choice, Effect, Operand
from ..isa.instructions import table, word_order
from ..isa.instructions.nearest import suggest
from ..isa.instructions.schema import Form, Match, OperandSpec
from ..isa.special_registers import SPECIAL_REGISTERS
from ..plural import counted
from .names import Definition, Names
from .reading import Reading

TOGETHER = {"warp": "all threads of the warp", "warpgroup": "the four warps of a warpgroup"}
ACCESS = {"read": "read", "write": "written", "modify": "read and written"}
FORMS_SHOWN = 4


def hover(reading: Reading, names: Names, offset: int) -> tuple[int, int, str] | None:
    """The extent of the word at an offset and its explanation as Markdown; None if there is none."""
    token = names.token_at(offset)
    if token is None:
        return None
    tokens = names.tokens
    text = tokens.texts[token]
    extent = tokens.starts[token], tokens.end(token)
    if token in names.starts:
        said = _opcode(reading, names, token)
    elif token in names.meaning:
        said = _name(names, names.meaning[token])
    elif text in SPECIAL_REGISTERS:
        said = _special(text)
    elif tokens.kinds[token] == DIRECTIVE:
        opcode = next((first for first, last in names.starts.items() if first < token < last), None)
        glued = opcode is not None and all(kind == DIRECTIVE for kind in tokens.kinds[opcode + 1 : token + 1])
        said = _opcode(reading, names, opcode) if glued and opcode is not None else ""
    else:
        said = f"`{text}` is not declared here" if tokens.kinds[token] == WORD and text[0] == "%" else ""
    return (*extent, said) if said else None


# -- opcodes -----------------------------------------------------------------------------------------------------


def _opcode(reading: Reading, names: Names, token: int) -> str:
    instruction = _instruction(names, token)
    opcode = instruction.opcode if instruction else word_order.canonical(names.tokens.texts[token])
    rows = table.match(opcode)
    if not rows:
        return _unfinished(opcode)
    if instruction is not None:
        try:
            bound = bind(instruction, None)
        except WarploomError:
            pass
        else:
            given = {name: operand_text(operand) for name, operand in bound.operands.items()}
            return _row(reading, opcode, bound.match, given)
    return "\n\n---\n\n".join(_row(reading, opcode, row, {}) for row in rows[:FORMS_SHOWN])


def _instruction(names: Names, token: int) -> Instruction | None:
    """The statement that begins at an opcode, if it can be read."""
    tokens = names.tokens
    statement = tokens.joined(token, names.starts[token])
    try:
        module = parse(f".version 9.0\n.target sm_90a\n.entry k() {{ {statement}; }}")
    except WarploomError:
        return None
    body = module.entries[0].body
    return next((each for each in body or () if isinstance(each, Instruction)), None)


def _unfinished(opcode: str) -> str:
    base = opcode.split(".")[0]
    forms = table.rows_of(base)
    if not forms:
        near = suggest(opcode)
        return f"`{opcode}` is not a known instruction" + (f"; the nearest is `{near}`" if near else "")
    shown = {form.opcode: f"{form.opcode}  {form.operand_text}" for form in forms}
    nearest = sorted(shown, key=lambda pattern: not pattern.startswith(opcode))
    lines = "\n".join(shown[pattern] for pattern in nearest[:12])
    more = f"\n\nand {len(shown) - 12} more" if len(shown) > 12 else ""
    return f"`{opcode}` is incomplete, or its modifiers cannot be combined. Forms of `{base}`:\n```\n{lines}\n```{more}"


def _row(reading: Reading, opcode: str, row: Match, given: dict[str, str]) -> str:
    form = row.form
    shown = ", ".join(_shape(row, spec) for spec in form.operands)
    parts = [f"```ptx\n{opcode}{' ' + shown if shown else ''};\n```", f"Pattern `{form.opcode}`"]
    lines = [line for spec in form.operands for line in _operand(row, spec, given)]
    if lines:
        parts.append("| operand | type | | here |\n|---|---|---|---|\n" + "\n".join(lines))
    if form.converged:
        mask = form.converged.partition(":")[2]
        who = TOGETHER.get(form.converged, f"the threads of the mask `{mask}`")
        parts.append(f"Executed together by {who}.")
    effects = list(dict.fromkeys(filter(None, map(_effect, row.effects))))
    if effects:
        parts.append("Effects: " + "; ".join(effects) + ".")
    wrong = form.check(row.modifiers) if form.check is not None else None
    if wrong:
        parts.append(f"**{wrong}**")
    parts.append(_first(reading, row))
    return "\n\n".join(parts)


def _shape(row: Match, spec: OperandSpec) -> str:
    text = f"{spec.name}|{spec.second.name}" if spec.second else spec.name
    if spec.kind == "address":
        text = f"[{text}]"
    elif spec.kind == "tensor_address":
        text = f"[{text}, {{coordinates}}]"
    elif (length := row.length_of(spec)) is not None:
        text = f"{{{text} × {length}}}"
    return f"({text})" if spec.optional else text


def _operand(row: Match, spec: OperandSpec, given: dict[str, str]) -> list[str]:
    kind = f".{row.type_of(spec)}" if row.type_of(spec) else {"immediate": "constant"}.get(spec.kind, spec.kind)
    length = row.length_of(spec)
    if length is not None:
        kind = f"{length} × {kind}"
    if spec.kind in ("address", "tensor_address"):
        space = spec.space or row.modifiers.get("space") or "generic"
        kind = f"{kind.replace('_', ' ')}, {space}"
    here = given.get(spec.name, "")
    here = f"`{here[:60]}`" if here else ""
    lines = [f"| `{spec.name}` | {kind} | {ACCESS[spec.access]} | {here} |"]
    return lines + (_operand(row, spec.second, given) if spec.second else [])


def _effect(effect: Effect) -> str:
    """An effect in a few words: its kind and what it names."""
    named = []
    for each in fields(effect):
        value = getattr(effect, each.name)
        if each.name == "when" or value in ("", None, True, False, 0) or isinstance(value, (tuple, Choice)):
            continue
        if isinstance(value, Operand):
            value = value.name
        if isinstance(value, str) and value != each.default:
            named.append(value)
    return " ".join([type(effect).__name__.lower(), *named])


def _first(reading: Reading, row: Match) -> str:
    """The first target and PTX version that support it, its ISA section, and whether this text's target has it."""
    form = row.form
    needs = _needs(form, row)
    said = [f"Since {' or '.join(needs[0].split())}, PTX {needs[1][0]}.{needs[1][1]}"]
    if form.section:
        said.append(f"PTX ISA {form.section}")
    target = reading.module.arch if reading.module and not reading.shift else ""
    try:
        lacks = bool(target) and not arches.get(target).supports(needs[0])
    except ArgumentError:
        lacks = False
    return " · ".join(said) + (f" · **the target {target} lacks it**" if lacks else "")


def _needs(form: Form, row: Match) -> tuple[str, tuple[int, int]]:
    """The latest target and version among the row's and those of its modifiers."""
    all_of = [(form.arch, form.ptx)]
    for slot, chosen in row.modifiers.items():
        for word in (chosen, slot):
            if chosen is not None and word is not None and word in form.needs:
                all_of.append(form.needs[word])
                break
    return max(all_of, key=lambda each: each[1])[0], max(version for _, version in all_of)


# -- names -------------------------------------------------------------------------------------------------------


def _name(names: Names, definition: Definition) -> str:
    line = names.tokens.line(definition.token)
    uses = len(definition.uses)
    kind = {"entry": "kernel", "func": "function"}.get(definition.kind, definition.kind)
    said = f"{kind}, line {line}; used {counted(uses, 'time')}"
    return f"```ptx\n{definition.text}\n```\n\n{said}"


def _special(name: str) -> str:
    special = SPECIAL_REGISTERS[name]
    since = f"Since {special.arch}, PTX {special.ptx[0]}.{special.ptx[1]} · PTX ISA {special.section}"
    return f"```ptx\n.sreg .{special.dtype.name} {name}\n```\n\n{special.meaning}\n\n{since}"
