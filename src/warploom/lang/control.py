"""Run-time control flow: `if_`, `elif_`, `else_`, `range`, `while_`, `do_while`, `loop`, `break_`,
`continue_`.

Each emits branches around a Python block that is traced once:

    with ptx.if_(p): A                 @!p bra $if1_skip;  A;  $if1_skip:
    with ptx.else_(): B                (after A) bra $if1_end;  $if1_skip:  B;  $if1_end:
    for i in ptx.range(n): A           mov i, 0;  $for1: setp.ge q, i, n;  @q bra $for1_end;  A;
                                       $for1_next: add i, i, 1;  bra $for1;  $for1_end:

Python's own break, continue and return inside such a block would drop code from the PTX. If the source can be read,
they are refused when the block starts; otherwise when a loop is found to be left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import update_wrapper
from types import FrameType
from typing import Generic, NoReturn, ParamSpec, TypeVar

from ..asm import nodes
from ..errors import SourceLocation, TraceError
from ..isa import dtypes
from ..isa.dtypes import DType
from . import source
from .emit import issue
from .predicate import Predicate
from .trace import Scope, Trace
from .values import Register, new

P = ParamSpec("P")
R = TypeVar("R")


class Construct(Generic[P, R]):
    """A control-flow function. For `with ptx.else_:`, without a call, it raises a helpful error."""

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        return self._function(*args, **options)

    def __enter__(self) -> NoReturn:
        name = f"ptx.{self._function.__name__}"
        raise Trace.current().error(
            f"`with {name}:` names the function and does not call it",
            hint=f"with {name}(...):",
            code="block-without-call",
        )

    def __exit__(self, *_: object) -> None:
        raise AssertionError("__enter__ raises")


# -- branches ------------------------------------------------------------------------------------------------------


def _condition(trace: Trace, condition: object, what: str) -> Predicate:
    if isinstance(condition, Predicate):
        return condition
    if isinstance(condition, Register):
        raise trace.error(f"{what} takes a predicate", got=repr(condition), hint="compare the register: x != 0",
                          code="branch-condition")  # fmt: skip
    if isinstance(condition, bool):
        raise trace.error(
            f"{what} takes a predicate; this condition is known while tracing",
            got=condition,
            hint="use Python's if",
            code="branch-condition",
        )
    raise trace.error(f"{what} takes a predicate", got=repr(condition), code="branch-condition")


def _check_function(trace: Trace, condition: object, what: str) -> None:
    if not callable(condition):
        raise trace.error(
            f"ptx.{what} takes a function that returns the predicate, so that the test is traced where it belongs",
            got=repr(condition), hint=f"ptx.{what}(lambda: x < n)",
        )  # fmt: skip


class _Branch:
    """One chain of if_, elif_, else_, with the state needed to attach the next arm."""

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
def _arm(trace: Trace, branch: _Branch, condition: Predicate | None, token: object) -> Iterator[None]:
    """One arm of a chain. Leaves its labels at the end of the statements, where `else_` finds and replaces them."""
    del trace.called[token]
    watch = source.NameSnapshot(trace, loop=False)
    scope = trace.open(Scope("branch", trace.location()))
    skip = ""
    if condition is not None:
        skip = branch.next_skip()
        trace.branch(skip, condition.guard(unless=True))
    yield
    watch.check()
    trace.close(scope)
    branch.tail = []
    if skip:
        branch.tail.append(trace.place(skip))
    if branch.arms > 1 or condition is None:
        branch.tail.append(trace.place(branch.end))
    trace.memo["branch"] = branch if condition is not None else None


def _reopen(trace: Trace, what: str) -> _Branch:
    """The chain whose last arm ends exactly here. Removes its labels and makes the arm jump to the end."""
    trace.check_entered(before=what)
    branch: _Branch | None = trace.memo.get("branch")
    statements = trace.statements
    tail = branch.tail if branch is not None else []
    found = statements[len(statements) - len(tail) :] if tail else []
    if branch is None or not tail or [id(item) for item in found] != [id(item) for item in tail]:
        raise trace.error(
            f"ptx.{what} does not directly follow the block of a ptx.if_",
            code="else-without-if",
            hint=f"nothing may come between: with ptx.if_(p): ...  with ptx.{what}(...): ...",
        )
    del statements[len(statements) - len(tail) :]
    trace.branch(branch.end)
    trace.place(branch.skip)
    return branch


@Construct
def if_(condition: Predicate) -> AbstractContextManager[None]:
    """Run the block in the threads whose predicate is true: `with ptx.if_(x == 0): ...` (one guarded bra)."""
    trace = Trace.current()
    token = _begin(trace, "ptx.if_(...)")
    return _arm(trace, _Branch(trace), _condition(trace, condition, "ptx.if_"), token)


@Construct
def elif_(condition: Callable[[], Predicate]) -> AbstractContextManager[None]:
    """The next arm of an `if_`: `with ptx.elif_(lambda: x == 1): ...`.

    The condition is a callable because its instructions must follow the previous arm's test.
    """
    trace = Trace.current()
    _check_function(trace, condition, "elif_")
    token = _begin(trace, "ptx.elif_(...)")
    branch = _reopen(trace, "elif_")
    return _arm(trace, branch, _condition(trace, condition(), "ptx.elif_"), token)


@Construct
def else_() -> AbstractContextManager[None]:
    """The else arm of the `if_` (or `elif_`) whose block ends right before it."""
    trace = Trace.current()
    token = _begin(trace, "ptx.else_()")
    return _arm(trace, _reopen(trace, "else_"), None, token)


def select(condition: Predicate, a: Register | int | float, b: Register | int | float) -> Register:
    """`a` if the predicate is true, else `b` (one selp). At least one of the two must be a register."""
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
        start, stop, step: registers or numbers; `step` is a number other than 0, or a positive register. `stop` and
            `step` are read once, before the loop.
        dtype: type of the index; by default the type of a register among the bounds, else u32 (s32 for negative
            numbers).
        unroll: False keeps ptxas from unrolling (.pragma "nounroll").

    Yields the index register once. Emits mov, setp, bra, add.
    """
    trace = Trace.current()
    if stop is None:
        start, stop = 0, start
    token = _begin(trace, "ptx.range(...)")
    return _range(trace, start, stop, step, _index_type(trace, start, stop, step, dtype), unroll, token)


def _index_type(trace: Trace, start: object, stop: object, step: object, dtype: DType | None) -> DType:
    if dtype is None:
        typed = [value.dtype for value in (stop, start, step) if isinstance(value, Register)]
        negative = any(isinstance(value, int) and value < 0 for value in (start, stop, step))
        dtype = typed[0] if typed else dtypes.s32 if negative else dtypes.u32
        if dtype in (dtypes.b32, dtypes.b64):
            dtype = dtypes.ALL[f"u{dtype.bits}"]
    if not dtype.is_integer:
        raise trace.error("ptx.range counts in integers", got=str(dtype), code="loop-bounds")
    for value in (start, stop, step):
        if not isinstance(value, (Register, int)) or isinstance(value, bool):
            raise trace.error("ptx.range takes registers and Python ints", got=repr(value), code="loop-bounds")
    if isinstance(step, int) and step == 0:
        raise trace.error("the step of ptx.range is 0", got=step, consequence="the loop would never end",
                          code="loop-bounds")  # fmt: skip
    if isinstance(step, int) and step < 0 and not dtype.is_signed:
        raise trace.error(
            "ptx.range cannot count down in an unsigned type",
            got=f"step {step}, type {dtype}",
            hint="pass dtype=s32",
            code="loop-bounds",
        )
    return dtype


def _range(
    trace: Trace, start: Register | int, stop: Register | int, step: Register | int, dtype: DType, unroll: bool,
    token: object,
) -> Iterator[Register]:  # fmt: skip
    del trace.called[token]
    watch = source.NameSnapshot(trace, loop=True)
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
    watch.check()
    trace.close(scope)
    trace.place(advance)
    issue(f"add.{dtype}", index, index, bounds[1], trace=trace)
    trace.branch(head)
    trace.place(end)


def _fixed(trace: Trace, value: Register | int, dtype: DType) -> Register | int:
    """A copy of a bound, so that it cannot change inside the loop."""
    if not isinstance(value, Register) or (value.constant and value.dtype is dtype):
        return value
    return new(trace, dtype, value)


@Construct
def while_(condition: Callable[[], Predicate]) -> AbstractContextManager[None]:
    """Repeat the block while `condition()` holds, tested before each iteration: `with ptx.while_(lambda: x < n):
    ...`."""
    trace = Trace.current()
    _check_function(trace, condition, "while_")
    return _while(trace, condition, _begin(trace, "ptx.while_(...)"))


@Construct
def loop() -> AbstractContextManager[None]:
    """Repeat the block until `ptx.break_` leaves it: `with ptx.loop(): ...`. Emits a label and one bra at its end."""
    return _while(Trace.current(), None, _begin(Trace.current(), "ptx.loop()"))


@contextmanager
def _while(trace: Trace, condition: Callable[[], Predicate] | None, token: object) -> Iterator[None]:
    """A loop that is left where its test fails, or only by `break_`."""
    del trace.called[token]
    watch = source.NameSnapshot(trace, loop=True)
    head, end = trace.new_labels("loop" if condition is None else "while", "", "_end")
    scope = trace.open(Scope("loop", trace.location(), end, head))
    trace.place(head)
    if condition is not None:
        trace.branch(end, _condition(trace, condition(), "ptx.while_").guard(unless=True))
    yield
    watch.check()
    trace.close(scope)
    trace.branch(head)
    trace.place(end)


@Construct
def do_while(condition: Callable[[], Predicate]) -> AbstractContextManager[None]:
    """Run the block, and repeat it while `condition()` holds, tested after each iteration.

    For a block that always runs at least once: its entry has no branch, so that ptxas can follow groups of MMAs that
    are in flight from before the loop into it.
    """
    trace = Trace.current()
    _check_function(trace, condition, "do_while")
    return _do_while(trace, condition, _begin(trace, "ptx.do_while(...)"))


@contextmanager
def _do_while(trace: Trace, condition: Callable[[], Predicate], token: object) -> Iterator[None]:
    del trace.called[token]
    watch = source.NameSnapshot(trace, loop=True)
    head, advance, end = trace.new_labels("do", "", "_next", "_end")
    scope = trace.open(Scope("loop", trace.location(), end, advance))
    trace.place(head)
    yield
    watch.check()
    trace.close(scope)
    trace.place(advance)
    trace.branch(head, _condition(trace, condition(), "ptx.do_while").guard())
    trace.place(end)


def break_(pred: Predicate | None = None) -> None:
    """Leave the innermost traced loop (one bra), in the threads of `pred` if given."""
    _jump("break_", pred)


def continue_(pred: Predicate | None = None) -> None:
    """Continue with the next iteration of the innermost traced loop (one bra), in the threads of `pred` if given."""
    _jump("continue_", pred)


def _jump(what: str, pred: Predicate | None) -> None:
    trace = Trace.current()
    loop = trace.innermost_loop(what)
    guard = _condition(trace, pred, f"ptx.{what}").guard() if pred is not None else None
    trace.branch(loop.break_label if what == "break_" else loop.continue_label, guard)


# -- the author's source ---------------------------------------------------------------------------------------------


def _begin(trace: Trace, what: str) -> object:
    """Record a construct's call, to be entered by `with` or `for`. Refuses Python's jumps out of its block."""
    frame: FrameType | None = trace.location.frame()
    found = source.python_jump(frame.f_code.co_filename, frame.f_lineno) if frame is not None else None
    if found is not None:
        word, line = found
        location = trace.location()
        raise TraceError(
            f"Python's `{word}` inside a traced block",
            where=SourceLocation(location.file if location else "", line),
            consequence="the block is traced once: Python would drop what follows from the PTX, for all threads",
            hint="return after the block; threads end with ptx.inst.exit()"
            if word == "return"
            else f"use ptx.{word}_()",
            code="python-jump",
        )
    token = object()
    trace.called[token] = (what, trace.location())
    return token
