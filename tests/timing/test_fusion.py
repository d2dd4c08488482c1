"""Which PTX instructions ptxas fuses into one machine instruction."""

import numpy as np
import pytest

from warploom.isa.dtypes import u32
from warploom.lang import Tile, kernel, ptx, reg
from warploom.runtime.on_clock import record


def _counts(emit):
    """(opcode, pipe, count) of the instructions that `emit` adds to a kernel; it returns their value."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(1, u32),), grid=(1,), block=32, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        inputs = [ptx.load(u32, ptx.addr(x + 4 * at)) for at in range(4)]

        def fresh(opcode, *operands):
            ptx.inst(opcode, made := reg.scalar(u32), *operands)
            return made

        ptx.store(ptx.addr(y), emit(fresh, *inputs))

    recording, _ = record(program, np.zeros(4, np.uint32), out=np.zeros(1, np.uint32))
    words = "and.b32", "xor.b32", "not.b32", "add.u32", "mul.lo.u32", "shl.b32"
    return [(one.opcode, one.pipe, one.count) for one in recording.pcs if one is not None and one.opcode in words]


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize(
    ("emit", "expected"),
    [
        (lambda new, x, y, z, w: new("xor.b32", new("xor.b32", x, y), z), [("alu", 0.0), ("alu", 1.0)]),
        (lambda new, x, y, z, w: new("and.b32", x, new("not.b32", y)), [("alu", 0.0), ("alu", 1.0)]),
        (lambda new, x, y, z, w: new("add.u32", new("add.u32", x, y), z), [("either", 0.0), ("alu", 1.0)]),
        (lambda new, x, y, z, w: new("add.u32", new("mul.lo.u32", x, y), z), [("fma", 0.0), ("fma", 1.0)]),
        (lambda new, x, y, z, w: new("add.u32", new("shl.b32", x, 3), z), [("either", 0.0), ("either", 1.0)]),
        (
            lambda new, x, y, z, w: new("xor.b32", new("xor.b32", new("xor.b32", x, y), z), w),
            [("alu", 0.0), ("alu", 1.0), ("alu", 1.0)],
        ),
        (lambda new, x, y, z, w: new("xor.b32", one := new("add.u32", x, y), one), [("either", 1.0), ("alu", 1.0)]),
    ],
    ids=["LOP3", "a negation", "IADD3", "IMAD", "LEA", "four values are two LOP3", "a sum and logic stay two"],
)
def test_a_value_with_one_reader_is_fused_where_the_machine_has_one_instruction_for_both(emit, expected):
    assert [one[1:] for one in _counts(emit)] == expected


def test_a_value_with_two_readers_keeps_its_instruction():
    def emit(new, x, y, z, w):
        shared = new("xor.b32", x, y)
        return new("add.u32", new("and.b32", shared, z), new("and.b32", shared, w))

    assert sum(count for _, _, count in _counts(emit)) == 4
