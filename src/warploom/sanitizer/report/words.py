"""Accesses and the threads that make them, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.finding import Side
from .findings import at

if TYPE_CHECKING:
    from ...emulator.machine.machine import Cta
    from ..happens_before.access import Access


def actor(cta: Cta, warp: int) -> str:
    """The acting warp, for example "warp 2 of CTA (0, 0, 0)"."""
    return cta.describe_warp(warp)


def who(access: Access) -> str:
    return actor(access.cta, access.warp)


def deed(access: Access) -> str:
    """An access as a clause: who did what, and where."""
    verb = "writes" if access.writes else "reads"
    if access.flight is not None:
        noun = access.code.bound.match.form.noun if access.code.bound is not None else ""
        return f"the {noun} {at(access.code)} issued by {who(access)} {verb}"
    return f"{who(access)} {verb} with {at(access.code)}"


def side(access: Access, address: str, before: bool = False) -> Side:
    """An access as one side of a finding; `before`: it is the earlier of the two."""
    verb = ("wrote" if access.writes else "read") if before else ("writes" if access.writes else "reads")
    maker = who(access)
    if access.flight is not None:
        thread = f", thread {access.warp * 32 + access.lane % 32}" if access.lane is not None else ""
        maker = f"issued by {maker}{thread}"
    what = f"{verb} the same bytes before" if before else f"{verb} {address}"
    return Side(maker, what, access.code.text, access.code.instruction.location)
