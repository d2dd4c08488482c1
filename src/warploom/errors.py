"""Every error the package raises, one class per stage.

An error is a few sentences: what happened, where (the user's file and line), what was expected and what was
found, what would have happened on hardware, and what to do. `WarploomError` lays the sentences out; the
classes say which stage refused. A leaf: it imports nothing of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in somebody's text: a Python file, or a PTX text. Lines and columns count from 1; 0 is unknown.

    inlined: the places in functions that were inlined there, from the call inwards: what a library's line does is
        told by the author's line that calls it.
    """

    file: str
    line: int
    column: int = 0
    inlined: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        place = f"{place}:{self.column}" if self.column else place
        return f"{place} (inlined {', '.join(self.inlined)})" if self.inlined else place


SHOWN = 1600
"""Characters of a value that an error shows."""


class WarploomError(Exception):
    """Base of all errors of the package.

    Attributes:
        code: stable name of the kind of error, in kebab case; `warploom rules CODE` explains it (`error_codes`).

    Args:
        what: one sentence, naming the thing and the rule it breaks.
        where: the place in the user's text, if known.
        expected, got: the two sides of a comparison, as short texts.
        consequence: what would have happened had it run.
        hint: what to do.
        code: where the class has errors of several kinds.
    """

    code = "error"

    def __init__(
        self,
        what: str,
        *,
        where: SourceLocation | str | None = None,
        expected: object = None,
        got: object = None,
        consequence: str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        self.what = what
        if code is not None:
            self.code = code
        self.where = where
        self.expected = expected
        self.got = got
        self.consequence = consequence
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  at  {self.where}")
        if self.expected is not None:
            lines.append(f"  expected  {self.expected}")
        if self.got is not None:
            lines.append(f"  got       {shortened(str(self.got))}")
        if self.consequence is not None:
            lines.append(f"  otherwise {self.consequence}")
        if self.hint is not None:
            lines.append(f"  hint  {self.hint}")
        return "\n".join(lines)


def shortened(text: str) -> str:
    """The text without its middle if it has more than `SHOWN` characters: the repr of an array, say."""
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN * 3 // 4]} ... {text[-SHOWN // 4 :]} ({len(text)} characters)"


# -- writing a kernel --------------------------------------------------------------------------------------------


class TraceError(WarploomError):
    """The Python text of a kernel asks for something that cannot become PTX."""

    code = "trace"


class PtxSyntaxError(WarploomError):
    """A PTX text cannot be parsed; `where` has its line and column."""

    code = "ptx-syntax"


class VerificationError(WarploomError):
    """An instruction, declaration or kernel breaks a rule of the PTX ISA or of its target."""

    code = "verification"


# -- calling a kernel --------------------------------------------------------------------------------------------


class ArgumentError(WarploomError, ValueError):
    """An argument of a call has the wrong shape, stride, alignment, device or value. Nothing was launched."""

    code = "argument"


class ArgumentTypeError(WarploomError, TypeError):
    """An argument of a call has the wrong type or dtype. Nothing was launched."""

    code = "argument-type"


# -- the GPU machine ---------------------------------------------------------------------------------------------


class ToolchainError(WarploomError):
    """A tool (ptxas, nvdisasm) is missing or failed; its own message is shown."""

    code = "toolchain"


class CompilationError(ToolchainError):
    """ptxas refused a text, or its build has spills or serialised MMAs that the kernel did not allow."""

    code = "compilation"


class DriverError(WarploomError):
    """The CUDA driver refused a call."""

    code = "driver"


class NoGpuError(DriverError):
    """There is no GPU or no driver here; the emulator would run the kernel."""

    code = "no-gpu"


class PeerError(WarploomError):
    """Another GPU or process of a group has died, never came, or makes another call."""

    code = "peer-timeout"


class CompilerFallbackWarning(UserWarning):
    """No ptxas was found: the driver's own compiler builds the kernel, which the package's figures do not cover."""


class CacheWarning(UserWarning):
    """The cache on disk cannot be used (read-only, full, damaged); the work goes on without it."""

    code = "cache"


class OtherKernelWarning(UserWarning):
    """A chosen configuration does not build, and another one runs in its place."""


class UnrecordedWarning(UserWarning):
    """The emulator follows a published model that was not held against recordings of hardware."""


class UnprovenWarning(UserWarning):
    """A kernel runs that its authors could only assemble and emulate. Said once for each family."""

    code = "unproven-kernel"


class CopyWarning(UserWarning):
    """An operand or the result is copied, because the hardware cannot address it where it is. Said once for each
    argument and reason; the text has what it costs."""


class WrongResultError(WarploomError):
    """The first result of a kernel that its authors could not run is not what the slow reference gives."""

    code = "wrong-first-result"


# -- the CPU machine ---------------------------------------------------------------------------------------------


class EmulationError(WarploomError):
    """The emulated program did something hardware calls an error or leaves undefined.

    `findings`: what the sanitizer had found before, where checking was on. `location`: of the instruction it ended at;
    of a deadlock, where the threads wait that are nearest the cause.
    """

    code = "emulation"
    findings: tuple[Any, ...] = ()
    location: SourceLocation | None = None
    replay: tuple[str, int] | None = None
    """(schedule, seed) that shows it again; `explored`: the pairs that were tried, with schedule "explore"."""
    explored: tuple[tuple[str, int], ...] = ()


class OutOfBoundsError(EmulationError):
    """An access outside every buffer it could mean."""

    code = "out-of-bounds"


class MisalignedError(EmulationError):
    """An address that is not a multiple of the size of the access."""

    code = "misaligned"


class InvalidOperandError(EmulationError):
    """An operand value the instruction does not take: a descriptor, a barrier, a tensor map, a mask, a rank."""

    code = "invalid-operand"


class UnsupportedInstructionError(EmulationError):
    """The emulator does not know the instruction; it never guesses."""

    code = "unsupported-instruction"


class DeadlockError(EmulationError):
    """No thread can run, no copy is in flight, and not all have exited. `blocked` lists who waits for what."""

    code = "deadlock"
    waits: tuple[Any, ...] = ()
    """`blocked` as values: who, reason, missing, came, location."""

    def __init__(self, what: str, *, blocked: tuple[str, ...] = (), **rest: Any) -> None:
        self.blocked = blocked
        super().__init__(what, **rest)

    def __str__(self) -> str:
        text = super().__str__()
        return "\n".join([text, *(f"  - {line}" for line in self.blocked)])


class StepLimitError(EmulationError):
    """`max_steps` instructions were run and the kernel had not ended."""

    code = "step-limit"


class CostLimitError(EmulationError):
    """The estimated emulation time is above `config.emulator.limit_s`; nothing was run."""

    code = "cost-limit"
