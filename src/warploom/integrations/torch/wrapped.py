"""The wrappers around a module's `forward`, from decorators or from a class for its subclasses.

    forward = wrapper(wrapper(text))      each names the next one `__wrapped__`, and calls it through its closure

Rewritten code is put inside copies of the same wrappers, so that their effects (renaming an argument, recording,
opening a context) are kept.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

Function = Callable[..., Any]


def alike(some: Sequence[Function], others: Sequence[Function]) -> bool:
    """True if wrappers are made by the same code."""
    texts = [[getattr(each, "__code__", None) for each in wrappers] for wrappers in (some, others)]
    return texts[0] == texts[1] and None not in texts[0]


def layers(forward: Function) -> list[Function]:
    """The wrappers of a function, outermost first, with the function itself last."""
    found = [forward]
    while (inner := getattr(found[-1], "__wrapped__", None)) is not None and inner not in found:
        found.append(inner)
    return found


def around(wrappers: Sequence[Function], inner: Function) -> Function | None:
    """Copies of wrappers, outermost first, around another function; None if one does not call the wrapped function
    through its closure."""
    for wrapper in reversed(wrappers):
        copied = _copy(wrapper, inner)
        if copied is None:
            return None
        inner = copied
    return inner


def passes_on(wrapper: Function) -> bool:
    """True if, according to its code, a wrapper returns the wrapped function's result and passes on every keyword
    argument that it does not know."""
    name = _name_inside(wrapper)
    if name is None:
        return False
    try:
        # the code of the wrapper, not of the function it wraps
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(_lines(wrapper)))))
    except (OSError, SyntaxError, TypeError, ValueError):
        return False
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or function.args.kwarg is None:
        return False
    named = function.args.kwarg.arg
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in (named, name) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Lambda)) or _defines(node) and node is not function:
            return False
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(returns) and all(_calls(value, name, named) for value in returns)


def _calls(value: ast.expr | None, name: str, named: str) -> bool:
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == name):
        return False
    return any(each.arg is None and ast.unparse(each.value) == named for each in value.keywords)


def _defines(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _lines(wrapper: Function) -> list[str]:
    lines, first = inspect.findsource(wrapper.__code__)
    return lines[first:]


def _name_inside(wrapper: Function) -> str | None:
    """A wrapper's name for the function it wraps."""
    if not isinstance(wrapper, FunctionType):
        return None
    inner = getattr(wrapper, "__wrapped__", None)
    cells = zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True)
    return next((name for name, cell in cells if _content(cell) is inner), None)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return cell


def _copy(wrapper: Function, inner: Function) -> Function | None:
    if _name_inside(wrapper) is None:
        return None
    changed = CellType()
    known = {id(wrapper.__wrapped__): CellType(inner), id(wrapper): changed}  # type: ignore[attr-defined]
    cells = tuple(known.get(id(_content(cell)), cell) for cell in wrapper.__closure__ or ())
    assert isinstance(wrapper, FunctionType)
    made = FunctionType(wrapper.__code__, wrapper.__globals__, wrapper.__name__, wrapper.__defaults__, cells)
    made.__kwdefaults__, made.__dict__ = wrapper.__kwdefaults__, {**wrapper.__dict__, "__wrapped__": inner}
    made.__qualname__, made.__module__, made.__doc__ = wrapper.__qualname__, wrapper.__module__, wrapper.__doc__
    changed.cell_contents = made
    return made
