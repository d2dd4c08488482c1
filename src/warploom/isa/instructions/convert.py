"""Conversions: PTX ISA 9.7.9.21 (cvt) and 9.7.9.22 (cvt.pack)."""

from __future__ import annotations

from typing import Any

from .schema import Form, Modifiers

INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
_NOT_BYTES = "u16 u32 u64 s16 s32 s64"  # bf16 forms take no wider register, and no register has 8 bits
_INTEGER_ROUNDINGS = "rni rzi rmi rpi"
_ROUNDINGS = "rn rz rm rp"
_PLAIN = ">d:dtype, a:atype"
_HALF_SOURCE = ">d:dtype, a:atype!"  # ptxas takes no constant for a half precision source
_SECTION = "9.7.9.21"
_OLD = ("sm_50", (1, 0))
_AMPERE = ("sm_80", (7, 0))
_HOPPER = ("sm_90", (7, 8))
_FINITE = {"satfinite": ("sm_80", (8, 1))}


def _range(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def _can_saturate(modifiers: Modifiers) -> str | None:
    """`.sat` between integers requires a destination that does not hold all values of the source."""
    if not modifiers.get("sat"):
        return None
    target, source = str(modifiers["dtype"]), str(modifiers["atype"])
    low, high = _range(target)
    least, most = _range(source)
    if low <= least and high >= most:
        return f".sat has no meaning here: every .{source} is a .{target}"
    return None


def _form(
    key: str, opcode: str, operands: str, slots: dict[str, str], since: tuple[str, tuple[int, int]] = _OLD, **rest: Any
) -> Form:
    return Form(f"cvt.{key}", f"cvt{opcode}", operands, slots, *since, section=_SECTION, **rest)


_INTEGER = (
    _form("integer", "{.sat}.dtype.atype", _PLAIN, {"dtype": INTEGERS, "atype": INTEGERS}, check=_can_saturate),
    # float to integer; the result is clamped with or without .sat
    _form(
        "to_integer.f32",
        ".rnd{.ftz}{.sat}.dtype.atype",
        _PLAIN,
        {"rnd": _INTEGER_ROUNDINGS, "dtype": INTEGERS, "atype": "f32"},
    ),
    _form(
        "to_integer.f64",
        ".rnd{.sat}.dtype.atype",
        _PLAIN,
        {"rnd": _INTEGER_ROUNDINGS, "dtype": INTEGERS, "atype": "f64"},
    ),
    _form(
        "to_integer.f16",
        ".rnd{.sat}.dtype.atype",
        _HALF_SOURCE,
        {"rnd": _INTEGER_ROUNDINGS, "dtype": INTEGERS, "atype": "f16"},
    ),
    _form(
        "to_integer.bf16",
        ".rnd.dtype.atype",
        _HALF_SOURCE,
        {"rnd": _INTEGER_ROUNDINGS, "dtype": _NOT_BYTES, "atype": "bf16"},
        _HOPPER,
    ),
    # integer to float
    _form(
        "from_integer.f32",
        ".rnd{.ftz}{.sat}.dtype.atype",
        _PLAIN,
        {"rnd": _ROUNDINGS, "dtype": "f32", "atype": INTEGERS},
    ),
    _form("from_integer", ".rnd{.sat}.dtype.atype", _PLAIN, {"rnd": _ROUNDINGS, "dtype": "f16 f64", "atype": INTEGERS}),
    _form(
        "from_integer.bf16",
        ".rnd.dtype.atype",
        _PLAIN,
        {"rnd": _ROUNDINGS, "dtype": "bf16", "atype": _NOT_BYTES},
        _HOPPER,
    ),
)

_FLOAT = (
    # to an integral value of the same format
    _form("round.f32", "{.rnd}{.ftz}{.sat}.f32.f32", ">d:f32, a:f32", {"rnd": _INTEGER_ROUNDINGS}),
    _form("round.f64", "{.rnd}{.sat}.f64.f64", ">d:f64, a:f64", {"rnd": _INTEGER_ROUNDINGS}),
    _form("round.f16", "{.rnd}{.sat}.f16.f16", ">d:f16, a:f16!", {"rnd": _INTEGER_ROUNDINGS}),
    _form("round.bf16", "{.rnd}.bf16.bf16", ">d:bf16, a:bf16!", {"rnd": _INTEGER_ROUNDINGS}, _HOPPER),
    # to a narrower format
    _form("narrow.f32.f64", ".rnd{.ftz}{.sat}.f32.f64", ">d:f32, a:f64", {"rnd": _ROUNDINGS}),
    _form("narrow.f16.f64", ".rnd{.sat}.f16.f64", ">d:f16, a:f64", {"rnd": _ROUNDINGS}),
    _form("narrow.f16.f32", ".rnd{.ftz}{.sat}.f16.f32", ">d:f16, a:f32", {"rnd": _ROUNDINGS}),
    _form("narrow.bf16.f64", ".rnd.bf16.f64", ">d:bf16, a:f64", {"rnd": _ROUNDINGS}, _HOPPER),
    # ptxas takes these two without a rounding as well, and rounds to nearest even.
    _form("narrow.bf16.f16", "{.rnd}.bf16.f16", ">d:bf16, a:f16!", {"rnd": _ROUNDINGS}, _HOPPER),
    _form("narrow.f16.bf16", "{.rnd}.f16.bf16", ">d:f16, a:bf16!", {"rnd": _ROUNDINGS}, _HOPPER),
    _form("relu.f16.f32", ".rnd.relu{.satfinite}.f16.f32", ">d:f16, a:f32", {"rnd": "rn rz"}, _AMPERE, needs=_FINITE),
    _form("satfinite.f16.f32", ".rnd.satfinite.f16.f32", ">d:f16, a:f32", {"rnd": "rn rz"}, ("sm_50", (8, 1))),
    _form(
        "narrow.bf16.f32",
        ".rnd{.relu}{.satfinite}.bf16.f32",
        ">d:bf16, a:f32",
        {"rnd": "rn rz"},
        _AMPERE,
        needs=_FINITE,
    ),
    # ptxas also accepts rounding up and down and flushing, without .relu and .satfinite.
    _form("directed.bf16.f32", ".rnd{.ftz}.bf16.f32", ">d:bf16, a:f32", {"rnd": "rm rp"}, _AMPERE),
    _form("ftz.bf16.f32", ".rnd.ftz.bf16.f32", ">d:bf16, a:f32", {"rnd": "rn rz"}, _AMPERE),
    # to a wider format, exactly
    _form("widen.f32.f16", "{.ftz}{.sat}.f32.f16", ">d:f32, a:f16!", {}),
    _form("widen.f64.f16", "{.sat}.f64.f16", ">d:f64, a:f16!", {}),
    _form("widen.f64.f32", "{.ftz}{.sat}.f64.f32", ">d:f64, a:f32", {}),
    _form("widen.f32.bf16", "{.ftz}.f32.bf16", ">d:f32, a:bf16!", {}, ("sm_80", (7, 1)), needs={"ftz": _HOPPER}),
    _form("widen.f64.bf16", ".f64.bf16", ">d:f64, a:bf16!", {}, _HOPPER),
)

_DTYPE_FP8 = {"dtype": "e4m3x2 e5m2x2"}

_FP8 = (
    ("fp8x2.f32", ".rn.satfinite{.relu}.dtype.f32", ">d:b16=, a:f32, b:f32", _DTYPE_FP8),
    ("fp8x2.f16x2", ".rn.satfinite{.relu}.dtype.f16x2", ">d:b16=, a:f16x2!", _DTYPE_FP8),
    ("f16x2.fp8x2", ".rn{.relu}.f16x2.atype", ">d:f16x2, a:b16=", {"atype": "e4m3x2 e5m2x2"}),
)

_PACKED = (
    *(
        _form(
            f"pair.{pair}.f32", f".rnd{{.relu}}{{.satfinite}}.{pair}.f32", f">d:{pair}, a:f32, b:f32",
            {"rnd": "rn rz"}, _AMPERE, needs=_FINITE,
        )
        for pair in ("f16x2", "bf16x2")
    ),
    _form("rna.tf32.f32", ".rna{.satfinite}.tf32.f32", ">d:b32=, a:f32", {}, _AMPERE, needs=_FINITE),
    _form(
        "tf32.f32", ".rnd{.satfinite}{.relu}.tf32.f32", ">d:b32=, a:f32", {"rnd": "rn rz"}, _HOPPER,
        needs={"satfinite": ("sm_100", (8, 6))},
    ),
    *(
        _form(key + suffix, pattern, operands, slots, since)
        for key, pattern, operands, slots in _FP8
        for suffix, since in (("", ("sm_89", (8, 1))), (".sm_90", ("sm_90", (7, 8))))  # sm_89 came to PTX later
    ),
    Form(
        "cvt.pack", "cvt.pack.sat.dtype.atype", ">d:u32, a:atype, b:atype", {"dtype": "u16 s16", "atype": "s32"},
        "sm_72", (6, 5), section="9.7.9.22",
    ),
    Form(
        "cvt.pack.merge", "cvt.pack.sat.dtype.atype.b32", ">d:u32, a:atype, b:atype, c:b32",
        {"dtype": "u2 s2 u4 s4 u8 s8", "atype": "s32"}, "sm_72", (6, 5), needs={
            name: ("sm_75", (6, 5)) for name in ("u2", "s2", "u4", "s4")
        }, section="9.7.9.22",
    ),
)  # fmt: skip

FORMS: tuple[Form, ...] = (*_INTEGER, *_FLOAT, *_PACKED)
