"""All interleavings of a small kernel, up to a bound: either all pass, or it returns the shortest that does not.

The choices of a run are a path in a graph of states. The search runs the kernel repeatedly, each time along a known
path and then one new step. A run stops at a state that was reached before, since its successors are known or waiting
to be tried. So each state is left by each of its moves once, and the number of interleavings is the number of paths
from the first state to the last, which is counted rather than enumerated.

After M. Musuvathi, S. Qadeer, "Iterative context bounding", PLDI 2007 (runs instead of saved states), and G. J.
Holzmann, "The model checker SPIN", IEEE TSE 1997 (hashed states).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import EmulationError
from ..diagnosis.report import Interleavings, Report
from ..machine.finding import Finding
from ..machine.machine import Machine
from .controlled import Choose, Move, state_of

Run = Callable[[Choose], Report]
"""Runs the kernel once from its start, on fresh copies of its arguments, with these choices."""
BOUND = 2000


class KnownState(Exception):
    """A run reached a known state. Not an error; `search` catches it."""


@dataclass(eq=False)
class _State:
    """A state with a choice: the successor of each of its moves (None: not yet known)."""

    leads_to: list[_State | None]


_END = _State([])


@dataclass
class _Search:
    """The graph so far, and the paths to be tried, shortest first, with the state before the last step."""

    states: dict[bytes, _State] = field(default_factory=dict)
    waiting: list[tuple[int, int, tuple[int, ...], _State | None]] = field(default_factory=list)
    first: _State | None = None
    put: int = 0

    def wait(self, path: tuple[int, ...], before: _State | None) -> None:
        self.put += 1
        heapq.heappush(self.waiting, (len(path), self.put, path, before))


@dataclass
class _Walk:
    """One run: a path that is known except for its last step, then the first move of every new state."""

    search: _Search
    path: tuple[int, ...]
    before: _State | None
    words: list[str] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def __call__(self, machine: Machine, moves: list[Move]) -> int:
        at = len(self.taken)
        choice = self.path[at] if at < len(self.path) else self._further(machine, moves)
        self.taken.append(choice)
        self.words.append(moves[choice].words())
        return choice

    def _further(self, machine: Machine, moves: list[Move]) -> int:
        """The first move of a new state. Raises Known at a known one."""
        key, states = state_of(machine), self.search.states
        if key in states:
            self.arrive(states[key])
            raise KnownState
        state = states[key] = _State([None] * len(moves))
        self.arrive(state)
        for other in range(1, len(moves)):
            self.search.wait((*self.taken, other), state)
        self.before = state
        return 0

    def arrive(self, state: _State) -> None:
        """Record the state to which the last choice has led."""
        if self.before is None:
            self.search.first = state
        else:
            self.before.leads_to[self.taken[-1]] = state


def search(run: Run, bound: int = BOUND, on_run: Callable[[int, int], None] | None = None) -> Interleavings:
    """Try interleavings until all are known, no shorter failure is possible, or `bound` runs are used up.

    A failure is an error of the machine or a finding of severity error. on_run: called with (runs so far, bound)
    between runs.
    """
    graph = _Search()
    graph.wait((), None)
    best: tuple[list[str], tuple[Finding, ...]] | None = None
    runs = 0
    while graph.waiting and runs < bound:
        if best is not None and graph.waiting[0][0] >= len(best[0]):
            break
        _, _, path, before = heapq.heappop(graph.waiting)
        walk = _Walk(graph, path, before)
        if on_run is not None and runs:
            on_run(runs, bound)
        runs += 1
        try:
            report = run(walk)
        except KnownState:
            continue
        except EmulationError as error:
            bad = (*(one for one in error.findings if one.severity == "error"), Finding.of_error(error))
        else:
            bad = tuple(finding for finding in report.findings if finding.severity == "error")
        walk.arrive(_END)
        if bad and (best is None or len(walk.words) < len(best[0])):
            best = (walk.words, bad)
    over = not graph.waiting or (best is not None and graph.waiting[0][0] >= len(best[0]))
    steps, findings = best or ([], ())
    count = _paths(graph.first) if over and best is None else None
    return Interleavings(over, count, len(graph.states), runs, bound, tuple(steps), findings)


def _paths(first: _State | None) -> int | None:
    """Number of paths from the first state to the end; None if states repeat (threads that poll)."""
    if first is None:
        return 1
    counts: dict[_State, int] = {_END: 1}
    open_states: set[_State] = set()
    stack = [first]
    while stack:
        state = stack[-1]
        if state in counts:
            stack.pop()
            continue
        following = [one for one in state.leads_to if one is not None]
        todo = [one for one in following if one not in counts]
        if todo:
            if state in open_states and any(one in open_states for one in todo):
                return None
            open_states.add(state)
            stack += todo
            continue
        counts[state] = sum(counts[one] for one in following)
        open_states.discard(state)
        stack.pop()
    return counts[first]
