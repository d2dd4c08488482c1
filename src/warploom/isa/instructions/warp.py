"""Rows of the collective operations of a warp: shuffles, votes, matches, reductions, election.

PTX ISA 9.7.9.6 (shfl.sync), 9.7.13.2 (bar.warp.sync), 9.7.13.9-12 and 14. The last operand is always the membermask.
"""

from __future__ import annotations

from typing import Any

from ..effects import Synchronises
from .schema import Form

_TOGETHER: dict[str, Any] = {
    "effects": (Synchronises("lanes", members="membermask", orders=False),), "converged": "members:membermask",
}  # fmt: skip
_BARRIER: dict[str, Any] = {
    "effects": (Synchronises("lanes", members="membermask"),),
    "converged": "members:membermask",
}
_VOTE = {"mode": "all any uni"}

FORMS: tuple[Form, ...] = (
    Form("shfl.sync", "shfl.sync.mode.b32", ">d:b32|p:pred?, a:b32, b:b32, c:b32, membermask:b32~",
         {"mode": "up down bfly idx"}, ptx=(6, 0), section="9.7.9.6", **_TOGETHER),
    Form("vote.predicate", "vote.sync.mode.pred", ">d:pred, a:pred, membermask:b32~", _VOTE, ptx=(6, 0),
         section="9.7.13.9", **_TOGETHER),
    Form("vote.ballot", "vote.sync.ballot.b32", ">d:b32, a:pred, membermask:b32~", ptx=(6, 0),
         section="9.7.13.9", **_TOGETHER),
    Form("match.any", "match.any.sync.type", ">d:b32~, a:type, membermask:b32~", {"type": "b32 b64"}, arch="sm_70",
         ptx=(6, 0), section="9.7.13.10", **_TOGETHER),
    Form("match.all", "match.all.sync.type", ">d:b32~|p:pred?, a:type, membermask:b32~", {"type": "b32 b64"},
         arch="sm_70", ptx=(6, 0), section="9.7.13.10", **_TOGETHER),
    Form("redux.integer", "redux.sync.op.type", ">d:type, a:type, membermask:b32~",
         {"op": "add min max", "type": "u32 s32"}, arch="sm_80", ptx=(7, 0), section="9.7.13.12", **_TOGETHER),
    Form("redux.bits", "redux.sync.op.b32", ">d:b32~, a:b32~, membermask:b32~", {"op": "and or xor"}, arch="sm_80",
         ptx=(7, 0), section="9.7.13.12", **_TOGETHER),
    Form("redux.float", "redux.sync.op{.abs}{.NaN}.f32", ">d:f32, a:f32, membermask:b32~", {"op": "min max"},
         arch="sm_100f", ptx=(8, 6), section="9.7.13.12", **_TOGETHER),
    Form("elect.sync", "elect.sync", ">d:b32~|p:pred, membermask:b32~", arch="sm_90", ptx=(8, 0),
         section="9.7.13.14", **_TOGETHER),
    Form("activemask", "activemask.b32", ">d:b32", ptx=(6, 2), section="9.7.13.11"),
    Form("bar.warp", "bar.warp.sync", "membermask:b32~", ptx=(6, 0), section="9.7.13.2", **_BARRIER),
)  # fmt: skip
"""All rows of this family."""
