"""What the text alone says, before the kernel runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.events import Observer
from ..report.findings import at
from ..undefined_reads import undefined_reads

if TYPE_CHECKING:
    from ..context import Context


class Text(Observer):
    """Judges when it is made."""

    rules = ("uninitialised-register",)

    def __init__(self, context: Context) -> None:
        image = context.machine.code
        for code, name in image.fact("undefined reads", lambda: undefined_reads(image)):
            context.findings.add(
                "uninitialised-register",
                f"{at(code)} reads {name}, and no instruction in front of it writes that register, whichever way the "
                "kernel takes",
                (code,),
            )
