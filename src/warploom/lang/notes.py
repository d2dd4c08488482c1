"""What a trace records of the instructions it emits: arrays written, alignments, arrivals on barriers.

All of it follows from the effects of an instruction's row, so it holds for `ptx.inst` as for the helpers. The
argument that an effect refers to depends on the row alone, so it is looked up once per form (`notes_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..isa import effects
from ..isa.effects import Access, Arrives, Commits, Creates, Expects, Operand, Synchronises, Waits
from ..isa.instructions.schema import Match

if TYPE_CHECKING:
    from .protocol import Barrier
    from .trace import Trace

BULK_BYTES = 16
"""Required alignment of the addresses of a bulk copy (PTX ISA 9.7.9.25)."""


@dataclass(frozen=True)
class Note:
    """One effect, and the indices of the arguments that it refers to; -1 if there is none.

    Attributes:
        at: the address, barrier or barrier number; amount: the count, the bytes or the threads.
        width: bytes of an access to global memory; -1 if `amount` has them, 0 if its address needs no alignment.
    """

    effect: object
    at: int
    amount: int = -1
    width: int = 0


def notes_of(match: Match) -> tuple[Note, ...]:
    """The effects to record for instructions of a row."""
    places = {spec.name: at for at, spec in enumerate(match.form.operands)}
    sizes = places.get("size", -1)

    def number(value: object) -> int:
        return places.get(value.name, -1) if isinstance(value, Operand) else -1

    found = []
    for effect in match.effects:
        if isinstance(effect, Access) and effect.space in ("", "global") and effect.operand in places:
            width = 0
            if effect.footprint in ("bytes", "masked_bytes"):
                width = BULK_BYTES
            elif effect.footprint == "lanes":
                width = match.access_bytes if effect.at == effects.ISSUE else -1
            found.append(Note(effect, places[effect.operand], sizes, width))
        elif isinstance(effect, Creates):
            found.append(Note(effect, places[effect.operand], number(effect.count)))
        elif isinstance(effect, Arrives):
            found.append(Note(effect, places[effect.barrier], number(effect.expects)))
        elif isinstance(effect, Commits) and effect.signals is not None:
            found.append(Note(effect, places[effect.signals.barrier]))
        elif isinstance(effect, Expects) and not effect.completes:
            found.append(Note(effect, places[effect.barrier], number(effect.bytes)))
        elif isinstance(effect, Waits) and effect.operand:
            found.append(Note(effect, places[effect.operand]))
        elif isinstance(effect, Synchronises) and effect.kind == "cta":
            found.append(Note(effect, places[effect.key], number(effect.count)))
    return tuple(found)


def note(trace: Trace, notes: Sequence[Note], arguments: Sequence[Any]) -> None:
    """Record the effects of an instruction with these arguments."""
    for one in notes:
        effect, subject = one.effect, arguments[one.at]
        amount = arguments[one.amount] if 0 <= one.amount < len(arguments) else None
        if isinstance(effect, Access):
            _access(trace, one, effect, subject, amount)
        elif isinstance(effect, Synchronises):
            key = (_words(subject, "run-time"), _words(amount, "run-time") if amount is not None else "all")
            trace.protocol.named_barriers[key] = trace.protocol.named_barriers.get(key, 0) + 1
        elif (barrier := _barrier(trace, subject)) is not None:
            _barrier_use(trace, barrier, effect, amount)


def _access(trace: Trace, one: Note, effect: Access, subject: Any, amount: Any) -> None:
    code = getattr(subject, "code", "")
    if not code or code[0] != "[":
        return
    origin = getattr(subject, "origin", None)
    width = int(amount) if one.width < 0 and amount is not None else one.width
    if origin and code[1] != "map" and width > 0:
        for name in origin:
            trace.aligned[name] = max(trace.aligned.get(name, 1), width)
    if effect.how != effects.READS:
        trace.written |= origin or {"?"}


def _barrier(trace: Trace, subject: Any) -> Barrier | None:
    """The record of an mbarrier, if its allocation is known."""
    buffer = getattr(subject, "buffer", None)
    return trace.protocol.barriers.get(buffer.offset) if buffer is not None else None


def _barrier_use(trace: Trace, barrier: Barrier, effect: object, amount: Any) -> None:
    if isinstance(effect, Creates):
        barrier.arrivals.add(_words(amount, "run-time count"))
    elif isinstance(effect, Waits):
        barrier.waits.append(trace.location())
    elif amount is not None:  # bytes are expected, with or without an arrival
        barrier.bytes.add(_words(amount, "run-time"))
        barrier.completed_by.add("copies")
    elif isinstance(effect, Commits):
        barrier.completed_by.add(f"{effect.family} commit")
    elif isinstance(effect, Arrives):
        barrier.completed_by.add("arrive" if effect.rank == "own" else "remote arrive")


def _words(value: Any, otherwise: str) -> str:
    return str(value) if isinstance(value, int) else otherwise
