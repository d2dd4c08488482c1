"""Runs a program on the CPU machine: `warploom.emulate(program, *args, …) -> Report`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..settings import config
from .arrays import ArrayView
from .asked import Asked, target_of
from .bind import Shape
from .copies import Copies
from .devices import calls_of, count_of
from .dispatch import Call, named_views, place
from .host_values import Held
from .machine import Machine
from .program import HasProgram, Program, program_of

if TYPE_CHECKING:
    from ..emulator.diagnosis.report import Report
    from ..emulator.machine.events import Observer
    from ..emulator.machine.machine import Machine as EmulatedMachine

_wrong_device = partial(ArgumentError, code="wrong-device")


def emulate(
    program: Program | HasProgram | str | Path,
    *args: Any,
    out: Any = None,
    grid: Any = None,
    block: Any = None,
    cluster: Any = None,
    entry: str | None = None,
    dynamic_smem: int | None = None,
    check: bool = True,
    schedule: str = "lazy",
    seed: int = 0,
    max_steps: int | None = None,
    machine: Machine | None = None,
    numerics: str = "exact",
    watch: Callable[[EmulatedMachine], Observer] | None = None,
    bound: int | None = None,
    devices: int = 1,
    calls: int = 1,
    held: Held = (),
    copies: Copies = (),
    judge: Callable[..., None] | None = None,
    **scalars: Any,
) -> Report:
    """Emulate one launch of a kernel, a PTX text or a PTX file; also on several GPUs that share an address space.

    Args:
        args: for a kernel, its arrays and scalars as in a call; for a text, its parameters in order: arrays (updated
            in place), NumPy scalars (by value), `TensorMap.tiled(…)`.
        out: the output array, or a tuple of them; created if omitted.
        grid, block, cluster, dynamic_smem: replace the program's values; a text needs at least the grid.
        entry: the kernel to run, if a text has several.
        check: run the sanitizer and count conflicts; the report has the findings.
        schedule, seed: "eager", "lazy", "random", "starve", "pct": the order in which warps run and asynchronous work
            completes. "explore" tries several pairs, the simplest first, and reports the first that fails, or "lazy".
            "exhaustive" tries all interleavings of a small kernel, in up to `bound` runs: the report's
            `interleavings` says whether all pass, or has the shortest bad one.
        max_steps: maximum number of warp instructions; None: `config.emulator.max_steps`.
        machine: the GPU to emulate, `H200(sms=4)`; None: the usual one for the program's target.
        numerics: "exact", or "hardware" for the rounding of the tensor cores.
        watch: creates an `emulator.machine.events.Observer` that receives the run's events.
        devices: GPUs that run the same grid at once; each argument is then a list by rank (`runtime.devices`).
        calls: number of successive launches in the stream of each GPU, with the same arguments: each launch sees what
            the previous one left in memory (a flag that is never reset).
        held: arrays of a text, by the rank of the GPU that holds them, if it is not the first one that gets them.
        copies: copies by copy engines that run beside the kernel, see `runtime.copies`.
        judge: with "explore", called with the outputs after each run; a run for which it raises AssertionError fails.

    The report's `outputs` are the out arrays of a kernel, in the caller's framework (with several devices, each a
    list by rank); for a text, its arrays. Raises ArgumentError and ArgumentTypeError for an invalid call,
    CostLimitError for a call that would take too long, and EmulationError for errors of the program.
    """
    chosen = program_of(program, entry=entry)
    shape = Shape(grid, block, cluster, dynamic_smem)
    gpus, launches = count_of(devices, calls)
    everyone = calls_of(chosen, args, out, scalars, gpus)
    named = [pair for looked in everyone for pair in named_views(*looked)]
    if place(chosen, named)[0] != "cpu":
        listing = ", ".join(f"`{name}` on {array.place}" for name, array in named)
        raise _wrong_device(
            f"emulating {chosen.title} needs arrays in host memory",
            expected="NumPy arrays or CPU tensors",
            got=listing,
            hint="copy them with .cpu()",
        )
    asked = Asked(
        everyone, shape, machine, check, schedule, seed, max_steps, numerics,
        watch=watch, bound=bound, calls=launches, held=held, copies=copies, judge=judge,
    )  # fmt: skip
    return _emulated(asked)


def run(call: Call, views: list[ArrayView | None], machine: Machine | None = None) -> Report:
    """Emulate a checked call as `config.emulator` says. Raises SanitizerError for findings, if they are checked."""
    options = config.emulator
    report = _emulated(Asked([(call, views)], Shape(), machine, options.check, options.schedule, options.seed))
    if options.check:
        report.raise_on_findings()
    return report


def _emulated(asked: Asked) -> Report:
    target = target_of(asked, stacklevel=3)
    from .emulation import Emulation  # not above: with it comes the emulator, which calls on a GPU never need

    return Emulation(asked, target).report()
