"""Waits for an mbarrier whose result nobody looks at.

try_wait and test_wait say by a predicate whether the phase is complete; one that is false has waited for nothing (PTX
ISA 9.7.13.15.16). The emulator's try_wait waits as long as it takes, so only the text tells whether the kernel would
have asked again. A result is looked at where some path leads from it to a branch that goes one of two ways by it, or
to an instruction that does something by it. What only copies it on, into a register that nobody looks at, does not
count.
"""

from __future__ import annotations

from ..emulator.machine.image import Image
from ..emulator.machine.operation import BRANCH, EXIT, INDEXED_BRANCH
from ..isa.effects import Waits
from .undefined_reads import Row, read_and_written, successors

PASSING_ON = (
    "mov",
    "selp",
    "set",
    "setp",
    "and",
    "or",
    "xor",
    "not",
    "cvt",
    "add",
    "sub",
    "shl",
    "shr",
    "slct",
    "prmt",
)
"""Opcodes that only compute a register from others."""


def unchecked_waits(code: Image) -> frozenset[int]:
    """The places (pc) of waits whose result nobody looks at."""
    found = []
    for operation in code.operations:
        if any(isinstance(effect, Waits) and effect.may_fail for effect in operation.effects):
            _, written = read_and_written(operation)
            if not any(_decides(code, operation.pc, row) for row in written):
                found.append(operation.pc)
    return frozenset(found)


def _decides(code: Image, pc: int, row: Row) -> bool:
    """Whether what the operation at `pc` writes into a register decides anything."""
    todo = [(after, row) for after in successors(code.operations[pc], len(code.operations))]
    seen: set[tuple[int, Row]] = set()
    while todo:
        here, held = todo.pop()
        if (here, held) in seen:
            continue
        seen.add((here, held))
        operation = code.operations[here]
        read, written = read_and_written(operation)
        following = list(successors(operation, len(code.operations)))
        if any(one == held for one, _ in read):
            if operation.kind in (BRANCH, EXIT, INDEXED_BRANCH):
                if operation.kind == EXIT or len(set(following)) > 1:
                    return True
            elif operation.instruction.opcode.split(".")[0] not in PASSING_ON:
                return True
            else:
                todo += [(after, passed) for after in following for passed in written]
        if held in written and operation.guard < 0:
            continue  # it holds something else from here on
        todo += [(after, held) for after in following]
    return False
