"""One operand in braces, where no vector is meant: ptxas takes them around some (measured with ptxas 13.0)."""

from __future__ import annotations

from ..isa.instructions.schema import Match, OperandSpec
from .nodes import Instruction, Vector

DATA = {"ld", "ldu", "st"}
"""The instructions whose one data register may stand in braces, as Triton writes it."""
OF_PRODUCTS = {"meta", "sa", "sb"}
"""Operands of products that may: the metadata of a sparse A, and factors, as CUTLASS writes them."""


def may_stand_in_braces(match: Match, spec: OperandSpec, instruction: Instruction) -> bool:
    """Whether braces may stand around one register where a row has an operand without them."""
    if match.length_of(spec) is not None:
        return False
    base = instruction.opcode.split(".")[0]
    if base == "mov":  # a vector of one is put together or taken apart, so the other side has no braces
        untyped = str(match.modifiers.get("type", "")).startswith("b")
        return untyped and not all(isinstance(one, Vector) for one in instruction.operands)
    return base in DATA or spec.name in OF_PRODUCTS
