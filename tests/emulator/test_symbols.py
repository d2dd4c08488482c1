"""The author's terms in messages: rows and chunks, roles of warps, buffers; and a deadlock described with them."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from benchmarks.zoo.mutate import mutants
from tests.errors import refused
from warploom import Tile, asm, kernel, ptx
from warploom.emulator.machine.finding import Finding
from warploom.emulator.machine.symbols import SharedPart, WarpRole, ranges, role_of, warps_named
from warploom.errors import DeadlockError
from warploom.isa.swizzle import Swizzle
from warploom.kernels.ladder import r11_warp_specialised, r13_persistent
from warploom.runtime import H200, emulate
from warploom.sanitizer.report.rendering import as_text, render
from warploom.types import f32

# -- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swizzle", [Swizzle.B128, Swizzle.B64, Swizzle.B32])
def test_a_byte_of_a_swizzled_tile_is_named_by_its_logical_chunk(swizzle: Swizzle) -> None:
    span = swizzle.span
    part = SharedPart("smem", "tile", 0, 64 * span, 1, span, 64, span)
    for row in range(64):
        for chunk in range(span // 16):
            stored = int(swizzle.apply(row * span + chunk * 16))
            assert part.place(stored).startswith(f"row {row}, chunk {chunk}")


def test_a_tile_of_several_panels_names_the_panel() -> None:
    part = SharedPart("smem", "tile", 0, 2 * 64 * 128, 1, 128, 64, 0)
    assert part.place(0) == "panel 0, row 0, chunk 0"
    assert part.place(64 * 128 + 3 * 128 + 16) == "panel 1, row 3, chunk 1"


def test_what_has_no_rows_has_no_place() -> None:
    assert SharedPart("smem", "full", 0, 32, 4).place(8) == ""


# -- warps -------------------------------------------------------------------------------------------------------


def test_numbers_are_said_as_ranges() -> None:
    assert ranges([3, 1, 2, 9, 7]) == "1-3, 7, 9"
    assert (warps_named([4]), warps_named([4, 5, 6, 7])) == ("warp 4", "warps 4-7")


def test_a_warp_has_the_role_it_falls_into() -> None:
    roles = (WarpRole("producer", 0, 3), WarpRole("consumer", 4, 7))
    assert [role_of(roles, warp) for warp in (0, 3, 5, 8)] == ["producer", "producer", "consumer", ""]


def test_the_roles_of_a_kernel_travel_with_its_program() -> None:
    roles = r13_persistent.build().program().roles
    assert [(role.name, role.first, role.last) for role in roles] == [
        ("producer", 0, 3), ("consumer 0", 4, 7), ("consumer 1", 8, 11),
    ]  # fmt: skip


# -- a deadlock ----------------------------------------------------------------------------------------------------


def stopped(kind: str, which: int = 0) -> DeadlockError:
    """What a mutant of the warp-specialised rung ends with."""
    program = r11_warp_specialised.build().program()
    mutant = list(mutants(asm.parse(program.text, name="r11"), [kind]))[which]
    a, b = (np.zeros((256, 512), ml_dtypes.bfloat16) for _ in range(2))
    with pytest.raises(DeadlockError) as caught:
        emulate(replace(program, text=mutant.module.to_text(line_info=True)), a, b, machine=H200(sms=2))
    return caught.value


def test_a_deadlock_names_roles_as_ranges_and_what_is_missing_by_the_barriers_name() -> None:
    said = str(stopped("flip-phase"))
    assert "producer (" in said and "consumer" in said and "(warps 4-7)" in said
    assert "waits for mbarrier empty[0], phase 0 (parity 0): " in said
    assert "waits for mbarrier full[0], phase 0 (parity 0): " in said
    assert "wait for a free stage with parity 1" in said  # the hint
    assert "warp 4, 5" not in said and "warps 4, 5" not in said


def test_a_deadlock_is_one_line_for_all_ctas_that_wait_alike() -> None:
    error = stopped("flip-phase")
    assert len(error.blocked) < 6
    assert all(len(wait.ctas) >= 2 for wait in error.waits)


def test_bytes_that_nobody_sends_are_counted_against_those_that_came() -> None:
    error = stopped("change-bytes")
    assert error.hint is not None and " bytes but gets " in error.hint
    shown = as_text(render(Finding.of_error(error)))
    assert "error[DeadlockError]" in shown and "r11_warp_specialised.py:" in shown
    assert "so far: completed" in shown and "^^^^" in shown  # the source line is underlined


# -- buffers -----------------------------------------------------------------------------------------------------


@kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(1,), block=32, arch="sm_80")
def beyond(X, Y):
    x, y = ptx.global_ptrs(X, Y)
    index = ptx.special.tid.x() * 4
    ptx.store(ptx.addr(y + index), ptx.load(f32, ptx.addr(x + index)))


def test_a_buffer_has_the_name_of_the_argument() -> None:
    with refused("out-of-bounds") as caught:
        beyond.emulate(np.zeros(10, np.float32))
    assert " X with 40 bytes" in str(caught.value)
