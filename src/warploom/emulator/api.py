"""Run one kernel of a PTX text on the CPU machine.

    report = run(asm.parse(text), "gemm", [a, b, c, np.uint32(64)], grid=(4, 4, 1), block=(128, 1, 1))

Arguments come in parameter order: a NumPy array is a global buffer (updated in place), a NumPy scalar is passed by
value, a `TensorMapArgument` is a tensor map over an array, a `StructArgument` a structure that contains such things.
`runtime.emulate` is the public entry point.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ..asm.nodes import Function, Module
from ..errors import ArgumentError, EmulationError
from .arguments import Argument, Binder
from .diagnosis.report import Report
from .engines.engine import Engine
from .machine import initialiser
from .machine.copy_streams import Block, Copy, CopyStreams, checked
from .machine.events import Observer, listen
from .machine.links import IMMEDIATE, Links
from .machine.machine import POISON, Machine
from .machine.memory import Allocation, GlobalMemory, Region
from .machine.model import Model
from .machine.symbols import Names
from .ops import HANDLERS
from .program.code import Code, Codes
from .schedule.controlled import Choose, ControlledScheduler
from .schedule.policy import make_policy
from .schedule.scheduler import Scheduler

Dim3: TypeAlias = "tuple[int, int, int]"
NO_NAMES = Names()
CopyOf: TypeAlias = "tuple[np.ndarray, np.ndarray, bool]"
"""Source, target, and whether it is a flag."""
NO_OWNERS: Mapping[int, int] = MappingProxyType({})


def run(
    module: Module | Codes,
    entry: str | None,
    arguments: Sequence[Argument],
    *,
    grid: Dim3,
    block: Dim3 | None = None,
    cluster: Dim3 | None = None,
    dynamic_smem: int = 0,
    detailed: bool = False,
    schedule: str = "lazy",
    seed: int = 0,
    max_steps: int = 200_000_000,
    model: Model | None = None,
    numerics: str = "exact",
    on_progress: Callable[[int, int], None] | None = None,
    max_clusters: int | Sequence[int] | None = None,
    names: Names = NO_NAMES,
    watch: Sequence[Callable[[Machine], Observer]] = (),
    choose: Choose | None = None,
    dependent: bool | None = None,
    written_in_front: Sequence[str] = (),
    others: Sequence[Sequence[Argument]] = (),
    owners: Mapping[int, int] = NO_OWNERS,
    calls: int = 1,
    unwritten: bytes = POISON,
    copies: Sequence[Sequence[Sequence[CopyOf]]] = (),
) -> Report:
    """Emulate one launch, on one device or on several at once.

    Args:
        module: the text's tree; `Codes` of it if it is run repeatedly.
        entry: the kernel's name; None if the text has only one.
        grid, block, cluster: sizes in CTAs, threads and CTAs. `block` and `cluster` default to the text's
            `.reqntid`/`.maxntid` and `.reqnctapercluster`.
        dynamic_smem: bytes of dynamic shared memory.
        detailed: also count bank conflicts and sectors, which costs time.
        schedule, seed: see `policy`.
        numerics: "exact" or "hardware", see `numerics`.
        on_progress: called with (clusters finished, total clusters).
        max_clusters: run only so many of the grid's first clusters, or those with these numbers (for estimates).
        names: the author's names, for messages.
        watch: factories of the observers that receive the run's events; the report contains their findings.
        choose: makes every choice of the machine instead of the schedule; see `schedule.controlled`.
        dependent: the launch may overlap the end of the preceding grid (PTX ISA 9.7.13.13); None: not known.
        written_in_front: the arrays that the preceding grid writes, if known.
        others: the arguments of the devices after the first, each of which runs the same grid. All share one address
            space. owners: the device that holds an array, by the array's id; by default the first one that gets it.
        calls: how often each device launches the grid, one launch after the other in its stream.
        unwritten: initial contents of shared and tensor memory, repeated.
        copies: copies next to the kernel, by device and stream; see `machine.copy_streams`.

    Raises ArgumentError and ArgumentTypeError for an invalid launch, EmulationError for errors during it.
    """
    started = time.perf_counter()
    function = find_entry(module.module if isinstance(module, Codes) else module, entry)
    block = block or _required(function, ("reqntid", "maxntid")) or (1, 1, 1)
    cluster = cluster or _required(function, ("reqnctapercluster",)) or (1, 1, 1)
    _check_launch(function, block, cluster)
    codes = module if isinstance(module, Codes) else Codes(module)
    with np.errstate(all="ignore"), rare_collections(), codes.taken(function, HANDLERS, dynamic_smem) as code:
        code.divide_shared(names.shared_parts)
        code.roles = tuple(names.roles)
        _check_shared(code, function)
        _check_local(code, function)
        binder, buffers, parameters = _bound(code, function, (arguments, *others), names, owners)
        policy = make_policy(schedule, seed)
        machine = Machine(
            code, binder.memory, parameters, grid, block, cluster, dynamic_smem, model or Model(),
            lambda machine: Engine(machine, policy.name, seed), buffers, detailed,
        )  # fmt: skip
        machine.tensor_maps, machine.guessed = binder.maps, names.guessed
        machine.calls, machine.numerics, machine.unwritten = calls, numerics, unwritten
        machine.dependent, machine.written_in_front = dependent, frozenset(written_in_front)
        if choose is None and policy.name != IMMEDIATE and binder.shared:
            machine.links = Links(len(machine.devices), binder.shared, policy.name, seed, machine.progress)
        if any(streams for streams in copies):
            machine.streams = _streams(machine, binder, copies, policy.name, seed, choose is not None)
        observers = [make(machine) for make in watch]
        machine.events = listen(observers)
        scheduler = (
            Scheduler(machine, policy, max_steps, on_progress)
            if choose is None
            else ControlledScheduler(machine, max_steps, choose)
        )
        if isinstance(max_clusters, Sequence):
            machine.most_clusters, machine.order = len(max_clusters), max_clusters.__getitem__
        elif max_clusters is not None:
            machine.most_clusters = max_clusters
        report = partial(_report, function.name, machine, binder, observers, schedule, seed, started)
        try:
            scheduler.run()
        except EmulationError as error:
            for listener in machine.events.stopped:
                listener(error)
            error.report = report()
            error.findings = tuple(error.report.findings)
            raise
    return report()


def _bound(
    code: Code,
    function: Function,
    everyone: Sequence[Sequence[Argument]],
    names: Names,
    owners: Mapping[int, int],
) -> tuple[Binder, dict[str, Allocation], list[Region]]:
    """Place the text's variables and all arguments in memory; return the parameters of each device. Checks them."""
    memory = GlobalMemory()
    buffers = initialiser.allocate(memory, code.module_buffers, code.function_addresses)
    several = len(everyone) > 1
    if several and buffers:
        raise ArgumentError(
            f"{function.name} has variables in global memory, of which each device has its own copy",
            expected="a text without module-scope .global and .const variables, to run on several devices",
            got=", ".join(buffers),
        )
    binder = Binder(code, function, memory, names.buffers, owners, several)
    for device, mine in enumerate(everyone):
        binder.place_own(mine, device)
    return binder, buffers, [binder.bind(mine, device) for device, mine in enumerate(everyone)]


def _report(
    entry: str,
    machine: Machine,
    binder: Binder,
    observers: Sequence[Observer],
    schedule: str,
    seed: int,
    started: float,
) -> Report:
    """What a run has done so far."""
    machine.counters.instructions = machine.steps
    return Report(
        entry=entry,
        outputs=tuple(binder.arrays),
        findings=[finding for observer in observers for finding in observer.report()],
        counters=machine.counters,
        schedule=schedule,
        seed=seed,
        seconds=time.perf_counter() - started,
        launch={"grid": machine.grid, "block": machine.block, "cluster": machine.cluster_shape},
        printed=tuple(machine.printed),
    )


def _streams(
    machine: Machine,
    binder: Binder,
    copies: Sequence[Sequence[Sequence[CopyOf]]],
    schedule: str,
    seed: int,
    controlled: bool,
) -> CopyStreams:
    """The copies next to the kernel. controlled: every order is tried, which these cannot take part in."""
    devices = len(machine.devices)
    if controlled or len(copies) != devices:
        raise ArgumentError(
            "copies next to a kernel are given by rank, not in every order", got=f"of {len(copies)} GPUs",
            expected=f"the streams of {devices} GPUs, and another schedule than exhaustive",
        )  # fmt: skip
    made = [[[_copy(binder, *each) for each in one] for one in streams] for streams in copies]
    return CopyStreams(machine, made, schedule, seed)


def _copy(binder: Binder, source: np.ndarray, target: np.ndarray, flag: bool) -> Copy:
    return checked(Copy(_block(binder, source), _block(binder, target), flag))


def _block(binder: Binder, array: np.ndarray) -> Block:
    """Where the bytes of an array are, row by row. Raises ArgumentError."""
    region, start = binder.find(array)
    if array.ndim == 2 and array.strides[1] == array.itemsize:
        return Block(region, start, array.shape[0], array.shape[1] * array.itemsize, array.strides[0])
    if array.flags.c_contiguous:
        return Block(region, start, 1, array.nbytes, array.nbytes)
    raise ArgumentError(
        "this array cannot be copied by a copy engine", expected="one or two dimensions, the inner one contiguous",
        got=f"shape {array.shape}, strides {array.strides}",
    )  # fmt: skip


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely: a run makes many short-lived objects and hardly any cycles."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], 200_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def find_entry(module: Module, entry: str | None) -> Function:
    """The kernel of a text by name, or its only one. Raises ArgumentError."""
    entries = module.entries
    names = ", ".join(function.name for function in entries) or "none"
    if entry is None:
        if len(entries) == 1:
            return entries[0]
        raise ArgumentError("the text does not have exactly one kernel: name one", got=names, hint="pass entry=")
    for function in entries:
        if function.name == entry:
            return function
    raise ArgumentError(f"the text has no kernel {entry!r}", got=names)


def _required(function: Function, names: tuple[str, ...]) -> Dim3 | None:
    for name in names:
        sizes = function.directive(name)
        if sizes:
            return (*sizes, 1, 1)[:3]  # type: ignore[return-value]
    return None


def _check_launch(function: Function, block: Dim3, cluster: Dim3) -> None:
    """Check the launch against the directives of the text."""
    threads, most = prod(block), _required(function, ("maxntid",))
    if most is not None and threads > prod(most):
        raise ArgumentError(f"{function.name} has .maxntid {most}", got=f"block {block}")
    exact = _required(function, ("reqntid",))
    if exact is not None and exact != tuple(block):
        raise ArgumentError(f"{function.name} requires .reqntid {exact}", got=f"block {block}")
    needed = _required(function, ("reqnctapercluster",))
    if needed is not None and tuple(needed) != tuple(cluster):
        raise ArgumentError(f"{function.name} requires clusters of {needed}", got=cluster)


def _check_shared(code: Code, function: Function) -> None:
    size = code.shared_size - code.shared_start
    most = code.arch.shared_per_cta
    if size > most:
        raise ArgumentError(
            f"{function.name} requests {size} bytes of shared memory", expected=f"at most {most} on {code.arch.name}"
        )


LOCAL_LIMIT = 512 * 1024
"""Bytes of local memory of one thread, on every target (CUDA C++ Programming Guide, table of technical limits)."""


def _check_local(code: Code, function: Function) -> None:
    if code.local_bytes > LOCAL_LIMIT:
        raise ArgumentError(
            f"{function.name} requests {code.local_bytes} bytes of local memory for each thread",
            expected=f"at most {LOCAL_LIMIT}",
        )
