"""Asynchronous operations in flight, and when they take effect.

An `AsyncOperation` reads its sources, writes its destination and signals, in that order; the pieces of a read or a
write may happen in any order. The `Engine` decides when, according to its policy:

    eager    at issue
    lazy     only when no warp can run: first operand reads (MMAs), then what others wait for, stores last
    random   by the seed, occasionally between instructions, the pieces of one copy in random order, its signal last
    pct      at issue, but each operation is held back with probability 1/2 for as long as anything else can run
    starve   at issue, but one unit (or every third operation) is held back for as long as anything else can run

The behaviour depends only on (policy, seed) and the program: the same pair replays the same run. PTX ISA 8.9.1.1
(an asynchronous operation is not part of its thread's program order).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from ..machine.async_operation import AsyncOperation
from ..machine.units import EVERY_THIRD, UNITS, Unit, starved_seed
from ..numerics.tensor_core import NO_NUMERICS

if TYPE_CHECKING:
    from ..machine.machine import Cluster, Machine, Warp


class Engine:
    """All operations in flight of one machine.

    Args:
        machine: whose progress is counted, and whose observers receive the operations.
        policy, seed: see the module's docstring. With "starve" the seed selects what is held back (`units`).
    """

    def __init__(self, machine: Machine, policy: str = "lazy", seed: int = 0) -> None:
        self.machine = machine
        self.policy = policy
        self.seed = seed
        self.random = random.Random(seed)
        self.issued = 0
        self.starved = starved_seed(seed)
        self._holds_some = policy in ("starve", "pct")
        self._queues: dict[Unit, deque[AsyncOperation]] = {unit: deque() for unit in UNITS}
        self._in_flight = 0
        self.signalling: AsyncOperation | None = None
        """The operation that is signalling."""

    # -- what handlers call --------------------------------------------------------------------------------------

    def submit(self, operation: AsyncOperation) -> AsyncOperation:
        """Put an operation in flight; under "eager" it is complete when this returns."""
        operation.number = self.issued
        self.issued += 1
        for listener in self.machine.events.of_unit("issued", operation.unit):
            listener(operation)
        if self.machine.numerics == NO_NUMERICS:
            operation.read = operation.write = None
        at_once = self.policy == "eager" or (self._holds_some and not self._is_starved(operation))
        if at_once and operation.may_start:
            self._complete(operation)
            return operation
        self._queues[operation.unit].append(operation)
        self._in_flight += 1
        return operation

    # -- what the scheduler calls --------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Number of operations that are not complete."""
        return self._in_flight

    def pending(self) -> Iterator[AsyncOperation]:
        """All operations in flight, oldest first."""
        yield from sorted((op for queue in self._queues.values() for op in queue), key=lambda op: op.number)

    def advance(self) -> bool:
        """Called when no warp can run (under "random" also occasionally in between): makes something happen.

        False if nothing is in flight.
        """
        if not self._in_flight:
            return False
        if self.policy == "random":
            self._random_step()
            return True
        operation = self._oldest_ready()
        if operation is None:
            return False
        self.take_effect(operation)  # a store's read and write are separate: waiting for one does not imply the other
        return True

    def take_effect(self, operation: AsyncOperation) -> None:
        """Let this operation read its source (a store), or finish, now."""
        if operation.unit.reads_apart and operation.read is not None and not operation.read_done:
            self._read(operation)
        else:
            self._finish(operation)

    def finish(self, operation: AsyncOperation) -> None:
        """Complete this operation now, if it is not complete."""
        if not operation.done:
            self._finish(operation)

    def drain(self) -> None:
        """Complete everything, at the end of the kernel."""
        while self.advance():
            pass

    def drain_cluster(self, cluster: Cluster) -> None:
        """Complete the operations issued by threads of a cluster that has exited."""
        mine = [operation for operation in self.pending() if operation.issuer.frame.cta.cluster is cluster]
        while mine:
            for operation in mine:
                if operation.may_start:
                    self._finish(operation)
            mine = [operation for operation in mine if not operation.done]

    def warp_exited(self, warp: Warp) -> None:
        """A warp has exited. Its operations continue; the sanitizer judges whether they should have been waited for."""
        for listener in self.machine.events.exited:
            listener(warp)

    def describe_pending(self) -> tuple[str, ...]:
        """One line for each operation in flight."""
        return tuple(f"{operation.description}, issued by {operation.issuer.short()}" for operation in self.pending())

    # -- order ---------------------------------------------------------------------------------------------------

    def _oldest_ready(self) -> AsyncOperation | None:
        """The operation that may start first, by unit and age; one that is held back only if there is nothing else."""
        held: AsyncOperation | None = None
        for queue in self._queues.values():
            for operation in queue:
                if operation.may_start:
                    if not self._holds_some or not self._is_starved(operation):
                        return operation
                    held = held or operation
        return held

    def _is_starved(self, operation: AsyncOperation) -> bool:
        if self.policy == "pct":
            return _tossed(self.seed, operation.number)
        if self.starved == EVERY_THIRD:
            return operation.number % 3 == 0
        return operation.unit.seed == self.starved

    # -- effect --------------------------------------------------------------------------------------------------

    def _random_step(self) -> None:
        """One piece of one operation, both chosen by the seed."""
        operation = self._any_ready()
        if not operation.steps:
            operation.steps = self._pieces(operation)
        operation.steps.pop()()
        if operation.done:
            self._remove(operation)
        self._moved(operation)

    def _any_ready(self) -> AsyncOperation:
        """One operation that may start, each equally likely; drawn blindly at first, since most may."""
        for _ in range(8):
            at = self.random.randrange(self._in_flight)
            for queue in self._queues.values():
                if at < len(queue):
                    if queue[at].may_start:
                        return queue[at]
                    break
                at -= len(queue)
        ready = [operation for queue in self._queues.values() for operation in queue if operation.may_start]
        return self.random.choice(sorted(ready, key=lambda one: one.number))

    def _pieces(self, operation: AsyncOperation) -> list[Callable[[], None]]:
        """The steps of an operation, last first."""
        steps: list[Callable[[], None]] = []
        parts = self.random.choice((1, 2, 4))
        if operation.read is not None and not operation.read_done:
            steps += [lambda at=at: operation.read(at, parts) for at in self._shuffled(parts)]  # type: ignore[misc]
        steps.append(lambda: self._mark_read(operation))
        if operation.write is not None:
            steps += [lambda at=at: operation.write(at, parts) for at in self._shuffled(parts)]  # type: ignore[misc]
        steps.append(lambda: self._conclude(operation))
        return steps[::-1]

    def _shuffled(self, count: int) -> list[int]:
        order = list(range(count))
        self.random.shuffle(order)
        return order

    def _read(self, operation: AsyncOperation) -> None:
        if operation.read is not None and not operation.read_done:
            operation.read(0, 1)
        self._mark_read(operation)
        self._moved(operation)

    def _moved(self, operation: AsyncOperation) -> None:
        """Something of an operation took effect."""
        self.machine.progress_count += 1
        if operation.awaited:
            self.machine.signals += 1

    def _mark_read(self, operation: AsyncOperation) -> None:
        operation.read_done = True
        for listener in self.machine.events.of_unit("read", operation.unit):
            listener(operation)

    def _complete(self, operation: AsyncOperation) -> None:
        if not operation.read_done:
            self._read(operation)
        if operation.write is not None:
            operation.write(0, 1)
        self._conclude(operation)
        self._moved(operation)

    def _conclude(self, operation: AsyncOperation) -> None:
        """Signal and mark as complete."""
        for listener in self.machine.events.of_unit("written", operation.unit):
            listener(operation)
        if operation.signal is not None:
            self.signalling = operation
            operation.signal()
            self.signalling = None
        operation.done = True
        for listener in self.machine.events.of_unit("done", operation.unit):
            listener(operation)
        operation.read = operation.write = operation.signal = None  # the closures hold whole tiles
        operation.after = ()

    def _finish(self, operation: AsyncOperation) -> None:
        if operation.steps:  # started in pieces
            while not operation.done:
                operation.steps.pop()()
            self._moved(operation)
        else:
            self._complete(operation)
        self._remove(operation)

    def _remove(self, operation: AsyncOperation) -> None:
        queue = self._queues[operation.unit]
        if queue and queue[0] is operation:
            queue.popleft()
        else:
            queue.remove(operation)
        self._in_flight -= 1


@lru_cache(maxsize=1 << 16)
def _tossed(seed: int, number: int) -> bool:
    """A random bit for each operation: needed at every step for all that are held back, and slow to draw."""
    return bool(random.Random(seed << 32 | number).getrandbits(1))
