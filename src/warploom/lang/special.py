"""`ptx.special`: special registers, read at the call.

`ptx.special.tid.x()` is one mov from %tid.x into a new register (PTX ISA 10).
"""

from __future__ import annotations

from ..asm import nodes
from ..isa import arch as isa_arch
from ..isa.special_registers import SPECIAL_REGISTERS
from .emit import Operand
from .predicate import Predicate
from .trace import Trace
from .values import Register


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

    def __repr__(self) -> str:
        return f"ptx.special{self._name.replace('%', '.')}"


special = Special("%")
