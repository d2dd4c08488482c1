"""`ptx.special`: special registers, read at the call.

`ptx.special.tid.x()` is one mov from %tid.x into a new register (PTX ISA 10).
"""

from __future__ import annotations

from typing import NoReturn

from ..asm import nodes
from ..isa import arch as isa_arch
from ..isa.special_registers import SPECIAL_REGISTERS
from .emit import Operand
from .predicate import Predicate
from .trace import Trace
from .values import Register

_OF_REGISTERS = ("to", "view", "copy", "dtype", "shift")
"""Attributes of operands that have a value; no special register has such a component."""


class Special(Operand):
    """A special register, or the first part of its name. Calling it reads it; mov and cvt take it directly."""

    __slots__ = ("_name", "code")

    def __init__(self, name: str) -> None:
        self._name = name
        self.code = ("special", name)

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return nodes.Register(self._name)

    def __getattr__(self, name: str) -> Special:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OF_REGISTERS:
            self._not_read()
        return Special(f"{self._name}.{name}" if self._name != "%" else f"%{name}")

    def __call__(self) -> Register:
        trace = Trace.current()
        known = SPECIAL_REGISTERS.get(self._name)
        if known is None:
            axes = [axis for axis in "xyz" if f"{self._name}.{axis}" in SPECIAL_REGISTERS]
            raise trace.error(
                f"unknown special register {self._name}",
                hint=f"it has components: ptx.special{self._name.replace('%', '.')}.x()" if axes else "see PTX ISA 10",
            )
        if not isa_arch.get(trace.arch).supports(known.arch):
            raise trace.error(
                f"{self._name} does not exist on {trace.arch}", expected=f"{known.arch} or later", got=trace.arch
            )
        if known.dtype.name == "pred":
            flag = Predicate(trace)
            trace.emit("mov.pred", flag.node, nodes.Register(self._name))
            return flag  # type: ignore[return-value]
        result = Register(trace, known.dtype)
        trace.emit(f"mov.{known.dtype}", result.node, nodes.Register(self._name))
        return result

    def _not_read(self, *_: object) -> NoReturn:
        """Refuse an operation on the register itself: its value is that at the time of a call."""
        raise Trace.current().error(
            f"{self!r} is a special register that was not read", expected=f"{self!r}()", got=repr(self),
            code="special-not-read",
        )  # fmt: skip

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = _not_read
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _not_read
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __index__ = _not_read
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, Register)):
            self._not_read()
        return self is other

    def __repr__(self) -> str:
        return f"ptx.special{self._name.replace('%', '.')}"


special = Special("%")
