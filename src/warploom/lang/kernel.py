"""`@kernel`: turns a Python function into PTX, and the methods of the resulting kernel.

The function runs once, when its PTX is first needed. Its parameters are handles of the arrays and scalars named in
`in_specs` and `out_specs`. The result is a `runtime.Program`, which both machines run.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .. import runtime
from ..errors import SourceLocation, WarploomError
from ..isa import arch as isa_arch
from ..isa.launch import broken_limit, registers_for
from ..renamed import formerly
from ..runtime import Program
from .build import Built, build
from .declaration import check_function, entry_name, misdeclared, specs_of, triple, where
from .tile import Scalar, Tile, Tiles
from .trace import CURRENT

if TYPE_CHECKING:
    from ..driver.resources import Resources
    from ..emulator.diagnosis.report import Report
    from ..runtime.benchmark.timing import Against, Timing
    from ..timing import Prediction, Traced

_building = CURRENT.get  # a bound method: the check costs a call little
GridEntry = int | str | Tiles
Grid = tuple[GridEntry, ...] | Callable[..., tuple[int, ...]]
_Spec = TypeVar("_Spec")
Specs: TypeAlias = Sequence[_Spec] | Mapping[str, _Spec]
"""Arguments in the order of the function's parameters, or by name."""


class Kernel:
    """A kernel, made by `@kernel`.

    Calling it runs it: `c = gemm(a, b)` allocates outputs where the inputs are, `gemm(a, b, out=c)` writes into the
    given ones. CUDA arrays run on the GPU, arrays in CPU memory in the emulator.

    Attributes:
        name: entry name in the PTX.
        in_specs, out_specs: arguments and results.
        arch: target.
        constants: values of the function's keyword-only parameters.
        example: a function that yields arguments to run the kernel with, or None.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *,
        in_specs: Specs[Tile | Scalar] = (),
        out_specs: Specs[Tile] = (),
        grid: Grid,
        block: int | tuple[int, ...],
        cluster: tuple[int, ...] = (1, 1, 1),
        arch: str = "sm_90a",
        registers: int | None = None,
        allow_spills: bool = False,
        pdl: bool = False,
        name: str | None = None,
        constants: Mapping[str, Any] | None = None,
        check_dims: Callable[[Mapping[str, int]], None] | None = None,
        example: Callable[..., Any] | None = None,
        fallback_hint: Callable[[str], str] | None = None,
    ) -> None:
        check_function(function)
        self.function = function
        self.name = entry_name(function, name)
        self._declared: dict[str, Any] = {"in_specs": in_specs, "out_specs": out_specs}
        self.in_specs = specs_of(function, "in_specs", in_specs, (Tile, Scalar))
        self.out_specs = specs_of(function, "out_specs", out_specs, (Tile,))
        if any(spec.peers for spec in self.out_specs):
            raise misdeclared(
                f"an output of {self.name} is declared with peers=", where=where(function),
                expected="peers= in in_specs: the caller has these arrays", got="peers= in out_specs",
            )  # fmt: skip
        self.grid = grid
        self.block = triple(function, "block", block)
        self.cluster = triple(function, "cluster", cluster)
        self.arch = arch
        self.registers = registers
        self.allow_spills = allow_spills
        self.pdl = pdl
        self.constants = dict(constants or {})
        self.check_dims = check_dims
        self.example = example
        self.fallback_hint = fallback_hint
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self._lock = threading.RLock()
        self._tracing = False
        self._built: Built | None = None
        self._caller: runtime.Caller | None = None
        self._check_limits()
        self.names = self._argument_names()

    # -- the declaration -----------------------------------------------------------------------------------------

    @property
    def location(self) -> SourceLocation:
        """The source location of the function."""
        return where(self.function)

    def _argument_names(self) -> tuple[str, ...]:
        if self._by_name:
            return self._declared_names()
        parameters = inspect.signature(self.function).parameters.values()
        names = tuple(p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY)
        wanted = len(self.in_specs) + len(self.out_specs)
        if len(names) != wanted or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
            raise misdeclared(
                f"the kernel {self.name} takes {len(names)} arguments and declares {wanted}",
                where=self.location,
                expected="one parameter for each entry of in_specs and out_specs, in that order",
                got=f"({', '.join(names)}) for {len(self.in_specs)} in and {len(self.out_specs)} out",
            )
        return names

    @property
    def _by_name(self) -> bool:
        return any(isinstance(specs, Mapping) for specs in self._declared.values())

    def _declared_names(self) -> tuple[str, ...]:
        """The keys of in_specs and out_specs, which the function must accept as keywords."""
        names = [name for specs in self._declared.values() for name in specs if isinstance(name, str)]
        try:
            inspect.signature(self.function).bind(**{**dict.fromkeys(names), **self.constants})
        except TypeError as error:
            raise misdeclared(
                f"the kernel {self.name} does not take the arguments it declares: {error}",
                where=self.location,
                expected=f"parameters {', '.join(names)}, or **arguments for some of them",
                got=str(inspect.signature(self.function)),
            ) from None
        if len(names) != len(self.in_specs) + len(self.out_specs):
            raise misdeclared(
                f"the kernel {self.name} names only some of its arguments", where=self.location,
                expected="in_specs and out_specs both as dicts, or both as tuples", got=f"names {', '.join(names)}",
            )  # fmt: skip
        return tuple(names)

    def run(self, handles: Sequence[Any]) -> object:
        """Call the function with the handles of its arguments and return its result; for the tracer."""
        function: Callable[..., object] = self.function
        if self._by_name:
            return function(**dict(zip(self.names, handles, strict=True)), **self.constants)
        return function(*handles, **self.constants)

    def _check_limits(self) -> None:
        """Raise TraceError if the target does not support the launch."""
        try:
            target = isa_arch.get(self.arch)
        except Exception as error:
            error.where = self.location  # type: ignore[attr-defined]
            raise
        broken = broken_limit(target, self.block, self.cluster)
        threads = prod(self.block)
        if broken is None and self.registers is not None:
            most = registers_for(target, threads)
            if not isinstance(self.registers, int) or not 0 < self.registers <= most:
                what = f"{self.arch} limits the registers per thread for {threads} threads"
                broken = what, f"1 to {most}", self.registers
        if broken is not None:
            what, expected, got = broken
            raise misdeclared(f"{self.name}: {what}", where=self.location, expected=expected, got=got)

    def bind(self, **constants: Any) -> Kernel:
        """The same kernel with other values for keyword-only parameters of its function; traced again."""
        parameters = inspect.signature(self.function).parameters.values()
        known = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        if unknown := sorted(set(constants) - known):
            raise misdeclared(
                f"{self.name} has no constant {unknown[0]!r}", expected=", ".join(sorted(known)) or "none"
            )
        return Kernel(
            self.function, **self._declared, grid=self.grid, block=self.block, cluster=self.cluster, arch=self.arch,
            registers=self.registers, allow_spills=self.allow_spills, pdl=self.pdl, name=self.name,
            constants={**self.constants, **constants}, check_dims=self.check_dims, example=self.example,
            fallback_hint=self.fallback_hint,
        )  # fmt: skip

    # -- PTX and machine code ------------------------------------------------------------------------------------

    def built(self) -> Built:
        """The traced kernel: module, protocol, program. Traced at the first call."""
        with self._lock:
            if self._tracing:
                raise misdeclared(f"the kernel {self.name} requests its PTX while it is traced", where=self.location)
            if self._built is None:
                self._tracing = True
                try:
                    self._built = build(self)
                finally:
                    self._tracing = False
            return self._built

    def program(self) -> Program:
        """PTX and launch description, as `runtime.emulate` and `runtime.launch` take them."""
        return self.built().program

    def ptx(self) -> str:
        """The PTX."""
        return self.program().text

    def to_python(self) -> str:
        """The PTX as a kernel in Python, instruction by instruction, with helpers and loops expanded."""
        from .decompile import to_python

        return to_python(self.ptx(), self.name)

    def protocol(self) -> str:
        """Roles, barriers (arrivals, bytes, who completes them) and buffers, as the trace recorded them."""
        return self.built().protocol.to_text()

    def cubin(self) -> bytes:
        """The machine code, built by ptxas (cached). Raises CompilationError or ToolchainError."""
        return runtime.build(self.program()).cubin

    def sass(self) -> str:
        """The disassembly. Needs nvdisasm; raises ToolchainError if it is missing."""
        from ..driver.disassemble import sass

        return sass(self.cubin(), self.name)

    def resources(self, *, sass: bool = False) -> Resources:
        """Registers, spills, shared memory, barriers and notes of the build, from ptxas.

        `sass`: also list the instructions between the waits for MMAs (`between_waits`); needs nvdisasm.
        """
        found = runtime.build(self.program()).resources[self.name]
        if not sass:
            return found
        from ..driver.disassemble import between_waits

        return replace(found, between_waits=between_waits(self.sass()))

    # -- running ---------------------------------------------------------------------------------------------------

    def emulate(self, *args: Any, check: bool = True, schedule: str = "lazy", seed: int = 0, ptx: str | None = None,
                **options: Any) -> Report:  # fmt: skip
        """Run in the emulator and return its Report.

        Args:
            args: arrays in CPU memory: inputs, then (optionally) outputs, then scalars. Missing outputs are allocated.
                In both cases they are `report.outputs`.
            check: run the sanitizer.
            schedule, seed: when asynchronous operations complete.
            ptx: other PTX for the same launch.
            options: further options of `warploom.emulate` (out, max_steps, machine, grid, numerics, …).
        """
        program = self.program()
        if ptx is not None:
            program = replace(program, text=ptx)
        try:
            return runtime.emulate(program, *args, check=check, schedule=schedule, seed=seed, **options)
        except WarploomError as error:
            raise error.with_traceback(None) from error.__cause__  # the caller's line, not a dozen of ours

    def predict(self, *args: Any, **options: Any) -> Prediction:
        """Predict a launch on an H200: its time, clock and power, what bounds it, and where each role waits.

        Needs no GPU, and the arrays need no values (`numpy.zeros`). args, options: as for `warploom.predict`;
        `timeline=True` keeps the events. Raises the errors of `emulate`.
        """
        try:
            return runtime.predict(self.program(), *args, **options)
        except WarploomError as error:
            raise error.with_traceback(None) from error.__cause__  # the caller's line, not a dozen of ours

    def trace(self, *args: Any, **options: Any) -> Traced:
        """The timeline of a launch on an H200, as modelled: `kernel.trace(a, b).to_html("trace.html")`.

        args, options: as for `warploom.trace`. Raises the errors of `predict`; a hanging kernel is traced up to that.
        """
        folders = (Path(self.function.__code__.co_filename).parent, *options.pop("folders", ()))
        try:
            return runtime.trace(self.program(), *args, folders=folders, **options)
        except WarploomError as error:
            raise error.with_traceback(None) from error.__cause__  # the caller's line, not a dozen of ours

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, **scalars: Any) -> Any:
        """Run the kernel: on the GPU for CUDA arrays, in the emulator for arrays in CPU memory.

        Args:
            args: the inputs in order; outputs may follow, then scalars.
            out: the outputs (one array, or a tuple).
            stream: CUDA stream; the caller's current one by default.
            scalars: by name.

        Returns the output, or a tuple of them, in the library of the inputs.
        """
        if _building() is not None:
            raise misdeclared(
                f"the kernel {self.name} is called inside a kernel",
                consequence="it would run now, while the other kernel is traced, and not as a part of it",
                hint="share code as plain Python functions; a kernel is called from the host",
            )
        caller = self._caller
        if caller is None:
            caller = self._caller = runtime.Caller(self.program())
        try:
            return caller.run(args, out, stream, scalars)
        except WarploomError as error:
            raise error.with_traceback(None) from error.__cause__  # the caller's line, not a dozen of ours

    def launch_of(self, *args: Any, out: Any) -> Any:
        """The driver launch of this call if it repeats an earlier one with the same memory, else None."""
        return None if self._caller is None else self._caller.launch_of(args, out)

    def time(
        self,
        *args: Any,
        out: Any = None,
        against: Against = None,
        protocol: str = "alone",
        seconds: float = 2.0,
        launch: str = "",
        **scalars: Any,
    ) -> Timing:
        """Time the kernel on the GPU, alternating with your own callables.

        Args:
            args, out, scalars: as for a call; arrays in CPU memory are copied to the GPU first. Launches rotate through
                copies of all arrays, so that no launch finds its own in L2.
            against: a callable, or several by name, called with the kernel's inputs: `torch.mm`.
            protocol: "alone" (blocks of each, A B A B), "interleaved" (short slices in random order) or "burst" (a few
                launches after a pause).
            seconds: duration for the kernel, and for each callable.
            launch: "graph" (replays of a CUDA graph; needs torch) or "stream"; a graph if torch is installed.

        Returns a Timing: microseconds of device time, ratios, power, the SM clock; `print` shows it. Raises NoGpuError
        on a machine without a GPU, ArgumentError and ArgumentTypeError for a wrong call, DriverError for a launch that
        does not end.
        """
        from ..runtime.benchmark.timing import time_kernel

        return time_kernel(self, self.program(), args, out=out, scalars=scalars, against=against, protocol=protocol,
                           seconds=seconds, launch=launch)  # fmt: skip

    def __repr__(self) -> str:
        return f"<kernel {self.name} {self.arch} at {self.location}>"


@formerly(elsewhere="fallback_hint")
def kernel(
    *,
    in_specs: Specs[Tile | Scalar] = (),
    out_specs: Specs[Tile] = (),
    grid: Grid,
    block: int | tuple[int, ...],
    cluster: tuple[int, ...] = (1, 1, 1),
    arch: str = "sm_90a",
    registers: int | None = None,
    allow_spills: bool = False,
    pdl: bool = False,
    name: str | None = None,
    check_dims: Callable[[Mapping[str, int]], None] | None = None,
    example: Callable[..., Any] | None = None,
    fallback_hint: Callable[[str], str] | None = None,
) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel from a Python function.

    Args:
        in_specs: `Tile` of each input array and `Scalar` of each number, in the order of the function's parameters; or
            a dict of them by name, for a function that takes some as `**arguments`.
        out_specs: `Tile` of each output array; a dict if `in_specs` is one.
        grid: CTAs (x, y, z): ints, named sizes ("M"), `tiles("M", 64)`; or a callable of (dims, machine).
        block: threads (x, y, z), or their number.
        cluster: CTAs per cluster.
        arch: target, "sm_80", "sm_90a", …; warpgroup MMAs and setmaxnreg need "sm_90a".
        registers: limit per thread (.maxnreg).
        allow_spills: accept a build with spills or serialised MMAs.
        pdl: launch with programmatic stream serialisation.
        name: entry name; by default the function's name.
        check_dims: called with the sizes of a call; raises ArgumentError for sizes that the kernel does not support.
        example: yields arguments for `warploom check`.
        fallback_hint: called with the target of a GPU that cannot run the kernel; returns a hint for the error message.

    Raises TraceError for launch shapes beyond the target's limits, ArgumentError for an unknown target.
    """

    def decorate(function: Callable[..., None]) -> Kernel:
        return Kernel(
            function, in_specs=in_specs, out_specs=out_specs, grid=grid, block=block, cluster=cluster, arch=arch,
            registers=registers, allow_spills=allow_spills, pdl=pdl, name=name, check_dims=check_dims, example=example,
            fallback_hint=fallback_hint,
        )  # fmt: skip

    return decorate
