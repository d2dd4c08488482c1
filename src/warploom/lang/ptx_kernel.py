"""`@ptx_kernel`: a kernel whose parameters, variables and directives are written as in PTX.

    @ptx_kernel(parameters=(Param("x", "u64"), Param("n", "u32")), directives=(("maxntid", "128, 1, 1"),))
    def scale(x, n):
        r, rd = reg.array(b32, 8), reg.array(b64, 4)
        ptx.inst.ld.param.u64(rd[1], x)

Nothing is added to the function's code: no argument is an array, no size is a parameter, no `ret` follows.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import asm, runtime
from ..asm import nodes
from ..asm.printer import to_text
from ..errors import SourceLocation
from ..runtime import Program
from ..settings import config
from .build import declarations, run_traced
from .declaration import misdeclared, where
from .emit import PTX_VERSION
from .listing import Variable
from .protocol import Protocol
from .trace import LocationFinder, Trace

if TYPE_CHECKING:
    from ..emulator.diagnosis.report import Report


@dataclass(frozen=True)
class Param:
    """A parameter of a kernel: `.param .align 64 .b8 name[128]` is Param("name", "b8", (128,), align=64)."""

    name: str
    type: str
    dims: tuple[int, ...] = ()
    align: int | None = None
    attributes: tuple[str, ...] = ()


class PtxKernel:
    """A kernel made by `@ptx_kernel`.

    Attributes:
        name: entry name in the PTX.
        parameters: in order; the function receives a `ptx.variable` for each.
        arch: target; ptx_version: PTX version.
        directives: names and texts of the directives between head and body.
        functions: PTX of functions that the kernel calls, verbatim.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *,
        parameters: Sequence[Param] = (),
        arch: str = "sm_90a",
        ptx_version: tuple[int, int] = PTX_VERSION,
        directives: Sequence[tuple[str, str]] = (),
        functions: str = "",
        name: str | None = None,
    ) -> None:
        self.function = function
        self.name = name or function.__name__
        self.parameters = tuple(parameters)
        self.arch, self.ptx_version = arch, ptx_version
        self.directives = tuple(directives)
        self.functions = functions
        self.__doc__ = function.__doc__
        self._lock = threading.RLock()
        self._module: nodes.Module | None = None
        wanted = len(inspect.signature(function).parameters)
        if wanted != len(self.parameters):
            raise misdeclared(
                f"the kernel {self.name} takes {wanted} arguments and declares {len(self.parameters)}",
                where=self.location,
                expected="one parameter of the function for each entry of `parameters`",
                got=str(inspect.signature(function)),
            )

    @property
    def location(self) -> SourceLocation:
        """The source location of the function."""
        return where(self.function)

    def module(self) -> nodes.Module:
        """The PTX as a tree. Traced at the first call."""
        with self._lock:
            if self._module is None:
                self._module = self._trace()
            return self._module

    def _trace(self) -> nodes.Module:
        finder = LocationFinder(self.function.__code__.co_filename)
        trace = Trace(self.name, self.arch, self.ptx_version, finder, Protocol(self.name, (1, 1, 1), (1, 1, 1)))
        handles = [Variable(parameter.name) for parameter in self.parameters]
        run_traced(trace, lambda: self.function(*handles), self.function.__name__, self.location)
        entry = nodes.Function(
            "entry",
            self.name,
            tuple(
                nodes.Variable("param", each.type, each.name, each.dims, each.align, attributes=each.attributes)
                for each in self.parameters
            ),
            linkage="visible",
            directives=tuple(nodes.Directive(name, text) for name, text in self.directives),
            body=(*declarations(trace), *trace.prologue, *trace.body),
        )
        variables = trace.memo.get(("variables",), [])
        module = nodes.Module(self.ptx_version, (self.arch,), 64, (*self._functions(), *variables, entry))
        asm.check(module)
        return module

    def _functions(self) -> tuple[Any, ...]:
        if not self.functions:
            return ()
        major, minor = self.ptx_version
        head = f".version {major}.{minor}\n.target {self.arch}\n.address_size 64\n"
        return asm.parse(head + self.functions, name=f"the functions of {self.name}").items

    def program(self) -> Program:
        """PTX and entry, as `runtime.emulate` and `runtime.launch` take them."""
        return Program.from_text(self.ptx(), entry=self.name, name=self.name)

    def ptx(self) -> str:
        """The PTX."""
        return to_text(self.module(), line_info=config.line_info)

    def to_python(self) -> str:
        """This kernel as Python again, with labels and registers renumbered."""
        from .decompile import to_python

        return to_python(self.ptx(), self.name)

    def emulate(self, *args: Any, **options: Any) -> Report:
        """Run in the emulator: arguments in parameter order, `grid=` and `block=` as `warploom.emulate` takes them."""
        return runtime.emulate(self.program(), *args, **options)

    def __repr__(self) -> str:
        return f"<kernel {self.name} {self.arch} at {self.location}>"


def ptx_kernel(**options: Any) -> Callable[[Callable[..., None]], PtxKernel]:
    """Make a PtxKernel from a function; options: see PtxKernel. Raises TraceError if it cannot become PTX."""
    return lambda function: PtxKernel(function, **options)
