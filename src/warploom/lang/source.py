"""The author's Python source of a traced block, if it can be read.

A block of `ptx.if_`, `ptx.range` and the like is traced once. Tracing alone cannot see a jump out of the block, a name
that is rebound in it and read after it, or the name that a call's result is assigned to. The syntax tree of the file,
together with the author's frame, shows all three.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import SourceLocation, TraceError
from .predicate import Traced

if TYPE_CHECKING:
    from .trace import Trace

Block = ast.For | ast.With
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@lru_cache(maxsize=64)
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=64)
def _blocks(filename: str) -> dict[int, tuple[Block, tuple[ast.AST, ...]]]:
    """The for and with statements of a file, by line of their heads, each with its enclosing nodes, outermost first.

    Empty if the source cannot be read.
    """
    found: dict[int, tuple[Block, tuple[ast.AST, ...]]] = {}
    tree = _tree(filename)
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())] if tree is not None else []
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, Block):
            for line in builtins.range(node.lineno, max(node.body[0].lineno - 1, node.lineno) + 1):
                found.setdefault(line, (node, around))
        waiting += [(child, (*around, node)) for child in ast.iter_child_nodes(node)]
    return found


# -- jumps ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def python_jump(filename: str, line: int) -> tuple[str, int] | None:
    """The first break, continue or return that leaves the traced block whose head is on this line."""
    block, _ = _blocks(filename).get(line, (None, ()))
    if block is None:
        return None
    pending: list[tuple[ast.AST, bool]] = [(item, True) for item in block.body]
    while pending:
        node, own = pending.pop(0)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return):
            return "return", node.lineno
        if own and isinstance(node, (ast.Break, ast.Continue)):
            return ("break" if isinstance(node, ast.Break) else "continue"), node.lineno
        inner = own and not isinstance(node, (ast.For, ast.While))
        pending[:0] = [(child, inner) for child in ast.iter_child_nodes(node)]
    return None


# -- rebound names ---------------------------------------------------------------------------------------------------


class _Use(NamedTuple):
    """A name that is read or bound, in Python's order of evaluation."""

    name: str
    stores: bool
    line: int


class Rebound(NamedTuple):
    """A name bound in a block, and the read that would see the new value, or the old one in the next iteration."""

    name: str
    bound_line: int
    read_line: int


def _uses(node: ast.AST) -> Iterator[_Use]:
    """The names that a syntax node reads and binds."""
    if isinstance(node, ast.Name):
        yield _Use(node.id, not isinstance(node.ctx, ast.Load), node.lineno)
    elif isinstance(node, ast.AugAssign):
        if isinstance(node.target, ast.Name):
            yield _Use(node.target.id, False, node.lineno)
        yield from itertools.chain(_uses(node.value), _uses(node.target))
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from _uses(node.value) if node.value is not None else ()
        yield from itertools.chain.from_iterable(map(_uses, targets))
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from itertools.chain(_uses(node.iter), _uses(node.target))
        yield from itertools.chain.from_iterable(map(_uses, [*node.body, *node.orelse]))
    elif isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS)):
        inner = list(itertools.chain.from_iterable(map(_uses, ast.iter_child_nodes(node))))
        own = {use.name for use in inner if use.stores} | {
            each.arg for each in ast.walk(node) if isinstance(each, ast.arg)
        }
        yield from (use for use in inner if use.name not in own)
    else:
        yield from itertools.chain.from_iterable(map(_uses, ast.iter_child_nodes(node)))


@lru_cache(maxsize=4096)
def rebindings(filename: str, line: int, loop: bool) -> tuple[Rebound, ...]:
    """The names that the block whose head is on this line binds, if a read may see the wrong value.

    loop: the block is repeated when the kernel runs, so that a read before the binding sees the first value again.
    """
    block, around = _blocks(filename).get(line, (None, ()))
    if block is None:
        return ()
    inside = list(itertools.chain.from_iterable(map(_uses, block.body)))
    paths = [_after(block, around)]
    if loop:
        paths.append(inside)
    for outer in around:  # a Python loop around the block reaches it again
        if isinstance(outer, (ast.For, ast.While)) and _same_function(outer, around):
            paths.append(list(itertools.chain.from_iterable(map(_uses, outer.body))))
    found = []
    for name in dict.fromkeys(use.name for use in inside if use.stores):
        bound = next(use.line for use in inside if use.stores and use.name == name)
        for path in paths:
            first = next((use for use in path if use.name == name), None)
            if first is not None and not first.stores:
                found.append(Rebound(name, bound, first.line))
                break
    return tuple(found)


def _same_function(outer: ast.AST, around: tuple[ast.AST, ...]) -> bool:
    """True if no function begins between an enclosing node and the block."""
    return not any(isinstance(each, _FUNCTIONS) for each in around[around.index(outer) + 1 :])


def _after(block: Block, around: tuple[ast.AST, ...]) -> list[_Use]:
    """The reads and bindings after a block in its function."""
    found: list[_Use] = []
    inner: ast.AST = block
    for outer in reversed(around):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(outer, field, None)
            if isinstance(statements, list) and inner in statements:
                behind = statements[statements.index(inner) + 1 :]
                found += itertools.chain.from_iterable(map(_uses, behind))
        if isinstance(outer, _FUNCTIONS):
            break
        inner = outer
    return found


class NameSnapshot:
    """The values of names before a traced block; `check`, at its end, refuses registers that were rebound."""

    def __init__(self, trace: Trace, loop: bool) -> None:
        self._trace, self._before = trace, {}
        self._frame: FrameType | None = trace.location.frame()
        if self._frame is None:
            return
        self._names = rebindings(self._frame.f_code.co_filename, self._frame.f_lineno, loop)
        if self._names:
            values = self._frame.f_locals
            self._before = {each.name: values[each.name] for each in self._names if each.name in values}

    def check(self) -> None:
        """Raise TraceError for a register or a number whose name now means another register and is read later."""
        frame, self._frame = self._frame, None
        if frame is None or not self._before:
            return
        values = frame.f_locals
        for each in self._names:
            before, now = self._before.get(each.name), values.get(each.name)
            if now is before or not _is_rebound(before, now):
                continue
            file = self._trace.location.name_of(frame.f_code.co_filename) or frame.f_code.co_filename
            raise TraceError(
                f"`{each.name}` is rebound in a traced block, line {each.bound_line}, and read in {each.read_line}",
                where=SourceLocation(file, each.bound_line),
                consequence="the block is traced once: the name would mean the new register whether or not the block "
                "runs, and each iteration of a loop would read the old one",
                hint=_hint(each.name, before),
                code="register-rebound",
            )


def _is_rebound(before: Any, now: Any) -> bool:
    number = isinstance(before, (int, float)) and not isinstance(before, bool)
    return isinstance(now, Traced) and (isinstance(before, Traced) or number)


def _hint(name: str, before: Any) -> str:
    if isinstance(before, Traced):
        return f"write to the register in place: {name} += ..., or {name}.set(...)"
    return f"make it a register before the block, {name} = reg.scalar(f32, {before}), and write {name} += ..."


# -- names that are assigned -----------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _assignments(filename: str) -> tuple[ast.Assign | ast.AnnAssign, ...]:
    """All assignments of a file, outer ones first."""
    tree = _tree(filename)
    return tuple(node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign))) if tree else ()


def assigned_name(frame: FrameType) -> str:
    """The variable that the current call in a frame is assigned to; "" if there is none.

    For `full, empty = smem.mbarrier(4), smem.mbarrier(4)` it is the variable at the call's position.
    """
    position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if position is None or position[0] is None:
        return ""
    line, column = position[0], position[2] or 0
    for node in _assignments(frame.f_code.co_filename):
        if node.value is not None and _holds(node, line, column):
            target: ast.AST = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                target = next((each for each, value in pairs if _holds(value, line, column)), target)
            return (
                target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
            )
    return ""


def _holds(node: ast.stmt | ast.expr, line: int, column: int) -> bool:
    """True if a position is inside a node."""
    last = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= (line, column) <= last
