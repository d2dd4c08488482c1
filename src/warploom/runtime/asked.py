"""What an emulation is asked for: the calls of its GPUs, and the options of `emulate`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ArgumentError, ArgumentTypeError, UnrecordedWarning
from .bind import Shape
from .copies import Copies
from .devices import Looked
from .host_values import Held
from .machine import Machine, check_runs, for_arch
from .program import Program
from .validate import at_least, whole

if TYPE_CHECKING:
    from ..emulator.machine.events import Observer
    from ..emulator.machine.machine import Machine as EmulatedMachine

NUMERICS = ("exact", "hardware")
FIRST_UNRECORDED = 100
"""The first compute capability, times ten, whose tensor cores were not recorded."""
EXPLORE, EXHAUSTIVE = "explore", "exhaustive"


@dataclass(frozen=True)
class Asked:
    """A checked call and how to emulate it.

    Attributes:
        everyone: the call of each GPU and the views of its arrays; all call the same program.
        shape: the values that replace the program's; machine: None for the usual one of the program's target.
        calls: number of successive launches on each GPU. The others are as in `runtime.emulate`.
    """

    everyone: Sequence[Looked]
    shape: Shape
    machine: Machine | None
    check: bool
    schedule: str
    seed: int
    max_steps: int | None = None
    numerics: str = "exact"
    watch: Callable[[EmulatedMachine], Observer] | None = None
    bound: int | None = None
    calls: int = 1
    held: Held = ()
    copies: Copies = ()
    judge: Callable[..., None] | None = None

    @property
    def program(self) -> Program:
        """What all GPUs run."""
        return self.everyone[0][0].program

    @property
    def usual(self) -> tuple[str, int]:
        """The schedule and the seed of a run, if no exploration has found one that fails."""
        return ("lazy" if self.schedule in (EXPLORE, EXHAUSTIVE) else self.schedule), self.seed


def target_of(asked: Asked, stacklevel: int) -> Machine:
    """Check the options, and return the machine to emulate. The emulator itself checks the schedule's name.

    stacklevel: of the author's call, for a warning. Raises ArgumentError and ArgumentTypeError.
    """
    program = asked.program
    _check_options(asked.machine, asked.seed, asked.max_steps, asked.numerics)
    usual = for_arch(program.arch)
    target = asked.machine or usual
    check_runs(
        program.title, program.arch, target.arch, f"machine={target.name}, {target.arch}",
        f"leave machine= out, or pass Machine({usual.name!r}, {program.arch!r}, sms={target.sms})",
    )  # fmt: skip
    if asked.numerics == "hardware" and target.limits.number >= FIRST_UNRECORDED:
        warnings.warn(
            f'numerics="hardware" for {target.arch} follows published models; they were not recorded on hardware',
            UnrecordedWarning,
            stacklevel=stacklevel + 1,
        )
    return target


def _check_options(machine: object, seed: object, max_steps: object, numerics: str) -> None:
    if machine is not None and not isinstance(machine, Machine):
        raise ArgumentTypeError("machine= is not a machine", expected="machine=H200(sms=4)", got=repr(machine))
    whole(seed, "seed")
    if max_steps is not None:
        at_least(1, max_steps, "max_steps")
    if numerics not in NUMERICS:
        raise ArgumentError(f"unknown numerics {numerics!r}", expected=", ".join(NUMERICS), got=numerics)
