"""A `.callprototype` as the head of a function: what a call through a register passes and gets. PTX ISA 11.2."""

from __future__ import annotations

import re
from functools import cache
from itertools import count

from .nodes import Function
from .parser import parse

_UNNAMED = re.compile(r"(?<![\w$%.])_(?![\w$%])")
_HEAD = ".version 9.2\n.target sm_90a\n.address_size 64\n.func"
"""Any version and target: those of the text are judged elsewhere."""


@cache
def prototype(label: str, text: str) -> Function:
    """The function without a body that a prototype describes, under the name of its label.

    Raises PtxSyntaxError.
    """
    number = count()
    named = _UNNAMED.sub(lambda _: f"_{next(number)}", text)
    found = parse(f"{_HEAD} {named};", name=".callprototype").functions[0]
    return Function("func", label, found.parameters, found.results, directives=found.directives)
