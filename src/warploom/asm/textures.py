"""Checks of textures, samplers and surfaces: their variables, and the operands that name them.

PTX ISA 5.3 and 9.7.10.1. The verdicts are those of ptxas 13.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..isa.instructions.schema import Match, OperandSpec
from ..isa.instructions.textures import SAMPLER_QUERIES
from .nodes import Address, Register, TensorAddress, Variable
from .scopes import Scope

SPACES = ("texture", "surface")
"""The spaces of operands that are a texture or surface."""
OPAQUE = ("texref", "samplerref", "surfref")
_INTEGERS = tuple(
    "width height depth normalized_coords channel_data_type channel_order force_unnormalized_coords array_size "
    "num_mipmap_levels num_samples memory_layout".split()
)
_WORDS = {"filter_mode": ("nearest", "linear")} | dict.fromkeys(
    ("addr_mode_0", "addr_mode_1", "addr_mode_2"), ("wrap", "mirror", "clamp_ogl", "clamp_to_edge", "clamp_to_border")
)

Complaint = tuple[str, str | None]


def wrong_operand(
    operand: Address | TensorAddress, spec: OperandSpec, row: Match, scope: Scope, independent: bool
) -> Iterator[Complaint]:
    """Complaints about a texture or surface and its sampler.

    Args:
        independent: whether samplers are separate (`.target texmode_independent`).
    """
    place = operand.base if isinstance(operand, TensorAddress) else operand
    yield from _wrong_reference(place, _named(spec, row, independent), scope)
    if not isinstance(operand, TensorAddress):
        return
    if operand.sampler is not None:
        yield from _wrong_reference(Address(operand.sampler), "samplerref", scope)
        if spec.space == "surface":
            yield f"`{row.form.base}` has no sampler", "a surface and coordinates"
    elif independent and spec.space == "texture":
        yield f"`{row.form.base}` lacks its sampler", "[texture, sampler, {coordinates}] with texmode_independent"


def _named(spec: OperandSpec, row: Match, independent: bool) -> str:
    query = row.modifiers.get("query") or ""
    of_sampler = query in SAMPLER_QUERIES.split() and (independent or query == "force_unnormalized_coords")
    return "surfref" if spec.space == "surface" else "samplerref" if of_sampler else "texref"


def _wrong_reference(place: Address, wanted: str, scope: Scope) -> Iterator[Complaint]:
    expected = f"a .{wanted} variable or a 64-bit register with its address"
    if not isinstance(place.base, Register) or place.offset:
        yield f"an address or a sum stands where a .{wanted} is needed", expected
        return
    meaning = scope.find(place.base.name)
    wide = meaning is not None and meaning.kind == "register" and meaning.type in ("b64", "u64", "s64")
    if meaning is not None and not wide and (meaning.kind != "variable" or meaning.type != wanted):
        yield f"`{place.base.name}` is a .{meaning.type or meaning.kind}, where a .{wanted} is needed", expected


def wrong_variable(variable: Variable, place: str, independent: bool) -> Iterator[Complaint]:
    """Complaints about a variable of an opaque type: its mode, place, and the fields of its initial value."""
    name = f"the .{variable.type} {variable.name}"
    if variable.type == "samplerref" and not independent:
        yield f"{name} is a separate sampler", ".target …, texmode_independent"
    if variable.space != "global" and (place != "entry" or variable.space != "param"):
        yield f"{name} is in .{variable.space} memory", ".global"
    if any(re.fullmatch(r"\.v\d", word) for word in variable.attributes):
        yield f"{name} is a vector", "a scalar or an array"
    text = variable.initializer.strip()
    if text and not text.startswith("{"):
        yield f"the initial value of {name} has no braces", "{ field = value, … }"
    for part in re.findall(r"[^{},]+", text) if text.startswith("{") else ():
        field, _, value = (word.strip() for word in part.partition("="))
        if part.strip() and field not in _INTEGERS and value not in _WORDS.get(field, ()):
            expected = " or ".join(_WORDS.get(field, (*_INTEGERS, *_WORDS)))
            yield f"`{part.strip()}` in the initial value of {name} is unknown", expected
