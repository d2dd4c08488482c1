"""Run-time control flow: `if_`, `elif_`, `else_`, `range`, `while_`, `do_while`, `break_`, `continue_`.

Each emits setp-free branches around a Python block that is traced once:

    with ptx.if_(p): A                 @!p bra $if1_skip;  A;  $if1_skip:
    with ptx.else_(): B                (behind A) bra $if1_end;  $if1_skip:  B;  $if1_end:
    for i in ptx.range(n): A           mov i, 0;  $for1: setp.ge q, i, n;  @q bra $for1_end;  A;
                                       $for1_next: add i, i, 1;  bra $for1;  $for1_end:

Python's own break, continue and return inside such a block would drop code from the PTX; where the source can be read
they are refused when the block starts, otherwise when a loop turns out to be left open.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from types import FrameType

from ..asm import nodes
from ..errors import SourceLocation, TraceError
from ..isa import dtypes
from ..isa.dtypes import DType
from .emit import issue
from .predicate import Predicate
from .trace import Scope, Trace
from .values import Register, new

# -- branches ------------------------------------------------------------------------------------------------------


def _condition(trace: Trace, condition: object, what: str) -> Predicate:
    if isinstance(condition, Predicate):
        return condition
    if isinstance(condition, Register):
        raise trace.error(f"{what} takes a predicate", got=repr(condition), hint="compare the register: x != 0")
    if isinstance(condition, bool):
        raise trace.error(
            f"{what} takes a predicate; this condition is known while tracing", got=condition, hint="use Python's if"
        )
    raise trace.error(f"{what} takes a predicate", got=repr(condition))


class _Branch:
    """One chain of if_, elif_, else_: what is needed to attach the next arm to it."""

    def __init__(self, trace: Trace) -> None:
        self.end, self._stem = trace.new_labels("if", "_end", "")
        self.arms = 0
        self.skip = ""
        self.tail: list[nodes.Label] = []

    def next_skip(self) -> str:
        self.arms += 1
        self.skip = f"{self._stem}_skip{self.arms if self.arms > 1 else ''}"
        return self.skip


@contextmanager
def _arm(trace: Trace, branch: _Branch, condition: Predicate | None, kind: str) -> Iterator[None]:
    """One arm of a chain; leaves its labels at the end of the statements, where `else_` finds and replaces them."""
    scope = trace.open(Scope(kind, trace.location()))
    skip = ""
    if condition is not None:
        skip = branch.next_skip()
        trace.branch(skip, nodes.Guard(condition.name, negated=True))
    yield
    trace.close(scope)
    branch.tail = []
    if skip:
        branch.tail.append(trace.place(skip))
    if branch.arms > 1 or condition is None:
        branch.tail.append(trace.place(branch.end))
    trace.memo["branch"] = branch if condition is not None else None


def _reopen(trace: Trace, what: str) -> _Branch:
    """The chain whose last arm ends exactly here; its labels are taken back and the arm jumps to the end."""
    branch: _Branch | None = trace.memo.get("branch")
    statements = trace.statements
    tail = branch.tail if branch is not None else []
    found = statements[len(statements) - len(tail) :] if tail else []
    if branch is None or not tail or [id(item) for item in found] != [id(item) for item in tail]:
        raise trace.error(
            f"ptx.{what} does not directly follow the block of a ptx.if_",
            hint=f"nothing may stand between: with ptx.if_(p): ...  with ptx.{what}(...): ...",
        )
    del statements[len(statements) - len(tail) :]
    trace.branch(branch.end)
    trace.place(branch.skip)
    return branch


def if_(condition: Predicate) -> AbstractContextManager[None]:
    """Run the block in the threads whose predicate is true: `with ptx.if_(x == 0): ...` (one guarded bra)."""
    trace = Trace.current()
    _refuse_python_jumps(trace)
    return _arm(trace, _Branch(trace), _condition(trace, condition, "ptx.if_"), "branch")


def elif_(condition: Callable[[], Predicate]) -> AbstractContextManager[None]:
    """The next arm of an `if_`: `with ptx.elif_(lambda: x == 1): ...`.

    The condition is a callable because its instructions belong behind the test of the arm before.
    """
    trace = Trace.current()
    if not callable(condition):
        raise trace.error(
            "ptx.elif_ takes a function that gives the predicate", got=repr(condition), hint="ptx.elif_(lambda: x == 1)"
        )
    _refuse_python_jumps(trace)
    branch = _reopen(trace, "elif_")
    return _arm(trace, branch, _condition(trace, condition(), "ptx.elif_"), "branch")


def else_() -> AbstractContextManager[None]:
    """The other arm of the `if_` (or `elif_`) whose block ends right before it."""
    trace = Trace.current()
    _refuse_python_jumps(trace)
    return _arm(trace, _reopen(trace, "else_"), None, "branch")


def select(condition: Predicate, a: Register | int | float, b: Register | int | float) -> Register:
    """`a` where the predicate is true, else `b` (one selp). At least one of the two is a register."""
    trace = Trace.current()
    condition = _condition(trace, condition, "ptx.select")
    typed = a if isinstance(a, Register) else b
    if not isinstance(typed, Register):
        raise trace.error("ptx.select needs a register among its two values, to know the type", got=f"{a!r} and {b!r}")
    dtype = typed.dtype
    result = Register(trace, dtype)
    suffix = dtype.name if dtype.name in ("f32", "f64") else f"b{dtype.register_bits}"
    values = [value if isinstance(value, Register) else float(value) if dtype.is_float else value for value in (a, b)]
    issue(f"selp.{suffix}", result, *values, condition, trace=trace)
    return result


# -- loops ---------------------------------------------------------------------------------------------------------


def range(  # noqa: A001 - the name an author expects
    start: Register | int,
    stop: Register | int | None = None,
    step: Register | int = 1,
    *,
    dtype: DType | None = None,
    unroll: bool = True,
) -> Iterator[Register]:
    """A run-time loop: `for i in ptx.range(n):` or `ptx.range(start, stop, step)`; its body is traced once.

    Args:
        start, stop, step: registers or numbers; `step` is a number other than 0, or a register that is positive.
            `stop` and `step` are read once, before the loop.
        dtype: type of the index; by default the type of a register among the bounds, else u32 (s32 for negative
            numbers).
        unroll: False keeps ptxas from unrolling (.pragma "nounroll").

    Yields the index register once. Emits mov, setp, bra, add.
    """
    trace = Trace.current()
    if stop is None:
        start, stop = 0, start
    _refuse_python_jumps(trace)
    return _range(trace, start, stop, step, _index_type(trace, start, stop, step, dtype), unroll)


def _index_type(trace: Trace, start: object, stop: object, step: object, dtype: DType | None) -> DType:
    if dtype is None:
        typed = [value.dtype for value in (stop, start, step) if isinstance(value, Register)]
        negative = any(isinstance(value, int) and value < 0 for value in (start, stop, step))
        dtype = typed[0] if typed else dtypes.s32 if negative else dtypes.u32
        if dtype in (dtypes.b32, dtypes.b64):
            dtype = dtypes.ALL[f"u{dtype.bits}"]
    if not dtype.is_integer:
        raise trace.error("ptx.range counts in integers", got=str(dtype))
    for value in (start, stop, step):
        if not isinstance(value, (Register, int)) or isinstance(value, bool):
            raise trace.error("ptx.range takes registers and Python ints", got=repr(value))
    if isinstance(step, int) and step == 0:
        raise trace.error("the step of ptx.range is 0", consequence="the loop would never end")
    if isinstance(step, int) and step < 0 and not dtype.is_signed:
        raise trace.error(
            "ptx.range cannot count down in an unsigned type", got=f"step {step}, type {dtype}", hint="pass dtype=s32"
        )
    return dtype


def _range(
    trace: Trace, start: Register | int, stop: Register | int, step: Register | int, dtype: DType, unroll: bool
) -> Iterator[Register]:
    head, advance, end = trace.new_labels("for", "", "_next", "_end")
    scope = trace.open(Scope("loop", trace.location(), end, advance))
    bounds = [_fixed(trace, value, dtype) for value in (stop, step)]
    index = new(trace, dtype, start)
    if not unroll:
        trace.append(nodes.Directive("pragma", '"nounroll"'))
    trace.place(head)
    down = isinstance(step, int) and step < 0
    done = index <= bounds[0] if down else index >= bounds[0]
    trace.branch(end, nodes.Guard(done.name))
    yield index
    trace.close(scope)
    trace.place(advance)
    issue(f"add.{dtype}", index, index, bounds[1], trace=trace)
    trace.branch(head)
    trace.place(end)


def _fixed(trace: Trace, value: Register | int, dtype: DType) -> Register | int:
    """A bound that cannot change inside the loop."""
    if not isinstance(value, Register) or (value.constant and value.dtype is dtype):
        return value
    return new(trace, dtype, value)


@contextmanager
def while_(condition: Callable[[], Predicate]) -> Iterator[None]:
    """Repeat the block while `condition()` holds, tested before each round: `with ptx.while_(lambda: x < n): ...`."""
    trace = Trace.current()
    if not callable(condition):
        raise trace.error(
            "ptx.while_ takes a function that gives the predicate, so that the test is traced into the loop",
            got=repr(condition),
            hint="ptx.while_(lambda: x < n)",
        )
    _refuse_python_jumps(trace)
    head, end = trace.new_labels("while", "", "_end")
    scope = trace.open(Scope("loop", trace.location(), end, head))
    trace.place(head)
    test = _condition(trace, condition(), "ptx.while_")
    trace.branch(end, nodes.Guard(test.name, negated=True))
    yield
    trace.close(scope)
    trace.branch(head)
    trace.place(end)


@contextmanager
def do_while(condition: Callable[[], Predicate]) -> Iterator[None]:
    """Run the block, and repeat it while `condition()` holds, tested after each round.

    For a block that always runs at least once: the way in has no branch, so that ptxas can follow wgmma groups that
    are in flight from before the loop into it.
    """
    trace = Trace.current()
    if not callable(condition):
        raise trace.error(
            "ptx.do_while takes a function that gives the predicate, so that the test is traced into the loop",
            got=repr(condition),
            hint="ptx.do_while(lambda: x < n)",
        )
    _refuse_python_jumps(trace)
    head, advance, end = trace.new_labels("do", "", "_next", "_end")
    scope = trace.open(Scope("loop", trace.location(), end, advance))
    trace.place(head)
    yield
    trace.close(scope)
    trace.place(advance)
    test = _condition(trace, condition(), "ptx.do_while")
    trace.branch(head, nodes.Guard(test.name))
    trace.place(end)


def break_(pred: Predicate | None = None) -> None:
    """Leave the innermost traced loop (one bra), in the threads of `pred` if given."""
    _jump("break_", pred)


def continue_(pred: Predicate | None = None) -> None:
    """Go on with the next round of the innermost traced loop (one bra), in the threads of `pred` if given."""
    _jump("continue_", pred)


def _jump(what: str, pred: Predicate | None) -> None:
    trace = Trace.current()
    loop = trace.innermost_loop(what)
    guard = nodes.Guard(_condition(trace, pred, f"ptx.{what}").name) if pred is not None else None
    trace.branch(loop.break_label if what == "break_" else loop.continue_label, guard)


# -- Python's own jumps ----------------------------------------------------------------------------------------------


def _refuse_python_jumps(trace: Trace) -> None:
    frame: FrameType | None = trace.location.frame()
    if frame is None:
        return
    found = _python_jump(frame.f_code.co_filename, frame.f_lineno)
    if found is not None:
        word, line = found
        location = trace.location()
        raise TraceError(
            f"Python's `{word}` inside a traced block",
            where=SourceLocation(location.file if location else frame.f_code.co_filename, line),
            consequence="the block is traced once: Python would drop what follows from the PTX, for all threads",
            hint="return behind the block; threads end with ptx.inst.exit()"
            if word == "return"
            else f"use ptx.{word}_()",
        )


@lru_cache(maxsize=64)
def _loops(filename: str) -> dict[int, ast.stmt]:
    """The for and with statements of a file by the lines of their heads; {} where the source cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return {}
    loops: dict[int, ast.stmt] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.With)):
            head_end = node.body[0].lineno - 1
            for line in builtins.range(node.lineno, max(head_end, node.lineno) + 1):
                loops.setdefault(line, node)
    return loops


@lru_cache(maxsize=4096)
def _python_jump(filename: str, line: int) -> tuple[str, int] | None:
    """The first break, continue or return that leaves the traced block whose head is on this line."""
    loop = _loops(filename).get(line)
    if loop is None or not isinstance(loop, (ast.For, ast.With)):
        return None
    pending: list[tuple[ast.AST, bool]] = [(item, True) for item in loop.body]
    while pending:
        node, own = pending.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return):
            return "return", node.lineno
        if own and isinstance(node, (ast.Break, ast.Continue)):
            return ("break" if isinstance(node, ast.Break) else "continue"), node.lineno
        inner = own and not isinstance(node, (ast.For, ast.While))
        pending[:0] = [(child, inner) for child in ast.iter_child_nodes(node)]
    return None
