"""Loads in loops that wait for their value.

    look: ld.relaxed.gpu.global.u32 %r1, [%rd1];
          setp.eq.u32 %p1, %r1, 0;
          @%p1 bra look;

A branch of the loop depends on the value, through registers. A loop that only adds up what it loads, and whose end its
index decides, does not wait.
"""

from __future__ import annotations

from ..emulator.machine.image import Image
from .undefined_reads import read_and_written


def waits(code: Image, load: int) -> list[tuple[int, int]]:
    """The loops that wait for the value of the load at this pc: their first and last instruction."""
    loops = [(target, each.pc) for each in code.operations for target in each.targets if target <= load <= each.pc]
    return [(first, last) for first, last in loops if _decides(code, load, last)]


def _decides(code: Image, load: int, last: int) -> bool:
    """True if a branch up to the end of the loop depends on the loaded value."""
    values = set(read_and_written(code.operations[load])[1])
    for operation in code.operations[load + 1 : last + 1]:
        read, written = read_and_written(operation)
        if not values.isdisjoint(row for row, _ in read):
            if operation.targets:
                return True
            values.update(written)
    return False
