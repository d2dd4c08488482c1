"""Rows of the warp-level multiply-accumulate `mma.sync`, dense. PTX ISA 9.7.14.5.14.

One row per combination of operand types: that of the inputs and that of the accumulator. The number of registers of an
operand follows from the shape; `isa.fragments` has the position of each element.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .schema import Form, Modifiers

SECTION = "9.7.14.5.14"
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def shape_of(modifiers: Modifiers) -> tuple[int, int, int]:
    """(m, n, k) of a shape modifier."""
    found = _SHAPE.fullmatch(modifiers["shape"] or "")
    return (int(found[1]), int(found[2]), int(found[3]))  # type: ignore[index]


def _lengths(bits: int, accumulator_bits: int) -> Mapping[str, Callable[[Modifiers], int]]:
    """Registers of A, B and C of one thread: elements over 32 lanes, packed into registers of at least 32 bits."""

    def registers(elements: int, width: int) -> int:
        return elements // 32 * width // max(width, 32)

    def a(modifiers: Modifiers) -> int:
        m, _, k = shape_of(modifiers)
        return registers(m * k, bits)

    def b(modifiers: Modifiers) -> int:
        _, n, k = shape_of(modifiers)
        return registers(n * k, bits)

    def c(modifiers: Modifiers) -> int:
        m, n, _ = shape_of(modifiers)
        return registers(m * n, accumulator_bits)

    return {"a": a, "b": b, "c": c}


_F32 = ">d:f32*c, a:b32^f16x2*a, b:b32^f16x2*b, c:f32*c"
_BF16, _TF32 = _F32.replace("f16x2", "bf16x2"), _F32.replace("f16x2", "tf32")
_F16 = ">d:b32^f16x2*c, a:b32^f16x2*a, b:b32^f16x2*b, c:b32^f16x2*c"
_FP8_F32 = ">d:f32*c, a:b32!*a, b:b32!*b, c:f32*c"
_FP8_F16 = ">d:b32^f16x2*c, a:b32!*a, b:b32!*b, c:b32^f16x2*c"
_S32 = ">d:s32*c, a:b32!*a, b:b32!*b, c:s32*c"
_HALF_SHAPES = {"shape": "m16n8k8 m16n8k16"}
_HALF_NEEDS = {"m16n8k16": ("sm_80", (7, 0))}
_FP8 = {"shape": "m16n8k16 m16n8k32", "atype": "e4m3 e5m2", "btype": "e4m3 e5m2"}
_VOLTA = {"alayout": "row col", "blayout": "row col"}

_UNIT: dict[str, Any] = {"unit": "mma", "converged": "warp", "noun": "mma.sync"}

FORMS: tuple[Form, ...] = (
    Form(
        "mma.f16_f32", "mma.sync.aligned.shape.row.col.f32.f16.f16.f32", _F32, _HALF_SHAPES,
        arch="sm_75", ptx=(6, 5), needs=_HALF_NEEDS, lengths=_lengths(16, 32), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.f16_f16", "mma.sync.aligned.shape.row.col.f16.f16.f16.f16", _F16, _HALF_SHAPES,
        arch="sm_75", ptx=(6, 5), needs=_HALF_NEEDS, lengths=_lengths(16, 16), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.bf16", "mma.sync.aligned.shape.row.col.f32.bf16.bf16.f32", _BF16, _HALF_SHAPES,
        arch="sm_80", ptx=(7, 0), lengths=_lengths(16, 32), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.tf32", "mma.sync.aligned.shape.row.col.f32.tf32.tf32.f32", _TF32, {"shape": "m16n8k4 m16n8k8"},
        arch="sm_80", ptx=(7, 0), lengths=_lengths(32, 32), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.fp8_f32", "mma.sync.aligned.shape.row.col.f32.atype.btype.f32", _FP8_F32, _FP8,
        arch="sm_89", ptx=(8, 4), needs={"m16n8k16": ("sm_89", (8, 7))}, lengths=_lengths(8, 32), section=SECTION,
        **_UNIT,
    ),
    Form(
        "mma.fp8_f16", "mma.sync.aligned.shape.row.col.f16.atype.btype.f16", _FP8_F16, _FP8,
        arch="sm_89", ptx=(8, 7), lengths=_lengths(8, 16), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.f64", "mma.sync.aligned.shape.row.col.f64.f64.f64.f64{.rnd}", ">d:f64*c, a:f64*a, b:f64*b, c:f64*c",
        {"shape": "m8n8k4 m16n8k4 m16n8k8 m16n8k16", "rnd": "rn rz rm rp"},
        arch="sm_80", ptx=(7, 0), lengths=_lengths(64, 64), section=SECTION, **_UNIT,
        needs={shape: ("sm_90", (7, 8)) for shape in ("m16n8k4", "m16n8k8", "m16n8k16")},
    ),
    Form(
        "mma.int8", "mma.sync.aligned.shape.row.col{.satfinite}.s32.atype.btype.s32", _S32,
        {"shape": "m8n8k16 m16n8k16 m16n8k32", "atype": "s8 u8", "btype": "s8 u8"},
        arch="sm_75", ptx=(6, 5), lengths=_lengths(8, 32), section=SECTION, **_UNIT,
        needs={shape: ("sm_80", (7, 0)) for shape in ("m16n8k16", "m16n8k32")},
    ),
    Form(
        "mma.int4", "mma.sync.aligned.shape.row.col{.satfinite}.s32.atype.btype.s32", _S32,
        {"shape": "m8n8k32 m16n8k32 m16n8k64", "atype": "s4 u4", "btype": "s4 u4"},
        arch="sm_75", ptx=(6, 5), lengths=_lengths(4, 32), section=SECTION, **_UNIT,
        needs={shape: ("sm_80", (7, 0)) for shape in ("m16n8k32", "m16n8k64")},
    ),
    Form(
        "mma.b1", "mma.sync.aligned.shape.row.col.s32.b1.b1.s32.bitop.popc", _S32,
        {"shape": "m8n8k128 m16n8k128 m16n8k256", "bitop": "xor and"},
        arch="sm_75", ptx=(7, 0), lengths=_lengths(1, 32), section=SECTION, **_UNIT,
        needs={
            **{shape: ("sm_80", (7, 0)) for shape in ("m16n8k128", "m16n8k256")},
            "and": ("sm_80", (7, 1)),
        },
    ),
    Form(
        "mma.volta_f32", "mma.sync.aligned.m8n8k4.alayout.blayout.f32.f16.f16.f32",
        ">d:f32*8, a:b32^f16x2*2, b:b32^f16x2*2, c:f32*8", _VOLTA, arch="sm_70", ptx=(6, 4), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.volta_f32_f16", "mma.sync.aligned.m8n8k4.alayout.blayout.f32.f16.f16.f16",
        ">d:f32*8, a:b32^f16x2*2, b:b32^f16x2*2, c:b32^f16x2*4", _VOLTA,
        arch="sm_70", ptx=(6, 4), section=SECTION, **_UNIT,
    ),
    Form(
        "mma.volta_f16", "mma.sync.aligned.m8n8k4.alayout.blayout.f16.f16.f16.f16",
        ">d:b32^f16x2*4, a:b32^f16x2*2, b:b32^f16x2*2, c:b32^f16x2*4", _VOLTA,
        arch="sm_70", ptx=(6, 4), section=SECTION, **_UNIT,
    ),
)  # fmt: skip
