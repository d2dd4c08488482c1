"""Runs a program on the GPU: `warploom.launch(program, *args, stream=…)`.

The work of a first call (checks, build, load, tensor maps, parameter bytes) produces a `driver.launch.PreparedLaunch`;
a call with the same arguments uses it directly.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..isa import arch as arches
from .arrays import ArrayView
from .bind import Arguments, Bound, Shape, Value, bind
from .dispatch import Call, complete, look, named_views, place, result_of, sort_out
from .machine import Machine, check_runs
from .multimem import Multimem
from .program import HasProgram, Program, program_of
from .struct import Struct
from .tensor_map import TensorMap

if TYPE_CHECKING:
    from ..driver.compile import Build
    from ..driver.launch import PreparedLaunch

_wrong_device = partial(ArgumentError, code="wrong-device")
_wrong_launch = partial(ArgumentError, code="launch-shape")

_LEGACY_STREAMS = (0, 1)

Workspaces: TypeAlias = "dict[tuple[int, int], dict[Any, Any]]"
"""Workspaces of a program by GPU and stream, then by name and shape."""


def launch(
    program: Program | HasProgram | str | Path,
    *args: Any,
    out: Any = None,
    stream: Any = None,
    grid: Any = None,
    block: Any = None,
    cluster: Any = None,
    entry: str | None = None,
    dynamic_smem: int | None = None,
    **scalars: Any,
) -> Any:
    """Launch a kernel, a PTX text or a PTX file on the GPU that its arrays are on.

    Args:
        args, out, grid, block, cluster, entry, dynamic_smem, scalars: as in `emulate`.
        stream: a torch or CuPy stream, a raw handle, or anything with `__cuda_stream__`; None: the caller's current
        one.

    Returns the output array, a tuple of them, or None, without waiting for the GPU. Raises ArgumentError and
    ArgumentTypeError for an invalid call, CompilationError, DriverError, NoGpuError.
    """
    chosen = program_of(program, entry=entry)
    call = sort_out(chosen, args, out, scalars)
    views = look(call)
    named = named_views(call, views)
    device, _ = place(chosen, named)
    from ..driver import library

    library.load()
    if device != "cuda":
        listing = ", ".join(f"`{name}` on {array.place}" for name, array in named) or "no array"
        raise _wrong_device(
            f"launching {chosen.title} needs arrays on a GPU",
            expected="CUDA arrays",
            got=listing,
            hint="call warploom.emulate for host arrays",
        )
    _, outs = run(call, views, Shape(grid, block, cluster, dynamic_smem), stream)
    return result_of(outs)


def run(
    call: Call, views: list[ArrayView | None], shape: Shape, stream: Any, workspaces: Workspaces | None = None
) -> tuple[PreparedLaunch, tuple[Any, ...]]:
    """Launch a call whose arrays are on a GPU. Returns the launch, for reuse, and the out arrays.

    `workspaces`: those of earlier calls, by device and stream, because launches that may overlap must not share one.
    """
    from ..driver import library

    program = call.program
    named = named_views(call, views)
    _, index = place(program, named)
    current = current_stream([array for _, array in named], index)
    handle = current if stream is None else stream_handle(stream)
    driver = library.load()
    with driver.activated(index):
        of_graph = handle == current and driver.is_capturing(handle)  # then the graph allocates and zeroes its own
        kept = {} if workspaces is None or of_graph else workspaces.setdefault((index, handle), {})
        before = len(kept)
        arguments, outs = complete(call, views, kept)
        if len(kept) > before and handle != current:  # zeroed on the framework's stream
            driver.synchronize(current)
    return start(program, arguments, index, handle, shape), outs


def start(
    program: Program, arguments: Arguments, index: int, handle: int, shape: Shape | None = None
) -> PreparedLaunch:
    """Launch on GPU `index`, where all arrays are, on a raw stream. Returns the launch, for reuse."""
    from ..driver import library
    from ..driver.residency import clusters

    driver = library.load()
    with driver.activated(index):
        device = driver.device(index)
        target_for(program, device.arch)  # first, because later steps may fail because of it
        machine = Machine(device.name, device.arch, device.sms, resident=partial(clusters, index))
        bound = bind(program, arguments, machine, shape)
        _wait_for_producers(bound, handle)
        prepared = prepare(program, bound, index, handle)
    prepared(handle)
    if any(array.framework == "jax" for array in bound.views):
        driver.synchronize(handle)  # XLA does not know our stream: the result must be complete before it reads it
    return prepared


def prepare(program: Program, bound: Bound, index: int, stream: int) -> PreparedLaunch:
    """Build, load and lay out a launch on GPU `index`. `stream` is only checked for a running capture."""
    from ..driver import library
    from ..driver.launch import PreparedLaunch
    from ..driver.module import modules

    device = library.load().device(index)
    built = build(program, target_for(program, device.arch))
    resources = built.resources.get(program.entry)
    threads = bound.block[0] * bound.block[1] * bound.block[2]
    if resources is not None and not resources.occupancy(threads, bound.dynamic_smem):
        limits = arches.get(built.arch)
        raise _wrong_launch(
            f"{program.title} does not fit on one multiprocessor",
            expected=f"at most {limits.registers_per_cta} registers and {limits.shared_per_cta} bytes of smem per CTA",
            got=f"{threads} threads × {resources.registers} registers, {resources.static_shared} bytes of static and "
            f"{bound.dynamic_smem} of dynamic smem",
        )
    ctas = bound.cluster[0] * bound.cluster[1] * bound.cluster[2]
    kernel = modules().kernel(built, program.entry, index, stream, bound.dynamic_smem, ctas)
    return PreparedLaunch(
        kernel,
        bound.grid,
        bound.block,
        bound.cluster,
        bound.dynamic_smem,
        [_bytes(value) for value in bound.values],
        pdl=bool(program.pdl),
        describe=bound.describe(),
    )


def build(program: Program | HasProgram | str | Path, arch: str | None = None, *, entry: str | None = None) -> Build:
    """The cubin of a program and its resources; `arch` None: for the target its text names.

    Raises CompilationError like `driver.compile.build`; a traced kernel with spills is refused.
    """
    from ..driver import compile as compiler

    chosen = program_of(program, entry=entry)
    return compiler.build(
        chosen.text, arch=arch, name=chosen.title, entry=chosen.entry, allow_spills=chosen.allow_spills
    )


def target_for(program: Program, device_arch: str) -> str:
    """The target to build a text for, so that it runs on a GPU. Raises ArgumentError if there is none."""
    elsewhere = f"{program.fallback_hint(arches.get(device_arch).name)}; " if program.fallback_hint is not None else ""
    check_runs(
        program.title, program.arch, device_arch, device_arch, elsewhere + "the emulator runs it: warploom.emulate"
    )
    text, device = arches.get(program.arch), arches.get(device_arch)
    return text.name if text.number == device.number or text.suffix else f"sm_{device.number}"


def _bytes(value: Value) -> bytes:
    if isinstance(value, ArrayView):
        return value.pointer.to_bytes(8, "little")
    if isinstance(value, TensorMap):
        from ..driver import tensor_map

        return tensor_map.encode(value.spec, value.array.pointer)
    if isinstance(value, Struct):
        return _structure(value)
    if isinstance(value, Multimem):
        raise ArgumentError(
            "on a GPU, a multimem address must be one that the driver has mapped",
            expected="the address to which cuMulticastBindMem's object is mapped, as np.uint64", got="Multimem",
        )  # fmt: skip
    return np.asarray(value).tobytes()


def _structure(value: Struct) -> bytes:
    """A structure by value. Raises ArgumentError if there are structures behind its pointers."""
    raw = bytearray(value.whole)
    for offset, part in value.at.items():
        if isinstance(part, Struct):
            raise ArgumentError(
                f"`{value.name(offset, 'the structure')}` is a structure behind a pointer, which only the emulator "
                "copies into memory",
                hint="put its bytes into an array on the GPU and pass that",
            )
        inside = _bytes(part)
        raw[offset : offset + len(inside)] = inside
    return bytes(raw)


# -- streams -----------------------------------------------------------------------------------------------------


def stream_handle(stream: Any) -> int:
    """The raw handle of a stream object. Raises ArgumentTypeError for anything else."""
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(value)
    if hasattr(stream, "__cuda_stream__"):
        described = stream.__cuda_stream__
        return int((described() if callable(described) else described)[1])
    raise ArgumentTypeError(
        "stream is not a CUDA stream",
        expected="a torch or CuPy stream, a raw handle, or an object with __cuda_stream__",
        got=type(stream).__name__,
    )


def current_stream(views: list[ArrayView], index: int) -> int:
    """The stream the caller works on: torch's or CuPy's current one, else the one an array names, else stream 0."""
    frameworks = {array.framework for array in views}
    if "torch" in frameworks:
        import torch

        return int(torch._C._cuda_getCurrentRawStream(index))
    if "cupy" in frameworks:
        import cupy

        with cupy.cuda.Device(index):
            return int(cupy.cuda.get_current_stream().ptr)
    return next((array.stream for array in views if array.stream), 0)


def _wait_for_producers(bound: Bound, stream: int) -> None:
    """CUDA Array Interface: wait for a stream that an array names, unless it is the one we launch on."""
    from ..driver import library

    for array in bound.views:
        if array.stream is None or array.framework == "torch" or array.stream == stream:
            continue
        if array.stream in _LEGACY_STREAMS and stream in _LEGACY_STREAMS:
            continue
        library.load().synchronize(array.stream)
