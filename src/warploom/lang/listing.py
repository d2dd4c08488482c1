"""Elements of PTX that kernels of arrays and tiles do not need: named variables, labels and jumps, constants by their
bits, calls. `warploom python` writes kernels with them; use them if every word of the PTX matters.

Registers, instructions and control flow are those of every other kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..asm import nodes
from ..asm.constants import read_number
from .emit import Label, Operand
from .predicate import Predicate
from .trace import Trace
from .values import Register


class Variable(Operand):
    """A variable or parameter by name, plus a constant: `[name+16]` as an address, otherwise `name+16`.

    `variable + n` moves it by n bytes.
    """

    code: Any = "variable"

    def __init__(self, name: str, offset: int = 0) -> None:
        self.name, self.offset = name, offset

    def shift(self, amount: int) -> Variable:
        """The same variable, `amount` bytes further."""
        return Variable(self.name, self.offset + amount)

    __add__ = shift

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        if kind == "address":
            return nodes.Address(nodes.Symbol(self.name), self.offset)
        return nodes.Symbol(self.name, self.offset)


class Constant(Operand):
    """A number in PTX spelling; as an address operand, an absolute address."""

    def __init__(self, text: str) -> None:
        negative = text.startswith("-")
        found = read_number(text[negative:])
        if found is None:
            raise Trace.current().error("this is not a constant of PTX", got=text, expected="0f3F800000, 0x10, -1")
        if isinstance(found, nodes.Integer) and negative:
            found = nodes.Integer(-found.value, text)
        self.node = found
        self.code = ("constant", type(found).__name__, getattr(found, "bits", 0), negative)

    def shift(self, amount: int) -> Constant:
        """The address `amount` bytes further."""
        assert isinstance(self.node, nodes.Integer)
        return Constant(str(self.node.value + amount))

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        if kind == "address" and isinstance(self.node, nodes.Integer):
            return nodes.Address(self.node)
        return self.node


class _TensorAt(Operand):
    def __init__(self, address: Operand, coordinates: Sequence[Any]) -> None:
        self.address, self.coordinates = address, tuple(coordinates)
        kinds = [each.code if isinstance(each, Operand) else "#number" for each in coordinates]
        self.code = ("[", "map", address.code, *kinds)

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        base = self.address.operand(trace, "address")
        assert isinstance(base, nodes.Address)
        found = [
            each.operand(trace, "value") if isinstance(each, Operand) else nodes.Integer(int(each))
            for each in self.coordinates
        ]
        return nodes.TensorAddress(base, tuple(found))


def variable(
    space: str,
    type: str,
    name: str,
    dims: tuple[int, ...] = (),
    *,
    align: int | None = None,
    linkage: str = "",
    init: str = "",
    attributes: tuple[str, ...] = (),
) -> Variable:
    """Declare a variable.

    Args:
        space: "shared", "global", "const" (of the module), "local" or "param" (of the kernel).
        type: PTX type without its dot.
        dims: extents of an array; -1 for an empty bracket pair.
        align: in bytes. linkage: "extern", "visible", "weak", "common". init: the initialiser, as PTX.
        attributes: further directives between the space and the name.
    """
    trace = Trace.current()
    made = nodes.Variable(space, type, name, dims, align, linkage, init, attributes)
    if space in ("local", "param"):
        trace.prologue.append(made)
    else:
        trace.once(("variables",), list).append(made)
    return Variable(name)


def symbol(name: str) -> Variable:
    """A variable that the `functions` of a `@ptx_kernel` declare, by name."""
    return Variable(name)


def constant(text: str) -> Constant:
    """A constant in PTX spelling: `ptx.constant("0f7FC00001")`. For bits that no Python number represents."""
    return Constant(text)


def tensor_at(address: Operand, coordinates: Sequence[Register | int]) -> Operand:
    """`[address, {x, y}]`: a tensor map by its address, with coordinates in elements, innermost first."""
    return _TensorAt(address, coordinates)


# -- jumps ---------------------------------------------------------------------------------------------------------


def label() -> Label:
    """A jump target, to be placed with `ptx.place`."""
    return Label(Trace.current().new_labels("label", "")[0])


def place(target: Label) -> None:
    """Place a label here."""
    Trace.current().place(target.name)


def goto(target: Label, pred: Predicate | None = None) -> None:
    """Jump to a label, in the threads of `pred` if given (one bra). The label may be earlier or later, in any block."""
    Trace.current().branch(target.name, pred.guard() if pred is not None else None)


def branch_targets(*targets: Label) -> Label:
    """The list of labels that `ptx.inst.brx.idx(index, targets)` chooses from (.branchtargets)."""
    trace = Trace.current()
    name = trace.new_labels("targets", "")[0]
    trace.place(name)
    trace.append(nodes.Directive("branchtargets", ", ".join(target.name for target in targets)))
    return Label(name)


def pragma(text: str) -> None:
    """`.pragma "text";` here."""
    Trace.current().append(nodes.Directive("pragma", f'"{text}"'))


def call(
    function: str | Register,
    arguments: Sequence[Operand] = (),
    results: Sequence[Operand] = (),
    *,
    opcode: str = "call",
    pred: Predicate | None = None,
) -> None:
    """Call a function that the PTX defines or declares. Arguments and results are registers and .param variables."""
    trace = Trace.current()
    callee = function.node if isinstance(function, Register) else nodes.Register(function)
    operands: list[nodes.Operand] = []
    if results:
        operands.append(nodes.Group(tuple(each.operand(trace, "value") for each in results)))
    operands.append(callee)
    if arguments:
        operands.append(nodes.Group(tuple(each.operand(trace, "value") for each in arguments)))
    trace.emit(opcode, *operands, guard=pred.guard() if pred is not None else None)
