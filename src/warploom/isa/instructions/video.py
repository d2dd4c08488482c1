"""SIMD video instructions, two half-words or four bytes at once: PTX ISA 9.7.18.2.

Operand selectors and masks (`%r1.h10`) and the scalar video instructions of 9.7.18.1 are not in the table.
"""

from __future__ import annotations

from .schema import Form

_TYPES = {"dtype": "u32 s32", "atype": "u32 s32", "btype": "u32 s32", "second": "sat add"}
_COMPARISON = {"atype": "u32 s32", "btype": "u32 s32", "cmp": "eq ne lt le gt ge"}
_OPERANDS = ">d:b32, a:b32, b:b32, c:b32"
OPERATIONS = ("add", "sub", "avrg", "absdiff", "min", "max")

FORMS: tuple[Form, ...] = (
    *(
        Form(
            f"video.{operation}{lanes}", f"v{operation}{lanes}.dtype.atype.btype{{.second}}", _OPERANDS, _TYPES,
            ptx=(3, 0), section="9.7.18.2",
        )
        for operation in OPERATIONS
        for lanes in (2, 4)
    ),
    *(
        Form(
            f"video.set{lanes}", f"vset{lanes}.atype.btype.cmp{{.add}}", _OPERANDS, _COMPARISON,
            ptx=(3, 0), section="9.7.18.2",
        )
        for lanes in (2, 4)
    ),
)  # fmt: skip
