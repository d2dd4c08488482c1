"""Launch descriptions of several GPUs: each GPU's own values, arrays of a certain GPU, and what is expected of all."""

from __future__ import annotations

from pathlib import Path
from re import sub

import pytest

from tests.errors import refused
from warploom import emulate
from warploom.emulator.machine.events import Observer
from warploom.runtime import launch_file
from warploom.sanitizer import EXPLORED
from warploom.testing import check_entries

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry exchange(.param .u64 mine, .param .u64 box0, .param .u64 box1, .param .u64 flag0, .param .u64 flag1,
                         .param .u64 came, .param .u32 rank)
.reqntid 32, 1, 1
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %a<12>;
    ld.param.u32 %r1, [rank];
    setp.eq.u32 %p1, %r1, 0;
    ld.param.u64 %a1, [mine];
    ld.param.u64 %a2, [box0];
    ld.param.u64 %a3, [box1];
    ld.param.u64 %a4, [flag0];
    ld.param.u64 %a5, [flag1];
    ld.param.u64 %a6, [came];
    selp.b64 %a7, %a3, %a2, %p1;
    selp.b64 %a8, %a2, %a3, %p1;
    selp.b64 %a9, %a5, %a4, %p1;
    selp.b64 %a10, %a4, %a5, %p1;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %a11, %r2, 4;
    add.u64 %a1, %a1, %a11;
    add.u64 %a6, %a6, %a11;
    add.u64 %a7, %a7, %a11;
    add.u64 %a8, %a8, %a11;
    ld.global.b32 %r3, [%a1];
    st.global.b32 [%a7], %r3;
    bar.sync 0;
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra AFTER;
    st.release.sys.global.u32 [%a9], 1;
LOOP:
    ld.acquire.sys.global.u32 %r4, [%a10];
    setp.ne.u32 %p3, %r4, 1;
    @%p3 bra LOOP;
AFTER:
    bar.sync 0;
    ld.global.b32 %r5, [%a8];
    st.global.b32 [%a6], %r5;
    ret;
}
"""
"""Two GPUs write their numbers to each other and raise a flag there, which nobody lowers."""
LAUNCH = """grid = [1, 1, 1]
devices = 2
{top}
[[parameter]]
dtype = "f32"
shape = [32]
fill = "normal"
{peers}
[[parameter]]
name = "came"
dtype = "f32"
shape = [32]
[[parameter]]
kind = "scalar"
value = {rank}
[[expect]]
name = "came"
value = "{value}"
"""
PEER = '[[parameter]]\nname = "{name}{rank}"\ndtype = "{dtype}"\nshape = [{size}]\ndevice = {rank}\n'
PEERS = "".join(
    PEER.format(name=name, dtype=dtype, size=size, rank=rank)
    for name, dtype, size in (("box", "f32", 32), ("flag", "u32", 1))
    for rank in range(2)
)


def written(
    folder: Path, text: str = TEXT, top: str = "", peers: str = PEERS, rank: str = "[0, 1]", value: str = "mine[::-1]"
) -> Path:
    (folder / "exchange.ptx").write_text(text)
    (folder / "exchange.launch.toml").write_text(LAUNCH.format(top=top, peers=peers, rank=rank, value=value))
    return folder / "exchange.ptx"


def rules(path: Path, **options: object) -> set[str]:
    (checked,) = check_entries(path, **options)
    return {finding.rule for finding in checked.findings}


@pytest.mark.parametrize("schedule", ["lazy", "random", "explore"])
def test_a_text_of_two_gpus_runs_under_its_description(tmp_path, schedule):
    assert rules(written(tmp_path), schedule=schedule) == set()


def test_an_expected_value_has_the_rank_in_front(tmp_path):
    """Each GPU has random numbers of its own, so nothing but the other's is right."""
    assert rules(written(tmp_path, value="mine")) == {"wrong-result"}
    assert rules(written(tmp_path, value="np.stack([box1, mine[0]]) * 0 + mine[::-1]")) == set()


def test_an_array_is_in_the_memory_of_the_gpu_that_the_description_names(tmp_path):
    description = launch_file.read(written(tmp_path).with_suffix(".launch.toml"))
    program = description.program(TEXT)
    made, seen = description.made(program), {}

    def watch(machine):
        seen.update({sub(r"(box|flag)\d", r"\1", each.region.name): each.device for each in machine.memory.allocations})
        return Observer()

    emulate(program, *made.arguments, watch=watch, check=False, **made.launch)
    names = ("mine", "came", "box", "flag")
    assert seen == {f"{name} of GPU {rank}": rank for rank in (0, 1) for name in names}


def test_a_second_launch_finds_the_flag_that_nobody_lowered(tmp_path):
    assert "peer-flag-stale" in rules(written(tmp_path, top="calls = 2"))


def test_a_gpu_s_own_pointer_may_be_one_of_the_shared_arrays(tmp_path):
    """`came` is each GPU's own inbox, though it comes before them."""
    path = written(tmp_path, value="np.stack([box0, box1]) * 0 + mine[::-1]")
    launch = path.with_suffix(".launch.toml")
    text = launch.read_text().replace(
        'name = "came"\ndtype = "f32"\nshape = [32]', 'name = "came"\nsame_as = ["box0", "box1"]'
    )
    launch.write_text(text)
    assert rules(path) == set()


def test_pointers_to_all_gpus_may_stand_in_a_structure(tmp_path):
    at = "".join(
        f'[parameter.at.{8 * rank}]\nname = "x{rank}"\ndtype = "u32"\nshape = [4]\ndevice = {rank}\n'
        for rank in range(2)
    )
    (tmp_path / "k.launch.toml").write_text(
        f'grid = [1]\nblock = [32]\ndevices = 2\n[[parameter]]\nkind = "bytes"\nsize = 16\n{at}'
        '[[parameter]]\nkind = "multimem"\nof = ["x0", "x1"]\n'
    )
    described = launch_file.read(tmp_path / "k.launch.toml")
    text = TEXT.partition(".visible")[0] + ".entry k(.param .u64 ptrs, .param .u64 together) { ret; }"
    (first, second), together = described.arguments(described.program(text))
    assert [first.at[offset] is second.at[offset] for offset in (0, 8)] == [True, True]
    assert [view.pointer for view in together[0].bound("x").arrays] == [first.at[at].ctypes.data for at in (0, 8)]


FIRST, REST = TEXT.split("    ld.param.u64 %a1, [mine];\n")
IN_STRUCTURES = (
    sub(r"(?s)mine, .*?came", "mine, .param .align 8 .b8 at[32], .param .u64 came", FIRST)
    + "    ld.param.u64 %a1, [mine];\n"
    + sub(r"\[(box|flag)(\d)\]", lambda found: f"[at+{8 * int(found[2]) + 16 * (found[1] == 'flag')}]", REST)
)
"""TEXT, with the four pointers in one structure by value."""


def in_structures(folder: Path, behind: bool) -> Path:
    """TEXT and its description, with the pointers by value, or behind a pointer."""
    text, parts = IN_STRUCTURES, enumerate(PEERS.split("[[parameter]]\n")[1:])
    if behind:
        text = text.replace(".param .align 8 .b8 at[32]", ".param .u64 at").replace(
            "    ld.param.u64 %a1, [mine];\n", "    ld.param.u64 %a0, [at];\n    ld.param.u64 %a1, [mine];\n"
        )
        text = sub(r"ld\.param\.u64 (%a\d), \[at\+", r"ld.global.u64 \1, [%a0+", text)
    peers = '[[parameter]]\nkind = "bytes"\nsize = 32\n' + "".join(
        f"[parameter.at.{8 * at}]\n{part}" for at, part in parts
    )
    return written(folder, text, peers=peers)


def test_explore_judges_the_values_of_each_schedule(tmp_path):
    """Nothing orders the numbers before the flag. A loop that waits for others than these reads them: only the values
    tell."""
    text = sub("(st|ld)[.](release.sys.|acquire.sys.)?global[.](b32 .%a7|u32)", r"\1.relaxed.sys.global.\3", TEXT)
    looks = "LOOK:\n    ld.relaxed.sys.global.b32 %r5, [%a8];\n    setp.eq.u32 %p3, %r5, 1;\n    @%p3 bra LOOK;"
    text = text.replace("    ld.global.b32 %r5, [%a8];", looks)
    path = written(tmp_path, text)
    assert rules(path) == set()
    (checked,) = check_entries(path, schedule="explore")
    assert {finding.rule for finding in checked.errors} == {"wrong-result"}
    assert checked.explored[-1] == (checked.schedule, checked.seed)
    assert rules(path, schedule=checked.schedule, seed=checked.seed) == {"wrong-result"}
    (clean,) = check_entries(written(tmp_path), schedule="explore")
    assert (clean.ok, clean.explored) == (True, EXPLORED)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("schedule", ["lazy", "explore"])
def test_arrays_in_structures_are_one_array_for_all_gpus(tmp_path, behind, schedule):
    """Each run of `explore` begins with the arrays as they are described; all GPUs meet in the same ones."""
    path = in_structures(tmp_path, behind)
    assert rules(path, schedule=schedule) == set()
    path.write_text(path.read_text().replace("st.release.sys", "st.release.gpu"))
    assert rules(path, schedule=schedule) == {"peer-scope", "wrong-result"}


@pytest.mark.parametrize(
    "changed",
    [{"rank": "[0, 1, 2]"}, {"peers": PEERS.replace("device = 1", "device = 2")}, {"top": "calls = 0"},
     {"value": "mine[5]"}, {"value": "mine[0] + nobody"}],
)  # fmt: skip
def test_a_description_that_does_not_fit_its_gpus_is_refused(tmp_path, changed):
    with refused("launch-description"):
        check_entries(written(tmp_path, **changed))
