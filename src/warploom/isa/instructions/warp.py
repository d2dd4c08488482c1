"""Rows of what the lanes of a warp do together: shuffles, votes, matches, reductions, election.

PTX ISA 9.7.9.6 (shfl.sync), 9.7.13.2 (bar.warp.sync), 9.7.13.9-12 and 14. The last operand is always the membermask.
"""

from __future__ import annotations

from .schema import Form

_VOTE = {"mode": "all any uni"}

FORMS: tuple[Form, ...] = (
    Form("shfl.sync", "shfl.sync.mode.b32", ">d:b32|p:pred?, a:b32, b:b32, c:b32, membermask:b32",
         {"mode": "up down bfly idx"}, ptx=(6, 0), section="9.7.9.6"),
    Form("vote.predicate", "vote.sync.mode.pred", ">d:pred, a:pred, membermask:b32", _VOTE, ptx=(6, 0),
         section="9.7.13.9"),
    Form("vote.ballot", "vote.sync.ballot.b32", ">d:b32, a:pred, membermask:b32", ptx=(6, 0), section="9.7.13.9"),
    Form("match.any", "match.any.sync.type", ">d:b32, a:type, membermask:b32", {"type": "b32 b64"}, arch="sm_70",
         ptx=(6, 0), section="9.7.13.10"),
    Form("match.all", "match.all.sync.type", ">d:b32|p:pred?, a:type, membermask:b32", {"type": "b32 b64"},
         arch="sm_70", ptx=(6, 0), section="9.7.13.10"),
    Form("redux.integer", "redux.sync.op.type", ">d:type, a:type, membermask:b32",
         {"op": "add min max", "type": "u32 s32"}, arch="sm_80", ptx=(7, 0), section="9.7.13.12"),
    Form("redux.bits", "redux.sync.op.b32", ">d:b32, a:b32, membermask:b32", {"op": "and or xor"}, arch="sm_80",
         ptx=(7, 0), section="9.7.13.12"),
    Form("redux.float", "redux.sync.op{.abs}{.NaN}.f32", ">d:f32, a:f32, membermask:b32", {"op": "min max"},
         arch="sm_100a", ptx=(8, 6), section="9.7.13.12"),
    Form("elect.sync", "elect.sync", ">d:b32|p:pred, membermask:b32", arch="sm_90", ptx=(8, 0), section="9.7.13.14"),
    Form("activemask", "activemask.b32", ">d:b32", ptx=(6, 2), section="9.7.13.11"),
    Form("bar.warp", "bar.warp.sync", "membermask:b32", ptx=(6, 0), section="9.7.13.2"),
)  # fmt: skip
"""All rows of this family."""
