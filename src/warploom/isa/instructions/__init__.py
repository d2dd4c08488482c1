"""The instruction table: one row for each syntax line of the PTX ISA that the package knows.

`table.match(opcode)` reads an opcode; `table.FORMS` has all rows. The modules of this folder hold them by family.
"""
