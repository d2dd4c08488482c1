"""One instruction of a kernel, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...asm.binding import Bound
from ...asm.nodes import Instruction
from ...asm.printer import instruction_text
from ...isa.effects import Effect, Order, Starts, own_order, started
from ...isa.instructions.schema import Match
from .scopes import Scope

PLAIN, BRANCH, EXIT, INDEXED_BRANCH = range(4)
MANY, WHOLE, WARP, WARPGROUP, MANY_SEEN = range(5)


@dataclass(eq=False)
class Operation:
    """One instruction, ready to run.

    Attributes:
        kind: PLAIN, BRANCH (`targets[0]`), INDEXED_BRANCH (`step` puts the index in a slot), EXIT.
        by: what executes a PLAIN operation at once: MANY warps; WHOLE warps only, otherwise each warp alone; each WARP
            alone, since it may block or has its place in the warp's order; a WARPGROUP; MANY_SEEN: many warps, and
            it is `seen`.
        seen: threads of other CTAs can observe when it runs (`turns`).
        together: for one executed by each WARP alone: how many leading adjacent warps of a frame, all of whose threads
            reach it, execute it as one. They wait for the same thing. None: each alone.
        blocks: True if its threads may have to wait.
        members: slot of the membermask, or -1; meets_anywhere: its members may be at different instructions.
        step: its effect on a frame: a function that may return a Wait.
        polls: threads may spin on it: one that polls alone is parked.
        guard, guard_negated: slot of the predicate, or -1.
        index_slot: slot of the index of an INDEXED_BRANCH.
        refresh: clocks the core must read before this instruction runs.
        bound: the row of the instruction table for it, with the row's names for its operands.
        registers: the registers that it reads and writes, cached (`sanitizer.undefined_reads`).
        patterns: of the addresses it last used, by state space (`resolve`).
        polled_address: the addresses, by frame, that a polling instruction reads; another address is another poll.
        watched: of a polling instruction that only reads: a function, by frame, of the bytes that it would read now.
    """

    pc: int
    instruction: Instruction
    kind: int
    scope: Scope
    guard: int = -1
    guard_negated: bool = False
    step: Callable[[Any], Any] | None = None
    polls: bool = False
    by: int = 0
    together: Callable[[Any], Sequence[int]] | None = None
    blocks: bool = False
    seen: bool = False
    members: int = -1
    meets_anywhere: bool = False
    targets: tuple[int, ...] = ()
    index_slot: int = -1
    refresh: tuple[str, ...] = ()
    polled_address: Callable[[Any], np.ndarray] | None = None
    watched: Callable[[Any], Callable[[], bytes]] | None = None
    patterns: dict[str, Any] = field(default_factory=dict)
    bound: Bound | None = None
    registers: Any = None

    @property
    def text(self) -> str:
        return instruction_text(self.instruction)

    @property
    def row(self) -> Match:
        """Its row of the instruction table and its operands; function calls have none."""
        assert self.bound is not None
        return self.bound.match

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Its effects beyond registers, from its row."""
        return self.bound.match.effects if self.bound is not None else ()

    @cached_property
    def starts(self) -> Starts | None:
        """The asynchronous operation that it starts."""
        return started(self.effects)

    @cached_property
    def order(self) -> Order:
        """Its memory semantics and scope."""
        return own_order(self.effects)

    @property
    def converged(self) -> bool:
        """True if threads of a warp execute it together."""
        return self.bound is not None and bool(self.bound.match.converged)
