"""Video instructions: of one value each (PTX ISA 9.7.18.1), and of two half-words or four bytes at once (9.7.18.2).

The scalar ones select a byte or half-word of an operand with a selector, `%r1.b0` or `%r1.h1`. The others select each
of theirs from both operands, `%r1.h20` or `%r2.b7531`, highest first, and the lanes of the destination that they write,
`%r0.h1` or `%r0.b310`. Sources of vmad may have a minus: `signs` tells what it negates.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import combinations

from .schema import Form

_TYPES = {"dtype": "u32 s32", "atype": "u32 s32", "btype": "u32 s32", "second": "sat add"}
_COMPARISON = {"atype": "u32 s32", "btype": "u32 s32", "cmp": "eq ne lt le gt ge"}
_OPERANDS = ">d:u32, a:u32!, b:u32!, c:u32!"
OPERATIONS = ("add", "sub", "avrg", "absdiff", "min", "max")

SELECTORS = ("b0", "b1", "b2", "b3", "h0", "h1")
"""The byte or half-word of a register that a scalar video instruction reads or, with four operands, replaces."""
SELECTOR = re.compile("b[0-7]{1,4}|h[0-3]{1,2}")
"""What may follow a register's name and a dot in a video instruction; `takes` tells which of them an operand allows."""
LETTERS = {2: "h", 4: "b"}
"""What selectors of two half-words and of four bytes begin with."""
MASKS = {
    lanes: frozenset(
        letter + "".join(chosen) for count in range(1, lanes + 1)
        for chosen in combinations("3210"[-lanes:], count)
    )
    for lanes, letter in LETTERS.items()
}  # fmt: skip
"""Which half-words or bytes of the destination are written, highest first, by their number in a word."""
SCALAR = "video.scalar."
"""Prefix of the keys of its rows; those that replace a part of the destination end with `MERGE`."""
MERGE = ".merge"
MULTIPLY_ADD = SCALAR + "mad"
"""Key of the row of vmad."""
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
        MULTIPLY_ADD, "vmad.dtype.atype.btype{.po}{.sat}{.scale}", ">d:dtype, a:atype, b:btype, c:dtype",
        _SCALAR_TYPES | {"scale": "shr7 shr15"}, ptx=(2, 0), section="9.7.18.1.3",
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


def signs(minuses: Collection[str], plus_one: bool) -> tuple[int, int] | str:
    """The signs of the product a * b and of c in vmad if these operands have a minus, or why they may not have it."""
    product, third = ("a" in minuses) != ("b" in minuses), "c" in minuses
    if product and third:
        return "the product and c are both negated"
    if (product or third) and plus_one:
        return ".po allows no negated operand"
    return 1 - 2 * product, 1 - 2 * third


def takes(key: str, operand: str, selector: str) -> bool:
    """True if an operand of a row may have this selector."""
    if key.startswith(SCALAR):
        return selector in SELECTORS and operand != "c" and (operand != "d" or key.endswith(MERGE))
    if not key.startswith("video.") or operand == "c":
        return False
    lanes = int(key[-1])
    if operand == "d":
        return selector in MASKS[lanes]
    return len(selector) == lanes + 1 and selector[0] == LETTERS[lanes]
