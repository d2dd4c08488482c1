"""`demo`: one Hopper GEMM in the emulator, and on the GPU if there is one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import DriverError
from ..isa.instructions.table import MATRIX_UNITS
from .output import say, say_error, say_json, table

KERNEL = "warploom.kernels.walkthrough:build_gemm_m64n64 M=128 N=128 K=128"


def demo(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Run a Hopper GEMM, emulated and on the GPU if there is one.

    Example: warploom demo
    """
    from ..driver import library
    from ..lab import demo as lab

    if not as_json:
        say("A Hopper GEMM written in Python at PTX level: TMA, mbarriers, warpgroup MMAs; bf16 in, f32 out.")
        say("emulating it on this CPU: a few seconds ...")
    run, c = lab.emulated()
    build = lab.built()
    runs = [run]
    trouble: DriverError | None = None
    if library.available():
        try:
            runs += lab.on_gpu(c)
        except DriverError as error:
            trouble = error
    if as_json:
        say_json({"kernel": "walkthrough m64n64", "build": build, "runs": runs})
        return
    _say_build(build)
    for one in runs:
        _say_run(one)
    if trouble is not None:
        say_error(trouble)
    elif len(runs) == 1:
        say()
        say("No GPU was used: " + (_why_not() or "there is none here") + ".")
    say()
    _say_next()


def _say_next() -> None:
    command = _command()
    rows = [
        ("read it", "src/warploom/kernels/walkthrough.py"),
        ("its PTX", f"{command} inspect ptx {KERNEL}"),
        ("its cost", f"{command} inspect resources {KERNEL}"),
        ("this machine", f"{command} info"),
        ("your own kernel", f"README.md and examples/, then {command} check FILE.py"),
    ]
    table(rows, title="What to look at next")


def _command() -> str:
    """How to call the command here: by its name if it is in PATH, otherwise by the environment's path."""
    if shutil.which("warploom"):
        return "warploom"
    beside = Path(sys.executable).with_name("warploom")
    if not beside.exists():
        return f"{Path(sys.executable).name} -m warploom"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)


def _why_not() -> str:
    from .info import gpu

    return gpu().partition(";")[0]


def _say_build(build: Any) -> None:
    rows: list[tuple[str, object]] = [("source", "warploom.kernels.walkthrough"), ("compiler", build.compiler)]
    if build.registers is not None:
        rows += [("registers", f"{build.registers} per thread"), ("spills", f"{build.spills} bytes")]
    say()
    table(rows, title="Kernel gemm, 64 x 64 of C per CTA, sm_90a")


def _say_run(run: Any) -> None:
    m, n, k = run.shape
    whole = "" if run.rows == m else f" (over {run.rows} rows)"
    rows: list[tuple[str, object]] = [("relative error", f"{run.error:.2e} against float64{whole}")]
    if run.counters:
        counters = run.counters
        rows += [
            ("instructions", f"{counters['instructions']:,} (one for each warp)"),
            *((unit, f"{counters[unit]:,}") for unit in MATRIX_UNITS if counters[unit]),
            ("tensor cores", f"{counters['tensor_flops'] / 1e6:.1f} MFLOP"),
            ("bytes", f"{counters['tma_load_bytes']:,} loaded by TMA, {counters['global_store_bytes']:,} stored"),
            ("CTAs", f"{counters['ctas']:,}"),
            ("time", f"{run.seconds:.2f} s"),
        ]
    elif run.against_emulator is None:
        rows.append(("time", f"{run.seconds * 1e6:.0f} us per launch, {run.tflops:.1f} TFLOP/s"))
    if run.against_emulator is not None:
        rows.append(("against emulator", f"largest difference {run.against_emulator:.1e}, same text, same data"))
    say()
    table(rows, title=f"{run.machine}, {m} x {n} x {k}")
