"""Cases of the warp-level tensor-core instructions: every spelling of mma.sync, mma.sp with every selector, and the
matrix loads, stores and moves.

A CTA multiplies one tile; CTA n gets elements of class n (`elements.CLASSES`), so the labels of D are the classes.
What a register holds is any elements of the type: which element of the matrix that is matters to the result alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.isa import examples
from warploom.isa.instructions import matrix, mma, mma_sparse
from warploom.isa.instructions.schema import Form, Match

from .case import Argument, Array, Case, Tolerance, output
from .elements import ORDINARY_BITS, classes, elements
from .pieces import Body
from .spellings import spread
from .values import Source

_SM80 = ("mma.f16_f32", "mma.f16_f16", "mma.bf16", "mma.tf32", "mma.int8", "mma.f64")


def cases() -> Iterator[Case]:
    yield from _matrices()
    for form in mma.FORMS:
        for opcode, modifiers in examples.opcodes(form, 10_000):
            if modifiers.get("rnd") not in (None, "rn"):
                continue  # the emulator refuses the directed roundings of f64
            yield _multiply(form, opcode, Match(form, modifiers))
        if form.key in _SM80:
            opcode, modifiers = next(
                (opcode, found) for opcode, found in examples.opcodes(form, 10_000)
                if examples.arch_number(examples.needs_of(form, found)[0]) <= 80
                and (".m16" in opcode or ".f64" in opcode)
            )  # fmt: skip
            yield _multiply(form, opcode, Match(form, modifiers), "sm_80")
    for form in mma_sparse.FORMS:
        for at, (opcode, modifiers) in enumerate(examples.opcodes(form, 10_000)):
            selectors = mma_sparse.ASKED[form.key.rpartition("_")[2]]
            for selector in range(selectors) if at == 0 else (selectors - 1,):
                yield _multiply(form, opcode, Match(form, modifiers), selector=selector)


def _types(match: Match) -> tuple[str, str, str, str]:
    """Element types of A, B, C and D, from the opcode's own words."""
    words = {"mma.tf32": "tf32", "mma.bf16": "bf16", "mma.f64": "f64", "mma.b1": "b1"}
    key = match.form.key
    if key.startswith("mma.sp_"):
        key = f"mma.{key.removeprefix('mma.sp_').rpartition('_')[0]}"
    a = match.modifiers.get("atype") or words.get(key, "f16")
    b = match.modifiers.get("btype") or a
    if key in ("mma.int8", "mma.int4", "mma.b1"):
        return a, b, "s32", "s32"
    if key == "mma.f64":
        return a, b, "f64", "f64"
    d = "f16" if key in ("mma.f16_f16", "mma.fp8_f16", "mma.volta_f16") else "f32"
    c = "f16" if key == "mma.volta_f32_f16" else d
    return a, b, c, d


def accumulator_bound(d: str, a: str, k: int) -> Tolerance | None:
    """How far exact sums and the hardware's may be apart for ordinary elements: k + 1 terms cut to F bits below the
    largest, and one rounding of D each. F is 25, for fp8 13."""
    if d not in ("f32", "f16"):
        return None
    kept = 13 if a in ("e4m3", "e5m2") else 25
    cut = (k + 1) * 2.0 ** (ORDINARY_BITS - kept + 1)
    rounding = 2.0**-10 if d == "f16" else 2.0**-12 if kept == 13 else 2.0**-22
    return Tolerance(d, rounding, cut)


CODES, CODES_OF_TF32 = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE), (0x4, 0xE)
"""Which elements of a group are stored (PTX ISA 9.7.14.6.1)."""


def _metadata(source: Source, kind: str, tiles: int) -> np.ndarray:
    """A register of each thread and tile that is valid whoever is asked, (tiles, 32)."""
    legal = CODES_OF_TF32 if kind == "tf32" else CODES
    drawn = np.array(legal, np.uint32)[source.bits(tiles * 32 * 8, 32).reshape(tiles, 32, 8) % len(legal)]
    return np.asarray((drawn << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32))


def _multiply(form: Form, opcode: str, match: Match, target: str = "sm_90a", selector: int | None = None) -> Case:
    """selector: of a sparse A."""
    kinds = _types(match)
    names = dict(zip("abcd", kinds, strict=True))
    tiles = classes(kinds[0])
    counts = {spec.name: match.length_of(spec) or 1 for spec in form.operands}
    bits = 64 if names["a"] == "f64" else 32
    prefix = "rd" if bits == 64 else "r"
    first = {"a": 10, "b": 20, "c": 30, "d": 40}
    lines = ["mov.u32 %r1, %ctaid.x;"]
    for number, name in enumerate("abcd"):
        # register r of lane t of tile c lies at word (c * registers + r) * 32 + t
        lines += [f"mul.lo.u32 %r2, %r1, {counts[name] * 32};", "add.u32 %r2, %r2, %t;"]
        lines.append(f"mad.wide.u32 %rd{number + 1}, %r2, {bits // 8}, %a{number};")
    for number, name in enumerate("abc"):
        for at in range(counts[name]):
            lines.append(f"ld.global.b{bits} %{prefix}{first[name] + at}, [%rd{number + 1}+{at * 32 * bits // 8}];")
    braces = [
        "{" + ", ".join(f"%{prefix}{first[name] + at}" for at in range(counts[name])) + "}" for name in "dabc"
    ]  # fmt: skip
    if selector is not None:
        lines += ["mad.lo.u32 %r2, %r1, 32, %t;", "mad.wide.u32 %rd5, %r2, 4, %a4;", "ld.global.b32 %r50, [%rd5];"]
        braces += ["%r50", str(selector)]
    lines.append(f"{opcode} {', '.join(braces)};")
    for at in range(counts["d"]):
        lines.append(f"st.global.b{bits} [%rd4+{at * 32 * bits // 8}], %{prefix}{40 + at};")
    word = np.dtype(f"u{bits // 8}")

    def arguments() -> tuple[Argument, ...]:
        made = []
        for name in "abc":
            source = Source(f"mma/{names[name]}/{name}/{counts[name]}")
            size = counts[name] * 32 * bits
            tile = [_packed(source, names[name], size, tiles[at]).view(word) for at in range(len(tiles))]
            made.append(Array(np.stack(tile).reshape(len(tiles), counts[name], 32)))
        more = [] if selector is None else [Array(_metadata(Source("mma/metadata"), names["a"], len(tiles)))]
        return (*made, output((len(tiles), counts["d"], 32), word.type), *more)

    m, k = (8, 4) if "volta" in form.key else mma.shape_of(match.modifiers)[::2]
    more = "" if selector is None else f", selector {selector}"
    return Case(
        f"mma/{opcode}{more}{' from sm_80' if target == 'sm_80' else ''}", (form.key,), "\n".join(lines), arguments,
        ("array",) * (4 if selector is None else 5), grid=len(tiles), labels=tiles, target=target,
        exact_bound=accumulator_bound(names["d"], names["a"], k),
    )  # fmt: skip


def _packed(source: Source, kind: str, bits: int, name: str) -> np.ndarray:
    """So many bits of elements."""
    width = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}.get(kind, 8)
    return elements(source, kind, bits // width, name)


# -- matrices between registers and shared memory ------------------------------------------------------------------


def _matrices() -> Iterator[Case]:
    """Lane t names row 5 t + 3 (mod 32) of the tile, so that no two matrices lie in order."""
    for form in (row for row in matrix.FORMS if row.key.endswith(".b16")):
        for opcode, chosen in spread(form, ("num", "trans")):
            count = int((chosen.get("num") or "x1")[1:])
            braces = "{" + ", ".join(f"%r{10 + at}" for at in range(count)) + "}"
            body = Body(32).do("mad.lo.u32 %r1, %t, 5, 3;", "and.b32 %r1, %r1, 31;", "mad.lo.u32 %r1, %r1, 16, %r60;")
            body.do("cvt.u64.u32 %rd2, %r60;", "cvta.shared.u64 %rd2, %rd2;", "cvt.u64.u32 %rd3, %r1;")
            body.do("cvta.shared.u64 %rd3, %rd3;", "mad.wide.u32 %rd1, %t, 4, %a1;", "mad.wide.u32 %rd4, %t, 4, %a0;")
            place = "[%r1]" if chosen.get("space") else "[%rd3]"
            if form.base == "ldmatrix":
                body.fill("%a0", 512).do(f"{opcode} {braces}, {place};")
                body.do(*(f"st.global.b32 [%rd1+{128 * at}], %r{10 + at};" for at in range(count)))
                size = 32 * count
            elif form.base == "stmatrix":
                body.paint(512).do(*(f"ld.global.b32 %r{10 + at}, [%rd4+{128 * at}];" for at in range(count)))
                body.do(f"{opcode} {place}, {braces};", "bar.sync 0;").dump("%a1", 512)
                size = 128
            else:
                body.do("ld.global.b32 %r10, [%rd4];", f"{opcode} %r11, %r10;", "st.global.b32 [%rd1], %r11;")
                size = 32
            yield Case(
                f"matrix/{opcode}", (form.key,), body.text(),
                lambda size=size: (Array(Source("matrix").bits(128, 32)), output(size, np.uint32)),  # type: ignore[misc]
                ("array", "array"),
            )  # fmt: skip
