"""Moments that have to be added to a recording: waits that never ended, and the positions of findings.

The observer reports a wait when it has passed. The waits of a deadlock are added as the warps' last steps, on phases
that nothing completes. Of a loop that polls a barrier, one attempt is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from ..emulator.machine.mbarrier import MBarrier
from . import recording as kinds
from .recording import Phase

if TYPE_CHECKING:
    from ..emulator.machine.machine import Cta, Fragment
    from .recorder import Recorder


def add_open_waits(recorder: Recorder) -> None:
    """Append a step that never ends to each waiting warp."""
    for barrier, index in recorder.open_phases:
        phase = recorder.recording.phases[index]
        if phase.number >= barrier.phase:  # it is incomplete: require one more contribution than came
            phase.contributions += 1
    for cluster in recorder.machine.resident:
        for cta in cluster.ctas:
            for warp in cta.warps:
                for fragment in warp.fragments:
                    if fragment.wait is not None:
                        steps = recorder.close(cta, warp.index)
                        while attempts := polls(steps):  # of several loops, the first of which may poll faster
                            del steps[-attempts:]
                        steps.append((kinds.WAIT, fragment.pc, _phase(recorder, cta, fragment)))


def polls(steps: Sequence[kinds.Step], longest: int = 8) -> int:
    """Return how many steps at the end only repeat others: attempts of a wait in a loop, which hide all before them.

    longest: the most steps of one turn of the loop. The last may be cut short.
    """
    runs = 0
    while runs < len(steps) and steps[-1 - runs][0] == kinds.RUN:
        runs += 1
    latest = list(reversed(steps[len(steps) - runs :]))
    for turn in range(1, longest + 1):
        for cut in range(longest):
            pairs = zip(latest[cut:], latest[cut + turn :], strict=False)
            repeated = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if repeated >= 4 * turn:
                return cut + repeated
    return 0


def _phase(recorder: Recorder, cta: Cta, fragment: Fragment) -> int:
    """Return the phase that threads wait for; a new one if they do not wait for an mbarrier."""
    wait = fragment.wait
    assert wait is not None
    barriers = [one for one, _ in wait.about() if isinstance(one, MBarrier)] if wait.about is not None else []
    if barriers:
        return recorder.phase(barriers[0], barriers[0].phase, least=1)
    recorder.recording.phases.append(Phase(wait.kind, 0, recorder.number(cta), contributions=1))
    return len(recorder.recording.phases) - 1


def mark(recorder: Recorder, cta: Cta, warp: int) -> tuple[int, int, int] | None:
    """Mark a warp's current step, so that the replay keeps its time: (CTA, warp, step), or None if not recorded."""
    key = recorder.number(cta), warp
    if key not in recorder.recording.steps:
        return None
    step = len(recorder.recording.steps[key])
    recorder.recording.marks.setdefault(key, set()).add(step)
    return *key, step
