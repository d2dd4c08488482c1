"""PTX for the tests of the asm layer: the foreign texts, and a kernel around a few instructions."""

from __future__ import annotations

from pathlib import Path

FOREIGN = sorted((Path(__file__).parents[1] / "foreign").glob("*/*.ptx"))

DECLARATIONS = """\
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<200>;
    .reg .b64 %d<8>;
    .reg .f32 %f<8>;
    .reg .s32 %s<4>;
    .reg .f64 %q<4>;
"""


def kernel(body: str, target: str = "sm_90a", version: str = "8.7", declarations: str = DECLARATIONS) -> str:
    """A module whose one kernel has this body, its first line on line 14 of the text."""
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        ".shared .align 16 .b8 smem[1024];\n.visible .entry k(.param .u64 pointer)\n{\n"
        f"{declarations}{body}\n    ret;\n}}\n"
    )
