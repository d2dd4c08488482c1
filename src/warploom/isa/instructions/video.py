"""Video instructions: of one value each (PTX ISA 9.7.18.1), and of two half-words or four bytes at once (9.7.18.2).

The scalar ones select a byte or half-word of an operand with a selector, `%r1.b0` or `%r1.h1`. Masks of the others
(`%r1.h10`), and operands of vmad with a preceding minus, are not in the table.
"""

from __future__ import annotations

from .schema import Form

_TYPES = {"dtype": "u32 s32", "atype": "u32 s32", "btype": "u32 s32", "second": "sat add"}
_COMPARISON = {"atype": "u32 s32", "btype": "u32 s32", "cmp": "eq ne lt le gt ge"}
_OPERANDS = ">d:u32, a:u32!, b:u32!, c:u32!"
OPERATIONS = ("add", "sub", "avrg", "absdiff", "min", "max")

SELECTORS = ("b0", "b1", "b2", "b3", "h0", "h1")
"""The byte or half-word of a register that a scalar video instruction reads or, with four operands, replaces."""
SCALAR = "video.scalar."
"""Prefix of the keys of its rows; those that replace a part of the destination end with `MERGE`."""
MERGE = ".merge"
SECOND = "add min max"
_SCALAR_TYPES = {"dtype": "u32 s32", "atype": "u32 s32", "btype": "u32 s32"}


def _scalar(operation: str, pattern: str, a: str, b: str, slots: dict[str, str], section: str) -> tuple[Form, ...]:
    """The three rows of a scalar video instruction: alone, with a second operation on c, merged into c."""
    d = "dtype" if "dtype" in pattern else "u32"
    alone = f">d:{d}, a:{a}, b:{b}"
    merged = f"{alone}, c:{d}"
    forms = (
        (SCALAR + operation, pattern, alone),
        (f"{SCALAR}{operation}.second", f"{pattern}.second", merged),
        (f"{SCALAR}{operation}{MERGE}", pattern, merged),
    )
    return tuple(
        Form(key, text, operands, slots | ({"second": SECOND} if "second" in text else {}), ptx=(2, 0), section=section)
        for key, text, operands in forms
    )


_MULTIPLY_ADD = {**_SCALAR_TYPES, "scale": "shr7 shr15"}

FORMS: tuple[Form, ...] = (
    *(
        form
        for operation in ("add", "sub", "absdiff", "min", "max")
        for form in _scalar(
            operation, f"v{operation}.dtype.atype.btype{{.sat}}", "atype", "btype", _SCALAR_TYPES, "9.7.18.1.1"
        )
    ),
    *(
        form
        for operation in ("shl", "shr")
        for form in _scalar(
            operation, f"v{operation}.dtype.atype.u32{{.sat}}.mode", "atype", "u32",
            {"dtype": "u32 s32", "atype": "u32 s32", "mode": "clamp wrap"}, "9.7.18.1.2",
        )
    ),
    *_scalar("set", "vset.atype.btype.cmp", "atype", "btype", _COMPARISON, "9.7.18.1.4"),
    Form(
        "video.scalar.mad", "vmad.dtype.atype.btype{.po}{.sat}{.scale}", ">d:dtype, a:atype, b:btype, c:dtype",
        _MULTIPLY_ADD, ptx=(2, 0), section="9.7.18.1.3",
    ),
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
