"""Registers that ptxas spills are loads and stores of local memory, which leave L1 where it is too small."""

import numpy as np
import pytest

from warploom.lang import Tile, kernel, ptx
from warploom.runtime.on_clock import predict, record
from warploom.timing import H200, spills
from warploom.timing.runs import cost_of
from warploom.types import f32, u64

VALUES = 128


def sums(threads, registers):
    """A thread loads 128 values, and stores each plus the one that it loaded last."""

    @kernel(in_specs=(Tile(VALUES, "N", f32),), out_specs=(Tile(VALUES, "N", f32),), grid=(132,), block=threads,
            arch="sm_90a", registers=registers, allow_spills=True)  # fmt: skip
    def program(X, Y):
        _, n = X.shape
        x, y = ptx.global_ptrs(X, Y)
        place = (ptx.special.ctaid.x() * threads + ptx.special.tid.x()).to(u64) * 4
        values = [ptx.load(f32, ptx.addr(x + place + n.to(u64) * (4 * i))) for i in range(VALUES)]
        for i, value in enumerate(values):
            ptx.store(ptx.addr(y + place + n.to(u64) * (4 * i)), value + values[-1])

    return program


def recorded(threads, registers):
    x = np.zeros((VALUES, 132 * threads), np.float32)
    return record(sums(threads, registers), x, out=np.zeros_like(x))


def test_a_kernel_with_enough_registers_spills_nothing():
    recording, launch = recorded(256, 255)
    assert launch.stack_bytes == 0
    assert spills.spills(recording, launch.stack_bytes, 1, 132) == spills.Spills()


def test_what_does_not_fit_in_registers_is_stored_and_loaded_once():
    recording, launch = recorded(512, 64)
    found = spills.spills(recording, launch.stack_bytes, 1, 132)
    assert launch.stack_bytes > 4 * (VALUES - 64)
    assert found.stored == pytest.approx(1440 * 512, rel=0.2)
    assert found.loaded >= found.stored * 0.8


@pytest.mark.parametrize(("stack_bytes", "outside", "beyond"), [(256, 0.0, 0.0), (2048, 1.0, 0.78)])
def test_they_stay_in_l1_if_it_has_room_and_leave_l2_if_that_has_not(stack_bytes, outside, beyond):
    recording, _ = recorded(512, 64)
    found = spills.spills(recording, stack_bytes, 1, 132)
    assert (found.outside, found.beyond) == (outside, pytest.approx(beyond, abs=0.01))


def test_they_take_the_memory_pipe_and_outside_of_l1_also_l2():
    recording, _ = recorded(512, 64)
    near, far = (
        [cost_of(run, recording.pcs, H200, spilled=spilled) for run in recording.runs] for spilled in (0.0, 1.0)
    )
    assert sum(cost.stored for cost in far) > sum(cost.stored for cost in near)
    assert sum(cost.missed for cost in far) > sum(cost.missed for cost in near)
    assert sum(cost.lsu for cost in near) > 2 * VALUES


def test_a_kernel_that_spills_takes_longer():
    x = np.zeros((VALUES, 132 * 512), np.float32)
    few, many = (predict(sums(512, registers), x, out=np.zeros_like(x)) for registers in (64, 128))
    assert few.us > many.us
