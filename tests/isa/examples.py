"""Example instructions made from the rows of the table, and the kernel text that holds them.

The tests of the table, the verifier and the emulator share them. Registers are
named after their type, `%s32_0`, so that an example shows which operand has which type.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from warploom.isa import dtypes
from warploom.isa.dtypes import Kind
from warploom.isa.instructions.schema import Form, Match, Modifiers, OperandSpec, Slot

REGISTERS_PER_TYPE = 144
LABEL = "L0"
_VARIANTS = 64

# ptxas 13 builds for sm_75 and newer; each target has a first PTX version of its own.
_FIRST_PTX = {
    "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4), "sm_89": (7, 8), "sm_90": (7, 8),
    "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_103": (8, 8), "sm_103a": (8, 8), "sm_110a": (9, 0),
    "sm_120": (8, 7), "sm_120a": (8, 7),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One instruction with what it needs: target, PTX version, and the row it came from."""

    form: Form
    text: str
    arch: str
    ptx: tuple[int, int]

    @property
    def target(self) -> str:
        """The oldest target of ptxas 13 that has it; of a family, its first chip."""
        return self.arch.replace("f", "a") if arch_number(self.arch) > 75 else "sm_75"

    @property
    def version(self) -> tuple[int, int]:
        """The oldest PTX version that has it and its target."""
        return max(self.ptx, _FIRST_PTX[self.target])


def arch_number(arch: str) -> int:
    """90 for "sm_90a"."""
    return int(re.sub(r"\D", "", arch))


def first_ptx(arch: str) -> tuple[int, int]:
    """The first PTX version that knows a target."""
    return _FIRST_PTX[arch]


def needs_of(form: Form, modifiers: Modifiers) -> tuple[str, tuple[int, int]]:
    """The oldest target and PTX version of a row with these modifiers."""
    arch, ptx = form.arch.split()[0], form.ptx
    for _, later, version in form.requirements(modifiers):
        arch = max((arch, later.split()[0]), key=lambda name: (arch_number(name), name))
        ptx = max(ptx, version)
    return arch, ptx


def register_class(type_name: str) -> str:
    """The type of the register that holds a value of this type: 8-bit and packed ones live in `.bN` registers."""
    dtype = dtypes.ALL[type_name]
    if dtype.kind is Kind.PREDICATE:
        return "pred"
    if type_name in ("f32", "f64") or (dtype.is_integer and dtype.bits >= 16):
        return type_name
    return f"b{dtype.register_bits}"


def register_class_or(type_name: str, default: str = "b32") -> str:
    """`register_class`, or `default` for a type the package has no dtype for (u16x2)."""
    return register_class(type_name) if type_name in dtypes.ALL else default


class _Registers:
    """Hands out register names, so that no operand of an instruction shares one."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def take(self, type_name: str, exact: bool = False) -> str:
        kind = type_name if exact else register_class(type_name)
        number = self.used.get(kind, 0)
        self.used[kind] = number + 1
        return f"%{kind}_{number % REGISTERS_PER_TYPE}"


def _operand(spec: OperandSpec, match: Match, registers: _Registers) -> str:
    if spec.kind == "address" and spec.space == "tensor":
        return f"[%{spec.type or 'u32'}_{90 + len(registers.used) % 2}]"
    if spec.kind == "address":
        return f"[%u64_{90 + len(registers.used) % 2}]"
    if spec.kind == "tensor_address" and spec.space:
        count, arrays = match.length_of(spec) or 0, (match.modifiers["geom"] or "").startswith("a")
        types = ["u32" if at == 0 and arrays else match.type_of(spec) for at in range(count)]
        return f"[%u64_90, {{{', '.join(map(registers.take, types))}}}]"
    if spec.kind == "tensor_address":
        dims = next(
            (int(value[0]) for value in match.modifiers.values() if value and re.fullmatch(r"[1-5]d", value)), 2
        )
        return "[%u64_90, {" + ", ".join(registers.take("s32") for _ in range(dims)) + "}]"
    if spec.kind == "immediate":
        legal = match.form.ranges.get(spec.name, ((1,), ""))[0]
        return "1" if 1 in legal else str(next(iter(legal)))
    if spec.kind == "label":
        return LABEL
    if spec.kind == "sink":
        return "_"
    if spec.kind in ("symbol", "any"):
        return "buffer"
    type_name = match.type_of(spec) or "b32"
    length, exact = match.length_of(spec), spec.exact or spec.type == "b8"  # parts of 8 bits of a mov
    if length is None:
        text = registers.take(type_name, exact)
    else:
        text = "{" + ", ".join(registers.take(type_name, exact) for _ in range(length)) + "}"
    if spec.second is not None:
        text += "|" + _operand(spec.second, match, registers)
    return text


def instruction_text(match: Match, opcode: str, optional: bool = False) -> str:
    """One complete instruction of a matched opcode, with or without the operands that may be left out."""
    registers = _Registers()
    written = [spec for spec in match.form.operands if not spec.optional or (optional and match.length_of(spec) != 0)]
    operands = [_operand(spec, match, registers) for spec in written]
    return f"{opcode} {', '.join(operands)};" if operands else f"{opcode};"


def _choices(slot: Slot) -> tuple[str | None, ...]:
    """What may stand in a slot; None for nothing."""
    if slot.regex is not None:
        return (None,) if slot.optional else ()
    return (None, *slot.choices) if slot.optional else slot.choices


def _legal(form: Form) -> Iterator[tuple[str, Modifiers]]:
    """The first 20,000 opcodes of a row whose modifiers may be combined, and what each slot took."""
    names = [slot.name for slot in form.modifier_slots]
    every = itertools.product(*map(_choices, form.modifier_slots))
    for words in itertools.islice(every, 20_000):
        modifiers = dict(zip(names, words, strict=True))
        if not (form.check and form.check(modifiers)):
            yield ".".join([form.base, *filter(None, words)]), modifiers


def opcodes(form: Form, most: int = _VARIANTS) -> Iterator[tuple[str, Modifiers]]:
    """Opcodes of a row that show every choice of every slot at least once; all of them where they are few."""
    legal = list(_legal(form))
    if len(legal) <= most:
        yield from legal
        return
    shown: set[tuple[str, str | None]] = set()
    for opcode, modifiers in legal:
        if not modifiers.items() <= shown:
            shown |= modifiers.items()
            yield opcode, modifiers


@cache
def examples(form: Form, most: int = _VARIANTS) -> tuple[Example, ...]:
    """Examples of a row: its own `example` where it has one, else one or more of each opcode of `opcodes`."""
    if form.example:
        opcode = form.example.split()[0].rstrip(";")
        own = form.match(tuple(opcode.split(".")[1:])) or {}
        return (Example(form, form.example, *needs_of(form, own)),)
    found: list[Example] = []
    for opcode, modifiers in opcodes(form, most):
        match = Match(form, modifiers)
        needs = needs_of(form, modifiers)
        texts = dict.fromkeys(instruction_text(match, opcode, optional) for optional in (False, True))
        found += [Example(form, text, *needs) for text in texts]
    return tuple(found)


# Names that the rows' own examples use.
_SHORT = {"r": "b32", "rd": "b64", "f": "f32", "fd": "f64", "h": "b16", "rs": "b16", "p": "pred", "q": "b128"}
_DECLARED = ("pred", "b8", "b16", "b32", "b64", "b128", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def kernel_text(instructions: Iterable[str], target: str, version: tuple[int, int]) -> tuple[str, dict[int, int]]:
    """A module whose kernels hold these instructions, and line number -> index of the instruction."""
    lines = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64"]
    lines += [".shared .align 1024 .b8 smem[2048];", ".global .align 128 .b8 buffer[2048];"]
    lines += [".func callee() { ret; }"]
    b128 = version >= (8, 3) and arch_number(target) >= 70
    places = {}
    numbered = list(enumerate(instructions))
    single = [one for one in numbered if not _of_a_pair(one[1])]
    pairs = [one for one in numbered if _of_a_pair(one[1])]
    for name, members in (("example", single), ("pairs", pairs)):
        if members or name == "example":
            lines += [f".visible .entry {name}(.param .u64 pointer)", "{"]
            for prefix, kind in (*((f"{kind}_", kind) for kind in _DECLARED), *_SHORT.items()):
                if kind != "b128" or b128:
                    lines.append(f".reg .{kind} %{prefix}<{REGISTERS_PER_TYPE}>;")
            lines.append(f"targets: .branchtargets {LABEL};")
            for index, text in members:
                lines.append(text)
                places[len(lines)] = index
            lines += [f"{LABEL}:", "ret;", "}"]
    return "\n".join(lines) + "\n", places


def _of_a_pair(instruction: str) -> bool:
    """True if an instruction is one of tcgen05 for pairs of CTAs, which no kernel may mix with those for one."""
    return instruction.startswith("tcgen05.") and ".cta_group::2" in instruction


def grouped(found: Iterable[Example]) -> dict[tuple[str, tuple[int, int]], list[Example]]:
    """Examples by target and PTX version."""
    key = lambda example: (example.target, example.version)  # noqa: E731
    return {group: list(members) for group, members in itertools.groupby(sorted(found, key=key), key)}
