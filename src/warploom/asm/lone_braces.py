"""A single operand in braces where no vector is meant: ptxas allows some (measured with ptxas 13.0)."""

from __future__ import annotations

from ..isa.instructions.schema import Match, OperandSpec
from .nodes import Instruction, Vector

DATA = {"ld", "ldu", "st", "suld", "sust"}
"""Instructions whose one data register may be in braces, as Triton and nvcc's surf2Dwrite write it."""
MULTIMEM_DATA = {"ld_reduce", "st"}
"""Those of `multimem` whose one data register may be in braces if its type also comes in vectors: a float."""
LEVEL = "lod"
"""The mipmap level of a texture, which may be in braces."""
OF_PRODUCTS = {"meta", "sa", "sb"}
"""Operands of MMAs that may be in braces: the metadata of a sparse A, and factors, as CUTLASS writes them."""


def may_stand_in_braces(match: Match, spec: OperandSpec, instruction: Instruction) -> bool:
    """True if one register may be in braces although the row has an operand without braces."""
    if match.length_of(spec) is not None:
        return False
    base, *words = instruction.opcode.split(".")
    if base == "mov":  # a vector of one is packed or unpacked, so the other side has no braces
        untyped = str(match.modifiers.get("type", "")).startswith("b")
        return untyped and not all(isinstance(one, Vector) for one in instruction.operands)
    if spec.length == "vec":  # data, not an address or a cache policy
        floats = "f" in str(match.modifiers.get("type", ""))
        return base in DATA or (base == "multimem" and words[0] in MULTIMEM_DATA and floats)
    return spec.name == LEVEL or spec.name in OF_PRODUCTS
