"""Textures, samplers and surfaces in the verifier, and the same verdicts from ptxas."""

from __future__ import annotations

import subprocess

import pytest

from tests.isa.assembling import find_ptxas
from warploom import asm
from warploom.asm.printer import to_text
from warploom.errors import WarploomError

HEAD = ".version 8.8\n.target {target}\n.address_size 64\n.global .texref image;\n.global .surfref sheet;\n{more}\n"
BODY = """.visible .entry k() {{
.reg .b32 r<5>; .reg .f32 f<5>; .reg .b64 d<3>; .reg .pred p;
{body}
ret;
}}
"""
UNIFIED, INDEPENDENT = "sm_90", "sm_90, texmode_independent"
RESULT = "{f1, f2, f3, f4}"
CASES = [
    (UNIFIED, f"tex.2d.v4.f32.f32 {RESULT}, [image, {{f0, f1}}];", "", True),
    (UNIFIED, f"tex.2d.v4.f32.f32 {RESULT}|p, [d0, {{r0, r1, r2, r3}}], {{r0, r1}}, f0;", "", True),
    (UNIFIED, f"tex.2d.v4.f32.f32 {RESULT}, [d0, {{1, 2}}];", "", False),
    (UNIFIED, f"tex.2d.v4.f32.f32 {RESULT}, [d0, {{f0}}];", "", False),
    (UNIFIED, f"tex.2d.v4.f32.f32 {RESULT}, [sheet, {{f0, f1}}];", "", False),
    (UNIFIED, f"tex.a1d.v4.f32.f32 {RESULT}, [d0, {{f0, f1}}];", "", False),
    (UNIFIED, f"tex.cube.v4.f32.f32 {RESULT}, [d0, {{f0, f1, f2, f3}}], {{r0, r1}};", "", False),
    (UNIFIED, f"tex.level.2dms.v4.f32.s32 {RESULT}, [d0, {{r0, r1, r2, r3}}], r0;", "", False),
    (UNIFIED, "suld.b.2d.v2.b16.trap {r1, r2}, [sheet, {r3, r4}];", "", True),
    (UNIFIED, "sured.b.and.1d.u32.trap [d0, {r0}], r1;", "", False),
    (UNIFIED, "txq.force_unnormalized_coords.b32 r0, [image];", "", False),
    (UNIFIED, "", ".global .samplerref sampler;", False),
    (UNIFIED, "", ".func f(.param .texref t) { ret; }", False),
    (UNIFIED, "", ".entry e(.param .samplerref s) { ret; }", False),
    (INDEPENDENT, "", ".entry e(.param .samplerref s, .param .texref t) { ret; }", True),
    (INDEPENDENT, f"tex.2d.v4.f32.f32 {RESULT}, [image, sampler, {{f0, f1}}];", ".global .samplerref sampler;", True),
    (INDEPENDENT, f"tex.2d.v4.f32.f32 {RESULT}, [image, {{f0, f1}}];", "", False),
    (INDEPENDENT, "", ".global .samplerref sampler = { filter_mode = linear, addr_mode_0 = wrap };", True),
    (INDEPENDENT, "", ".global .samplerref sampler = { filter_mode = cubic };", False),
]  # fmt: skip


@pytest.mark.parametrize("target, body, more, accepted", CASES)
def test_the_verifier_judges_textures_as_ptxas_does(target, body, more, accepted, tmp_path):
    text = HEAD.format(target=target, more=more) + BODY.format(body=body)
    assert bool(_refused(text)) is not accepted
    if accepted:
        printed = to_text(asm.parse(text))
        assert to_text(asm.parse(printed)) == printed and not _refused(printed)
    if ptxas := find_ptxas():
        path = tmp_path / "text.ptx"
        path.write_text(text)
        done = subprocess.run([ptxas, "-arch=sm_90", "-O0", path, "-o", tmp_path / "cubin"], capture_output=True)
        assert (done.returncode == 0) is accepted


def _refused(text: str) -> str:
    try:
        found = asm.verify(asm.parse(text))
    except WarploomError as error:
        return str(error)
    return str(found[0]) if found else ""
