"""Runs a program on the CPU machine: `warploom.emulate(program, *args, …) -> Report`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, ArgumentTypeError, EmulationError, StepLimitError, UnrecordedWarning
from ..settings import config
from . import estimate as estimates
from .arrays import ArrayView, given_back
from .bind import Bound, Shape, bind
from .copies import Copies, of_emulator
from .devices import Looked, calls_of, count_of
from .dispatch import Call, complete, named_views, place
from .host_values import Held, Values, all_values
from .loose_reads import unused_reads
from .machine import Machine, check_runs, for_arch
from .program import HasProgram, Program, program_of
from .progress import Progress
from .unwritten import OTHERS, settled
from .validate import at_least, whole

if TYPE_CHECKING:
    from ..asm.nodes import Module
    from ..emulator.diagnosis.report import Report
    from ..emulator.machine.events import Observer
    from ..emulator.machine.machine import Machine as EmulatedMachine
    from ..emulator.program.code import Codes
    from ..emulator.schedule.controlled import Choose
    from ..sanitizer.loose_reads import Reads

_wrong_device = partial(ArgumentError, code="wrong-device")

NUMERICS = ("exact", "hardware")
FIRST_UNRECORDED = 100
"""The first compute capability, times ten, whose tensor cores were not recorded."""
EXPLORE, EXHAUSTIVE = "explore", "exhaustive"


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
    (call, views), *others = calls_of(chosen, args, out, scalars, gpus)
    named = [pair for looked in ((call, views), *others) for pair in named_views(*looked)]
    if place(chosen, named)[0] != "cpu":
        listing = ", ".join(f"`{name}` on {array.place}" for name, array in named)
        raise _wrong_device(
            f"emulating {chosen.title} needs arrays in host memory",
            expected="NumPy arrays or CPU tensors",
            got=listing,
            hint="copy them with .cpu()",
        )
    return run(
        call, views, shape, machine, check=check, schedule=schedule, seed=seed, max_steps=max_steps, numerics=numerics,
        watch=watch, runs=bound, others=others, calls=launches, held=held, judge=judge, copies=copies,
    )  # fmt: skip


def run(
    call: Call,
    views: list[ArrayView | None],
    shape: Shape,
    machine: Machine | None,
    *,
    check: bool,
    schedule: str,
    seed: int,
    max_steps: int | None,
    numerics: str = "exact",
    watch: Callable[[EmulatedMachine], Observer] | None = None,
    runs: int | None = None,
    others: Sequence[Looked] = (),
    calls: int = 1,
    held: Held = (),
    judge: Callable[..., None] | None = None,
    copies: Copies = (),
) -> Report:
    """Emulate a checked call; `others`: those of further devices."""
    from ..emulator import api
    from ..emulator.diagnosis.report import Report
    from ..emulator.machine.machine import POISON
    from ..emulator.machine.model import Model
    from ..emulator.schedule import exhaustive
    from ..sanitizer import SPOILS, PerturbedLoads, Sanitizer, explore

    program = call.program
    _check_options(machine, seed, max_steps, numerics)
    usual_machine = for_arch(program.arch)
    target = machine or usual_machine
    check_runs(
        program.title, program.arch, target.arch, f"machine={target.name}, {target.arch}",
        f"leave machine= out, or pass Machine({usual_machine.name!r}, {program.arch!r}, sms={target.sms})",
    )  # fmt: skip
    if numerics == "hardware" and target.limits.number >= FIRST_UNRECORDED:
        warnings.warn(
            f'numerics="hardware" for {target.arch} follows published models; they were not recorded on hardware',
            UnrecordedWarning,
            stacklevel=3,
        )
    everyone = ((call, views), *others)
    completed = [complete(*looked) for looked in everyone]
    bounds = [bind(program, arguments, target, shape) for arguments, _ in completed]
    bound = bounds[0]
    if different := [one.grid for one in bounds if one.grid != bound.grid]:
        raise ArgumentError(
            f"the GPUs that run {program.title} would launch different grids",
            expected=f"{bound.grid}, as on GPU 0", got=str(different[0]),
            consequence="some would wait for tiles that no other GPU computes",
            hint="pass arrays of the same shapes on every GPU",
        )  # fmt: skip
    codes = loaded(program.text, program.title, program.entry)
    limits = target.limits
    model = Model(
        name=target.name,
        sms=target.sms,
        warps_per_sm=limits.warps_per_sm,
        max_ctas_per_sm=limits.ctas_per_sm,
        shared_per_sm=limits.shared_per_sm,
        launch_control=target.launch_control,
    )
    settings = config.emulator
    sanitizers: list[Sanitizer] = []

    def sanitizer(machine: EmulatedMachine) -> Sanitizer:
        sanitizers[:] = [Sanitizer(machine, strict=settings.strict)]
        return sanitizers[0]

    def launch(
        values: Values,
        steps: int,
        on_progress: Callable[[int, int], None] | None,
        clusters: int | None,
        pair: tuple[str, int],
        watch: Callable[[EmulatedMachine], Observer] | None = None,
        choose: Choose | None = None,
        unwritten: bytes = POISON,
        spoiled: tuple[Reads, tuple[int, int]] | None = None,
    ) -> Report:
        spoil = partial(PerturbedLoads, reads=spoiled[0], spoil=spoiled[1]) if spoiled else None
        return api.run(
            codes,
            program.entry,
            values.of_each[0],
            **launch_of(bound),
            detailed=check,
            schedule=pair[0],
            seed=pair[1],
            max_steps=steps,
            model=model,
            numerics=numerics,
            on_progress=on_progress,
            max_clusters=clusters,
            choose=choose,
            watch=[maker for maker in (sanitizer if check else None, watch, spoil) if maker is not None],
            others=values.of_each[1:],
            owners=values.owners,
            calls=calls,
            unwritten=unwritten,
            copies=of_emulator(copies, [array for one in bounds for array in one.views], sum(values.hosts, [])),
        )

    def judged(
        values: Values, on_progress: Callable[[int, int], None] | None, pair: tuple[str, int], last: bool = False
    ) -> Report:
        copies = [all_values(bounds, True, held) if check else values for _ in range(len(OTHERS) + len(SPOILS))]
        report = launch(values, most, on_progress, None, pair, watch if last else None)
        reads = sanitizers[0].loose_reads() if check else {}
        report = settled(
            report, lambda other: launch(copies.pop(), most, None, None, pair, unwritten=other), settings.strict
        )
        again = (
            launch(spare, most, None, None, pair, spoiled=(reads, spoil))
            for spare, spoil in zip(copies, SPOILS, strict=False)
        )
        return unused_reads(report, reads, again)

    def tried_with(schedule: str, seed: int) -> Report:
        """One run of an exploration, on copies unless the outputs are judged, which may inspect the arrays."""
        pair = (schedule, seed)
        if judge is None:
            return judged(all_values(bounds, True, held), bar, pair)
        hosts = [array.host for one in bounds for array in one.views if array.host is not None]
        before = [host.copy() for host in hosts]
        try:
            report = judged(all_values(bounds, held=held), bar, pair)
            judge(*(outputs() if program.arrays else report.outputs))
        finally:
            for host, values in zip(hosts, before, strict=True):
                host[...] = values
        return report

    def outputs() -> tuple[Any, ...]:
        """The out arrays of a kernel, in the caller's framework."""
        given: list[tuple[Any, ...]] = [
            tuple(given_back(value, looked[1]) for value in outs)
            for looked, (_, outs) in zip(everyone, completed, strict=True)
        ]
        return given[0] if len(given) == 1 else tuple(zip(*given, strict=True))

    most = settings.max_steps if max_steps is None else max_steps
    usual = ("lazy", seed) if schedule in (EXPLORE, EXHAUSTIVE) else (schedule, seed)

    def sample(steps: int) -> float:
        copies = all_values(bounds, True, held)
        started = time.perf_counter()
        try:
            launch(copies, steps, None, 1, usual)
        except StepLimitError as error:
            error.seconds = time.perf_counter() - started  # type: ignore[attr-defined]
            raise
        return time.perf_counter() - started

    estimates.refuse_if_long(estimates.estimate(_clusters(bound), sample), settings.limit_s, program.title)
    with Progress(f"emulating {program.title}", after_s=settings.progress_after_s) as bar:
        started, pair = time.perf_counter(), usual
        tried: tuple[tuple[str, int], ...] = ()
        if schedule == EXPLORE:
            found = explore(tried_with)
            pair, tried = found.failing or usual, found.tried
        interleavings = None
        if schedule == EXHAUSTIVE:
            with Progress(f"{program.title}, interleavings", after_s=2.0, every_s=10.0) as told:
                interleavings = exhaustive.search(
                    lambda choose: launch(all_values(bounds, True, held), most, None, None, usual, choose=choose),
                    exhaustive.BOUND if runs is None else at_least(1, runs, "bound"),
                    told,
                )
            if not interleavings.ok:
                return Report(
                    program.entry, findings=list(interleavings.findings), schedule=EXHAUSTIVE,
                    interleavings=interleavings,
                )  # fmt: skip
        try:
            report = judged(all_values(bounds, held=held), bar, pair, last=True)
        except EmulationError as error:
            error.add_note(f"  replay with schedule={pair[0]!r}, seed={pair[1]}")
            error.replay, error.explored = pair, tried
            raise
        report.explored, report.interleavings = tried, interleavings
        if tried or interleavings is not None:
            report.seconds = time.perf_counter() - started  # of all runs
    if program.arrays:
        report.outputs = outputs()  # type: ignore[assignment]
    return report


def _check_options(machine: object, seed: object, max_steps: object, numerics: str) -> None:
    """Check `emulate`'s options. The emulator itself checks the schedule's name."""
    if machine is not None and not isinstance(machine, Machine):
        raise ArgumentTypeError("machine= is not a machine", expected="machine=H200(sms=4)", got=repr(machine))
    whole(seed, "seed")
    if max_steps is not None:
        at_least(1, max_steps, "max_steps")
    if numerics not in NUMERICS:
        raise ArgumentError(f"unknown numerics {numerics!r}", expected=", ".join(NUMERICS), got=numerics)


@lru_cache(maxsize=32)
def parsed(text: str, name: str, entry: str) -> Module:
    """The tree of a text, verified and cached, because the same text is often run again.

    Raises PtxSyntaxError, and VerificationError for anything that the text's target or ptxas would reject in the
    kernel `entry` or in what all kernels share. The text's other kernels may use unsupported features.
    """
    from .. import asm
    from ..asm.lowering import lowered

    if not isinstance(text, str):
        raise ArgumentTypeError("a PTX text is a str", expected="str", got=type(text).__name__)
    module = asm.parse(text, name=name)
    others = {id(function) for function in module.entries if function.name != entry}
    asm.check(replace(module, items=tuple(item for item in module.items if id(item) not in others)))
    return lowered(module)


@lru_cache(maxsize=8)
def loaded(text: str, name: str, entry: str) -> Codes:
    """The kernels of a text, ready to run; cached for the next run of the same text."""
    from ..emulator.program.code import Codes

    return Codes(parsed(text, name, entry))


def launch_of(bound: Bound) -> dict[str, Any]:
    """The emulator's view of a launch: its shape, whether it overlaps the preceding grid, the author's names."""
    from ..emulator.machine.symbols import Names

    program = bound.program
    buffers = {parameter.name: parameter.source for parameter in program.parameters}
    return {
        "grid": bound.grid, "block": bound.block, "cluster": bound.cluster, "dynamic_smem": bound.dynamic_smem,
        "dependent": program.pdl, "written_in_front": program.written_in_front,
        "names": Names(program.shared_parts, program.roles, buffers, program.guessed),
    }  # fmt: skip


def _clusters(bound: Bound) -> int:
    ctas = bound.grid[0] * bound.grid[1] * bound.grid[2]
    return ctas // (bound.cluster[0] * bound.cluster[1] * bound.cluster[2])
