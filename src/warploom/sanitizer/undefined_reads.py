"""Registers that are read although no path from the kernel's start has written them.

A forward analysis over the flat list of operations, before the kernel runs. A register may be defined at a position if
some path to it writes the register. Otherwise its value is undefined on every path.
"""

from __future__ import annotations

from ..asm.nodes import Address, Register, TensorAddress
from ..emulator.machine.control_flow import successors
from ..emulator.machine.image import Image
from ..emulator.machine.operation import INDEXED_BRANCH, PLAIN, Operation
from ..emulator.machine.registers import Row
from ..emulator.machine.scopes import registers_named
from ..isa.effects import accesses

ZEROING = ("xor", "sub")
"""Operations whose result does not depend on the register if both sources name the same one."""


def undefined_reads(code: Image) -> list[tuple[Operation, str]]:
    """Operations that read a register no path has written, with the register's name; each register once."""
    numbers: dict[Row, int] = {}
    uses, writes = [], []
    for operation in code.operations:
        read, written = read_and_written(operation)
        uses.append(read)
        mask = 0
        for row in written:
            mask |= 1 << numbers.setdefault(row, len(numbers))
        writes.append(mask)
    reached = reaching(code, writes)
    found: list[tuple[Operation, str]] = []
    told: set[Row] = set()
    for operation, read, defined in zip(code.operations, uses, reached, strict=True):
        if defined is None:
            continue
        for row, name in read:
            number = numbers.get(row)
            if (number is None or not defined >> number & 1) and row not in told:
                told.add(row)
                found.append((operation, name))
    return found


def reaching(code: Image, writes: list[int], on_all: bool = False) -> list[int | None]:
    """For each operation the registers that some path to it (or all paths) has written; None if it is unreachable.

    writes: a mask of registers for each operation; the result consists of such masks.
    """
    operations = code.operations
    ends = blocks(code)
    at_entry: dict[int, int] = {0: 0}
    work = [0]
    while work:
        start = work.pop()
        defined = at_entry[start]
        for pc in range(start, ends[start]):
            defined |= writes[pc]
        for target in successors(operations[ends[start] - 1], len(operations)):
            before = at_entry.get(target)
            after = defined if before is None else before & defined if on_all else before | defined
            if after != before:
                at_entry[target] = after
                work.append(target)
    reached: list[int | None] = [None] * len(operations)
    for start, defined in at_entry.items():
        for pc in range(start, ends[start]):
            reached[pc] = defined
            defined |= writes[pc]
    return reached


def blocks(code: Image) -> dict[int, int]:
    """The basic blocks: the first operation of each -> the one after its last."""
    starts = {0}
    for operation in code.operations:
        if operation.kind != PLAIN:
            starts.update((*operation.targets, operation.pc + 1))
    order = sorted(start for start in starts if start < len(code.operations))
    return dict(zip(order, [*order[1:], len(code.operations)], strict=True))


def read_and_written(operation: Operation) -> tuple[list[tuple[Row, str]], list[Row]]:
    """Registers that an operation reads, with their names, and those it writes. Cached; do not modify."""
    if operation.registers is None:
        operation.registers = _read_and_written(operation)
    return operation.registers


def _read_and_written(operation: Operation) -> tuple[list[tuple[Row, str]], list[Row]]:
    instruction, scope = operation.instruction, operation.scope
    read: list[tuple[Row, str]] = []
    written: list[Row] = []
    if instruction.guard is not None:
        read += registers_named(scope, Register(instruction.guard.register))
    bound = operation.bound
    if bound is None:  # a branch, or a call, which may write what it names
        for operand in instruction.operands:
            named = registers_named(scope, operand)
            if operation.kind == INDEXED_BRANCH:
                read += named
            else:
                written += [row for row, _ in named]
        return read, written
    match = bound.match
    specs = match.form.operands_by_name
    sources: list[tuple[Row, str]] = []
    for name, operand in bound.operands.items():
        how = specs[name].access if name in specs else "read"
        named = registers_named(scope, operand)
        if how == "read" or isinstance(operand, (Address, TensorAddress)):
            sources += named
        else:
            written += [row for row, _ in named]
            if how == "modify" and not _perhaps(operation, name):
                sources += named
    if not (len(sources) == 2 and sources[0][0] == sources[1][0] and match.form.key.split(".")[0] in ZEROING):
        read += sources
    return read, written


def _perhaps(operation: Operation, operand: str) -> bool:
    """True if it is only known at run time whether an operand is read, such as an accumulator."""
    return any(one.operand == operand and one.when is not True for one in accesses(operation.effects))
