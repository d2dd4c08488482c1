"""`inspect`: the PTX, the machine code and the resources of a kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from . import find
from .output import say, say_json, table

Spec = Annotated[
    str, typer.Argument(metavar="MODULE:KERNEL", help="A module or file and a name in it; or a .ptx file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="Arguments, if the name is a function that makes a kernel."),
]
Arch = Annotated[str | None, typer.Option(help="Target to build for; by default the one the text names.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="Print the PTX, the machine code or the resources of a kernel.", no_args_is_help=True)


@app.command()
def ptx(spec: Spec, settings: Settings = None) -> None:
    """Print the PTX text of a kernel.

    Example: warploom inspect ptx warploom.kernels.walkthrough:build_gemm_m64n64 M=128 N=128 K=128
    """
    print(find.program(spec, settings or ()).text, end="")


@app.command()
def sass(spec: Spec, settings: Settings = None, arch: Arch = None) -> None:
    """Print the machine code of a kernel. Needs ptxas, and nvdisasm or cuobjdump.

    Example: warploom inspect sass examples/softmax.py:softmax
    """
    from ..driver import disassemble
    from ..runtime import build

    program = find.program(spec, settings or ())
    print(disassemble.sass(build(program, arch).cubin, program.entry), end="")


@app.command()
def resources(spec: Spec, settings: Settings = None, arch: Arch = None, as_json: AsJson = False) -> None:
    """Print what ptxas reports for a kernel: registers, spills, shared memory, barriers, notes.

    Example: warploom inspect resources warploom.kernels.walkthrough:build_gemm_m64n64 M=128 N=128 K=128 --json
    """
    from ..runtime import build

    program = find.program(spec, settings or ())
    built = build(program, arch)
    if as_json:
        entries = {name: used.as_dict() for name, used in built.resources.items()}
        say_json({"compiler": built.compiler, "arch": built.arch, "entries": entries})
        return
    for name, used in built.resources.items():
        table(
            [
                ("compiler", f"{built.compiler} for {built.arch}"),
                ("registers", f"{used.registers} per thread"),
                ("spills", f"{used.spill_stores} bytes stored, {used.spill_loads} loaded"),
                ("stack", f"{used.stack} bytes"),
                ("shared memory", f"{used.static_shared} bytes static, {program.dynamic_smem} dynamic"),
                ("barriers", used.barriers),
                *(("note", note) for note in used.notes),
            ],
            title=name,
        )
        say()
