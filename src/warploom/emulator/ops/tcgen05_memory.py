"""Tensor memory: allocation, and copies between it and registers. PTX ISA 9.7.16.7, 9.7.16.8.

The registers of a load, and the cells of a store, hold poison until it completes, in any order. An instruction that
uses a register of a load waits for it (ptxas' scoreboard), which orders nothing in memory (9.7.16.6.4.5).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from ...errors import InvalidOperandError
from ...isa import dtypes
from ...isa.instructions.tcgen05 import LOADS, STORES, registers
from ...isa.tensor_cells import fragment
from ...isa.tensor_memory import COLUMNS, LANE_SHIFT, QUARTER, SIZES
from ..machine import tensor_memory
from ..machine.async_operation import AsyncOperation
from ..machine.events import CompletedWait
from ..machine.frame import Frame, Issuer
from ..machine.machine import FULL, Cta
from ..machine.memory import SHARED_WINDOW
from ..machine.places import Rows
from ..machine.register_list import RegisterList, lane_value
from ..machine.registers import WARP
from ..machine.slots import Slot
from ..machine.tensor_memory import PERMITS, POISON, Cells, Request, tensor_memory_of
from ..machine.units import TENSOR_MEMORY
from ..machine.wait import Wait
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .warp import order_key

HANDLERS = Handlers()
_REDUCED = ("_float", "_integer", "_split_float", "_split_integer")


def group_of(d: Decode) -> int:
    """Number of CTAs that take part."""
    return int(d.modifier("cta_group")[-1])


# -- allocation --------------------------------------------------------------------------------------------------


@HANDLERS.add("tcgen05.alloc")
def alloc(d: Decode) -> Step:
    where, number, group = d.address("dst"), d.source("n"), group_of(d)

    def step(frame: Frame) -> Wait:
        count, permits = _size(frame, number), PERMITS.of(frame.cta)
        _check_group(frame, group)
        if permits.relinquished is not None:
            frame.error(
                InvalidOperandError,
                "tcgen05.alloc after the CTA has relinquished its permit to allocate",
                got=f"relinquished by {permits.relinquished.short()}",
                hint="relinquish_alloc_permit follows the CTA's last allocation",
            )
        request = _ask(frame, Request("alloc", frame.cta, count, group, Issuer.of(frame)))

        def finish(frame: Frame) -> None:
            first = frame.active_lanes[:1]
            mask, frame.mask = frame.mask, np.zeros(frame.lanes, np.bool_)
            frame.mask[first] = True
            address = where.compute(frame)
            space = "generic" if int(np.max(address)) >= SHARED_WINDOW else where.space  # like ptxas
            frame.store(space, address, dtypes.u32, np.full(frame.lanes, request.granted, np.uint32))
            frame.mask = mask

        return _until(request, finish)

    return step


@HANDLERS.add("tcgen05.dealloc")
def dealloc(d: Decode) -> Step:
    address, number, group = d.source("taddr"), d.source("n"), group_of(d)

    def step(frame: Frame) -> Wait:
        count = _size(frame, number)
        _check_group(frame, group)
        column = _uniform(frame, address, 0, "tcgen05.dealloc") & tensor_memory.COLUMN_MASK
        mine = tensor_memory_of(frame.cta).of(frame.cta)
        found = next((one for one in mine if one.start == column), None)
        if found is None or found.count != count:
            held = "; ".join(f"{one.count} columns from {one.start}, allocated by {one.by.short()}" for one in mine)
            frame.error(
                InvalidOperandError,
                f"tcgen05.dealloc of {count} columns from {column}",
                expected="the address and the size of one allocation",
                got=held or "the CTA holds no columns: they have been freed already, or were never allocated",
            )
        return _until(
            _ask(frame, Request("dealloc", frame.cta, count, group, Issuer.of(frame), start=column)), lambda frame: None
        )

    return step


@HANDLERS.add("tcgen05.relinquish_alloc_permit")
def relinquish(d: Decode) -> Step:
    group = group_of(d)

    def step(frame: Frame) -> None:
        _check_group(frame, group)
        permits = PERMITS.of(frame.cta)
        permits.relinquished = permits.relinquished or Issuer.of(frame)
        for listener in frame.machine.events.permitted:
            listener(frame, "columns of the next CTA")
        frame.machine.progress()

    return step


def _ask(frame: Frame, request: Request) -> Request:
    PERMITS.of(frame.cta).asked.append(request)
    frame.machine.progress()
    return request


def _until(request: Request, finish: Callable[[Frame], None]) -> Wait:
    def describe() -> str:
        cta, what = request.cta, f"tcgen05.{request.kind} of {request.count} columns"
        peer = tensor_memory.peer_of(cta) if request.group == 2 else None
        if peer is not None and not any(one.kind == request.kind for one in PERMITS.of(peer).asked):
            return f"{what} for a pair of CTAs: CTA rank {peer.rank} has not reached its {request.kind}"
        held = tensor_memory_of(cta).allocations
        taken = "; ".join(f"{one.count} from {one.start} by {one.by.short()}" for one in held)
        return f"{what}: there are no free columns on its SM; they are held: {taken or 'none'}"

    return Wait("tensor memory", lambda: tensor_memory.settle(request), describe, resume=finish)


def _size(frame: Frame, number: int) -> int:
    count = lane_value(frame, number, int(frame.active_lanes[0]))
    if count not in SIZES:
        frame.error(InvalidOperandError, f"{count} columns of tensor memory", expected="32, 64, 128, 256 or 512")
    return count


def _check_group(frame: Frame, group: int) -> None:
    """All tcgen05 instructions of a kernel are for the same number of CTAs; a pair needs a running peer."""
    permits = PERMITS.of(frame.cta)
    if permits.group not in (0, group):
        frame.error(
            InvalidOperandError, f".cta_group::{group} in a CTA that has used .cta_group::{permits.group}",
            expected="one of the two in the whole kernel",
        )  # fmt: skip
    permits.group = group
    check_peer(frame, group)


def check_peer(frame: Frame, group: int) -> None:
    """Raise InvalidOperandError if a pair's other CTA does not exist or has exited."""
    if group == 1:
        return
    if frame.cta.cluster.size % 2:
        frame.error(
            InvalidOperandError,
            f".cta_group::2 in a cluster of {frame.cta.cluster.size} CTAs",
            expected="an even number: CTAs 2i and 2i + 1 are a pair",
        )
    frame.peer(frame.cta.rank ^ 1)


def _uniform(frame: Frame, slot: int, offset: int, what: str) -> int:
    """An address in tensor memory, the same in all lanes."""
    value = frame.values[slot] if slot >= 0 else np.uint32(0)
    if not isinstance(value, np.ndarray):
        return (int(value) + offset) & 0xFFFFFFFF
    lanes = frame.active_lanes
    mine = value[lanes]
    differ = np.flatnonzero(mine != mine[0])
    if differ.size:
        other = int(differ[0])
        frame.error(
            InvalidOperandError,
            f"lanes {int(lanes[0])} and {int(lanes[other])} pass different tensor-memory addresses to {what}",
            int(lanes[other]),
            expected=f"{int(mine[0]):#x} in all lanes of the warp",
            got=f"{int(mine[other]):#x}",
            consequence="undefined behaviour",
            hint="the hardware adds the warp's own lanes: pass the address of lane 0, or of the warp's quarter",
        )
    return (int(mine[0]) + offset) & 0xFFFFFFFF


def check_columns(frame: Frame, cta: Cta, low: int, high: int, what: str, lane: int | None = None) -> None:
    """Raise InvalidOperandError unless columns `low` up to `high` belong to the CTA."""
    memory = tensor_memory_of(cta)
    if high <= COLUMNS and memory.holds(cta, low, high):
        return
    mine = memory.of(cta)
    outside = next((at for at in range(low, high) if at >= COLUMNS or not memory.holds(cta, at, at + 1)), low)
    other = next((one for one in memory.allocations if one.cta is not cta and one.start <= outside < one.end), None)
    whose = f"it belongs to {other.cta.describe()}" if other is not None else "it belongs to no allocation"
    frame.error(
        InvalidOperandError,
        f"{what} reaches column {outside} of tensor memory: {whose}",
        lane,
        expected="; ".join(f"columns {one.start} to {one.end - 1}" for one in mine)
        or "columns that the CTA has allocated (tcgen05.alloc)",
        got=f"columns {low} to {high - 1}",
        consequence="on hardware a fault, or other data changes",
    )


# -- registers and tensor memory ---------------------------------------------------------------------------------


@dataclass(eq=False)
class InFlight:
    """Loads and stores of tensor memory that no wait has covered yet, by (family, warp)."""

    operations: dict[tuple[str, int], list[AsyncOperation]] = field(default_factory=dict)

    def of(self, family: str, warp: int) -> list[AsyncOperation]:
        return self.operations.setdefault((family, warp), [])

    def digest(self) -> Hashable:
        return tuple((key, tuple(one.digest() for one in held)) for key, held in sorted(self.operations.items()))


IN_FLIGHT = Slot("tensor memory copies", lambda cta: InFlight())


@dataclass(frozen=True, eq=False)
class Move:
    """A decoded tcgen05.ld or .st: the lanes (relative to the quarter) and columns of each register of each thread."""

    lanes: np.ndarray
    columns: np.ndarray
    span: int
    packed: bool
    slot: int
    offset: int
    registers: RegisterList
    halves: bool
    """True if the shape covers 16 lanes, so that the address may name either half of the quarter."""

    def place(self, frame: Frame) -> tuple[Cells, np.ndarray, np.ndarray]:
        """The block of cells, checked, and lane and column of each register in the SM."""
        what = frame.instruction.opcode
        address = _uniform(frame, self.slot, self.offset, what)
        column, lane = address & tensor_memory.COLUMN_MASK, address >> LANE_SHIFT
        inside = lane % QUARTER
        if inside not in ((0, 16) if self.halves else (0,)):
            frame.error(
                InvalidOperandError,
                f"{what} from lane {lane}",
                expected="a multiple of 16 lanes" if self.halves else "a multiple of 32 lanes",
            )
        check_columns(frame, frame.cta, column, column + self.span, what)
        base = QUARTER * (frame.first_warp % 4)
        rows = slice(base + inside, base + inside + (16 if self.halves else QUARTER))
        memory = tensor_memory_of(frame.cta)
        cells = Cells(frame.cta, memory.region, rows, slice(column, column + self.span), lane)
        return cells, self.lanes + (base + inside), self.columns + column


def _move(d: Decode) -> Move:
    shape, count = d.modifier("shape"), registers(d.modifiers)
    packed = bool(d.modifiers.get("pack::16b") or d.modifiers.get("unpack::16b"))
    split = d.constant("split") if "split" in d.operands else 0
    lanes, columns = fragment(shape, count, split)
    address = d.address("taddr", "tensor")
    width = int(columns.max()) + 1
    return Move(
        lanes, 2 * columns if packed else columns, 2 * width if packed else width, packed, address.slot, address.offset,
        d.registers("r", dtypes.b32), shape != "32x32b",
    )  # fmt: skip


def _start(frame: Frame, family: str, operation: AsyncOperation) -> None:
    IN_FLIGHT.of(frame.cta).of(family, frame.first_warp).append(operation)
    frame.machine.engine.submit(operation)


@HANDLERS.add("tcgen05.ld", "tcgen05.ld_split", *(f"tcgen05.ld_red{kind}" for kind in _REDUCED))
def load(d: Decode) -> Step:
    move = _move(d)
    target = move.registers.place()
    reduced = _reduction(d) if "redval" in d.operands else None
    d.code.before_use.append((target.rows | (reduced[0].place().rows if reduced else frozenset()), _settled(target)))

    def step(frame: Frame) -> None:
        cells, lanes, columns = move.place(frame)
        memory = tensor_memory.cells_of(cells.region)
        held: list[np.ndarray] = []

        def read(part: int, parts: int) -> None:
            if part == 0:
                low = memory[lanes, columns]
                held[:] = [low & 0xFFFF | memory[lanes, columns + 1] << np.uint32(16) if move.packed else low]

        def write(part: int, parts: int) -> None:
            if part == 0:
                move.registers.write_all(frame, held[0])
                if reduced is not None:
                    reduced[0].write_all(frame, reduced[1](held[0])[None])

        if reduced is not None:
            reduced[0].write_all(frame, np.full((1, 1), POISON))
        move.registers.write_all(frame, np.full((len(move.registers), 1), POISON))
        frame.machine.counters.tensor_memory_load_bytes += 4 * WARP * len(move.registers)
        what = f"{frame.instruction.opcode} of warp {frame.first_warp}"
        by = Issuer.of(frame)
        _start(frame, LOADS, AsyncOperation(TENSOR_MEMORY, by, what, read, write, sources=(cells,), targets=(target,)))

    return step


def _settled(target: Rows) -> Callable[[Frame], None]:
    """Completes the loads of a frame's warps into these registers."""

    def settle(frame: Frame) -> None:
        held = IN_FLIGHT.of(frame.cta).operations
        for warp in range(frame.first_warp, frame.first_warp + frame.warps):
            for operation in held.get((LOADS, warp), ()):
                if not operation.done and operation.targets[0] is target:
                    frame.machine.engine.finish(operation)

    return settle


def _reduction(d: Decode) -> tuple[RegisterList, Callable[[np.ndarray], np.ndarray]]:
    """Destination and function of tcgen05.ld.red for (registers, lanes) bits: each thread's min or max (9.7.16.8.3).

    The two threads of a lane of .16x32bx2 share no result: ptxas 13.0 emits one LDTM.STAT for each half of the warp.
    """
    kind, operation = d.type("redval"), d.modifier("op")
    absolute, nan = d.has("abs"), d.has("NaN")
    choose = np.argmin if operation == "min" else np.argmax

    def reduce(bits: np.ndarray) -> np.ndarray:
        if kind is not dtypes.f32:
            return np.take_along_axis(bits, choose(bits.view(kind.numpy), 0)[None], 0)[0]
        numbers = np.ascontiguousarray(bits & 0x7FFFFFFF if absolute else bits).view(np.float32)
        missing = np.isnan(numbers)
        key = np.where(missing, np.int64(1 << 40) * (1 if operation == "min" else -1), order_key(numbers))
        found = np.take_along_axis(numbers.view(np.uint32), choose(key, 0)[None], 0)[0]
        return np.where(missing.any(0) if nan else missing.all(0), np.uint32(0x7FFFFFFF), found)

    return RegisterList((d.destination("redval", dtypes.b32),), np.dtype(np.uint32)), reduce


@HANDLERS.add("tcgen05.st", "tcgen05.st_split")
def store(d: Decode) -> Step:
    move = _move(d)

    def step(frame: Frame) -> None:
        cells, lanes, columns = move.place(frame)
        memory = tensor_memory.cells_of(cells.region)
        values = move.registers.read(frame)

        def write(part: int, parts: int) -> None:
            if part:
                return
            if move.packed:
                memory[lanes, columns], memory[lanes, columns + 1] = values & 0xFFFF, values >> np.uint32(16)
            else:
                memory[lanes, columns] = values

        memory[lanes, columns] = POISON
        if move.packed:
            memory[lanes, columns + 1] = POISON
        frame.machine.counters.tensor_memory_store_bytes += 4 * WARP * len(move.registers)
        what = f"{frame.instruction.opcode} of warp {frame.first_warp}"
        _start(frame, STORES, AsyncOperation(TENSOR_MEMORY, Issuer.of(frame), what, None, write, targets=(cells,)))

    return step


@HANDLERS.add("tcgen05.wait_ld", "tcgen05.wait_st")
def wait(d: Decode) -> Step:
    family = LOADS if d.match.form.key.endswith("ld") else STORES

    def step(frame: Frame) -> Wait:
        mine = IN_FLIGHT.of(frame.cta).of(family, frame.first_warp)
        needed, proven = list(mine), [(operation, FULL) for operation in mine]
        mine.clear()

        def ready() -> bool:
            while needed and needed[-1].done:
                needed.pop()
            if needed:
                needed[-1].awaited = True
            return not needed

        def finish(frame: Frame) -> None:
            for listener in frame.machine.events.waited:
                listener(frame, CompletedWait(f"drained:{family}", frame.active_lanes, None, proven))

        return Wait(family, ready, lambda: f"{len(needed)} of its {family} operations", resume=finish)

    return step
