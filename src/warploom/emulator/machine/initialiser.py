"""Initial values of module-level variables: numbers and addresses (PTX ISA 5.4.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from ...asm.constants import number
from ...asm.initial_values import read_value
from ...asm.nodes import Float, Integer
from ...errors import ArgumentError, UnsupportedInstructionError
from ...isa import dtypes
from .memory import Allocation, GlobalMemory
from .scopes import DeclaredVariable

LIMIT = 1 << 32
"""Maximum bytes of one module variable in the emulator."""
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[1-9]\d*|0)")


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
    if _INTEGER.fullmatch(word) and not dtype.is_float:
        return int(word, 0) & ((1 << dtype.bits) - 1)
    value = read_value(word)
    if isinstance(value, (Integer, Float)):
        return _bits(value, dtype)
    if value is None or value.name not in addresses:
        raise UnsupportedInstructionError(
            f"the initialiser of {name} has a value that the emulator does not support",
            expected="a number, or the address of a variable or function of the module",
            got=word,
            hint="store it from the kernel",
        )
    address = addresses[value.name] + (value.offset or 0)
    return (address if value.byte is None else address >> 8 * value.byte & 0xFF) & ((1 << dtype.bits) - 1)


def _bits(constant: Integer | Float, dtype: dtypes.DType) -> int:
    """A constant as raw bits, as ptxas 13.0 stores it: `0f` without conversion, another decimal in .b32 as f32."""
    if isinstance(constant, Float) and constant.bits == 32:
        return constant.raw & ((1 << dtype.bits) - 1)
    if isinstance(constant, Integer) and not dtype.is_float:
        return constant.value & ((1 << dtype.bits) - 1)
    value = constant.value if isinstance(constant, Integer) else number(constant)
    kind = dtype if dtype.is_float else dtypes.f32 if dtype.bits == 32 else dtypes.f64
    return int(np.array(value, kind.numpy).view(f"u{kind.bytes}")) & ((1 << dtype.bits) - 1)
