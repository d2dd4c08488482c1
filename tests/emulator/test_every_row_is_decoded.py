"""Every row of the instruction table that has a handler is decoded by it, on the example the table makes of the row."""

from __future__ import annotations

import pytest

from tests.isa import examples
from warploom import asm
from warploom.emulator.ops import HANDLERS
from warploom.emulator.program.code import Code
from warploom.isa.instructions import table

FIRST = [examples.examples(form)[0] for form in table.FORMS if form.key in HANDLERS]


@pytest.mark.parametrize(
    "members", examples.grouped(FIRST).values(), ids=lambda members: f"{members[0].target}-{members[0].version}"
)
def test_the_examples_of_a_target_are_decoded(members):
    text, _ = examples.kernel_text([example.text for example in members], members[0].target, members[0].version)
    module = asm.parse(text)
    code = Code(module, module.entries[0], HANDLERS)
    decoded = [operation for operation in code.operations if operation.bound is not None]
    assert len(decoded) == len(members)


def test_no_handler_is_left_without_a_row():
    assert set(HANDLERS) <= set(table.keys())
