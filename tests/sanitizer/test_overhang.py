"""Tensor stores that write beyond their rows: found, with the owner of the memory, unless the caller allows them."""

from __future__ import annotations

import numpy as np
import pytest

import warploom
from warploom import Tile, kernel, ptx, reg, smem
from warploom.types import f32

ROWS, COLUMNS = 4, 32


def storing(kind: str = "store", pads_to_16b: bool = False) -> warploom.lang.Kernel:
    """A kernel that fills a box of f32 and stores it (or adds it) at the array's first element."""
    tile = Tile("M", "N", f32, box=(COLUMNS, ROWS), order="rows", pads_to_16b=pads_to_16b)

    @kernel(in_specs=(), out_specs=(tile,), grid=1, block=128, arch="sm_90a", name=f"{kind}_box")
    def box(D):
        here = smem.array(f32, (ROWS, COLUMNS), align=128)
        thread = ptx.special.tid.x()
        ptx.store(here[0, 0] + thread * 4, reg.scalar(f32, init=5.0))
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(0)
        with ptx.if_(thread == 0):
            if kind == "store":
                ptx.cp.async_.bulk.tensor_store(D.tma_desc(), here[0, 0], (0, 0))
            else:
                ptx.cp.async_.bulk.tensor_reduce(kind, D.tma_desc(), here[0, 0], (0, 0))
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group(0)

    return box


def found(kernel: warploom.lang.Kernel, out: np.ndarray, **options: object) -> list[tuple[str, str]]:
    return [(each.rule, each.severity) for each in warploom.emulate(kernel, out=out, **options).findings]


@pytest.mark.parametrize("kind", ["store", "add"])
@pytest.mark.parametrize("width, severity", [(96, "error"), (32, "warning")])
def test_what_is_written_behind_a_view_is_told(kind: str, width: int, severity: str):
    whole = np.full((ROWS, width), 96, np.float32)
    report = warploom.emulate(storing(kind), out=whole[:, :29])
    (finding,) = report.findings
    assert (finding.rule, finding.severity) == ("tensor-store-overhang", severity)
    assert "innermost extent is 29 elements of f32, 116 bytes" in finding.message
    assert "elements 29 to 31 of its rows are written too" in finding.message
    foreign = "its rows are 384 bytes apart, so that memory belongs to other data"
    assert (foreign in finding.message) == (width == 96)
    assert (whole[:, 29:32] != 96).all() and (whole[:, 32:] == 96).all()


@pytest.mark.parametrize("schedule", ["explore", "eager", "random"])
def test_every_schedule_says_the_same(schedule: str):
    whole = np.zeros((ROWS, 96), np.float32)
    assert found(storing(), whole[:, :31], schedule=schedule) == [("tensor-store-overhang", "error")]


def test_a_single_row_is_judged_by_what_lies_behind_it():
    assert found(storing(), np.zeros((1, 64), np.float32)[:, :29]) == [("tensor-store-overhang", "error")]
    assert found(storing(), np.zeros((1, 32), np.float32)[:, :29]) == [("tensor-store-overhang", "warning")]


def test_whole_pieces_are_left_alone():
    assert found(storing(), np.zeros((ROWS, 96), np.float32)[:, :28]) == []


def test_who_says_that_nobody_else_uses_that_memory_is_left_alone():
    whole = np.full((ROWS, 96), 96, np.float32)
    assert found(storing(pads_to_16b=True), whole[:, :29]) == []
    assert (whole[:, 29:32] == 5).all()


def test_saying_so_changes_nothing_in_the_text():
    assert storing(pads_to_16b=True).ptx() == storing().ptx()
