"""What an instruction's semantics look like to the core: a decoder that returns a step, and what a step may return.

A module of `emulator.ops` holds `handlers = Handlers()` and decorates one decoder for each row (or group of rows)
of the instruction table. A decoder looks at one instruction once and returns a `Step`, a function of a `Frame`
that the core calls each time the instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ..machine.frame import Frame
    from .decode import Decode


@dataclass
class Wait:
    """Why a warp sleeps behind an instruction, and what wakes it.

    Attributes:
        kind: "mbarrier", "bar", "cluster barrier", "wgmma", "bulk group", "registers", "poll", "convergence"…
        ready: whether it may go on; called again only after the machine made progress.
        describe: one sentence for the deadlock report: what it waits for, what is there, what is missing.
        resume: runs when it goes on, with the frame and mask of the blocked instruction.
        timeout: for waits that hardware ends after a while (try_wait): runs in place of `resume` when nothing else
            in the machine can move.
        about: the mbarriers it waits for, each with the parity it names or None, for the deadlock report.
    """

    kind: str
    ready: Callable[[], bool]
    describe: Callable[[], str]
    resume: Callable[[Frame], None] | None = None
    timeout: Callable[[Frame], None] | None = None
    about: Callable[[], list[tuple[object, int | None]]] | None = None


Step: TypeAlias = "Callable[[Frame], Wait | None]"
Decoder: TypeAlias = "Callable[[Decode], Step]"


@dataclass(frozen=True)
class Handler:
    """A decoder and how the core is to call its steps.

    Attributes:
        per_warp: one warp at a time; anything that blocks, or whose warps act in order.
        aligned: all threads of the warp that have not exited must be here together (implies per_warp).
        warpgroup: aligned, and called once for the four converged warps of a warpgroup.
        polls: may be spun on; the core parks a warp that polls while nothing else changes.
        whole: a per_warp handler that takes several warps at once where all their threads execute.
    """

    decode: Decoder
    per_warp: bool = False
    aligned: bool = False
    warpgroup: bool = False
    polls: bool = False
    whole: bool = False


class Handlers:
    """Decoders by row key of the instruction table."""

    def __init__(self) -> None:
        self.by_key: dict[str, Handler] = {}

    def add(
        self,
        *keys: str,
        per_warp: bool = False,
        aligned: bool = False,
        warpgroup: bool = False,
        polls: bool = False,
        whole: bool = False,
    ) -> Callable[[Decoder], Decoder]:
        """Register the decorated decoder for these rows."""

        def register(decode: Decoder) -> Decoder:
            for key in keys:
                if key in self.by_key:
                    raise ValueError(f"two handlers for {key}")
                single = per_warp or aligned or warpgroup or polls
                self.by_key[key] = Handler(decode, single, aligned or warpgroup, warpgroup, polls, whole)
            return decode

        return register

    def items(self) -> Iterator[tuple[str, Handler]]:
        return iter(self.by_key.items())
