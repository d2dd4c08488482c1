"""Loads that wait for a word which is itself the message: data and flag in one.

    poll: ld.relaxed.sys.global.u32 %r1, [slot];
          setp.eq.u32 %p1, %r1, 0;
          @%p1 bra poll;
          add.f32 %f1, %f0, %r1;

The value ends the loop, and it is also computed with or stored. A flag that only says that other data has come is
compared, and nothing else is done with it.
"""

from __future__ import annotations

from ..emulator.machine.image import Image
from ..emulator.machine.operation import Operation
from ..isa import effects
from .undefined_reads import read_and_written
from .waiting_loads import waits

FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"})


def received_words(code: Image) -> dict[int, frozenset[int]]:
    """The loads (pc), each with the instructions of which one must run for the word to be a message: the stores and
    atomics that use the value; the load itself if it is computed with in floating point."""
    found = {}
    for operation in code.operations:
        if operation.instruction.modifiers[0] == "ld" and operation.order.strong and waits(code, operation.pc):
            uses = _uses(code, operation)
            if uses:
                found[operation.pc] = uses
    return found


def _uses(code: Image, load: Operation) -> frozenset[int]:
    values, before = set(read_and_written(load)[1]), 0
    using: list[Operation] = []
    while before != len(values):
        before = len(values)
        using = [
            operation
            for operation in code.operations
            if operation is not load and not values.isdisjoint(row for row, _ in read_and_written(operation)[0])
        ]
        for operation in using:
            if not effects.accesses(operation.effects):
                values.update(row for row in read_and_written(operation)[1] if row.bits > 1)
    if any(not FLOATS.isdisjoint(operation.instruction.modifiers[1:]) for operation in using):
        return frozenset((load.pc,))
    return frozenset(operation.pc for operation in using if _writes_global(operation))


def _writes_global(operation: Operation) -> bool:
    touched = effects.accesses(operation.effects)
    return any(one.space in ("", "global") and one.how != effects.READS for one in touched)
