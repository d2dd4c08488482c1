"""Integer arithmetic: PTX ISA 9.7.1, and extended precision with the carry flag, 9.7.2."""

from __future__ import annotations

from typing import Any

from .schema import Form

INTEGERS = "u16 u32 u64 s16 s32 s64"
SIGNED = "s16 s32 s64"
_WORDS = "u32 u64 s32 s64"
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_LATE: dict[str, Any] = {"arch": "sm_90", "ptx": (8, 0)}

_TWO = ">d:type, a:type, b:type"
_THREE = ">d:type, a:type, b:type, c:type"
_PAIRS = ">d:b32=, a:b32=, b:b32="

ARITHMETIC = (
    Form("add.integer", "add.type", _TWO, {"type": INTEGERS}, section="9.7.1.1"),
    Form("add.saturate", "add.sat.s32", ">d:s32, a:s32, b:s32", section="9.7.1.1"),
    Form("add.integer_x2", "add.type", _PAIRS, {"type": "u16x2 s16x2"}, section="9.7.1.1", **_LATE),
    Form("sub.integer", "sub.type", _TWO, {"type": INTEGERS}, section="9.7.1.2"),
    Form("sub.saturate", "sub.sat.s32", ">d:s32, a:s32, b:s32", section="9.7.1.2"),
    Form("mul.integer", "mul.half.type", _TWO, {"half": "lo hi", "type": INTEGERS}, section="9.7.1.3"),
    *(
        Form(f"mul.wide.{narrow}", f"mul.wide.{narrow}", f">d:{wide}, a:{narrow}, b:{narrow}", section="9.7.1.3")
        for narrow, wide in _WIDER.items()
    ),
    Form("mad.integer", "mad.half.type", _THREE, {"half": "lo hi", "type": INTEGERS}, section="9.7.1.4"),
    Form("mad.saturate", "mad.hi.sat.s32", ">d:s32, a:s32, b:s32, c:s32", section="9.7.1.4"),
    *(
        Form(
            f"mad.wide.{narrow}",
            f"mad.wide.{narrow}",
            f">d:{wide}, a:{narrow}, b:{narrow}, c:{wide}",
            section="9.7.1.4",
        )
        for narrow, wide in _WIDER.items()
    ),
    Form("mul24", "mul24.half.type", _TWO, {"half": "lo hi", "type": "u32 s32"}, section="9.7.1.5"),
    Form("mad24", "mad24.half.type", _THREE, {"half": "lo hi", "type": "u32 s32"}, section="9.7.1.6"),
    Form("mad24.saturate", "mad24.hi.sat.s32", ">d:s32, a:s32, b:s32, c:s32", section="9.7.1.6"),
    Form("sad", "sad.type", _THREE, {"type": INTEGERS}, section="9.7.1.7"),
    Form("div.integer", "div.type", _TWO, {"type": INTEGERS}, section="9.7.1.8"),
    Form("rem", "rem.type", _TWO, {"type": INTEGERS}, section="9.7.1.9"),
    Form("abs.integer", "abs.type", ">d:type, a:type", {"type": SIGNED}, section="9.7.1.10"),
    Form("neg.integer", "neg.type", ">d:type, a:type", {"type": SIGNED}, section="9.7.1.11"),
    Form("min.integer", "min.type", _TWO, {"type": INTEGERS}, section="9.7.1.12"),
    Form("min.relu", "min.relu.s32", ">d:s32, a:s32, b:s32", section="9.7.1.12", **_LATE),
    Form("min.u16x2", "min.u16x2", _PAIRS, section="9.7.1.12", **_LATE),
    Form("min.s16x2", "min{.relu}.s16x2", _PAIRS, section="9.7.1.12", **_LATE),
    Form("max.integer", "max.type", _TWO, {"type": INTEGERS}, section="9.7.1.13"),
    Form("max.relu", "max.relu.s32", ">d:s32, a:s32, b:s32", section="9.7.1.13", **_LATE),
    Form("max.u16x2", "max.u16x2", _PAIRS, section="9.7.1.13", **_LATE),
    Form("max.s16x2", "max{.relu}.s16x2", _PAIRS, section="9.7.1.13", **_LATE),
)

_BYTE = (range(256), "0 to 255")
"""Range of the position and the length of a bit field, if they are constants."""

BITS = (
    Form("popc", "popc.type", ">d:u32, a:type", {"type": "b32 b64"}, ptx=(2, 0), section="9.7.1.14"),
    Form("clz", "clz.type", ">d:u32, a:type", {"type": "b32 b64"}, ptx=(2, 0), section="9.7.1.15"),
    Form("bfind", "bfind{.shiftamt}.type", ">d:u32, a:type", {"type": _WORDS}, ptx=(2, 0), section="9.7.1.16"),
    Form("fns", "fns.b32", ">d:b32, mask:b32, base:b32, offset:s32", ptx=(6, 0), section="9.7.1.17"),
    Form("brev", "brev.type", ">d:type, a:type", {"type": "b32 b64"}, ptx=(2, 0), section="9.7.1.18"),
    Form(
        "bfe", "bfe.type", ">d:type, a:type, b:u32, c:u32", {"type": _WORDS}, ptx=(2, 0), section="9.7.1.19",
        ranges={"b": _BYTE, "c": _BYTE},
    ),
    Form(
        "bfi", "bfi.type", ">f:type, a:type, b:type, c:u32, d:u32", {"type": "b32 b64"}, ptx=(2, 0), section="9.7.1.20",
        ranges={"c": _BYTE, "d": _BYTE},
    ),
    Form(
        "szext", "szext.mode.type", ">d:type, a:type, b:u32", {"mode": "clamp wrap", "type": "u32 s32"},
        arch="sm_70", ptx=(7, 6), section="9.7.1.21",
    ),
    Form(
        "bmsk", "bmsk.mode.b32", ">d:b32~, a:u32, b:u32", {"mode": "clamp wrap"},
        arch="sm_70", ptx=(7, 6), section="9.7.1.22",
    ),
    Form(
        "dp4a", "dp4a.atype.btype", ">d:b32~, a:atype, b:btype, c:b32~", {"atype": "u32 s32", "btype": "u32 s32"},
        arch="sm_61", ptx=(5, 0), section="9.7.1.23",
    ),
    Form(
        "dp2a", "dp2a.half.atype.btype", ">d:b32~, a:atype, b:btype, c:b32~",
        {"half": "lo hi", "atype": "u32 s32", "btype": "u32 s32"}, arch="sm_61", ptx=(5, 0), section="9.7.1.24",
    ),
)  # fmt: skip

CARRY = (
    Form("add.cc", "add.cc.type", _TWO, {"type": _WORDS}, ptx=(4, 3), section="9.7.2.1"),
    Form("addc", "addc{.cc}.type", _TWO, {"type": _WORDS}, ptx=(4, 3), section="9.7.2.2"),
    Form("sub.cc", "sub.cc.type", _TWO, {"type": _WORDS}, ptx=(4, 3), section="9.7.2.3"),
    Form("subc", "subc{.cc}.type", _TWO, {"type": _WORDS}, ptx=(4, 3), section="9.7.2.4"),
    Form("mad.cc", "mad.half.cc.type", _THREE, {"half": "lo hi", "type": _WORDS}, ptx=(4, 3), section="9.7.2.5"),
    Form("madc", "madc.half{.cc}.type", _THREE, {"half": "lo hi", "type": _WORDS}, ptx=(4, 3), section="9.7.2.6"),
)

FORMS: tuple[Form, ...] = (*ARITHMETIC, *BITS, *CARRY)
