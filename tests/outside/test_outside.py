"""The suites of others, where WARPLOOM_OUTSIDE names the folder of their checkouts; and how their files are read, on
made-up ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.outside import corpora, litmus, table, zluda

FOLDER = Path(os.environ.get("WARPLOOM_OUTSIDE", "/nonexistent"))
KNOWN = {
    "vector8_extract": "refused",  # ptxas 13.0 refuses it, too: a vector of eight bytes
    "vote_ballot_nosync": "refused",  # ptxas refuses vote without .sync from PTX 6.4 and sm_70 on
    "ldmatrix": "stopped",  # 64 threads read 512 bytes of a variable of 256
    "mma_m16n8k16_f32_bf16_bf16_f32_2x": "stopped",  # 64 threads store after the end of the output
}
"""The cases of ZLUDA whose verdict is not "same", and why that is right."""

CASE = """
test_ptx!(twice, [21u32, 0xffff_ffffu32], [42u32, 0xfffffffeu32]);
// test_ptx!(gone, [1u32], [2u32]);
test_ptx_warp!(
    lanes,
    [0u32; 64]
);
test_ptx!(floats, [half::f16::from_f32(1.5), half::f16::NAN], [f32::from_bits(0x3fc00000), -2.0]);
test_ptx!(compiled_only);
"""
TWICE = """.version 7.0
.target sm_70
.address_size 64
.visible .entry twice(.param .u64 i, .param .u64 o)
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o];
    ld.v2.u32 {%r1, %r2}, [%rd1]; add.u32 %r1, %r1, %r1; add.u32 %r2, %r2, %r2; st.v2.u32 [%rd2], {%r1, %r2}; ret;
}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "ZLUDA" / "spirv_run"
    folder.mkdir(parents=True)
    (folder / "mod.rs").write_text(CASE)
    for name in ("twice", "lanes", "floats"):
        (folder / f"{name}.ptx").write_text(TWICE)
    return tmp_path


def test_literals_of_rust_are_read_with_their_types(checkout: Path) -> None:
    twice, lanes, floats = zluda.cases(checkout)
    assert twice.input is not None and twice.input.dtype == np.uint32 and twice.input.tolist() == [21, 0xFFFFFFFF]
    assert (lanes.input, lanes.threads, lanes.output.tolist()) == (None, 64, [0] * 64)
    assert floats.input is not None and floats.input.dtype == np.float16 and floats.input[0] == 1.5
    assert floats.output.dtype == np.float32 and floats.output.tolist() == [1.5, -2.0]


def test_a_case_is_run_and_compared(checkout: Path) -> None:
    twice = next(zluda.cases(checkout))
    assert zluda.run(twice).result == "same"
    wrong = zluda.Case("twice", TWICE, twice.input, twice.output + 1, 1)
    assert zluda.run(wrong).result == "differs"
    assert (
        zluda.run(zluda.Case("twice", TWICE.replace("add", "plus"), twice.input, twice.output, 1)).result == "refused"
    )


def test_a_text_is_judged_by_both(tmp_path: Path) -> None:
    from warploom.driver import toolchain

    if toolchain.ptxas() is None:
        pytest.skip("needs ptxas")
    (tmp_path / "good.ptx").write_text(TWICE)
    (tmp_path / "bad.ptx").write_text(TWICE.replace("add.u32", "plus.u32"))
    bad, good = corpora.verdicts(tmp_path)
    assert (bad.agree, good.agree, bool(bad.ours), good.ours) == (True, True, True, "")


MESSAGE = """PTX MP
"a message and its flag: https://example.org"
{ x=0; flag=0; P1:r0=0; P1:r1=7; }
P0@cta 0,gpu 0        | P1@cta 1,gpu 0          ;
st.weak x, 1          | L0:                     ;
st.release.gpu flag,1 | ld.acquire.gpu r0, flag ;
                      | bne r0, 1, L0           ;
                      | ld.weak r1, x           ;
exists (P1:r1 == 0)
"""


def test_a_litmus_test_becomes_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "MP.litmus"
    path.write_text(MESSAGE)
    program = litmus.read(path)
    assert (program.ctas, len(program.threads[1])) == ((0, 1), 4)
    assert all(state == {"x": 1, "flag": 1, "P1:r0": 1, "P1:r1": 1} for state in litmus.states(program))
    assert litmus.run(path, False).result == "kept"
    path.write_text(MESSAGE.replace("r1 == 0", "r1 == 1"))
    assert (litmus.run(path, False).result, litmus.run(path, True).result) == ("broken", "open")
    path.write_text(MESSAGE.replace("bne r0, 1", "bge r0, 0"))
    assert litmus.run(path, False).result == "spins"
    path.write_text(MESSAGE.replace("st.weak x", "sust.weak x"))
    assert litmus.run(path, False).result == "left out"


def test_a_table_goes_behind_its_marker_and_leaves_the_rest() -> None:
    page = "# P\n\n<!-- outside A -->\nold\n\n## Next\n\n<!-- outside B -->\nkept\n"
    assert (
        table.written(page, "A", "new") == "# P\n\n<!-- outside A -->\n\nnew\n\n## Next\n\n<!-- outside B -->\nkept\n"
    )


# -- the suites themselves -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (FOLDER / "ZLUDA").is_dir(), reason="WARPLOOM_OUTSIDE names no folder with ZLUDA")
def test_zludas_cases_compute_what_they_should() -> None:
    found = [zluda.run(case) for case in zluda.cases(FOLDER / "ZLUDA")]
    assert len(found) >= 182
    assert {each.case: each.result for each in found if each.result != "same"} == KNOWN


@pytest.mark.skipif(not (FOLDER / "pyptx").is_dir(), reason="WARPLOOM_OUTSIDE names no folder with pyptx")
def test_the_verifier_and_ptxas_agree_on_every_text_of_pyptx() -> None:
    assert [each for each in corpora.verdicts(FOLDER / "pyptx") if not each.agree] == []


@pytest.mark.skipif(not (FOLDER / "Dat3M").is_dir(), reason="WARPLOOM_OUTSIDE names no folder with Dat3M")
def test_no_litmus_test_reaches_what_the_model_forbids() -> None:
    known = litmus.expected(FOLDER / "Dat3M")
    found = [litmus.run(path, known.get(path.stem)) for path in litmus.litmus_texts(FOLDER / "Dat3M")]
    assert [each.test for each in found if each.result == "broken"] == []
