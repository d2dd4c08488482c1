"""Moves of values and addresses, vectors packed and unpacked, bytes permuted: PTX ISA 9.7.9.3, 9.7.9.4, 9.7.9.7."""

from __future__ import annotations

from typing import Any

from .schema import Form, Modifiers

_SCALARS = "pred b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"

# whole, part, how many
_VECTORS = (("b16", "b8", 2), ("b32", "b16", 2), ("b32", "b8", 4), ("b64", "b32", 2), ("b64", "b16", 4))


def _vectors() -> list[Form]:
    rows = []
    for whole, part, count in _VECTORS:
        rows.append(
            Form(f"mov.pack.{whole}x{count}", f"mov.{whole}", f">d:{whole}, a:{part}*{count}", section="9.7.9.4")
        )
        rows.append(
            Form(f"mov.unpack.{whole}x{count}", f"mov.{whole}", f">d:{part}*{count}, a:{whole}", section="9.7.9.4")
        )
    late: dict[str, Any] = {"arch": "sm_70", "ptx": (8, 3), "section": "9.7.9.4"}
    rows.append(Form("mov.pack.b128", "mov.b128", ">d:b128, a:b64*2", **late))
    rows.append(Form("mov.unpack.b128", "mov.b128", ">d:b64*2, a:b128", **late))
    rows.append(Form("mov.b128", "mov.b128", ">d:b128, a:b128", **late))
    return rows


_ALIKE = {"vec": "v2 v4", "type": "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"}


def _too_long(modifiers: Modifiers) -> str | None:
    return "a vector has at most 128 bits" if modifiers["vec"] == "v4" and "64" in (modifiers["type"] or "") else None


FORMS: tuple[Form, ...] = (
    # One row serves registers, constants, special registers and the addresses of variables: all are values.
    Form("mov", "mov.type", ">d:type, a:type&any", {"type": _SCALARS}, section="9.7.9.3"),
    # ptxas accepts vectors of registers, too; the ISA does not describe it (measured with ptxas 13.0).
    Form("mov.vector", "mov.vec.type", ">d:type*vec, a:type*vec", _ALIKE, section="9.7.9.3", check=_too_long),
    *_vectors(),
    Form(
        "prmt", "prmt.b32{.mode}", ">d:b32, a:b32, b:b32, c:b32",
        {"mode": "f4e b4e rc8 ecl ecr rc16"}, ptx=(2, 0), section="9.7.9.7",
    ),
)  # fmt: skip
