"""`ptx.inst`: one call is one instruction, spelled as in the PTX ISA.

    ptx.inst.mad.lo.u32(d, a, b, c)             mad.lo.u32 d, a, b, c;
    ptx.inst.and_.b32(d, a, 31)                 a trailing underscore if the word is a Python keyword
    ptx.inst.fence.proxy.async_.shared__cta()   two underscores for `::`
    ptx.inst.ld.global_.v2.f32([x, y], ptx.addr(p))
    ptx.inst.cp.async_.bulk.tensor._2d...       a leading underscore before a digit
    ptx.inst("add.rn.f32", d, a, b)             or the whole opcode as a string
    ptx.inst.add.u32(d, a, b, pred=p)           @p add.u32 ...

Every call is checked against the instruction table, with the user's line in the error.
"""

from __future__ import annotations

from typing import Any

from ..asm import nodes
from .emit import issue


def opcode_word(name: str) -> str:
    """A Python attribute as an opcode word."""
    if name.startswith("_") and name[1:2].isdigit():
        name = name[1:]
    if name.endswith("_"):
        name = name[:-1]
    return name.replace("__", "::")


class Opcode:
    """The beginning of a dotted opcode; an attribute extends it, a call emits the instruction.

    Extended opcodes are cached as attributes, so that Python finds them directly the next time.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Opcode:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        opcode = Opcode(f"{self._text}.{opcode_word(name)}")
        self.__dict__[name] = opcode
        return opcode

    def __call__(self, *operands: Any, pred: Any = None) -> nodes.Instruction:
        return issue(self._text, *operands, pred=pred)

    def __repr__(self) -> str:
        return f"ptx.inst.{self._text}"


class Instructions:
    """`ptx.inst` itself."""

    def __getattr__(self, name: str) -> Opcode:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        opcode = Opcode(opcode_word(name))
        self.__dict__[name] = opcode
        return opcode

    def __call__(self, opcode: str, *operands: Any, pred: Any = None) -> nodes.Instruction:
        return issue(opcode, *operands, pred=pred)
