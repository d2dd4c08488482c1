"""wgmma: operands in shared memory, and the registers that an operation in flight owns. PTX ISA 9.7.15.7.

A wgmma is one operation of its warpgroup: it knows what all four warps know, and a wait_group by any of them proves
it done. Registers belong to each warp: between the issue and that warp's own wait nothing but another wgmma may touch
them, and after a touch a wgmma.fence comes first. Which instructions touch such registers is known before the kernel
runs, so only those are watched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...asm.nodes import Register, Vector
from ...emulator.engines.matrix_operands import OperandPlace
from ...emulator.ops.wgmma import owner_of
from ...emulator.program.code import Code, Operation
from ...emulator.program.flatten import DeclaredRegister
from ...emulator.program.handlers import Step
from ..core import actor
from ..happens_before.clocks import WarpClock, later
from ..happens_before.state import Flight, Groups
from ..report.findings import at
from .tensor_maps import Maps

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Machine
    from ...emulator.ops.wgmma import Multiply

Rows = frozenset
"""Registers as (bank, row)."""


@dataclass(eq=False)
class WarpRegisters:
    """What one warp's registers are bound by.

    Attributes:
        groups: wgmmas it has issued and not waited for.
        owned: rows -> the wgmmas in flight that use them, for each different set of rows.
        dirty: rows touched since the last wgmma.fence, and where.
        touched: rows ever touched; fenced: whether a fence was ever executed.
        shapes: accumulator rows -> shape of the last wgmma on them.
    """

    groups: Groups = field(default_factory=Groups)
    owned: dict[Rows, list[Flight]] = field(default_factory=dict)
    dirty: dict[tuple[int, int], Operation] = field(default_factory=dict)
    touched: set[tuple[int, int]] = field(default_factory=set)
    fenced: bool = False
    shapes: dict[object, str] = field(default_factory=dict)

    def all_owned(self) -> frozenset[tuple[int, int]]:
        return frozenset().union(*self.owned)


class Multiplies(Maps):
    """The part of the sanitizer that follows wgmma."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._registers: dict[tuple[Cta, int], WarpRegisters] = {}
        self._rows: dict[int, tuple[Rows, Rows]] = {}
        self._watch_registers()

    def _watch_registers(self) -> None:
        """Put a look at the registers in front of every instruction that touches one a wgmma uses."""
        code = self.machine.code
        used: set[tuple[int, int]] = set()
        for operation in code.operations:
            if operation.instruction.opcode.startswith("wgmma.mma_async"):
                d, *rest = [rows_of(code, operation, operand) for operand in operation.instruction.operands[:2]]
                self._rows[operation.pc] = (
                    d,
                    rest[0] if isinstance(operation.instruction.operands[1], Vector) else Rows(),
                )
                used |= d | self._rows[operation.pc][1]
        if not used:
            return
        for operation in code.operations:
            if operation.pc in self._rows or operation.step is None:
                continue
            rows = (
                Rows().union(*(rows_of(code, operation, operand) for operand in operation.instruction.operands)) & used
            )
            if rows:
                operation.step = self._watched(operation, operation.step, rows)

    def _watched(self, operation: Operation, step: Step, rows: Rows) -> Step:
        def watch(frame: Frame) -> object:
            self._touch(frame, operation, rows)
            return step(frame)

        return watch  # type: ignore[return-value]

    def _of(self, cta: Cta, warp: int) -> WarpRegisters:
        found = self._registers.get((cta, warp))
        if found is None:
            found = self._registers[cta, warp] = WarpRegisters()
        return found

    # -- registers -------------------------------------------------------------------------------------------------

    def _touch(self, frame: Frame, code: Operation, rows: Rows) -> None:
        for warp in range(frame.first_warp, frame.first_warp + frame.warps):
            mine = self._of(frame.cta, warp)
            mine.touched |= rows
            for row in rows:
                mine.dirty[row] = code
            for owned, flights in mine.owned.items():
                if owned & rows:
                    self._touched_early(frame, code, warp, flights[-1])

    def _touched_early(self, frame: Frame, code: Operation, warp: int, flight: Flight) -> None:
        issue = flight.operation.issuer.operation
        codes = (code, issue)
        if not self.findings.seen("wgmma-register-in-flight", codes):
            mine = self._of(frame.cta, warp)
            committed = any(flight in group for group in mine.groups.committed)
            why = "no wgmma.wait_group of this warp covers it yet"
            if not committed:
                why = "it has not even been committed (wgmma.commit_group), so no wait covers it"
            self.findings.add(
                "wgmma-register-in-flight",
                f"{actor(frame.cta, warp)} touches with {at(code)} a register of the wgmma {at(issue)}, which is in "
                f"flight: {why}",
                codes,
                frame.cta,
                warp,
            )

    # -- events ----------------------------------------------------------------------------------------------------

    def wgmma_issued(self, frame: Frame, operation: AsyncOperation, multiply: Multiply, adds: bool) -> None:
        state = self.state(frame.cta)
        code = frame.operation
        flight = state.flight(operation, frame.cta, frame.first_warp)
        operation.mark = flight
        view = state.view(frame)
        flight.weak = self._issued_by_all(state.of_frame(frame))
        for place in operation.sources:
            if not isinstance(place, OperandPlace):
                continue
            shadow = state.shadows[place.region]  # type: ignore[attr-defined]
            chunks = place.chunks()  # type: ignore[attr-defined]
            self.async_read(state, place.region, shadow.of_chunks(chunks), flight, view)  # type: ignore[attr-defined]
            self.check_layout(shadow, place, chunks, frame)
        d, a = self._rows[code.pc]
        owner = owner_of(multiply.d)
        shape = f"m64n{multiply.n}k{multiply.k}"
        for warp in range(frame.first_warp, frame.first_warp + 4):
            mine = self._of(frame.cta, warp)
            self._check_fenced(frame, warp, mine, d | a, owner, shape)
            if adds and not d & mine.touched:
                self._never_written(frame, warp)
            mine.touched |= d
            mine.shapes[owner] = shape
            mine.groups.open.append(flight)
            mine.owned.setdefault(d | a, []).append(flight)

    @staticmethod
    def _issued_by_all(clocks: list[WarpClock]) -> list[int]:
        """What happened before the four warps issued a wgmma: it has happened when the wgmma is done, but for how much
        later the accesses themselves are done there is no promise.
        """
        reached = clocks[0].mark()
        for clock in clocks[1:]:
            reached = later(reached, clock.mark())
        return reached

    def _check_fenced(
        self, frame: Frame, warp: int, mine: WarpRegisters, rows: Rows, owner: object, shape: str
    ) -> None:
        code = frame.operation
        before = mine.shapes.get(owner)
        if not mine.fenced:
            why, codes = "no wgmma.fence was executed before the warpgroup's first wgmma", (code,)
        elif dirty := [mine.dirty[row] for row in sorted(rows) if row in mine.dirty]:
            why = f"its registers were touched with {at(dirty[-1])} after the last wgmma.fence"
            codes = (code, dirty[-1])  # type: ignore[assignment]
        elif before not in (None, shape) and mine.owned:
            why, codes = (
                f"the wgmma before it on the same accumulator has another shape ({before}, now {shape})",
                (code,),
            )
        else:
            return
        if not self.findings.seen("missing-wgmma-fence", codes):
            self.findings.add(
                "missing-wgmma-fence", f"{actor(frame.cta, warp)} issues {at(code)}, and {why}", codes, frame.cta, warp
            )

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

    def wgmma_fenced(self, frame: Frame) -> None:
        for warp in range(frame.first_warp, frame.first_warp + frame.warps):
            mine = self._of(frame.cta, warp)
            mine.fenced = True
            mine.dirty.clear()
            mine.shapes.clear()

    def wgmma_committed(self, frame: Frame) -> None:
        for warp in range(frame.first_warp, frame.first_warp + frame.warps):
            self._of(frame.cta, warp).groups.commit()

    def wgmma_waited(self, frame: Frame, newest: int) -> None:
        state = self.state(frame.cta)
        for at_warp, clock in enumerate(state.of_frame(frame)):
            mine = self._of(frame.cta, frame.first_warp + at_warp)
            done = mine.groups.wait(newest)
            if not done:
                self.note_idle_wait(frame)
                continue
            bits = 0
            for flight in done:
                bits |= flight.all
                clock.suspect(flight.weak)
            clock.learn(bits)
            for rows in list(mine.owned):
                left = [flight for flight in mine.owned[rows] if not flight.done & bits]
                if left:
                    mine.owned[rows] = left
                else:
                    del mine.owned[rows]

    # -- for other parts -------------------------------------------------------------------------------------------

    def check_layout(self, shadow: object, place: object, chunks: object, frame: Frame) -> None:
        """Compare how a tile was written with how an operand reads it."""

    def note_idle_wait(self, frame: Frame) -> None:
        """A wait_group that waits for nothing."""


def rows_of(code: Code, operation: Operation, operand: object) -> Rows:
    """The registers an operand names."""
    if isinstance(operand, Vector):
        return Rows().union(*(rows_of(code, operation, element) for element in operand.elements))
    if isinstance(operand, Register):
        found = operation.scope.find(operand.name)
        if isinstance(found, DeclaredRegister):
            return Rows({(found.row.bits, found.row.index)})
    base = getattr(operand, "base", None)
    return rows_of(code, operation, base) if base is not None else Rows()
