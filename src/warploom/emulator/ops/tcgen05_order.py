"""tcgen05.cp and .shift, and their completion: commit and the fences. PTX ISA 9.7.16.9, 9.7.16.11, 9.7.16.12."""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ...isa.tensor_cells import COPIES, copied
from ...isa.tensor_memory import LANE_SHIFT
from ..engines import umma
from ..engines.bulk import check_alive, members
from ..engines.matrix_operands import OperandPlace, SharedOperand, chunks_of, of_sm_100
from ..machine import mbarrier
from ..machine.async_operation import AsyncOperation
from ..machine.frame import Frame, Issuer
from ..machine.machine import Cta
from ..machine.memory import SHARED_WINDOW
from ..machine.register_list import lane_value
from ..machine.tensor_memory import COLUMN_MASK, POISON, Cells, cells_of, tensor_memory_of
from ..machine.units import UMMA
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .fences import fence
from .tcgen05_memory import check_columns, check_peer, group_of

HANDLERS = Handlers()
HANDLERS.add("tcgen05.fence")(fence)


def _ctas(frame: Frame, group: int) -> list[Cta]:
    """The CTAs that take part, the even one first."""
    check_peer(frame, group)
    cta = frame.cta
    return [cta] if group == 1 else [cta.cluster.ctas[cta.rank & ~1], cta.cluster.ctas[cta.rank | 1]]


@HANDLERS.add("tcgen05.cp", "tcgen05.cp_widened")
def copy(d: Decode) -> Step:
    shape, group, source = d.modifier("shape"), group_of(d), d.modifier("source")
    rows, row_bytes = COPIES[shape]
    placed = copied(shape, d.modifier("multicast") or None)
    operand = SharedOperand(8, rows, row_bytes, "K", dtypes.b8, of_sm_100)
    address, descriptor = d.address("taddr", "tensor"), d.source("desc", dtypes.b64)
    columns = row_bytes // 4

    def step(frame: Frame) -> None:
        ctas, where = _ctas(frame, group), address.compute(frame)
        for lane in frame.active_lanes.tolist():
            column, base = int(where[lane]) & COLUMN_MASK, int(where[lane]) >> LANE_SHIFT
            bits = lane_value(frame, descriptor, lane)
            found = chunks_of(frame, operand, "the source", bits, ctas, lane)
            sources, targets, work = [], [], []
            for cta in ctas:
                check_columns(frame, cta, column, column + columns, frame.instruction.opcode, lane)
                sources.append(OperandPlace("source", cta.shared, operand, found))
                region, across = tensor_memory_of(cta).region, slice(column, column + columns)
                for lanes, taken in placed:
                    into = Cells(cta, region, lanes if not base or isinstance(lanes, slice) else lanes + base, across)
                    targets.append(into)
                    work.append((cta, into, taken))
            held: dict[Cta, np.ndarray] = {}
            unit = umma.unit_of(ctas[0])
            later = targets if unit.still_reads(tuple(targets)) else []  # poisoned when that MMA is complete

            def read(
                part: int, parts: int, bits: int = bits, held: dict[Cta, np.ndarray] = held,
                later: list[Cells] = later,
            ) -> None:  # fmt: skip
                for into in later if part == 0 else ():
                    into.put(POISON)
                for cta in ctas if part == 0 else ():
                    held[cta] = _widened(np.ascontiguousarray(operand.read(cta.shared, bits)), source)

            def write(
                part: int, parts: int, work: list[tuple[Cta, Cells, slice]] = work, held: dict[Cta, np.ndarray] = held
            ) -> None:
                for cta, into, taken in work if part == 0 else ():
                    into.put(held[cta].view(np.uint32)[taken])

            for into in () if later else targets:
                into.put(POISON)
            frame.machine.counters.tensor_memory_copy_bytes += rows * row_bytes * len(ctas)
            operation = AsyncOperation(
                UMMA, Issuer.of(frame, lane), f"{frame.instruction.opcode} into column {column}", read, write,
                sources=tuple(sources), targets=tuple(targets),
            )  # fmt: skip
            unit.start(umma.COPY, frame.thread(lane), operation)

    return step


def _widened(rows: np.ndarray, source: str) -> np.ndarray:
    """16 elements of 4 or 6 bits in 16 bytes become a byte each, as A is stored in tensor memory."""
    if not source:
        return rows
    groups = rows.reshape(len(rows), -1, 16)
    if source.startswith("b4"):
        low, high = groups[..., :8] & 15, groups[..., :8] >> 4
        elements = np.stack([low, high], -1).reshape(groups.shape) << 2
    else:
        single = np.unpackbits(np.ascontiguousarray(groups[..., :12]), axis=-1, bitorder="little")
        elements = (single.reshape(*groups.shape, 6) @ (1 << np.arange(6, dtype=np.uint8))) << 1
    return np.ascontiguousarray(elements.reshape(rows.shape).astype(np.uint8))


@HANDLERS.add("tcgen05.shift")
def shift(d: Decode) -> Step:
    """Rows of 32 bytes move down by one: in each quarter row r gets row r + 1, the last row is unchanged."""
    group, address = group_of(d), d.address("taddr", "tensor")

    def step(frame: Frame) -> None:
        ctas, where = _ctas(frame, group), address.compute(frame)
        for lane in frame.active_lanes.tolist():
            column = int(where[lane]) & COLUMN_MASK
            places = []
            for cta in ctas:
                check_columns(frame, cta, column, column + 8, frame.instruction.opcode, lane)
                places.append(Cells(cta, tensor_memory_of(cta).region, slice(0, 128), slice(column, column + 8)))

            def write(part: int, parts: int, places: list[Cells] = places) -> None:
                for place in places if part == 0 else ():
                    quarters = cells_of(place.region)[:, place.columns].reshape(4, 32, 8)
                    quarters[:, :31] = quarters[:, 1:].copy()

            operation = AsyncOperation(
                UMMA, Issuer.of(frame, lane), f"tcgen05.shift of column {column}", None, write,
                sources=tuple(places), targets=tuple(places),
            )  # fmt: skip
            umma.unit_of(ctas[0]).start(umma.SHIFT, frame.thread(lane), operation)

    return step


# -- completion --------------------------------------------------------------------------------------------------


@HANDLERS.add("tcgen05.commit", "tcgen05.commit_multicast")
def commit(d: Decode) -> Step:
    """Arrive on each barrier when all operations that the thread has started are complete."""
    address, group = d.address("mbar", "shared::cluster"), group_of(d)
    mask = d.source("mask") if d.has("mask") else -1

    def step(frame: Frame) -> None:
        _ctas(frame, group)
        where = address.compute(frame)
        cta = frame.cta
        unit = umma.unit_of(cta if group == 1 else cta.cluster.ctas[cta.rank & ~1])
        for lane in frame.active_lanes.tolist():
            at = int(where[lane])
            space = "generic" if at >= SHARED_WINDOW else "shared::cluster"  # Triton passes the latter for the former
            owner, offset = mbarrier.locate(frame, space, at, lane, remote=True)
            receivers = [owner] if mask < 0 else members(frame, lane_value(frame, mask, lane), lane)
            after, by = unit.of_thread(frame.thread(lane)), Issuer.of(frame, lane)
            for receiver in receivers:
                mbarrier.find(by, receiver, offset)
                frame.machine.engine.submit(_arrival(by, receiver, offset, after))

    return step


def _arrival(by: Issuer, cta: Cta, offset: int, after: tuple[AsyncOperation, ...]) -> AsyncOperation:
    description = "the arrival of a tcgen05.commit"

    def signal() -> None:
        """Triton invalidates barriers before their last arrivals come: these change bytes that nothing reads."""
        check_alive(by, cta, description)
        if offset in mbarrier.mbarriers_of(cta) or not mbarrier.was_invalidated(cta, offset):
            mbarrier.find(by, cta, offset).arrive(1, by)

    own = by.frame.cta
    return AsyncOperation(
        UMMA, by, description, signal=signal, after=after, barrier=(cta, offset),
        rank=cta.rank if cta is not own else -1,
    )  # fmt: skip
