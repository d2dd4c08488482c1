"""Launch a kernel of attention's gradients on arrays by name."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.arrays import ArrayView
from ...runtime.launch_template import Launched
from ...runtime.machine import H200
from ...runtime.program import Program
from ..binding import Binding
from ..execute import launch
from .machine import EMULATED_SMS
from .spills import warn_spills


def launch_named(
    program: Program, arrays: Mapping[str, ArrayView], numbers: Mapping[str, float]
) -> Launched | None:  # fmt: skip
    """Run a program on those of the arrays and numbers that it takes, in the caller's stream or in the emulator."""
    names = tuple(spec.name for spec in program.arrays)
    wanted = {parameter.source for parameter in program.scalars}
    bound = Binding(
        tuple(arrays[name] for name in names), names, {k: v for k, v in numbers.items() if k in wanted}
    )  # fmt: skip
    on_cpu = bound.arrays[0].device == "cpu"
    launched = launch(program, bound, machine=H200(sms=EMULATED_SMS) if on_cpu else None)
    if launched is not None:
        warn_spills(launched.launch.kernel.resources.spill_stores, program)
    return launched
