"""The instruction table: one row for each syntax line of the PTX ISA the package knows.

`table.match(opcode)` reads an opcode; `table.FORMS` is all rows. The modules of this folder hold them by family.
"""
