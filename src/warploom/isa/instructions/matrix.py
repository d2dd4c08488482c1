"""Rows of the warp-level matrix loads, stores and moves. PTX ISA 9.7.14.5.15 to .17."""

from __future__ import annotations

from typing import Any

from ..effects import READS, WRITES, Access
from .schema import Form, Modifiers

_SPACE = "shared shared::cta"
_LATER = {"shared::cta": ("sm_75", (7, 8))}
FAMILIES = "sm_100a sm_100f sm_101a sm_101f sm_110a sm_110f sm_120a sm_120f"
"""The 8-bit shapes came with sm_100 and its successors, as features of the chip or its family."""


def matrices(modifiers: Modifiers) -> int:
    """The number of matrices of `.x1`, `.x2`, `.x4`."""
    return int((modifiers["num"] or "x1")[1:])


_ONE_EACH = {"num": matrices}
_TWO_EACH = {"num": lambda modifiers: 2 * matrices(modifiers)}


def _rows(how: str) -> dict[str, Any]:
    access = Access(how, "p", "shared", footprint="matrix_rows", lanes="any")
    return {"converged": "warp", "effects": (access,), "narrow": True}


FORMS: tuple[Form, ...] = (
    Form(
        "ldmatrix.b16", "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16", ">r:b32*num, [p]",
        {"num": "x1 x2 x4", "space": _SPACE},
        arch="sm_75", ptx=(6, 5), needs=_LATER, lengths=_ONE_EACH, section="9.7.14.5.15",
        **_rows(READS),
    ),
    Form(
        "ldmatrix.b8", "ldmatrix.sync.aligned.m16n16.num.trans{.space}.b8", ">r:b32*num, [p]",
        {"num": "x1 x2", "space": _SPACE},
        arch=FAMILIES, ptx=(8, 6), lengths=_TWO_EACH, section="9.7.14.5.15",
        **_rows(READS),
    ),
    Form(
        "ldmatrix.b8_packed", "ldmatrix.sync.aligned.m16n16.num.trans{.space}.b8x16.source", ">r:b32*num, [p]",
        {"num": "x1 x2", "space": _SPACE, "source": "b6x16_p32 b4x16_p64"},
        arch=FAMILIES, ptx=(8, 6), lengths=_TWO_EACH, section="9.7.14.5.15",
        **_rows(READS),
    ),
    Form(
        "ldmatrix.m8n16_packed", "ldmatrix.sync.aligned.m8n16.num{.space}.b8x16.source", ">r:b32*num, [p]",
        {"num": "x1 x2 x4", "space": _SPACE, "source": "b6x16_p32 b4x16_p64"},
        arch=FAMILIES, ptx=(8, 6), lengths=_ONE_EACH, section="9.7.14.5.15",
        **_rows(READS),
    ),
    Form(
        "stmatrix.b16", "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16", "[p], r:b32!*num",
        {"num": "x1 x2 x4", "space": _SPACE},
        arch="sm_90", ptx=(7, 8), lengths=_ONE_EACH, section="9.7.14.5.16",
        **_rows(WRITES),
    ),
    Form(
        "stmatrix.b8", "stmatrix.sync.aligned.m16n8.num.trans{.space}.b8", "[p], r:b32!*num",
        {"num": "x1 x2 x4", "space": _SPACE},
        arch=FAMILIES, ptx=(8, 6), lengths=_ONE_EACH, section="9.7.14.5.16",
        **_rows(WRITES),
    ),
    Form(
        "movmatrix.b16", "movmatrix.sync.aligned.m8n8.trans.b16", ">d:b32, a:b32!",
        arch="sm_75", ptx=(7, 8), section="9.7.14.5.17",
        converged="warp",
    ),
)  # fmt: skip
