"""Where `_` may stand for a result that nobody wants. PTX ISA 6.4.1; the verdicts are those of ptxas 13.0."""

from __future__ import annotations

from .nodes import Operand, Pair, Sink, Vector

NEVER = {"tcgen05"}
"""Instructions whose results must not be `_`, in braces or not."""
_ALONE = ("atom.", "mbarrier.arrive")
"""Instructions whose only result may be `_`; others allow it only in braces and pairs."""
_FIRST, _SECOND = {"shfl"}, {"elect", "lop3"}
"""Instructions that need the first or the second result of their pair."""


def may_stand_alone(opcode: str) -> bool:
    """True if the only result of an instruction may be `_`."""
    return opcode.startswith(_ALONE)


def discards_too_much(base: str, operand: Operand) -> bool:
    """True if a pair or a vector of results discards one that is needed, or all of them."""
    if isinstance(operand, Pair):
        first, second = (isinstance(one, Sink) for one in (operand.first, operand.second))
        lacking = second and (base in _SECOND or isinstance(operand.first, Vector)) or first and base in _FIRST
        return lacking or first and second or discards_too_much(base, operand.first)
    return isinstance(operand, Vector) and bool(operand.elements) and all(isinstance(e, Sink) for e in operand.elements)
