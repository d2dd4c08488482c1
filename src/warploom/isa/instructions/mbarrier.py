"""Rows of the mbarrier object: init, transactions, arrivals, waits. PTX ISA 9.7.13.15.

A remote barrier (`.shared::cluster`) can be arrived on but returns no state, so those rows take the sink `_`.
Rows without a space take a generic address.
"""

from __future__ import annotations

from typing import Any

from ..effects import Arrives, Choice, Creates, Destroys, Expects, Operand, Order, Waits
from .schema import Form, Modifiers

_SCOPED = {"sem": "release relaxed", "scope": "cta cluster"}
_WAIT_SCOPED = {"sem": "acquire relaxed", "scope": "cta cluster"}
_OWN = {"space": "shared shared::cta"}
_REMOTE = {"space": "shared::cluster"}
_ANY = {"space": "shared shared::cta shared::cluster"}
_LATER = {
    "shared::cta": ("sm_80", (7, 8)),
    "release": ("sm_80", (8, 0)),
    "acquire": ("sm_80", (8, 0)),
    "relaxed": ("sm_90", (8, 6)),
    "cluster": ("sm_90", (8, 0)),
}


_RELEASE = Order(Choice("sem", "release"), Choice("scope", "cta"))
_ACQUIRE = Order(Choice("sem", "acquire"), Choice("scope", "cta"))
_OBJECT = "mbarrier"
_HERE: dict[str, Any] = {"reaches": ("shared",)}
_COUNTS = {"count": (range(1, 1 << 64), "1 or more")}


def _together(modifiers: Modifiers) -> str | None:
    if (modifiers.get("sem") is None) != (modifiers.get("scope") is None):
        return "semantics (.release, .relaxed, .acquire) and scope (.cta, .cluster) are given together or not at all"
    return None


def _arrivals(what: str, section: str) -> tuple[Form, ...]:
    """The six rows that `arrive` and `arrive_drop` share."""
    key = f"mbarrier.{what}"
    base = f"mbarrier.{what}"
    common: dict[str, Any] = {
        "needs": _LATER, "check": _together, "section": section, **_HERE,
    }  # fmt: skip

    def arrives(remote: bool = False, **fields: Any) -> dict[str, Any]:
        where = {"rank": "any", "engine": "remote"} if remote else {}
        arrival = Arrives("a", order=_RELEASE, drops=what == "arrive_drop", **where, **fields)
        return {**common, "effects": (arrival,), "noun": "remote arrival" if remote else "arrival"}

    return (
        Form(
            key, f"{base}{{.sem}}{{.scope}}{{.space}}.b64", ">state:b64~, [a]",
            {**_SCOPED, **_OWN}, arch="sm_80", ptx=(7, 0), **arrives(),
        ),
        Form(
            f"{key}_count", f"{base}{{.sem}}{{.scope}}{{.space}}.b64", ">state:b64~, [a], count:u32",
            {**_SCOPED, **_OWN}, arch="sm_90", ptx=(7, 8), **arrives(count=Operand("count")), ranges=_COUNTS,
        ),
        Form(
            f"{key}_remote", f"{base}{{.sem}}{{.scope}}.space.b64", "sink:sink, [a], count:u32?",
            {**_SCOPED, **_REMOTE}, arch="sm_90", ptx=(8, 0),
            example=f"{base}.release.cluster.shared::cluster.b64 _, [%r0], 1;",
            **arrives(remote=True, count=Operand("count", 1)), ranges=_COUNTS,
        ),
        Form(
            f"{key}_expect_tx", f"{base}.expect_tx{{.sem}}{{.scope}}{{.space}}.b64", ">state:b64~, [a], tx:u32",
            {**_SCOPED, **_OWN}, arch="sm_90", ptx=(8, 0), **arrives(expects=Operand("tx")),
        ),
        Form(
            f"{key}_expect_tx_remote", f"{base}.expect_tx{{.sem}}{{.scope}}.space.b64", "sink:sink, [a], tx:u32",
            {**_SCOPED, **_REMOTE}, arch="sm_90", ptx=(8, 0),
            example=f"{base}.expect_tx.release.cluster.shared::cluster.b64 _, [%r0], 16;",
            **arrives(remote=True, expects=Operand("tx")),
        ),
        Form(
            f"{key}_no_complete", f"{base}.noComplete{{.sem}}{{.scope}}{{.space}}.b64", ">state:b64~, [a], count:u32",
            {"sem": "release", "scope": "cta", **_OWN}, arch="sm_80", ptx=(7, 0), ranges=_COUNTS,
            **arrives(count=Operand("count")),
        ),
    )  # fmt: skip


def _waits(what: str, arch: str, ptx: tuple[int, int], hint: str) -> tuple[Form, ...]:
    """The rows of `test_wait` and `try_wait`: by state and by parity."""
    common: dict[str, Any] = {
        "arch": arch, "needs": _LATER, "check": _together, "section": "9.7.13.15.16", **_HERE,
        "effects": (Waits("phase", "a", order=_ACQUIRE, may_fail=True),),
    }  # fmt: skip
    return (
        Form(
            f"mbarrier.{what}", f"mbarrier.{what}{{.sem}}{{.scope}}{{.space}}.b64",
            f">done:pred, [a], state:b64~{hint}", {**_WAIT_SCOPED, **_OWN}, ptx=ptx, **common,
        ),
        Form(
            f"mbarrier.{what}_parity", f"mbarrier.{what}.parity{{.sem}}{{.scope}}{{.space}}.b64",
            f">done:pred, [a], parity:u32{hint}", {**_WAIT_SCOPED, **_OWN}, ptx=max(ptx, (7, 1)),
            ranges={"parity": (range(2), "0 or 1")}, **common,
        ),
    )  # fmt: skip


FORMS: tuple[Form, ...] = (
    Form(
        "mbarrier.init", "mbarrier.init{.space}.b64", "[a], count:u32", _OWN,
        arch="sm_80", ptx=(7, 0), needs=_LATER, section="9.7.13.15.9",
        effects=(Creates(_OBJECT, "a", Operand("count")),), **_HERE,
    ),
    Form(
        "mbarrier.inval", "mbarrier.inval{.space}.b64", "[a]", _OWN,
        arch="sm_80", ptx=(7, 0), needs=_LATER, section="9.7.13.15.10", effects=(Destroys(_OBJECT, "a"),), **_HERE,
    ),
    Form(
        "mbarrier.expect_tx", "mbarrier.expect_tx{.sem}{.scope}{.space}.b64", "[a], tx:u32",
        {"sem": "relaxed", "scope": "cta cluster", **_ANY},
        arch="sm_90", ptx=(8, 0), check=_together, section="9.7.13.15.11",
        effects=(Expects("a", Operand("tx"), rank="any"),), **_HERE,
    ),
    Form(
        "mbarrier.complete_tx", "mbarrier.complete_tx{.sem}{.scope}{.space}.b64", "[a], tx:u32",
        {"sem": "relaxed", "scope": "cta cluster", **_ANY},
        arch="sm_90", ptx=(8, 0), check=_together, section="9.7.13.15.12",
        effects=(
            Expects(
                "a", Operand("tx"), rank="any", completes=True, order=Order("relaxed", Choice("scope", "cta")),
            ),
        ), **_HERE,
    ),
    *_arrivals("arrive", "9.7.13.15.13"),
    *_arrivals("arrive_drop", "9.7.13.15.14"),
    *_waits("test_wait", "sm_80", (7, 0), ""),
    *_waits("try_wait", "sm_90", (7, 8), ", hint:u32?"),
    Form(
        "mbarrier.pending_count", "mbarrier.pending_count.b64", ">count:u32, state:b64~",
        arch="sm_80", ptx=(7, 0), section="9.7.13.15.17",
    ),
)  # fmt: skip
