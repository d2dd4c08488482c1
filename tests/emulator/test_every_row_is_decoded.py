"""Every row of the instruction table that has a handler is decoded by it, on the example the table makes of the row."""

from __future__ import annotations

from tests.isa import examples
from warploom import asm
from warploom.emulator.ops import HANDLERS
from warploom.emulator.program.code import Code
from warploom.isa.instructions import table


def test_an_example_of_every_row_is_decoded():
    first = [examples.examples(form)[0] for form in table.FORMS if form.key in HANDLERS]
    for (target, version), members in examples.grouped(first).items():
        text, _ = examples.kernel_text([example.text for example in members], target, version)
        module = asm.parse(text)
        code = Code(module, module.entries[0], HANDLERS)
        decoded = [operation for operation in code.operations if operation.bound is not None]
        assert len(decoded) == len(members), (target, version)


def test_no_handler_is_left_without_a_row():
    assert set(HANDLERS) <= set(table.keys())
