"""Rows of the per-thread asynchronous copy of sm_80, `cp.async`, and its two kinds of completion.

PTX ISA 9.7.9.25.3 (copies and groups), 9.7.13.15.15 (arrival on an mbarrier).
"""

from __future__ import annotations

from typing import Any

from ..effects import READS, RUN, WRITES, Access, Arrives, Choice, Commits, Expects, Group, Operand, Starts, Waits
from .schema import Form

_SLOTS = {"cache": "ca cg", "to": "shared shared::cta", "prefetch": "L2::64B L2::128B L2::256B"}
_NEEDS = {
    "L2::64B": ("sm_80", (7, 4)),
    "L2::128B": ("sm_80", (7, 4)),
    "L2::256B": ("sm_80", (7, 4)),
}
_COPY = "[dst@shared], [src@global], size:imm"
_SECTION = "9.7.9.25.3.1"
_COPIES: dict[str, Any] = {
    "effects": (
        Starts("cp_async", (Group("cp_async"),), parts="warp"),
        Access(READS, "src", "global", at=RUN),
        Access(WRITES, "dst", "shared", at=RUN),
    ),
    "noun": "cp.async",
    "narrow": True,
}
"""The generic proxy makes the copy, for each thread its own bytes."""
_DONE = "group:cp_async"

FORMS: tuple[Form, ...] = (
    Form(
        "cp_async.copy", "cp.async.cache.to.global{.prefetch}", f"{_COPY}, src_size:u32?", _SLOTS,
        arch="sm_80", ptx=(7, 0), needs=_NEEDS, section=_SECTION,
        example="cp.async.cg.shared.global [%r0], [%rd0], 16, %r1;", **_COPIES,
    ),
    Form(
        "cp_async.copy_ignore", "cp.async.cache.to.global{.prefetch}", f"{_COPY}, ignore:pred", _SLOTS,
        arch="sm_80", ptx=(7, 5), needs=_NEEDS, section=_SECTION,
        example="cp.async.cg.shared.global [%r0], [%rd0], 16, %p0;", **_COPIES,
    ),
    Form(
        "cp_async.copy_hint", "cp.async.cache.to.global.L2::cache_hint{.prefetch}", f"{_COPY}, policy:b64~", _SLOTS,
        arch="sm_80", ptx=(7, 4), needs=_NEEDS, section=_SECTION,
        example="cp.async.cg.shared.global.L2::cache_hint [%r0], [%rd0], 16, %rd1;", **_COPIES,
    ),
    Form(
        "cp_async.copy_size_hint", "cp.async.cache.to.global.L2::cache_hint{.prefetch}",
        f"{_COPY}, src_size:u32, policy:b64~", _SLOTS, arch="sm_80", ptx=(7, 4), needs=_NEEDS, section=_SECTION,
        example="cp.async.cg.shared.global.L2::cache_hint [%r0], [%rd0], 16, %r1, %rd1;", **_COPIES,
    ),
    Form(
        "cp_async.copy_ignore_hint", "cp.async.cache.to.global.L2::cache_hint{.prefetch}",
        f"{_COPY}, ignore:pred, policy:b64~", _SLOTS, arch="sm_80", ptx=(7, 5), needs=_NEEDS, section=_SECTION,
        example="cp.async.cg.shared.global.L2::cache_hint [%r0], [%rd0], 16, %p0, %rd1;", **_COPIES,
    ),
    Form(
        "cp_async.commit_group", "cp.async.commit_group", "", arch="sm_80", ptx=(7, 0), section="9.7.9.25.3.2",
        effects=(Commits("cp_async"),),
    ),
    Form(
        "cp_async.wait_group", "cp.async.wait_group", "n:imm", arch="sm_80", ptx=(7, 0), section="9.7.9.25.3.3",
        effects=(Waits(_DONE, newest=Operand("n")),),
    ),
    Form(
        "cp_async.wait_all", "cp.async.wait_all", "", arch="sm_80", ptx=(7, 0), section="9.7.9.25.3.3",
        effects=(Commits("cp_async"), Waits(_DONE)),
    ),
    Form(
        "cp_async.mbarrier_arrive", "cp.async.mbarrier.arrive{.noinc}{.space}.b64", "[a]",
        {"space": "shared shared::cta"}, arch="sm_80", ptx=(7, 0), needs={"shared::cta": ("sm_80", (7, 8))},
        section="9.7.13.15.15", noun="arrival of cp.async", narrow=True,
        effects=(
            Commits("cp_async", covers="all", signals=Arrives("a")),
            Expects("a", pending=1, when=Choice("noinc", True, {"noinc": False})),
        ),
    ),
)  # fmt: skip
