"""One checked call on its way to the kernel: copies where they must be, the choice, one launch for each product.

On a GPU it leaves behind what a second call of the same kind needs (`launches`); in host memory the emulator runs.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import CopyWarning, CostLimitError
from ..isa.dtypes import DType, f32, u32
from ..runtime import on_cpu, on_gpu
from ..runtime.arrays import ArrayView, view
from ..runtime.bind import Shape
from ..runtime.dispatch import Call
from ..runtime.estimate import spoken
from ..runtime.launch_template import Launched
from ..settings import config as settings
from . import reference
from .kernel_cache import ready
from .request import Request
from .select import Choice, choose
from .spec.gpu import AMPERE, EMULATED, HOPPER, Gpu, check_gpu, gpu_of
from .spec.problem import TMA_BYTES, Problem
from .spec.scales import BLOCK
from .views import (
    broadcast,
    copy_into,
    item,
    misfit,
    new_array,
    padded_like,
    restrided,
    rows_addressable,
    rows_storable,
    stored,
    to_array,
    transposed,
    with_rows,
)  # fmt: skip

if TYPE_CHECKING:
    from ..runtime.program import ArraySpec, Program

EMULATED_FLOPS, EMULATED_LAUNCH_S = 1e9, 0.005
"""What the emulator does in a second where a launch is long (emulator-speed.json), and what a launch costs."""


@dataclass
class Outcome:
    """What a call gives back.

    Attributes:
        result: the array, in the caller's framework.
        launches: what ran on the GPU; None where something was copied, so that a launch alone does not repeat it.
    """

    result: Any
    launches: list[Launched] | None = None


def run(request: Request, out: Any, stream: Any = None) -> Outcome:
    """Compute. `out`: the caller's array, or None for a new one."""
    problem = request.problem
    model = request.a
    if 0 in request.shape:
        return Outcome(out if out is not None else new_array(model, request.shape, problem.product.out))
    if problem.k == 0:
        return Outcome(reference.without_product(request, out))
    gpu = EMULATED if model.device == "cpu" else gpu_of(model.index)
    if model.device == "cpu":
        refuse_long_emulation(problem)
    check_gpu(gpu, request.called, AMPERE)
    if gpu.number < HOPPER:
        from .families.ampere import run_ampere

        return Outcome(run_ampere(request, out, stream))
    return Hopper(request, gpu, stream).run(out)


def refuse_long_emulation(problem: Problem) -> None:
    """Raise CostLimitError where all products of a problem take the emulator longer than the settings allow."""
    count = math.prod(problem.batch)
    seconds = count * (EMULATED_LAUNCH_S + 2 * problem.m * problem.n * problem.k / EMULATED_FLOPS)
    limit = settings.emulator.limit_s
    if seconds > limit:
        raise CostLimitError(
            f"emulating matmul would take about {spoken(seconds)}",
            expected=f"at most {spoken(limit)} (config.emulator.limit_s)",
            got=f"{problem.m} x {problem.n} x {problem.k}" + (f", {count} times" if count > 1 else ""),
            hint='use smaller arrays or a GPU, or allow it: with warploom.config.override(emulator={"limit_s": '
            f"{int(seconds * 2) + 1}" + "}): …",
        )


class Hopper:
    """A call on sm_90, or in the emulator."""

    def __init__(self, request: Request, gpu: Gpu, stream: Any) -> None:
        self.request, self.gpu, self.stream = request, gpu, stream
        self.copied = False
        self.launched: list[Launched] = []

    def run(self, result: Any) -> Outcome:
        """All products of the call."""
        request = self.request
        problem = request.problem
        device = None if request.a.device == "cpu" else request.a.index
        choice, program = ready(problem, self.gpu, self._choice(), device)
        if request.out is not None:
            target = request.out
        else:
            result = new_array(request.a, request.shape, problem.product.out)
            target = _as_problem(replace(view(result, "out"), writable=True), problem)
        a = broadcast(request.a, problem.batch)
        b = transposed(broadcast(request.b, problem.batch))
        copies: dict[tuple[str, int], ArrayView] = {}
        for index in itertools.product(*map(range, problem.batch)):
            self._one(program, choice, item(a, index), item(b, index), item(target, index), index, copies)
        return Outcome(result, None if self.copied or not self.launched else self.launched)

    def _choice(self) -> Choice:
        """The configuration; with `config.autotune`, timed first where nobody has timed the problem yet."""
        request, level = self.request, settings.autotune
        choice = choose(request.problem, self.gpu, request.config)
        if not level or choice.source != "model" or request.a.framework != "torch" or request.a.device == "cpu":
            return choice
        from ..driver import library
        from .tune import TOP, tune

        stream = self.stream if self.stream is not None else on_gpu.current_stream([request.a], request.a.index)
        if not library.load().is_capturing(on_gpu.stream_handle(stream)):
            tune(request.problem, device=request.a.index, top=TOP if level == 1 else 1000)
        return choose(request.problem, self.gpu)

    def _one(
        self, program: Program, choice: Choice, a: ArrayView, b: ArrayView, out: ArrayView, index: tuple[int, ...],
        copies: dict[tuple[str, int], ArrayView],
    ) -> None:  # fmt: skip
        """One product. a: (M, K), b: (N, K), out: (M, N), each where it lies."""
        request, product = self.request, self.request.problem.product
        given: dict[str, ArrayView] = {
            "a": self._operand(a, "a", product.a_major, copies),
            "b": self._operand(b, "b", product.b_major, copies),
        }
        specs = {ALIASES.get(spec.name, spec.name.lower()): spec for spec in program.arrays}
        mapped = {parameter.source for parameter in program.parameters if parameter.kind == "tensor_map"}
        for name in ("c", "gate"):
            array = getattr(request, name)
            if array is not None:
                given[name] = self._matrix(item(array, index), name, specs[name], specs[name].name in mapped)
        if request.problem.promoted:
            given["scale_a"], given["scale_b"] = self._block_scales()
        for name in ("bias", "scale_a", "scale_b", "scale_out", "amax"):
            array = getattr(request, name)
            if array is not None and name not in given:
                given[name] = self._vector(array, name)
        target = self._matrix(out, "out", specs["out"], specs["out"].name in mapped)
        self._launch(program, given, target, choice)
        if target.pointer != out.pointer:
            copy_into(out, target)

    def _launch(self, program: Program, given: dict[str, ArrayView], target: ArrayView, choice: Choice) -> None:
        request = self.request
        arrays: list[ArrayView] = []
        names: list[str | None] = []
        for spec in program.arrays:
            name = ALIASES.get(spec.name, spec.name.lower())
            ours = name in ("workspace", "counters")
            if ours:
                arrays.append(workspace(name, choice, request, self.gpu, self.stream))
            else:
                arrays.append(target if name == "out" else given[name])
            names.append(None if ours else name)
        numbers = {parameter.source: number(request, parameter.source) for parameter in program.scalars}
        call = Call(program, tuple(arrays), numbers)
        if request.a.device == "cpu":
            options = settings.emulator
            report = on_cpu.run(
                call, list(arrays), Shape(), None, check=options.check, schedule=options.schedule, seed=options.seed,
                max_steps=None,
            )  # fmt: skip
            if options.check:
                report.raise_on_findings()
            return
        prepared, _ = on_gpu.run(call, list(arrays), Shape(), self.stream)
        sources = tuple(spec.name for spec in program.arrays)
        self.launched.append(Launched(program, prepared, sources, tuple(names), tuple(arrays)))

    def _operand(
        self, operand: ArrayView, name: str, major: str, copies: dict[tuple[str, int], ArrayView]
    ) -> ArrayView:
        """An operand, seen as (rows, K), as the kernel takes it; copied where TMA cannot read it."""
        source = operand if major == "K" else transposed(operand)
        if rows_addressable(source):
            return with_rows(source)
        key = (name, source.pointer)
        if key not in copies:
            # Here it is (N, K), which matmul's caller has as (K, N).
            given = transposed(operand) if name == "b" and self.request.called == "matmul" else operand
            self._warn(name, stored(operand, operand.dtype.bits == 16).copy or misfit(source), given)
            copies[key] = padded_like(source, source.shape, source.dtype)
            copy_into(copies[key], source)
        return with_rows(copies[key])

    def _matrix(self, array: ArrayView, name: str, spec: ArraySpec, mapped: bool) -> ArrayView:
        """An (M, N) array as the kernel takes it: itself, or one beside it (a copy, unless it is the output)."""
        if array.contiguous and any(step < 0 for step in array.strides):  # of a dimension of one element
            array = restrided(array, array.shape, (array.shape[1] * array.dtype.bytes, array.dtype.bytes))
        forward = all(step >= 0 for step in array.strides)
        plain = array.contiguous or (spec.order != "C" and forward)
        fits = rows_storable if name == "out" else rows_addressable
        if plain and (not mapped or fits(array)):
            return with_rows(array) if mapped else array
        why = "it is not contiguous" if not mapped and forward else misfit(array)
        if mapped and rows_addressable(array):
            why = f"its rows are no whole {TMA_BYTES}-byte pieces, which are what TMA stores"
        self._warn(name, why, array)
        if mapped:
            copy = padded_like(array, array.shape, array.dtype)
        else:
            copy = replace(view(new_array(array, array.shape, array.dtype), name), writable=True)
        if name != "out":
            copy_into(copy, array)
        return copy

    def _block_scales(self) -> tuple[ArrayView, ArrayView]:
        """The caller's as the kernel takes them, whichever dimension is contiguous, or one number everywhere."""
        request, problem = self.request, self.request.problem
        blocks = problem.k // BLOCK
        found = []
        for name, shape, turned in (
            ("scale_a", (problem.m, blocks), problem.scale_a_major == "MN"),
            ("scale_b", (blocks, -(-problem.n // BLOCK)), problem.scale_b_major == "K"),
        ):
            array = getattr(request, name)
            if array is None or array.size == 1:
                wide = shape[::-1] if turned else shape
                made = replace(view(new_array(request.a, wide, f32), name), writable=True)
                fill(made, array)
                self.copied = True
                found.append(made)
            else:
                found.append(self._vector(transposed(array) if turned else array, name))
        return found[0], found[1]

    def _vector(self, array: ArrayView, name: str) -> ArrayView:
        if array.contiguous:
            return array
        copy = replace(view(new_array(array, array.shape, array.dtype), name), writable=True)
        copy_into(copy, array)
        self.copied = True
        return copy

    def _warn(self, name: str, why: str, array: ArrayView) -> None:
        """Say once what is copied, why, and what it costs."""
        self.copied = True
        name, called = self.request.said(name), self.request.called
        bytes_ = array.size * array.dtype.bytes
        if warned().first((name, why, array.dtype)):
            warnings.warn(
                f"{called} copies `{name}`: {why}. Each such call reads and writes {bytes_:,} bytes more and needs as "
                f"much memory for the while; got {array.describe()}, strides {array.strides} bytes. Rows that begin at "
                "multiples of 16 bytes, in memory of the right order, avoid it.",
                CopyWarning,
                stacklevel=outside(),
            )


ALIASES = {"D": "out", "W": "b", "A": "a", "B": "b", "C": "c", "ScaleA": "scale_a", "ScaleB": "scale_b"}
"""What kernels call their arrays, as `matmul` calls them."""


def _as_problem(target: ArrayView, problem: Problem) -> ArrayView:
    """A new result seen as the problem has it, its leading dimensions merged where the operands' are."""
    shape = (*problem.batch, problem.m, problem.n)
    if target.shape == shape:
        return target
    width = target.dtype.bytes
    return restrided(target, shape, (problem.n * width, width))


def number(request: Request, name: str) -> float:
    """The value of a scalar parameter."""
    return {"alpha": request.alpha, "beta": request.beta}[name]


# -- memory of ours ------------------------------------------------------------------------------------------------


class Warned:
    """Which copies were spoken of already."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def first(self, what: Any) -> bool:
        """Whether this is the first time."""
        if what in self._seen:
            return False
        self._seen.add(what)
        return True

    def clear(self) -> None:
        """Speak of all of them again."""
        self._seen.clear()


def outside() -> int:
    """The stacklevel at which `warnings.warn` in the calling function names the caller of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("warploom."):
        frame, level = frame.f_back, level + 1
    return level


@lru_cache(maxsize=1)
def warned() -> Warned:
    """The process's record."""
    return Warned()


class Workspaces:
    """What split-K kernels add up in: sums, and counters that are zero between calls. Calls in different streams
    never share them."""

    def __init__(self) -> None:
        self._held: dict[Any, ArrayView] = {}
        self._lock = threading.Lock()

    def get(self, key: Any, shape: tuple[int, ...], dtype: DType, model: ArrayView) -> ArrayView:
        """A buffer of at least that shape, zeros when it is new."""
        with self._lock:
            held = self._held.get(key)
            if held is None or any(have < need for have, need in zip(held.shape, shape, strict=True)):
                array = new_array(model, shape, dtype)
                held = replace(view(array, "workspace"), writable=True)
                fill(held, number=0)
                self._held[key] = held
            return held


def fill(array: ArrayView, value: ArrayView | None = None, number: float = 1.0) -> None:
    """Set all elements to the one element of `value`, or to a number."""
    if array.host is not None:
        array.host[...] = number if value is None or value.host is None else value.host
    else:
        to_array(array)[...] = number if value is None else to_array(value)


@lru_cache(maxsize=1)
def workspaces() -> Workspaces:
    """The process's buffers."""
    return Workspaces()


def workspace(name: str, choice: Choice, request: Request, gpu: Gpu, stream: Any) -> ArrayView:
    """The workspace or the counters of a kernel whose last CTA adds up."""
    config: Any = choice.config
    sums, counters = config.workspace(request.problem.m, request.problem.n, gpu.sms)
    model = request.a
    shape, dtype = (sums, f32) if name == "workspace" else ((counters,), u32)
    if model.device == "cpu":  # its threads have no streams, and an emulation may end half-way: nothing is shared
        return Workspaces().get(name, shape, dtype, model)
    handle = on_gpu.stream_handle(stream) if stream is not None else on_gpu.current_stream([model], model.index)
    return workspaces().get((name, shape[1:], model.device, model.index, handle), shape, dtype, model)
