"""Spellings and values that ptxas takes or refuses: the verifier says the same, each compared with ptxas itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.isa import examples
from warploom import asm
from warploom.driver import toolchain
from warploom.isa.instructions import table

TEXT = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{{
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .f64 %fd<2>; .reg .pred %q<4>;
    {body}
    ret;
}}
"""


def taken_by_ptxas(text: str, tmp_path: Path, arch: str = "sm_90a") -> bool:
    ptxas = toolchain.ptxas()
    if ptxas is None:
        pytest.skip("needs ptxas")
    path = tmp_path / "text.ptx"
    path.write_text(text)
    return ptxas.run("-arch", arch, path, "-o", tmp_path / "out.cubin", timeout_s=60).returncode == 0


def codes(text: str) -> list[str]:
    return [error.code for error in asm.verify(asm.parse(text))]


def text_of(body: str, target: str = "sm_90a", version: str = "8.7") -> str:
    return TEXT.format(body=body, target=target, version=version)


MOVED = {
    "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r1,%r2,%r3,%r4}, [%r5];":
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "stmatrix.sync.aligned.x4.m8n8.shared.b16 [%r5], {%r1,%r2,%r3,%r4};": "stmatrix.sync.aligned.m8n8.x4.shared.b16",
    "div.ftz.rn.f32 %f1, %f2, %f3;": "div.rn.ftz.f32",
    "cvt.sat.rn.f32.f64 %f1, %fd1;": "cvt.rn.sat.f32.f64",
    "cvt.f32.f64.rn %f1, %fd1;": "cvt.rn.f32.f64",
    "ld.v2.global.f32 {%f1,%f2}, [%rd1];": "ld.global.v2.f32",
    "ld.f32.global %f1, [%rd1];": "ld.global.f32",
    "setp.lt.f32.and %q1, %f1, %f2, %q2;": "setp.lt.and.f32",
    "atom.u32.add.global %r1, [%rd1], %r2;": "atom.global.add.u32",
    "wmma.load.a.sync.aligned.m16n16k8.row.shared.tf32 {%r1,%r2,%r3,%r4}, [%rd1];":
        "wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32",
    "mma.aligned.sync.row.m16n8k16.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
    "{%f1,%f2,%f3,%f4};": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
}  # fmt: skip
"""Instructions with their modifiers in another order, and the opcode of the ISA's syntax line."""


@pytest.mark.parametrize("body, opcode", MOVED.items(), ids=MOVED.values())
def test_modifiers_in_another_order_are_the_same_instruction(body: str, opcode: str, tmp_path: Path) -> None:
    text = text_of(body)
    assert codes(text) == []
    assert opcode in asm.parse(text).to_text()
    assert taken_by_ptxas(text, tmp_path)


@pytest.mark.parametrize(
    "body",
    ["cvt.f64.rn.f32 %f1, %fd1;", "mul.s32.lo %r1, %r2, %r3;", "mad.s32.lo %r1, %r2, %r3, %r4;",
     "add.rn.rn.f32 %f1, %f2, %f3;", "wgmma.aligned.sync.fence;", "mbarrier.shared.init.b64 [%r1], 1;"],
    ids=lambda body: body.split()[0],
)  # fmt: skip
def test_orders_that_ptxas_refuses_are_refused(body: str, tmp_path: Path) -> None:
    text = text_of(body)
    assert codes(text) != []
    assert not taken_by_ptxas(text, tmp_path)


def test_every_known_spelling_is_canonical() -> None:
    for form in table.FORMS[::7]:
        for spelling in table.spellings(form, 8):
            assert table.canonical(spelling) == spelling


def test_a_sample_of_all_rows_with_modifiers_moved_is_read_as_ptxas_reads_it(tmp_path: Path) -> None:
    draw, tried = random.Random(5), 0
    rows = [
        form for form in table.FORMS if form.base in ("ld", "st", "add", "fma", "cvt", "atom", "shfl", "vote", "setp")
    ]
    for form in draw.sample(rows, 24):
        example = examples.examples(form)[0]
        base, *words = example.text.split(None, 1)[0].split(".")
        draw.shuffle(words)
        moved = ".".join([base, *words])
        if table.canonical(moved) == moved:
            continue
        tried += 1
        (match, *_) = table.match(table.canonical(moved))
        assert sorted(table.canonical(moved).split(".")) == sorted([base, *words])
        assert match.form.base == base
    assert tried >= 5, "the sample moved something"


@pytest.mark.parametrize("name", ["tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid"])
def test_the_fourth_component_of_a_special_register_is_taken(name: str, tmp_path: Path) -> None:
    text = text_of(f"mov.u32 %r1, %{name}.w;")
    assert codes(text) == []
    assert taken_by_ptxas(text, tmp_path)


def test_a_component_that_a_register_does_not_have_is_refused(tmp_path: Path) -> None:
    text = text_of("mov.u32 %r1, %tid.q;")
    assert codes(text) == ["undeclared-name"]
    assert not taken_by_ptxas(text, tmp_path)


@pytest.mark.parametrize("target", ["sm_30", "sm_32", "sm_35", "sm_37"])
def test_targets_before_sm_50_are_taken(target: str, tmp_path: Path) -> None:
    text = text_of("mov.u32 %r1, %tid.x;", target, "6.0")
    assert codes(text) == []
    assert taken_by_ptxas(text, tmp_path)


RANGES = {
    "bar.sync {};": ((0, 15), (16, 17)), "bar.arrive {}, 64;": ((15,), (16,)), "barrier.sync 1, {};": ((64,), (33,)),
    "setmaxnreg.inc.sync.aligned.u32 {};": ((24, 256), (7, 16, 25, 264)),
    "cp.async.ca.shared.global [%r1], [%rd1], {};": ((4, 8, 16), (3, 32)),
    "cp.async.cg.shared.global [%r1], [%rd1], {};": ((16,), (8,)),
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], {}, [%r2];": ((16, 48), (12,)),
}  # fmt: skip
"""Instruction -> constants that ptxas takes, constants it refuses."""


@pytest.mark.parametrize("body, good, bad", [(body, *values) for body, values in RANGES.items()])
def test_constants_are_taken_and_refused_as_ptxas_does(
    body: str, good: tuple[int, ...], bad: tuple[int, ...], tmp_path: Path
) -> None:
    for value in (*good, *bad):
        text = text_of(body.format(value))
        assert codes(text) == (["immediate-range"] if value in bad else [])
        assert taken_by_ptxas(text, tmp_path) == (value in good)


@pytest.mark.parametrize("body", ["mbarrier.init.b64 [%r1], 1;", "ld.u32 %r1, [%r2];", "ld.global.u32 %r1, [%r2];"])
def test_a_32_bit_register_is_no_generic_or_global_address(body: str, tmp_path: Path) -> None:
    text = text_of(body)
    assert codes(text) == ["wrong-operands"]
    assert not taken_by_ptxas(text, tmp_path)
    shared = text.replace(".global", "").replace("init.b64", "init.shared.b64").replace("ld.u32", "ld.shared.u32")
    assert codes(shared) == []
    assert taken_by_ptxas(shared, tmp_path)
