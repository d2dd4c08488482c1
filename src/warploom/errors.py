"""Every error the package raises, one class per stage.

An error is a few sentences: what happened, where (the user's file and line), what was expected and what was given,
what would have happened on hardware, and what to do. `WarploomError` formats them; the class says which stage raised
the error. A leaf module: it imports nothing from the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A position in a Python file or a PTX text. Lines and columns count from 1; 0 is unknown.

    inlined: the positions in functions that were inlined there, outermost call first. A line of a library is reported
        together with the user's line that calls it.
    """

    file: str
    line: int
    column: int = 0
    inlined: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        place = f"{place}:{self.column}" if self.column else place
        return f"{place} (inlined {', '.join(_chain(self.inlined))})" if self.inlined else place


def _chain(places: tuple[str, ...]) -> list[str]:
    """Inlined places without folders; of many the first two and the last."""
    names = [place.replace("\\", "/").rsplit("/", 1)[-1] for place in places]
    return names if len(names) <= 4 else [*names[:2], f"{len(names) - 3} more", names[-1]]


SHOWN = 1600
"""Characters of a value that an error shows."""


class WarploomError(Exception):
    """Base of all errors of the package.

    Attributes:
        code: stable name of the kind of error, in kebab case; `warploom rules CODE` explains it (`error_codes`).

    Args:
        what: one sentence that names the object and the rule it violates.
        where: the position in the user's text, if known.
        expected, got: the two sides of a comparison, as short texts.
        consequence: what would have happened on hardware.
        hint: what to do.
        code: needed if the class has several kinds of errors.
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

    @property
    def in_one_line(self) -> str:
        """What is wrong, with the hint in brackets."""
        return self.what + (f" ({self.hint})" if self.hint else "")


def shortened(text: str) -> str:
    """The text without its middle if it has more than `SHOWN` characters: the repr of an array, say."""
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN * 3 // 4]} ... {text[-SHOWN // 4 :]} ({len(text)} characters)"


# -- writing a kernel --------------------------------------------------------------------------------------------


class TraceError(WarploomError):
    """The Python code of a kernel does something that cannot be expressed in PTX."""

    code = "trace"


class PtxSyntaxError(WarploomError):
    """A PTX text cannot be parsed; `where` has its line and column."""

    code = "ptx-syntax"


class VerificationError(WarploomError):
    """An instruction, declaration or kernel violates a rule of the PTX ISA or of its target."""

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
    """ptxas rejected a text, or its build has spills or serialised MMAs that the kernel did not allow."""

    code = "compilation"


class DriverError(WarploomError):
    """A call of the CUDA driver failed."""

    code = "driver"


class NoGpuError(DriverError):
    """There is no GPU or no driver; the emulator can run the kernel."""

    code = "no-gpu"


class PeerError(WarploomError):
    """Another GPU or process of a group has died, never responded, or makes a different call."""

    code = "peer-timeout"


class CompilerFallbackWarning(UserWarning):
    """No ptxas was found: the driver's own compiler builds the kernel, which the published figures do not cover."""


class CacheWarning(UserWarning):
    """The disk cache cannot be used (read-only, full, damaged); work continues without it."""

    code = "cache"


class OtherKernelWarning(UserWarning):
    """A chosen configuration does not build, and another one runs instead."""


class UnrecordedWarning(UserWarning):
    """The emulator follows a published model that was not compared with recordings of hardware."""


class UnprovenWarning(UserWarning):
    """A kernel runs that has only been assembled and emulated. Issued once for each family."""

    code = "unproven-kernel"


class CopyWarning(UserWarning):
    """An operand or the result is copied, because the hardware cannot address it where it is. Issued once for each
    argument and reason; the text states the cost."""


class SpillWarning(UserWarning):
    """An attention kernel with a function of scores or masks, or of packed sequences, needs more registers than its
    tiles leave, so some are kept in memory."""


class WrongResultError(WarploomError):
    """The first result of a kernel that was never run on such hardware differs from the slow reference."""

    code = "wrong-first-result"


# -- the CPU machine ---------------------------------------------------------------------------------------------


class EmulationError(WarploomError):
    """The emulated program did something that is an error or undefined on hardware.

    `findings`: the sanitizer's findings up to then, if checking was on; `report`: what else the run had come to, such
    as its counters. `location`: the instruction at which it stopped; for a deadlock, the wait nearest to the cause.
    """

    code = "emulation"
    findings: tuple[Any, ...] = ()
    report: Any = None
    location: SourceLocation | None = None
    replay: tuple[str, int] | None = None
    """(schedule, seed) that reproduces it; `explored`: the pairs that were tried, with schedule "explore"."""
    explored: tuple[tuple[str, int], ...] = ()


class OutOfBoundsError(EmulationError):
    """An access outside every buffer."""

    code = "out-of-bounds"


class MisalignedError(EmulationError):
    """An address that is not a multiple of the size of the access."""

    code = "misaligned"


class InvalidOperandError(EmulationError):
    """An operand value that the instruction does not accept: a descriptor, barrier, tensor map, mask or rank."""

    code = "invalid-operand"


class UnsupportedInstructionError(EmulationError):
    """The emulator does not support the instruction; it never guesses."""

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
    """`max_steps` instructions were run and the kernel had not finished."""

    code = "step-limit"


class CostLimitError(EmulationError):
    """The estimated emulation time is above `config.emulator.limit_s`; nothing was run."""

    code = "cost-limit"
