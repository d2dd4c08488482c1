"""PTX instructions that ptxas fuses into one machine instruction, for builds that were not examined.

A value that one instruction writes and one other instruction of its block reads needs no instruction of its own where
the machine has one for both: LOP3 (logic of three values), IADD3 (sums of three), IMAD (a product and a sum) and LEA
(a shift and a sum). IADD3 and LOP3 use the ALU pipe, as `rate.alu` of the microbenchmarks shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..emulator.machine.operation import BRANCH, INDEXED_BRANCH, Operation
from .instructions import ALU, EITHER, FMA, IMAD_WIDE, Facts, facts_of

LOGIC = {"and": 2, "or": 2, "xor": 2, "not": 1, "lop3": 3}
"""Instructions that LOP3 executes, with their inputs."""
WORDS, PAIRS = ("b32", "u32", "s32"), ("b64", "u64", "s64")
MOST_INPUTS = 3

_Input = int | tuple[str, int]


def fused(operations: Sequence[Operation]) -> dict[int, Facts]:
    """Return the facts about all instructions, by program counter; fused ones are counted once, at their last."""
    facts = {operation.pc: facts_of(operation) for operation in operations}
    blocks = _blocks(operations)
    writers = Counter(register for one in facts.values() for register in one.writes)
    readers = Counter(register for one in facts.values() for register in one.reads)
    inner = {register for register, count in writers.items() if count == 1 == readers[register]}
    """Registers that one instruction writes and one reads."""
    writer = {register: pc for pc, one in facts.items() for register in one.writes if register in inner}
    inputs: dict[int, frozenset[_Input]] = {}
    for pc in sorted(facts):
        kind = _kind(facts[pc])
        if not kind:
            continue
        inputs[pc] = _inputs(facts[pc])
        for register in sorted(facts[pc].reads & writer.keys()):
            before = writer[register]
            if before not in inputs or blocks[before] != blocks[pc] or facts[before].count == 0:
                continue
            both = inputs[before] | inputs[pc] - {register}
            pipe = _together(_kind(facts[before]), kind, len(both))
            if pipe:
                inputs[pc], kind = both, "closed" if pipe != ALU else kind
                facts[before] = replace(facts[before], count=0.0)
                facts[pc] = replace(
                    facts[pc], pipe=pipe, count=1.0, latency="imad" if pipe in (FMA, IMAD_WIDE) else "alu"
                )
        if kind == "closed":
            inputs.pop(pc)
    return facts


def _together(first: str, second: str, inputs: int) -> str:
    """Return the pipe of the instruction that does both, or "" if there is none."""
    if first == "product" and second == "sum":
        return FMA
    if first == "wide product" and second == "long sum":
        return IMAD_WIDE
    if first == "shift" and second == "sum":
        return EITHER
    if first == second and first in ("logic", "sum") and inputs <= MOST_INPUTS:
        return ALU
    return ""


def _kind(facts: Facts) -> str:
    words = facts.opcode.split(".")
    base, last = words[0], words[-1]
    if last in PAIRS:
        return "long sum" if base == "add" else ""
    if last not in WORDS:
        return ""
    if base in ("mul", "mad"):
        return ("wide product" if "wide" in words else "product") if base == "mul" and "hi" not in words else ""
    if base in LOGIC:
        return "logic"
    return {"add": "sum", "sub": "sum", "shl": "shift"}.get(base, "")


def _inputs(facts: Facts) -> frozenset[_Input]:
    """Return the registers that an instruction reads, and its constant if it has one."""
    constant = len(facts.reads) < LOGIC.get(facts.opcode.split(".")[0], 2)
    return frozenset(facts.reads) | (frozenset({("constant", facts.pc)}) if constant else frozenset())


def _blocks(operations: Sequence[Operation]) -> Mapping[int, int]:
    """Return the number of each instruction's basic block."""
    starts = {target for one in operations if one.kind in (BRANCH, INDEXED_BRANCH) for target in one.targets}
    found, block = {}, 0
    for operation in operations:
        block += operation.pc in starts
        found[operation.pc] = block
        block += operation.kind in (BRANCH, INDEXED_BRANCH)
    return found
