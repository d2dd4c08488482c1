"""The known spelling nearest to an unknown opcode: the one with the fewest changes.

The words between the dots are aligned with the modifier slots of each row. Exchanging a word that no row knows costs
the difference of its letters. A word that some row knows is assumed to be intended, and costs more to exchange than a
missing word costs to add.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ...near import closest
from .schema import Form, Slot
from .table import FORMS, match, rows_of

_ADDED, _LEFT_OUT, _MOVED = 0.35, 2.0, 0.3
_OTHER = 1.5
"""Cost of exchanging a word for one that shares no letter: less than removing it and adding the other."""
_BEGUN = 0.3
_KEPT = 8
"""Alignments followed at once; a row may forbid the best one's combination of modifiers."""
_STATED = ("aligned",)
"""Words that ptxas lets an author omit and the ISA writes; suggestions include them."""
_TIE = 0.001
_USUAL = ("b32", "aligned")
"""Choices that are added first if a word is missing."""

_Alignment = tuple[float, int, tuple[str, ...]]
"""Cost, words added, and the words so far."""


@cache
def suggest(opcode: str) -> str:
    """The known spelling nearest to an unknown opcode, or "" if none is near; for error messages."""
    base, *wanted = opcode.split(".")
    bases = list(dict.fromkeys(form.base for form in FORMS))
    near = [base] if base in bases else closest(base, bases, 3)
    found = []
    for known in near:
        meant = frozenset(
            word
            for word in wanted
            for form in rows_of(known)
            if any(slot.accepts(word) for slot in form.modifier_slots)
        )
        for number, form in enumerate(rows_of(known)):
            for cost, added, words in _alignments(form, tuple(wanted), meant):
                found.append((cost + 2 * letters(base, known), added, number, form, ".".join((known, *words))))
    found.sort(key=lambda one: one[:3])
    return next((spelling for *_, form, spelling in found if _goes_together(form, spelling)), "")


def unknown_opcode(opcode: str) -> tuple[str, str | None, str]:
    """What is wrong with an opcode that no row reads, what stands in the text, and a hint: an unknown word, an unknown
    modifier, or an invalid combination."""
    base, *modifiers = opcode.split(".")
    suggestion = suggest(opcode)
    hint = 'if PTX has it, see "How to add an instruction" in CONTRIBUTING.md'
    if suggestion:
        hint = f"the nearest known spelling is `{suggestion}`; {hint}"
    rows = rows_of(base)
    slots = [slot for row in rows for slot in row.modifier_slots]
    unknown = [modifier for modifier in modifiers if not any(slot.accepts(modifier) for slot in slots)]
    if not rows:
        return f"`{opcode}` is not a known instruction", None, hint
    if unknown:
        return f"`.{unknown[0]}` is not a modifier of `{base}`", opcode, hint
    return f"the modifiers of `{opcode}` do not go together, stand in the wrong order, or one is missing", None, hint


def letters(one: str, other: str) -> float:
    """The difference of two words, 0 to 1: the least number of insertions, deletions, exchanges and swaps of letters,
    per letter of the word; little if one is the beginning of the other."""
    if one != other and (other.startswith(one) or one.startswith(other)):
        return _BEGUN
    rows = [list(range(len(other) + 1))]
    for row, letter in enumerate(one):
        now = [row + 1]
        for column, its in enumerate(other):
            now.append(min(rows[-1][column + 1] + 1, now[-1] + 1, rows[-1][column] + (letter != its)))
            if row and column and (letter, its) == (other[column - 1], one[row - 1]):
                now[-1] = min(now[-1], rows[-2][column - 1] + 1)
        rows.append(now)
    return min(1.0, rows[-1][-1] / max(len(one), 1))


def _goes_together(form: Form, spelling: str) -> bool:
    return any(found.form is form and not (form.check and form.check(found.modifiers)) for found in match(spelling))


def _alignments(form: Form, wanted: tuple[str, ...], meant: frozenset[str]) -> list[_Alignment]:
    """The cheapest ways to turn the written words into words that a row reads. meant: words that rows know."""
    slots = form.modifier_slots
    table: dict[tuple[int, int], list[_Alignment]] = {(0, 0): [(0.0, 0, ())]}
    for at in range(len(slots) + 1):
        for taken in range(len(wanted) + 1):
            here = sorted(table.get((at, taken), ()), key=lambda one: one[:2])[:_KEPT]
            table[at, taken] = here
            for cost, added, words in here:
                if taken < len(wanted):
                    elsewhere = any(slot.accepts(wanted[taken]) for slot in slots)
                    extra = _MOVED if elsewhere else _LEFT_OUT if taken else 2 * _LEFT_OUT
                    table.setdefault((at, taken + 1), []).append((cost + extra, added, words))
                if at == len(slots):
                    continue
                if slots[at].optional:
                    left_out = _ADDED + _TIE if slots[at].choices == _STATED else 0.0
                    table.setdefault((at + 1, taken), []).append((cost + left_out, added, words))
                for more, new, word in _choices(slots[at], wanted, taken, meant):
                    place = (at + 1, taken + (not new))
                    early = _ADDED if new and not taken else 0.0  # the operation was written first
                    table.setdefault(place, []).append((cost + more + early, added + new, (*words, word)))
    return table[len(slots), len(wanted)]


def _choices(
    slot: Slot, wanted: tuple[str, ...], taken: int, meant: frozenset[str]
) -> Iterator[tuple[float, bool, str]]:
    """Candidates for a slot: cost, whether the word is added, and the word."""
    if taken < len(wanted):
        word = wanted[taken]
        if slot.accepts(word):
            yield 0.0, False, word
        elif slot.regex is None:
            likely = sorted((letters(word, choice), at) for at, choice in enumerate(slot.choices))[:3]
            weight = _OTHER if taken else 2 * _OTHER  # the first word names the operation
            yield from ((weight * (cost + (word in meant)), False, slot.choices[at]) for cost, at in likely)
    written = next((word for word in wanted if slot.accepts(word)), "")
    if written:  # it is at another position
        yield _MOVED, True, written
    elif slot.choices == _STATED or not slot.optional and slot.regex is None:
        ordered = sorted(slot.choices, key=lambda choice: choice not in _USUAL)[:_KEPT]
        yield from ((_ADDED + number / 100, True, choice) for number, choice in enumerate(ordered))
