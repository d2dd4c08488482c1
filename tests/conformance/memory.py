"""Cases of loads, stores, address conversion, cache control, atomics and reductions, made from the table.

Each spelling has a cell of 16 bytes per thread, in the space that it names. A load's registers are the result; a store
or an atomic works on a cell of known bytes, and the whole cell is the result, followed by an atomic's old value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warploom.isa import dtypes
from warploom.isa.instructions import atomics
from warploom.isa.instructions import memory as rows
from warploom.isa.instructions.schema import Form

from . import values
from .case import NEWEST, Argument, Array, Block, Case, output
from .spellings import spread
from .values import Source

THREADS = 32
_CHUNK = 32
_NOT_IN_A_KERNEL = ("param::func",)
_SHARED = ("shared", "shared::cta", "shared::cluster")
_CONSTANTS = [int(word) for word in Source("constants").bits(THREADS * 4, 32)]
_POLICY = "createpolicy.fractional.L2::evict_last.b64 %rd9, 0f3F000000;"
_FULL = {"ld.weak": ("space", "vec", "type"), "st.weak": ("space", "vec", "type")}


def cases() -> Iterator[Case]:
    for form in rows.FORMS:
        kind = form.key.split(".")[0]
        if form.arch == "sm_100" or form.ptx > NEWEST or kind not in ("ld", "st", "ldu"):
            continue
        without = (*_NOT_IN_A_KERNEL, *(("param",) if kind == "st" else ()))
        found = list(spread(form, _FULL.get(form.key, ("vec", "type")), without))
        for number, chunk in enumerate(_chunks(found)):
            yield (_stores if kind == "st" else _loads)(form, number, chunk)
    for form in atomics.FORMS:
        full = ("op", "type", "noftz", "vec") if form.key.startswith(("atom.scalar", "red.scalar")) else ("vec", "type")
        found = list(spread(form, full if "_" not in form.key else ("type", "noftz")))
        for number, chunk in enumerate(_chunks(found)):
            yield _atomics(form, number, chunk)
    yield from _contended()
    yield _windows()
    yield _cache_control()


_Chosen = list[tuple[str, dict[str, str | None]]]


def _chunks(found: _Chosen) -> list[_Chosen]:
    return [found[at : at + _CHUNK] for at in range(0, len(found), _CHUNK)]


def _space(chosen: dict[str, str | None], opcode: str) -> str:
    if "space" in chosen:
        return chosen["space"] or "generic"
    return "global" if ".global" in opcode else "generic"


# -- registers of a type -------------------------------------------------------------------------------------------


class _Registers:
    """The registers that hold `count` elements of a type: %h, %r, %rd or %q, from a number on."""

    def __init__(self, kind: str, count: int, first: int, least: int) -> None:
        self.bits = max(least, dtypes.ALL[kind].bits if kind in dtypes.ALL else 32)
        prefix = {16: "h", 32: "r", 64: "rd", 128: "q"}[self.bits]
        self.names = [f"%{prefix}{first + number}" for number in range(count)]

    def braces(self, vector: bool) -> str:
        return f"{{{', '.join(self.names)}}}" if vector else self.names[0]

    def store(self, at: str, offset: int) -> list[str]:
        """Put them into 16 bytes of global memory."""
        if self.bits == 128:
            return [
                f"mov.b128 {{%rd30, %rd31}}, {self.names[0]};",
                f"st.global.v2.b64 [{at}+{offset}], {{%rd30, %rd31}};",
            ]
        step = self.bits // 8
        return [f"st.global.b{self.bits} [{at}+{offset + step * n}], {name};" for n, name in enumerate(self.names)]

    def load(self, at: str, offset: int) -> list[str]:
        """Take them from 16 bytes of global memory."""
        if self.bits == 128:
            return [
                f"ld.global.v2.b64 {{%rd30, %rd31}}, [{at}+{offset}];",
                f"mov.b128 {self.names[0]}, {{%rd30, %rd31}};",
            ]
        step = self.bits // 8
        return [f"ld.global.b{self.bits} {name}, [{at}+{offset + step * n}];" for n, name in enumerate(self.names)]


def _length(chosen: dict[str, str | None]) -> tuple[int, bool]:
    vector = chosen.get("vec")
    return (int(vector[1:]) if vector else 1), bool(vector)


_START = """
    .shared .align 16 .b8 tile[512];
    .local .align 16 .b8 own[16];
    mad.wide.u32 %rd0, %t, 16, %a0;
    mad.wide.u32 %rd1, %t, {pitch}, %a1;
    mov.u32 %r0, tile;
    mad.lo.u32 %r0, %t, 16, %r0;
    mov.u64 %rd2, own;
    ld.global.v2.b64 {{%rd3, %rd4}}, [%rd0];
    {policy}
"""
"""%rd0: the thread's cell of global memory, %r0 of shared, %rd2 of local; %rd1: its results; %rd3, %rd4: the cell's
bytes."""


def _start(pitch: int, chunk: _Chosen) -> str:
    return _START.format(pitch=pitch, policy=_POLICY if any("cache_hint" in opcode for opcode, _ in chunk) else "")


def _cell(space: str) -> str:
    if space in _SHARED:
        return "%r0"
    return "%rd2" if space == "local" else "%rd0"


def _family(form: Form) -> str:
    return "atomics" if form in atomics.FORMS else "memory"


# -- loads ---------------------------------------------------------------------------------------------------------


def _loads(form: Form, number: int, chunk: _Chosen) -> Case:
    lines = [_start(16, chunk), "st.shared.v2.b64 [%r0], {%rd3, %rd4};", "st.local.v2.b64 [%rd2], {%rd3, %rd4};"]
    const = any(chosen.get("space") == "const" for _, chosen in chunk)
    if const:
        lines += ["mov.u64 %rd5, @@_words;", "mad.wide.u32 %rd5, %t, 16, %rd5;"]
    for at, (opcode, chosen) in enumerate(chunk):
        count, vector = _length(chosen)
        registers = _Registers(chosen["type"] or "", count, 10, 32)
        space = _space(chosen, opcode)
        cell = {"const": "%rd5", "param": "argument2+16", "param::entry": "argument2+16"}.get(space, _cell(space))
        hint = ", %rd9" if "cache_hint" in opcode else ""
        lines.append(f"{opcode} {registers.braces(vector)}, [{cell}]{hint};")
        lines += registers.store("%rd1", at * 16 * THREADS)

    def arguments() -> tuple[Argument, ...]:
        source = Source("memory/loads")
        cells = source.bits(2 * THREADS, 64)
        return (
            Array(cells), output((len(chunk), THREADS, 2), np.uint64),
            Block(source.bits(8, 64).tobytes()),
        )  # fmt: skip

    return Case(
        f"memory/{form.key}/{number}", (form.key,), "\n".join(lines), arguments, ("array", "array", "block64"),
        threads=THREADS, labels=tuple(opcode for opcode, _ in chunk), before=_constants() if const else "",
    )  # fmt: skip


def _constants() -> str:
    return f".const .align 16 .b32 @@_words[{len(_CONSTANTS)}] = {{{', '.join(map(str, _CONSTANTS))}}};"


# -- stores --------------------------------------------------------------------------------------------------------


def _stores(form: Form, number: int, chunk: _Chosen) -> Case:
    lines = [_start(16, chunk)]
    for at, (opcode, chosen) in enumerate(chunk):
        count, vector = _length(chosen)
        registers = _Registers(chosen["type"] or "", count, 10, 32)
        space = _space(chosen, opcode)
        place, result = _cell(space), f"%rd1+{at * 16 * THREADS}"
        lines += registers.load("%rd0", 0) if registers.bits * count <= 128 else []
        hint = ", %rd9" if "cache_hint" in opcode else ""
        if place == "%rd0":
            lines.append(f"{opcode} [{result}], {registers.braces(vector)}{hint};")
            continue
        kind = "local" if space == "local" else "shared"
        lines += [
            "mov.b64 %rd5, 0;", f"st.{kind}.v2.b64 [{place}], {{%rd5, %rd5}};",
            f"{opcode} [{place}], {registers.braces(vector)}{hint};",
            f"ld.{kind}.v2.b64 {{%rd6, %rd7}}, [{place}];", f"st.global.v2.b64 [{result}], {{%rd6, %rd7}};",
        ]  # fmt: skip
    labels = tuple(opcode for opcode, _ in chunk)

    def arguments() -> tuple[Argument, ...]:
        return (Array(Source("memory/stores").bits(2 * THREADS, 64)), output((len(chunk), THREADS, 2), np.uint64))

    return Case(
        f"memory/{form.key}/{number}", (form.key,), "\n".join(lines), arguments, ("array", "array"), threads=THREADS,
        labels=labels,
    )  # fmt: skip


# -- atomics -------------------------------------------------------------------------------------------------------


def _atomics(form: Form, number: int, chunk: _Chosen) -> Case:
    """The cell and the operand have values of the type; operand `c` of a compare-and-swap is as often the cell's."""
    kinds = [chosen["type"] or "" for _, chosen in chunk]
    returns, swaps = form.base == "atom", "cas" in form.key
    pitch = 32
    lines = [_start(pitch, chunk)]
    for at, (opcode, chosen) in enumerate(chunk):
        count, vector = _length(chosen)
        old, new, other = (_Registers(kinds[at], count, first, 16) for first in (10, 40, 50))
        space = _space(chosen, opcode)
        shift = at * 16 * THREADS
        result = f"%rd1+{at * pitch * THREADS}"
        lines.append(f"ld.global.v2.b64 {{%rd3, %rd4}}, [%rd0+{shift}];")
        lines += ["mad.wide.u32 %rd5, %t, 16, %a2;", *new.load("%rd5", shift)]
        operands = new.braces(vector)
        if swaps:
            lines += ["mad.wide.u32 %rd6, %t, 16, %a3;", *other.load("%rd6", shift)]
            operands += ", " + other.braces(vector)
        hint = ", %rd9" if "cache_hint" in opcode else ""
        shared = space in _SHARED
        place = "%r0" if shared else result
        kind = "shared" if shared else "global"
        lines.append(f"st.{kind}.v2.b64 [{place}], {{%rd3, %rd4}};")
        to = f"{old.braces(vector)}, " if returns else ""
        lines.append(f"{opcode} {to}[{place}], {operands}{hint};")
        if shared:
            lines += [f"ld.shared.v2.b64 {{%rd3, %rd4}}, [{place}];", f"st.global.v2.b64 [{result}], {{%rd3, %rd4}};"]
        if returns:
            lines += old.store("%rd1", at * pitch * THREADS + 16)

    def arguments() -> tuple[Argument, ...]:
        cells, news = [], []
        for kind in kinds:
            made = _cells(kind)
            cells.append(made[0])
            news.append(made[1])
        first, second = np.stack(cells), np.stack(news)
        compared = second.copy()
        compared[:, ::2] = first[:, ::2]
        return (
            Array(first), output((len(chunk), THREADS, 4), np.uint64), Array(compared if swaps else second),
            *((Array(second),) if swaps else ()),
        )  # fmt: skip

    return Case(
        f"atomics/{form.key}/{number}", (form.key,), "\n".join(lines), arguments,
        ("array", "array", "array", *(("array",) if swaps else ())), threads=THREADS,
        labels=tuple(opcode for opcode, _ in chunk),
    )  # fmt: skip


def _cells(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Two operands of a type for each thread, as 16 bytes full of elements: (threads, 2) words of 64 bits."""
    stored = "u64" if kind == "b128" else kind
    count = THREADS * 128 // values.width_of(stored)
    first, second = values.operands(Source(f"atomics/{kind}"), [stored, stored], count)
    return first.view(np.uint64).reshape(THREADS, 2), second.view(np.uint64).reshape(THREADS, 2)


def _contended() -> Iterator[Case]:
    """Many threads on one word, where the order does not matter to what is left."""
    for space in ("global", "shared"):
        operations = [
            ("add.u32", 0, "%r1"), ("min.s32", 4, "%r2"), ("max.u32", 8, "%r1"), ("inc.u32", 12, "10"),
            ("dec.u32", 16, "10"), ("and.b32", 20, "%r3"), ("or.b32", 24, "%r4"), ("xor.b32", 28, "%r1"),
        ]  # fmt: skip
        base = "%r0" if space == "shared" else "%rd1"
        lines = [
            ".shared .align 16 .b32 words[8];", "setp.lt.u32 %p0, %t, 8;", "mov.u32 %r0, words;",
            "mad.lo.u32 %r9, %t, 4, %r0;", "mad.wide.u32 %rd0, %t, 4, %a0;", "mad.wide.u32 %rd1, %t, 4, %a1;",
            "@%p0 ld.global.b32 %r5, [%rd0];", "@%p0 st.shared.b32 [%r9], %r5;", "@%p0 st.global.b32 [%rd1], %r5;",
            "mov.u64 %rd1, %a1;", "bar.sync 0;",
            "mad.lo.u32 %r1, %t, 2654435761, 12345;", "sub.s32 %r2, 100, %t;", "mov.b32 %r3, 1;",
            "and.b32 %r6, %t, 31;", "shl.b32 %r3, %r3, %r6;", "mov.b32 %r4, %r3;", "not.b32 %r3, %r3;",
            *(f"red.{space}.{name} [{base}+{at}], {operand};" for name, at, operand in operations),
            *(f"atom.{space}.{name} %r7, [{base}+{at}], {operand};" for name, at, operand in operations[:7]),
            "bar.sync 0;",
        ]  # fmt: skip
        if space == "shared":
            lines += ["mad.wide.u32 %rd1, %t, 4, %a1;", "@%p0 ld.shared.b32 %r5, [%r9];"]
            lines += ["@%p0 st.global.b32 [%rd1], %r5;"]
        yield Case(
            f"atomics/contended/{space}", ("red.scalar_space_first", "atom.scalar"), "\n".join(lines),
            lambda: (Array(np.array([0, 0, 0, 7, 3, 0xFFFFFFFF, 0, 0], np.uint32)), output(8, np.uint32)),
            ("array", "array"), threads=128,
        )  # fmt: skip


# -- addresses and caches ------------------------------------------------------------------------------------------


def _windows() -> Case:
    """Generic addresses of a variable of each space: which windows they are in, and the way back."""
    own = ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param::entry")
    windows = ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry")
    names = {"local": "own", "const": "@@_words", "param::entry": "argument2"}
    lines = [".shared .align 16 .b8 tile[64];", ".local .align 16 .b8 own[64];", "mov.u64 %rd1, %a1;"]
    at = 0
    for space in own:
        if space == "global":
            lines.append("mov.u64 %rd2, %a0;")
        else:
            lines.append(f"mov.u64 %rd2, {names.get(space, 'tile')};")
        lines += [f"add.u64 %rd2, %rd2, {at % 48};", f"cvta.{space}.u64 %rd3, %rd2;"]
        lines += [f"cvta.to.{space}.u64 %rd4, %rd3;", "sub.u64 %rd4, %rd4, %rd2;", f"st.global.b64 [%rd1+{at}], %rd4;"]
        at += 8
        for window in windows:
            lines += [f"isspacep.{window} %p0, %rd3;", "selp.u32 %r1, 1, 0, %p0;", f"st.global.b32 [%rd1+{at}], %r1;"]
            at += 4
        lines += ["ld.b64 %rd4, [%rd3];"]
        if space in ("global", "const", "param::entry"):
            lines += [f"st.global.b64 [%rd1+{at}], %rd4;"]
            at += 8
    return Case(
        "memory/windows/0", ("cvta.from", "cvta.to", "isspacep"), "\n".join(lines),
        lambda: (
            Array(Source("windows").bits(64, 64)), output(-(-at // 8) * 2, np.uint32),
            Block(Source("windows/block").bits(16, 64).tobytes()),
        ),
        ("array", "array", "block128"), threads=1, before=_constants(),
    )  # fmt: skip


def _cache_control() -> Case:
    """What only moves data between caches changes none: prefetches, priorities and policies around a copy."""
    lines = [
        ".local .align 16 .b8 own[16];", "mad.wide.u32 %rd0, %t, 128, %a0;", "mad.wide.u32 %rd1, %t, 128, %a1;",
        "mad.wide.u32 %rd8, %t, 128, %a2;", "mov.u64 %rd2, own;",
        "prefetch.global.L1 [%rd0];", "prefetch.global.L2 [%rd0];", "prefetch.L1 [%rd0];", "prefetch.L2 [%rd0];",
        "prefetch.global.L2::evict_last [%rd0];", "prefetch.global.L2::evict_normal [%rd0];", "prefetchu.L1 [%rd0];",
        "applypriority.global.L2::evict_normal [%rd0], 128;", "discard.global.L2 [%rd8], 128;",
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd9, 0f3F000000;",
        "ld.global.L2::cache_hint.b32 %r1, [%rd0], %rd9;", "st.global.b32 [%rd1], %r1;",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd9, [%rd0], 128, 256;",
        "ld.global.L2::cache_hint.b32 %r1, [%rd0+4], %rd9;", "st.global.b32 [%rd1+4], %r1;",
    ]  # fmt: skip
    return Case(
        "memory/cache_control/0",
        ("prefetch.line", "prefetch.priority", "prefetch.uniform", "applypriority", "discard",
         "createpolicy.fractional", "createpolicy.range"),
        "\n".join(lines),
        lambda: (Array(Source("cache").bits(1024, 32)), output(1024, np.uint32), Array(np.zeros(1024, np.uint32))),
        ("array", "array", "array"),
    )  # fmt: skip
