"""Cases of wmma: A, B and C loaded as opaque fragments, multiplied, D stored; each type, shape and layout.

What a fragment's registers hold is the chip's own affair, so only D in memory is a result. CTA n multiplies a tile
of class n; matrices lie in global memory, or in shared memory, by turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.isa import examples
from warploom.emulator.ops.mma import BITS
from warploom.isa.instructions import table
from warploom.isa.instructions.mma import shape_of
from warploom.isa.instructions.schema import Form, Match

from .case import Argument, Array, Case, output
from .elements import classes, elements
from .mma import accumulator_bound
from .pieces import Body
from .values import Source


def cases() -> Iterator[Case]:
    turn = 0
    for form in table.FORMS:
        if form.key.startswith("wmma.mma."):
            for opcode, modifiers in examples.opcodes(form, 10_000):
                yield _case(form, opcode, Match(form, modifiers), turn)
                turn += 1


def _types(form: Form) -> tuple[str, str, str]:
    """Of the factors, of C and of D."""
    name = form.key.removeprefix("wmma.mma.")
    if name in ("s8", "u8", "s4", "u4", "b1"):
        return name, "s32", "s32"
    if name.startswith("f64"):
        return "f64", "f64", "f64"
    if name in ("bf16", "tf32"):
        return name, "f32", "f32"
    d, c = name.split("_")
    return "f16", c, d


def _case(form: Form, opcode: str, match: Match, turn: int) -> Case:
    factor, c, d = _types(form)
    m, n, k = shape_of(match.modifiers)
    shape = f"m{m}n{n}k{k}"
    kinds = {"a": factor, "b": factor, "c": c, "d": d}
    counts = {"a": m * k, "b": k * n, "c": m * n, "d": m * n}
    sizes = {name: counts[name] * BITS[kinds[name]] // 8 for name in "abcd"}
    layouts = {
        "a": match.modifiers["alayout"], "b": match.modifiers["blayout"],
        "c": ("row", "col")[turn % 2], "d": ("col", "row")[turn // 2 % 2],
    }  # fmt: skip
    strides = {  # of a matrix stored by rows, by columns
        "a": (k, m), "b": (n, k), "c": (n, m), "d": (n, m),
    }  # fmt: skip
    space = ("global", "", "shared")[turn % 3]
    lengths = {spec.name: match.length_of(spec) or 1 for spec in form.operands}
    registers = {}
    for at, name in enumerate("abcd"):
        kind = {"f32": "f", "f64": "fd", "s32": "r"}.get(kinds[name], "r") if name in "cd" or factor == "f64" else "r"
        registers[name] = "{" + ", ".join(f"%{kind}{10 + 10 * at + r}" for r in range(lengths[name])) + "}"
    body = Body(32).do("mov.u32 %r1, %ctaid.x;")
    places = {}
    for at, name in enumerate("abcd"):
        body.do(f"mad.wide.u32 %rd{1 + at}, %r1, {sizes[name]}, %a{at};")
        places[name] = f"%rd{1 + at}"
        if space == "shared" and name != "d":
            body.fill(places[name], sizes[name], start=2048 * at)
    if space == "shared":
        places = {name: f"%r60+{2048 * at}" for at, name in enumerate("abcd")}
    dot = f".{space}" if space else ""
    for name in "abc":
        stride = strides[name][layouts[name] == "col"]
        more = f", {stride}" if turn % 2 or space == "shared" else ""
        body.do(
            f"wmma.load.{name}.sync.aligned.{layouts[name]}.{shape}{dot}.{kinds[name]} {registers[name]}, "
            f"[{places[name]}]{more};"
        )
    body.do(f"{opcode} {registers['d']}, {registers['a']}, {registers['b']}, {registers['c']};")
    more = f", {strides['d'][layouts['d'] == 'col']}" if turn % 2 else ""
    body.do(f"wmma.store.d.sync.aligned.{layouts['d']}.{shape}{dot}.{d} [{places['d']}], {registers['d']}{more};")
    if space == "shared":
        body.do("bar.sync 0;").dump("%rd4", sizes["d"], start=6144)
    tiles = classes(factor)
    word = {8: np.uint64}.get(BITS[d] // 8, np.uint32)

    def arguments() -> tuple[Argument, ...]:
        made = []
        for name in "abc":
            source = Source(f"wmma/{factor}/{name}/{shape}")
            tile = [elements(source, kinds[name], counts[name], each).view(np.uint32) for each in tiles]
            made.append(Array(np.stack(tile)))
        return (*made, output((len(tiles), sizes["d"] // np.dtype(word).itemsize), word))

    loads = {"s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4"}.get(factor, factor)
    return Case(
        f"wmma/{opcode}", (form.key, f"wmma.load.{loads}", f"wmma.load.c.{c}", f"wmma.store.{d}"), body.text(),
        arguments, ("array",) * 4, grid=len(tiles), labels=tiles, exact_bound=accumulator_bound(d, factor, k),
    )  # fmt: skip
