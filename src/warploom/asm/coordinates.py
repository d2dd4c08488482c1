"""The number and types of the coordinates of a tensor map, texture or surface. PTX ISA 9.7.9.27, 9.7.10, 9.7.11."""

from __future__ import annotations

from collections.abc import Iterator

from ..isa.instructions.schema import Match, OperandSpec
from ..plural import counted
from .nodes import Register, TensorAddress

_PADDED = (2, 4)
"""Elements that braces may have if fewer are needed."""


def padded(count: int, needed: int) -> bool:
    """True if braces with so many elements hold the needed ones and unused ones."""
    return count in _PADDED and count > needed > 0


def wrong_number(row: Match, spec: OperandSpec, operand: TensorAddress) -> tuple[str, str] | None:
    """What is wrong with the number of coordinates, and what was expected, or None."""
    count = len(operand.coordinates)
    if spec.length is not None:
        wanted = row.length_of(spec) or 0
        if count == wanted or padded(count, wanted):
            return None
        return f"has {counted(count, 'coordinate')}, its geometry needs {wanted}", f"{wanted} in braces"
    wanted = _of_map(row)
    if not wanted or count == wanted:
        return None
    return (
        f"has {counted(count, 'coordinate')}, the map has {wanted} dimensions",
        f"{wanted} coordinates, innermost first",
    )


def _of_map(row: Match) -> int:
    """Coordinates of a tensor map for an opcode, two for `.2d`; 0 if it specifies none."""
    words = [word for word in (*row.form.fixed_words, *row.modifiers.values()) if word]
    for word in words:
        if "gather4" in word or "scatter4" in word:
            return 5
    for word in words:
        if word in ("1d", "2d", "3d", "4d", "5d"):
            return int(word[0])
    return 0


def types(row: Match, spec: OperandSpec, operand: TensorAddress) -> Iterator[str]:
    """The type of each coordinate in turn. ptxas 13.0 takes registers of any type of 32 bits for .f32, and an index of
    an array of surfaces in one, too."""
    chosen = "s32" if spec.length is None else row.type_of(spec)
    arrays = spec.length is not None and (row.modifiers.get("geom") or "").startswith("a")
    for at, one in enumerate(operand.coordinates):
        if at == 0 and arrays:
            yield "b32" if spec.space == "surface" else "s32"
        else:
            yield "b32" if chosen == "f32" and isinstance(one, Register) else chosen
