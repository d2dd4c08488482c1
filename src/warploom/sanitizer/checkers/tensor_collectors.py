"""A tcgen05 MMA may take from a collector buffer only what an earlier MMA has left there. PTX ISA 9.7.16.10.9."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.matrix_operands import OperandPlace
from ...emulator.machine.events import Observer
from ...emulator.machine.tensor_memory import Cells
from ..report.findings import at
from ..shadow.places import granules_of

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ..context import Context
    from ..happens_before.access import InFlight
    from ..happens_before.state import ClusterState


@dataclass(eq=False)
class CollectorOperand:
    """An operand that an MMA has left in a collector buffer.

    Attributes:
        place: where it was read; B's is the same at every column shift. writes: for each of its granules in shared
            memory, by number, its last write.
        cells: its cells in tensor memory; stale: True if they have been written since.
    """

    place: tuple[object, ...]
    writes: tuple[tuple[np.ndarray, np.ndarray], ...]
    cells: tuple[Cells, ...] = ()
    stale: bool = False


@dataclass(eq=False)
class Notes:
    """The contents of collector buffers in a cluster, by (CTA's rank, collector)."""

    kept: dict[tuple[int, str], CollectorOperand] = field(default_factory=dict)


class TensorCollectors(Observer):
    """See the module's docstring. Runs after the checker that owns the shadows."""

    rules = ("collector-without-fill",)
    only_with = "tcgen05"

    def __init__(self, context: Context) -> None:
        self.context = context
        self._operands: dict[int, tuple[object, np.ndarray]] = {}

    def issued(self, operation: AsyncOperation) -> None:
        issuer = operation.issuer
        code, state = issuer.operation, self.context.state(issuer.frame.cta)
        kept = state.notes(Notes).kept
        word = code.bound.match.modifiers.get("collector") if code.bound is not None else None
        if word and isinstance(operation.mark, tuple):
            _, collector, use = str(word).split("::")
            key = (issuer.frame.cta.rank, collector)
            now = self._operand(state, operation, collector[0], operation.mark[0])
            before = kept.get(key)
            if use in ("use", "lastuse"):
                self._check(operation, collector, before, now)
            if use == "fill":
                kept[key] = now
            elif use != "use":
                kept.pop(key, None)
        for one in kept.values():
            if one.cells and not one.stale:
                one.stale = any(isinstance(into, Cells) and into.meets(cells)
                                for into in operation.targets for cells in one.cells)  # fmt: skip

    def _operand(self, state: ClusterState, operation: AsyncOperation, name: str, flight: InFlight) -> CollectorOperand:
        """Where an MMA reads A or B: shared memory by descriptor, tensor memory by cells."""
        shared = [one for one in operation.sources if isinstance(one, OperandPlace) and one.name == name]
        if shared or name != "a":
            writes = []
            for one in shared:
                shadow = state.shadows[one.region]
                granules = granules_of(shadow, one, flight, self._operands)
                shadow.settle(granules)
                writes.append((np.arange(len(shadow.last))[granules], shadow.last[granules].copy()))
            return CollectorOperand(tuple(map(_place, shared)), tuple(writes))
        first = next(one for one in operation.sources if isinstance(one, Cells))
        return CollectorOperand((id(first.region), first.columns.start), (), (first,))

    def _check(
        self, operation: AsyncOperation, collector: str, before: CollectorOperand | None, now: CollectorOperand
    ) -> None:
        if before is None:
            holds = "which is empty"
        elif before.place != now.place:
            holds = "which holds another operand"
        elif before.stale or any(starmap(_written, zip(before.writes, now.writes, strict=True))):
            holds = "and the operand has been written since the MMA that filled it"
        else:
            return
        issuer = operation.issuer
        codes = (issuer.operation,)
        if not self.context.findings.seen("collector-without-fill", codes):
            self.context.findings.add(
                "collector-without-fill",
                f"{at(issuer.operation)} takes {collector[0].upper()} from collector {collector}, {holds}",
                codes, issuer.frame.cta, issuer.frame.first_warp,
            )  # fmt: skip


def _place(one: OperandPlace) -> tuple[object, ...]:
    """Region, layout, first chunks and extents of an operand, without the columns that a shift adds."""
    what, used = one.operand, one.operand.used
    first = tuple(one.map.chunks[:2, :2].ravel().tolist())
    return (
        id(one.region),
        what.bits,
        what.major,
        what.k,
        what.rows if used.stop is None else used.stop - used.start,
        first,
    )


def _written(before: tuple[np.ndarray, np.ndarray], now: tuple[np.ndarray, np.ndarray]) -> bool:
    """True if a granule that both operands have was written in between."""
    _, mine, others = np.intersect1d(before[0], now[0], return_indices=True)
    return not np.array_equal(before[1][mine], now[1][others])
