"""The instruction table and ptxas 13.0 on Blackwell accept and refuse the same texts, with the exceptions below.

12,574 texts, every modifier choice of tcgen05, cluster launch control, the new tensor copies and Blackwell's other
additions, legal and not, on nine targets. ptxas's verdicts are recorded; a sample is checked again if ptxas is
available.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tests.isa import blackwell_space as space
from tests.isa.assembling import find_ptxas, refused
from tests.isa.test_instruction_table import refused_by_verifier
from warploom.isa.instructions import launch_control, nearest, table, tcgen05, tcgen05_mma, tensor_modes

RECORDED = space.recorded()

WE_REFUSE = {
    r"tcgen05\.dealloc.*, (0|96|160|1024|65536);": "ptxas looks for a multiple of 32; the ISA has powers of two to 512",
    r"tcgen05\.mma[^;]*kind::i8[^;]*, 3;": "the ISA scales D of f16 and tf32 only (9.7.16.10.9.1)",
    r"tcgen05\.mma[^;]*, (2|3|-1|65535|65536);": "the operand is a predicate: ptxas takes any number, we 0 and 1",
    r"(tcgen05|clusterlaunchcontrol)(?!.*\.shared).*b(32|64|128) \[%r0\]": "a generic address has 64 bits",
    r"cp\.reduce[^;]*scatter4": "the ISA scatters stores, not reductions (9.7.9.27.1.3)",
    r"multimem\.red[^;]*\.acc::": "the ISA has a precision of the sum for ld_reduce only (9.7.9.14)",
    r"(multimem|cvt)[^;]*(bf16x2|e4m3x4|e5m2x4|ue8m0x2)[^;]* [^;]*%f0": "packed elements are in .b registers (5.2.5.1)",
    r"stmatrix[^;]*\.b(8|16)\.b[46]x16": "only ldmatrix unpacks elements of 4 and 6 bits (9.7.14.5.16)",
    r"cp\.async[^;]*cp_mask[^;]*, 65536;": "a byte mask has 16 bits",
    r"cp\.async\.bulk\.tensor[^;]*im2col[^;]*(%f0|1\.0)": "coordinates and offsets of pixels are integers",
    r"tcgen05\.mma[^;]*, \{(-?\d+), %r4": "a mask of lanes is in registers: ptxas takes one constant, not four",
    r"clusterlaunchcontrol\.query_cancel[^;]*, -?\d+;": "no response is a constant",
    r"add\.f32\.bf16 %f0, -?\d+,": "an integer is no bf16; ptxas takes it for f16 in no case, for bf16 in some",
    r"clusterlaunchcontrol\.try_cancel[^;]* \[%(b8_|h)0\]": "an address has 32 or 64 bits",
    r"tcgen05\.ld\.red[^;]*\.u32 [^;]*, %f0,": "the least or greatest integer is no float",
}
"""What ptxas takes and we refuse, with the reason."""


def verdicts_of_the_table(texts: list[str], target: str) -> np.ndarray:
    bad = refused_by_verifier(texts, target, space.VERSION)
    return np.array([index not in bad for index in range(len(texts))])


def differences(texts: list[str], target: str, ptxas: np.ndarray) -> dict[str, list[str]]:
    """The texts on which the two disagree, exceptions left out."""
    ours = verdicts_of_the_table(texts, target)
    found: dict[str, list[str]] = {"only ptxas accepts": [], "only the table accepts": []}
    for text, here, there in zip(texts, ours, ptxas, strict=True):
        if there and not here and not any(re.match(pattern, text) for pattern in WE_REFUSE):
            found["only ptxas accepts"].append(text)
        if here and not there:
            found["only the table accepts"].append(text)
    return found


CASES = [(family, target) for target in ("sm_100a", *space.TARGETS) for family in space.FAMILIES]


@pytest.fixture(autouse=True)
def no_suggestions(monkeypatch):
    """Verdicts are compared, not hints, which take their time."""
    monkeypatch.setattr(nearest, "suggest", lambda opcode: "")


@pytest.mark.sample(22, full=66)
@pytest.mark.parametrize(("family", "target"), list(dict.fromkeys(CASES)))
def test_the_table_and_ptxas_take_and_refuse_the_same(family, target):
    found = differences(space.texts(family), target, RECORDED[family][target])
    assert found == {"only ptxas accepts": [], "only the table accepts": []}


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")
@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_a_sample_of_what_is_recorded_is_what_ptxas_says_now(target):
    drawn = random.Random(target)
    texts, expected = [], []
    for family in space.FAMILIES:
        numbered = list(enumerate(space.texts(family)))
        for index, text in drawn.sample(numbered, min(len(numbered), 30)):
            texts.append(text)
            expected.append(bool(RECORDED[family][target][index]))
    bad = refused(texts, target, space.VERSION)
    assert [index not in bad for index in range(len(texts))] == expected


@pytest.mark.slow
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")
@pytest.mark.parametrize("target", space.TARGETS)
@pytest.mark.parametrize("family", space.FAMILIES)
def test_all_that_is_recorded_is_what_ptxas_says_now(family, target):
    np.testing.assert_array_equal(space.ask(family, target), RECORDED[family][target])


def test_the_texts_meet_every_row_of_these_families():
    met = set()
    for family in space.FAMILIES:
        for text in space.texts(family):
            met |= {match.form.key for match in table.match(text.split(" ")[0].rstrip(";"))}
    rows = (*tcgen05.FORMS, *tcgen05_mma.FORMS, *launch_control.FORMS, *tensor_modes.FORMS)
    left = {form.key for form in rows} - met
    assert {key for key in left if not key.endswith("_hint") and "prefetch" not in key} == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 96;", "no power of two"),
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 0;", "nothing"),
        ("tcgen05.mma.cta_group::1.kind::i8 [%r0], %rd0, %rd1, %r2, %p0, 3;", "a scale of integers"),
        ("tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r0], 600;", "a column that no SM has"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r0], 64;", "half of a generic address"),
        ("multimem.red.relaxed.gpu.global.add.acc::f16.f16x2 [%rd5], %r0;", "a precision of the sum"),
        ("multimem.ld_reduce.relaxed.gpu.global.add.bf16x2 %f0, [%rd5];", "a float for two halves"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8.b4x16_p64 [%r9], {%r0};", "packing by a store"),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r0], %r1, 65536;", "a mask of 17 bits"),
    ],
)
def test_what_ptxas_takes_wrongly_is_refused(text, why):
    assert refused_by_verifier([text], "sm_100a", space.VERSION).keys() == {0}
    if find_ptxas() is not None:
        assert refused([text], "sm_100a", space.VERSION) == {}
