"""Rows of the CTA-wide named barriers, `bar` and `barrier`. PTX ISA 9.7.13.1.

`bar` is `barrier` with `.aligned` built in. The thread count is between the barrier and the predicate of a reduction,
so each reduction has one row with it and one without.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..effects import Operand, Order, Synchronises
from .schema import Form

_ROW: dict[str, Any] = {"needs": {"cta": ("sm_50", (7, 8))}, "section": "9.7.13.1"}
_ALL = (Synchronises("cta", "a", Operand("b")),)
_ARRIVES = (Synchronises("cta", "a", Operand("b"), part="arrive", order=Order("release", "cta")),)


class _NotZero(Container[int]):
    """All numbers but 0: ptxas 13.0 takes negative counts of threads, as it takes their 32 bits."""

    def __contains__(self, number: object) -> bool:
        return number != 0


def _rows(base: str, aligned: str, converged: str, first: tuple[int, int], later: tuple[int, int]) -> tuple[Form, ...]:
    """The six rows of `bar` or `barrier`; `first`: the PTX version of sync, `later`: of the rest."""
    meets: dict[str, Any] = {**_ROW, "effects": _ALL, "converged": converged}
    popc, predicate = f"{base}{{.cta}}.red.popc{aligned}.u32", f"{base}{{.cta}}.red.op{aligned}.pred"
    logic = {"op": "and or"}
    return (
        Form(f"{base}.sync", f"{base}{{.cta}}.sync{aligned}", "a:u32, b:u32?", ptx=first, **meets),
        Form(f"{base}.arrive", f"{base}{{.cta}}.arrive{aligned}", "a:u32, b:u32", ptx=later, **_ROW, effects=_ARRIVES,
             converged=converged, ranges={"b": (_NotZero(), "anything but 0")}),
        Form(f"{base}.red_popc", popc, ">d:u32, a:u32, c:pred", ptx=later, **meets),
        Form(f"{base}.red_popc_count", popc, ">d:u32, a:u32, b:u32, c:pred", ptx=later, **meets),
        Form(f"{base}.red", predicate, ">p:pred, a:u32, c:pred", logic, ptx=later, **meets),
        Form(f"{base}.red_count", predicate, ">p:pred, a:u32, b:u32, c:pred", logic, ptx=later, **meets),
    )  # fmt: skip


FORMS: tuple[Form, ...] = (
    *_rows("bar", "", "warp", (1, 0), (2, 0)),
    *_rows("barrier", "{.aligned}", "", (6, 0), (6, 0)),
)
"""All rows of this family."""
