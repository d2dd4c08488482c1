"""Norms of models, recognised by the code of their `forward`: which are one kernel, and its options.

The code is compared with its names numbered and without its docstring; a method that it calls is listed next to it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from .forward import parsed


@dataclass(frozen=True)
class Norm:
    """A norm, as options of `warploom.rms_norm`.

    Attributes:
        eps: the module's attribute that is added to the mean of the squares.
        round_first: the quotient is rounded before it is multiplied by the weight.
        centred: the mean is subtracted first.
        unit_offset: the factor is weight + 1.
    """

    eps: str
    round_first: bool = False
    centred: bool = False
    unit_offset: bool = False


_QUOTIENT = (
    "v0 = v1.dtype; v1 = v1.to(torch.float32); v2 = v1.pow(2).mean(-1, keepdim=True); "
    "v1 = v1 * torch.rsqrt(v2 + self.EPS); "
)
_OF_METHOD = "v0 = self._norm(v1.to(torch.float32)); v0 = v0 * {}; return v0.type_as(v1)"
_METHOD = "return v0 * torch.rsqrt(v0.pow(2).mean(-1, keepdim=True) + self.EPS)"
TEXTS: tuple[tuple[str, str, dict[str, bool]], ...] = (
    (_QUOTIENT + "return self.weight * v1.to(v0)", "", {"round_first": True}),
    (_QUOTIENT + "return (self.weight * v1).to(v0)", "", {}),
    (_QUOTIENT + "return (self.weight.to(torch.float32) * v1).to(v0)", "", {}),
    (_OF_METHOD.format("(1.0 + self.weight.to(torch.float32))"), _METHOD, {"unit_offset": True}),
    (_OF_METHOD.format("self.weight.to(torch.float32)"), _METHOD, {}),
    (
        "v0 = v1.dtype; v1 = v1.to(torch.float32); v2 = v1.mean(-1, keepdim=True); "
        "v3 = (v1 - v2).pow(2).mean(-1, keepdim=True); v1 = (v1 - v2) * torch.rsqrt(v3 + self.EPS); "
        "v1 = self.weight.to(torch.float32) * v1; return v1.to(v0)", "", {"centred": True},
    ),
)  # fmt: skip
"""The code of `forward`, that of the method `_norm` if it calls one, and the kernel's options. EPS: any name."""


def norm_of(base: Any) -> Norm | None:
    """The norm that a class computes; None for other classes."""
    text = _text(base.forward)
    if text is None:
        return None
    method = _text(getattr(base, "_norm", None)) if "self._norm(" in text else ""
    for known, known_method, what in TEXTS:
        pattern = f"{re.escape(known)}\n{re.escape(known_method)}".replace("EPS", r"(\w+)")
        found = re.fullmatch(pattern, f"{text}\n{method}")
        if found:
            return Norm(found[1], **what)
    return None


def _text(function: Any) -> str | None:
    """The code of a method of one argument, in one line; None for any other method."""
    tree = parsed(function)
    if tree is None:
        return None
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    if len(given.args) != 2 or given.vararg or given.kwarg or given.kwonlyargs:
        return None
    body = definition.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    numbered: dict[str, str] = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id not in ("self", "torch"):
                node.id = numbered.setdefault(node.id, f"v{len(numbered)}")
    return "; ".join(map(ast.unparse, body)).replace(".float()", ".to(torch.float32)")
