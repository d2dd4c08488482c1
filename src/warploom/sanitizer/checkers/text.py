"""What can be judged from the text alone, before the kernel runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.events import Observer
from ..report.findings import at
from ..undefined_reads import undefined_reads

if TYPE_CHECKING:
    from ..context import Context


class Text(Observer):
    """Judges when it is created."""

    rules = ("uninitialised-register",)

    def __init__(self, context: Context) -> None:
        image = context.machine.code
        for code, name in image.fact("undefined reads", lambda: undefined_reads(image)):
            context.findings.add(
                "uninitialised-register",
                f"{at(code)} reads {name}, but no instruction before it writes that register, on any path through the "
                "kernel",
                (code,),
            )
