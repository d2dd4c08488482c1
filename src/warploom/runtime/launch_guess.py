"""What `warploom check --init` writes: a launch description with what the text says, and guesses for the rest."""

from __future__ import annotations

import re

from .launch_values import FILLS
from .program import Parameter, Program


def template(program: Program) -> str:
    """A launch description of a program, to be filled in: kinds are read off the text, sizes are guesses."""
    block = program.block or (128, 1, 1)
    lines = [
        f"# How `warploom check` runs the kernel `{program.entry}`. Sizes, types and values below are guesses:",
        "# put in what the kernel expects, then delete the next line.",
        "guessed = true",
        f'entry = "{program.entry}"',
        "grid = [1, 1, 1]",
        f"block = {list(block)}" + ("" if program.block else "             # not said by the text"),
        f"cluster = {list(program.cluster)}",
        f"dynamic_smem = {program.dynamic_smem}                # bytes" + _EXTERN * has_extern_shared(program.text),
    ]
    for parameter in program.parameters:
        lines += ["", "[[parameter]]", f'name = "{parameter.name}"', *_template_of(parameter)]
    return "\n".join(lines) + "\n"


_EXTERN = "; the text has .extern .shared memory, so put in how much the launch gives it"


def has_extern_shared(text: str) -> bool:
    """Whether the text has shared memory whose size the launch gives (PTX ISA 5.4, .extern .shared)."""
    return re.search(r"\.extern\s+\.shared\b", text) is not None


def _template_of(parameter: Parameter) -> list[str]:
    array = [
        "shape = [1024]                 # outermost first",
        f'fill = "normal"                # {", ".join(FILLS)}, a number',
    ]
    if parameter.kind == "tensor_map":
        return [
            'kind = "tensor_map"', 'dtype = "bf16"', "shape = [128, 64]              # outermost first", array[1],
            "box = [64, 64]                 # innermost first", 'swizzle = "128B"               # NONE, 32B, 64B, 128B',
        ]  # fmt: skip
    if parameter.kind == "scalar":
        return ['kind = "scalar"', f'dtype = "{parameter.dtype or "u32"}"', "value = 1"]
    if parameter.kind == "blob":
        return ['kind = "bytes"', f"size = {parameter.size}", f'hex = "{"00" * parameter.size}"']
    return [
        'kind = "buffer"                # or "scalar", dtype "u64", if it is a number',
        'dtype = "f32"',
        *array,
    ]
