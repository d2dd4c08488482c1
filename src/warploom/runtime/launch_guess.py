"""What `warploom check --init` writes: a launch description with what the text says, and guesses for the rest.

Grid, sizes and values are nobody's but the caller's, so they are guesses and said to be. Block and cluster stand in
directives; which bytes of a parameter are pointers or tensor maps the instructions show (`launch_text`); the compiler's
metadata or the kernel's name may say more (`launch_compilers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .. import asm
from .launch_compilers import Hints, Map, hints
from .launch_text import Use, uses
from .launch_values import FILLS
from .program import Parameter, Program

GUESS = "a guess"
_SHAPES = {1: [1024], 2: [128, 64], 3: [1, 128, 64], 4: [1, 1, 128, 64], 5: [1, 1, 1, 128, 64]}


def template(program: Program, text: Path | None = None) -> str:
    """A launch description of a program, to be filled in.

    text: the file, beside which a compiler may have left what it knows.
    """
    function = next(one for one in asm.parse(program.text).entries if one.name == program.entry)
    shown, known = uses(function), hints(program.entry, text)
    lines = [
        f"# How `warploom check` runs the kernel `{program.entry}`. What is called a guess is one:",
        "# put in what the kernel expects, then delete the next line.",
        "guessed = true",
        *(f"# {fact}" for fact in known.facts),
        f'entry = "{program.entry}"',
        f"grid = [1, 1, 1]                # {GUESS}",
        _block(program, function.directive("maxntid"), known),
        _cluster(program, known),
        _shared(program, known),
    ]
    if known.dependent:
        lines.append(f"dependent = true                # said by {known.source}")
    maps, calls = _Maps(known), re.search(r"(?m)^\s*call", program.text) is not None
    for number, parameter in enumerate(program.parameters):
        lines += ["", "[[parameter]]", f'name = "{parameter.name}"']
        behind = len(program.parameters) - number
        note = known.scratch[-behind] if 0 < behind <= len(known.scratch) else ""
        use = shown.get(parameter.name, {})
        if parameter.kind == "pointer" and not use and not calls and not note:
            lines += ['kind = "scalar"                 # a guess: no address is made of it; or "buffer"',
                      'dtype = "u64"', f"value = 1                       # {GUESS}"]  # fmt: skip
        else:
            lines += _parameter(parameter, use, maps, note)
    return "\n".join(lines) + "\n"


def has_extern_shared(text: str) -> bool:
    """Whether the text has shared memory whose size the launch gives (PTX ISA 5.4, .extern .shared)."""
    return re.search(r"\.extern\s+\.shared\b", text) is not None


# -- the launch ----------------------------------------------------------------------------------------------------


def _block(program: Program, most: tuple[int, ...] | None, known: Hints) -> str:
    if program.block:
        return f"block = {list(program.block)}              # said by .reqntid"
    if known.threads:
        return f"block = [{known.threads}, 1, 1]              # said by {known.source}"
    if most:
        return f"block = {list((*most, 1, 1)[:3])}              # {GUESS}: the most that .maxntid allows"
    return f"block = [128, 1, 1]             # {GUESS}: the text does not say"


def _cluster(program: Program, known: Hints) -> str:
    if any(size != 1 for size in program.cluster):
        return f"cluster = {list(program.cluster)}             # said by .reqnctapercluster"
    if known.cluster:
        return f"cluster = {list(known.cluster)}             # said by {known.source}"
    clusters = re.search(r"\.explicitcluster|\.maxclusterrank|barrier\.cluster|%cluster_ctarank|mapa\.", program.text)
    return "cluster = [1, 1, 1]" + (f"             # {GUESS}: the text is made for clusters" if clusters else "")


def _shared(program: Program, known: Hints) -> str:
    extern = has_extern_shared(program.text)
    size = known.dynamic_smem if known.dynamic_smem is not None and extern else program.dynamic_smem
    if known.dynamic_smem is not None and extern:
        words = f"said by {known.source}" if known.sure else f"{GUESS}: the most that a CTA can have"
        return f"dynamic_smem = {size}           # bytes, {words}"
    more = f"; {GUESS}: the text has .extern .shared memory, so put in how much the launch gives it" if extern else ""
    return f"dynamic_smem = {size}                # bytes{more}"


# -- parameters ----------------------------------------------------------------------------------------------------


class _Maps:
    """Hands out what is known of tensor maps, in the order of the parameters."""

    def __init__(self, known: Hints) -> None:
        self.source = known.source
        self._all, self._loads, self._stores = (iter(maps) for maps in (known.maps, known.loads, known.stores))

    def next(self, use: Use | None) -> Map:
        found = next(self._all, None)
        if found is None:
            found = next(self._stores if use is not None and use.writes else self._loads, None)
        return found or Map()


def _parameter(parameter: Parameter, shown: dict[int, Use], maps: _Maps, note: str) -> Iterator[str]:
    use = shown.get(0)
    if parameter.kind == "tensor_map":
        yield from _tensor_map(use, maps)
    elif parameter.kind == "scalar":
        yield from (
            'kind = "scalar"',
            f'dtype = "{parameter.dtype or "u32"}"',
            f"value = 1                       # {GUESS}",
        )
    elif parameter.kind == "blob" and parameter.size == 128 and use is not None and use.kind == "tensor_map":
        yield from _tensor_map(use, maps)
    elif parameter.kind == "blob":
        yield from (
            'kind = "bytes"',
            f"size = {parameter.size}",
            f"# {GUESS}: all other bytes of the structure are zeros",
        )
        yield f'hex = "{"00" * min(parameter.size, 16)}"'
        for offset, part in sorted(shown.items()):
            yield f"[parameter.at.{offset}]"
            yield f'name = "at_{offset}"'
            may_be_null = "leave the table out where the caller passes null"
            yield from _tensor_map(part, maps) if part.kind == "tensor_map" else _buffer(part, may_be_null)
    else:
        yield from _buffer(use, note)


def _buffer(use: Use | None, note: str) -> Iterator[str]:
    if note:
        yield f"# {note}"
    if use is None:
        yield 'kind = "buffer"                # a guess: nothing is read or written there; or "scalar", dtype "u64"'
    else:
        doing = " and ".join(word for word, does in (("read", use.reads), ("written", use.writes)) if does)
        yield f'kind = "buffer"                # {doing}'
    yield f'dtype = "{use.dtype}"' if use is not None and use.dtype else f'dtype = "f32"                   # {GUESS}'
    yield f"shape = [1024]                 # {GUESS}; outermost first"
    fill = "zeros" if use is not None and not use.reads else "normal"
    yield f'fill = "{fill}"                # {", ".join(FILLS)}, a number'


def _tensor_map(use: Use | None, maps: _Maps) -> Iterator[str]:
    found = maps.next(use)
    rank = use.rank if use is not None and use.rank else 2
    doing = "stored to" if use is not None and use.writes else "loaded from"
    said = f"said by {maps.source}" if maps.source else GUESS
    likely = said if found.sure else GUESS
    yield f'kind = "tensor_map"             # {doing}, {rank} dimensions'
    yield (
        f'dtype = "{found.dtype}"                   # {said}'
        if found.dtype
        else f'dtype = "bf16"                   # {GUESS}'
    )
    yield f"shape = {_SHAPES[rank]}              # {GUESS}; outermost first"
    fill = "zeros" if use is not None and use.writes and not use.reads else "normal"
    yield f'fill = "{fill}"                # {", ".join(FILLS)}, a number'
    box = [*found.box, 1, 1, 1, 1, 1][:rank] if found.box else [64, 64, 1, 1, 1][:rank]
    yield f"box = {box}                 # {likely if found.box else GUESS}; innermost first"
    swizzle = found.swizzle or "128B"
    yield f'swizzle = "{swizzle}"               # {likely if found.swizzle else GUESS}; NONE, 32B, 64B, 128B'
