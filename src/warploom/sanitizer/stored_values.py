"""The instructions that store what a load of tensor memory gives, derived from the text alone.

    tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r0];
    add.f32 %f1, %r1, %r2;
    st.shared.f32 [%r3], %f1;   both values
    mbarrier.arrive.shared::cta.b64 _, [empty];

A dependency through registers holds without any wait (PTX ISA 9.7.16.6.4.5), so once a value derived from the loaded
registers has been stored, the load is complete. Arithmetic alone shows nothing: a compiler may move it after the
arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ..emulator.machine.control_flow import successors
from ..emulator.machine.image import Image
from ..emulator.machine.operation import Operation
from ..isa import effects
from .undefined_reads import blocks, read_and_written

Values: TypeAlias = "dict[tuple[int, int], int]"
"""By register (bank and row), the loaded registers (bits) that its value depends on."""


def stored_values(code: Image, loads: Mapping[int, frozenset[tuple[int, int]]]) -> dict[int, dict[int, int]]:
    """By storing instruction (pc) and load (pc), the loaded registers on which the stored value depends, as bits.

    loads: the registers of each load. A value that an earlier execution of the load gave does not count.
    """
    own: dict[int, Values] = {}
    bits = 0
    for pc, rows in loads.items():
        own[pc] = {row: 1 << bits + place for place, row in enumerate(sorted(rows))}
        bits += len(rows)
    stored: dict[int, int] = {}
    starts = blocks(code)
    at_entry: dict[int, Values] = {0: {}}
    work = [0]
    while work:
        start = work.pop()
        values = dict(at_entry[start])
        for operation in code.operations[start : starts[start]]:
            _step(operation, values, own, stored)
        for target in successors(code.operations[starts[start] - 1], len(code.operations)):
            if _join(at_entry, target, values):
                work.append(target)
    return {pc: dict(_by_load(own, mask)) for pc, mask in stored.items()}


def _step(operation: Operation, values: Values, own: Mapping[int, Values], stored: dict[int, int]) -> None:
    mine = own.get(operation.pc)
    if mine is not None:
        before = sum(mine.values())
        for row in [row for row, mask in values.items() if mask & before]:
            values[row] &= ~before
        values.update(mine)
        return
    read, written = read_and_written(operation)
    depends = 0
    for row, _ in read:
        depends |= values.get(row, 0)
    if depends and _stores(operation):
        stored[operation.pc] = stored.get(operation.pc, 0) | depends
    for row in written:
        values[row] = depends | values.get(row, 0) if operation.guard >= 0 else depends


def _join(at_entry: dict[int, Values], target: int, values: Values) -> bool:
    """True if that adds something to what is known at the start of a block."""
    known = at_entry.get(target)
    if known is None:
        at_entry[target] = dict(values)
        return True
    grown = False
    for row, mask in values.items():
        before = known.get(row, 0)
        if mask & ~before:
            known[row] = before | mask
            grown = True
    return grown


def _by_load(own: Mapping[int, Values], mask: int) -> Iterator[tuple[int, int]]:
    for pc, rows in own.items():
        if found := mask & sum(rows.values()):
            yield pc, found


def _stores(operation: Operation) -> bool:
    touched = effects.accesses(operation.effects)
    return any(one.how != effects.READS and one.space != "register" for one in touched)
