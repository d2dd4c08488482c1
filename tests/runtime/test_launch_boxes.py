"""Boxes that `check --init` infers from a text: for compilers' and published kernels' launches, and for small texts."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from warploom import asm
from warploom.runtime import launch_file
from warploom.runtime.launch_boxes import MapGuess, likely
from warploom.runtime.launch_steps import Steps
from warploom.runtime.program import program_of

FOREIGN = Path(__file__).parents[1] / "foreign"
DESCRIBED = [
    text
    for text in sorted(FOREIGN.rglob("*.ptx"))
    if text.with_suffix(".launch.toml").is_file() and "tensor_map" in text.with_suffix(".launch.toml").read_text()
]
OPEN = {
    "e4m3_by_e5m2": "the types of A and B differ, and the opcode and its descriptor say which is which, not which map",
    "gathered_rows": "several warps run the same copies, so that the text has fewer than are announced",
    "mxfp8_by_mxfp4": "four bits an element, padded to a byte each on the way",
    "scattered_rows": "no product, so that two bytes an element are all that is known",
    "tf32": "the type of the matrix unit, which rounds f32",
}
"""Texts that do not say the box or the type of each load, and why."""
TEXT = """
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 A[128], .param .align 64 .b8 B[128], .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<8>;
    .shared .align 1024 .b8 tile[ROOM];
    .shared .align 1024 .b8 other[65536];
    .shared .align 8 .b64 bar;
    ld.param.u32 %r9, [n];
    mov.b64 %rd0, A;
    mov.b64 %rd1, B;
    mov.u32 %r2, 0;
    mov.u32 %r3, %ctaid.x;
    shl.b32 %r3, %r3, 5;
    mov.u32 %r4, BYTES;
LOOP:
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r4;
    COPIES
    add.u32 %r2, %r2, 64;
    setp.lt.u32 %p2, %r2, %r9;
    @%p2 bra LOOP;
    ret;
}
"""
COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
ONE = f"{COPY} [tile], [%rd0, {{%r2, %r3}}], [bar];"
TWO = ONE + f"\n    {COPY} [other], [%rd1, {{%r2, %r9}}], [bar];"


def found(announced: int, copies: str, room: int = 65536) -> dict[str, MapGuess]:
    module = asm.parse(TEXT.replace("BYTES", str(announced)).replace("COPIES", copies).replace("ROOM", str(room)))
    return {name: told for (name, _), told in likely(module.entries[0], module, {}).items()}


def guessed(told: MapGuess) -> bool:
    return "guess" in told.notes["box"]


def test_the_texts_with_a_launch_are_there() -> None:
    assert len(DESCRIBED) >= 10


def differences(text: Path) -> list[tuple[object, object]]:
    """What a template and the launch of a text have of each map that is loaded, where it is not the same."""
    guess = tomllib.loads(launch_file.template(program_of(text), text))["parameter"]
    true = tomllib.loads(text.with_suffix(".launch.toml").read_text())["parameter"]
    loaded = [(mine, theirs) for mine, theirs in zip(guess, true, strict=True)
              if "box" in theirs and theirs.get("fill") != "zeros"]  # fmt: skip
    assert loaded
    return [(mine[key], theirs[key]) for mine, theirs in loaded for key in ("box", "dtype", "swizzle")
            if mine[key] != theirs[key]]  # fmt: skip


@pytest.mark.parametrize("text", [text for text in DESCRIBED if text.stem not in OPEN], ids=lambda path: path.stem)
def test_boxes_and_types_of_loads_are_those_that_the_launch_of_a_published_kernel_has(text: Path) -> None:
    assert not differences(text)


@pytest.mark.parametrize("text", [text for text in DESCRIBED if text.stem in OPEN], ids=lambda path: path.stem)
def test_what_a_text_leaves_open_differs_and_is_called_a_guess(text: Path) -> None:
    differing = differences(text)
    template = launch_file.template(program_of(text), text).splitlines()
    assert differing
    for mine, _ in differing:
        shown = str(mine).replace("'", '"') if isinstance(mine, list) else f'"{mine}"'
        assert any(shown in line and "a guess" in line for line in template)


@pytest.mark.parametrize("kind, word, dtype", [
    ("f16", 1 << 4 | 16 << 17, "f16"), ("f16", 1 << 4 | 1 << 7 | 16 << 17, "bf16"),
    ("f8f6f4", 1 << 4 | 1 << 7 | 16 << 17, "e5m2"), ("mxf4nvf4", 1 << 7 | 16 << 17, "u8"),
])  # fmt: skip
def test_the_instruction_descriptor_of_tcgen05_says_the_type(kind: str, word: int, dtype: str) -> None:
    product = f"mov.b32 %r8, {word};\n    tcgen05.mma.cta_group::1.kind::{kind} [%r0], %rd2, %rd3, %r8, %p1;"
    assert found(64 * 32 * 2, f"{product}\n    {ONE}")["A"].dtype == dtype


def test_a_gather_copies_four_boxes_of_one_row() -> None:
    gather = ONE.replace(".tile", ".tile::gather4").replace("{%r2, %r3}", "{%r2, %r3, %r4, %r5, %r6}")
    told = found(4 * 64 * 2, gather)["A"]
    assert (told.box, guessed(told)) == ((64, 1), False)


def test_one_copy_has_the_bytes_that_are_announced_and_the_steps_of_its_coordinates() -> None:
    told = found(64 * 32 * 2, ONE)["A"]
    assert (told.box, told.swizzle, guessed(told)) == ((64, 32), "128B", False)


def test_where_the_steps_do_not_add_up_the_rows_are_what_the_announced_bytes_leave() -> None:
    told = found(64 * 48 * 2, ONE)["A"]
    assert told.box == (64, 48) and guessed(told)


def test_of_two_copies_the_second_gets_what_the_first_leaves() -> None:
    told = found(64 * 32 * 2 + 64 * 128 * 2, TWO)
    assert (told["A"].box, told["B"].box) == ((64, 32), (64, 128))


def test_a_box_is_not_larger_than_the_array_that_it_is_copied_to() -> None:
    told = found(64 * 16 * 2, ONE, room=64 * 16 * 2)["A"]
    assert told.box == (64, 16)


def test_bytes_that_no_box_has_leave_a_guess() -> None:
    told = found(7, ONE)["A"]
    assert guessed(told) and told.box == (64, 32)


@pytest.mark.parametrize(
    "lines, multiple",
    [
        ("mov.u32 %r0, 0;\nL: use %r0;\nadd.u32 %r0, %r0, 96;\n@%p0 bra L;", 96),
        ("mov.u32 %r0, %ctaid.x;\nmul.lo.u32 %r0, %r0, 192;\nadd.u32 %r0, %r0, 64;\nuse %r0;", 64),
        ("mov.u32 %r1, 3;\nshl.b32 %r0, %r1, 4;\nuse %r0;", 48),
        ("mov.u32 %r1, %tid.x;\nand.b32 %r0, %r1, 0xF0;\nuse %r0;", 16),
        ("mov.u32 %r1, %tid.x;\nmad.lo.u32 %r0, %r1, 128, %r1;\nuse %r0;", 1),
        ("mov.u32 %r0, 64;\n@%p0 mov.u32 %r0, 48;\nuse %r0;", 16),
        ("mov.u32 %r0, 64;\nmov.u32 %r0, 48;\nuse %r0;\nmov.u32 %r0, 7;", 48),
    ],
)
def test_a_register_is_a_multiple_of_its_steps(lines: str, multiple: int) -> None:
    text = lines.replace("use %r0", "st.shared.u32 [%r9], %r0")
    head = ".version 8.4\n.target sm_90a\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<10>;\n.reg .pred %p<2>;\n"
    module = asm.parse(f"{head}{text}\nret;\n}}")
    steps = Steps(module.entries[0])
    at = next(at for at, one in enumerate(steps.instructions) if one.opcode == "st.shared.u32")
    assert steps.multiple(steps.instructions[at].operands[1], at) == multiple


def test_the_swizzle_of_a_map_that_is_only_stored_to_is_a_guess() -> None:
    """The matrix unit's descriptors tell how its operands lie, not how an epilogue stores its tiles."""
    text = FOREIGN / "blackwell" / "current" / "persistent_f16.ptx"
    parameters = launch_file.template(program_of(text), text).split("[[parameter]]")
    swizzles = {
        "stored to" in one: "guess" in line for one in parameters for line in one.splitlines() if "swizzle =" in line
    }
    assert swizzles == {True: True, False: False}


@pytest.mark.parametrize("reads, dtype, box", [
    ("ld.shared.f32 %f0, [tile+4];", "f32", (32, 64)),
    ("ld.shared.b32 %f0, [tile]; add.f32 %f0, %f0, %f0;", "f32", (32, 64)),
    ("ld.shared.f32 %f0, [other];", "bf16", (64, 64)),
    ("ld.shared.f32 %f0, [tile]; ld.shared.u8 %r2, [tile];", "bf16", (64, 64)),
])  # fmt: skip
def test_a_map_has_the_type_in_which_its_array_is_read(reads: str, dtype: str, box: tuple[int, ...]) -> None:
    told = found(8192, f".reg .f32 %f<2>; {ONE.replace('%r2', '0')} {reads}")["A"]
    assert (told.dtype, told.box) == (dtype, box)
    assert ("reads" in told.notes["dtype"]) == (dtype == "f32") and "a guess" in told.notes["dtype"]
