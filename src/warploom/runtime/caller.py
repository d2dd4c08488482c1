"""The public call of a kernel, made cheap: a call that was checked once is not checked again.

All that a check depends on is each argument's address, shape, strides, dtype and device (and each scalar's value).
These are the key of a table of prepared launches, so a call with arrays that were seen before costs reading the key,
one look-up and one call of the driver. What is found there was fully validated for exactly this key.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError
from ..settings import config
from . import on_cpu, on_gpu
from .bind import Shape
from .dispatch import look, named_views, place, result_of, sort_out
from .program import HasProgram, Program, program_of

if TYPE_CHECKING:
    from ..driver.launch import PreparedLaunch

_KEPT = 8192
_NUMBERS = (int, float)
_VIEWS_KEPT = 7
"""Other shapes of the same buffers whose launches are remembered."""
_MOST_ARRAYS = 16

Key: TypeAlias = "tuple[tuple[Any, ...], tuple[Any, ...]]"
"""Addresses, and all else. The table is looked up by the addresses alone, for hashing shapes costs more than comparing
them."""


def _facts(tensor: Any) -> tuple[Any, ...]:
    """All of a tensor, but its address, that the checks depend on. Its device follows from the address, for addresses
    are unified; the strides of a contiguous one follow from its shape."""
    return tensor.shape, tensor.is_contiguous() or tensor.stride(), tensor.dtype


def _written_out(count: int) -> Callable[[int, tuple[Any, ...]], Key]:
    """The key of so many tensors, without a loop: half the cost of a call."""
    names = [f"t{at}" for at in range(count)]
    addresses = "".join(f"{t}.data_ptr(), " for t in names)
    facts = "".join(f"{t}.shape, {t}.is_contiguous() or {t}.stride(), {t}.dtype, " for t in names)
    lines = ["def key(positional, tensors):", f"    [{', '.join(names)}] = tensors"]
    lines.append(f"    return ({addresses}), (positional, {facts})")
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)  # noqa: S102 - our own text
    return space["key"]


KEYS = tuple(_written_out(count) for count in range(_MOST_ARRAYS + 1))
"""Key functions by number of arrays."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A launch for one key.

    Attributes:
        facts: the second part of the key.
        launch, calls: the launch, and its driver calls by stream.
        result: picks the outputs among the call's arguments: a position, several, or None.
        other: the plan of other facts at the same addresses.
    """

    facts: tuple[Any, ...]
    launch: PreparedLaunch
    calls: dict[int, Callable[[], Any]]
    device: int
    result: int | tuple[int, ...] | None
    other: _Plan | None


@dataclass(frozen=True)
class _Outputs:
    """The outputs that a call of one key leaves to us: (shape, dtype) of each, and the function that makes them."""

    shapes: tuple[tuple[Any, Any], ...]
    device: Any
    empty: Callable[..., Any]

    def make(self) -> tuple[Any, ...]:
        return tuple(self.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.shapes)


class Caller:
    """A program that can be called: `caller(a, b)`, `caller(a, b, out=c, stream=s)`.

    CUDA arrays run on their GPU, on the caller's current stream, without waiting; host arrays run in the emulator,
    under the settings of `config.emulator`. Gives back the output array, a tuple of them, or None.
    """

    def __init__(self, program: Program | HasProgram) -> None:
        self.program = program_of(program)
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._outputs: dict[Key, _Outputs] = {}
        self._fast_types: frozenset[type] = frozenset()
        self._raw_stream: Callable[[int], int] = int
        self._lock = threading.Lock()

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, **numbers: Any) -> Any:
        """Run it. Raises as `launch` and `emulate` do; nothing was launched then."""
        return self.run(args, out, stream, numbers)

    def run(self, args: tuple[Any, ...], out: Any, stream: Any, numbers: dict[str, Any]) -> Any:
        """`__call__` with its arguments as they are, for a caller that has them so."""
        if self._plans and not numbers:
            everything = args if out is None else (*args, *out) if type(out) is tuple else (*args, out)
            try:
                addresses, facts = KEYS[len(everything)](len(args), everything)
            except (AttributeError, IndexError, RuntimeError):  # a number, no torch tensor, or very many of them
                addresses, facts = self._key(len(args), everything)
            plan = self._plans.get(addresses)
            while plan is not None and plan.facts != facts:
                plan = plan.other
            if plan is None and (addresses, facts) in self._outputs:
                made = self._outputs[addresses, facts].make()
                return self.run(args, made, stream, numbers)
            if plan is not None:
                result = plan.result
                if type(result) is int:
                    back = everything[result]
                    refused = back.requires_grad
                else:
                    back = result if result is None else tuple(everything[at] for at in result)  # type: ignore[union-attr]
                    refused = any([tensor.requires_grad for tensor in back or ()])
                if refused and sys.modules["torch"].is_grad_enabled():
                    return self._slow(args, out, stream, numbers)  # says why
                handle = self._raw_stream(plan.device) if stream is None else on_gpu.stream_handle(stream)
                call = plan.calls.get(handle)
                if call is None:
                    plan.launch(handle)
                elif status := call():
                    plan.launch.check(status, handle)
                return back
        return self._slow(args, out, stream, numbers)

    def _key(self, positional: int, values: tuple[Any, ...]) -> Key:
        """What the checks depend on, for torch tensors and plain numbers; empty where there is anything else.

        The number of positional arguments is part of it: it says which of them are outputs.
        """
        addresses: list[Any] = []
        facts: list[Any] = [positional]
        for value in values:
            kind = type(value)
            if kind in self._fast_types:
                addresses.append(value.data_ptr())
                facts += _facts(value)
            elif kind in _NUMBERS:
                facts += (kind, value)
            else:
                return (), ()
        return tuple(addresses), tuple(facts)

    def _slow(self, args: tuple[Any, ...], out: Any, stream: Any, numbers: dict[str, Any]) -> Any:
        """The whole way: which argument is which, which machine, all checks. A launch on a GPU is remembered."""
        call = sort_out(self.program, args, out, numbers)
        views = look(call)
        named = named_views(call, views)
        device, index = place(self.program, named)
        if device == "cuda":
            prepared, outs = on_gpu.run(call, views, Shape(), stream)
            if not numbers and all(array.framework == "torch" for _, array in named):
                self._remember(args, out, outs, prepared, index)
            return result_of(outs)
        if stream is not None:
            listing = ", ".join(f"`{name}` on {array.place}" for name, array in named)
            raise ArgumentError(
                "stream= is for a GPU, and these arrays are in host memory",
                expected="CUDA arrays, or no stream=",
                got=listing or "no array",
            )
        settings = config.emulator
        report = on_cpu.run(
            call,
            views,
            Shape(),
            None,
            check=settings.check,
            schedule=settings.schedule,
            seed=settings.seed,
            max_steps=None,
        )
        if settings.check:
            report.raise_on_findings()
        return result_of(report.outputs) if self.program.arrays else None

    def _remember(
        self, args: tuple[Any, ...], out: Any, outs: tuple[Any, ...], launch: PreparedLaunch, device: int
    ) -> None:
        """Keep a launch under its key, and how its outputs are made under the key of the call that left them out."""
        torch = sys.modules["torch"]
        kinds = {type(value) for value in (*args, *outs) if type(value).__name__ in ("Tensor", "Parameter")}
        self._raw_stream = torch._C._cuda_getCurrentRawStream
        self._fast_types |= frozenset(kind for kind in kinds if kind.__module__.startswith("torch"))
        inputs = sum(spec.role != "out" for spec in self.program.arrays)
        given = tuple(out) if isinstance(out, (tuple, list)) else () if out is None else (out,)
        made = bool(outs) and not given and len(args) < len(self.program.arrays) + len(self.program.scalars)
        everything = (*args, *(outs if made else given))
        positions: tuple[int, ...]
        if made or given:
            positions = tuple(range(len(args), len(everything)))
        else:
            positions = tuple(at for at, spec in enumerate(self.program.arrays) if spec.role == "out")
        key = self._key(len(args), everything)
        if not key[1] or inputs > len(args):
            return
        result = positions[0] if len(positions) == 1 else positions or None
        with self._lock:
            addresses, facts = key
            other = _bounded(self._plans).get(addresses)
            self._plans[addresses] = _Plan(facts, launch, launch.calls, device, result, _shortened(other))
            if made:
                shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in outs)
                _bounded(self._outputs)[self._key(len(args), args)] = _Outputs(shapes, outs[0].device, torch.empty)


def _shortened(plan: _Plan | None, most: int = _VIEWS_KEPT) -> _Plan | None:
    """The newest `most` plans of a chain."""
    if plan is None or most == 0:
        return None
    return replace(plan, other=_shortened(plan.other, most - 1))


def _bounded(table: dict[Any, Any]) -> dict[Any, Any]:
    """The table, with its older half forgotten where it has grown too large."""
    if len(table) >= _KEPT:
        for key in list(table)[: _KEPT // 2]:
            table.pop(key, None)
    return table
