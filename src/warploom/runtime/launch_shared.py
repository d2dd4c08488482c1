"""`[[shared]]` of a launch description: the arrays that a kernel lays out in shared memory itself.

    [[shared]]
    name = "ring.a"
    offset = 0                      # bytes from the start of the variable
    size = 32768                    # bytes, of all pieces together
    count = 4                       # optional: as many equal pieces, `ring.a[0]` to `ring.a[3]`
    variable = "smem"               # optional if the text has one shared variable, or one that the launch sizes

Reports use these names, and an access that leaves the array that its address is based on is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..emulator.machine.symbols import SharedPart
from .launch_values import misdescribed

KEYS = ("name", "offset", "size", "count", "variable")
_VARIABLE = re.compile(r"(\.extern\s+)?\.shared\b[^;{}()]*?([\w$%]+)\s*(?:\[[^\]]*\]\s*)*;")


def parts(text: str, described: Sequence[Mapping[str, Any]], path: Path) -> tuple[SharedPart, ...]:
    """The parts that a description names. Raises ArgumentError for an invalid part, or one in an unknown variable."""
    if not described:
        return ()
    found = [(bool(extern), name) for extern, name in _VARIABLE.findall(text)]
    variables = [name for _, name in found]
    sized = list(dict.fromkeys(name for extern, name in found if extern))
    usual = sized[0] if len(sized) == 1 else variables[0] if len(set(variables)) == 1 else ""
    made = []
    for one in described:
        variable = one.get("variable", usual)
        if variable not in variables:
            raise misdescribed(
                f"[[shared]] {one.get('name', '')} is not in a shared variable of the text", where=str(path),
                expected=", ".join(dict.fromkeys(variables)) or "a text with .shared variables", got=variable or None,
            )  # fmt: skip
        sizes = [one.get(key, usual_size) for key, usual_size in (("offset", 0), ("size", None), ("count", 1))]
        least = (0, 1, 1)
        if not all(type(size) is int and size >= low for size, low in zip(sizes, least, strict=True)) or (
            sizes[1] % sizes[2]
        ):
            raise misdescribed(
                "[[shared]] is not a range of bytes in equal pieces", where=str(path),
                expected='name = "A", offset = 0, size = 4096, count = 2', got=dict(one),
            )  # fmt: skip
        made.append(SharedPart(variable, str(one.get("name", variable)), sizes[0], sizes[1], sizes[2]))
    return tuple(made)
