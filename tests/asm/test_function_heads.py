"""Directives of functions, attributes and aliases in the verifier, and the same verdicts from ptxas."""

from __future__ import annotations

import subprocess

import pytest

from tests.isa.assembling import find_ptxas
from warploom import asm
from warploom.errors import WarploomError

CASES = [
    (".func f() .noreturn { trap; }", True),
    (".func (.reg .b32 x) f() .noreturn { trap; }", False),
    (".entry f() .noreturn { trap; }", False),
    (".func f() .abi_preserve 239 .abi_preserve_control 11 { ret; }", True),
    (".func f() .abi_preserve 240 { ret; }", False),
    (".entry f() .abi_preserve 20 { ret; }", False),
    (".entry f() .maxnctapersm 2 { ret; }", False),
    (".entry f() .maxntid WARP_SZ, 010, 1U { ret; }", True),
    (".entry f() .maxntid 32*2 { ret; }", False),
    (".global .b32 x[2+2];", False),
    (".global .u32 x = WARP_SZ;", True),
    (".common .global .b32 x;", True),
    (".common .shared .b32 x;", False),
    (".tex .u32 x;", False),
    (".global .attribute(.managed) .b32 x;", True),
    (".global .attribute(.nearby) .b32 x;", False),
    (".shared .attribute(.managed) .b32 x;", False),
    (".func .attribute(.managed) f() { ret; }", False),
    (".func g(); .func f() { ret; } .alias g, f;", True),
    (".func g(); .alias g, f; .func f() { ret; }", False),
    (".func g() { ret; } .func f() { ret; } .alias g, f;", False),
    (".func g(.reg .b32 x); .func f() { ret; } .alias g, f;", False),
    (".func g(); .entry f() { ret; } .alias g, f;", False),
]


@pytest.mark.parametrize("text, accepted", CASES)
def test_the_verifier_judges_heads_as_ptxas_does(text, accepted, tmp_path):
    text = f".version 9.0\n.target sm_90\n.address_size 64\n{text}\n.visible .entry k() {{ ret; }}\n"
    try:
        refused = bool(asm.verify(asm.parse(text)))
    except WarploomError:
        refused = True
    assert refused is not accepted
    if ptxas := find_ptxas():
        path = tmp_path / "text.ptx"
        path.write_text(text)
        done = subprocess.run([ptxas, "-arch=sm_90", path, "-o", tmp_path / "cubin"], capture_output=True)
        assert (done.returncode == 0) is accepted
