"""The whole instruction table: all rows of all families, and the only way to look an opcode up.

A row that matches may still reject the combination of its modifiers (`Form.check`), the target or the PTX version. The
verifier checks these and reports them with a sentence; `match` checks the spelling alone.
"""

from __future__ import annotations

import itertools
from functools import cache

from ..effects import Commits
from . import (
    async_copy,
    atomics,
    barriers,
    bulk_copy,
    cluster,
    compare,
    control,
    convert,
    convert_narrow,
    fences,
    floating,
    integer,
    launch_control,
    logic,
    matrix,
    mbarrier,
    memory,
    misc,
    mma,
    mma_kinds,
    mma_sparse,
    move,
    multimem,
    packed,
    tcgen05,
    tcgen05_mma,
    tensor_modes,
    textures,
    video,
    warp,
    wgmma,
    wmma,
)
from .schema import Form, Match

FAMILIES = (
    integer, floating, packed, video, logic, compare, convert, convert_narrow, move,
    memory, multimem, atomics, warp, control, misc,
    barriers, mbarrier, async_copy, bulk_copy, tensor_modes, fences, cluster,
    matrix, mma, mma_sparse, mma_kinds, wmma, wgmma, tcgen05, tcgen05_mma, launch_control, textures,
)  # fmt: skip
"""The modules that hold rows, in the order of the ISA's chapters."""

FORMS: tuple[Form, ...] = tuple(itertools.chain.from_iterable(family.FORMS for family in FAMILIES))
"""All rows."""

GROUP_FAMILIES = tuple(
    dict.fromkeys(effect.family for form in FORMS for effect in form.effects if isinstance(effect, Commits))
)
"""The families whose operations are committed and waited for in groups."""

MATRIX_UNITS = tuple(dict.fromkeys(form.unit for form in FORMS if form.unit))
"""The matrix units, by their names in the rows."""

_MOST_SPELLINGS = 2000


@cache
def rows_of(base: str) -> tuple[Form, ...]:
    """The rows whose opcode starts with this word."""
    return tuple(form for form in FORMS if form.base == base)


@cache
def match(opcode: str) -> tuple[Match, ...]:
    """All rows that read this opcode, in the table's order; () for an opcode that the package does not know.

    Several rows may share an opcode and differ in their operands: `asm.binding` chooses among them.
    """
    base, *modifiers = opcode.split(".")
    found = []
    for form in rows_of(base):
        chosen = form.match(tuple(modifiers))
        if chosen is not None:
            found.append(Match(form, chosen))
    return tuple(found)


def keys() -> tuple[str, ...]:
    """The keys of all rows, each once, in the table's order."""
    return tuple(dict.fromkeys(form.key for form in FORMS))


def spellings(form: Form, most: int = _MOST_SPELLINGS) -> list[str]:
    """Opcodes that a row accepts, those without optional modifiers first; at most `most`, without regular
    expressions."""
    choices: list[tuple[str, ...]] = []
    for slot in form.modifier_slots:
        if slot.regex is not None:
            if not slot.optional:
                return []
            continue
        words = tuple("." + word for word in slot.choices)
        choices.append(("", *words) if slot.optional else words)
    combinations = itertools.islice(itertools.product(*choices), most)
    return [form.base + "".join(words) for words in combinations]
