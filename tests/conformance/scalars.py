"""Cases of rows that only use registers: arithmetic, comparison, logic, conversion, packed, moves.

They are made from the instruction table: a kernel for each row (and operand types) runs every spelling of it, all
modifiers in all combinations, on the same operands; result `d` of spelling n is row n of its buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tests.isa import examples
from warploom.isa import dtypes
from warploom.isa.instructions import integer, table, video
from warploom.isa.instructions.schema import Form, Match, OperandSpec

from . import values
from .case import Argument, Array, Case, Tolerance, output
from .values import Source

THREADS = 256
_CHUNK = 24
_ARCH = 90

NOT_HERE = {
    "fma.oob": "the emulator does not know it",
    "mov.pack.b128": "see moves", "mov.unpack.b128": "see moves", "mov.b128": "see moves",
}  # fmt: skip
"""Rows of these families that have no case here, and why."""

_TABLES = (0x00, 0x96, 0xE8, 0xCA, 0x1B, 0x80, 0xFE, 0x6A)
"""Truth tables of lop3: none, xor, majority, choice, an irregular one, and, or, and-xor."""


# -- operands that have a meaning ----------------------------------------------------------------------------------


def _amounts(limit: int) -> Callable[[Source, int], np.ndarray]:
    """Shift amounts, positions and lengths: mostly below a limit, some far above."""

    def make(source: Source, count: int) -> np.ndarray:
        found = source.below(limit, count)
        found[::16] = source.bits(count, 32)[::16]
        found[: limit + 8] = np.arange(limit + 8)[:count]
        return found

    return make


def _below(limit: int, low: int = 0) -> Callable[[Source, int], np.ndarray]:
    return lambda source, count: source.below(limit, count) + low


def _divisor(kind: str) -> Callable[[Source, int], np.ndarray]:
    """No zero: PTX ISA 9.7.1.8 leaves that open."""

    def make(source: Source, count: int) -> np.ndarray:
        found = values.operands(source, [kind, kind], count)[1]
        found[found == 0] = 3
        return found

    return make


def _tame(kind: str, most: float) -> Callable[[Source, int], np.ndarray]:
    """Floats up to a magnitude, behind every edge that is zero, tiny or no number."""

    def make(source: Source, count: int) -> np.ndarray:
        dtype = np.dtype(np.float32)
        found = source.uniform(-most, most, count).astype(dtype)
        found[::3] = (found * np.exp2(-source.uniform(0, 24, count)).astype(dtype))[::3]
        bits = found.view(np.uint32)
        special = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 1, 0x80000001, 0x00800000, 0x3F800000]
        bits[: len(special)] = special
        return bits

    return make


def _normal_divisor(source: Source, count: int) -> np.ndarray:
    """The divisors for which div.approx has an error bound, 2^-126 to 2^126, and zero, infinity and NaN."""
    found = source.bits(count, 32)
    exponent = (found >> np.uint32(23)) & np.uint32(0xFF)
    found = np.where((exponent < 1) | (exponent > 252), found & np.uint32(0x807FFFFF) | np.uint32(0x3F800000), found)
    found[::3] = found[::3] & np.uint32(0x807FFFFF) | np.uint32(0x3F800000)
    found[:6] = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x40400000]
    return found


def _chosen(form: Form, name: str, kind: str) -> Callable[[Source, int], np.ndarray] | None:
    key, base = form.key, form.base
    if base in ("shl", "shr", "shf") and name == {"shf": "c"}.get(base, "b"):
        return _amounts(72)
    if base == "bfe" and name in "bc" or base == "bfi" and name in "cd":
        return _amounts(72)
    if base == "szext" and name == "b" or base == "bmsk":
        return _amounts(40)
    if base == "fns" and name == "base":
        return _below(32)
    if base == "fns" and name == "offset":
        return _below(11, -5)
    if key in ("div.integer", "rem") and name == "b":
        return _divisor(kind)
    if key in ("sin.approx.f32", "cos.approx.f32"):
        return _tame(kind, 6.28)
    if key in ("ex2.approx.f32", "tanh.approx.f32"):
        return _tame(kind, 140.0 if base == "ex2" else 12.0)
    if key == "div.approx.f32" and name == "b":
        return _normal_divisor
    return None


# -- how far the approximations may be off: PTX ISA 9.7.3.8 to 9.7.3.22, 9.7.4.9, 9.7.4.10 -------------------------

_LEAST = 2.0**-148
_BOUNDS: Mapping[str, Tolerance] = {
    "div.approx.f32": Tolerance("f32", 2.0**-22, _LEAST),
    "rcp.approx.f32": Tolerance("f32", 2.0**-23, _LEAST),
    "sqrt.approx.f32": Tolerance("f32", 2.0**-22, _LEAST),
    "rsqrt.approx.f32": Tolerance("f32", 2.0**-22, _LEAST),
    "sin.approx.f32": Tolerance("f32", 0.0, 2.0**-20),
    "cos.approx.f32": Tolerance("f32", 0.0, 2.0**-20),
    "lg2.approx.f32": Tolerance("f32", 2.0**-22, 2.0**-22),
    "ex2.approx.f32": Tolerance("f32", 2.0**-22, _LEAST),
    "tanh.approx.f32": Tolerance("f32", 2.0**-11, _LEAST),
    "rcp.approx.f64": Tolerance("f64", 2.0**-19),
    "rsqrt.approx.f64": Tolerance("f64", 2.0**-19),
    "tanh.f16": Tolerance("f16", 2.0**-10, 2.0**-10),
    "ex2.f16": Tolerance("f16", 2.0**-9, 2.0**-23),
    "tanh.bf16": Tolerance("bf16", 2.0**-7, 2.0**-8),
    "ex2.bf16": Tolerance("bf16", 2.0**-6, 2.0**-126),
}


# -- kernels -------------------------------------------------------------------------------------------------------


PREDICATE = 0
"""Bits of a register that has no width; in memory it is a byte."""


class _Plan:
    """How the operands of one spelling become registers: what is loaded, what is stored, the instruction."""

    def __init__(self, match: Match, opcode: str, table: int | None = None) -> None:
        self.inputs: list[tuple[str, str]] = []
        self.results: list[tuple[str, int]] = []
        words = [self._operand(match, spec, table) for spec in match.form.operands]
        self.text = f"{opcode} {', '.join(words)};"
        self.label = f"{opcode} {table:#04x}" if table is not None else opcode

    def _operand(self, match: Match, spec: OperandSpec, table: int | None) -> str:
        if spec.kind == "immediate":
            return str(table)
        kind, length = match.type_of(spec), match.length_of(spec)
        names = [spec.name] if length is None else [f"{spec.name}_{n}" for n in range(length)]
        for name in names:
            if spec.access == "write":
                bits = max(16, dtypes.ALL[kind].register_bits if kind in dtypes.ALL else 32)
                bits = {"pred": PREDICATE, "b8": 8, "u8": 32, "s8": 32}.get(kind, bits)
                self.results.append((name, bits))
            else:
                self.inputs.append((name, kind))
        joined = ", ".join(f"%x_{name}" for name in names)
        text = joined if length is None else f"{{{joined}}}"
        return text if spec.second is None else f"{text}|{self._operand(match, spec.second, table)}"

    @property
    def signature(self) -> tuple[object, ...]:
        return (tuple(self.inputs), tuple(self.results))


def _register(bits: int) -> str:
    return f"b{bits}" if bits else "pred"


def _kernel(plans: list[_Plan], threads: int) -> tuple[str, tuple[str, ...]]:
    """The body and the kinds of its parameters: operands, then results."""
    inputs, results = plans[0].inputs, plans[0].results
    lines, kinds = [".reg .b64 %at;", ".reg .b32 %byte;"], []
    for number, (name, kind) in enumerate(inputs):
        width = values.width_of(_stored(kind))
        register = {"pred": PREDICATE, "b8": 8}.get(kind, max(16, _wide(kind)))
        lines.append(f".reg .{_register(register)} %x_{name};")
        lines.append(f"mad.wide.u32 %at, %i, {width // 8}, %a{number};")
        if kind == "pred":
            lines += ["ld.global.u8 %byte, [%at];", f"setp.ne.u32 %x_{name}, %byte, 0;"]
        else:
            lines.append(f"ld.global.b{width} %x_{name}, [%at];")
        kinds.append("array")
    for number, (name, bits) in enumerate(results, len(inputs)):
        lines += [f".reg .{_register(bits)} %x_{name};", f".reg .b64 %to_{name};"]
        lines.append(f"mad.wide.u32 %to_{name}, %i, {(bits or 8) // 8}, %a{number};")
        kinds.append("array")
    for at, plan in enumerate(plans):
        lines.append(plan.text)
        for name, bits in results:
            place = f"[%to_{name}+{at * threads * (bits or 8) // 8}]"
            if bits == PREDICATE:
                lines += [f"selp.u32 %byte, 1, 0, %x_{name};", f"st.global.u8 {place}, %byte;"]
            else:
                lines.append(f"st.global.b{bits} {place}, %x_{name};")
    return "\n".join(lines), tuple(kinds)


def _stored(kind: str) -> str:
    """The type whose values an operand takes: fp8 pairs are any 16 bits."""
    return {"e4m3x2": "b16", "e5m2x2": "b16", "u8": "u32", "s8": "s32"}.get(kind, kind)


def _wide(kind: str) -> int:
    return values.width_of(_stored(kind))


def _case(form: Form, part: str, plans: list[_Plan]) -> Case:
    return _named_case(f"{_family(form)}/{form.key}/{part}", form, plans)


def _named_case(name: str, form: Form, plans: list[_Plan]) -> Case:
    inputs, results = plans[0].inputs, plans[0].results
    body, kinds = _kernel(plans, THREADS)

    def arguments() -> tuple[Argument, ...]:
        # the same operands for all parts of a row, so that equal results are stored once
        source = Source(f"scalar/{form.base}/{','.join(kind for _, kind in inputs)}")
        types = [_stored(kind) for _, kind in inputs]
        chosen = [_chosen(form, operand, kind) for operand, kind in inputs]
        loaded = values.operands(source, types, THREADS, chosen)
        stored = [output((len(plans), THREADS), np.dtype(f"u{(bits or 8) // 8}").type) for _, bits in results]
        return (*(Array(bits) for bits in loaded), *stored)

    labels = tuple(plan.label for plan in plans)
    bound = _BOUNDS.get(form.key)
    return Case(
        name, (form.key,), body, arguments, kinds, threads=THREADS, labels=labels,
        tolerances={label: bound for label in labels} if bound else {},
    )  # fmt: skip


_FAMILIES = {
    name: module
    for module in table.FAMILIES
    if (name := module.__name__.rpartition(".")[2])
    in ("integer", "floating", "packed", "video", "logic", "compare", "convert", "move")
}


def _family(form: Form) -> str:
    return next(name for name, module in _FAMILIES.items() if any(form is row for row in module.FORMS))


def _plans(form: Form) -> Iterator[_Plan]:
    immediate = any(spec.kind == "immediate" for spec in form.operands)
    for opcode, modifiers in examples.opcodes(form, 10_000):
        if examples.arch_number(examples.needs_of(form, modifiers)[0]) > _ARCH:
            continue
        for truth in _TABLES if immediate else (None,):
            yield _Plan(Match(form, modifiers), opcode, truth)


def _parts(form: Form) -> Iterator[Case]:
    """Spellings of a scalar video instruction with parts of registers, from across the row."""
    plans = list(_plans(form))
    plans = plans[:: -(-len(plans) // _CHUNK)]
    selectors = ("", *video.SELECTORS)
    for number, plan in enumerate(plans):
        chosen = {"a": selectors[number % 7], "b": selectors[number * 3 % 7]}
        if form.key.endswith(video.MERGE):
            chosen["d"] = video.SELECTORS[(number + number // 6) % 6]
        for name, selector in chosen.items():
            plan.text = plan.text.replace(f"%x_{name}", f"%x_{name}.{selector}".rstrip("."))
        plan.label = plan.text.replace("%x_", "")
    yield _named_case(f"video/parts/{form.key.removeprefix(video.SCALAR)}", form, plans)


def cases() -> Iterator[Case]:
    for module in _FAMILIES.values():
        for form in module.FORMS:
            if form.key in NOT_HERE or form in integer.CARRY:
                continue
            groups: dict[tuple[object, ...], list[_Plan]] = {}
            for plan in _plans(form):
                groups.setdefault(plan.signature, []).append(plan)
            chunks = [group[at : at + _CHUNK] for group in groups.values() for at in range(0, len(group), _CHUNK)]
            for number, chunk in enumerate(chunks):
                yield _case(form, str(number), chunk)
    for form in video.FORMS:
        if form.key.startswith(video.SCALAR):
            yield from _parts(form)
    yield from _carries()
    yield _wide_moves()


# -- chains --------------------------------------------------------------------------------------------------------


def _carries() -> Iterator[Case]:
    """The carry flag: set by one instruction, used and set by the next, read by a last one."""
    chains = {
        "add": ("add.cc", "addc.cc", "addc"), "sub": ("sub.cc", "subc.cc", "subc"),
        "mad.lo": ("mad.lo.cc", "madc.lo.cc", "madc.lo"), "mad.hi": ("mad.hi.cc", "madc.hi.cc", "madc.hi"),
    }  # fmt: skip
    for name, steps in chains.items():
        for kind in ("u32", "s32", "u64", "s64"):
            letters = "abcxyz" if "mad" in name else "abxy"
            first, second = letters[: len(letters) // 2], letters[len(letters) // 2 :]
            plans = (_carry_plan(steps, kind, first, second),)
            rows = tuple(dict.fromkeys(re.sub(r"\.(lo|hi)", "", step) for step in (steps[0], steps[1].split(".")[0])))
            yield _chain(f"integer/carry.{name}/{kind}", rows, plans[0], kind, first + second)


def _carry_plan(steps: tuple[str, ...], kind: str, first: str, second: str) -> str:
    names = lambda letters: ", ".join(f"%x_{letter}" for letter in letters)  # noqa: E731
    zeros = ", ".join("0" * len(first))
    return (
        f"{steps[0]}.{kind} %x_d, {names(first)};\n{steps[1]}.{kind} %x_e, {names(second)};\n"
        f"{steps[2]}.{kind} %x_f, {zeros};"
    )


def _chain(name: str, rows: tuple[str, ...], text: str, kind: str, letters: str) -> Case:
    plan = _Plan.__new__(_Plan)
    width = values.width_of(kind)
    plan.inputs, plan.results = [(letter, kind) for letter in letters], [(letter, width) for letter in "def"]
    plan.text = plan.label = text
    body, kinds = _kernel([plan], THREADS)

    def arguments() -> tuple[Argument, ...]:
        loaded = values.operands(Source(name), [kind] * len(letters), THREADS)
        return (*(Array(bits) for bits in loaded), *(output(THREADS, np.dtype(f"u{width // 8}").type) for _ in "def"))

    return Case(name, rows, body, arguments, kinds, threads=THREADS)


def _wide_moves() -> Case:
    """128-bit registers: packed, copied, unpacked the other way round."""
    body = """
    mad.wide.u32 %rd0, %i, 16, %a0;
    ld.global.v2.b64 {%rd1, %rd2}, [%rd0];
    mov.b128 %q0, {%rd2, %rd1};
    mov.b128 %q1, %q0;
    mov.b128 {%rd3, %rd4}, %q1;
    mad.wide.u32 %rd0, %i, 16, %a1;
    st.global.v2.b64 [%rd0], {%rd3, %rd4};
    """
    return Case(
        "move/mov.b128/0", ("mov.pack.b128", "mov.b128", "mov.unpack.b128"), body,
        lambda: (Array(Source("mov.b128").bits(64, 64)), output(64, np.uint64)), ("array", "array"),
    )  # fmt: skip
