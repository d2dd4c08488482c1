"""The epilogue of a free tile: scales, bias, activation, gate and addend, applied to complete sums, and the store.

A vector along wgmma's M axis is two numbers per thread and block of 64 rows (rows l / 4 and l / 4 + 8 of its warp's
16). A vector along the N axis is two numbers per 8 columns (2 (l % 4) and the next). `EpilogueVectors` loads both
before the main loop, so that the epilogue does not wait for memory. It loads a vector of the N axis once per warp, one
element per lane, and the lanes exchange them by shuffles. Elements of a matrix are loaded in the epilogue, by the
thread that holds the accumulators: in pairs if they are contiguous in D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from ...collective.epilogue.activations import FUNCTIONS
from ...collective.epilogue.staged_store import Region, StagedStore
from ...collective.mma.fragment import ACC_REGS, HALF_ROWS, load_as_f32, pack, unpack
from ...collective.tile.moved_tiles import MovedTile, MovedTiles
from ...collective.tile.sizes import ACC_ATOM_N
from ...isa.dtypes import b32, f32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.smem import SharedAddress
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .description import Fusion
from .free_tile_config import BLOCK, FreeTileConfig, staged_block_bytes, staged_pitch

_LAST_LANE = 31
_GROUPS_IN_FLIGHT = 8
"""Column groups whose operands are loaded together: more would not fit the registers next to the accumulators."""


class EpilogueOperand:
    """A matrix of D's shape, of which a thread reads the elements that match its accumulators.

    Args:
        on_m, on_n: this thread's first row and column of the tile, on wgmma's axes.
        needed: for each of its two rows on the M axis, whether the thread stores it.

    With vector_store, rows, and tiles along the rows of D, begin at multiples of 16 bytes. With swap_ab, consecutive
    accumulators are in one column of D.
    """

    def __init__(
        self, array: ArrayHandle, config: FreeTileConfig, on_m: Register, on_n: Register, needed: Sequence[Predicate]
    ) -> None:
        self.array, self.swap_ab, self.needed = array, config.swap_ab, needed
        self.pairs = config.vector_store and not config.swap_ab
        step, size = array.row_stride(), array.dtype.bytes
        self.step = step.to(u64) * size
        row, column = config.on_axes(on_m, on_n)
        self.start = array.pointer() + (row.to(u64) * step + column) * size

    def pair(self, column: int, half: int, needed: Sequence[Predicate]) -> tuple[Register, Register]:
        """Two elements of row `half` as f32, beginning at column `column` of the tile; undefined where not needed."""
        size, address, across = self.array.dtype.bytes, self.start, column
        if self.swap_ab:
            across = half * HALF_ROWS
        elif half:
            address = address + self.step * HALF_ROWS
        if self.pairs:
            word = reg.scalar(b32, init=0)
            ptx.inst("ld.global.b32", word, ptx.addr(address, across * size), pred=self.needed[half] & needed[0])
            return unpack(word, self.array.dtype)
        words = []
        for odd in range(2):
            inside = self.needed[half] & needed[odd]
            if self.swap_ab:
                words.append(load_as_f32(self.array.dtype, address + self.step * (column + odd), across, inside))
            else:
                words.append(load_as_f32(self.array.dtype, address, across + odd, inside))
        return words[0], words[1]


class EpilogueVectors:
    """The scalar factor and the vectors of one consumer's epilogue, loaded before the main loop.

    Args:
        args: the call's arrays by name.
        schedule, tile: the tile.
        me: index of the consumer, which has `config.blocks` blocks of 64 rows of the M axis.
    """

    def __init__(
        self, args: Mapping[str, Any], fusion: Fusion, config: FreeTileConfig, schedule: MovedTiles, me: int,
        tile: Register,
    ) -> None:  # fmt: skip
        on_m, on_n, limits = tile, tile, (args["D"].shape[0], args["D"].shape[1])
        if fusion.scales == "row" or fusion.bias is not None:
            at, above = schedule.coordinates(tile), me * config.blocks * BLOCK
            on_m, on_n = config.on_axes(at.row, at.column)
            on_m, limits = on_m + above, config.on_axes(*limits)
        scale_a, scale_b, bias = args.get("scale_a"), args.get("scale_b"), args.get("bias")
        self.factor: Register | None = None
        if fusion.scales == "tensor":
            assert scale_a is not None and scale_b is not None
            self.factor = ptx.load(f32, ptx.addr(scale_a.pointer())) * ptx.load(f32, ptx.addr(scale_b.pointer()))
        if fusion.alpha:
            self.factor = args["alpha"] if self.factor is None else self.factor * args["alpha"]
        scales = (scale_a, scale_b) if fusion.scales == "row" else (None, None)
        biases = (None, bias)
        of_m, of_n = ([pair[axis] for pair in (scales, biases)] for axis in config.on_axes(0, 1))
        self._rows: list[list[list[Register]] | None] = [None, None]
        self._lanes: list[list[Register] | None] = [None, None]
        blocks = range(config.blocks)
        for index, (along_m, along_n) in enumerate(zip(of_m, of_n, strict=True)):
            if along_m is not None:
                first = on_m + _row_of_thread()
                rows = [[first + (block * BLOCK + half * HALF_ROWS) for half in range(2)] for block in blocks]
                self._rows[index] = [[_load_or_zero(along_m, row, limits[0]) for row in pair] for pair in rows]
            if along_n is not None:
                first = on_n + (ptx.special.tid.x() & _LAST_LANE)
                some = range(0, config.tile_n, _LAST_LANE + 1)
                self._lanes[index] = [_load_or_zero(along_n, first + step, limits[1]) for step in some]

    def along_m(self, block: int) -> tuple[list[Register] | None, list[Register] | None]:
        """Scales and biases of a thread's two rows of a block."""
        scale, bias = (None if rows is None else rows[block] for rows in self._rows)
        return scale, bias

    def along_n(self, column: int) -> tuple[list[Register] | None, list[Register] | None]:
        """Scales and biases of a thread's two columns among the eight from `column`; all lanes of a warp must call
        this."""
        scale, bias = (None if lanes is None else _pair(lanes, column) for lanes in self._lanes)
        return scale, bias

    def scale(self, acc: RegisterArray, complete: range, block: int) -> None:
        """Multiply the accumulators in `complete` by their scales in place, before they are sent to another GPU."""
        scale_m, _ = self.along_m(block)
        if self.factor is None and scale_m is None:
            return
        for group in range(complete.start, complete.stop, ACC_REGS):
            scale_n, _ = self.along_n(group // ACC_REGS * ACC_ATOM_N)
            for at in range(ACC_REGS):
                half, odd = divmod(at, 2)
                acc[group + at].set(
                    scaled(acc[group + at], self.factor, _element(scale_m, half), _element(scale_n, odd))
                )

    def without_scales(self) -> EpilogueVectors:
        """A copy without scales, for accumulators that `scale` has multiplied."""
        rest = copy(self)
        rest.factor, rest._rows, rest._lanes = None, [None, self._rows[1]], [None, self._lanes[1]]
        return rest


def scaled(value: Register, *factors: Register | None) -> Register:
    """The value times each factor that is not None."""
    for factor in factors:
        if factor is not None:
            value = value * factor
    return value


def _pair(lanes: Sequence[Register], column: int) -> list[Register]:
    """The values of columns 2 (l % 4) and the next one of the eight from `column`, from the lanes that loaded them."""
    turn, first = divmod(column, _LAST_LANE + 1)
    lane = ((ptx.special.tid.x() & 3) << 1) + first
    return [ptx.warp.shuffle(lanes[turn], lane + odd) for odd in range(2)]


def _row_of_thread() -> Register:
    """The first of the thread's two rows within a block of 64 rows."""
    return (((ptx.special.tid.x() & 127) >> 5) << 4) + ((ptx.special.tid.x() & _LAST_LANE) >> 2)


class Epilogue:
    """The epilogue of one block of 64 rows on the M axis.

    Args:
        args: the call's arrays by name.
        vectors: the factor and the vectors, loaded before the main loop.
        index: index of the block among the consumer's blocks.
        on_axes: coordinates of the block in D, on the M and the N axis.
        own: first coordinates, on both axes, that this tile stores: a last tile that was moved computes more than that.
    """

    def __init__(
        self, args: Mapping[str, Any], fusion: Fusion, config: FreeTileConfig, vectors: EpilogueVectors, index: int,
        on_axes: tuple[Register, Register], own: tuple[Register, Register],
    ) -> None:  # fmt: skip
        self.D, self.fusion, self.config, self.vectors = args["D"], fusion, config, vectors
        lane, warp = ptx.special.tid.x() & 31, (ptx.special.tid.x() & 127) >> 5
        self.limit_m, self.limit_n = config.on_axes(self.D.shape[0], self.D.shape[1])
        self.on_m = on_axes[0] + (warp << 4) + (lane >> 2)
        self.on_n = on_axes[1] + ((lane & 3) << 1)
        self.scale_m, self.bias_m = vectors.along_m(index)
        self.own_n, self.beta = own[1], args.get("beta")
        self.gate, self.addend = self._operands(args, own[0])

    def _operands(
        self, args: Mapping[str, Any], own_m: Register
    ) -> tuple[EpilogueOperand | None, EpilogueOperand | None]:
        """Gate and addend. Elements outside D or of another tile are not read, nor is C if beta is 0."""
        gate = addend = None
        if self.fusion.gate or self.fusion.addend:
            rows = [self.on_m + half * HALF_ROWS for half in range(2)]
            needed = [(row >= own_m) & (row < self.limit_m) for row in rows]
        if self.fusion.gate:
            gate = EpilogueOperand(args["gate"], self.config, self.on_m, self.on_n, needed)
        if self.beta is not None:
            read = [each & (self.beta != 0.0) for each in needed]
            addend = EpilogueOperand(args["C"], self.config, self.on_m, self.on_n, read)
        return gate, addend

    def _stored(self, column: int) -> list[Predicate]:
        """For two columns of the tile, whether each is stored."""
        columns = [self.on_n + (column + odd) for odd in range(2)]
        return [(each >= self.own_n) & (each < self.limit_n) for each in columns]

    def words(self, values: RegisterArray, column: int) -> list[Register]:
        """The accumulators from column `column` of the tile, converted to pairs of elements of D."""
        words = []
        for group in range(0, len(values), ACC_REGS):
            across = column + group // ACC_REGS * ACC_ATOM_N
            scale_n, bias_n = self.vectors.along_n(across)
            needed = self._stored(across) if self.gate or self.addend else []
            if needed and group and group % (ACC_REGS * _GROUPS_IN_FLIGHT) == 0:
                ptx.inst.bar.warp.sync(-1)
            for half in range(2):
                gate = None if self.gate is None else self.gate.pair(across, half, needed)
                addend = None if self.addend is None else self.addend.pair(across, half, needed)
                pair = [
                    self._finished(values[group + 2 * half + odd], _element(self.scale_m, half), _element(scale_n, odd),
                                   _element(self.bias_m, half), _element(bias_n, odd))
                    for odd in range(2)
                ]  # fmt: skip
                if gate is not None:
                    pair = [value * factor for value, factor in zip(pair, gate, strict=True)]
                if addend is not None and self.beta is not None:
                    pair = [ptx.math.fma(self.beta, more, value) for value, more in zip(pair, addend, strict=True)]
                words.append(pack(pair, self.D.dtype))
        return words

    def _finished(
        self, value: Register, scale_m: Register | None, scale_n: Register | None, *bias: Register | None
    ) -> Register:
        value = scaled(value, self.vectors.factor, scale_m, scale_n)
        for addend in bias:
            if addend is not None:
                value = value + addend
        return value if self.fusion.activation is None else FUNCTIONS[self.fusion.activation](value)


def _element(values: Sequence[Register] | None, index: int) -> Register | None:
    return None if values is None else values[index]


def _load_or_zero(array: ArrayHandle, index: Register, limit: Register) -> Register:
    """An element as f32; 0 if it is outside the array."""
    value = reg.scalar(array.dtype, init=0.0)
    kind = array.dtype.name if array.dtype is f32 else f"b{array.dtype.bits}"
    address = array.pointer() + index.to(u64) * array.dtype.bytes
    ptx.inst(f"ld.global.{kind}", value, ptx.addr(address), pred=index < limit)
    return value.to(f32)


class OutputStore:
    """A consumer's stores of a tile: where they are staged, and which region of D they cover.

    Args:
        me: the consumer.
        staged: the shared memory in which results are staged.
    """

    def __init__(
        self, args: Mapping[str, Any], fusion: Fusion, config: FreeTileConfig, vectors: EpilogueVectors, me: int,
        staged: SharedAddress,
    ) -> None:  # fmt: skip
        self.args, self.fusion, self.config, self.vectors = args, fusion, config, vectors
        self.me, self.staged = me, staged
        columns, swap_ab = config.pass_columns, config.swap_ab
        self.store = StagedStore(args["D"], swap_ab, staged_pitch(columns, swap_ab), config.vector_store)
        self.block_bytes = staged_block_bytes(columns, swap_ab)

    def block(self, acc: RegisterArray, index: int, complete: range, at: MovedTile) -> None:
        """Store the accumulators in the range `complete` of the consumer's block `index`."""
        config, step = self.config, self.config.pass_columns // 2
        block = self.me * config.blocks + index
        on_m, on_n = config.on_axes(at.row, at.column)
        own = config.on_axes(at.own_row, at.own_column)
        epilogue = Epilogue(self.args, self.fusion, config, self.vectors, index, (on_m + block * BLOCK, on_n), own)
        memory = self.staged + (self.me if config.persistent else block) * self.block_bytes
        for first in range(complete.start, complete.stop, step):
            values = acc[first : min(first + step, complete.stop)]
            if config.persistent:
                if config.swap_ab:
                    ptx.bar.sync(1 + self.me, 128)
                else:
                    ptx.inst.bar.warp.sync(-1)
            row, column = config.on_axes(block * BLOCK, first * 2)
            region = Region(at.row + row, at.column + column, at.own_row, at.own_column)
            self.store.store(epilogue.words(values, first * 2), memory, 1 + self.me, region)
