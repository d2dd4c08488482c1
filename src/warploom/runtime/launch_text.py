"""What the text of a kernel shows about its parameters: which bytes are pointers and tensor maps, and their uses.

Registers are followed from `ld.param` and from the address of a parameter to the instructions that use them as an
address, independent of execution order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..asm import nodes
from ..isa import dtypes
from .launch_instructions import is_counter, stored_in_shared, types_of_values
from .launch_steps import Steps

_WIDTHS = re.compile(r"\.([bsuf])(8|16|32|64)\b")
_WIDE = re.compile(r"\.[bus]64\b")
_FLOATS = re.compile(r"\.(f64|f32|f16)\b")
_COPIES = ("mov", "cvta", "cvt", "selp", "add", "sub", "mad", "or", "and")
_MOVES = re.compile(r"^cp\.async|\.v[248]\b|\.[bu]16\b")
_TYPES = re.compile(r"\.(f16x2|bf16x2|f16|bf16|f32|f64|s32|u32|s64|u64|s8|u8|s16|u16)\b")


@dataclass
class Use:
    """The contents of some bytes of a parameter: `kind` "pointer", "table" (a pointer to addresses), "tensor_map" or
    "scalar", its uses, and its rank or the type of its elements if an instruction shows it. `counter`: an atomic
    operation or a polling load uses it; `moved`: copies and vectors move its bits, whose type may be another;
    `product`: its type is that of a matrix product's operand."""

    kind: str
    reads: bool = False
    writes: bool = False
    dtype: str = ""
    rank: int = 0
    counter: bool = False
    moved: bool = False
    product: bool = False


Token: TypeAlias = "tuple[str, str, int]"
"""("at", "of" or "in", parameter, offset): the address of these bytes of a parameter, their contents, or something that
was loaded from where their contents point."""
Known: TypeAlias = "dict[str, set[Token]]"


def uses(function: nodes.Function) -> dict[str, dict[int, Use]]:
    """How an entry uses pointers and tensor maps, by parameter and offset."""
    parameters = {parameter.name for parameter in function.parameters}
    known, steps = followed(function), Steps(function)
    shown, staged = types_of_values(steps.instructions), stored_in_shared(steps.instructions)
    found: dict[str, dict[int, Use]] = {}
    for at, instruction in enumerate(steps.instructions):
        for number, operand in enumerate(instruction.operands):
            if isinstance(operand, nodes.TensorAddress):
                base = steps.place(operand.base, at)
                if base[0] in parameters:  # if a register held several maps: the one it holds here
                    _note_map(found, str(base[0]), base[1], instruction.opcode)
                    continue
                for how, name, offset in tokens(operand.base, known, parameters):
                    if how == "at":
                        _note_map(found, name, offset, instruction.opcode)
                    elif how == "of":
                        _note_pointer(found, name, offset, instruction, reads=True)
            elif isinstance(operand, nodes.Address):
                does = _global_access(instruction, number)
                for how, name, offset in tokens(operand.base, known, parameters) if does else ():
                    if how == "of":
                        _note_pointer(found, name, offset, instruction, reads="r" in does, writes="w" in does)
                        _note_values(found[name][offset], instruction, shown, staged)
                    elif how == "in":
                        _note_table(found, name, offset, instruction)
    structures = {parameter.name for parameter in function.parameters if parameter.dims}
    for name, offset, dtype in _scalars(steps.instructions, structures):
        found.setdefault(name, {}).setdefault(offset, Use("scalar", dtype=dtype))
    return found


def _scalars(instructions: Sequence[nodes.Instruction], structures: set[str]) -> Iterator[tuple[str, int, str]]:
    """(parameter, offset, type) of each value of a structure that `ld.param` loads; the type is that of an instruction
    that reads it, if that is a float."""
    floats: dict[str, str] = {}
    for each in instructions:
        shown = _FLOATS.search(each.opcode)
        for operand in each.operands[1:] if shown and each.opcode[:3] not in ("ld.", "st.", "cvt") else ():
            for name in nodes.names_in(operand):
                floats[name] = shown[1]  # type: ignore[index]
    for each in instructions:
        where = each.operands[1] if each.opcode.startswith("ld.param") else None
        width = _WIDTHS.search(each.opcode)
        if not isinstance(where, nodes.Address) or width is None or isinstance(where.base, nodes.Integer):
            continue
        target, bits = each.operands[0], int(width[2])
        for number, element in enumerate(target.elements if isinstance(target, nodes.Vector) else (target,)):
            if isinstance(element, nodes.Register) and where.base.name in structures:
                dtype = floats.get(element.name, "")
                own = dtype if dtype.endswith(str(bits)) else f"{'u' if width[1] == 'b' else width[1]}{bits}"
                yield where.base.name, where.offset + number * bits // 8, own


def _global_access(instruction: nodes.Instruction, number: int) -> str:
    """What an instruction may do in global memory through one of its operands: "r", "w", "rw", or "" for nothing."""
    word, opcode = instruction.opcode.split(".")[0], instruction.opcode
    if word == "cp" and ".bulk" in opcode:
        if ".global.shared" in opcode:
            return "w" if number == 0 else ""
        return "r" if number == ("prefetch" not in opcode) else ""
    if word == "tensormap":
        return "w" if number == 0 and ".shared" not in opcode.partition("replace")[2] else ""
    if word == "wmma" and "shared" not in opcode:
        return "r" if ".load." in opcode else "w" if ".store." in opcode else ""
    if word not in _MEMORY or "shared" in opcode and word != "cp":
        return ""
    if word == "cp":  # cp.async, to shared memory
        return "r" if number == 1 else ""
    return {"st": "w", "atom": "rw", "red": "rw"}.get(word, "r")


def followed(function: nodes.Function) -> Known:
    """The parts of an entry's parameters that each register may hold."""
    parameters = {parameter.name for parameter in function.parameters}
    instructions = nodes.instructions_of(function)
    known: Known = {}
    while sum(_follow(one, known, parameters) for one in instructions):
        pass
    return known


_MEMORY = ("ld", "st", "atom", "red", "ldu", "cp", "prefetch")


def _note_map(found: dict[str, dict[int, Use]], name: str, offset: int, opcode: str) -> None:
    use = found.setdefault(name, {}).setdefault(offset, Use("tensor_map"))
    rank = re.search(r"\.([1-5])d\b", opcode)
    use.rank = int(rank[1]) if rank else use.rank
    stores = ".global.shared" in opcode
    use.writes |= stores
    use.reads |= not stores


def _note_pointer(
    found: dict[str, dict[int, Use]], name: str, offset: int, instruction: nodes.Instruction, reads: bool = False,
    writes: bool = False,
) -> None:  # fmt: skip
    use = found.setdefault(name, {}).setdefault(offset, Use("pointer"))
    use.writes |= writes
    use.reads |= reads
    use.counter |= is_counter(instruction.opcode)
    use.moved |= _MOVES.search(instruction.opcode) is not None
    shown = _TYPES.search(instruction.opcode)
    if shown and not use.dtype:
        use.dtype = shown[1].removesuffix("x2")


def _note_values(
    use: Use, instruction: nodes.Instruction, shown: Mapping[str, str], staged: frozenset[str]
) -> None:  # fmt: skip
    """Note what the text does with the values that a plain load or store moves."""
    word, width = instruction.opcode.split(".")[0], _WIDTHS.search(instruction.opcode)
    if word not in ("ld", "st") or width is None:
        return
    value = instruction.operands[0 if word == "ld" else -1]
    names = [*nodes.names_in(value)]
    kind = next((shown[name] for name in names if name in shown), "")
    untyped = width[1] == "b" or kind.startswith(("f", "bf", "e")) and width[1] != "f"
    if kind and untyped and dtypes.of(kind).bits <= int(width[2]):
        use.dtype = kind
    use.moved |= word == "ld" and not staged.isdisjoint(names)


def _note_table(found: dict[str, dict[int, Use]], name: str, offset: int, instruction: nodes.Instruction) -> None:
    """Note that what a pointer points to is used as an address."""
    use = found.setdefault(name, {}).setdefault(offset, Use("pointer", reads=True))
    shown = _TYPES.search(instruction.opcode)
    if use.kind == "pointer":
        use.kind, use.dtype = "table", ""
    if shown and not use.dtype:
        use.dtype = shown[1].removesuffix("x2")


def _follow(instruction: nodes.Instruction, known: Known, parameters: set[str]) -> bool:
    """Record what an instruction writes; True if that is new."""
    if not instruction.operands:
        return False
    word, (target, *sources) = instruction.opcode.split(".")[0], instruction.operands
    new = False
    if word == "ld" and sources and isinstance(sources[0], nodes.Address):
        base = tokens(sources[0].base, known, parameters)
        if ".param" not in instruction.opcode and not any(how == "at" for how, *_ in base):
            loaded: set[Token] = {("in", name, offset) for how, name, offset in base if how == "of"}
            return _WIDE.search(instruction.opcode) is not None and _add(target, loaded, known)
        width = _WIDTHS.search(instruction.opcode)
        step = int(width[2]) // 8 if width else 8
        elements = target.elements if isinstance(target, nodes.Vector) else (target,)
        for number, element in enumerate(elements):
            held = {
                ("of", name, offset + sources[0].offset + number * step) for how, name, offset in base if how == "at"
            }
            new |= _add(element, held, known)
        return new
    if word not in _COPIES:
        return False
    copied: set[Token] = set()
    amount = sum(one.value for one in sources if isinstance(one, nodes.Integer)) if word == "add" else 0
    plain = (
        word in ("mov", "cvta", "cvt", "selp") or word == "add" and any(isinstance(s, nodes.Integer) for s in sources)
    )
    for source in sources:
        for how, name, offset in tokens(source, known, parameters):
            if how != "at":
                copied.add((how, name, offset))
            elif plain:
                copied.add((how, name, offset + amount))
    return _add(target, copied, known)


def _add(target: nodes.Operand, more: set[Token], known: Known) -> bool:
    if not isinstance(target, nodes.Register):
        return False
    before = known.setdefault(target.name, set())
    if len(before) > 8 or more <= before:  # more than a few: it is a number
        return False
    before |= more
    return True


def tokens(operand: nodes.Operand, known: Known, parameters: set[str]) -> set[Token]:
    """The bytes of parameters that an operand may hold, or be the address of."""
    if isinstance(operand, nodes.Address):
        return {(how, name, offset + operand.offset * (how == "at"))
                for how, name, offset in tokens(operand.base, known, parameters)}  # fmt: skip
    if isinstance(operand, (nodes.Symbol, nodes.Register)):
        if operand.name in parameters:
            return {("at", operand.name, 0)}
        return known.get(operand.name, set())
    return set()
