"""What `warploom check --init` writes: a launch description with what the text says, and guesses for the rest.

Only the caller knows grid, sizes and values, so these are guesses and marked as such. Block and cluster are in
directives. The instructions show which bytes of a parameter are pointers or tensor maps (`launch_text`), and which
boxes fit these (`launch_boxes`). The compiler's metadata or the kernel's name may say more (`launch_compilers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from .. import asm
from ..asm import nodes
from ..asm.directives import names_reached
from ..isa import arch
from ..isa.launch import ONE
from ..plural import counted
from .launch_boxes import Key, MapGuess, likely, shared_sizes
from .launch_calls import inlined
from .launch_compilers import Hints, Map, hints
from .launch_instructions import operand_type, threads_shown
from .launch_text import Use, uses
from .launch_values import FILLS
from .program import Parameter, Program

GUESS = "a guess"
_ALIGNED = 1024
"""Possible alignment of dynamic shared memory after the variables that the text declares: a tile of 128B swizzle."""
_MOST_SCALARS = 32
"""A structure with more scalars than this, such as those of CUTLASS, keeps zeros: each is computed from the others."""
_TABLE = 2
"""Addresses that a guessed array of addresses holds."""
_BLOCK = 128
"""Threads of a CTA where the text shows none."""
_FLOAT = ("f", "bf")
_SHAPES = {1: [1024], 2: [128, 64], 3: [1, 128, 64], 4: [1, 1, 128, 64], 5: [1, 1, 1, 128, 64]}


def template(program: Program, text: Path | None = None) -> str:
    """A launch description of a program, to be filled in.

    text: the file, next to which a compiler may have left metadata.
    """
    module = asm.parse(program.text)
    function = next(one for one in module.entries if one.name == program.entry)
    function = inlined(module, function)
    shown, known = uses(function), hints(program.entry, text)
    product = operand_type(function)
    for each in (use for parts in shown.values() for use in parts.values()):
        if product and each.kind == "pointer" and each.moved and not each.writes and not each.dtype.startswith(_FLOAT):
            each.dtype, each.product = product, True
    lines = [
        f"# How `warploom check` runs the kernel `{program.entry}`. Replace each value marked as a guess",
        "# with the value of your launch, then delete the next line.",
        "guessed = true",
        *(f"# {fact}" for fact in known.facts),
        f'entry = "{program.entry}"',
        f"grid = {list(_cluster_of(program, known))}                # {GUESS}",
        _block(program, function.directive("maxntid"), known, threads_shown(function)),
        _cluster(program, known),
        _shared(program, known, sum(shared_sizes(function, module).values()), _sized_by_launch(function, module)),
    ]
    if known.dependent:
        lines.append(f"dependent = true                # from {known.source}")
    maps = _maps(program, shown, known, function, module)
    calls = any(one.opcode.startswith("call") for one in nodes.instructions_of(function))
    structures = [each.name for each in program.parameters if each.kind == "blob"]
    for number, parameter in enumerate(program.parameters):
        lines += ["", "[[parameter]]", f'name = "{parameter.name}"']
        behind = len(program.parameters) - number
        note = known.scratch[-behind] if 0 < behind <= len(known.scratch) else ""
        use = shown.get(parameter.name, {})
        if parameter.kind == "pointer" and not use and not calls and not note:
            lines += ['kind = "scalar"                 # a guess: no address is made of it; or "buffer"',
                      'dtype = "u64"', f"value = 1                       # {GUESS}"]  # fmt: skip
        else:
            stem = "at" if parameter.name in structures[:1] else f"p{number}_at"  # each array has a name of its own
            lines += _parameter(parameter, stem, use, maps, note)
    return "\n".join(lines) + "\n"


def guesses(text: str) -> tuple[str, ...]:
    """The values of a description that its comments call guesses: `grid = [1, 1, 1]`, `n.value = 1`."""
    found, name = [], ""
    for line in text.splitlines():
        said, _, comment = line.partition("#")
        key, equals, value = (part.strip() for part in said.partition("="))
        name = value.strip('"') if key == "name" else name
        if equals and GUESS in comment and key not in ("kind", "swizzle"):
            found.append(f"{name}.{key} = {value}" if name else f"{key} = {value}")
    return tuple(found)


def has_extern_shared(text: str) -> bool:
    """True if the text has shared memory whose size the launch gives (PTX ISA 5.4, .extern .shared)."""
    return re.search(r"\.extern\s+\.shared\b", text) is not None


# -- the launch ----------------------------------------------------------------------------------------------------


def _block(program: Program, most: tuple[int, ...] | None, known: Hints, shown: tuple[int, str]) -> str:
    if program.block:
        return f"block = {list(program.block)}              # from .reqntid"
    if known.threads:
        return f"block = [{known.threads}, 1, 1]              # from {known.source}"
    if most:
        return f"block = {list((*most, 1, 1)[:3])}              # {GUESS}: the most that .maxntid allows"
    if shown[0] > _BLOCK:
        return f"block = [{shown[0]}, 1, 1]             # {GUESS}: {shown[1]}"
    return f"block = [{_BLOCK}, 1, 1]             # {GUESS}: the text does not say"


def _cluster_of(program: Program, known: Hints) -> tuple[int, ...]:
    return program.cluster if any(size != 1 for size in program.cluster) else (known.cluster or ONE)


def _cluster(program: Program, known: Hints) -> str:
    if any(size != 1 for size in program.cluster):
        return f"cluster = {list(program.cluster)}             # from .reqnctapercluster"
    if known.cluster:
        return f"cluster = {list(known.cluster)}             # from {known.source}"
    clusters = re.search(r"\.explicitcluster|\.maxclusterrank|barrier\.cluster|%cluster_ctarank|mapa\.", program.text)
    return "cluster = [1, 1, 1]" + (f"             # {GUESS}: the text is made for clusters" if clusters else "")


def _sized_by_launch(function: nodes.Function, module: nodes.Module) -> bool:
    """True if a kernel, or a function that it calls, uses shared memory whose size the launch gives."""
    extern = {item.name for item in module.items
              if isinstance(item, nodes.Variable) and item.space == "shared" and item.linkage == "extern"}  # fmt: skip
    return not extern.isdisjoint(names_reached(module, function))


def _shared(program: Program, known: Hints, declared: int, extern: bool) -> str:
    size = known.dynamic_smem if known.dynamic_smem is not None and extern else program.dynamic_smem
    if known.dynamic_smem is not None and extern:
        words = f"from {known.source}" if known.sure else f"{GUESS}: the most that a CTA can have"
        return f"dynamic_smem = {size}           # bytes, {words}"
    if not extern:
        return f"dynamic_smem = {size}                # bytes"
    chip = arch.get(program.arch if program.arch in arch.known() else "sm_90a")
    most = max(0, chip.shared_per_cta - -(-declared // _ALIGNED) * _ALIGNED)
    return f"dynamic_smem = {most}           # bytes, {GUESS}: the most that a CTA can have"


# -- parameters ----------------------------------------------------------------------------------------------------


def _maps(
    program: Program, shown: Mapping[str, dict[int, Use]], known: Hints, function: nodes.Function, module: nodes.Module
) -> dict[Key, MapGuess]:
    """What each tensor map is likely to be: from the compiler, otherwise from the text's own numbers."""
    every, loads, stores = (iter(maps) for maps in (known.maps, known.loads, known.stores))
    said: dict[Key, Map] = {}
    uses_of: dict[Key, Use | None] = {}
    for parameter in program.parameters:
        parts: Mapping[int, Use | None] = shown.get(parameter.name, {})
        if parameter.kind == "tensor_map":
            parts = {0: parts.get(0)}
        for offset, use in sorted(parts.items()):
            if parameter.kind == "tensor_map" or use is not None and use.kind == "tensor_map":
                found = next(every, None) or next(stores if use is not None and use.writes else loads, None)
                said[parameter.name, offset], uses_of[parameter.name, offset] = found or Map(), use
    boxes = likely(function, module, {key: found.dtype for key, found in said.items() if found.dtype})
    return {key: _together(found, boxes.get(key), uses_of[key], f"from {known.source}")
            for key, found in said.items()}  # fmt: skip


def _together(found: Map, shown: MapGuess | None, use: Use | None, source: str) -> MapGuess:
    """Merge what a compiler says about one map with what the text says."""
    rank = use.rank if use is not None and use.rank else 2
    told = shown or MapGuess(
        "bf16", (64, 64, 1, 1, 1)[:rank], "128B", dict.fromkeys(("dtype", "box", "swizzle"), GUESS)
    )
    dtype, box, swizzle, notes = told.dtype, told.box, told.swizzle, dict(told.notes)
    if found.dtype:
        dtype, notes["dtype"] = found.dtype, source
    if found.box and (found.sure or notes["box"] == GUESS):  # an expect_tx in the text is surer than a likely tile
        box, notes["box"] = (*found.box, 1, 1, 1, 1, 1)[:rank], source if found.sure else GUESS
    if found.swizzle and (found.sure or notes["swizzle"] == GUESS):
        swizzle, notes["swizzle"] = found.swizzle, source if found.sure else GUESS
    return MapGuess(dtype, box, swizzle, notes)


def _parameter(
    parameter: Parameter, stem: str, shown: dict[int, Use], maps: Mapping[Key, MapGuess], note: str
) -> Iterator[str]:
    """stem: of the names of the parts of a structure."""
    use = shown.get(0)
    if parameter.kind == "tensor_map":
        yield from _tensor_map(use, maps, (parameter.name, 0))
    elif parameter.kind == "scalar":
        yield from _scalar(str(parameter.dtype or "u32"))
    elif parameter.kind == "blob" and parameter.size == 128 and use is not None and use.kind == "tensor_map":
        yield from _tensor_map(use, maps, (parameter.name, 0))
    elif parameter.kind == "blob":
        yield from (
            'kind = "bytes"',
            f"size = {parameter.size}",
            f"# {GUESS}: all other bytes of the structure are zeros",
        )
        yield f'hex = "{"00" * min(parameter.size, 16)}"'
        scalars = [offset for offset, part in shown.items() if part.kind == "scalar"]
        for offset, part in sorted(shown.items()):
            if part.kind == "scalar" and len(scalars) > _MOST_SCALARS:
                continue
            yield f"[parameter.at.{offset}]"
            yield f'name = "{stem}_{offset}"'
            may_be_null = "leave the table out where the caller passes null"
            if part.kind == "tensor_map":
                yield from _tensor_map(part, maps, (parameter.name, offset))
            elif part.kind == "scalar":
                yield from _scalar(part.dtype)
            elif part.kind == "table":
                yield from _table(part, f"parameter.at.{offset}", f"{stem}_{offset}")
            else:
                yield from _buffer(part, may_be_null)
    elif use is not None and use.kind == "table":
        yield from _table(use, "parameter", parameter.name)
    else:
        yield from _buffer(use, note)


def _scalar(dtype: str) -> Iterator[str]:
    yield from ('kind = "scalar"', f'dtype = "{dtype}"', f"value = 1                       # {GUESS}")


def _table(use: Use, place: str, name: str) -> Iterator[str]:
    """An array of addresses in global memory."""
    yield 'kind = "bytes"                 # an array of addresses, in global memory: one part for each'
    yield f"size = {8 * _TABLE}                      # {GUESS}"
    for number in range(_TABLE):
        yield f"[{place}.at.{8 * number}]"
        yield f'name = "{name}_at_{8 * number}"'
        yield from _buffer(replace(use, kind="pointer", reads=True, writes=True), "")


def _buffer(use: Use | None, note: str) -> Iterator[str]:
    if note:
        yield f"# {note}"
    if use is None:
        yield 'kind = "buffer"                # a guess: nothing is read or written there; or "scalar", dtype "u64"'
    else:
        doing = " and ".join(word for word, does in (("read", use.reads), ("written", use.writes)) if does)
        yield f'kind = "buffer"                # {doing}'
    if use is not None and use.dtype:
        yield f'dtype = "{use.dtype}"' + (f"      # {GUESS}: an operand of the matrix products" if use.product else "")
    else:
        yield f'dtype = "f32"                   # {GUESS}'
    yield f"shape = [1024]                 # {GUESS}; outermost first"
    if use is not None and use.counter and use.reads:
        yield f'fill = "zeros"                 # {GUESS}: atomics or polling loads use it; {", ".join(FILLS)}, a number'
        return
    yield _fill(use)


def _fill(use: Use | None) -> str:
    """What an array holds: of one that is only written it does not matter."""
    only_written = use is not None and use.writes and not use.reads
    fill, note = ("zeros", "") if only_written else ("normal", f"{GUESS}; ")
    return f'fill = "{fill}"                # {note}{", ".join(FILLS)}, a number'


def _tensor_map(use: Use | None, maps: Mapping[Key, MapGuess], key: Key) -> Iterator[str]:
    told = maps[key]
    rank = len(told.box)
    doing = "stored to" if use is not None and use.writes else "loaded from"
    yield f'kind = "tensor_map"             # {doing}, {counted(rank, "dimension")}'
    yield f'dtype = "{told.dtype}"                   # {told.notes["dtype"]}'
    shape = [max(sizes) for sizes in zip(_SHAPES[rank], reversed(told.box), strict=True)]
    yield f"shape = {shape}              # {GUESS}; outermost first"
    yield _fill(use)
    yield f"box = {list(told.box)}                 # {told.notes['box']}; innermost first"
    yield f'swizzle = "{told.swizzle}"               # {told.notes["swizzle"]}; NONE, 32B, 64B, 128B'
