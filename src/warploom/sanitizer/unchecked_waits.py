"""Waits for an mbarrier whose result nothing uses.

try_wait and test_wait return a predicate that says whether the phase is complete; if it is false, they have not waited
(PTX ISA 9.7.13.15.16). The emulator's try_wait waits as long as necessary, so only the text shows whether the kernel
would have retried. A result counts as used if some path leads from it to a branch that depends on it, or to an
instruction with an effect. Copying it to a register that nothing uses does not count.
"""

from __future__ import annotations

from ..emulator.machine.control_flow import successors
from ..emulator.machine.image import Image
from ..emulator.machine.operation import BRANCH, EXIT, INDEXED_BRANCH
from ..emulator.machine.registers import Row
from ..isa.effects import Waits
from .undefined_reads import read_and_written

PASSING_ON = frozenset("mov selp set setp and or xor not cvt add sub shl shr slct prmt".split())
"""Opcodes that only compute a register from others."""


def unchecked_waits(code: Image) -> frozenset[int]:
    """The waits (pc) whose result nothing uses."""
    found = []
    for operation in code.operations:
        if any(isinstance(effect, Waits) and effect.may_fail for effect in operation.effects):
            _, written = read_and_written(operation)
            if not any(_decides(code, operation.pc, row) for row in written):
                found.append(operation.pc)
    return frozenset(found)


def _decides(code: Image, pc: int, row: Row) -> bool:
    """True if anything depends on the value that the operation at `pc` writes into a register."""
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
            continue  # the register holds another value after this
        todo += [(after, held) for after in following]
    return False
