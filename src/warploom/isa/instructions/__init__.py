"""The instruction table: one row for each syntax line of the PTX ISA the package knows.

`table.match(opcode)` reads an opcode; `table.FORMS` is all rows. Rows stand by family in the modules beside this.
"""
