"""Short forms of mangled C++ names: `cutlass::device_kernel<…>` for `_ZN7cutlass13device_kernelIN…`.

Names of the Itanium ABI begin with the nested names, each preceded by its length. Template arguments and parameters
follow; of these only leading template arguments that are builtin types or numbers are kept: `apply<float, 4, …>`.
https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling
"""

from __future__ import annotations

import re
from functools import lru_cache

_LENGTH = re.compile(r"(\d+)")
_MANGLED = re.compile(r"(?<![\w$.])_Z[NZL\d][\w$]*")
_PARAMETER = re.compile(r"_param_\d+$")
_BUILTIN = {
    "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short", "t": "unsigned short", "i": "int",
    "j": "unsigned", "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long", "f": "float",
    "d": "double",
}  # fmt: skip
_ARGUMENT = re.compile(r"L([bcahstijlmxy])(n?)(\d+)E|([bcahstijlmxyfd])")
_MOST_ARGUMENTS = 4
_INTERNAL = re.compile(r"_INTERNAL_|_GLOBAL__N_")


def readable(text: str) -> str:
    """A text with its C++ names shortened to their identifying parts."""
    return _MANGLED.sub(lambda found: short(found[0]), text) if "_Z" in text else text


@lru_cache(maxsize=4096)
def short(name: str) -> str:
    """A mangled name without its parameters and most template arguments; any other name, and one that cannot be parsed,
    unchanged."""
    if not name.startswith("_Z"):
        return name
    parameter = _PARAMETER.search(name)
    parts, at = _encoding(name, 2)
    if not parts:
        return name
    return "::".join(parts) + (f" parameter {parameter[0][7:]}" if parameter else "")


def _encoding(name: str, at: int) -> tuple[list[str], int]:
    """The parts of a name, and the end of what was parsed. A variable in a function is named `function::it`."""
    if name[at : at + 1] == "Z":
        function, at = _encoding(name, at + 1)
        end = _end_of_function(name, at)
        if end < 0:
            return [], at
        inner, after = _encoding(name, end)
        return [*function[-1:], *inner], after
    if name[at : at + 1] in "NL":
        at += 1
    parts: list[str] = []
    while at < len(name):
        while name[at : at + 1] in ("K", "V", "r", "L"):
            at += 1
        found = _LENGTH.match(name, at)
        if found is None:
            break
        end = found.end() + int(found[1])
        if end > len(name):
            return [], at
        part = name[found.end() : end]
        parts.append("(anonymous)" if _INTERNAL.search(part) else part)
        at = end
        if name[at : at + 1] == "I":
            parts[-1] += f"<{_plain_arguments(name, at + 1)}>"
            break
    return parts, at


def _plain_arguments(name: str, at: int) -> str:
    """The leading template arguments that are builtin types or numbers, which tell instances of a template apart."""
    found: list[str] = []
    while len(found) < _MOST_ARGUMENTS and (argument := _ARGUMENT.match(name, at)) is not None:
        kind, negative, number, builtin = argument.groups()
        truth = {"0": "false", "1": "true"}.get(number or "") if kind == "b" else None
        found.append(truth or (("-" if negative else "") + number if number else _BUILTIN[builtin]))
        at = argument.end()
    return ", ".join(found if name[at : at + 1] == "E" else [*found, "…"])


def _end_of_function(name: str, at: int) -> int:
    """The position after the E that ends a function's encoding, before its variable's name; -1 if there is none."""
    for found in reversed(list(re.finditer(r"E(?=\d+[A-Za-z_])", name[at:]))):
        begin = at + found.end()
        length = _LENGTH.match(name, begin)
        assert length is not None
        end = length.end() + int(length[1])
        rest = name[end:]
        if end <= len(name) and re.fullmatch(r"(_\d+|_param_\d+|E)*", rest):
            return begin
    return -1
