"""Checks of declared variables and parameters: type, vector, alignment, size, initial value, place.

PTX ISA 5.1 to 5.4. The verdicts are those of ptxas 13.0, which tests/asm/test_declarations.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..isa import dtypes
from ..isa.special_registers import SPECIAL_NAMES
from . import textures
from .initial_values import Complaint, lanes, wrong_value
from .nodes import Variable
from .scopes import Scope

INSTRUCTION_TYPES = frozenset({"bf16", "tf32", "bf16x2", "e4m3", "e5m2", "e4m3x2", "e5m2x2"})
"""Types of instructions that no register and no variable may have."""
MOST_VECTOR_BITS = 128
_POINTER = re.compile(r"( \.(global|shared|const|local))?( \.align \d+)?")
MOST_ALIGNED = 1 << 31


def wrong_type(name: str, type_name: str, vector: int = 1) -> Iterator[Complaint]:
    """Complaints about the type of a register or variable."""
    if type_name in INSTRUCTION_TYPES:
        bits = dtypes.ALL[type_name].register_bits
        yield f"{name} is declared .{type_name}, a type of instructions only", f".b{bits}"
    elif type_name == "pred" and vector > 1:
        yield f"{name} is a vector of predicates", "a single .pred register"
    elif type_name in dtypes.ALL and vector > 1 and dtypes.ALL[type_name].bits * vector > MOST_VECTOR_BITS:
        bits = dtypes.ALL[type_name].bits * vector
        yield f"{name} is a vector of {bits} bits", f"at most {MOST_VECTOR_BITS} bits"


def wrong_variable(variable: Variable, place: str, module: Scope, independent: bool = False) -> Iterator[Complaint]:
    """Complaints about a variable.

    Args:
        place: where it is declared: "module", "entry" or "func" (a parameter or result of one), or "body".
        module: the names of the module, which an initial value may contain.
        independent: whether samplers are separate from textures.
    """
    name, vector = f"the variable {variable.name}", lanes(variable)
    yield from wrong_type(name, variable.type, vector)
    if place == "module" and variable.name in SPECIAL_NAMES:
        yield f"{name} has the name of a special register", "another name"
    if variable.type == "pred" and variable.space != "reg":
        yield f"{name} is a predicate in .{variable.space} memory", "a .pred register"
    if vector > 1 and (variable.space == "param" or vector > 4):
        yield f"{name} is a .v{vector} in .{variable.space}", "an array, or .v2 or .v4 in another state space"
    alignments = [variable.align, *(int(word.split()[1], 0) for word in variable.attributes if word[:6] == ".align")]
    for align in alignments:
        if align is not None and (align <= 0 or align & (align - 1)):
            yield f"{name} is aligned to {align} bytes", "a power of two"
        elif align is not None and align > MOST_ALIGNED:
            yield f"{name} is aligned to {align} bytes", f"at most {MOST_ALIGNED}"
    first, inner = variable.dims[:1], variable.dims[1:]
    behind = " ".join(variable.attributes).partition(".ptr")
    if (behind[1] and not _POINTER.fullmatch(behind[2])) or (".align" in behind[0] and (behind[1] or place != "entry")):
        yield f"{name} has its directives in the wrong order", ".ptr, a state space, .align and a number"
    if variable.space == "param" and variable.type == "f16x2":
        yield f"{name} is a .f16x2 in .param", ".b32"
    if place in ("entry", "func") and inner:
        yield f"{name} is an array of arrays in .param", "an array of one dimension"
    if place == "module" and variable.space in ("local", "param"):
        yield f"{name} is in .{variable.space} and outside a function", f".{variable.space} inside a function"
    if place == "entry" and variable.space != "param":
        yield f"the parameter {variable.name} of a kernel is in .{variable.space}", ".param"
    if variable.linkage == "common" and variable.space != "global":
        yield f"{name} is declared .common in .{variable.space}", ".common .global"
    if variable.space != "global" and any(".managed" in word for word in variable.attributes):
        yield f"{name} is managed and in .{variable.space}", ".global"
    if place == "body" and variable.linkage:
        yield f"{name} is declared .{variable.linkage} inside a function", f".{variable.linkage} outside of functions"
    sized = variable.linkage == "extern" or variable.initializer or place == "func"
    if 0 in first or -1 in inner or (-1 in first and not sized):
        yield f"{name} has no size", "a number of elements of at least 1, or .extern"
    if variable.type in textures.OPAQUE:
        yield from textures.wrong_variable(variable, place, independent)
    elif variable.initializer:
        yield from wrong_value(variable, name, module)
