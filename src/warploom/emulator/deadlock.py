"""What to say when nothing can run any more: who waits, for what, and what is missing."""

from __future__ import annotations

from collections import defaultdict

from ..errors import DeadlockError
from .machine import Machine

DEADLOCK = "deadlock: no thread can run and no copy is in flight"


def report_deadlock(machine: Machine, spinning: bool) -> DeadlockError:
    """The error for a machine in which no thread can go on. `spinning`: some poll without anything changing."""
    waiting: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    first_place = ""
    only_barriers = True
    for cluster in machine.resident:
        for cta in cluster.ctas:
            for warp in cta.warps:
                for fragment in warp.fragments:
                    operation = machine.code.operations[fragment.pc]
                    place = f"{operation.instruction.location or ''}  {operation.text}"
                    wait = fragment.wait
                    only_barriers &= wait is not None and wait.kind not in ("poll", "loop")
                    reason = wait.describe() if wait is not None else "its turn"
                    first_place = first_place or place
                    threads = fragment.lanes.bit_count()
                    part = "" if threads == 32 else f" ({threads} thread{'s' if threads > 1 else ''})"
                    waiting[cta.describe(), reason, place].append(f"{warp.index}{part}")
    lines = []
    for (block, reason, place), warps in waiting.items():
        who = f"warp {warps[0]}" if len(warps) == 1 else f"warps {', '.join(warps)}"
        lines.append(f"{block}, {who}: waits for {reason}\n      at  {place}")
    not_started = machine.clusters_in_grid[0] * machine.clusters_in_grid[1] * machine.clusters_in_grid[2]
    not_started -= machine.counters.ctas // max(1, _cluster_size(machine)) + len(machine.resident)
    extra = f"; {not_started} cluster(s) of the grid have not started, for lack of room" if not_started > 0 else ""
    in_flight = machine.engine.describe_pending()
    return DeadlockError(
        ("the kernel polls for ever" if spinning and not only_barriers else DEADLOCK) + extra,
        where=first_place or None,
        blocked=tuple(lines) + tuple(f"in flight: {line}" for line in in_flight),
        consequence="the kernel hangs on hardware",
    )


def _cluster_size(machine: Machine) -> int:
    x, y, z = machine.cluster_shape
    return x * y * z
