"""How a race between lanes of one warp is told, in shared and in global memory alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..held_lanes import held_together
from ..rules import WARNING
from .findings import at

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.journal import Access


def holder_of(context: Context, now: Access, entry: Access) -> tuple[Operation | None, str | None]:
    """The instruction that keeps the lanes together between an earlier access and this one, and the severity: such an
    instruction makes a read before a write a warning."""
    held = None if entry.writes else held_together(context.machine.code, entry.code, now.code)
    return held, WARNING if held and not context.strict else None


def apart(now: Access, entry: Access, place: str, lane: int, owner: int, held: Operation | None) -> str:
    """What a lane does at `place`, and what another, the `owner`, did there before. Only `held` is in between."""
    who = "the warp" if now.together else f"lane {lane}"
    whose = "the warp" if entry.together else f"lane {owner}"
    clause = "there is no bar.warp.sync or other barrier in between that both passed"
    if held:
        clause = f"{at(held)} keeps the lanes together in between, but does not order memory"
    return (
        f"{'writes' if now.writes else 'reads'} {place} from {who} with {at(now.code)}, and {whose} "
        f"{'wrote' if entry.writes else 'read'} it before with {at(entry.code)}; {clause}"
    )
