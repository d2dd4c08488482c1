"""Groups of asynchronous operations: `*.commit_group` and `*.wait_group`."""

from __future__ import annotations

from ..machine.events import CompletedWait
from ..machine.frame import Frame
from ..machine.groups import groups_of
from ..machine.wait import Wait


def commit(frame: Frame, family: str) -> None:
    """Let the operations that the active lanes have started, and put into no group yet, be a group."""
    for warp in range(frame.first_warp, frame.first_warp + frame.warps):
        operations = groups_of(family, frame.cta, warp).commit(frame.lane_mask)
    for listener in frame.machine.events.committed:
        listener(frame, family, operations)


def wait_for_groups(frame: Frame, family: str, newest: int, reads_only: bool = False) -> Wait | None:
    """Wait until each active lane of a warp has at most `newest` groups that are not complete.

    The frame is one warp, or adjacent warps with the same groups. reads_only: until operations have read their sources.
    """
    lanes = frame.lane_mask
    needed = groups_of(family, frame.cta, frame.first_warp).pending(newest, lanes, reads_only)

    def finish(frame: Frame) -> None:
        for warp in range(frame.first_warp, frame.first_warp + frame.warps):
            proven = groups_of(family, frame.cta, warp).prove(newest, lanes, reads_only)
        for listener in frame.machine.events.waited:
            listener(frame, CompletedWait(family, frame.active_lanes, None, proven, newest, reads_only))

    def ready() -> bool:
        while needed and (needed[-1].read_done if reads_only else needed[-1].done):
            needed.pop()
        if needed:
            needed[-1].awaited = True
        return not needed

    if ready():
        finish(frame)
        return None

    def describe() -> str:
        left = [one for one in needed if not (one.read_done if reads_only else one.done)]
        shown = "; ".join(dict.fromkeys(one.description for one in left[:4]))
        more = f" and {len(left) - 4} more" if len(left) > 4 else ""
        return f"{len(left)} of its asynchronous operations, at most {newest} groups may be in flight: {shown}{more}"

    return Wait(f"{family} group", ready, describe, resume=finish)
