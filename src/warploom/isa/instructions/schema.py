"""The format of the instruction table's rows, and how a row matches an opcode.

A row (`Form`) is one syntax line of the PTX ISA as data:

    Form("add.float", "add{.rnd}{.ftz}{.sat}.f32", ">d:f32, a:f32, b:f32", rnd="rn rz rm rp")

The opcode pattern lists modifiers in order. `{.x}` may be omitted; a name that is a keyword of the row is a *slot* with
the listed choices (`re:` starts a regular expression); anything else is literal.

The operand pattern lists operands in their order:

    a:f32        a register of that type or a constant; the type may be a slot (`a:type`)
    >d:f32       written;  +d:f32  read and written
    a:f32!       a register, no constant
    a:b32=       a register declared with exactly that type
    a:b32~       an integer: no register declared as a float, no floating-point constant
    a:b32^f16x2*4  at least one of the registers fits that packed type
    a:b32&shared a register, or the address of a variable of that state space, which may be a slot (`&space`);
                 `&any` for any space
    n:imm        a constant
    p:pred       a predicate, which may be negated if it is read
    d:b32*4      four of them in braces;  d:type*vec  as many as slot `vec` specifies (v2, v4; none: one, no braces);
                 d:f32*name  as many as the row's `lengths[name]` computes from the modifiers
    [a]          an address; its space is the slot `space`, or a named one: [a@shared]; with the required type of its
                 register: [a@tensor:b32]
    [map,c]      a tensor map's address and coordinates in braces
    [t@texture,c:ctype*n]  a texture or surface and coordinates of that type, as many as `lengths[n]` or, unused, more
    d:s32*n+     as many as `n`, or 2 or 4 if these are more
    >p:pred|q:pred   two destinations joined by a bar, the second may be omitted
    l:label  f:symbol  x:any
    a:u32?       may be omitted, as may all operands after it
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from .. import dtypes
from ..effects import Effect, resolved

Modifiers = Mapping[str, str | None]
"""The choice of a matched opcode for each slot; None for an optional slot that was omitted. Optional literals are
keyed by their own spelling."""


@dataclass(frozen=True)
class OperandSpec:
    """One operand of a row.

    Attributes:
        name: as in the PTX ISA's syntax line.
        kind: "value" (register or constant), "register", "immediate", "address", "tensor_address", "label",
            "symbol", "sink" (`_` alone) or "any".
        type: a dtype name or the name of a slot; "" if no type applies.
        access: "read", "write" or "modify".
        length: None for a bare operand, else the number in braces: an int, or the name of a slot or length.
        space: state space of an address ("shared", "global", …), or "" if the slot `space` or the value determines it.
        optional: whether it may be omitted.
        exact: whether a register must be declared with the type, rather than with one that fits it.
        integral: whether floats are excluded, though the type specifies bits only.
        packed: a type that at least one register in the braces must fit; "" for none.
        variables: the state space (or its slot, or "any") whose variables are allowed by name; "" for none.
        padded: whether its braces may have two or four elements where fewer are needed.
        second: the operand after the bar of a pair.
    """

    name: str
    kind: str
    type: str = ""
    access: str = "read"
    length: str | int | None = None
    space: str = ""
    optional: bool = False
    exact: bool = False
    integral: bool = False
    packed: str = ""
    variables: str = ""
    padded: bool = False
    second: OperandSpec | None = None


_OPERAND = re.compile(
    r"(?P<access>[>+]?)(?P<name>\w+)(:(?P<type>[\w]+)(?P<register>[!=~]?)(\^(?P<packed>\w+))?(\*(?P<length>\w+)(?P<padded>\+?))?"
    r"(&(?P<variables>\w+))?)?(?P<optional>\??)$"
)
_ADDRESS = re.compile(r"\s*(?P<name>\w+)(@(?P<space>\w+(::\w+)?)(:(?P<type>\w+))?)?\s*$")
_KINDS = {"imm": "immediate", "label": "label", "symbol": "symbol", "sink": "sink", "any": "any"}


def parse_operand(text: str) -> OperandSpec:
    """One operand of an operand pattern."""
    text = text.strip()
    if text.startswith("["):
        optional = text.endswith("?")
        inner = text.rstrip("?")[1:-1]
        if "," in inner:
            base, coordinates = inner.split(",")
            name, _, space = base.strip().partition("@")
            if not space:
                return OperandSpec(name, "tensor_address", optional=optional)
            of = parse_operand(coordinates)
            return OperandSpec(name, "tensor_address", of.type, length=of.length, space=space, padded=True)
        place = _ADDRESS.match(inner)
        if place is None:
            raise ValueError(f"address pattern {text!r} cannot be read")
        return OperandSpec(place["name"], "address", place["type"] or "", space=place["space"] or "", optional=optional)
    if "|" in text:
        first, second = text.split("|")
        left = parse_operand(first)
        right = parse_operand((">" if left.access == "write" else "") + second)
        return replace(left, second=right)
    found = _OPERAND.match(text)
    if found is None:
        raise ValueError(f"operand pattern {text!r} cannot be read")
    type_name = found["type"] or ""
    words: str | None = found["length"]
    length = int(words) if words is not None and words.isdigit() else words
    return OperandSpec(
        name=found["name"],
        kind=_KINDS.get(
            type_name, "register" if found["register"] in ("!", "=") or found["packed"] or found["access"] else "value"
        ),
        type="" if type_name in _KINDS else type_name,
        access={">": "write", "+": "modify", "": "read"}[found["access"]],
        length=length,
        optional=bool(found["optional"]),
        exact=found["register"] == "=",
        integral=found["register"] == "~",
        packed=found["packed"] or "",
        variables=found["variables"] or "",
        padded=bool(found["padded"]),
    )


def split_operands(text: str) -> tuple[OperandSpec, ...]:
    """All operands of an operand pattern."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += character == "["
        depth -= character == "]"
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    if current.strip():
        parts.append(current)
    return tuple(parse_operand(part) for part in parts)


@dataclass(frozen=True)
class Slot:
    """One modifier of an opcode pattern, at its position: a literal (one choice) or a choice."""

    name: str
    choices: tuple[str, ...]
    optional: bool
    regex: re.Pattern[str] | None = None

    def accepts(self, modifier: str) -> bool:
        return bool(self.regex.fullmatch(modifier)) if self.regex else modifier in self.choices


@dataclass(frozen=True, eq=False)
class Form:
    """One row of the instruction table. See the module's docstring for the two patterns.

    Attributes:
        key: unique name of the row; the emulator's handler is registered under it.
        opcode, operand_text: the two patterns.
        slots: the choices of each named slot, blank-separated, or "re:…".
        arch: first target that has it ("sm_80", or "sm_90a" for one that needs the arch-specific target).
        ptx: first PTX version that has it.
        needs: for single modifier choices that came later, (arch, ptx) by choice; `-slot`: for omitting a slot.
        check: given the modifiers, returns a sentence that describes a wrong combination, or None.
        lengths: number of operands of a named length, computed from the modifiers.
        section: PTX ISA section.
        example: one whole instruction that ptxas accepts, for rows whose example cannot be generated.
        effects: its effects beyond its registers; () for register arithmetic.
        converged: threads that must execute it together: "warp", "warpgroup", or "members:<operand with the mask>".
        ranges: for single constant operands, (the values that ptxas or the ISA allows, the same in words).
        unit: the matrix unit that it uses: "mma" (of a warp), or its family's name.
        noun: the operation that it starts, for messages: "TMA load".
        reaches: the state spaces whose variables its generic addresses may name; () for any.
        narrow: whether 32 bits may hold its generic and global addresses where other rows need 64.
        bare: whether its addresses may be written without brackets, with the same meaning.
    """

    key: str
    opcode: str
    operand_text: str
    slots: Mapping[str, str] = field(default_factory=dict)
    arch: str = "sm_50"
    ptx: tuple[int, int] = (1, 0)
    needs: Mapping[str, tuple[str, tuple[int, int]]] = field(default_factory=dict)
    check: Callable[[Modifiers], str | None] | None = None
    lengths: Mapping[str, Callable[[Modifiers], int]] = field(default_factory=dict)
    section: str = ""
    example: str = ""
    effects: tuple[Effect, ...] = ()
    converged: str = ""
    ranges: Mapping[str, tuple[Container[int], str]] = field(default_factory=dict)
    unit: str = ""
    noun: str = ""
    reaches: tuple[str, ...] = ("global", "shared", "local")
    narrow: bool = False
    bare: bool = False

    @cached_property
    def operands(self) -> tuple[OperandSpec, ...]:
        return split_operands(self.operand_text)

    @cached_property
    def operands_by_name(self) -> dict[str, OperandSpec]:
        """Its operands, and the second halves of pairs."""
        named = {}
        for spec in self.operands:
            named[spec.name] = spec
            if spec.second is not None:
                named[spec.second.name] = spec.second
        return named

    @cached_property
    def base(self) -> str:
        """The opcode's first word."""
        return re.match(r"\w+", self.opcode)[0]  # type: ignore[index]

    @cached_property
    def modifier_slots(self) -> tuple[Slot, ...]:
        slots = []
        for found in re.finditer(r"(?P<open>\{?)\.(?P<name>[\w:]+)(?P<close>\}?)", self.opcode):
            name = found["name"]
            choices = self.slots.get(name)
            regex = re.compile(choices[3:]) if choices and choices.startswith("re:") else None
            words = () if regex else tuple((choices or name).split())
            slots.append(Slot(name, words, bool(found["open"]), regex))
        return tuple(slots)

    def requirements(self, modifiers: Modifiers) -> list[tuple[str, str, tuple[int, int]]]:
        """Requirements of the chosen modifiers beyond the row's: (the modifier as written, arch, ptx)."""
        found = []
        for slot, chosen in modifiers.items():
            word = f"-{slot}" if chosen is None else chosen if chosen in self.needs else slot
            if word in self.needs:
                found.append((f".{chosen}" if chosen else "", *self.needs[word]))
        return found

    @cached_property
    def fixed_words(self) -> frozenset[str]:
        """The words that every opcode of the row contains: neither optional nor a choice."""
        words = re.sub(r"\{.*?\}", "", self.opcode).split(".")[1:]
        return frozenset(word for word in words if word not in self.slots)

    def match(self, modifiers: tuple[str, ...]) -> dict[str, str | None] | None:
        """The choice of each slot for these modifiers (the opcode split at its dots, base left off), or None."""
        if not self.fixed_words.issubset(modifiers):
            return None  # rejects most rows of a long family without looking at their slots
        slots = self.modifier_slots

        def attempt(at: int, position: int) -> dict[str, str | None] | None:
            if at == len(slots):
                return {} if position == len(modifiers) else None
            slot = slots[at]
            if position < len(modifiers) and slot.accepts(modifiers[position]):
                rest = attempt(at + 1, position + 1)
                if rest is not None:
                    return {slot.name: modifiers[position], **rest}
            if slot.optional:
                rest = attempt(at + 1, position)
                if rest is not None:
                    return {slot.name: None, **rest}
            return None

        return attempt(0, 0)


@dataclass(frozen=True, eq=False)
class Match:
    """An opcode matched by a row, with the choice of each slot."""

    form: Form
    modifiers: Mapping[str, str | None]

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """The instruction's effects, with its modifiers' values filled in."""
        return resolved(self.form.effects, self.modifiers)

    @cached_property
    def converged(self) -> str:
        """The threads that execute it together: according to its row, or a warp if `.aligned` is chosen."""
        return self.form.converged or ("warp" if self.modifiers.get("aligned") else "")

    @property
    def access_bytes(self) -> int:
        """Bytes that each lane of a load, store or atomic moves: its type times its vector length."""
        vector = self.modifiers.get("vec")
        return self.element_bytes * (int(vector.removeprefix("v")) if vector else 1)

    @property
    def element_bytes(self) -> int:
        """Bytes of its type: a vector access is one such access per element (PTX ISA 8.2.2)."""
        return dtypes.ALL[self.modifiers["type"] or ""].bytes

    def type_of(self, operand: OperandSpec) -> str:
        """The dtype name of an operand after the slots are filled in; "" if no type applies."""
        if operand.type in self.form.slots:
            return self.modifiers.get(operand.type) or ""
        return operand.type

    def length_of(self, operand: OperandSpec) -> int | None:
        """The number of registers in the operand's braces, or None for a bare operand."""
        length = operand.length
        if length is None or isinstance(length, int):
            return length
        if length in self.form.lengths:
            return self.form.lengths[length](self.modifiers)
        chosen = self.modifiers.get(length)
        return int(chosen.removeprefix("v")) if chosen else None

    def variables_of(self, operand: OperandSpec) -> str:
        """The state space whose variables are allowed as the operand, or "any"; "" for none."""
        if operand.variables in self.form.slots:
            return (self.modifiers[operand.variables] or "").split("::")[0]
        return operand.variables

    def reaches(self, space: str) -> tuple[str, ...]:
        """The state spaces whose variables an address in this space may name; () for any."""
        return self.form.reaches if space in ("", "generic") else (space.split("::")[0],)

    def takes_32_bits(self, space: str) -> bool:
        """True if a 32-bit register may hold an address in this space; of generic and global memory, ptxas 13.0 takes
        none."""
        return self.form.narrow or space not in ("", "generic", "global")

    @property
    def operand_words(self) -> str:
        """The operands as text for messages: `d, a, b`."""
        parts = []
        for spec in self.form.operands:
            text = f"{spec.name}|{spec.second.name}" if spec.second else spec.name
            if spec.kind == "address":
                text = f"[{text}]"
            elif spec.kind == "tensor_address":
                text = f"[{text}, {{coordinates}}]"
            length = self.length_of(spec)
            if length is not None:
                text = f"{{{length} of {text}}}"
            parts.append(f"({text})" if spec.optional else text)
        return ", ".join(parts) or "no operand"
