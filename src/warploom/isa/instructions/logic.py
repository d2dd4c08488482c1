"""Logic and shifts: PTX ISA 9.7.8."""

from __future__ import annotations

from .schema import Form

_ALL = "pred b16 b32 b64"
_BITS = "b16 b32 b64"

FORMS: tuple[Form, ...] = (
    Form("and", "and.type", ">d:type, a:type, b:type", {"type": _ALL}, section="9.7.8.1"),
    Form("or", "or.type", ">d:type, a:type, b:type", {"type": _ALL}, section="9.7.8.2"),
    Form("xor", "xor.type", ">d:type, a:type, b:type", {"type": _ALL}, section="9.7.8.3"),
    Form("not", "not.type", ">d:type, a:type", {"type": _ALL}, section="9.7.8.4"),
    Form("cnot", "cnot.type", ">d:type, a:type", {"type": _BITS}, section="9.7.8.5"),
    Form("lop3", "lop3.b32", ">d:b32, a:b32, b:b32, c:b32, table:imm", ptx=(4, 3), section="9.7.8.6"),
    Form(
        "lop3.predicate",
        "lop3.bool.b32",
        ">d:b32|p:pred, a:b32, b:b32, c:b32, table:imm, q:pred",
        {"bool": "or and"},
        arch="sm_70",
        ptx=(8, 2),
        section="9.7.8.6",
    ),
    Form(
        "shf", "shf.direction.mode.b32", ">d:b32, a:b32, b:b32, c:u32",
        {"direction": "l r", "mode": "clamp wrap"}, ptx=(3, 1), section="9.7.8.7",
    ),
    Form("shl", "shl.type", ">d:type, a:type, b:u32", {"type": _BITS}, section="9.7.8.8"),
    Form("shr", "shr.type", ">d:type, a:type, b:u32", {"type": f"{_BITS} u16 u32 u64 s16 s32 s64"}, section="9.7.8.9"),
)  # fmt: skip
