"""Dat3M's litmus tests of PTX: small programs of a few threads, with what their final state may be.

    PTX MP
    { x=0; flag=0; P1:r0=0; }
    P0@cta 0,gpu 0        | P1@cta 0,gpu 0          ;
    st.weak x, 1          | ld.acquire.cta r0, flag ;
    exists (P1:r0 == 1 /\\ ...)

A test becomes a kernel whose threads branch by their number: threads of one CTA are warps of one CTA, other CTAs are
others of the grid. It is run under several schedules; every final state that the emulator reaches must be one that
PTX's model allows. Where a test says that a state cannot be (`~exists`, or `exists` with "no" in the expected
verdicts), reaching it is an error of ours; not reaching an allowed one is not, for the emulator is sequentially
consistent by design.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import warploom
from warploom.errors import WarploomError

SCHEDULES = (("lazy", 0), ("eager", 0), *(("random", seed) for seed in range(6)))


class Untranslated(Exception):
    """What of a test has no form in PTX text here."""


@dataclass(frozen=True)
class Program:
    """A litmus test: initial values, CTA of each thread, instructions of each thread, the condition and its kind."""

    name: str
    initial: Mapping[str, int]
    registers: Mapping[str, int]
    ctas: tuple[int, ...]
    threads: tuple[tuple[str, ...], ...]
    kind: str
    condition: str


@dataclass(frozen=True)
class Verdict:
    """What came of a test.

    result: "kept", no forbidden state was reached; "broken", one was; "open", none is known to be forbidden; "spins", a
    loop waits forever under some schedule; "left out", with the reason.
    """

    test: str
    result: str
    why: str = ""


def read(path: Path) -> Program:
    """A test from its file. Raises Untranslated for aliases and other devices."""
    text = re.sub(r"(?<!:)//[^\n]*|\(\*.*?\*\)", "", path.read_text(), flags=re.DOTALL)
    head = r"\s*PTX\s+(\S+)\s*(?:\"[^\"]*\"\s*)*"
    found = re.match(head + r"\{(.*?)\}(.*?)((?:~?\s*exists|forall|filter)\b.*)", text, re.DOTALL)
    if not found:
        raise Untranslated("no program and condition")
    initial, registers = {}, {}
    for item in filter(None, (part.strip() for part in found[2].split(";"))):
        if "@" in item or "aliases" in item:
            raise Untranslated("another proxy: surfaces, textures, aliases")
        name, _, value = item.partition("=")
        (registers if ":" in name else initial)[name.strip()] = int(value or 0, 0)
    rows = [[cell.strip() for cell in row.split("|")] for row in found[3].split(";") if row.strip()]
    ctas = []
    for cell in rows[0]:
        place = re.search(r"cta\s+(\d+)\s*,\s*gpu\s+(\d+)", cell)
        if not place:
            raise Untranslated("a thread without its place")
        if int(place[2]):
            raise Untranslated("several devices")
        ctas.append(int(place[1]))
    threads = tuple(tuple(row[at] for row in rows[1:] if at < len(row) and row[at]) for at in range(len(ctas)))
    kind, condition = re.match(r"(~?\s*\w+)(.*)", found[4], re.DOTALL).groups()  # type: ignore[union-attr]
    return Program(found[1], initial, registers, tuple(ctas), threads, "".join(kind.split()), condition.strip())


# -- to PTX ------------------------------------------------------------------------------------------------------


def to_ptx(program: Program) -> str:
    """The test as a kernel: locations in `memory`, results in `out`, one warp for each thread."""
    places = {name: at for at, name in enumerate(program.initial)}
    registers = _registers(program)
    ctas = sorted(set(program.ctas))
    lines, slot = [], dict.fromkeys(ctas, 0)
    for number, (cta, instructions) in enumerate(zip(program.ctas, program.threads, strict=True)):
        warp = slot[cta]
        slot[cta] += 1
        lines += [f"setp.ne.u32 %p1, %cta, {ctas.index(cta)};", f"@%p1 bra END{number};",
                  f"setp.ne.u32 %p1, %warp, {warp};", f"@%p1 bra END{number};"]  # fmt: skip
        for text in instructions:
            lines += _instruction(text, number, places)
        for name, at in registers.items():
            if name.startswith(f"P{number}:"):
                lines.append(f"st.weak.global.u32 [%out+{4 * at}], {_register(name.split(':')[1], number)};")
        lines.append(f"END{number}:")
    own = sorted({_register(word, number) for number, thread in enumerate(program.threads)
                  for text in thread for word in re.findall(r"\br\d+\b", text)}
                 | {_register(name.split(":")[1], int(name[1 : name.index(":")])) for name in registers})  # fmt: skip
    declared = f".reg .b32 {', '.join(own)};" if own else ""
    start = [f"mov.u32 {_register(name.split(':')[1], int(name[1 : name.index(':')]))}, "
             f"{program.registers.get(name, 0)};" for name in registers]  # fmt: skip
    body = "\n    ".join([*start, *lines])
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry litmus(.param .u64 pm, .param .u64 po)
{{
    .reg .pred %p<3>; .reg .b32 %t, %warp, %cta; .reg .b64 %mem, %out; {declared}
    ld.param.u64 %mem, [pm]; ld.param.u64 %out, [po];
    mov.u32 %t, %tid.x; and.b32 %warp, %t, 31; setp.ne.u32 %p1, %warp, 0; @%p1 exit;
    shr.u32 %warp, %t, 5; mov.u32 %cta, %ctaid.x;
    {body}
    ret;
}}
"""


def _registers(program: Program) -> dict[str, int]:
    named = [*program.registers, *re.findall(r"P\d+:r\d+", program.condition)]
    return {name: at for at, name in enumerate(dict.fromkeys(named))}


def _register(name: str, thread: int) -> str:
    return f"%{name}_{thread}"


def _value(text: str, thread: int) -> str:
    return _register(text, thread) if re.fullmatch(r"r\d+", text) else str(int(text, 0))


def _instruction(text: str, thread: int, places: Mapping[str, int]) -> Iterator[str]:
    """One instruction of a litmus test as lines of PTX."""
    if text.endswith(":"):
        yield f"{text[:-1]}_{thread}:"
        return
    opcode, _, rest = text.partition(" ")
    operands = [part.strip() for part in rest.split(",") if part.strip()]
    words = opcode.split(".")
    if words[0] == "goto":
        yield f"bra {rest.strip()}_{thread};"
    elif words[0] in ("beq", "bne", "blt", "ble", "bgt", "bge"):
        left, right = (_value(each, thread) for each in operands[:2])
        yield f"setp.{words[0][1:]}.s32 %p2, {left}, {right};"
        yield f"@%p2 bra {operands[2]}_{thread};"
    elif words[0] in ("ld", "st"):
        address, other = (operands[1], operands[0]) if words[0] == "ld" else (operands[0], operands[1])
        if address not in places or len(words) < 2:
            raise Untranslated(f"`{text}`")
        where = f"[%mem+{4 * places[address]}]"
        if any(word in ("sc", "constant", "tex", "surf", "ca", "cg") for word in words):
            raise Untranslated(f"`{text}`")
        made = f"{'.'.join(words)}.global.u32"
        value = _value(other, thread)
        yield f"{made} {value}, {where};" if words[0] == "ld" else f"{made} {where}, {value};"
    elif words[0] == "atom" and operands[1:] and operands[1] in places:
        order = [
            word for word in words[1:] if word in ("relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys")
        ]
        operation = [word for word in words[1:] if word not in order]
        if operation not in (["exch"], ["add"], ["cas"], ["plus"]):
            raise Untranslated(f"`{text}`")
        name = "add" if operation == ["plus"] else operation[0]
        kind = "u32" if name == "add" else "b32"
        values = ", ".join(_value(each, thread) for each in operands[2:])
        where = f"[%mem+{4 * places[operands[1]]}]"
        yield f"atom.{'.'.join(order)}.global.{name}.{kind} {_register(operands[0], thread)}, {where}, {values};"
    elif words[0] == "fence" and len(words) == 3 and words[1] in ("sc", "acq_rel"):
        yield f"{opcode};"
    else:
        raise Untranslated(f"`{text}`")


# -- running -----------------------------------------------------------------------------------------------------


def states(program: Program) -> Iterator[dict[str, int]]:
    """The final states that the schedules reach. Raises WarploomError where one does not end."""
    text = to_ptx(program)
    registers = _registers(program)
    warps = max(Counter(program.ctas).values())
    for schedule, seed in SCHEDULES:
        memory = np.array([*program.initial.values()] or [0], np.uint32)
        out = np.zeros(max(len(registers), 1), np.uint32)
        warploom.emulate(text, memory, out, grid=len(set(program.ctas)), block=32 * warps, check=False,
                         schedule=schedule, seed=seed, max_steps=20_000)  # fmt: skip
        found = dict(zip(program.initial, memory.tolist(), strict=False))
        yield found | dict(zip(registers, out.tolist(), strict=False))


def holds(condition: str, state: Mapping[str, int]) -> bool:
    """True if a condition is true of a state."""
    text = re.sub(r"P\d+:\w+|\b[A-Za-z_]\w*\b", lambda found: str(state[found[0]]), condition)
    text = text.replace("/\\", " and ").replace("\\/", " or ").replace("~", " not ")
    return bool(eval(re.sub(r"(?<![=!<>])=(?!=)", "==", text), {"__builtins__": {}}))


def run(path: Path, allowed: bool | None) -> Verdict:
    """Run a test. allowed: the expected verdict, whether what the condition claims is so; None where none is given."""
    name = path.stem
    try:
        program = read(path)
        forbidden = {"~exists": allowed is True, "exists": allowed is False}.get(program.kind, False)
        reached = [holds(program.condition, state) for state in states(program)]
    except Untranslated as reason:
        return Verdict(name, "left out", str(reason))
    except KeyError as error:
        return Verdict(name, "left out", f"the condition names {error}")
    except WarploomError as error:
        return Verdict(name, "spins" if error.code in ("deadlock", "step-limit") else "left out", error.what)
    if program.kind == "forall":
        return Verdict(name, "kept" if all(reached) else "broken")
    return Verdict(name, ("broken" if any(reached) else "kept") if forbidden else "open")


def expected(folder: Path) -> dict[str, bool]:
    """Test -> whether what its condition claims is so, by Dat3M's lists of expected verdicts."""
    found = {}
    for path in sorted(folder.rglob("PTXv*-expected.csv")):
        if "Liveness" in path.name:
            continue
        for line in path.read_text().splitlines():
            test, _, verdict = line.partition(",")
            found[Path(test.strip()).stem] = verdict.strip().lower().startswith(("1", "true"))
    return found


def table(folder: Path) -> str:
    """The verdicts by folder, and those that are not as they should be."""
    known = expected(folder)
    root = next(iter(folder.rglob("litmus/PTX")))
    counts: dict[str, Counter[str]] = {}
    wrong, reasons = [], Counter[str]()
    for path in sorted(root.rglob("*.litmus")):
        verdict = run(path, known.get(path.stem))
        counts.setdefault(str(path.parent.relative_to(root)), Counter())[verdict.result] += 1
        if verdict.result == "broken":
            wrong.append(f"- `{verdict.test}`: a state that is forbidden was reached")
        elif verdict.result == "left out":
            reasons[verdict.why.split("`")[0] or "an instruction without a form here"] += 1
    kinds = ("kept", "open", "spins", "broken", "left out")
    rows = [f"| {name} | {sum(count.values())} | {' | '.join(str(count[kind]) for kind in kinds)} |"
            for name, count in counts.items()]  # fmt: skip
    total = sum(counts.values(), Counter())
    rows.append(f"| all | {sum(total.values())} | {' | '.join(str(total[kind]) for kind in kinds)} |")
    why = [f"- {count}: {reason}" for reason, count in reasons.most_common()]
    head = ["| folder | tests | kept | open | spins | broken | left out |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows, "", "Left out:", "", *why, *(["", *wrong] if wrong else [])])


def litmus_texts(folder: Path) -> Iterator[Path]:
    """The tests below a checkout."""
    return itertools.chain.from_iterable(root.rglob("*.litmus") for root in folder.rglob("litmus/PTX"))
