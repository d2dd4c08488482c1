"""Exact divisions of zeros: warps that call the subroutine of ptxas, and values that a recording does not know."""

import numpy as np
import pytest

from warploom.isa.dtypes import f32, u64
from warploom.lang import Tile, kernel, ptx, reg
from warploom.runtime.on_clock import record
from warploom.timing import H200, predict
from warploom.timing.subroutines import CALLED


def divided(opcode: str, *, of_data: bool = False, first: int = 0):
    """Two warps each apply an instruction to their thread's number from `first`, or to a loaded value."""

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(64, f32),), grid=(1,), block=64, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        thread = ptx.special.tid.x()
        value = (thread + first).to(f32)
        if of_data:
            value = ptx.load(f32, ptx.addr(x + thread.to(u64) * 4))
        found, length = reg.scalar(f32), reg.scalar(f32, init=7.0)
        ptx.inst(opcode, found, value, *([length] if opcode.startswith("div") else []))
        ptx.store(ptx.addr(y + thread.to(u64) * 4), found)

    return program


def calls(program) -> dict[int, int]:
    """How many subroutines each warp calls."""
    recording, _ = record(program, np.zeros(64, np.float32))
    return {
        warp: sum(recording.pcs[pc].latency.endswith("_called")
                  for kind, _, run in steps if kind == 0 for pc in recording.runs[run].pcs)
        for (_, warp), steps in recording.steps.items()
    }  # fmt: skip


@pytest.mark.parametrize("base", sorted(CALLED))
def test_a_warp_calls_the_subroutine_if_a_thread_has_a_zero(base):
    assert calls(divided(f"{base}.rn.f32")) == {0: 1, 1: 0}


def test_no_warp_calls_it_without_a_zero_or_for_an_approximation():
    assert calls(divided("div.rn.f32", first=1)) == {0: 0, 1: 0}
    assert calls(divided("div.full.f32")) == {0: 0, 1: 0}


def test_what_was_loaded_counts_as_ordinary_because_a_recording_has_only_zeros():
    assert calls(divided("div.rn.f32", of_data=True)) == {0: 0, 1: 0}


def test_the_call_takes_time():
    times = [predict(*arguments(divided("div.rn.f32", first=first))).clocks for first in (0, 1)]
    assert times[0] - times[1] == pytest.approx(H200.latency["div_called"].value, rel=0.3)


def arguments(program):
    """The arguments of `timing.predict`."""
    recording, launch = record(program, np.zeros(64, np.float32))
    return recording, H200, launch
