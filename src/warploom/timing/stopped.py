"""Moments that have to be added to a recording: waits that never ended, and the positions of findings.

The observer reports a wait when it has passed. The waits of a deadlock are added as the warps' last steps, on phases
that nothing completes.
"""

from __future__ import annotations

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
                        steps.append((kinds.WAIT, fragment.pc, _phase(recorder, cta, fragment)))


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
