"""Spellings and values that ptxas accepts or refuses: the verifier agrees, compared with ptxas itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.isa import assembling, examples
from warploom import asm
from warploom.driver import toolchain
from warploom.errors import PtxSyntaxError
from warploom.isa.instructions import table, word_order

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


MOVED_FAMILIES = ("cp", "tcgen05", "mbarrier", "multimem", "clusterlaunchcontrol", "tensormap", "fence", "ldmatrix",
                  "stmatrix", "st", "red", "barrier", "mma", "cvt", "shf")  # fmt: skip


def moved_words(base: str, count: int) -> list[tuple[examples.Example, str]]:
    """Examples of some rows, and their opcodes with one word at another place."""
    draw = random.Random(base)
    rows = [form for form in table.FORMS if form.base == base]
    made = []
    for form in draw.choices(rows, k=count):
        example = max(examples.examples(form), key=lambda one: len(one.text.split()[0]))
        words = example.text.split()[0].rstrip(";").split(".")[1:]
        if len(words) > 1:
            word = words.pop(draw.randrange(len(words)))
            words.insert(draw.randrange(len(words) + 1), word)
            made.append((example, ".".join((base, *words))))
    return made


@pytest.mark.sample(4, full=15)
@pytest.mark.parametrize("base", MOVED_FAMILIES)
def test_a_word_may_stand_where_ptxas_takes_it(base: str) -> None:
    """Not compared: an order of types that another row has, as ptxas judges it by the operands."""
    if assembling.find_ptxas() is None:
        pytest.skip("needs ptxas")
    for (target, version), group in _by_target(moved_words(base, 24)).items():
        if version > assembling.newest_ptx():
            continue
        texts = [one.text.replace(one.text.split()[0].rstrip(";"), opcode, 1) for one, opcode in group]
        refused = assembling.refused(texts, target, version)
        for at, (one, opcode) in enumerate(group):
            found = word_order.canonical(opcode)
            if found == one.text.split()[0].rstrip(";") or not table.match(found):
                assert bool(table.match(found)) == (at not in refused), (opcode, refused.get(at))


def _by_target(made: list[tuple[examples.Example, str]]) -> dict[Any, list[tuple[examples.Example, str]]]:
    groups: dict[Any, list[tuple[examples.Example, str]]] = {}
    for example, opcode in made:
        groups.setdefault((example.target, example.version), []).append((example, opcode))
    return groups


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
            assert word_order.canonical(spelling) == spelling


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
        if word_order.canonical(moved) == moved:
            continue
        tried += 1
        (match, *_) = table.match(word_order.canonical(moved))
        assert sorted(word_order.canonical(moved).split(".")) == sorted([base, *words])
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
"""Instruction -> constants that ptxas accepts, constants that it refuses."""


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


# -- video instructions, vectors of registers, functions with vectors -------------------------------------------------

VIDEO = {
    "vshr.u32.u32.u32.clamp.add %r1, %r2, %r3, %r4;": True,
    "vshl.s32.s32.u32.sat.wrap %r1, %r2, 5;": True,
    "vshr.u32.u32.u32 %r1, %r2, %r3;": False,
    "vshl.u32.u32.s32.wrap %r1, %r2, %r3;": False,
    "vadd.s32.u32.s32.sat %r1, %r2.b0, %r3.h1;": True,
    "vadd.s32.u32.s32.sat %r1.h0, %r2.b0, %r3.h1, %r4;": True,
    "vsub.u32.u32.u32 %r1.b0, %r2, %r3;": False,
    "vsub.u32.u32.u32.add %r1.b0, %r2, %r3, %r4;": False,
    "vsub.u32.u32.u32.add %r1, %r2, %r3;": False,
    "vmin.u32.u32.u32 %r1, %r2.b4, %r3;": False,
    "vmax.u32.u32.u32 %f1, %r2, %r3;": False,
    "vset.u32.s32.ge.add %r1, %r2, %r3, %r4;": True,
    "vset.u32.s32.ge.sat %r1, %r2, %r3;": False,
    "vmad.u32.u32.s32.po.shr7 %r1, %r2.b1, %r3.h0, %r4;": True,
    "vmad.u32.u32.u32.add %r1, %r2, %r3, %r4;": False,
    "vsub4.u32.u32.s32.sat %r1.b310, %r2.b3210, %r3.b7702, %r4;": True,
    "vavrg2.s32.u32.s32.add %r1.h10, %r2.h23, %r3, %r4;": True,
    "vset4.u32.s32.lt %r1.b0, %r2, %r3.b0000, %r4;": True,
    "vmin2.u32.u32.u32 %r1.h01, %r2, %r3, %r4;": False,
    "vmin4.u32.u32.u32 %r1, %r2.b321, %r3, %r4;": False,
    "vmin4.u32.u32.u32 %r1, %r2.h10, %r3, %r4;": False,
    "vmin2.u32.u32.u32 %r1, %r2, %r3, %r4.h10;": False,
    "vmin2.u32.u32.u32 %r1.h2, %r2, %r3, %r4;": False,
    "mov.u32 %r1, %r2.b0;": False,
    "mov.u32 %r1, %r2.b3210;": False,
    "mov.v2.u32 {%r1, %r2}, {%r2, 7};": True,
    "mov.v4.f32 {%f1, %f2, %f3, %f4}, {%f4, %f3, %f2, 1.0};": True,
    "mov.v4.b64 {%rd1, %rd2, %rd3, %rd1}, {%rd1, %rd2, %rd3, %rd1};": False,
    "mov.v2.pred {%q1, %q2}, {%q2, %q1};": False,
    "ld.global.f32 %rd1, [%rd2];": True,
}


@pytest.mark.parametrize("body, taken", VIDEO.items())
def test_parts_and_vectors_of_registers_are_taken_where_ptxas_takes_them(
    body: str, taken: bool, tmp_path: Path
) -> None:
    assert (codes(text_of(body)) == [], taken_by_ptxas(text_of(body), tmp_path)) == (taken, taken)


@pytest.mark.parametrize(
    "target, version, taken",
    [("sm_90", "7.8", True), ("sm_89", "7.8", False), ("sm_89", "8.1", True), ("sm_80", "8.1", False)],
)
def test_conversions_to_fp8_came_to_targets_at_different_times(
    target: str, version: str, taken: bool, tmp_path: Path
) -> None:
    text = text_of(".reg .b16 %h; cvt.rn.satfinite.e4m3x2.f32 %h, %f1, %f2;", target, version)
    assert (codes(text) == [], taken_by_ptxas(text, tmp_path, target)) == (taken, taken)


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103a", "sm_110a", "sm_120", "sm_121a"])
def test_tensor_maps_are_changed_on_the_targets_of_one_chip(target: str, tmp_path: Path) -> None:
    text = text_of("tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 1;", target, "9.0")
    taken = target[-1] == "a"
    assert (codes(text) == [], taken_by_ptxas(text, tmp_path, target)) == (taken, taken)


@pytest.mark.parametrize(
    "body, opcode",
    [("bar.sync.sync 0;", "bar.sync"), ("sqrt.approx.approx.f32 %f1, %f2;", "sqrt.approx.f32"),
     ("add.cc.cc.u32 %r1, %r2, %r3;", "add.cc.u32"), ("wgmma.fence.sync;", "wgmma.fence.sync.aligned"),
     ("wgmma.wait_group.sync 0;", "wgmma.wait_group.sync.aligned"),
     ("cvta.to.u64.shared %rd1, %rd2;", "cvta.to.shared.u64")],
    ids=lambda text: text.split()[0],
)  # fmt: skip
def test_words_twice_or_understood_are_the_same_instruction(body: str, opcode: str, tmp_path: Path) -> None:
    text = text_of(body)
    assert codes(text) == []
    assert f"{opcode} " in asm.parse(text).to_text() or f"{opcode};" in asm.parse(text).to_text()
    assert taken_by_ptxas(text, tmp_path)


@pytest.mark.parametrize(
    "body",
    ["mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r1], 2;",
     "mbarrier.test_wait.parity.shared::cta.b64 %q1, [%r1], -1;",
     "pmevent 16;", "pmevent.mask 65536;", "bfe.u32 %r1, %r2, 256, 3;", "bfi.b32 %r1, %r2, %r3, -1, 3;",
     "discard.global.L2 [%rd1], 64;", "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;",
     "cp.async.ca.shared.global [%r1], [%rd1], 4, 8;",
     "mbarrier.arrive.release.cluster.shared::cluster.b64 %rd1, [%r1];",
     "cvta.shared.to.u64 %rd1, %rd2;", "madc.u32.hi %r1, %r2, %r3, %r4;", "div.f32.full %f1, %f2, %f3;"],
    ids=lambda body: body.rstrip(";"),
)  # fmt: skip
def test_constants_and_orders_that_ptxas_refuses_are_refused(body: str, tmp_path: Path) -> None:
    text = text_of(body, version="8.8")
    assert codes(text) != []
    assert not taken_by_ptxas(text, tmp_path)


@pytest.mark.parametrize("body", ["ld.global.u32 %r1, [%rd1-8];", "mov.u64 %rd1, p-8;"])
def test_an_offset_takes_no_minus_of_its_own(body: str, tmp_path: Path) -> None:
    text = text_of(body)
    with pytest.raises(PtxSyntaxError):
        asm.parse(text)
    assert not taken_by_ptxas(text, tmp_path)
