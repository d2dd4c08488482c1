"""A kernel under construction: one explicit object per kernel, and the Python location of each statement.

A `Trace` collects PTX nodes while a kernel's Python function runs. It is found through a context variable, so two
threads (or two nested calls) never see each other's. It holds two statement lists: the *prologue*, for values that
must dominate every use (parameters, the shared-memory base, descriptors), and the *body*, in the order of the calls.
Names of registers and labels come from counters, so the same Python gives the same PTX.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..asm import nodes
from ..errors import SourceLocation, TraceError
from ..isa.dtypes import ALL, DType, Kind

if TYPE_CHECKING:
    from .emit import Form
    from .protocol import Protocol

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_AUTHORS = _PACKAGE + "kernels" + os.sep
CURRENT: ContextVar[Trace | None] = ContextVar("warploom_trace", default=None)


def register_class(dtype: DType) -> tuple[str, str]:
    """The declared PTX type and the name stem of a register that holds a `dtype` (PTX ISA 5.2, 5.4).

    Integers, packed halves and tf32 are in untyped registers of their width, as in nvcc's output.
    """
    if dtype.kind is Kind.PREDICATE:
        return "pred", "%p"
    if dtype.name == "f32":
        return "f32", "%f"
    if dtype.name == "f64":
        return "f64", "%fd"
    return {8: ("b8", "%rc"), 16: ("b16", "%rs"), 32: ("b32", "%r"), 64: ("b64", "%rd"), 128: ("b128", "%rq")}[
        dtype.register_bits
    ]


@cache
def _names_of(type_name: str) -> tuple[str, str]:
    """The name stem of a type's registers, and the type that represents it in `Trace.declared`."""
    dtype = ALL[type_name]
    stem = register_class(dtype)[1]
    if dtype.bits >= 16 or dtype.kind is Kind.PREDICATE:
        return stem, type_name
    if dtype.register_bits == 8:
        return stem, "b8"
    return stem, f"{type_name[0]}16" if dtype.is_integer else "b16"  # 8-bit values are in 16-bit registers


@dataclass
class Scope:
    """An open construct: a branch, a loop, a role. Loops carry the labels that `break_` and `continue_` jump to."""

    kind: str
    location: SourceLocation | None
    break_label: str = ""
    continue_label: str = ""


class LocationFinder:
    """Python locations of instructions: the innermost frame of an author, in `kernels` or outside the package.

    A file of the package is named relative to the folder that contains the package, any other file relative to the
    folder of the kernel's own file (a file from elsewhere: with its last folder), so that PTX does not depend on where
    it was made.
    """

    def __init__(self, kernel_file: str) -> None:
        self._folder = os.path.dirname(os.path.abspath(kernel_file))
        self._names: dict[str, str | None] = {}
        self._looked_through: set[str] = set()
        self._locations: dict[tuple[str, int], SourceLocation] = {}

    def _name(self, filename: str) -> str | None:
        if filename.startswith(_AUTHORS):
            return os.path.relpath(filename, os.path.dirname(_PACKAGE.rstrip(os.sep))).replace(os.sep, "/")
        if filename.startswith((_PACKAGE, "<frozen ")) or filename == contextlib.__file__:
            return None  # "<frozen _collections_abc>": the loop in `(n,) = A.shape`
        if filename.startswith("<"):
            return filename
        path = os.path.abspath(filename)
        if path.startswith(self._folder + os.sep):
            return os.path.relpath(path, self._folder).replace(os.sep, "/")
        return "/".join(path.split(os.sep)[-2:])

    def name_of(self, filename: str) -> str | None:
        """The name of a file in the PTX, or None for files that are skipped."""
        try:
            return self._names[filename]
        except KeyError:
            name = self._names[filename] = self._name(filename)
            if name is None:
                self._looked_through.add(filename)
            return name

    def frame(self) -> FrameType | None:
        """The innermost frame of the user. Called for every instruction, below a dozen frames of the package."""
        frame: FrameType | None = sys._getframe(1)
        names, looked_through = self._names, self._looked_through
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename not in looked_through and (filename in names or self.name_of(filename) is not None):
                break
            frame = frame.f_back
        return frame

    def __call__(self) -> SourceLocation | None:
        frame = self.frame()
        if frame is None:
            return None
        key = (frame.f_code.co_filename, frame.f_lineno)
        location = self._locations.get(key)
        if location is None:
            name = self._names[key[0]] or key[0]
            location = self._locations[key] = SourceLocation(name, key[1])
        return location


@dataclass
class Trace:
    """One kernel under construction.

    Attributes:
        name: entry name.
        arch: target, `sm_90a`.
        ptx_version: PTX version.
        location: callable that returns the user's current Python line.
        prologue, body: statements so far; `emit` appends to the current target.
        variables: module-level variables (the shared-memory symbol is added at the end).
        scopes: open constructs, outermost first.
        protocol: the data of `kernel.protocol()`.
        written: names of output arrays that are stored to.
        aligned: required alignment of the address of each array, in bytes, for the widest access through it.
        called: constructs that were called but not entered yet, with the line of the call.
    """

    name: str
    arch: str
    ptx_version: tuple[int, int]
    location: LocationFinder
    protocol: Protocol
    prologue: list[nodes.Statement] = field(default_factory=list)
    body: list[nodes.Statement] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)
    forms: dict[Any, Form] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    aligned: dict[str, int] = field(default_factory=dict)
    called: dict[object, tuple[str, SourceLocation | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._target = self.body

    # -- the current trace -----------------------------------------------------------------------------------

    @staticmethod
    def current() -> Trace:
        """The trace of the kernel being built in this thread. Raises TraceError outside a kernel."""
        trace = CURRENT.get()
        if trace is None:
            raise TraceError(
                "there is no kernel under construction here",
                hint="registers, shared memory and instructions are made inside a function decorated with @kernel",
                code="outside-kernel",
            )
        return trace

    @contextmanager
    def active(self) -> Iterator[Trace]:
        """Make this the current trace of the thread."""
        token = CURRENT.set(self)
        try:
            yield self
        finally:
            CURRENT.reset(token)

    def error(self, what: str, **parts: Any) -> TraceError:
        """A TraceError at the user's current line (or at `where`)."""
        parts.setdefault("where", self.location())
        return TraceError(what, **parts)

    # -- names -----------------------------------------------------------------------------------------------

    def fresh(self, dtype: DType) -> str:
        """The next register name of a type's class, `%r7`."""
        stem, declared = _names_of(dtype.name)
        number = self.counters.get(stem, 0) + 1
        self.counters[stem] = number
        name = f"{stem}{number}"
        self.declared[name] = declared
        return name

    def new_labels(self, stem: str, *ends: str) -> tuple[str, ...]:
        """Label names of one construct: `$for3`, `$for3_end`."""
        number = self.counters.get("$", 0) + 1
        self.counters["$"] = number
        return tuple(f"${stem}{number}{end}" for end in ends)

    # -- statements ------------------------------------------------------------------------------------------

    def emit(self, opcode: str, *operands: nodes.Operand, guard: nodes.Guard | None = None) -> nodes.Instruction:
        """Append one instruction at the user's current line, unchecked (`inst.issue` checks)."""
        instruction = nodes.Instruction(opcode, operands, guard, self.location())
        self._target.append(instruction)
        return instruction

    @property
    def statements(self) -> list[nodes.Statement]:
        """The list that `emit` appends to."""
        return self._target

    def append(self, statement: nodes.Statement) -> None:
        """Append any statement."""
        self._target.append(statement)

    def branch(self, label: str, guard: nodes.Guard | None = None) -> None:
        """Jump to a label."""
        self.emit("bra", nodes.Register(label), guard=guard)

    def place(self, label: str) -> nodes.Label:
        """Place a label here."""
        node = nodes.Label(label)
        self._target.append(node)
        return node

    @contextmanager
    def in_prologue(self) -> Iterator[None]:
        """Emit into the prologue, which dominates the whole body."""
        before = self._target
        self._target = self.prologue
        try:
            yield
        finally:
            self._target = before

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value that `make` computes in the prologue, once per key."""
        if key not in self.memo:
            with self.in_prologue():
                self.memo[key] = make()
        return self.memo[key]

    # -- constructs ------------------------------------------------------------------------------------------

    def open(self, scope: Scope) -> Scope:
        """Enter a construct."""
        self.scopes.append(scope)
        return scope

    def close(self, scope: Scope) -> None:
        """Leave a construct; all inner constructs must have been left before."""
        if self.scopes and self.scopes[-1] is scope:
            self.scopes.pop()
            return
        self.check_closed(scope)

    def check_closed(self, outer: Scope | None = None) -> None:
        """Raise TraceError for a construct inside `outer` (or anywhere) that Python left before its end."""
        open_scopes = self.scopes
        if outer is not None and outer in open_scopes:
            open_scopes = open_scopes[open_scopes.index(outer) + 1 :]
        if open_scopes:
            inner = open_scopes[0]
            raise TraceError(
                f"Python left this {inner.kind} before its end while the kernel was traced",
                where=inner.location,
                consequence="the end of the loop would be missing from the PTX",
                hint="use ptx.break_() and ptx.continue_() inside ptx.range and ptx.while_, not Python's own",
                code="python-jump",
            )

    def check_entered(self, before: str = "") -> None:
        """Raise TraceError for a construct that was called but never entered. before: the construct called last."""
        for what, where in list(self.called.values())[: -1 if before else None]:
            word = "for" if "range" in what else "with"
            raise TraceError(
                f"{what} is called without `{word}`, so its block is not part of it",
                where=where,
                consequence="its body would run once, in all threads",
                hint=f"for i in {what}:" if word == "for" else f"with {what}:",
                code="block-without-with",
            )

    def innermost_loop(self, what: str) -> Scope:
        """The loop that `break_` or `continue_` refers to."""
        for scope in reversed(self.scopes):
            if scope.kind == "loop":
                return scope
        raise self.error(f"ptx.{what} is outside any ptx.range or ptx.while_", code="jump-outside-loop")
