"""The order of a CTA's tcgen05.mma, cp and shift in flight, and the accumulators they compute.

PTX ISA 9.7.16.6.2. Of the operations of one thread only these are ordered without a wait:

    mma -> mma                 the same accumulator and shape
    cp -> mma                  always
    shift -> mma -> shift      always; shift -> cp.4x256b

A chain of MMAs on one accumulator is kept as a matrix until the last of them is complete; its cells hold poison.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from ..machine.async_operation import AsyncOperation
from ..machine.machine import Cta
from ..machine.slots import Slot
from ..machine.tensor_memory import Cells

MMA, COPY, SHIFT = "mma", "cp", "shift"


@dataclass(eq=False)
class Accumulator:
    """An accumulator in flight: its matrix (raw bits) after the completed MMAs, and its number of users."""

    matrix: np.ndarray | None
    users: int = 0


@dataclass(eq=False, slots=True)
class InFlight:
    """One operation of the tensor core: its kind, its thread, and the accumulator of an MMA."""

    what: str
    thread: int
    accumulator: Hashable
    operation: AsyncOperation


@dataclass(eq=False)
class MatrixUnit:
    """The operations that a CTA has issued to its tensor core."""

    queue: list[InFlight] = field(default_factory=list)
    accumulators: dict[Hashable, Accumulator] = field(default_factory=dict)

    def pending(self) -> list[InFlight]:
        self.queue = [one for one in self.queue if not one.operation.done]
        return self.queue

    def before(self, what: str, accumulator: Hashable, targets: tuple[object, ...]) -> tuple[AsyncOperation, ...]:
        """The operations that must complete before a new operation starts.

        Copies and MMAs that write cells which an earlier MMA still reads (factors, an A) wait for it. The ISA does not
        guarantee this, but production kernels rely on it (the sanitizer reports where).
        """
        behind = []
        for one in self.pending():
            ordered = {
                (MMA, MMA): one.accumulator == accumulator or _reads(one.operation, targets),
                (COPY, MMA): True,
                (SHIFT, MMA): True,
                (MMA, SHIFT): True,
                (SHIFT, COPY): True,
                (MMA, COPY): _reads(one.operation, targets),
            }.get((one.what, what), False)
            if ordered:
                behind.append(one.operation)
        return tuple(behind)

    def still_reads(self, targets: tuple[object, ...]) -> bool:
        """True if an MMA in flight reads these cells."""
        return any(one.what == MMA and _reads(one.operation, targets) for one in self.pending())

    def of_thread(self, thread: int) -> tuple[AsyncOperation, ...]:
        """The incomplete operations that a commit of this thread covers."""
        return tuple(one.operation for one in self.pending() if one.thread == thread)

    def start(self, what: str, thread: int, operation: AsyncOperation, accumulator: Hashable = None) -> None:
        operation.after = self.before(what, accumulator, operation.targets)
        self.queue.append(InFlight(what, thread, accumulator, operation))
        operation.issuer.frame.machine.engine.submit(operation)

    def digest(self) -> Hashable:
        return (
            tuple((one.what, one.operation.digest()) for one in self.pending()),
            tuple(
                (repr(key), one.users, None if one.matrix is None else one.matrix.tobytes())
                for key, one in self.accumulators.items()
            ),
        )


MATRIX_UNIT = Slot("matrix unit", lambda cta: MatrixUnit())


def unit_of(cta: Cta) -> MatrixUnit:
    return MATRIX_UNIT.of(cta)


def _reads(product: AsyncOperation, targets: tuple[object, ...]) -> bool:
    """True if an MMA reads any of these cells besides its own accumulator."""
    return _meet(tuple(one for one in product.sources if one not in product.targets), targets)


def _meet(sources: tuple[object, ...], targets: tuple[object, ...]) -> bool:
    """True if both contain common columns of tensor memory."""
    mine = [one for one in sources if isinstance(one, Cells)]
    theirs = [one for one in targets if isinstance(one, Cells)]
    return any(
        a.region is b.region and a.columns.start < b.columns.stop and b.columns.start < a.columns.stop
        for a in mine
        for b in theirs
    )
