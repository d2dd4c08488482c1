"""The order of an opcode's modifiers: the words that stay in front, and those that may move.

ptxas accepts modifiers in any order after the words that name the operation, as long as modifiers of one role keep
their order (measured with ptxas 13.0: each word of each row at each other position).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from .. import dtypes
from .schema import Form
from .table import match, rows_of

FILE = Path(__file__).parent / "operation_names.toml"
"""Opcodes whose first words name the operation."""
_MOST_MOVED = 14
_ROLES = {
    **dict.fromkeys((*dtypes.ALL, "b1", "s2", "u2", "s4", "u4"), "type"),
    **dict.fromkeys(("global", "shared", "shared::cta", "shared::cluster"), "space"),
    **dict.fromkeys(("b8x16", "b6x16_p32", "b4x16_p64"), "format"),
    **dict.fromkeys(("and", "xor", "popc"), "operation"),
    **dict.fromkeys(("row", "col"), "layout"),
    **dict.fromkeys(("L2::evict_first", "L2::evict_last", "L2::evict_normal", "L2::evict_unchanged"), "priority"),
}
"""Words by role; words of one role keep their order among themselves."""
REPEATED = frozenset(("NaN", "approx", "cc", "relu", "sat", "satfinite", "shiftamt", "sync", "uni"))
"""Words that ptxas accepts more than once, without further meaning (measured with ptxas 13.0)."""


@cache
def canonical(opcode: str) -> str:
    """The opcode with its modifiers in the order of the ISA's syntax lines; unchanged if no row reads it that way."""
    if match(opcode):
        return opcode
    base, *words = opcode.split(".")
    once = [word for at, word in enumerate(words) if word not in REPEATED or word not in words[:at]]
    if base in _aligned_without_the_word() and "sync" in once and "aligned" not in once:
        once.insert(once.index("sync") + 1, "aligned")
    if once != words:
        return canonical(".".join((base, *once)))
    name = _name(opcode)
    fixed = name.count(".")
    if len(words) > _MOST_MOVED + fixed:
        return opcode
    for form in rows_of(base):
        if form.fixed_words.issubset(words):
            order = _ordered(form, tuple(words[fixed:]), tuple(words[:fixed]))
            if order is not None and _name(found := ".".join((base, *order))) == name:
                return found
    return opcode


@cache
def operation_names() -> tuple[str, ...]:
    """Opcodes whose first words stay in front; for all others, every modifier may move."""
    return tuple(tomllib.loads(FILE.read_text())["names"])


@cache
def _aligned_without_the_word() -> tuple[str, ...]:
    """Instructions that ptxas treats as `.aligned` if the word is omitted."""
    return tuple(tomllib.loads(FILE.read_text())["aligned"])


def _name(opcode: str) -> str:
    """The words that name the operation and keep their position; "" if it is the first word alone."""
    return max((name for name in operation_names() if f"{opcode}.".startswith(f"{name}.")), key=len, default="")


def _ordered(form: Form, words: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...] | None:
    """The words after `before` in the order of a row's slots; None if the row does not take them all."""
    slots = form.modifier_slots

    def place(at: int, left: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...] | None:
        if at == len(slots):
            return taken if not left and taken[: len(before)] == before else None
        passed = set()
        for number, word in enumerate(left):
            role = _ROLES.get(word)
            if slots[at].accepts(word) and role not in passed:
                found = place(at + 1, left[:number] + left[number + 1 :], (*taken, word))
                if found is not None:
                    return found
            if role is not None:
                passed.add(role)
        return place(at + 1, left, taken) if slots[at].optional else None

    return place(0, (*before, *words), ())
