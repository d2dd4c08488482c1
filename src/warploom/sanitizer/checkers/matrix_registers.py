"""The registers that a wgmma or a load of tensor memory owns while it is in flight. PTX ISA 9.7.15.7, 9.7.16.8.

Registers belong to each warp. Between the issue and that warp's own wait, only another operation that adds to the
same accumulator or reads the same A may access them (9.7.15.7.3); after any access, the family's fence must come first.
The registers of a load may be read without a wait, which orders nothing else (9.7.16.6.4.5): a later write of the
registers, or an exit, is a warning. `TensorCells` judges who may overwrite the cells; for it this class notes when the
loaded values have been stored. The instructions concerned are known before the kernel runs, and only those are watched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...emulator.machine.events import CompletedWait, Observer
from ...emulator.machine.operation import Operation
from ...emulator.machine.places import Rows
from ...emulator.machine.scopes import registers_named
from ...isa import effects
from ..happens_before.access import InFlight, flights_of
from ..matrix_rows import RowSet, is_load, matrix_rows
from ..report.findings import at
from ..report.words import actor
from ..rules import ERROR, WARNING
from ..stored_values import stored_values
from ..undefined_reads import read_and_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Warp
    from ...emulator.program.handlers import Step
    from ..context import Context


@dataclass(eq=False)
class WarpRegisters:
    """The constraints on one warp's registers.

    Attributes:
        owned: rows -> the operations in flight that use them, for each distinct set of rows.
        committed: operations that belong to a group.
        dirty: rows accessed since the last fence, and where; computed: those written; moved: those only moved.
        copies: rows that a move has filled from registers in flight -> the operations.
        touched: rows ever accessed; multiplied: the accumulators among them.
        fenced: True if a fence was ever executed.
        shapes: accumulator -> shape of the last operation on it.
        readers: load in flight -> the instruction that first read one of its registers.
        loads: load (pc) -> its last operation, and the loaded registers (bits) that have not been stored yet.
    """

    owned: dict[RowSet, list[InFlight]] = field(default_factory=dict)
    committed: set[AsyncOperation] = field(default_factory=set)
    dirty: dict[tuple[int, int], Operation] = field(default_factory=dict)
    computed: dict[tuple[int, int], Operation] = field(default_factory=dict)
    moved: dict[tuple[int, int], Operation] = field(default_factory=dict)
    copies: dict[tuple[int, int], list[InFlight]] = field(default_factory=dict)
    touched: set[tuple[int, int]] = field(default_factory=set)
    multiplied: set[RowSet] = field(default_factory=set)
    fenced: bool = False
    shapes: dict[object, object] = field(default_factory=dict)
    readers: dict[InFlight, Operation] = field(default_factory=dict)
    loads: dict[int, tuple[InFlight, int]] = field(default_factory=dict)


class MatrixRegisters(Observer):
    """See the module's docstring."""

    rules = (
        "wgmma-register-in-flight", "tensor-load-not-waited", "missing-wgmma-fence", "uninitialised-accumulator",
    )  # fmt: skip

    def __init__(self, context: Context) -> None:
        self.context = context
        self.findings = context.findings
        self._ctas: dict[Cta, list[WarpRegisters]] = {}
        self._clashes: dict[tuple[int, int], str] = {}
        code = context.machine.code
        found = code.fact("matrix registers", lambda: matrix_rows(code))
        self._owners, self._moves = found.owners, found.moves
        for pc, rows in found.touching.items():
            operation = code.operations[pc]
            code.wrap(operation, self._watched(operation, operation.step, rows))  # type: ignore[arg-type]
        loads = {pc: rows for pc, rows in self._owners.items() if is_load(code.operations[pc])}
        stores = code.fact("stored values", lambda: stored_values(code, loads)) if loads else {}
        self._wanted = dict.fromkeys(loads, 0)
        for pc, values in stores.items():
            code.wrap(code.operations[pc], self._storing(code.operations[pc].step, values))  # type: ignore[arg-type]
            for load, bits in values.items():
                self._wanted[load] |= bits

    def _watched(self, operation: Operation, step: Step, rows: RowSet) -> Step:
        reads, writes = read_and_written(operation)
        read, written = rows.intersection(row for row, _ in reads), rows.intersection(writes)
        marks, computed = dict.fromkeys(rows, operation), dict.fromkeys(written, operation)

        def watch(frame: Frame) -> object:
            self._touch(frame, operation, rows, read, written, marks, computed)
            return step(frame)

        return watch  # type: ignore[return-value]

    def _storing(self, step: Step, values: dict[int, int]) -> Step:
        def stores(frame: Frame) -> object:
            for mine in self._of_frame(frame):
                for load, bits in values.items():
                    if load in mine.loads:
                        flight, left = mine.loads[load]
                        mine.loads[load] = flight, left & ~bits
                        if flight.stored < 0 and not left & ~bits:
                            flight.stored = self.context.state(frame.cta).clocks[flight.me].epoch
            return step(frame)

        return stores  # type: ignore[return-value]

    def _of_cta(self, cta: Cta) -> list[WarpRegisters]:
        found = self._ctas.get(cta)
        if found is None:
            found = self._ctas[cta] = [WarpRegisters() for _ in cta.warps]
        return found

    def _of_frame(self, frame: Frame) -> list[WarpRegisters]:
        return self._of_cta(frame.cta)[frame.first_warp : frame.first_warp + frame.warps]

    # -- touches ---------------------------------------------------------------------------------------------------

    def _touch(
        self,
        frame: Frame,
        code: Operation,
        rows: RowSet,
        read: RowSet,
        written: RowSet,
        marks: dict[tuple[int, int], Operation],
        computed: dict[tuple[int, int], Operation],
    ) -> None:
        move = self._moves.get(code.pc)
        for number, mine in enumerate(self._of_frame(frame)):
            warp = frame.first_warp + number
            mine.touched |= rows
            if move is None:
                mine.dirty.update(marks)
                mine.computed.update(computed)
            else:
                mine.moved.update(marks)
                if (source := mine.computed.get(move.source)) is not None:  # type: ignore[arg-type]
                    mine.dirty[move.target] = mine.computed[move.target] = source
            if mine.copies:
                self._touch_copies(frame, code, warp, mine, read, written)
            for owned, flights in mine.owned.items():
                if owned.isdisjoint(rows):
                    continue
                loaded = flights[-1].starts.parts == "warp"
                for flight in flights if loaded and not owned.isdisjoint(read) else ():
                    if not flight.used:
                        flight.used, mine.readers[flight] = True, code
                if not loaded and move is not None and owned.isdisjoint(written):
                    mine.copies[move.target] = list(flights)
                    self._touched_early(frame, code, warp, flights[-1], warns=True)
                elif not loaded or not owned.isdisjoint(written):
                    self._touched_early(frame, code, warp, flights[-1])

    def _touch_copies(
        self, frame: Frame, code: Operation, warp: int, mine: WarpRegisters, read: RowSet, written: RowSet
    ) -> None:
        """Judge the use of copies that were made while the operation was in flight."""
        move = self._moves.get(code.pc)
        held = [flights for row, flights in mine.copies.items() if row in read]
        for row in written & mine.copies.keys():
            del mine.copies[row]
        if held and move is not None:
            mine.copies[move.target] = held[0]
        elif held:
            self._touched_early(frame, code, warp, held[0][-1])

    def _touched_early(self, frame: Frame, code: Operation, warp: int, flight: InFlight, warns: bool = False) -> None:
        """Report an access before the wait; a warning if compilers emit such accesses and ptxas adds the wait."""
        codes = (code, flight.code)
        if flight.starts.parts == "warp":
            self._loaded_early(frame, codes, warp, flight)
            return
        severity = WARNING if warns and not self.context.strict else None
        if self.findings.seen("wgmma-register-in-flight", codes, severity):
            return
        why = "no wgmma.wait_group of this warp covers it yet"
        if flight.operation not in self._of_cta(frame.cta)[warp].committed:
            why = "it has not been committed (wgmma.commit_group), so no wait covers it"
        why += "; ptxas adds one, at a cost" if warns else ""
        does = "moves" if code.pc in self._moves else "accesses"
        self.findings.add(
            "wgmma-register-in-flight",
            f"{actor(frame.cta, warp)} {does} with {at(code)} a register of the wgmma {at(flight.code)}, which is in "
            f"flight: {why}",
            codes,
            frame.cta,
            warp,
            severity,
        )

    def _loaded_early(self, frame: Frame, codes: tuple[Operation, Operation], warp: int, flight: InFlight) -> None:
        """Once one register of the load has been read, chips have loaded all; the ISA promises this one."""
        severity = WARNING if flight.used and not self.context.strict else None
        if not self.findings.seen("tensor-load-not-waited", codes, severity):
            self.findings.add(
                "tensor-load-not-waited",
                f"{actor(frame.cta, warp)} writes with {at(codes[0])} a register that {at(codes[1])} loads, without a "
                "tcgen05.wait::ld of this warp between them"
                + ("; a loaded register has been read before, so the load is complete" if flight.used else ""),
                codes,
                frame.cta,
                warp,
                severity,
            )

    def _never_waited(self, warp: Warp, flight: InFlight, reader: Operation | None) -> None:
        codes = (flight.code,) if reader is None else (reader, flight.code)
        severity = None if reader is not None and self.context.strict else WARNING
        if not self.findings.seen("tensor-load-not-waited", codes, severity):
            who, load = actor(warp.cta, warp.index), at(flight.code)
            message = f"{who} exits without tcgen05.wait::ld after {load}"
            if reader is not None:
                message = (
                    f"{who} reads with {at(reader)} a register that {load} loads, and exits without tcgen05.wait::ld; "
                    "the value is right, but nothing tells other threads that the load is complete"
                )
            self.findings.add(
                "tensor-load-not-waited",
                message,
                codes,
                warp.cta,
                warp.index,
                severity,
            )

    # -- events ----------------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        targets = _rows(operation.targets)
        if not targets:
            return
        (flight,) = flights_of(operation)
        frame, every = operation.issuer.frame, self._owners[operation.issuer.operation.pc]
        if flight.starts.parts == "warp":
            mine = self._of_cta(frame.cta)[flight.warp]
            for owned, flights in mine.owned.items():
                if not owned.isdisjoint(every):
                    self._touched_early(frame, flight.code, flight.warp, flights[-1])
                    for one in flights if owned <= every else ():
                        one.replaced = one.replaced or not one.used
                    flights[:-1] = [one for one in flights[:-1] if not one.used]
            if (pc := flight.code.pc) in self._wanted:
                mine.loads[pc] = flight, self._wanted[pc]
            mine.owned.setdefault(every, []).append(flight)
            return
        self._check_others(operation, every, flight)
        adds = any(isinstance(source, Rows) and source.rows is targets for source in operation.sources)
        accumulator, shape = operation.pipeline
        for number, mine in enumerate(self._of_frame(frame)):
            warp = frame.first_warp + number
            for row in every & mine.copies.keys() if mine.copies else ():
                del mine.copies[row]
            if mine.dirty or mine.moved or not mine.fenced or mine.shapes.get(accumulator, shape) != shape:
                self._check_fenced(frame, warp, mine, every, accumulator, shape)
            if targets not in mine.multiplied:
                if adds and mine.touched.isdisjoint(targets):
                    self._never_written(frame, warp)
                mine.touched |= targets
                mine.multiplied.add(targets)
            mine.shapes[accumulator] = shape
            mine.owned.setdefault(every, []).append(flight)

    def _check_others(self, operation: AsyncOperation, rows: RowSet, flight: InFlight) -> None:
        """Check operations in flight whose registers this one reads or overwrites."""
        frame, pc = operation.issuer.frame, operation.issuer.operation.pc
        for number, mine in enumerate(self._of_frame(frame)):
            for owned, flights in mine.owned.items():
                for earlier in flights if not owned.isdisjoint(rows) else ():
                    codes = earlier.operation.issuer.operation.pc, pc
                    if codes not in self._clashes:
                        self._clashes[codes] = _clash(earlier.operation, owned, operation, rows)
                    if clash := self._clashes[codes]:
                        warp = frame.first_warp + number
                        self._touched_early(frame, flight.code, warp, earlier, warns=clash == WARNING)

    def _check_fenced(
        self, frame: Frame, warp: int, mine: WarpRegisters, rows: RowSet, owner: object, shape: object
    ) -> None:
        code = frame.operation
        codes: tuple[Operation, ...] = (code,)
        severity: str | None = None
        before = mine.shapes.get(owner)
        if not mine.fenced:
            why = "no wgmma.fence was executed before the warpgroup's first wgmma"
        elif not mine.dirty.keys().isdisjoint(rows):
            last = _last(mine.dirty, rows)
            why, codes = f"its registers were accessed with {at(last)} after the last wgmma.fence", (code, last)
        elif before not in (None, shape) and mine.owned:
            why = f"the previous wgmma on the same accumulator has another shape ({before}, now {shape})"
        elif not mine.moved.keys().isdisjoint(rows):
            last, severity = _last(mine.moved, rows), None if self.context.strict else WARNING
            why, codes = f"{at(last)} moves its registers after the last wgmma.fence; ptxas adds one", (code, last)
        else:
            return
        if not self.findings.seen("missing-wgmma-fence", codes, severity):
            who = actor(frame.cta, warp)
            message = f"{who} issues {at(code)}, and {why}"
            self.findings.add("missing-wgmma-fence", message, codes, frame.cta, warp, severity)

    def _never_written(self, frame: Frame, warp: int) -> None:
        codes = (frame.operation,)
        if not self.findings.seen("uninitialised-accumulator", codes):
            self.findings.add(
                "uninitialised-accumulator",
                f"{actor(frame.cta, warp)} adds to an accumulator with {at(frame.operation)} that nothing has written",
                codes,
                frame.cta,
                warp,
            )

    def fenced(self, frame: Frame, places: object) -> None:
        fences = [one for one in frame.operation.effects if isinstance(one, effects.Fences)]
        if not any(fence.kind.startswith("registers:") for fence in fences):
            return
        for mine in self._of_frame(frame):
            mine.fenced = True
            for since in (mine.dirty, mine.computed, mine.moved, mine.shapes):
                since.clear()

    def committed(self, frame: Frame, family: str, operations: Sequence[tuple[AsyncOperation, int]]) -> None:
        owned = {operation for operation, _ in operations if _rows(operation.targets)}
        for mine in self._of_frame(frame) if owned else ():
            mine.committed |= owned

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        done = {operation for operation, _ in wait.operations if _rows(operation.targets)}
        for mine in self._of_frame(frame) if done else ():
            mine.committed -= done
            for row, flights in list(mine.copies.items()):
                if done.issuperset(flight.operation for flight in flights):
                    del mine.copies[row]
            for rows in list(mine.owned):
                left = [flight for flight in mine.owned[rows] if flight.operation not in done]
                for flight in mine.owned[rows] if mine.readers else ():
                    if flight.operation in done:
                        mine.readers.pop(flight, None)
                if left:
                    mine.owned[rows] = left
                else:
                    del mine.owned[rows]

    def exited(self, warp: Warp) -> None:
        mine = self._of_cta(warp.cta)[warp.index]
        for flights in mine.owned.values():
            if flights[-1].starts.parts == "warp":
                self._never_waited(warp, flights[-1], mine.readers.get(flights[-1]))
        if warp.cta.exited:
            self._ctas.pop(warp.cta, None)


def _clash(earlier: AsyncOperation, owned: RowSet, later: AsyncOperation, rows: RowSet) -> str:
    """The severity if two operations with registers in common need a wait between them; "" if they do not.

    A warning if all that they share are results, each at one place in both: compilers give some registers of an
    accumulator other names between two products.
    """
    before, after = _rows(earlier.targets), _rows(later.targets)
    reads_result = not before.isdisjoint(rows - after)
    overwrites_a = not after.isdisjoint(owned - before)
    shares_result = not before.isdisjoint(after) and earlier.pipeline[0] != later.pipeline[0]
    if reads_result or overwrites_a or shares_result and not _renamed(earlier, later):
        return ERROR
    return WARNING if shares_result else ""


def _renamed(earlier: AsyncOperation, later: AsyncOperation) -> bool:
    """True if every register that both accumulators have is at the same place in them."""
    places = []
    for code in (earlier.issuer.operation, later.issuer.operation):
        assert code.bound is not None
        named = registers_named(code.scope, code.bound.operands["d"])
        places.append({row: at for at, (row, _) in enumerate(named)})
    first, second = places
    return len(first) == len(second) and all(second.get(row, at) == at for row, at in first.items())


def _last(marks: dict[tuple[int, int], Operation], rows: RowSet) -> Operation:
    return [marks[row] for row in sorted(rows) if row in marks][-1]


def _rows(places: Sequence[object]) -> RowSet:
    """The registers among an operation's sources or targets."""
    for place in places:
        if isinstance(place, Rows):
            return place.rows
    return RowSet()
