"""Infers boxes of tensor maps from the text of a kernel, for `warploom check --init`.

The host chooses a box, but the kernel relies on it. It expects the bytes of the boxes of a phase (expect_tx), its
coordinates advance in steps of the box, the arrays that boxes are copied to have sizes, and the matrix descriptors
name the swizzle. The chosen box satisfies all of these, and its note says which expect_tx it adds up to. Whatever the
text leaves open is a guess and is marked as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from ..asm import nodes
from ..isa import dtypes
from ..isa.instruction_descriptor import KINDS, fields_of
from ..isa.tensor_map import MAXIMUM_BOX
from .launch_instructions import types_of_values
from .launch_steps import Steps
from .launch_text import followed, tokens

Key = tuple[str, int]
"""A parameter and the offset of a tensor map in it."""
GUESS = "a guess"
_SWIZZLES = {2: "128B", 4: "64B", 6: "32B"}
"""By bits 61 to 63 of a matrix descriptor (PTX ISA 9.7.15.5.1.2.2, and 9.7.16.4.1 for tcgen05)."""
_SPANS = {"128B": 128, "64B": 64, "32B": 32, "NONE": MAXIMUM_BOX}
_MATRIX = re.compile(r"^\w*mma\b.*?\.(?:f32|f16|s32)\.(bf16|f16|tf32|e4m3|e5m2|s8|u8)\b")
_TAKES_DESCRIPTORS = re.compile(r"^\w+\.mma(_async)?\b")
_ROWS = re.compile(r"\.tile::(gather4|scatter4)\b")
"""One coordinate along the row, and one for each row: boxes of one row (PTX ISA 5.5.3.4)."""
_KIND = re.compile(r"^tcgen05\.mma\b.*\.kind::(\w+)")
_PACKED = {"e2m1": "u8"}
"""Element types of tensor maps whose array is stored as bytes, with two elements per byte."""
_MOST_TRIED = 50_000
_SHARES = (1, 2, 4, 8, 16)
"""CTAs whose multicast copies may fill one array, if the mask does not say."""


@dataclass(frozen=True)
class MapGuess:
    """The likely properties of a tensor map: element type, box (innermost first) and swizzle, each with a note on its
    source."""

    dtype: str
    box: tuple[int, ...]
    swizzle: str
    notes: Mapping[str, str]


@dataclass
class _Copy:
    """A copy of a box: its map, coordinates and position in the text. `shares`: number of CTAs that fill its array, 0
    if unknown; `room`: bytes from its destination to the end of the array, if known, or to the next copy of its phase;
    `place`: of the destination, see `Steps.place`; `boxes`: number of one-row boxes that gather4 and scatter4 move, 1
    for other copies."""

    key: Key
    at: int
    barrier: nodes.Operand | None
    store: bool
    steps: tuple[int, ...]
    shares: int
    room: int
    place: tuple[str | int, int]
    boxes: int = 1


@dataclass
class _ExpectedBytes:
    """An expect_tx: its bytes without those of copies that use no map, its line, and the copies that it covers."""

    bytes: int
    line: int
    copies: list[_Copy] = field(default_factory=list)


def likely(function: nodes.Function, module: nodes.Module, dtypes_known: Mapping[Key, str]) -> dict[Key, MapGuess]:
    """For the tensor maps of a kernel, by parameter and offset, what its text makes likely.

    dtypes_known: element types that are known from elsewhere.
    """
    text = _Text(function, module)
    matrix = text.operand_type()
    swizzle = text.swizzle()
    made: dict[Key, MapGuess] = {}
    boxes: dict[Key, tuple[tuple[int, ...], str]] = {}
    kinds: dict[Key, str] = {}
    notes: dict[Key, str] = {}
    keys = list(dict.fromkeys(copy.key for copy in text.copies))
    loaded = {copy.key for copy in text.copies if not copy.store}
    for key in keys:
        moved = text.moved_type(key)
        kinds[key] = dtypes_known.get(key) or (matrix if key in loaded else "") or moved or "bf16"
        if kinds[key] == moved != matrix:
            notes[key] = f"{GUESS}: the type that the text {'reads' if key in loaded else 'writes'} in shared memory"
    for expected in sorted(text.expected, key=lambda one: len({copy.key for copy in one.copies})):
        boxes.update(_fit(expected, text, kinds, swizzle or "128B", boxes))
    for key in keys:
        if key not in boxes:
            boxes[key] = (_candidates(key, text, kinds[key], swizzle or "128B")[0], GUESS)
    for key, (box, note) in boxes.items():
        size = dtypes.of(kinds[key]).bytes
        span = box[0] * size
        named = swizzle if swizzle and key in loaded and span <= _SPANS[swizzle] else ""
        fitting = named or next((name for name in ("32B", "64B", "128B") if span == _SPANS[name]), "NONE")
        made[key] = MapGuess(
            kinds[key], box, fitting,
            {
                "dtype": f"{GUESS}: the type of the matrix unit's operands" if kinds[key] == matrix else
                         notes.get(key, GUESS),
                "box": note,
                "swizzle": "from the matrix descriptors" if named else GUESS,
            },
        )  # fmt: skip
    return made


class _Text:
    """The copies and expect_tx instructions of a kernel."""

    def __init__(self, function: nodes.Function, module: nodes.Module) -> None:
        self.steps = Steps(function)
        self._sizes = shared_sizes(function, module)
        self._types = types_of_values(self.steps.instructions)
        known, parameters = followed(function), {parameter.name for parameter in function.parameters}
        self.copies: list[_Copy] = []
        self.expected: list[_ExpectedBytes] = []
        open_ones: list[tuple[nodes.Operand, _ExpectedBytes]] = []
        for at, one in enumerate(self.steps.instructions):
            if ".expect_tx" in one.opcode and one.opcode.startswith("mbarrier"):
                barrier = next((part for part in one.operands if isinstance(part, nodes.Address)), None)
                amount = self.steps.constant(one.operands[-1], at)
                open_ones = [(where, found) for where, found in open_ones if not self._same(where, barrier, at)]
                if amount and barrier is not None:
                    made = _ExpectedBytes(amount, one.ptx_line or at)
                    self.expected.append(made)
                    open_ones.append((barrier, made))
            elif one.opcode.startswith("cp.async.bulk") and len(one.operands) > 1:
                self._copy(one, at, known, parameters, open_ones)
        self.expected = [one for one in self.expected if one.copies]
        for expected in self.expected:
            for copy in expected.copies:
                gaps = [
                    other.place[1] - copy.place[1]
                    for other in expected.copies
                    if other.place[0] == copy.place[0] != -1 and other.place[1] > copy.place[1]
                ]
                copy.room = min(filter(None, [copy.room, *gaps]), default=0)

    def _copy(
        self, one: nodes.Instruction, at: int, known: dict[str, set[tuple[str, str, int]]], parameters: set[str],
        open_ones: Sequence[tuple[nodes.Operand, _ExpectedBytes]],
    ) -> None:  # fmt: skip
        tensor = next((part for part in one.operands if isinstance(part, nodes.TensorAddress)), None)
        places = [part for part in one.operands if isinstance(part, nodes.Address)]
        if not places:
            return
        expected = next((made for where, made in reversed(open_ones) if self._same(where, places[-1], at)), None)
        if tensor is None:
            if expected is not None and len(one.operands) > 2 and "prefetch" not in one.opcode:
                expected.bytes -= self.steps.constant(one.operands[2], at) or 0
            return
        base = self.steps.place(tensor.base, at)
        maps = [(name, offset) for how, name, offset in tokens(tensor.base, known, parameters) if how == "at"]
        if base[0] in parameters:  # a register that was used for several maps holds this one
            maps = [(str(base[0]), base[1])]
        if len(maps) != 1 or "im2col" in one.opcode:
            return
        store = "mbarrier" not in one.opcode
        shares = 1 if ".multicast" not in one.opcode else self.steps.set_bits(_mask(one), at)
        place = self.steps.place(places[0], at)
        room = max(0, self._sizes.get(str(place[0]), 0) - place[1])
        steps = tuple(self.steps.multiple(coordinate, at) for coordinate in tensor.coordinates)
        boxes = 1
        if _ROWS.search(one.opcode):
            steps, boxes = (steps[0], 1), len(steps) - 1
        copy = _Copy(maps[0], at, None if store else places[-1], store, steps, shares, room, place, boxes)
        self.copies.append(copy)
        if expected is not None and not store:
            expected.copies.append(copy)

    def _same(self, one: nodes.Operand, other: nodes.Operand | None, at: int) -> bool:
        if one == other:
            return True
        places = [self.steps.place(operand, at) for operand in (one, other) if operand is not None]
        return len(places) == 2 and places[0] == places[1] and places[0][0] != -1

    def rows_known(self, key: Key) -> bool:
        """True if the coordinates of a map's copies advance in steps of rows."""
        return any(1 < step <= MAXIMUM_BOX for copy in self.copies if copy.key == key for step in copy.steps[1:2])

    def moved_type(self, key: Key) -> str:
        """The type in which the text loads the arrays that a map's copies fill, or stores those that they read; "" if
        it is not one."""
        copies = [copy for copy in self.copies if copy.key == key]
        bases = {copy.place[0] for copy in copies} - {-1}
        word, found = "st" if copies[0].store else "ld", set()
        for at, one in enumerate(self.steps.instructions):
            opcode = one.opcode.split(".")
            if opcode[0] != word or "shared" not in one.opcode or "param" in opcode:
                continue
            place, value = one.operands if word == "st" else reversed(one.operands)
            if self.steps.place(place, at)[0] in bases:
                shown = next((self._types[name] for name in nodes.names_in(value) if name in self._types), "")
                found.add(shown or ("" if opcode[-1].startswith("b") else opcode[-1]))
        return found.pop() if len(found) == 1 else ""

    def operand_type(self) -> str:
        """The element type of the first matrix instruction's operands: from the types in its opcode, or from the
        instruction descriptor of tcgen05.mma if the text gives its bits; "" if there is no such instruction."""
        for at, one in enumerate(self.steps.instructions):
            if found := _MATRIX.match(one.opcode):
                return found[1]
            if found := _KIND.match(one.opcode):
                kind = KINDS[found[1]]
                made = self._described(one, at, found[1])
                named = [name for name, code in kind.operands.items() if code in made]
                name = named[0] if named else next(iter(kind.operands))
                return _PACKED.get(name, name)
        return ""

    def _described(self, one: nodes.Instruction, at: int, kind: str) -> set[int]:
        """Codes of the type of A in the constants behind an instruction descriptor."""
        place = 4 if ".sp" in one.opcode else 3  # after D, A, B and, for a sparse product, the metadata
        if len(one.operands) <= place:
            return set()
        fields, words = fields_of(kind), self.steps.words(one.operands[place], at)
        return {fields["a"].get(word) for word in words if fields["n"].get(word)}  # the others are parts of one

    def swizzle(self) -> str:
        """The swizzle that all matrix descriptors name; "" if there is none, or several."""
        found = set()
        for at, one in enumerate(self.steps.instructions):
            if _TAKES_DESCRIPTORS.match(one.opcode):
                for operand in one.operands[1:3]:
                    for word in self.steps.words(operand, at):
                        found.add(_SWIZZLES.get((word & (1 << 64) - 1) >> 61 & 7, ""))
        found.discard("")
        return found.pop() if len(found) == 1 else ""


def _mask(one: nodes.Instruction) -> nodes.Operand:
    """The CTA mask of a multicast copy: after the barrier, before a cache policy."""
    barrier = max(at for at, part in enumerate(one.operands) if isinstance(part, nodes.Address))
    return one.operands[min(barrier + 1, len(one.operands) - 1)]


def shared_sizes(function: nodes.Function, module: nodes.Module) -> dict[str, int]:
    """Bytes of the shared variables of a kernel whose size the text gives."""
    return {
        one.name: prod(one.dims or (1,)) * dtypes.of(one.type).bytes
        for one in (*module.items, *nodes.walk(function.body or ()))
        if isinstance(one, nodes.Variable) and one.space == "shared" and -1 not in one.dims
    }


# -- boxes ---------------------------------------------------------------------------------------------------------


def _candidates(key: Key, text: _Text, dtype: str, swizzle: str) -> list[tuple[int, ...]]:
    """Boxes that the coordinates and the arrays allow, most likely first."""
    copies = [copy for copy in text.copies if copy.key == key]
    rank = len(copies[0].steps)
    steps = [_common(copy.steps[axis] for copy in copies if len(copy.steps) == rank) for axis in range(rank)]
    size = dtypes.of(dtype).bytes
    spans = [_SPANS[swizzle] // size, *(span // size for span in (128, 64, 32))]
    inner = [steps[0]] if 16 <= steps[0] * size <= _SPANS[swizzle] and not steps[0] * size % 16 else []
    inner = list(dict.fromkeys([*inner, *spans]))
    made: list[tuple[int, ...]]
    if any(copy.boxes > 1 for copy in copies):
        made = [(one, 1) for one in inner]
    elif rank == 1:
        inner = list(dict.fromkeys([*inner, *range(MAXIMUM_BOX, 15 // size, -max(16 // size, 1))]))
        made = [(one,) for one in inner]
    else:
        rows = [steps[1]] if 1 < steps[1] <= MAXIMUM_BOX else []
        usual = [64, 128, 256, 192, 96, 32, 16, 8, *range(MAXIMUM_BOX, 0, -8), 4, 2, 1]
        rows = list(dict.fromkeys([*rows, *usual]))
        rest = tuple(step if 1 < step <= MAXIMUM_BOX and rank > 3 else 1 for step in steps[2:])
        made = [(columns, row, *rest) for columns in inner for row in rows]
    room = min((copy.room for copy in copies if copy.room), default=0)
    fitting = [box for box in made if not room or prod(box) * size * copies[0].boxes <= room]
    return fitting or made


def _common(steps: Iterable[int]) -> int:
    """The common step of all copies along one dimension: the smallest one that exists."""
    return min((step for step in steps if step > 1), default=0)


def _fit(
    expected: _ExpectedBytes, text: _Text, kinds: Mapping[Key, str], swizzle: str,
    before: Mapping[Key, tuple[tuple[int, ...], str]],
) -> dict[Key, tuple[tuple[int, ...], str]]:  # fmt: skip
    """Boxes with which the copies add up to an expect_tx; empty if there are none."""
    keys = [key for key in dict.fromkeys(copy.key for copy in expected.copies)]
    open_keys = [key for key in keys if key not in before]
    if not open_keys:
        return {}
    choices = [_candidates(key, text, kinds[key], swizzle) for key in open_keys]
    first = [found[0] for found in choices]
    # First all boxes that the steps of the coordinates suggest, then all but one, then whatever adds up.
    lists = [[[box] for box in first]]
    lists += [[found if at == number else [first[at]] for at, found in enumerate(choices)]
              for number in sorted(range(len(choices)), key=lambda one: text.rows_known(open_keys[one]))]  # fmt: skip
    lists += [choices]
    unsure = any(not copy.shares for copy in expected.copies)
    for number, some in enumerate(lists):
        for tried, boxes in enumerate(product(*some)):
            if tried > _MOST_TRIED:
                break
            chosen = {key: box for key, (box, _) in before.items()} | dict(zip(open_keys, boxes, strict=True))
            each = {key: prod(chosen[key]) * dtypes.of(kinds[key]).bytes for key in keys}
            if any(
                sum(each[copy.key] * copy.boxes * (copy.shares or share) for copy in expected.copies) == expected.bytes
                for share in (_SHARES if unsure else (1,))
            ):
                return {key: (chosen[key], _note(expected, number, len(keys))) for key in open_keys}
    return {}


def _note(expected: _ExpectedBytes, number: int, keys: int) -> str:
    copies = len(expected.copies)
    what = "its copy" if copies == 1 else f"its {copies} copies"
    sums = f"the {expected.bytes} bytes that line {expected.line} expects of {what}"
    if number == 0:
        return f"fits its coordinates, and {sums}"
    return f"{GUESS} that adds up to {sums}"


__all__ = ["Key", "MapGuess", "likely", "shared_sizes"]
