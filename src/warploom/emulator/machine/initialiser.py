"""Initial values of module-level variables: numbers and addresses (PTX ISA 5.4.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from ...asm.constants import number
from ...asm.cursor import constant_of
from ...asm.nodes import Integer
from ...errors import ArgumentError, UnsupportedInstructionError
from ...isa import dtypes
from .memory import Allocation, GlobalMemory
from .scopes import DeclaredVariable

LIMIT = 1 << 32
"""Maximum bytes of one module variable in the emulator."""
_NUMBER = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?0[xX][0-9a-fA-F]+|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_ADDRESS = re.compile(r"(?:generic\s*\(\s*)?([A-Za-z_$%][\w$]*)\s*\)?\s*(?:\+\s*(\d+))?")


def allocate(
    memory: GlobalMemory, variables: Mapping[str, DeclaredVariable], functions: Mapping[str, int]
) -> dict[str, Allocation]:
    """Give each variable its memory and its initial value; zeros if it has none. `functions`: their addresses.

    Raises ArgumentError for one that is too large, UnsupportedInstructionError for a value that is not understood.
    """
    for variable in variables.values():
        if variable.size > LIMIT:
            raise ArgumentError(f"{variable.node.name} has {variable.size} bytes", expected=f"at most {LIMIT}")
    bytes_of = {name: np.zeros(max(each.size, 1), np.uint8) for name, each in variables.items()}
    placed = {name: memory.allocate(bytes_of[name], name, each.space != "const") for name, each in variables.items()}
    addresses = {**functions, **{each.node.name: placed[name].base for name, each in variables.items()}}
    for name, variable in variables.items():
        dtype = dtypes.ALL[variable.node.type]
        values = bytes_of[name].view(np.dtype(f"u{dtype.bytes}"))
        for at, word in zip(range(values.size), _words(variable.node.initializer), strict=False):
            values[at] = _value(word, dtype, variable.node.name, addresses)
    return placed


def reached(used: set[str], variables: Iterable[DeclaredVariable]) -> set[str]:
    """The names used by a kernel, and those that the initialisers of used variables name in turn."""
    named = {each.node.name: set(re.findall(r"[A-Za-z_$%][\w$]*", each.node.initializer)) for each in variables}
    found, waiting = set(used), list(used)
    while waiting:
        more = named.get(waiting.pop(), set()) - found
        found |= more
        waiting += more
    return found


def _words(initializer: str) -> Iterable[str]:
    """The values of an initialiser in order, without the braces of inner dimensions."""
    return filter(None, (word.strip() for word in re.split(r"[{},]", initializer)))


def _value(word: str, dtype: dtypes.DType, name: str, addresses: Mapping[str, int]) -> int:
    """One value as raw bits."""
    if _NUMBER.fullmatch(compact := word.replace(" ", "")):
        return _literal(compact, dtype)
    expression = constant_of(word)
    if expression is not None:
        return _literal(str(expression.value if isinstance(expression, Integer) else number(expression)), dtype)
    found = _ADDRESS.fullmatch(word)
    if found is None or found[1] not in addresses:
        raise UnsupportedInstructionError(
            f"the initialiser of {name} has a value that the emulator does not support",
            expected="a number, or the address of a variable or function of the module",
            got=word,
            hint="store it from the kernel",
        )
    return (addresses[found[1]] + int(found[2] or 0)) & ((1 << dtype.bits) - 1)


def _literal(word: str, dtype: dtypes.DType) -> int:
    """One number as raw bits."""
    if word[:2].lower() == "0f":
        return int(word[2:], 16)
    if word[:2].lower() == "0d":
        raw = np.array(int(word[2:], 16), np.uint64)
        return int(raw) if dtype.bits == 64 else int(raw.view(np.float64).astype(np.float32).view(np.uint32))
    if dtype.is_float:
        return int(np.array(float(word), dtype.numpy).view(f"u{dtype.bytes}"))
    return int(word, 0) & ((1 << dtype.bits) - 1)
