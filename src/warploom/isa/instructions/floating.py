"""Single and double precision arithmetic, and single precision with a half precision operand: PTX ISA 9.7.3, 9.7.5."""

from __future__ import annotations

from typing import Any

from .schema import Form

ROUNDINGS = "rn rz rm rp"

_F32 = {2: ">d:f32, a:f32", 3: ">d:f32, a:f32, b:f32", 4: ">d:f32, a:f32, b:f32, c:f32"}
_F64 = {2: ">d:f64, a:f64", 3: ">d:f64, a:f64, b:f64", 4: ">d:f64, a:f64, b:f64, c:f64"}
_RND = {"rnd": ROUNDINGS}


def _minmax(name: str, section: str) -> tuple[Form, ...]:
    nan = {"NaN": ("sm_80", (7, 0))}
    return (
        Form(f"{name}.f32", f"{name}{{.ftz}}{{.NaN}}.f32", _F32[3], needs=nan, section=section),
        Form(
            f"{name}.xorsign.f32", f"{name}{{.ftz}}{{.NaN}}.xorsign.abs.f32", _F32[3],
            arch="sm_86", ptx=(7, 2), section=section,
        ),
        Form(f"{name}.f64", f"{name}.f64", _F64[3], section=section),
        Form(
            f"{name}.three.f32", f"{name}{{.ftz}}{{.NaN}}{{.abs}}.f32", _F32[4], arch="sm_100", ptx=(8, 8),
            section=section,
        ),
    )  # fmt: skip


_PAIR: dict[str, Any] = {"arch": "sm_100", "ptx": (8, 6)}
_PAIRS = ">d:b64=, a:b64=, b:b64="
"""Two singles in a 64-bit register; ptxas 13.0 accepts no other register and no constant."""
_MIXED = {"type": "f16 bf16", **_RND}


def _pairs(name: str, section: str) -> Form:
    """Arithmetic on two singles at once."""
    return Form(f"{name}.f32x2", f"{name}{{.rnd}}{{.ftz}}.f32x2", _PAIRS, _RND, section=section, **_PAIR)


def _mixed(name: str, section: str) -> Form:
    """A half precision operand and a single, computed as singles."""
    return Form(
        f"{name}.mixed", f"{name}{{.rnd}}{{.sat}}.f32.type", ">d:f32, a:type!, c:f32", _MIXED, section=section, **_PAIR
    )


FORMS: tuple[Form, ...] = (
    Form(
        "testp", "testp.op.type", ">p:pred, a:type",
        {"op": "finite infinite number notanumber normal subnormal", "type": "f32 f64"}, ptx=(2, 0), section="9.7.3.1",
    ),
    Form("copysign", "copysign.type", ">d:type, a:type, b:type", {"type": "f32 f64"}, ptx=(2, 0), section="9.7.3.2"),
    Form("add.f32", "add{.rnd}{.ftz}{.sat}.f32", _F32[3], _RND, section="9.7.3.3"),
    Form("add.f64", "add{.rnd}.f64", _F64[3], _RND, section="9.7.3.3"),
    Form("sub.f32", "sub{.rnd}{.ftz}{.sat}.f32", _F32[3], _RND, section="9.7.3.4"),
    Form("sub.f64", "sub{.rnd}.f64", _F64[3], _RND, section="9.7.3.4"),
    Form("mul.f32", "mul{.rnd}{.ftz}{.sat}.f32", _F32[3], _RND, section="9.7.3.5"),
    Form("mul.f64", "mul{.rnd}.f64", _F64[3], _RND, section="9.7.3.5"),
    Form("fma.f32", "fma.rnd{.ftz}{.sat}.f32", _F32[4], _RND, ptx=(2, 0), section="9.7.3.6"),
    Form("fma.f64", "fma.rnd.f64", _F64[4], _RND, ptx=(1, 4), section="9.7.3.6"),
    Form("mad.f32", "mad.rnd{.ftz}{.sat}.f32", _F32[4], _RND, ptx=(2, 0), section="9.7.3.7"),
    Form("mad.f64", "mad.rnd.f64", _F64[4], _RND, section="9.7.3.7"),
    Form("div.approx.f32", "div.how{.ftz}.f32", _F32[3], {"how": "approx full"}, ptx=(1, 4), section="9.7.3.8"),
    Form("div.f32", "div.rnd{.ftz}.f32", _F32[3], _RND, ptx=(1, 4), section="9.7.3.8"),
    Form("div.f64", "div.rnd.f64", _F64[3], _RND, ptx=(1, 4), section="9.7.3.8"),
    Form("abs.f32", "abs{.ftz}.f32", _F32[2], section="9.7.3.9"),
    Form("abs.f64", "abs.f64", _F64[2], section="9.7.3.9"),
    Form("neg.f32", "neg{.ftz}.f32", _F32[2], section="9.7.3.10"),
    Form("neg.f64", "neg.f64", _F64[2], section="9.7.3.10"),
    *_minmax("min", "9.7.3.11"),
    *_minmax("max", "9.7.3.12"),
    Form("rcp.approx.f32", "rcp.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.13"),
    Form("rcp.f32", "rcp.rnd{.ftz}.f32", _F32[2], _RND, ptx=(2, 0), section="9.7.3.13"),
    Form("rcp.f64", "rcp.rnd.f64", _F64[2], _RND, ptx=(2, 0), section="9.7.3.13"),
    Form("rcp.approx.f64", "rcp.approx.ftz.f64", _F64[2], ptx=(2, 1), section="9.7.3.14"),
    Form("sqrt.approx.f32", "sqrt.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.15"),
    Form("sqrt.f32", "sqrt.rnd{.ftz}.f32", _F32[2], _RND, ptx=(2, 0), section="9.7.3.15"),
    Form("sqrt.f64", "sqrt.rnd.f64", _F64[2], _RND, ptx=(2, 0), section="9.7.3.15"),
    Form("rsqrt.approx.f32", "rsqrt.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.16"),
    Form("rsqrt.approx.f64", "rsqrt.approx{.ftz}.f64", _F64[2], ptx=(4, 0), section="9.7.3.16"),
    Form("sin.approx.f32", "sin.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.18"),
    Form("cos.approx.f32", "cos.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.19"),
    Form("lg2.approx.f32", "lg2.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.20"),
    Form("ex2.approx.f32", "ex2.approx{.ftz}.f32", _F32[2], ptx=(1, 4), section="9.7.3.21"),
    _pairs("add", "9.7.3.3"),
    _pairs("sub", "9.7.3.4"),
    _pairs("mul", "9.7.3.5"),
    Form("fma.f32x2", "fma.rnd{.ftz}.f32x2", f"{_PAIRS}, c:b64=", _RND, section="9.7.3.6", **_PAIR),
    _mixed("add", "9.7.5.1"),
    _mixed("sub", "9.7.5.2"),
    Form(
        "fma.mixed", "fma.rnd{.sat}.f32.type", ">d:f32, a:type!, b:type!, c:f32", _MIXED, section="9.7.5.3", **_PAIR
    ),
    Form("tanh.approx.f32", "tanh.approx.f32", _F32[2], arch="sm_75", ptx=(7, 0), section="9.7.3.22"),
)  # fmt: skip
