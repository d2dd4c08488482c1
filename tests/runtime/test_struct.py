"""Structures as arguments: addresses, maps and numbers inside a by-value structure and behind pointers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.errors import refused
from warploom import Struct, TensorMap, emulate
from warploom.testing import check_text

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.entry k(.param .align 64 .b8 p[256], .param .u64 behind)
{
    .reg .b64 %d<9>;
    .reg .b32 %r<9>;
    .reg .pred %p<2>;
    .shared .align 128 .b8 tile[256];
    .shared .align 8 .b8 bar[8];
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [bar], 1;
    bar.sync 0;
    mov.b64 %d1, p;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%d1, {0}], [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra wait;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, tile;
    add.u32 %r3, %r3, %r2;
    ld.shared.u32 %r4, [%r3];
    ld.param.u32 %r5, [p+136];          // a number
    mad.lo.u32 %r4, %r4, %r5, 0;
    ld.param.u64 %d2, [behind];         // a pointer to a structure with a pointer in it
    ld.global.u64 %d3, [%d2+8];
    cvt.u64.u32 %d4, %r2;
    add.u64 %d3, %d3, %d4;
    ld.global.u32 %r6, [%d3];
    add.u32 %r4, %r4, %r6;
    ld.param.u64 %d5, [p+128];          // a pointer
    add.u64 %d5, %d5, %d4;
    st.global.u32 [%d5], %r4;
    ret;
}
"""
LAUNCH = """
grid = 1
block = 32
[[parameter]]
kind = "bytes"
size = 256
[parameter.at.0]
name = "x"
kind = "tensor_map"
dtype = "u32"
shape = [64]
fill = "arange"
box = [64]
[parameter.at.128]
as = "out"
kind = "buffer"
dtype = "u32"
shape = [32]
[parameter.at.136]
kind = "scalar"
dtype = "u32"
value = 3
[[parameter]]
as = "list"
kind = "bytes"
size = 16
[parameter.at.8]
name = "more"
dtype = "u32"
shape = [32]
fill = "ones"
"""


def arguments(out: np.ndarray) -> list:
    x = np.arange(64, dtype=np.uint32)
    inside = Struct(256, {0: TensorMap.tiled(x, box=(64,)), 128: out, 136: np.uint32(3)})
    return [inside, Struct(16, {8: np.ones(32, np.uint32)})]


@pytest.mark.parametrize("schedule", ["lazy", "eager", "explore"])
def test_what_a_structure_points_to_is_read_and_written(schedule: str) -> None:
    out = np.zeros(32, np.uint32)
    report = emulate(TEXT, *arguments(out), grid=1, block=32, schedule=schedule)
    assert not report.findings and out.tolist() == [3 * i + 1 for i in range(32)]


def test_an_array_that_two_parts_share_is_one_buffer() -> None:
    same = np.arange(32, dtype=np.uint32)
    inside = Struct(256, {0: TensorMap.tiled(np.zeros(64, np.uint32), box=(64,)), 128: same, 136: np.uint32(1)})
    emulate(TEXT, inside, Struct(16, {8: same}), grid=1, block=32, schedule="explore")
    assert same.tolist() == list(range(32)), "each thread stored what it had read from the same place"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Struct(16, {12: np.zeros(4)}),
        lambda: Struct(16, {0: np.zeros(4), 4: np.uint32(1)}),
        lambda: Struct(4, {}, bytes(8)),
    ],
    ids=["behind the end", "overlapping", "too much data"],
)
def test_parts_stand_inside_and_apart(make) -> None:
    with refused("argument"):
        make()


def test_a_structure_of_another_size_is_refused() -> None:
    with refused("wrong-type"):
        emulate(TEXT, Struct(128, {}), Struct(16, {}), grid=1, block=32)


def described(tmp_path: Path, more: str, launch: str = LAUNCH) -> list[str]:
    """The rules of what `check` finds, by a launch description with more lines."""
    (tmp_path / "k.ptx").write_text(TEXT)
    (tmp_path / "k.launch.toml").write_text(launch + more)
    return [finding.rule for finding in check_text(tmp_path / "k.ptx").findings]


def test_a_description_puts_things_at_offsets(tmp_path: Path) -> None:
    assert described(tmp_path, '[[expect]]\nname = "out"\nvalue = "3 * x[:32] + more"\n') == []


def test_a_result_that_is_not_the_expression_is_wrong(tmp_path: Path) -> None:
    assert described(tmp_path, '[[expect]]\nname = "out"\nvalue = "3 * x[:32]"\n') == ["wrong-result"]


def test_a_result_is_compared_with_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "out.npy", np.array([3 * i + 1 for i in range(32)]))
    assert described(tmp_path, '[[expect]]\nname = "out"\nfile = "out.npy"\n') == []


def test_a_result_is_compared_with_another_kernel(tmp_path: Path) -> None:
    (tmp_path / "other.ptx").write_text(TEXT.replace("[p+136]", "[p+140]"))  # another number
    for number, rules in ((3, []), (4, ["wrong-result"])):
        launch = LAUNCH.replace("at.136", "at.140").replace("value = 3", f"value = {number}")
        (tmp_path / "other.launch.toml").write_text(launch)
        assert described(tmp_path, '[[expect]]\nname = "out"\nkernel = "other.ptx"\n') == rules


@pytest.mark.parametrize(
    "value",
    ["np.load('x.npy')", "x.tofile('x')", "__import__('os')", "[a for a in x]", "nothing + 1", "x.__class__", "x +"],
)
def test_an_expression_can_only_compute(tmp_path: Path, value: str) -> None:
    with refused("launch-description"):
        described(tmp_path, f'[[expect]]\nname = "out"\nvalue = "{value}"\n')


@pytest.mark.parametrize(
    "more",
    [
        '[[expect]]\nvalue = "x"\n',
        '[[expect]]\nname = "out"\n',
        '[[expect]]\nname = "out"\nvalue = "x"\nfile = "x.npy"\n',
        '[[expect]]\nname = "other"\nvalue = "x"\n',
        '[[expect]]\nname = "out"\nvalue = "np.zeros((5, 7))"\n',
        '[parameter.at.ten]\ndtype = "u32"\nshape = [1]\n',
        '[parameter.at.0]\nkind = "what"\n',
        '[parameter.at.0]\ndtype = "u32"\nshape = [1, 2]\nstrides = [1]\n',
    ],
)
def test_a_description_that_cannot_be_meant_is_refused(tmp_path: Path, more: str) -> None:
    with refused("launch-description"):
        described(tmp_path, more)


def test_strides_leave_gaps(tmp_path: Path) -> None:
    launch = LAUNCH.replace("shape = [64]", "shape = [2, 32]\nstrides = [36, 1]").replace("box = [64]", "box = [32, 2]")
    (tmp_path / "k.launch.toml").write_text(launch)
    from warploom.runtime import launch_file

    description = launch_file.read(tmp_path / "k.launch.toml")
    first = description.arguments(description.program(TEXT))[0]
    assert first.at[0].spec.strides == (144,) and first.at[0].array.strides == (144, 4)
    assert first.at[0].array.host[1].tolist() == list(range(32, 64))


def test_a_dependent_launch_has_to_wait_for_the_grid_in_front(tmp_path: Path) -> None:
    assert "before-grid-wait" in described(tmp_path, "", "dependent = true\n" + LAUNCH)


@pytest.mark.parametrize("name, found", [("x", {"before-grid-wait"}), ("more", {"before-grid-wait"}), ("out", set())])
def test_a_dependent_launch_may_read_what_the_grid_in_front_does_not_write(
    tmp_path: Path, name: str, found: set[str]
) -> None:
    """The text reads `x` by a copy and `more` by ld, both behind pointers in structures, then waits, then stores."""
    text = TEXT.replace("    ld.param.u64 %d5", "    griddepcontrol.wait;\n    ld.param.u64 %d5")
    (tmp_path / "k.ptx").write_text(text)
    (tmp_path / "k.launch.toml").write_text(f'dependent = ["{name}"]\n' + LAUNCH)
    report = check_text(tmp_path / "k.ptx")
    assert {finding.rule for finding in report.errors} == {finding.rule for finding in report.findings} == found


def test_an_array_of_the_grid_in_front_must_be_one_of_the_launch(tmp_path: Path) -> None:
    with refused("launch-description"):
        described(tmp_path, "", 'dependent = ["nothing"]\n' + LAUNCH)


def test_a_shared_array_can_be_seen_in_another_shape(tmp_path: Path) -> None:
    """`more` is the second row of `both`, whose first row is the kernel's result."""
    launch = LAUNCH.replace('"out"\nkind = "buffer"\ndtype = "u32"\nshape = [32]',
                            '"both"\nkind = "buffer"\ndtype = "u32"\nshape = [2, 32]\nfill = 5')  # fmt: skip
    launch = launch.replace('dtype = "u32"\nshape = [32]\nfill = "ones"',
                            'same_as = "both"\nshape = [32]')  # fmt: skip
    expect = '[[expect]]\nname = "both"\nvalue = "np.stack([3 * x[:32] + 5, both[1]])"\n'
    assert described(tmp_path, expect, launch) == []


def test_a_shared_array_can_begin_at_an_element(tmp_path: Path) -> None:
    launch = LAUNCH.replace(
        '"out"\nkind = "buffer"\ndtype = "u32"\nshape = [32]', '"both"\ndtype = "u32"\nshape = [64]'
    )
    launch = launch.replace('dtype = "u32"\nshape = [32]\nfill = "ones"', 'same_as = "both"\noffset = 32')
    assert described(tmp_path, '[[expect]]\nname = "both"\nvalue = "np.append(3 * x[:32], both[32:])"\n', launch) == []


@pytest.mark.parametrize("schedule", ["lazy", "explore"])
def test_views_of_one_array_share_its_memory(schedule: str) -> None:
    both = np.ones((2, 32), np.uint32)
    x = TensorMap.tiled(np.arange(64, dtype=np.uint32), box=(64,))
    inside = Struct(256, {0: x, 128: both[1], 136: np.uint32(3)})
    emulate(TEXT, inside, Struct(16, {8: both}), grid=1, block=32, schedule=schedule)
    assert both.tolist() == [[1] * 32, [3 * i + 1 for i in range(32)]]
