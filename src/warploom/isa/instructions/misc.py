"""Rows of the rest: traps, sleep, performance events, the stack.

PTX ISA 9.7.19.1-4, 9.7.17 and 9.7.10.7 (istypep).
"""

from __future__ import annotations

from .schema import Form

FORMS: tuple[Form, ...] = (
    Form("trap", "trap", "", section="9.7.19.4"),
    Form("brkpt", "brkpt", "", section="9.7.19.1"),
    Form("nanosleep", "nanosleep.u32", "t:u32", arch="sm_70", ptx=(6, 3), section="9.7.19.2"),
    Form(
        "pmevent.index", "pmevent", "index:imm", ptx=(1, 4), section="9.7.19.3", example="pmevent 3;",
        ranges={"index": (range(16), "0 to 15")},
    ),
    Form(
        "pmevent.mask", "pmevent.mask", "mask:imm", ptx=(3, 0), section="9.7.19.3", example="pmevent.mask 3;",
        ranges={"mask": (range(1 << 16), "0 to 65535")},
    ),
    Form("stack.save", "stacksave.type", ">d:type", {"type": "u64 u32"}, arch="sm_52", ptx=(7, 3), section="9.7.17.1"),
    Form("stack.restore", "stackrestore.type", "a:type!", {"type": "u64 u32"}, arch="sm_52", ptx=(7, 3),
         section="9.7.17.2"),
    Form("stack.alloca", "alloca.type", ">d:type, size:type, align:imm?", {"type": "u64 u32"}, arch="sm_52", ptx=(7, 3),
         ranges={"align": ([1 << bit for bit in range(24)], "a power of two, at most 2^23")},
         section="9.7.17.3", example="alloca.u64 %rd0, %rd1, 8;"),
    Form("texture.istypep", "istypep.kind", ">p:pred, a:u64", {"kind": "texref samplerref surfref"}, ptx=(4, 0),
         section="9.7.10.7"),
)  # fmt: skip
"""All rows of this family."""
