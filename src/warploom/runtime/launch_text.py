"""What the text of a kernel shows of its parameters: which bytes are pointers and tensor maps, and what is done there.

Registers are followed from `ld.param` and from the address of a parameter to the instructions that use them as an
address, in whichever order these run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..asm import nodes

_LANES = re.compile(r"\.v([248])\b")
_WIDTHS = re.compile(r"\.([bsuf])(8|16|32|64)\b")
_COPIES = ("mov", "cvta", "cvt", "selp", "add", "sub", "mad", "or", "and")
_TYPES = re.compile(r"\.(f16x2|bf16x2|f16|bf16|f32|f64|s32|u32|s64|u64|s8|u8|s16|u16)\b")


@dataclass
class Use:
    """What lies at some bytes of a parameter: `kind` "pointer" or "tensor_map", what is done with it, and its rank or
    the type of its elements where an instruction shows it."""

    kind: str
    reads: bool = False
    writes: bool = False
    dtype: str = ""
    rank: int = 0


Token: TypeAlias = "tuple[str, str, int]"
"""("at" or "of", parameter, offset): the address of these bytes of a parameter, or what they hold."""
Known: TypeAlias = "dict[str, set[Token]]"


def uses(function: nodes.Function) -> dict[str, dict[int, Use]]:
    """By parameter and offset, what an entry does with pointers and tensor maps."""
    parameters = {parameter.name for parameter in function.parameters}
    instructions = list(_instructions(function.body or ()))
    known: Known = {}
    while sum(_follow(one, known, parameters) for one in instructions):
        pass
    found: dict[str, dict[int, Use]] = {}
    for instruction in instructions:
        words = instruction.opcode.split(".")
        for operand in instruction.operands:
            if isinstance(operand, nodes.TensorAddress):
                for how, name, offset in _tokens(operand.base, known, parameters):
                    if how == "at":
                        _note_map(found, name, offset, instruction.opcode)
            elif isinstance(operand, nodes.Address) and words[0] in _MEMORY and "shared" not in instruction.opcode:
                for how, name, offset in _tokens(operand.base, known, parameters):
                    if how == "of":
                        _note_pointer(found, name, offset, instruction)
    return found


_MEMORY = ("ld", "st", "atom", "red", "ldu", "cp", "prefetch")


def _note_map(found: dict[str, dict[int, Use]], name: str, offset: int, opcode: str) -> None:
    use = found.setdefault(name, {}).setdefault(offset, Use("tensor_map"))
    rank = re.search(r"\.([1-5])d\b", opcode)
    use.rank = int(rank[1]) if rank else use.rank
    stores = ".global.shared" in opcode
    use.writes |= stores
    use.reads |= not stores


def _note_pointer(found: dict[str, dict[int, Use]], name: str, offset: int, instruction: nodes.Instruction) -> None:
    use = found.setdefault(name, {}).setdefault(offset, Use("pointer"))
    word = instruction.opcode.split(".")[0]
    use.writes |= word in ("st", "atom", "red")
    use.reads |= word != "st"
    shown = _TYPES.search(instruction.opcode)
    if shown and not use.dtype:
        use.dtype = shown[1].removesuffix("x2")


def _follow(instruction: nodes.Instruction, known: Known, parameters: set[str]) -> bool:
    """Take in what an instruction writes; whether that is new."""
    if not instruction.operands:
        return False
    word, (target, *sources) = instruction.opcode.split(".")[0], instruction.operands
    new = False
    if word == "ld" and sources and isinstance(sources[0], nodes.Address):
        if ".param" not in instruction.opcode and not any(
            t[0] == "at" for t in _tokens(sources[0].base, known, parameters)
        ):
            return False
        width = _WIDTHS.search(instruction.opcode)
        step = int(width[2]) // 8 if width else 8
        elements = target.elements if isinstance(target, nodes.Vector) else (target,)
        for number, element in enumerate(elements):
            tokens = {
                ("of", name, offset + sources[0].offset + number * step)
                for how, name, offset in _tokens(sources[0].base, known, parameters)
                if how == "at"
            }
            new |= _add(element, tokens, known)
        return new
    if word not in _COPIES:
        return False
    tokens = set()
    amount = sum(one.value for one in sources if isinstance(one, nodes.Integer)) if word == "add" else 0
    plain = (
        word in ("mov", "cvta", "cvt", "selp") or word == "add" and any(isinstance(s, nodes.Integer) for s in sources)
    )
    for source in sources:
        for how, name, offset in _tokens(source, known, parameters):
            if how == "of":
                tokens.add((how, name, offset))
            elif plain:
                tokens.add((how, name, offset + amount))
    return _add(target, tokens, known)


def _add(target: nodes.Operand, tokens: set[Token], known: Known) -> bool:
    if not isinstance(target, nodes.Register):
        return False
    before = known.setdefault(target.name, set())
    if len(before) > 8 or tokens <= before:  # more than a few: it is a number
        return False
    before |= tokens
    return True


def _tokens(operand: nodes.Operand, known: Known, parameters: set[str]) -> set[Token]:
    if isinstance(operand, nodes.Address):
        return {(how, name, offset + operand.offset * (how == "at"))
                for how, name, offset in _tokens(operand.base, known, parameters)}  # fmt: skip
    if isinstance(operand, (nodes.Symbol, nodes.Register)):
        if operand.name in parameters:
            return {("at", operand.name, 0)}
        return known.get(operand.name, set())
    return set()


def _instructions(statements: tuple[nodes.Statement, ...]) -> Iterator[nodes.Instruction]:
    for statement in statements:
        if isinstance(statement, nodes.Instruction):
            yield statement
        elif isinstance(statement, nodes.Block):
            yield from _instructions(statement.statements)
