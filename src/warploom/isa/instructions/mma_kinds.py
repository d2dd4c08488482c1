"""Rows of `mma.sync` and `mma.sp` with a kind: 8, 6 and 4 bits, block-scaled or not, on sm_120a. PTX ISA 9.7.14.5.14.

The scale factors of a block-scaled MMA are in a register of each thread. `ids` selects bytes of it ("byte-id") and
threads of each four ("thread-id"). Elements of 6 and 4 bits take a byte each, except in the kinds mxf4 and mxf4nvf4,
which pack two per byte. The data-centre chips accept `.kind::f8f6f4` for the types that they have without it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from .mma import shape_of
from .schema import Form, Modifiers

SECTION = "9.7.14.5.14"
OF_120 = "sm_120f"
_ALL = "sm_100f sm_110f sm_120f"
_BYTES = "e4m3 e5m2"
_TYPES = {"atype": f"{_BYTES} e3m2 e2m3 e2m1", "btype": f"{_BYTES} e3m2 e2m3 e2m1"}
_NARROW = {narrow: (OF_120, (8, 7)) for narrow in ("e3m2", "e2m3", "e2m1")}
_COMMON: dict[str, Any] = {"ptx": (8, 7), "section": SECTION, "unit": "mma", "converged": "warp"}
_SPARSE = "meta:b32!, sel:imm"
_FACTORS = "sa:b32!, ids_a:b16~*2, sb:b32!, ids_b:b16~*2"
BYTES_ASKED = {1: (range(4), "0 to 3"), 2: (range(0, 4, 2), "0 or 2"), 4: (range(1), "0")}
"""Allowed byte-ids for one, two and four factors per row."""


def _ids(factors: int) -> dict[str, tuple[Container[int], str]]:
    """Allowed constants among the ids: elements of an operand in braces, by number."""
    return {
        "ids_a.0": BYTES_ASKED[factors], "ids_a.1": (range(2), "0 or 1"),
        "ids_b.0": BYTES_ASKED[factors], "ids_b.1": (range(4), "0 to 3"),
    }  # fmt: skip


def _registers(of: str) -> Callable[[Modifiers], int]:
    return lambda modifiers: shape_of(modifiers)[2] // (8 if of == "a" else 16)


def _small(modifiers: Modifiers) -> str | None:
    narrow = {modifiers["atype"], modifiers["btype"]} - set(_BYTES.split())
    return f"m16n8k16 is for e4m3 and e5m2, not {', '.join(sorted(filter(None, narrow)))}" if (
        modifiers["shape"] == "m16n8k16" and narrow
    ) else None  # fmt: skip


def _plain(accumulator: str, register: str) -> list[Form]:
    """`.kind::f8f6f4`, dense and sparse."""
    tail = f"row.col.kind::f8f6f4.{accumulator}.atype.btype.{accumulator}"
    count = 4 if accumulator == "f32" else 2
    sparse_arch = _ALL if accumulator == "f32" else OF_120
    return [
        Form(
            f"mma.kind_f8f6f4_{accumulator}", f"mma.sync.aligned.shape.{tail}",
            f">d:{register}*{count}, a:b32!*a, b:b32!*b, c:{register}*{count}",
            {"shape": "m16n8k16 m16n8k32", **_TYPES}, arch=_ALL, needs=_NARROW, check=_small,
            lengths={"a": _registers("a"), "b": _registers("b")}, noun="mma.sync", **_COMMON,
        ),
        Form(
            f"mma.sp_kind_f8f6f4_{accumulator}", f"mma.sp::ordered_metadata.sync.aligned.shape.{tail}",
            f">d:{register}*{count}, a:b32!*4, b:b32!*4, c:{register}*{count}, {_SPARSE}",
            {"shape": "m16n8k64", **_TYPES}, arch=sparse_arch,
            needs=_NARROW, ranges={"sel": (range(1), "0")}, noun="mma.sp",
            **{**_COMMON, "ptx": (8, 6) if accumulator == "f32" else (8, 7)},
        ),
    ]  # fmt: skip


def _scaled(kind: str, k: int, vector: str, factors: int, scale: str, types: str, sparse_arch: str) -> list[Form]:
    """A block-scaled kind, dense and sparse; the sparse MMA is twice as deep."""
    tail = f"row.col.kind::{kind}.block_scale{vector}.f32.{types}.f32.{scale}"
    slots = _TYPES if types.startswith("atype") else {}
    name = f"{kind}_{factors}x"
    return [
        Form(
            f"mma.kind_{name}", f"mma.sync.aligned.shape.{tail}",
            f">d:f32*4, a:b32!*4, b:b32!*2, c:f32*4, {_FACTORS}", {"shape": f"m16n8k{k}", **slots}, arch=OF_120,
            ranges=_ids(factors), noun="mma.sync", **_COMMON,
        ),
        Form(
            f"mma.sp_kind_{name}", f"mma.sp::ordered_metadata.sync.aligned.shape.{tail}",
            f">d:f32*4, a:b32!*4, b:b32!*4, c:f32*4, {_SPARSE}, {_FACTORS}",
            {"shape": f"m16n8k{2 * k}", **slots}, arch=sparse_arch,
            ranges={"sel": (range(1), "0"), **_ids(factors)}, noun="mma.sp", **_COMMON,
        ),
    ]  # fmt: skip


_VERY_CHIP = "sm_120a sm_121a"
FORMS: tuple[Form, ...] = (
    *_plain("f32", "f32"),
    *_plain("f16", "b32"),
    *_scaled("mxf8f6f4", 32, "{.scale_vec::1X}", 1, "ue8m0", "atype.btype", OF_120),
    *_scaled("mxf4", 64, "{.scale_vec::2X}", 2, "ue8m0", "e2m1.e2m1", _VERY_CHIP),
    *_scaled("mxf4nvf4", 64, ".scale_vec::2X", 2, "ue8m0", "e2m1.e2m1", _VERY_CHIP),
    *_scaled("mxf4nvf4", 64, ".scale_vec::4X", 4, "ue4m3", "e2m1.e2m1", _VERY_CHIP),
)
