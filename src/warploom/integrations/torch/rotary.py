"""Rotary embeddings of models, recognised by the code of their function: which are one kernel.

The function takes q and k (B, H, S, D), cos and sin, and calls `rotate_half`. Both are compared by their code, with
its names numbered and without docstrings and annotations.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache
from typing import Any

ROTATE_HALF = """
def rotate_half(x):
    first = x[..., :x.shape[-1] // 2]
    second = x[..., x.shape[-1] // 2:]
    return torch.cat((-second, first), dim=-1)
"""
WHOLE = """
def rotate(q, k, cos, sin, axis=1):
    cos = cos.unsqueeze(axis)
    sin = sin.unsqueeze(axis)
    new_q = q * cos + rotate_half(q) * sin
    new_k = k * cos + rotate_half(k) * sin
    return (new_q, new_k)
"""
_FIRST = """
def rotate(q, k, cos, sin, axis=1):
    cos = cos.unsqueeze(axis)
    sin = sin.unsqueeze(axis)
    turned = cos.shape[-1]
    turned_q, rest_q = (q[..., :turned], q[..., turned:])
    turned_k, rest_k = (k[..., :turned], k[..., turned:])
"""
PARTIAL = (
    _FIRST + """
    new_q = turned_q * cos + rotate_half(turned_q) * sin
    new_k = turned_k * cos + rotate_half(turned_k) * sin
    new_q = torch.cat([new_q, rest_q], dim=-1)
    new_k = torch.cat([new_k, rest_k], dim=-1)
    return (new_q, new_k)
""",
    _FIRST + """
    new_q = torch.cat([turned_q * cos + rotate_half(turned_q) * sin, rest_q], dim=-1)
    new_k = torch.cat([turned_k * cos + rotate_half(turned_k) * sin, rest_k], dim=-1)
    return (new_q, new_k)
""",
)  # fmt: skip
CALLED = ("torch", "rotate_half")
"""Names that keep their meaning; all others are numbered."""


@lru_cache(maxsize=1024)
def kind_of(function: Any) -> str:
    """ "whole" or "partial" for a function that rotates heads, or their first elements; "" for any other."""
    kind = _kinds().get(_code_of(function), "")
    half = getattr(function, "__globals__", {}).get("rotate_half")
    return kind if kind and _code_of(half) == _numbered(ROTATE_HALF) else ""


@lru_cache(maxsize=1)
def _kinds() -> dict[str, str]:
    return {_numbered(WHOLE): "whole"} | {_numbered(text): "partial" for text in PARTIAL}


def _code_of(function: Any) -> str:
    """The code of a plain function; "" if it cannot be read, or is a wrapper."""
    if not inspect.isfunction(function) or function.__closure__ or hasattr(function, "__wrapped__"):
        return ""
    try:
        return _numbered(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return ""


def _numbered(text: str) -> str:
    """The arguments, defaults and statements of a function in one line."""
    definition = ast.parse(text).body[0]
    if not isinstance(definition, ast.FunctionDef):
        return ""
    body = definition.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    numbers: dict[str, str] = {}
    for part in (definition.args, *body):
        for node in ast.walk(part):
            if isinstance(node, ast.arg):
                node.arg, node.annotation = numbers.setdefault(node.arg, f"v{len(numbers)}"), None
            elif isinstance(node, ast.Name) and node.id not in CALLED:
                node.id = numbers.setdefault(node.id, f"v{len(numbers)}")
    return "; ".join(map(ast.unparse, (definition.args, *body)))
