"""Which instructions access the registers of matrix operations, and the plain moves among those.

Compilers put moves between registers where they like: between a wgmma.fence and its wgmma, or under a wgmma in flight.
ptxas removes such a move, or adds the fence (its note C7519) or the wait (C7517) that it needs. So a move is judged by
where its value was computed, and by where the copy is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ..asm.nodes import Float, Integer, Register
from ..emulator.machine.image import Image
from ..emulator.machine.operation import Operation
from ..emulator.machine.scopes import rows_named
from ..isa import effects
from .undefined_reads import read_and_written

RowSet: TypeAlias = frozenset[tuple[int, int]]
"""Registers as (bank, row)."""


@dataclass(frozen=True)
class Move:
    """A plain move to a register from another one, or of a constant (None)."""

    target: tuple[int, int]
    source: tuple[int, int] | None


@dataclass(frozen=True)
class MatrixRows:
    """What is known about the registers of a kernel's matrix operations before it runs.

    Attributes:
        owners: instruction (pc) -> the registers that the operation it starts uses while that runs.
        touching: every other instruction -> those of them that it accesses, and of the registers that moves connect
            with those of a wgmma, their copies, and their origins if it writes them.
        moves: the plain moves among the latter.
    """

    owners: dict[int, RowSet]
    touching: dict[int, RowSet]
    moves: dict[int, Move]


def matrix_rows(code: Image) -> MatrixRows:
    """Find them in a kernel."""
    owners: dict[int, RowSet] = {}
    same: dict[RowSet, RowSet] = {}
    for operation in code.operations:
        if rows := _owned_rows(operation):
            owners[operation.pc] = same.setdefault(rows, rows)  # share equal sets: they are compared often
    used = RowSet().union(*owners.values())
    if not used:
        return MatrixRows(owners, {}, {})
    products = RowSet().union(*(rows for pc, rows in owners.items() if not is_load(code.operations[pc])))
    moves = {one.pc: move for one in code.operations if (move := _move(one)) is not None} if products else {}
    pairs = [(move.source, move.target) for move in moves.values() if move.source is not None]
    copies = _reached(products, pairs)
    origins = _reached(products, [(target, source) for source, target in pairs])
    touching: dict[int, RowSet] = {}
    for operation in code.operations:
        if operation.pc in owners or operation.step is None:
            continue
        named = RowSet().union(*(rows_named(operation.scope, operand) for operand in operation.instruction.operands))
        if rows := named & (used | copies) | origins.intersection(read_and_written(operation)[1]):
            touching[operation.pc] = rows
    return MatrixRows(owners, touching, {pc: move for pc, move in moves.items() if pc in touching})


def is_load(operation: Operation) -> bool:
    """True for a load of tensor memory."""
    started = effects.started(operation.effects)
    return started is not None and started.parts == "warp"


def _owned_rows(operation: Operation) -> RowSet:
    operands = operation.bound.operands if operation.bound is not None else {}
    accesses = effects.accesses(operation.effects, effects.RUN)
    named = {access.operand for access in accesses if access.space == "register"}
    return RowSet().union(*(rows_named(operation.scope, operands[name]) for name in named))


def _move(operation: Operation) -> Move | None:
    instruction = operation.instruction
    if not instruction.opcode.startswith("mov.") or not isinstance(instruction.operands[0], Register):
        return None
    target, source = (rows_named(operation.scope, operand) for operand in instruction.operands)
    if len(target) != 1 or len(source) != isinstance(instruction.operands[1], Register):
        return None
    if not source and not isinstance(instruction.operands[1], (Integer, Float)):
        return None
    return Move(*target, *(source or (None,)))


def _reached(start: RowSet, pairs: Iterable[tuple[tuple[int, int], tuple[int, int]]]) -> RowSet:
    """The registers that these and the edges reach, themselves included."""
    after: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for source, target in pairs:
        after.setdefault(source, []).append(target)
    found, work = set(start), list(start)
    while work:
        new = [row for row in after.get(work.pop(), ()) if row not in found]
        found.update(new)
        work += new
    return frozenset(found)
