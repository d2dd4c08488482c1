"""Conversions to and from floats of 4, 6 and 8 bits, to nearest and stochastically: PTX ISA 9.7.9.21.

The pairs and quadruples of e4m3 and e5m2 that Hopper has are in `convert`. A register for two e2m1 is a `.b8`.
"""

from __future__ import annotations

from typing import Any

from .schema import Form

FAMILIES = "sm_100f sm_101f sm_110f sm_120f"
STOCHASTIC = "sm_100a sm_103a"
_HERE: dict[str, Any] = {"arch": FAMILIES, "ptx": (8, 6), "section": "9.7.9.21"}
_RANDOM: dict[str, Any] = {"arch": STOCHASTIC, "ptx": (8, 7), "section": "9.7.9.21"}
_SIXES = {"narrow": "e2m3x2 e3m2x2"}
_FROM_PAIR = ", a:f32, b:f32"
_FROM_FOUR = ", a:f32*4, rbits:b32="

FORMS: tuple[Form, ...] = (
    Form("cvt.fp6x2.f32", "cvt.rn.satfinite{.relu}.narrow.f32", f">d:narrow{_FROM_PAIR}", _SIXES, **_HERE),
    Form("cvt.fp4x2.f32", "cvt.rn.satfinite{.relu}.e2m1x2.f32", f">d:e2m1x2{_FROM_PAIR}", **_HERE),
    Form("cvt.fp4x2.f16x2", "cvt.rn.satfinite{.relu}.e2m1x2.f16x2", ">d:e2m1x2, a:f16x2!", **_HERE),
    Form("cvt.f16x2.fp6x2", "cvt.rn{.relu}.f16x2.narrow", ">d:f16x2, a:narrow!", _SIXES, **_HERE),
    Form("cvt.f16x2.fp4x2", "cvt.rn{.relu}.f16x2.e2m1x2", ">d:f16x2, a:e2m1x2!", **_HERE),
    Form("cvt.ue8m0x2.f32", "cvt.rnd{.satfinite}.ue8m0x2.f32", f">d:ue8m0x2{_FROM_PAIR}", {"rnd": "rz rp"}, **_HERE),
    Form(
        "cvt.ue8m0x2.bf16x2", "cvt.rnd{.satfinite}.ue8m0x2.bf16x2", ">d:ue8m0x2, a:bf16x2!", {"rnd": "rz rp"}, **_HERE
    ),
    Form("cvt.bf16x2.ue8m0x2", "cvt.rn.bf16x2.ue8m0x2", ">d:bf16x2, a:ue8m0x2!", **_HERE),
    Form(
        "cvt.rs.pair", "cvt.rs{.relu}{.satfinite}.half.f32", f">d:half{_FROM_PAIR}, rbits:b32=",
        {"half": "f16x2 bf16x2"}, **_RANDOM,
    ),
    Form(
        "cvt.rs.four", "cvt.rs{.relu}.satfinite.narrow.f32", f">d:narrow{_FROM_FOUR}",
        {"narrow": "e4m3x4 e5m2x4 e2m3x4 e3m2x4"}, **_RANDOM,
    ),
    Form("cvt.rs.fp4x4", "cvt.rs{.relu}.satfinite.e2m1x4.f32", f">d:e2m1x4{_FROM_FOUR}", **_RANDOM),
)  # fmt: skip
