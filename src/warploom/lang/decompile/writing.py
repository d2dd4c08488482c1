"""Operands, instructions and blocks as lines of Python."""

from __future__ import annotations

import keyword
import math
import re
import struct
from collections.abc import Sequence

from ...asm import nodes
from ...asm.binding import bind
from ...asm.printer import instruction_text, operand_text, to_text
from ...errors import VerificationError, WarploomError
from ...isa import dtypes
from ...isa.dtypes import DType
from ...isa.special_registers import SPECIAL_REGISTERS
from ..emit import float_bits, integer_range
from ..inst import opcode_word
from .naming import Named, Registers, _python
from .structure import Block, Jump

REFUSED = ("callprototype", "calltargets")


class Writer:
    """A Python file with the kernels of one PTX module.

    Attributes:
        python_names: entry -> its name in the file.
    """

    def __init__(self, module: nodes.Module, source: str, file: str) -> None:
        """source: what the head of the file names as its origin, "" for nothing; file: that of lines of the PTX."""
        self.module, self.source, self.file = module, source, file
        self.kernels: list[str] = []
        self.dtypes: set[str] = set()
        self.python_names: dict[str, str] = {}
        self.lines: list[str] = []
        self.found = Named()
        self.place = ""
        self.beside: set[str] = set()  # variables declared with the functions

    def text(self) -> str:
        """The whole file."""
        came = f" of {self.source}" if self.source else ""
        names = ", ".join(self.python_names.values())
        head = [f'"""The kernel{"s" if len(self.python_names) > 1 else ""} {names}{came}, by `warploom python`."""', ""]
        head.append("from warploom import Param, ptx, ptx_kernel, reg")
        if self.dtypes:
            head.append(f"from warploom.types import {', '.join(sorted(self.dtypes))}")
        return "\n".join([*head, *self.kernels]) + "\n"

    # -- one kernel ----------------------------------------------------------------------------------------------

    def kernel(self, entry: nodes.Function, found: Named, body: Block, labels: set[str]) -> None:
        """Add a kernel to the file."""
        self.found, self.lines, self.place, self.beside = found, [], "", set()
        name = self.python_names[entry.name] = _python(entry.name)
        self._head(entry, name)
        declared: dict[str, str] = {}
        for python, node in found.variables.items():
            self._variable(python, node, declared)
        for registers in found.registers:
            if registers.used:
                self._registers(registers)
        if labels:
            ordered = [item.name for item in found.items if isinstance(item, nodes.Label) and item.name in labels]
            for at in range(0, len(ordered), 4):
                names = ordered[at : at + 4]
                self._line(1, f"{', '.join(names)} = {', '.join(['ptx.label()'] * len(names))}")
        before = len(self.lines)
        self._block(body, labels, 1)
        if len(self.lines) == before:
            self._line(1, "pass")
        self.kernels += ["", "", *self.lines]

    def _head(self, entry: nodes.Function, name: str) -> None:
        lines = ["@ptx_kernel("]
        if entry.parameters:
            shown = ",\n        ".join(map(_param, entry.parameters))
            lines.append(f"    parameters=(\n        {shown},\n    ),")
        lines.append(f"    arch={self.module.arch!r}, ptx_version={self.module.version!r},")
        if entry.directives:
            shown = ", ".join(f"({each.name!r}, {each.text!r})" for each in entry.directives)
            lines.append(f"    directives=({shown},),")
        if name != entry.name:
            lines.append(f"    name={entry.name!r},")
        if self.found.functions:
            lines.append(f"    functions={self._functions()},")
        self.lines += [*"\n".join(lines).splitlines(), ")"]
        self.lines.append(f"def {name}({', '.join(self.found.parameters)}):")

    def _functions(self) -> str:
        """The functions of the PTX, and the module variables that they name, as PTX."""
        kept: list[nodes.Function | nodes.Variable] = [
            i for i in self.module.items if isinstance(i, nodes.Function) and i.kind == "func"
        ]
        variables = [item for item in self.module.items if isinstance(item, nodes.Variable)]
        words: set[str] = set()
        while True:
            printed = to_text(nodes.Module(self.module.version, self.module.target, 64, tuple(kept)))
            words = set(re.findall(r"[\w$%]+", printed.split(".address_size 64", 1)[1]))
            more = [each for each in variables if each.name in words and each not in kept]
            if not more:
                break
            kept = [*more, *kept]
        self.beside = {each.name for each in variables if each in kept}
        return 'r"""\n' + printed.split(".address_size 64", 1)[1].strip() + '\n"""'

    def _variable(self, python: str, node: nodes.Variable, declared: dict[str, str]) -> None:
        if node.name in self.beside:
            self._line(1, f"{python} = ptx.symbol({node.name!r})")
            return
        name = node.name if node.name not in declared else python
        declared[name] = python
        parts = [repr(node.space), repr(node.type), repr(name)]
        parts += [repr(node.dims)] if node.dims else []
        parts += [f"align={node.align}"] if node.align is not None else []
        parts += [f"linkage={node.linkage!r}"] if node.linkage else []
        parts += [f"init={node.initializer!r}"] if node.initializer else []
        parts += [f"attributes={node.attributes!r}"] if node.attributes else []
        self._line(1, f"{python} = ptx.variable({', '.join(parts)})")

    def _registers(self, registers: Registers) -> None:
        count = max(registers.used) + 1
        if registers.type == "pred":
            made = "reg.predicate()" if registers.single else f"reg.predicates({count})"
        else:
            self.dtypes.add(registers.type)
            made = f"reg.scalar({registers.type})" if registers.single else f"reg.array({registers.type}, {count})"
        self._line(1, f"{registers.name} = {made}")

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # -- statements ----------------------------------------------------------------------------------------------

    def _block(self, block: Block, labels: set[str], depth: int) -> None:
        for part in block.parts:
            if isinstance(part, Block):
                self._line(depth, f"with ptx.{self._construct(part)}:")
                before = len(self.lines)
                self._block(part, labels, depth + 1)
                if len(self.lines) == before or all(line.lstrip().startswith("#") for line in self.lines[before:]):
                    self._line(depth + 1, "pass")
            elif isinstance(part, Jump):
                self._line(depth, self._jump(part))
            elif isinstance(part, nodes.Label):
                if part.name in labels and not self._is_table(part.name):
                    self._line(depth, f"ptx.place({part.name})")
            elif isinstance(part, nodes.Directive):
                self._directive(part, depth)
            else:
                self._said_place(part, depth)
                self._line(depth, self._instruction(part))

    def _construct(self, block: Block) -> str:
        if block.kind == "if":
            assert block.guard is not None
            return f"if_({self._guard(block.guard)})"
        if block.kind == "do":
            assert block.guard is not None
            return f"do_while(lambda: {self._guard(block.guard)})"
        return {"else": "else_()", "loop": "loop()"}[block.kind]

    def _jump(self, jump: Jump) -> str:
        guard = self._guard(jump.guard) if jump.guard is not None else ""
        if jump.kind == "goto":
            return f"ptx.goto({jump.label}{', ' + guard if guard else ''})"
        return f"ptx.{jump.kind}_({guard})"

    def _guard(self, guard: nodes.Guard) -> str:
        return guard.register + (".negated" if guard.negated else "")

    def _is_table(self, name: str) -> bool:
        """True if a label names a list of branch targets, whose declaration makes its own label."""
        items = self.found.items
        at = next(number for number, item in enumerate(items) if isinstance(item, nodes.Label) and item.name == name)
        following = items[at + 1] if at + 1 < len(items) else None
        return isinstance(following, nodes.Directive) and following.name == "branchtargets"

    def _directive(self, node: nodes.Directive, depth: int) -> None:
        if node.name in REFUSED:
            raise _no_form(f".{node.name}: calls through pointers")
        if node.name == "pragma":
            self._line(depth, f"ptx.pragma({node.text.strip().strip(chr(34))!r})")
        elif node.name == "branchtargets":
            items = self.found.items
            table = items[next(at for at, item in enumerate(items) if item == node) - 1]
            assert isinstance(table, nodes.Label)
            self._line(depth, f"{table.name} = ptx.branch_targets({node.text})")

    def _said_place(self, instruction: nodes.Instruction, depth: int) -> None:
        """The author's line of the instructions that follow, as a comment, if `.loc` has it."""
        place = instruction.location
        if place is None or place.file == self.file:
            return
        shown = f"{place.file.rpartition('/')[2]}:{place.line}"
        if shown != self.place:
            self.place = shown
            self._line(depth, f"# {shown}")

    def _instruction(self, node: nodes.Instruction) -> str:
        guard = [f"pred={self._guard(node.guard)}"] if node.guard is not None else []
        if node.opcode.split(".")[0] == "call":
            return self._call(node, guard)
        types = self._types(node)
        operands = [self._operand(each, dtype) for each, dtype in zip(node.operands, types, strict=True)]
        return f"{_opcode(node.opcode)}({', '.join([*operands, *guard])})"

    def _types(self, node: nodes.Instruction) -> list[DType | None]:
        """The type of constants for each operand; None if the row does not specify one."""
        try:
            match = bind(node, self.found.types).match
        except WarploomError as error:
            raise _no_form(f"`{instruction_text(node)}`: {error.what}") from None
        specs = match.form.operands
        return [dtypes.ALL.get(match.type_of(spec)) for spec in specs[: len(node.operands)]]

    def _call(self, node: nodes.Instruction, guard: list[str]) -> str:
        groups = [each for each in node.operands if isinstance(each, nodes.Group)]
        named = [at for at, each in enumerate(node.operands) if not isinstance(each, nodes.Group)]
        callee = node.operands[named[0]] if named else None
        if len(named) != 1 or not isinstance(callee, nodes.Register) or callee.name not in self.found.functions:
            raise _no_form(f"`{instruction_text(node)}`: a call through a pointer")
        parts = [repr(callee.name)]
        results = groups[0] if named[0] == 1 else None
        arguments = groups[-1] if len(groups) > (results is not None) else None
        if arguments is not None:
            parts.append(self._list(arguments.elements))
        if results is not None:
            parts.append(f"results={self._list(results.elements)}")
        if node.opcode != "call":
            parts.append(f"opcode={node.opcode!r}")
        return f"ptx.call({', '.join([*parts, *guard])})"

    # -- operands ------------------------------------------------------------------------------------------------

    def _list(self, elements: Sequence[nodes.Operand], dtype: DType | None = None) -> str:
        return f"[{', '.join(self._operand(each, dtype) for each in elements)}]"

    def _operand(self, node: nodes.Operand, dtype: DType | None) -> str:
        if isinstance(node, nodes.Register):
            if node.minus:
                raise _no_form(f"`-{node.name}`: a negated operand of vmad")
            return self._name(node.name) + (".negated" if node.negated else "")
        if isinstance(node, nodes.Symbol):
            return f"{self._name(node.name)} + {node.offset}" if node.offset else self._name(node.name)
        if isinstance(node, nodes.Integer):
            return _integer(node, dtype)
        if isinstance(node, nodes.Float):
            return _float(node, dtype)
        if isinstance(node, nodes.Address):
            offset = f", {node.offset}" if node.offset else ""
            base = (
                f"ptx.constant({str(node.base.value)!r})"
                if isinstance(node.base, nodes.Integer)
                else self._name(node.base.name)
            )
            return f"ptx.addr({base}{offset})"
        if isinstance(node, nodes.TensorAddress):
            return f"ptx.tensor_at({self._operand(node.base, None)}, {self._list(node.coordinates, dtypes.s32)})"
        if isinstance(node, nodes.Vector):
            return self._list(node.elements, dtype)
        if isinstance(node, nodes.Pair):
            return f"ptx.pair({self._operand(node.first, dtype)}, {self._operand(node.second, dtype)})"
        if isinstance(node, nodes.Sink):
            return "ptx.sink"
        raise _no_form(f"the operand `{operand_text(node)}`")

    def _name(self, name: str) -> str:
        if name in SPECIAL_REGISTERS:
            return f"ptx.special.{name[1:]}"
        if name in self.found.functions:
            raise _no_form(f"the address of the function {name}")
        return name


def _no_form(what: str) -> VerificationError:
    return VerificationError(
        f"{what} cannot be written as a kernel in Python",
        hint="the text itself runs: warploom.emulate(text, ...), warploom check FILE.ptx",
        code="no-python-form",
    )


def _param(node: nodes.Variable) -> str:
    parts = [repr(node.name), repr(node.type)]
    parts += [repr(node.dims)] if node.dims else []
    parts += [f"align={node.align}"] if node.align is not None else []
    parts += [f"attributes={node.attributes!r}"] if node.attributes else []
    return f"Param({', '.join(parts)})"


def _opcode(opcode: str) -> str:
    """`ptx.inst.ld.global_.u32`; the opcode as a string if attributes cannot spell it."""
    words = []
    for word in opcode.split("."):
        name = word.replace("::", "__")
        if name[0].isdigit():
            name = f"_{name}"
        if keyword.iskeyword(name):
            name = f"{name}_"
        if not name.isidentifier() or opcode_word(name) != word:
            return f"ptx.inst.__call__({opcode!r})"
        words.append(name)
    return "ptx.inst." + ".".join(words)


def _integer(node: nodes.Integer, dtype: DType | None) -> str:
    if dtype is not None:
        low, high = integer_range(dtype) if not dtype.is_float else (1, 0)
        if not low <= node.value <= high:
            return f"ptx.constant({str(node.value)!r})"
    return hex(node.value) if node.text[:2].lower() == "0x" and node.value >= 0 else str(node.value)


def _float(node: nodes.Float, dtype: DType | None) -> str:
    """A number that traces to a constant of the same value, otherwise its bits."""
    if dtype is not None and dtype.name in ("f32", "f64"):
        value = _value(node.raw, node.bits)
        if math.isfinite(value) and _value(float_bits(value, dtype), dtype.bits) == value:
            return repr(value)
    return f"ptx.constant({f'0f{node.raw:08X}' if node.bits == 32 else f'0d{node.raw:016X}'!r})"


def _value(raw: int, bits: int) -> float:
    return (
        struct.unpack("<f", struct.pack("<I", raw))[0] if bits == 32 else struct.unpack("<d", struct.pack("<Q", raw))[0]
    )
