"""Rows of the CTA-wide named barriers, `bar` and `barrier`. PTX ISA 9.7.13.1.

`bar` is `barrier` with `.aligned` built in. The thread count stands between the barrier and the predicate of a
reduction, so each reduction has a row with and a row without it.
"""

from __future__ import annotations

from .schema import Form

_SECTION = "9.7.13.1"
_CTA = {"cta": ("sm_50", (7, 8))}

FORMS: tuple[Form, ...] = (
    Form("bar.sync", "bar{.cta}.sync", "a:u32, b:u32?", needs=_CTA, section=_SECTION),
    Form("bar.arrive", "bar{.cta}.arrive", "a:u32, b:u32", ptx=(2, 0), needs=_CTA, section=_SECTION),
    Form("bar.red_popc", "bar{.cta}.red.popc.u32", ">d:u32, a:u32, c:pred", ptx=(2, 0), needs=_CTA, section=_SECTION),
    Form(
        "bar.red_popc_count", "bar{.cta}.red.popc.u32", ">d:u32, a:u32, b:u32, c:pred",
        ptx=(2, 0), needs=_CTA, section=_SECTION,
    ),
    Form(
        "bar.red", "bar{.cta}.red.op.pred", ">p:pred, a:u32, c:pred",
        {"op": "and or"}, ptx=(2, 0), needs=_CTA, section=_SECTION,
    ),
    Form(
        "bar.red_count", "bar{.cta}.red.op.pred", ">p:pred, a:u32, b:u32, c:pred",
        {"op": "and or"}, ptx=(2, 0), needs=_CTA, section=_SECTION,
    ),
    Form("barrier.sync", "barrier{.cta}.sync{.aligned}", "a:u32, b:u32?", ptx=(6, 0), needs=_CTA, section=_SECTION),
    Form("barrier.arrive", "barrier{.cta}.arrive{.aligned}", "a:u32, b:u32", ptx=(6, 0), needs=_CTA, section=_SECTION),
    Form(
        "barrier.red_popc", "barrier{.cta}.red.popc{.aligned}.u32", ">d:u32, a:u32, c:pred",
        ptx=(6, 0), needs=_CTA, section=_SECTION,
    ),
    Form(
        "barrier.red_popc_count", "barrier{.cta}.red.popc{.aligned}.u32", ">d:u32, a:u32, b:u32, c:pred",
        ptx=(6, 0), needs=_CTA, section=_SECTION,
    ),
    Form(
        "barrier.red", "barrier{.cta}.red.op{.aligned}.pred", ">p:pred, a:u32, c:pred",
        {"op": "and or"}, ptx=(6, 0), needs=_CTA, section=_SECTION,
    ),
    Form(
        "barrier.red_count", "barrier{.cta}.red.op{.aligned}.pred", ">p:pred, a:u32, b:u32, c:pred",
        {"op": "and or"}, ptx=(6, 0), needs=_CTA, section=_SECTION,
    ),
)  # fmt: skip
