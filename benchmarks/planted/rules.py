"""Rules for planting bugs in a compiler's PTX: the mutations of the zoo, and mistakes that people make in CUDA code.

All are bugs of synchronisation or memory: a barrier with another count, a membermask without some lanes, a flag without
its order, an index one element too far, an atomic replaced by a load and a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warploom.asm.nodes import (
    Address,
    Block,
    Guard,
    Instruction,
    Integer,
    Operand,
    Register,
    RegisterDeclaration,
    Vector,
)

from ..zoo.mutations import MUTATIONS, Facts, Mutation, Rewrite

WARP = 32
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_STRICT = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi"}


def _starts(*prefixes: str) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.opcode.startswith(prefixes)


def _with(instruction: Instruction, at: int, operand: Operand) -> Instruction:
    return replace(instruction, operands=(*instruction.operands[:at], operand, *instruction.operands[at + 1 :]))


def _comparison(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """An off-by-one bound: < instead of <=, and so on."""
    words = instruction.opcode.split(".")
    words[1] = _STRICT[words[1]]
    return [(replace(instruction, opcode=".".join(words)),)]


def _compares(instruction: Instruction) -> bool:
    words = instruction.opcode.split(".")
    return words[0] == "setp" and words[1] in _STRICT and words[-1][0] in "su"


def _without_lanes(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A membermask without the upper half, and one without the last lane."""
    at = len(instruction.operands) - 1
    mask = instruction.operands[at]
    if not isinstance(mask, Integer) or mask.value & 0xFFFFFFFF != 0xFFFFFFFF:
        return []
    return [(_with(instruction, at, Integer(value)),) for value in (0x0000FFFF, 0x7FFFFFFF)]


def _other_count(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A named barrier that expects one warp more or less."""
    if len(instruction.operands) < 2 or not isinstance(instruction.operands[1], Integer):
        return []
    count = instruction.operands[1].value
    return [(_with(instruction, 1, Integer(value)),) for value in (count + WARP, count - WARP) if value > 0]


def _other_barrier(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    number = instruction.operands[0]
    if len(instruction.operands) < 2:
        return []  # all threads of the CTA meet here, at whichever barrier
    return [(_with(instruction, 0, Integer(number.value + 1)),)] if isinstance(number, Integer) else []


def _relaxed(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A flag that neither releases nor acquires."""
    words = ["relaxed" if word in ("acquire", "release", "acq_rel") else word for word in instruction.opcode.split(".")]
    return [(replace(instruction, opcode=".".join(words)),)]


def _orders(instruction: Instruction) -> bool:
    words = set(instruction.opcode.split("."))
    ordered = words & {"acquire", "release", "acq_rel"}
    return bool(ordered) and instruction.opcode.startswith(("ld.", "st.", "atom.", "red."))


def _narrow(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A scope that does not include the other side."""
    words = ["cta" if word in ("gpu", "sys") else word for word in instruction.opcode.split(".")]
    return [(replace(instruction, opcode=".".join(words)),)]


def _scoped(instruction: Instruction) -> bool:
    words = set(instruction.opcode.split("."))
    return bool(words & {"gpu", "sys"}) and instruction.opcode.startswith(("ld.", "st.", "atom.", "red.", "fence."))


def _plain(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    words = [word for word in instruction.opcode.split(".") if word != "volatile"]
    return [(replace(instruction, opcode=".".join(words)),)]


def _one_farther(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """An access one element, or one row of ldmatrix, past where it should be."""
    words = instruction.opcode.split(".")
    for at, operand in enumerate(instruction.operands):
        if isinstance(operand, Address):
            size = 128 if words[0] in ("ldmatrix", "stmatrix") else _SIZES.get(words[-1].lstrip("bsuf"), 0)
            size *= next((int(word[1]) for word in words if word in ("v2", "v4")), 1)
            return [(_with(instruction, at, replace(operand, offset=operand.offset + size)),)] if size else []
    return []


def _accesses(instruction: Instruction) -> bool:
    words = instruction.opcode.split(".")
    return words[0] in ("ldmatrix", "stmatrix") or words[0] in ("ld", "st") and ("shared" in words or "global" in words)


def trapped(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A trap instead of the instruction, to see whether the run reaches it."""
    return [(replace(instruction, opcode="trap", operands=()),)]


def trapped_at_guard(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A trap before the instruction, executed if its guard is false."""
    guard = instruction.guard
    if guard is None:
        return trapped(instruction, facts)
    trap = replace(instruction, opcode="trap", operands=(), guard=replace(guard, negated=not guard.negated))
    return [(trap, instruction)]


def trapped_at_bound(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A trap before a comparison if both sides are equal, which is where an off-by-one bound matters."""
    equal, words = Register("%equal"), instruction.opcode.split(".")
    compare = replace(instruction, opcode=f"setp.eq.{words[-1]}", operands=(equal, *instruction.operands[1:3]))
    trap = Instruction("trap", (), Guard(equal.name), instruction.location)
    return [(Block((RegisterDeclaration("pred", ("%equal",)), compare, trap, instruction)),)]


def _in_two_steps(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """An atomic addition replaced by a load, an addition and a store."""
    words = instruction.opcode.split(".")
    at = 0 if words[0] == "red" else 1
    if (
        "add" not in words
        or words[-1] not in ("u32", "s32", "f32", "u64", "f64")
        or len(instruction.operands) <= at + 1
    ):
        return []
    if isinstance(instruction.operands[at + 1], Vector) or instruction.guard is not None:
        return []
    space = "global" if "global" in words else "shared" if "shared" in words else ""
    place = f".{space}" if space else ""
    old = instruction.operands[0] if at else Register("%before")
    new, where = Register("%after"), instruction.location
    declared = [RegisterDeclaration(words[-1], ("%after",))]
    if not at:
        declared.append(RegisterDeclaration(words[-1], ("%before",)))
    steps = (
        Instruction(f"ld{place}.{words[-1]}", (old, instruction.operands[at]), location=where),
        Instruction(f"add.{words[-1]}", (new, old, instruction.operands[at + 1]), location=where),
        Instruction(f"st{place}.{words[-1]}", (instruction.operands[at], new), location=where),
    )
    return [(Block((*declared, *steps)),)]


MORE = (
    Mutation("off-by-one", _compares, _comparison),
    Mutation("wrong-membermask", _starts("shfl.sync", "vote.sync", "bar.warp.sync", "redux.sync"), _without_lanes),
    Mutation("wrong-barrier-count", _starts("bar.sync", "bar.arrive", "barrier.sync", "barrier.arrive"), _other_count),
    Mutation("wrong-barrier", _starts("bar.sync", "bar.arrive", "barrier.sync", "barrier.arrive"), _other_barrier),
    Mutation("relaxed-flag", _orders, _relaxed),
    Mutation("narrow-flag", _scoped, _narrow),
    Mutation("plain-flag", lambda i: ".volatile" in i.opcode, _plain),
    Mutation("one-element-farther", _accesses, _one_farther),
    Mutation("atomic-in-two-steps", _starts("atom.", "red."), _in_two_steps),
)
RULES = (*MUTATIONS, *MORE)
"""All rules for bugs of one instruction; `zoo.mutations.ORDERS` has those of order."""
