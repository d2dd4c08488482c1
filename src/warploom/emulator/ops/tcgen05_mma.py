"""tcgen05.mma: one thread's asynchronous multiply-accumulate, for its CTA or the pair. PTX ISA 9.7.16.10.

Descriptors and addresses are read when the instruction is issued, operands when the operation runs. The accumulator's
cells hold poison until the last MMA of a chain is complete. In a pair each CTA provides half the rows of A and B, at
the same locations of its shared and tensor memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InvalidOperandError, UnsupportedInstructionError
from ...isa import dtypes
from ...isa.instruction_descriptor import KINDS
from ...isa.instructions.tcgen05_mma import kind_of
from ...isa.tcgen05_descriptor import ABSOLUTE
from ...isa.tensor_cells import Block, factor_cells, metadata_cells, metadata_lanes
from ...isa.tensor_memory import LANE_SHIFT
from ...isa.zero_columns import column_shift, zero_columns
from ...plural import counted
from ..engines import sparse_rows, umma
from ..engines.matrix_operands import OperandPlace, SharedOperand, chunks_of
from ..engines.umma_operands import factors, negated, row_bytes
from ..engines.umma_plan import Plan, from_cells, gather, plan, rows_of, scatter
from ..machine.address import AddressOperand
from ..machine.async_operation import AsyncOperation
from ..machine.frame import Frame, Issuer
from ..machine.machine import Cta
from ..machine.register_list import RegisterList, lane_value
from ..machine.tensor_memory import COLUMN_MASK, POISON, Cells, tensor_memory_of
from ..machine.units import UMMA
from ..numerics.block_scaled import Scaling, multiply_scaled
from ..numerics.tensor_core import Product, multiply_accumulate, values
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .tcgen05_memory import check_columns, check_peer, group_of

HANDLERS = Handlers()
_BLOCK = {"scale_vec::1X": 32, "scale_vec::2X": 32, "scale_vec::4X": 16, "block16": 16, "block32": 32}


@dataclass(frozen=True, eq=False)
class Multiply:
    """A decoded tcgen05.mma: its operands as slots; -1 and None for missing ones."""

    kind: str
    group: int
    stationary: bool
    d: AddressOperand
    a_slot: int
    a_cells: AddressOperand | None
    b_slot: int
    idesc: int
    metadata: AddressOperand | None
    scales: tuple[AddressOperand, AddressOperand] | None
    block: int
    mask: RegisterList | None
    accumulate: Callable[[Frame], np.ndarray]
    shift: int
    moves_a: bool
    zeros: int
    reuses_b: bool

    def step(self, frame: Frame) -> None:
        check_peer(frame, self.group)
        flags = np.broadcast_to(self.accumulate(frame), (frame.lanes,))
        for lane in frame.active_lanes.tolist():
            self._issue(frame, lane, bool(flags[lane]))

    def _issue(self, frame: Frame, lane: int, adds: bool) -> None:
        bits = lane_value(frame, self.idesc, lane)
        form = (self.kind, bits, self.group, self.metadata is not None, self.stationary)
        try:
            what = plan(*form)
            if shift := self._column_shift(frame, lane, what):
                what = plan(*form, shift)
        except (InvalidOperandError, UnsupportedInstructionError) as error:
            frame.error(type(error), error.what, lane, expected=error.expected, got=error.got)
        if what.of.wide_k:
            _only_on_sm_103(frame, "k 96", "k 64, bit 31 of the instruction descriptor 0", lane)
        if self.moves_a and what.rows != 128:
            frame.error(
                InvalidOperandError, f".ashift moves the rows of an A of {counted(what.of.m, 'row')}", lane,
                expected="128 rows of each CTA",
            )  # fmt: skip
        cta = frame.cta
        ctas = [cta] if self.group == 1 else [cta.cluster.ctas[cta.rank & ~1], cta.cluster.ctas[cta.rank | 1]]
        column, base = _address(frame, self.d, lane)
        targets = [self._cells(frame, ctas, block, column, base, "D", lane) for block in what.d]
        sources: list[object] = []
        a_cells, a_bits = [], 0
        if self.a_cells is not None:
            at, low = _address(frame, self.a_cells, lane)
            a_cells = [self._cells(frame, ctas, block, at, low, "A", lane) for block in what.a_blocks]
            sources += a_cells
        else:
            a_bits = self._descriptor(frame, ctas, lane, self.a_slot, what.a, "a", sources)
        b_bits = self._descriptor(frame, ctas, lane, self.b_slot, what.b, "b", sources)
        metadata = self._metadata_cells(frame, ctas, what, lane)
        sources += metadata
        scales = self._factor_cells(frame, ctas, what, lane)
        for side, rows in zip(scales, what.factor_rows, strict=True):
            sources += [part for cells in side for part in cells.of_factors(rows)]
        _check_apart(frame, targets, sources, lane)
        unit, key = umma.unit_of(ctas[0]), (column, base, what.of.m, what.of.n)
        kept, zeros = self._kept_rows(frame, lane, what), self._zero_columns(frame, lane, what)
        chain = unit.accumulators.get(key)
        if chain is None:
            before = gather(what, targets) if adds or kept is not None else None
            chain = unit.accumulators[key] = umma.Accumulator(before)
            late = unit.still_reads(tuple(targets))  # then they are poisoned when that MMA is complete
            if not late:
                _spoil(what, targets, kept)
        else:
            late = False
        chain.users += 1
        held: list[np.ndarray] = []
        selected: list[np.ndarray] = []

        def read(part: int, parts: int) -> None:
            if part:
                return
            if late:
                _spoil(what, targets, kept)
            stored = from_cells(what, a_cells) if a_cells else rows_of(ctas, what.a, a_bits, what.of.a, what.packed)
            where = _places(frame, what, metadata, lane, stored) if metadata else None
            right = rows_of(ctas, what.b, b_bits, what.of.b, what.packed)
            held[:] = [
                stored if where is None else sparse_rows.dense(stored, where, what.of.k),
                right if zeros is None else np.where(zeros[:, None], right.dtype.type(0), right),
                *self._factors(what, scales),
            ]
            selected[:] = [] if where is None else [where]
            if self.moves_a:
                for cells in a_cells:
                    _move_up(cells)

        def write(part: int, parts: int) -> None:
            if part == 0:
                self._execute(frame, what, chain, held, selected, adds, kept)
                if chain.users == 0:
                    unit.accumulators.pop(key, None)
                    scatter(what, targets, chain.matrix)

        flops = 2 * what.of.m * what.of.n * what.of.k
        if adds:
            sources += targets
        name = f"{frame.instruction.opcode} M {what.of.m} N {what.of.n} into column {column}"
        operation = AsyncOperation(
            UMMA, Issuer.of(frame, lane), name, read, write, flops=flops, sources=tuple(sources),
            targets=(*targets, *([replace(cells) for cells in a_cells] if self.moves_a else ())), pipeline=(key,),
        )  # fmt: skip
        counters = frame.machine.counters
        counters.count_products("tcgen05", 1, flops)
        counters.matrix_operand_bytes += what.of.n * row_bytes(what.of, "b")
        if not a_cells:
            counters.matrix_operand_bytes += what.of.m * row_bytes(what.of, "a")
        of_d = what.of.m * what.of.n * 4
        counters.tensor_memory_product_bytes += of_d * (2 if adds else 1) + (what.of.m * 32 if a_cells else 0)
        unit.start(umma.MMA, frame.thread(lane), operation, key)

    # -- operands ------------------------------------------------------------------------------------------------

    def _cells(
        self, frame: Frame, ctas: list[Cta], block: Block, column: int, base: int, name: str, lane: int
    ) -> Cells:
        """A block's cells, in columns that its CTA has allocated."""
        owner, what = ctas[block.who], f"matrix {name} of {frame.instruction.opcode}"
        columns = slice(column + block.cells.start, column + block.cells.stop)
        check_columns(frame, owner, columns.start, columns.stop, what, lane)
        lanes = block.lanes
        if base:
            top = lanes.stop - 1 if isinstance(lanes, slice) else int(lanes.max())
            if base != 16 or top + base > 127:
                frame.error(
                    InvalidOperandError, f"{what} starts at lane {base}", lane,
                    expected="lane 0" + (" or 16" if not isinstance(lanes, slice) else ""),
                )  # fmt: skip
            lanes = slice(lanes.start + base, lanes.stop + base) if isinstance(lanes, slice) else lanes + base
        return Cells(owner, tensor_memory_of(owner).region, lanes, columns)

    def _descriptor(
        self, frame: Frame, ctas: list[Cta], lane: int, slot: int, operand: SharedOperand, name: str,
        sources: list[object],
    ) -> int:  # fmt: skip
        """A matrix descriptor, checked: it is valid, and covers only shared memory in each CTA."""
        bits = lane_value(frame, slot, lane)
        found = chunks_of(frame, operand, name, bits, ctas, lane)
        if bits & ABSOLUTE:
            _only_on_sm_103(frame, f"bit 52 of the descriptor of {name}, an absolute leading address,", "0", lane)
        sources += [OperandPlace(name, cta.shared, operand, found) for cta in ctas]
        return bits

    def _metadata_cells(self, frame: Frame, ctas: list[Cta], what: Plan, lane: int) -> list[Cells]:
        """The cells of a sparse A's metadata, in each CTA; for wider types the selector advances to the next column."""
        if self.metadata is None:
            return []
        of, width = what.of, metadata_cells(what.of.kind)
        if of.selector > (2 - width):
            frame.error(
                InvalidOperandError, f"the sparsity selector of .kind::{of.kind} is {of.selector}", lane,
                expected="0 or 1" if width == 1 else "0",
            )  # fmt: skip
        column, base = _address(frame, self.metadata, lane)
        column += of.selector
        block = Block(0, metadata_lanes(of.m, self.group, self.stationary)[1], slice(0, width), slice(0), slice(0))
        return [self._cells(frame, [cta], block, column, base, "A's metadata", lane) for cta in ctas]

    def _factor_cells(self, frame: Frame, ctas: list[Cta], what: Plan, lane: int) -> tuple[list[Cells], list[Cells]]:
        """The cells of the scale factors of A and of B, in each CTA."""
        if self.scales is None:
            return [], []
        sides: list[list[Cells]] = []
        for name, address, rows in zip("AB", self.scales, what.factor_rows, strict=True):
            column, _ = _address(frame, address, lane)
            column &= 0x3FFFFFFF
            first = what.of.scale_a_id if name == "A" else what.of.scale_b_id
            words = -(-(first + what.of.k // self.block) // 4)
            block = Block(0, slice(0, 128), slice(0, factor_cells(rows, words)), slice(0), slice(0))
            sides.append([
                self._cells(frame, [cta], block, column, 0, f"{name}'s scale factors", lane) for cta in ctas
            ])  # fmt: skip
        return sides[0], sides[1]

    def _factors(self, what: Plan, scales: tuple[list[Cells], list[Cells]]) -> list[np.ndarray]:
        """The scale factors of A, (m, blocks), and of B, (n, blocks)."""
        if self.scales is None:
            return []
        of, count = what.of, what.of.k // self.block
        of_a = [factors(cells.view, what.rows, of.scale_a_id, count, of.scale) for cells in scales[0]]
        whole = scales[1][0].view
        if self.group == 2 and of.m == 128:  # each half of N in its own half of the lanes
            parts = [np.concatenate([whole[low : low + 64]] * 2) for low in (0, 64)]
            of_b = np.concatenate([factors(part, of.n // 2, of.scale_b_id, count, of.scale) for part in parts])
        else:
            of_b = factors(whole, of.n, of.scale_b_id, count, of.scale)
        return [np.concatenate(of_a), of_b]

    def _kept_rows(self, frame: Frame, lane: int, what: Plan) -> np.ndarray | None:
        """The rows of D that the lane mask leaves unchanged, (m,) bool."""
        if self.mask is None:
            return None
        words = self.mask.read(frame)[:, lane].astype(np.uint32)
        kept = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)
        return kept[: what.of.m] if kept.any() else None

    def _column_shift(self, frame: Frame, lane: int, what: Plan) -> int:
        """The first column of B that is multiplied. A collector buffer has as many more columns as was declared."""
        if self.zeros < 0:
            return 0
        shift = column_shift(lane_value(frame, self.zeros, lane), what.of.m)
        if self.reuses_b and shift > what.of.max_shift:
            raise InvalidOperandError(
                "the zero-column mask shifts a reused B further than the instruction descriptor declares",
                expected=f"at most {what.of.max_shift}, by its bits 30 and 31", got=str(shift),
            )  # fmt: skip
        return shift

    def _zero_columns(self, frame: Frame, lane: int, what: Plan) -> np.ndarray | None:
        """The columns of B that count as zeros, (n,) bool."""
        if self.zeros < 0:
            return None
        try:
            return zero_columns(lane_value(frame, self.zeros, lane), what.of.m, what.of.n)
        except InvalidOperandError as error:
            frame.error(InvalidOperandError, error.what, lane, expected=error.expected, got=error.got)

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def _execute(
        self, frame: Frame, what: Plan, chain: umma.Accumulator, held: list[np.ndarray], selected: list[np.ndarray],
        adds: bool, kept: np.ndarray | None,
    ) -> None:  # fmt: skip
        of, before = what.of, chain.matrix if adds else None
        left = negated(held[0], of.a) if of.negate_a else held[0]
        right = negated(held[1], of.b) if of.negate_b else held[1]
        if before is not None and self.shift:
            scaled = np.ldexp(values(before, of.d), -self.shift)
            before = scaled.astype(np.float32 if of.d == "f32" else np.float16).view(before.dtype)
        kind, mode = Product(of.a, of.b, of.d, "tcgen05", of.saturate), frame.machine.numerics

        def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            if self.scales is None:
                return multiply_accumulate(left, right, before, kind, mode)
            scaling = Scaling(of.scale, self.block)
            return multiply_scaled(left, right, before, kind, scaling, held[2], held[3], mode)

        if selected:
            result = sparse_rows.multiplied(left, right, before, selected[0], (of.a, of.b, of.d), multiply)
        else:
            result = multiply(left, right)
        if kept is not None and chain.matrix is not None:
            result[kept] = chain.matrix[kept]
        chain.matrix = result
        chain.users -= 1


def _address(frame: Frame, operand: AddressOperand, lane: int) -> tuple[int, int]:
    """Column and lane of an address in tensor memory."""
    value = int(operand.compute(frame)[lane]) & 0xFFFFFFFF
    return value & COLUMN_MASK, value >> LANE_SHIFT & 0x3FFF


def _only_on_sm_103(frame: Frame, what: str, expected: str, lane: int) -> None:
    if (arch := frame.machine.code.arch).number != 103:
        frame.error(InvalidOperandError, f"{what} needs sm_103a, and this is {arch.name}", lane, expected=expected)


def _check_apart(frame: Frame, targets: list[Cells], sources: list[object], lane: int) -> None:
    """D may not overlap what the same MMA reads from tensor memory besides D."""
    for source in sources:
        over = next((each for each in targets if isinstance(source, Cells) and each.meets(source)), None)
        if over is not None and isinstance(source, Cells):
            frame.error(
                InvalidOperandError, f"matrix D of {frame.instruction.opcode} overlaps its operands in tensor memory",
                lane, expected="separate columns for D",
                got=f"D in columns {over.columns.start} to {over.columns.stop - 1}, A, its metadata or scale factors "
                f"in {source.columns.start} to {source.columns.stop - 1}",
                consequence="the MMA reads what it has written itself",
            )  # fmt: skip


def _places(frame: Frame, what: Plan, metadata: list[Cells], lane: int, stored: np.ndarray) -> np.ndarray:
    """The positions along k of the stored elements of a sparse A, (m, k / 2)."""
    found = []
    for number, cells in enumerate(metadata):
        mine = stored[number * what.rows : (number + 1) * what.rows]
        try:
            found.append(sparse_rows.nibbles(cells.view, what.of, what.rows, mine))
        except InvalidOperandError as error:
            frame.error(InvalidOperandError, error.what, lane, expected=error.expected)
    return sparse_rows.places(np.concatenate(found), what.of)


def _spoil(what: Plan, targets: list[Cells], kept: np.ndarray | None) -> None:
    """Poison the cells of D, except for rows that are kept."""
    for block, cells in zip(what.d, targets, strict=True):
        cells.put(POISON if kept is None else np.where(kept[block.rows, None], cells.view, POISON))


def _move_up(cells: Cells) -> None:
    """.ashift: in each quarter row r gets row r + 1, the last row is unchanged."""
    rows = cells.view.copy()
    for low in range(0, len(rows), 32):
        rows[low : low + 31] = rows[low + 1 : low + 32]
    cells.put(rows)


_SPARSE = ("", "sp_")
_SUFFIXES = [
    f"{sparse}{place}{mask}{scale}"
    for sparse in _SPARSE for place in ("desc", "tmem") for mask in ("", "_mask") for scale in ("", "_scale")
]  # fmt: skip


@HANDLERS.add(
    *(f"tcgen05.mma_{suffix}" for suffix in _SUFFIXES),
    *(
        f"tcgen05.mma_{family}_{sparse}{place}"
        for family in ("block", "ws")
        for sparse in _SPARSE
        for place in ("desc", "tmem")
    ),
)
def mma(d: Decode) -> Step:
    key, kind = d.match.form.key, kind_of(d.modifiers)
    stationary = "_ws" in key
    in_cells = "tmem" in key.split("_")
    scaled = KINDS[kind].scaled
    vector = d.modifier("vector", "block32")
    return Multiply(
        kind=kind,
        group=group_of(d),
        stationary=stationary,
        d=d.address("d", "tensor"),
        a_slot=-1 if in_cells else d.source("a", dtypes.b64),
        a_cells=d.address("a", "tensor") if in_cells else None,
        b_slot=d.source("b", dtypes.b64),
        idesc=d.source("idesc", dtypes.b32),
        metadata=d.address("metadata", "tensor") if "metadata" in d.operands else None,
        scales=(d.address("sfa", "tensor"), d.address("sfb", "tensor")) if scaled else None,
        block=_BLOCK[vector] * (2 if "metadata" in d.operands else 1),
        mask=d.registers("mask", dtypes.b32) if "mask" in d.operands else None,
        accumulate=_flag(d),
        shift=d.constant("scale") if "scale" in d.operands else 0,
        moves_a=bool(d.modifiers.get("ashift")),
        zeros=d.source("zeros", dtypes.b64) if stationary and d.has("zeros") else -1,
        reuses_b=stationary and str(d.modifiers.get("collector")).endswith(("::use", "::lastuse")),
    ).step


def _flag(d: Decode) -> Callable[[Frame], np.ndarray]:
    """enable-input-d, a predicate or a constant."""
    return d.predicate("accumulate")
