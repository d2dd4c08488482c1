"""Rows of control flow: branches, calls, ends.

PTX ISA 9.7.12. The emulator's core executes them itself (they have no handler in `emulator.ops`). The operands of a
call are groups in parentheses, whose meaning the function's declaration gives, so its rows only name them.
"""

from __future__ import annotations

from ..effects import Leaves
from .schema import Form

FORMS: tuple[Form, ...] = (
    Form("bra", "bra{.uni}", "target:label", section="9.7.12.3", example="bra L0;"),
    Form("brx.idx", "brx.idx{.uni}", "index:u32, targets:label", ptx=(6, 0), section="9.7.12.4",
         example="brx.idx %u32_0, targets;"),
    Form("call", "call{.uni}", "first:any, second:any?, third:any?, fourth:any?", section="9.7.12.5",
         example="call callee;"),
    Form("ret", "ret{.uni}", "", section="9.7.12.6", example="ret;", effects=(Leaves(),)),
    Form("exit", "exit", "", section="9.7.12.7", example="exit;", effects=(Leaves(),)),
)  # fmt: skip
"""All rows of this family."""
