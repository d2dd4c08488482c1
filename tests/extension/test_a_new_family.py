"""A new instruction family with its own memory space is five files (`pad/`) and an entry in each list of the package.

The rest of the package has no code for it: scheduling points, the order of its operations under every schedule, what a
wait proves, and to whom, follow from the effects of its rows.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.extension.pad import checker, lang, memory, ops, rows
from warploom import asm, kernel, ptx, reg
from warploom.emulator import api
from warploom.emulator.machine import groups, units
from warploom.emulator.machine.slots import Slot
from warploom.emulator.ops import HANDLERS
from warploom.errors import EmulationError
from warploom.isa import effects
from warploom.isa.instructions import table
from warploom.lang.tile import Tile
from warploom.sanitizer import RULES, Sanitizer
from warploom.sanitizer.checkers import CHECKERS
from warploom.types import u32

SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 0), ("random", 1), ("starve", 100), ("pct", 0)]
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])

TEXT = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [data];
    mov.u32 %r0, %tid.x;
    pad.alloc.b32 %r1, 32;
    add.u32 %r1, %r0, 0;
    mul.lo.u32 %r2, %r0, 3;
    pad.put.async.b32 %r1, %r2;
    pad.commit_group;
    pad.wait_group 0;
    xor.b32 %r4, %r0, 1;
    bar.warp.sync 0xffffffff;
    pad.get.b32 %r3, %r4;
    mad.wide.u32 %d1, %r0, 4, %d0;
    st.global.u32 [%d1], %r3;
    ret;
}
"""


@pytest.fixture(autouse=True)
def family(monkeypatch):
    """The entries that a real family would have in the package's lists."""
    monkeypatch.setattr(table, "FORMS", (*table.FORMS, *rows.FORMS))
    for key, handler in ops.HANDLERS.items():
        monkeypatch.setitem(HANDLERS, key, handler)
    monkeypatch.setattr(units, "UNITS", (*units.UNITS, memory.UNIT))
    monkeypatch.setattr("warploom.emulator.engines.engine.UNITS", units.UNITS)
    monkeypatch.setitem(groups.FAMILIES, rows.FAMILY, Slot("groups of pad", groups.GroupStates))
    for rule in checker.RULES:
        monkeypatch.setitem(RULES._records, rule.id, rule)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    table.match.cache_clear()
    table.rows_of.cache_clear()


def run(text: str, schedule: str, seed: int) -> tuple[np.ndarray, set[str]]:
    """What the kernel leaves, and the rules that are broken."""
    data = np.zeros(32, np.uint32)
    try:
        report = api.run(
            asm.parse(text, name="pad.ptx"), "k", [data], grid=(1, 1, 1), block=(32, 1, 1), schedule=schedule,
            seed=seed, watch=[lambda machine: Sanitizer(machine, (*CHECKERS, checker.PadCells))],
        )  # fmt: skip
    except EmulationError as error:
        return data, {type(error).__name__}
    return data, {finding.rule for finding in report.findings if finding.severity == "error"}


@schedules
def test_a_right_kernel_is_clean_and_right(schedule: str, seed: int):
    data, found = run(TEXT, schedule, seed)
    assert found == set()
    np.testing.assert_array_equal(data, (np.arange(32) ^ 1) * 3)


@schedules
@pytest.mark.parametrize(
    ("dropped", "expected"),
    [
        ("pad.wait_group 0;", {"pad-not-waited", "exit-with-pending-work"}),
        ("pad.commit_group;", {"pad-not-waited", "exit-with-pending-work"}),
        ("pad.put.async.b32 %r1, %r2;", {"pad-never-written"}),
        ("pad.alloc.b32 %r1, 32;", {"InvalidOperandError"}),
    ],
)
def test_a_mutant_is_found_under_every_schedule(dropped: str, expected: set[str], schedule: str, seed: int):
    assert dropped in TEXT
    assert run(TEXT.replace(dropped, ""), schedule, seed)[1] == expected


def test_an_operation_in_flight_shows_as_poison():
    data, _ = run(TEXT.replace("pad.wait_group 0;", ""), "lazy", 0)
    assert set(data.tolist()) == {memory.POISON}


def test_its_scheduling_points_follow_from_its_rows():
    visible = {form.key: effects.is_scheduling_point(form.effects) for form in rows.FORMS}
    assert [key for key, is_visible in visible.items() if is_visible] == ["pad.wait_group"]


def test_an_author_writes_a_kernel_with_it():
    @kernel(in_specs=(Tile(32, u32),), out_specs=(Tile(32, u32),), grid=(1, 1, 1), block=(32, 1, 1), arch="sm_90a")
    def triple(x, out):
        cells, thread, value = lang.Cells(32), ptx.special.tid.x(), reg.scalar(u32)
        source, target = ptx.global_ptrs(x, out)
        ptx.inst.ld.global_.u32(value, ptx.addr(source + thread * 4))
        cells.put(thread, value * 3)
        ptx.inst.st.global_.u32(ptx.addr(target + thread * 4), cells.get(thread))

    assert "pad.put.async.b32" in triple.ptx()
    x = np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(triple(x), x * 3)
