"""A PTX text ready for the emulator, and the emulator's view of a launch of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentTypeError
from .bind import Bound

if TYPE_CHECKING:
    from ..asm.nodes import Module
    from ..emulator.program.code import Codes


@lru_cache(maxsize=32)
def parsed(text: str, name: str, entry: str) -> Module:
    """The tree of a text, verified and cached, because the same text is often run again.

    Raises PtxSyntaxError, and VerificationError for anything that the text's target or ptxas would reject in the
    kernel `entry` or in what all kernels share. The text's other kernels may use unsupported features.
    """
    from .. import asm
    from ..asm.lowering import lowered

    if not isinstance(text, str):
        raise ArgumentTypeError("a PTX text is a str", expected="str", got=type(text).__name__)
    module = asm.parse(text, name=name)
    others = {id(function) for function in module.entries if function.name != entry}
    asm.check(replace(module, items=tuple(item for item in module.items if id(item) not in others)))
    return lowered(module)


@lru_cache(maxsize=8)
def loaded(text: str, name: str, entry: str) -> Codes:
    """The kernels of a text, ready to run; cached for the next run of the same text."""
    from ..emulator.program.code import Codes

    return Codes(parsed(text, name, entry))


def launch_of(bound: Bound) -> dict[str, Any]:
    """The emulator's view of a launch: its shape, whether it overlaps the preceding grid, the author's names."""
    from ..emulator.machine.symbols import Names

    program = bound.program
    buffers = {parameter.name: parameter.source for parameter in program.parameters}
    return {
        "grid": bound.grid, "block": bound.block, "cluster": bound.cluster, "dynamic_smem": bound.dynamic_smem,
        "dependent": program.pdl, "written_in_front": program.written_in_front,
        "names": Names(program.shared_parts, program.roles, buffers, program.guessed),
    }  # fmt: skip
