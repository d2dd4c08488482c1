"""The table of a product's arguments: their kinds, their shapes, and what they fuse into the epilogue.

The public signature, the checks, the torch operator, JAX and the command line read this table.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.spec import ACTIVATIONS
from ...errors import ArgumentTypeError

ACCUMULATE = ("default", "fast", "precise")
OF_RESULT = "(…, M, N)"


@dataclass(frozen=True)
class Argument:
    """One argument besides a, b and out.

    Attributes:
        name: the keyword.
        kind: "array", "array or number", "number", "word" (one of `words`), "type", "flag" or "config".
        default: the value if it is omitted.
        shape: of an array, in words.
        doc: what it does, in a few words.
        words: the allowed words.
        in_graph: True if the torch operator takes it.
    """

    name: str
    kind: str
    default: Any = None
    shape: str = ""
    doc: str = ""
    words: tuple[str, ...] = ()
    in_graph: bool = True

    @property
    def may_be_array(self) -> bool:
        """True if an array can be given."""
        return self.kind.startswith("array")

    @property
    def may_be_number(self) -> bool:
        """True if a number can be given instead of an array."""
        return self.kind == "array or number"


ARGUMENTS = (
    Argument("out_dtype", "type", doc="type of the result; the usual one by default"),
    Argument("bias", "array", shape="(N,), or (M, 1) for one value per row", doc="a bias of the columns"),
    Argument("c", "array", shape=OF_RESULT, doc="beta * c is added"),
    Argument("alpha", "number", 1.0, doc="multiplies the product"),
    Argument("beta", "number", 0.0, doc="multiplies c"),
    Argument("activation", "word", doc=f"one of {', '.join(ACTIVATIONS)}", words=ACTIVATIONS),
    Argument("residual", "array", shape=OF_RESULT, doc="an array that is added", in_graph=False),
    Argument("gate", "array", shape=OF_RESULT, doc="an array that multiplies the result of the activation"),
    Argument("scale_a", "array or number", shape="one number, (M, 1) or (M, K/128)", doc="multiplies a"),
    Argument("scale_b", "array or number", shape="one number, (1, N) or (K/128, N/128)", doc="multiplies b"),
    Argument("scale_out", "array or number", shape="one number", doc="multiplies an eight-bit output", in_graph=False),
    Argument("amax", "array", shape="one number", doc="receives the largest value before scale_out", in_graph=False),
    Argument("accumulate", "word", "default", doc=f"how to accumulate: {', '.join(ACCUMULATE)}", words=ACCUMULATE),
    Argument("constant_weights", "flag", False, doc="a promise that b does not change"),
    Argument("config", "config", doc="a configuration instead of the chosen one, or its name"),
)
BY_NAME = {argument.name: argument for argument in ARGUMENTS}
DEFAULTS = {argument.name: argument.default for argument in ARGUMENTS}
ARRAYS = tuple(argument.name for argument in ARGUMENTS if argument.may_be_array)
"""Arguments that may be arrays."""
OF_RESULT_SHAPE = tuple(argument.name for argument in ARGUMENTS if argument.shape == OF_RESULT)
"""Arguments with the shape of D."""


def check_names(what: str, names: Iterable[str]) -> None:
    """Raise ArgumentTypeError for a name that is not an argument."""
    for name in names:
        if name not in DEFAULTS:
            raise ArgumentTypeError(f"{what} has no argument `{name}`", expected=", ".join(DEFAULTS), got=f"{name}=")


def signature(*leave_out: str, out: bool = True) -> inspect.Signature:
    """The signature of `matmul`, without some of its arguments."""
    both = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("a", "b")]
    named = [("out", None)] * out + [item for item in DEFAULTS.items() if item[0] not in leave_out]
    return inspect.Signature(
        [*both, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in named)]
    )
