"""Predicts the time of a launch on the GPU with the CPU machine: `warploom.predict(program, *args) -> Prediction`.

The first cluster of the grid is emulated without arithmetic, recorded, and replayed against the clock (`timing`). So
arrays need no values, and a product of 8192 x 8192 x 8192 takes half a minute instead of days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DeadlockError, WarploomError
from ..isa import arch
from .bind import Shape, bind
from .dispatch import complete, look, sort_out
from .host_values import host_values
from .loading import launch_of, parsed
from .machine import for_arch
from .own_lines import with_own_lines
from .program import HasProgram, Program, program_of
from .validate import at_least

if TYPE_CHECKING:
    from ..emulator.machine.events import Observer
    from ..emulator.machine.finding import Finding
    from ..timing import Launch, Prediction
    from ..timing.recorder import Recorder
    from ..timing.recording import Recording

MOST_STEPS = 1_000_000_000
MOST_LONGER, MOST_MORE = 4, 1_000_000
"""A run that looks for what the last CTA does may take so many times the first CTA's steps, and so many more."""
EVENTS = 1_000_000
"""Maximum number of timeline events."""
FLAGS = "a CTA waits for flags that others set, and the time of these waits is not predicted"
"""What a recording says where this is so, and not all CTAs are recorded."""


def predict(
    program: Program | HasProgram | str | Path,
    *args: Any,
    out: Any = None,
    grid: Any = None,
    block: Any = None,
    cluster: Any = None,
    entry: str | None = None,
    dynamic_smem: int | None = None,
    clusters: int = 1,
    warm: bool = False,
    zeros: bool = False,
    cap_watts: float | None = None,
    clock_mhz: float | None = None,
    registers: int | None = None,
    timeline: bool = False,
    **scalars: Any,
) -> Prediction:
    """Predict the time of one launch among many, its clock and its power, on an H200.

    Args:
        args, out, grid, block, cluster, entry, dynamic_smem: as in `warploom.emulate`.
        clusters: number of the grid's first clusters to record; they represent all others in turn. By default the
            first, or a few from all parts of the grid if the length of its loops depends on the place.
        warm: predict a launch that finds its inputs in L2, as a repeated launch on small arrays does.
        zeros: predict for all-zero data, which needs less power; otherwise for random data.
        cap_watts: power limit of the GPU, from its power at rest to that of an H200, which is the default.
        clock_mhz: predict at this SM clock, 700 to 1980, instead of the one that the power limit allows.
        registers: per thread, for the occupancy; by default from ptxas, or no limit if it is missing.
        timeline: keep the replayed events: `prediction.timeline`.

    The model describes the H200; kernels for other targets are predicted as if it ran them. Raises ArgumentError and
    ArgumentTypeError for an invalid call, EmulationError for errors of the program.
    """
    from ..timing import H200, Trace
    from ..timing import predict as predicted

    recording, launch = record(
        program, *args, out=out, grid=grid, block=block, cluster=cluster, entry=entry, dynamic_smem=dynamic_smem,
        clusters=clusters, warm=warm, zeros=zeros, cap_watts=cap_watts, clock_mhz=clock_mhz,
        registers=registers, **scalars,
    )  # fmt: skip
    return predicted(recording, H200, launch, Trace(recording, EVENTS) if timeline else None)


def record(
    program: Program | HasProgram | str | Path,
    *args: Any,
    out: Any = None,
    grid: Any = None,
    block: Any = None,
    cluster: Any = None,
    entry: str | None = None,
    dynamic_smem: int | None = None,
    clusters: int = 1,
    warm: bool = False,
    zeros: bool = False,
    cap_watts: float | None = None,
    clock_mhz: float | None = None,
    registers: int | None = None,
    watch: Sequence[Callable[[Any], Observer]] = (),
    made: list[Recorder] | None = None,
    findings: list[Finding] | None = None,
    **scalars: Any,
) -> tuple[Recording, Launch]:
    """The recording that `predict` replays, and further facts about the launch; arguments as in `predict`.

    watch: factories of further observers; `findings` receives their findings. made: receives the recorder, before the
    run.
    """
    from ..emulator import api
    from ..emulator.machine.model import Model
    from ..emulator.numerics.tensor_core import NO_NUMERICS
    from ..emulator.schedule.policy import ABREAST
    from ..timing import H200, Launch, queues, recording_of, sampling
    from ..timing.left_out import left_out
    from ..timing.power import LOWEST_GHZ

    chosen = program_of(program, entry=entry)
    call = sort_out(chosen, args, out, scalars)
    arguments, _ = complete(call, look(call))
    target = for_arch(chosen.arch)
    at_least(1, clusters, "clusters")
    if registers is not None:
        at_least(1, registers, "registers", most=arch.get(chosen.arch).registers_per_thread)
    cap = _in_range(cap_watts, "cap_watts", H200["base_watts"], H200["cap_watts"], "W")
    clock = _in_range(clock_mhz, "clock_mhz", LOWEST_GHZ * 1e3, H200["nominal_ghz"] * 1e3, "MHz")
    bound = bind(chosen, arguments, target, Shape(grid, block, cluster, dynamic_smem))
    made = [] if made is None else made

    def run(
        made: list[Recorder], spread: bool = False, planted: Mapping[queues.Word, int] = queues.NONE,
        watch: Sequence[Callable[[Any], Observer]] = watch, max_steps: int = MOST_STEPS,
        chosen_clusters: int | Sequence[int] = clusters,
    ) -> Any:  # fmt: skip
        made.clear()
        values, _ = host_values(bound, False, {})
        return api.run(
            parsed(chosen.text, chosen.title, chosen.entry), chosen.entry, values, **launch_of(bound),
            numerics=NO_NUMERICS, schedule=ABREAST, max_clusters=chosen_clusters, max_steps=max_steps,
            model=Model(name=target.name, sms=target.sms), detailed=bool(watch),
            watch=[*watch, recording_of(made, spread, planted)],
        )  # fmt: skip

    report = run(made)
    taken = made[0].recording.taken
    if queues.uneven(taken):  # the first of each round has more to do than others
        made[0].queues.restore()
        report = run(made, True)
        made[0].recording.pace = queues.pace(taken, made[0].recording.taken)
    elif made[0].recording.turns and not taken and clusters == 1:  # what differs is not what tiles load
        steps = made[0].machine.steps
        made[0].queues.restore()
        report = run(made, True)
        if sampling.differ((steps, made[0].machine.steps)):
            made[0].queues.restore()
            report = run(made, True, chosen_clusters=sampling.SAMPLES)
    if findings is not None:
        findings += report.findings
    sizes = [(math.prod(array.shape) * array.dtype.bytes, role)
             for array, role in zip(bound.views, _roles(chosen, bound), strict=True)]  # fmt: skip
    read = sum(size for size, role in sizes if role != "out")
    written = sum(size for size, role in sizes if role == "out")
    writable = sum(size for size, role in sizes if role != "in" or not chosen.arrays)
    recording = made[0].finish()
    recording.written -= sum(recording.lanes_wrote.get(spec.name, 0.0) for spec in chosen.arrays if spec.role != "out")
    if recording.ctas < math.prod(bound.grid):
        recording.last, recording.arrivals = _last(made[0], run)
    if clusters == 1 and recording.last is None and not watch and not recording.turns:
        recording = _typical(made[0], recording, run)
    if recording.ctas < math.prod(bound.grid) and sampling.waits_for_flags(made[0].machine.code.operations):
        recording.stands = recording.stands or FLAGS
    recording.left_out = left_out(made[0].machine.code.operations, recording)
    _count(chosen, recording)
    used, stack = _resources(chosen) if registers is None else (registers, 0)
    return recording, Launch(
        registers=used, stack_bytes=stack, input_bytes=read, output_bytes=written, writable_bytes=writable, warm=warm,
        zeros=zeros, cap_watts=cap, clock_mhz=clock,
    )  # fmt: skip


def _typical(recorder: Recorder, first: Recording, run: Callable[..., Any]) -> Recording:
    """Return a recording of clusters that stand for the grid: of the first, unless the length of its loops depends on
    the place, and the last one or one in the middle does more or less.

    The first one also stands for all if no SM has two CTAs, and if a grid of one wave strides over its work.
    """
    from ..timing import sampling

    machine = recorder.machine
    several_waves = machine.clusters_in_all > machine.places
    grid, axes = machine.clusters_in_grid, sampling.axes_of_loops(machine.code.operations, several_waves)
    if not axes or not several_waves and math.prod(first.grid) <= machine.model.sms:
        return first

    def recorded(numbers: Sequence[int]) -> Recording:
        made: list[Recorder] = []
        recorder.queues.restore()
        run(made, watch=(), chosen_clusters=numbers)
        return made[0].finish()

    try:
        probes = sampling.probes(grid, axes)
        if not any(sampling.unlike(first, recorded([number])) for number in probes):
            return first
        several = recorded(sampling.spread(grid, axes))
    except DeadlockError:  # they wait for clusters that are not recorded
        first.stands = "the first cluster stands for all, as others wait for it; the lengths of loops depend on %ctaid"
        return first
    return several if sampling.unlike(several, first) else first


def _last(first: Recorder, run: Callable[..., Any]) -> tuple[Recording | None, int]:
    """Return the recording of a CTA that arrives last where CTAs count their arrivals, and how many they are."""
    from ..timing import arrivals

    counters = first.queues.arrivals
    if not counters:
        return None, 1
    found: list[arrivals.Comparisons] = []
    marked = arrivals.marks(counters)
    made: list[Recorder] = []
    most = MOST_LONGER * first.machine.steps + MOST_MORE

    def comparing(machine: Any) -> arrivals.Comparisons:
        found.append(arrivals.Comparisons(machine, marked))
        return found[-1]

    try:
        first.queues.restore()
        run(made, planted=marked, watch=[comparing], max_steps=most)
        if found[0].last:
            first.queues.restore()
            run(made, planted=found[0].last, watch=(), max_steps=most)
    except WarploomError:  # the counter is no number of arrivals
        return None, 1
    finally:
        first.queues.restore()
    last = found[0].last
    return (made[0].finish(), 1 + max(last.values())) if last else (None, 1)


def _count(program: Program, recording: Recording) -> None:
    """Take the machine instructions of each PTX instruction, and their order, from the build, if there is one."""
    from ..driver.sass_lines import sass_lines
    from ..timing import machine_code, ordering

    text, pcs = with_own_lines(program.text, recording.pcs)
    starts = {facts.ptx_line for facts in pcs}
    try:
        code = [(one.text, one.ptx_line) for one in sass_lines(text, program.entry, starts)]
    except WarploomError as error:
        recording.uncounted = error.in_one_line
        return
    reading = machine_code.Reading.of(code, pcs, recording.loops)
    slots = reading.slots()
    moved, repeated = reading.moved(), reading.repeated()
    for one in (recording, recording.last):
        if one is None:
            continue
        for operation in one.operations:
            operation.moved, operation.repeated = operation.pc in moved, operation.pc in repeated
        one.pcs = [facts if facts.machine else replace(facts, machine=slots[facts.pc]) for facts in one.pcs]
        ordering.arrange(one, reading.places())


def _in_range(value: float | None, name: str, low: float, high: float, unit: str) -> float:
    """A limit of the GPU as a number; 0 for None. Raises ArgumentError if the GPU has no such limit."""
    if value is None:
        return 0.0
    if not isinstance(value, Real) or not low <= value <= high:
        raise ArgumentError(
            f"{name} is out of the range of an H200", got=repr(value),
            expected=f"{math.ceil(low)} to {math.floor(high)} {unit}, or None for what the GPU does by itself",
        )  # fmt: skip
    return float(value)


def _roles(program: Program, bound: Any) -> list[str]:
    if program.arrays:
        return [spec.role for spec in program.arrays]
    return ["in"] * len(bound.views)


def _resources(program: Program) -> tuple[int, int]:
    """Registers and bytes of local memory per thread, from ptxas; 0 if it is missing, or rejects the text."""
    from .on_gpu import build

    try:
        found = build(program).resources[program.entry]
    except (WarploomError, KeyError):
        return 0, 0
    return int(found.registers), int(found.stack)
