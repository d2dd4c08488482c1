"""A loaded kernel: operations, sizes, registers to initialise, and the author's names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...asm.nodes import Function
from ...isa.arch import Arch
from ...isa.dtypes import DType
from .operation import Operation
from .registers import RegisterLayout, Row
from .special_values import special_row_bits
from .symbols import SharedPart, WarpRole, role_of

Fact = TypeVar("Fact")


@dataclass
class SharedVariable:
    """A named range of a CTA's shared memory."""

    name: str
    offset: int
    size: int
    part: SharedPart | None = None


@dataclass
class CtaConstant:
    """A register row that the core initialises at CTA start: a shared variable's address, %ctaid.x."""

    slot: int
    value: Callable[[object], object]


class Image:
    """A loaded kernel.

    Attributes:
        operations: in program order; program counters index them.
        layout: its registers; thread_rows, cta_constants: those that are initialised when a CTA starts.
        shared_start, shared_size: start and end of its own shared memory; local_bytes: per thread.
        stack_start: start of a thread's stack in its local memory.
        reserved_shared: bytes of the system's part, starting at 0, that it may access because it queries their address.
        shared_parts: the author's names for parts of its shared variables; roles: likewise for its warps.
        before_use: called before an instruction that names one of these registers, (bank, row) each.

    It holds no state of a run, so successive runs may share it; `restore` undoes what a run changes in it.
    """

    def __init__(self, entry: Function, arch: Arch) -> None:
        self.entry = entry
        self.arch = arch
        self.operations: list[Operation] = []
        self.layout = RegisterLayout()
        self.cta_constants: dict[object, CtaConstant] = {}
        self.thread_rows: dict[str, Row] = {}
        self.shared_start = self.shared_size = self.local_bytes = self.stack_start = self.reserved_shared = 0
        self.shared_variables: list[SharedVariable] = []
        self.function_addresses: dict[str, int] = {}
        self.shared_parts: tuple[SharedPart, ...] = ()
        self.roles: tuple[WarpRole, ...] = ()
        self._shared_names: list[SharedVariable] = []
        self._scratch: dict[tuple[int, np.dtype], int] = {}
        self._hidden: dict[str, Row] = {}
        self._facts: dict[Hashable, Any] = {}
        self._steps: dict[int, Callable[[Any], Any] | None] = {}
        self.before_use: list[tuple[frozenset[tuple[int, int]], Callable[[Any], None]]] = []

    def fact(self, key: Hashable, find: Callable[[], Fact]) -> Fact:
        """A fact derived from the text alone, computed when it is first requested under this key."""
        if key not in self._facts:
            self._facts[key] = find()
        return self._facts[key]

    def wrap(self, operation: Operation, step: Callable[[Any], Any]) -> None:
        """Replace an operation's step for the rest of the run."""
        self._steps.setdefault(operation.pc, operation.step)
        operation.step = step

    def restore(self) -> None:
        """Restore the image after a run."""
        for pc, step in self._steps.items():
            self.operations[pc].step = step
        self._steps.clear()

    def divide_shared(self, parts: Sequence[SharedPart]) -> None:
        """Give parts of shared variables the author's names, for messages."""
        self._shared_names.clear()
        self.shared_parts = tuple(part for part in parts if part.size)
        starts = {variable.name: variable.offset for variable in self.shared_variables}
        for part in parts:
            if part.variable in starts and part.size:
                start, size = starts[part.variable] + part.offset, part.size // part.count
                for index in range(part.count):
                    name = f"{part.name}[{index}]" if part.count > 1 else part.name
                    self._shared_names.append(SharedVariable(name, start + index * size, size, part))

    def name_shared(self, offset: int) -> str:
        """A shared address offset as `variable+offset`, or by the author's name, for messages."""
        variable = self._shared_at(offset)
        if variable is None:
            return f"shared memory byte {offset}"
        inside = offset - variable.offset
        return f"{variable.name}+{inside}" if inside else variable.name

    def place_shared(self, offset: int) -> str:
        """Like `name_shared`, with the row and the 16-byte chunk if the author's layout is known."""
        variable = self._shared_at(offset)
        place = variable.part.place(offset - variable.offset) if variable is not None and variable.part else ""
        return f"{variable.name}, {place}" if variable is not None and place else self.name_shared(offset)

    def _shared_at(self, offset: int) -> SharedVariable | None:
        for variable in (*self._shared_names, *self.shared_variables):
            if variable.offset <= offset < variable.offset + max(variable.size, 1):
                return variable
        return None

    def role(self, warp: int) -> str:
        """The author's name for this warp of a CTA; "" if unknown."""
        return role_of(self.roles, warp)

    # -- slots ---------------------------------------------------------------------------------------------------

    def cta_constant(self, key: object, bits: int, dtype: np.dtype, value: Callable[[object], object]) -> int:
        """A slot whose value is the same for all threads of a CTA and set when the CTA starts."""
        if (key, dtype) not in self.cta_constants:
            slot = self.layout.slot(self.layout.new_row(bits), dtype)
            self.cta_constants[key, dtype] = CtaConstant(slot, value)
        return self.cta_constants[key, dtype].slot

    def special(self, name: str) -> Row:
        """The row of a special register; the core initialises it."""
        if name not in self.thread_rows:
            self.thread_rows[name] = self.layout.new_row(special_row_bits(name))
        return self.thread_rows[name]

    def hidden(self, name: str, dtype: DType) -> int:
        """The slot of a register that no text names: the carry flag."""
        if name not in self._hidden:
            self._hidden[name] = self.layout.new_row(dtype.register_bits)
        return self.layout.slot(self._hidden[name], dtype)

    def scratch(self, bits: int, dtype: np.dtype) -> int:
        """A slot that is never read, for discarded results."""
        key = (bits, dtype)
        if key not in self._scratch:
            self._scratch[key] = self.layout.slot(self.layout.new_row(bits), dtype)
        return self._scratch[key]
