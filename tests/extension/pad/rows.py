"""The rows of a made-up family: a scratchpad of each CTA with its own memory space, changed asynchronously.

pad.alloc.b32 d, n;         n cells, which hold nothing; d is the number of the first
pad.put.async.b32 c, a;     cell c becomes a, later
pad.commit_group;           what the thread has put becomes a group
pad.wait_group n;           at most n of its groups are in flight
pad.get.b32 d, c;           d becomes cell c
"""

from __future__ import annotations

from typing import Any

from warploom.isa.effects import READS, RUN, WRITES, Access, Commits, Creates, Group, Operand, Starts, Waits
from warploom.isa.instructions.schema import Form

FAMILY = SPACE = "pad"
_ROW: dict[str, Any] = {"arch": "sm_90", "ptx": (8, 0), "section": "0.0"}

FORMS = (
    Form("pad.alloc", "pad.alloc.b32", ">d:b32, n:imm", **_ROW, effects=(Creates("cells", "d", Operand("n")),)),
    Form(
        "pad.put", "pad.put.async.b32", "c:b32, a:b32", **_ROW, noun="pad store",
        effects=(Starts(FAMILY, (Group(FAMILY),)), Access(WRITES, "c", SPACE, FAMILY, at=RUN)),
    ),
    Form("pad.commit_group", "pad.commit_group", "", **_ROW, effects=(Commits(FAMILY),)),
    Form("pad.wait_group", "pad.wait_group", "n:imm", **_ROW, effects=(Waits("group:pad", newest=Operand("n")),)),
    Form("pad.get", "pad.get.b32", ">d:b32, c:b32", **_ROW, effects=(Access(READS, "c", SPACE),)),
)  # fmt: skip
