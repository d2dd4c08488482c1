"""Stores of sums that the lanes of a warp have reduced among themselves and that differ only by rounding.

    mul.f32 %f2, %f1, %f1;
    shfl.sync.bfly.b32 %f3, %f2, 16, 31, -1;
    fma.rn.f32 %f4, %f1, %f1, %f3;          a product is rounded in one lane and not in the other
    …                                       likewise with 8, 4, 2 and 1

If a compiler fuses multiplications with additions, the lanes' sums differ in their last bits. All may be stored to
one address, and any of them is a valid result. The text shows which lanes hold the same sum: their lane numbers
differ in bits that a butterfly exchange covered.
"""

from __future__ import annotations

from ..asm.nodes import Integer, Register
from ..emulator.machine.image import Image
from ..emulator.machine.operation import PLAIN, Operation
from .undefined_reads import Row, collect, read_and_written

REDUCING = ("add", "fma", "mad")
"""Opcodes that add another lane's part to one's own, and may round it differently."""


def lane_sums(code: Image) -> dict[int, int]:
    """The indices (pc) of such stores -> the bits of lane numbers over which the value is a sum."""
    if all(operation.instruction.modifiers[0] != "shfl" for operation in code.operations):
        return {}
    entered = {target for operation in code.operations for target in operation.targets}
    found = {}
    for operation in code.operations:
        if operation.instruction.modifiers[0] == "st" and operation.kind == PLAIN:
            bits = _summed_over(code, operation, entered)
            if bits:
                found[operation.pc] = bits
    return found


def _summed_over(code: Image, store: Operation, entered: set[int]) -> int:
    """Follow the value of a store backwards, over the instructions executed before it, to the shuffles that it comes
    from."""
    value = _row(store, store.instruction.operands[-1])
    if value is None:
        return 0
    bits, sums, shuffled = 0, {value}, set[Row]()
    for pc in range(store.pc - 1, -1, -1):
        operation = code.operations[pc]
        if pc + 1 in entered or operation.kind != PLAIN:
            break
        read, written = read_and_written(operation)
        opcode = operation.instruction.modifiers[0]
        if not sums.isdisjoint(written):
            sums.difference_update(written)
            if opcode in REDUCING and operation.guard < 0:
                shuffled.update(row for row, _ in read)
        elif not shuffled.isdisjoint(written):
            shuffled.difference_update(written)
            offset = _butterfly(operation)
            if offset:
                bits |= offset
                sums.update(row for row, _ in read)
            elif opcode == "mov":
                shuffled.update(row for row, _ in read)
    return bits


def _butterfly(operation: Operation) -> int:
    """The distance of an exchange between all lanes of a warp; 0 for anything else."""
    instruction = operation.instruction
    if instruction.modifiers[:3] != ("shfl", "sync", "bfly") or operation.guard >= 0 or len(instruction.operands) != 5:
        return 0
    _, _, distance, clamp, mask = instruction.operands
    if not (isinstance(distance, Integer) and isinstance(clamp, Integer) and isinstance(mask, Integer)):
        return 0
    return distance.value if clamp.value == 31 and mask.value & 0xFFFFFFFF == 0xFFFFFFFF else 0


def _row(operation: Operation, operand: object) -> Row | None:
    if not isinstance(operand, Register):
        return None
    named: list[tuple[Row, str]] = []
    collect(operation.scope, operand, named)
    return named[0][0] if named else None
