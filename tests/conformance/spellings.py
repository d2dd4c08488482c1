"""The spellings of a row with many modifiers that a case covers: all combinations of those that change its effect, and
each hint and scope once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tests.isa import examples
from warploom.isa.instructions.schema import Form

ARCH = 90


def spread(form: Form, full: Sequence[str], without: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Opcodes of a row, with what their slots took.

    full: slots of which all combinations are shown; each choice of any other slot is shown at least once.
    without: choices to leave out.
    """
    slots = form.modifier_slots
    choices: dict[str, list[str | None]] = {}
    for slot in slots:
        words: list[str | None] = [word for word in slot.choices if word not in without]
        choices[slot.name] = [None, *words] if slot.optional else words
    plain = {name: words[0] for name, words in choices.items()}
    wanted = [name for name in choices if name in full]
    combinations = [
        {**plain, **dict(zip(wanted, values, strict=True))}
        for values in itertools.product(*(choices[name] for name in wanted))
    ]
    shown: set[str] = set()
    for chosen in filter(lambda chosen: _legal(form, chosen), combinations):
        opcode = _opcode(form, chosen)
        shown.add(opcode)
        yield opcode, chosen
    turn = 0
    for name in choices:
        if name in full:
            continue
        for word in choices[name][1:]:
            # a different combination each time, the next one that goes with it
            for at in range(len(combinations)):
                chosen = {**combinations[(turn + at) % len(combinations)], name: word}
                if _legal(form, chosen):
                    turn += at + 1
                    opcode = _opcode(form, chosen)
                    if opcode not in shown:
                        shown.add(opcode)
                        yield opcode, chosen
                    break


def _opcode(form: Form, chosen: dict[str, str | None]) -> str:
    return form.base + "".join(f".{chosen[slot.name]}" for slot in form.modifier_slots if chosen[slot.name])


def _legal(form: Form, chosen: dict[str, str | None]) -> bool:
    if form.check is not None and form.check(chosen):
        return False
    return examples.arch_number(examples.needs_of(form, chosen)[0]) <= ARCH
