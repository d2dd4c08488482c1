"""Rows of the warp-level matrix instructions with opaque fragments: wmma.load, wmma.store, wmma.mma. PTX ISA 9.7.14.4.

CUDA's `nvcuda::wmma` becomes these, and `nvcuda::wmma::experimental` those with elements of four bits and of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..effects import READS, STATE_SPACE, WRITES, Access
from .mma import shape_of
from .schema import Form, Modifiers

SECTION = "9.7.14.4"
_SHAPES = "m16n16k16 m8n32k16 m32n8k16"
_LATER = {"m8n32k16": ("sm_70", (6, 1)), "m32n8k16": ("sm_70", (6, 1))}
_SPACE = "global shared shared::cta"
_WINDOW = {"shared::cta": ("sm_70", (7, 8))}
_UNIT: dict[str, Any] = {"unit": "mma", "converged": "warp", "noun": "wmma.mma"}
_LOADS: dict[str, Any] = {
    "converged": "warp",
    "effects": (Access(READS, "p", STATE_SPACE, footprint="fragment", lanes="any"),),
    "narrow": True,
}
_STORES: dict[str, Any] = {
    "converged": "warp",
    "effects": (Access(WRITES, "p", STATE_SPACE, footprint="fragment", lanes="any"),),
    "narrow": True,
}
_LAYOUTS = {"alayout": "row col", "blayout": "row col"}
_ALONG_K = {"alayout": "row", "blayout": "col"}


def registers(fragment: str, modifiers: Modifiers, bits: int, bf16: bool = False) -> int:
    """Registers per thread for operand "a", "b" or "c": elements over 32 lanes; f16 factors always take 8."""
    if bits == 16 and fragment in "ab" and not bf16:
        return 8
    m, n, k = shape_of(modifiers)
    elements = {"a": m * k, "b": n * k, "c": m * n}[fragment]
    return elements // 32 * bits // max(bits, 32)


def _of(fragment: str, bits: int, bf16: bool = False) -> Callable[[Modifiers], int]:
    """Registers of a fragment; if `fragment` is empty, of the one that the modifier names."""
    return lambda modifiers: registers(fragment or modifiers["fragment"] or "", modifiers, bits, bf16)


def _factors(bits: int, bf16: bool = False) -> Mapping[str, Callable[[Modifiers], int]]:
    return {"a": _of("a", bits, bf16), "b": _of("b", bits, bf16)}


_MEMORY = {"int8": "~", "f64": "!", "int4": "", "b1": "", "f16": "^f16x2", "bf16": "^bf16x2", "tf32": "^tf32"}


def _along_k(modifiers: Modifiers) -> str | None:
    """A matrix of elements below eight bits is stored along k: A by rows, B by columns."""
    layout = _ALONG_K[f"{modifiers['fragment']}layout"]
    return None if modifiers["layout"] == layout else f"matrix {modifiers['fragment']} of such elements needs .{layout}"


def _load(key: str, words: str, register: str, bits: int, shapes: str, arch: str, ptx: tuple[int, int]) -> Form:
    return Form(
        f"wmma.load.{key}", "wmma.load.fragment.sync.aligned.layout.shape{.space}.type",
        f">r:{register}{_MEMORY[key]}*r, [p], stride:u32?",
        {"fragment": "a b", "layout": "row col", "shape": shapes, "space": _SPACE, "type": words},
        arch=arch, ptx=ptx, needs={**_WINDOW, **(_LATER if key == "f16" else {})},
        lengths={"r": _of("", bits, key == "bf16")}, section=SECTION, check=_along_k if bits < 8 else None, **_LOADS,
    )  # fmt: skip


def _accumulator(
    word: str, register: str, bits: int, shapes: str, arch: str, ptx: tuple[int, int]
) -> tuple[Form, Form]:
    kind = "^f16x2" if register == "b32" else ""
    slots = {"layout": "row col", "shape": shapes, "space": _SPACE}
    later = {**_WINDOW, **(_LATER if ptx < (6, 1) else {})}
    if "m16n16k8" in shapes:
        later["m16n16k8"] = ("sm_80", (7, 0))
    later.update({shape: ("sm_75", (6, 3)) for shape in ("m8n8k32", "m8n8k128") if shape in shapes})
    lengths = {"r": _of("c", bits)}
    return (
        Form(
            f"wmma.load.c.{word}", f"wmma.load.c.sync.aligned.layout.shape{{.space}}.{word}",
            f">r:{register}{kind}*r, [p], stride:u32?", slots,
            arch=arch, ptx=ptx, needs=later, lengths=lengths, section=SECTION, **_LOADS,
        ),
        Form(
            f"wmma.store.{word}", f"wmma.store.d.sync.aligned.layout.shape{{.space}}.{word}",
            f"[p], r:{register}{kind}*r, stride:u32?", slots,
            arch=arch, ptx=ptx, needs=later, lengths=lengths, section=SECTION, **_STORES,
        ),
    )  # fmt: skip


def _half(d: str, c: str) -> Form:
    kinds = {"f16": "b32^f16x2*4", "f32": "f32*8"}
    return Form(
        f"wmma.mma.{d}_{c}", f"wmma.mma.sync.aligned.alayout.blayout.shape.{d}.{c}",
        f">d:{kinds[d]}, a:b32^f16x2*8, b:b32^f16x2*8, c:{kinds[c]}", {**_LAYOUTS, "shape": _SHAPES},
        arch="sm_70", ptx=(6, 0), needs=_LATER, section=SECTION, **_UNIT,
    )  # fmt: skip


FORMS: tuple[Form, ...] = (
    _load("f16", "f16", "b32", 16, _SHAPES, "sm_70", (6, 0)),
    _load("bf16", "bf16", "b32", 16, _SHAPES, "sm_80", (7, 0)),
    _load("tf32", "tf32", "b32", 32, "m16n16k8", "sm_80", (7, 0)),
    _load("int8", "s8 u8", "b32", 8, _SHAPES, "sm_72", (6, 3)),
    _load("int4", "s4 u4", "b32", 4, "m8n8k32", "sm_75", (6, 3)),
    _load("b1", "b1", "b32", 1, "m8n8k128", "sm_75", (6, 3)),
    _load("f64", "f64", "f64", 64, "m8n8k4", "sm_80", (7, 0)),
    *_accumulator("f16", "b32", 16, _SHAPES, "sm_70", (6, 0)),
    *_accumulator("f32", "f32", 32, f"{_SHAPES} m16n16k8", "sm_70", (6, 0)),
    *_accumulator("s32", "s32", 32, f"{_SHAPES} m8n8k32 m8n8k128", "sm_72", (6, 3)),
    *_accumulator("f64", "f64", 64, "m8n8k4", "sm_80", (7, 0)),
    *(_half(d, c) for d in ("f16", "f32") for c in ("f16", "f32")),
    Form(
        "wmma.mma.bf16", "wmma.mma.sync.aligned.alayout.blayout.shape.f32.bf16.bf16.f32",
        ">d:f32*8, a:b32^bf16x2*a, b:b32^bf16x2*b, c:f32*8", {**_LAYOUTS, "shape": _SHAPES},
        arch="sm_80", ptx=(7, 0), lengths=_factors(16, bf16=True), section=SECTION, **_UNIT,
    ),
    Form(
        "wmma.mma.tf32", "wmma.mma.sync.aligned.alayout.blayout.shape.f32.tf32.tf32.f32",
        ">d:f32*8, a:b32^tf32*4, b:b32^tf32*4, c:f32*8", {**_LAYOUTS, "shape": "m16n16k8"},
        arch="sm_80", ptx=(7, 0), section=SECTION, **_UNIT,
    ),
    *(
        Form(
            f"wmma.mma.{kind}", f"wmma.mma.sync.aligned.alayout.blayout.shape.s32.{kind}.{kind}.s32{{.satfinite}}",
            ">d:s32*8, a:s32!*a, b:s32!*b, c:s32*8", {**_LAYOUTS, "shape": _SHAPES},
            arch="sm_72", ptx=(6, 3), lengths=_factors(8), section=SECTION, **_UNIT,
        )
        for kind in ("s8", "u8")
    ),
    *(
        Form(
            f"wmma.mma.{kind}", f"wmma.mma.sync.aligned.alayout.blayout.shape.s32.{kind}.{kind}.s32{{.satfinite}}",
            ">d:s32*2, a:s32*1, b:s32*1, c:s32*2", {**_ALONG_K, "shape": "m8n8k32"},
            arch="sm_75", ptx=(6, 3), section=SECTION, **_UNIT,
        )
        for kind in ("s4", "u4")
    ),
    Form(
        "wmma.mma.b1", "wmma.mma.bitop.popc.sync.aligned.alayout.blayout.shape.s32.b1.b1.s32",
        ">d:s32*2, a:s32!*1, b:s32!*1, c:s32*2", {**_ALONG_K, "shape": "m8n8k128", "bitop": "xor and"},
        arch="sm_75", ptx=(6, 3), needs={"and": ("sm_80", (7, 1))}, section=SECTION, **_UNIT,
    ),
    Form(
        "wmma.mma.f64", "wmma.mma.sync.aligned.alayout.blayout.shape{.rn}.f64.f64.f64.f64",
        ">d:f64*2, a:f64*1, b:f64*1, c:f64*2", {**_LAYOUTS, "shape": "m8n8k4"},
        arch="sm_80", ptx=(7, 0), section=SECTION, **_UNIT,
    ),
    Form(  # in nvcc's spelling
        "wmma.mma.f64_rn", "wmma.mma.sync.aligned.alayout.blayout.shape.f64.f64.f64.f64.rn",
        ">d:f64*2, a:f64*1, b:f64*1, c:f64*2", {**_LAYOUTS, "shape": "m8n8k4"},
        arch="sm_80", ptx=(7, 0), section=SECTION, **_UNIT,
    ),
)  # fmt: skip
