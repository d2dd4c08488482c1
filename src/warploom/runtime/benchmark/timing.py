"""`Kernel.time`: how long a kernel takes on the GPU, by a named protocol, next to the user's own callables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError, NoGpuError, WarploomError
from ...isa import dtypes
from ...plural import counted
from ..arrays import view
from ..dispatch import Call, sort_out
from .gpu import LAUNCHES, Gpu, torch_with_cuda
from .power import PowerMeter
from .protocols import BURST_LAUNCHES, Spread, check_protocol, ratios, sample

if TYPE_CHECKING:
    from ..program import Program

Against: TypeAlias = "Callable[..., object] | Mapping[str, Callable[..., object]] | None"
ROTATED_BYTES = 260_000_000
"""Copies of the arrays are made until their total reaches this size: four times the L2 of an H200."""
MOST_SETS = 64
CLOCK_S = 0.5
HANG_S = 60.0


@dataclass(frozen=True)
class Timing:
    """The result of a timing.

    Attributes:
        kernel, gpu, protocol, launch: what ran, where, and how it was timed and launched.
        sets: number of array copies that the launches rotate through; 1: the arrays may stay in the L2 cache.
        seconds: device time of one launch, by name: the kernel first, then the callables for comparison.
        ratio_to: how many times as fast the kernel is as each of them.
        watts: median power while each ran, by NVML; only under "alone", and only if nvidia-ml-py is installed.
        clock_mhz: SM clock that the kernel measured itself; None if it could not be read.
        notes: what could not be read, and why.
    """

    kernel: str
    gpu: str
    protocol: str
    launch: str
    sets: int
    seconds: Mapping[str, Spread]
    ratio_to: Mapping[str, float]
    watts: Mapping[str, float] = field(default_factory=dict)
    clock_mhz: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def us(self) -> float:
        """Median microseconds of one launch of the kernel."""
        return self.seconds[self.kernel].median * 1e6

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in microseconds."""
        return {
            "kernel": self.kernel,
            "gpu": self.gpu,
            "protocol": self.protocol,
            "launch": self.launch,
            "sets": self.sets,
            "us": {name: spread.as_dict(lambda seconds: seconds * 1e6, 2) for name, spread in self.seconds.items()},
            "ratio_to": dict(self.ratio_to),
            "power_w": dict(self.watts),
            "kernel_clock_mhz": self.clock_mhz,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.kernel} on {self.gpu}: protocol {self.protocol}, launched by {self.launch}, "
            f"{counted(self.sets, 'set')} of arrays"
        ]
        width = max(map(len, self.seconds))
        for name, spread in self.seconds.items():
            us = spread.as_dict(lambda seconds: seconds * 1e6, 2)
            line = f"  {name:{width}}  {us['median']:10.2f} us  ({us['min']:.2f} to {us['max']:.2f})"
            line += f"  {self.watts[name]:.0f} W" if name in self.watts else ""
            line += f"  {self.ratio_to[name]:.3f} times its time" if name in self.ratio_to else ""
            lines.append(line)
        if self.clock_mhz:
            lines.append(f"  the kernel measured {self.clock_mhz:.0f} MHz")
        return "\n".join([*lines, *(f"  note  {note}" for note in self.notes)])


def time_kernel(
    kernel: Callable[..., Any],
    program: Program,
    args: Sequence[Any],
    *,
    out: Any = None,
    scalars: Mapping[str, Any] | None = None,
    against: Against = None,
    protocol: str = "alone",
    seconds: float = 2.0,
    launch: str = "",
    gpu: Gpu | None = None,
) -> Timing:
    """Time `kernel(*args, out=out, **scalars)`; see `Kernel.time`. gpu: for tests."""
    check_protocol(protocol)
    if launch not in ("", *LAUNCHES):
        raise ArgumentError(
            "unknown launch method", expected=", ".join(LAUNCHES), got=repr(launch), code="unknown-name"
        )
    if not seconds > 0:
        raise ArgumentError("the time for a measurement must be positive", expected="seconds > 0", got=seconds)
    others = _named(against)
    call = sort_out(program, args, out, scalars or {})
    gpu = gpu or _gpu(call)
    sets = _sets(kernel, _on_gpu(call, gpu.index))
    name = program.title
    calls = {name: [partial(kernel, *each.inputs, out=each.outputs, **each.scalars) for each in sets]}
    calls |= {other: [partial(function, *each.inputs) for each in sets] for other, function in others.items()}
    if name in others:
        raise ArgumentError("a callable has the kernel's own name", got=name, hint="pass against={name: callable}")
    launch = launch or ("graph" if torch_with_cuda() is not None else "stream")
    count = BURST_LAUNCHES if protocol == "burst" else 0
    prepared = {each: gpu.ready(ones, launch, count) for each, ones in calls.items()}
    meter = PowerMeter(gpu.uuid)

    def watch(who: str, counting: bool) -> None:
        meter.label = who if counting else None

    with meter:
        spreads = sample(
            protocol,
            {each: one for each, (one, _) in prepared.items()},
            seconds,
            gpu.timer,
            {each: number for each, (_, number) in prepared.items()},
            watch,
        )
    notes, clock = [], None
    if len(sets) == 1:
        notes.append("the arrays were not copied, so small ones stay in the L2 cache")
    try:
        reading, _ = gpu.clock(program, [((*one.inputs, *one.scalars.values()), one.outputs) for one in sets], CLOCK_S)
        clock = round(reading.megahertz, 1)
    except WarploomError as error:
        notes.append(f"the kernel's clock could not be read: {error.what}")
    watts = {each: round(readings.watts, 1) for each, readings in meter.labelled.items() if readings.watts}
    return Timing(
        name,
        gpu.name,
        protocol,
        launch,
        len(sets),
        spreads,
        ratios(name, spreads, others),
        watts if protocol == "alone" else {},
        clock,
        tuple(notes),
    )


def _named(against: Against) -> dict[str, Callable[..., object]]:
    """The callables by name."""
    if against is None:
        return {}
    named = dict(against) if isinstance(against, Mapping) else {getattr(against, "__name__", "against"): against}
    for name, function in named.items():
        if not callable(function):
            raise ArgumentTypeError(
                "`against` takes callables that accept the kernel's inputs",
                expected="a callable, or a dict of them by name",
                got=f"{name}: {function!r}",
            )
    return named


@dataclass(frozen=True)
class _Set:
    """The arguments of one call. outputs: an array, a tuple of them, or None for a program without outputs."""

    inputs: tuple[Any, ...]
    outputs: Any
    scalars: Mapping[str, Any]

    @property
    def arrays(self) -> tuple[Any, ...]:
        made = self.outputs if isinstance(self.outputs, tuple) else (self.outputs,)
        return (*self.inputs, *(each for each in made if each is not None))


def _gpu(call: Call) -> Gpu:
    """The GPU of the arrays, otherwise the first. Raises NoGpuError if this machine has none."""
    views = [view(value) for value in call.given if value is not None]
    try:
        return Gpu(next((each.index for each in views if each.device == "cuda"), 0), HANG_S)
    except NoGpuError as error:
        raise NoGpuError(
            f"timing {call.program.title} needs a GPU, but there is none here",
            got=error.what.partition(";")[0],
            hint="`warploom time --predict` and Kernel.predict predict its time on an H200 without a GPU",
        ) from None


def _on_gpu(call: Call, index: int) -> _Set:
    """The arguments of a call, with arrays in CPU memory copied to the GPU."""
    if not call.program.arrays:
        raise ArgumentTypeError(
            "only a kernel with declared arrays can be timed",
            got=call.program.title,
            hint="give the text a launch description, or wrap it with Program.from_text",
        )
    given = zip(call.program.arrays, call.given, strict=True)
    roles = [(spec.role == "out", value) for spec, value in given if spec.role != "workspace"]
    made = [_moved(value, index) for out, value in roles if out]
    outputs: Any = None if any(each is None for each in made) or not made else tuple(made)
    if outputs is not None and len(outputs) == 1:
        (outputs,) = outputs
    return _Set(tuple(_moved(value, index) for out, value in roles if not out), outputs, call.scalars)


def _moved(value: Any, index: int) -> Any:
    """An array on GPU `index`: itself if it is on a GPU, otherwise a copy, by torch if that is installed."""
    if value is None or view(value).device == "cuda":
        return value
    torch = torch_with_cuda()
    if hasattr(value, "cuda"):
        return value.cuda(index)
    host = np.asarray(value)
    if torch is None:
        from .device_array import DeviceArray

        return DeviceArray.of(host, index)
    plain = torch.from_numpy(np.ascontiguousarray(host).view(f"u{host.dtype.itemsize}"))
    kind = getattr(torch, dtypes.torch_name(dtypes.of(host.dtype)))
    return plain.cuda(index).view(kind)


def _sets(kernel: Callable[..., Any], first: _Set) -> list[_Set]:
    """The first set with its outputs, and copies until the L2 cache cannot hold them all."""
    result = kernel(*first.inputs, out=first.outputs, **first.scalars)
    first = _Set(first.inputs, result if first.outputs is None else first.outputs, first.scalars)
    size = sum(int(np.prod(view(each).shape)) * view(each).dtype.bits // 8 for each in first.arrays)
    count = max(1, min(MOST_SETS, -(-ROTATED_BYTES // max(size, 1))))
    if not all(hasattr(each, "clone") or hasattr(each, "copy") for each in first.arrays):
        count = 1
    return [first, *(_copied(first) for _ in range(count - 1))]


def _copied(one: _Set) -> _Set:
    def copy(value: Any) -> Any:
        if value is None:
            return None
        return tuple(map(copy, value)) if isinstance(value, tuple) else (getattr(value, "clone", None) or value.copy)()

    return _Set(tuple(map(copy, one.inputs)), copy(one.outputs), one.scalars)
