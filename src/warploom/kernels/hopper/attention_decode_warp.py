"""A consumer warp of the decode kernel: 16 rows by 16 keys of each tile with mma.sync; warps combine only at the end.

    S = Q Kᵀ    Q in registers for a whole segment; K by ldmatrix
    softmax     exact, with maxima of this warp's keys only
    O += P V    P from the accumulators of S as they are; V by ldmatrix.trans

Values that no query sees are zeroed as well: memory beyond a sequence's end may hold anything, and 0 times NaN is NaN.
"""

from __future__ import annotations

from typing import Any

from ...collective.mma.fragment import ACC_REGS, HALF_ROWS, Fragment, pack, unpack
from ...collective.mma.warp import BLOCK_K, BLOCK_M, BLOCK_N
from ...collective.pipeline.swizzling import swizzled
from ...collective.pipeline.tma import Stage, TmaPipeline
from ...collective.tile.roles import WARP
from ...isa.dtypes import b16, b32, f32, s32, u32, u64
from ...isa.swizzle import CHUNK_BYTES, Swizzle
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import TileSlice
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_decode_config import ROWS, WARP_KEYS, Decode, DecodeConfig
from .attention_decode_work import Segment, WorkPartition
from .attention_softmax import Softmax

LARGEST = 65504.0
"""The largest f16. With 8-bit keys, Q is converted to f16 and clamped to it."""
_SPAN = Swizzle.B128.span
_STEP_BYTES = BLOCK_K * 2
_PER_PANEL = _SPAN // _STEP_BYTES
"""Reads of 32 bytes per row of a panel in shared memory."""


class RowAddresses:
    """Addresses of rows in Q and O: row r of a key head is head r % group of query r / group.

    Args:
        array: (B, R, H, D); only the last stride must be 1.
        group: query heads per key head.
    """

    def __init__(self, array: ArrayHandle, group: Register) -> None:
        self.array, self.group = array, group

    def of(self, segment: Segment, row: Register) -> Register:
        """The address of a row's first element."""
        query = row // self.group
        head = segment.head * self.group + (row - query * self.group)
        index = segment.sequence.to(u64) * self.array.stride(0)
        for axis, at in ((1, query), (2, head)):
            index = index + at.to(u64) * self.array.stride(axis)
        return self.array.pointer() + index * self.array.dtype.bytes


class DecodeWarp:
    """See the module's docstring. All threads of a consumer warp use it; consumer warps are the CTA's first."""

    def __init__(
        self,
        of: Decode,
        config: DecodeConfig,
        work: WorkPartition,
        ring: TmaPipeline,
        queries: RowAddresses,
        call: dict[str, Any],
    ) -> None:
        self.of, self.config, self.work, self.ring, self.queries, self.call = of, config, work, ring, queries, call
        self.left: Register | None = call.get("left")
        self.inner: Register | None = call.get("inner")
        self.scale: Register = call["scale"]
        if of.scaled:  # changes with each segment
            self.scale, self.v_factor = reg.scalar(f32), reg.scalar(f32)
            self.inner = None if self.inner is None else reg.scalar(f32)
        elif of.fp8_kv:
            self.v_factor = call["v_factor"]
        self.state = ring.consumer_state()
        thread = ptx.special.tid.x()
        self.lane, warp = thread & (WARP - 1), thread // WARP
        self.block = warp // config.slices * ROWS
        """The warp's first row in the CTA."""
        self.slice = warp % config.slices * WARP_KEYS
        """The warp's first key in a tile."""
        self.leader = self.lane == 0
        self.scores, self.out = (
            reg.array(f32, ACC_REGS * columns // BLOCK_N) for columns in (WARP_KEYS, of.columns)
        )  # fmt: skip
        self.columns = Fragment(self.scores)
        self.softmax = Softmax(self.scores, self.scale, of.mma_dtype, guarded=False)
        self.p = reg.array(b32, ACC_REGS)
        # K: lanes 0-7 address 8 keys, 8-15 their next 8 columns, 16-31 the next 8 keys. V: lanes 0-15 address
        # 16 keys, 16-31 their next 8 columns.
        lane, half = self.lane, (self.lane >> 3) & 1
        self.of_keys = self._place(((lane >> 4) << 3) + (lane & 7), half)
        self.of_values = self._place(lane & 15, lane >> 4)
        self.rows = [(lane >> 2) + (self.block + at) for at in (0, HALF_ROWS)]

    def _place(self, key: Register, half: Register) -> Register:
        return swizzled((self.slice + key) * _SPAN + half * CHUNK_BYTES, Swizzle.B128)

    # -- a segment ---------------------------------------------------------------------------------------------------

    def run(self, segment: Segment) -> list[Register]:
        """Process all tiles of a segment and normalise O; return the logarithms of this thread's two rows."""
        fragments = self._load_queries(segment)
        segment = self.work.measured(segment)
        if self.of.scaled:
            self._load_scales(segment)
        self.softmax.begin()
        for register in self.out:
            register.set(0.0)
        start = segment.start + self.slice.view(s32)
        for _ in ptx.range(segment.tiles, unroll=False):
            stage = self.ring.consumer_wait(self.state)
            self._tile(stage, segment, fragments, start)
            ptx.fence.proxy_async_shared_cta()
            ptx.warp.sync()
            self.ring.consumer_release(self.state, leader=self.leader)
            self.ring.advance(self.state, branch=False)
            start += segment.step
        factors, logarithms = self.softmax.finish()
        if self.of.fp8_kv:
            factors = [factor * self.v_factor for factor in factors]
        Fragment(self.out).scale_rows(factors)
        return logarithms

    def _load_queries(self, segment: Segment) -> list[RegisterArray]:
        """Load the rows of Q as A operands; rows that do not exist are zeros."""
        found = [reg.array(b32, ACC_REGS, init=0) for _ in range(self.of.depth // BLOCK_K)]
        for half, own in enumerate(self.rows):
            row = own + segment.row
            # with 8-bit keys, a lane has four adjacent columns of K, so it loads the same four of Q
            own, next_by = (((self.lane & 3) << 3), 2) if self.of.fp8_kv else (((self.lane & 3) << 2), BLOCK_N)
            place = self.queries.of(segment, row) + own.to(u64)
            inside = row < self.work.rows
            for step, words in enumerate(found):
                for next_ in range(2):
                    column = step * BLOCK_K + next_ * next_by
                    if column < self.of.head_dim:
                        ptx.inst("ld.global.b32", words[2 * next_ + half], ptx.addr(place, column * 2), pred=inside)
        if self.of.mma_dtype is not self.of.dtype:
            for words in found:
                for word in words:
                    clamped = [ptx.math.max(ptx.math.min(x, LARGEST), -LARGEST) for x in unpack(word, self.of.dtype)]
                    pack(clamped, self.of.mma_dtype, word)
        return found

    def _load_scales(self, segment: Segment) -> None:
        """Load the factors of a sequence's key head: K's is multiplied into the scores' scale, V's into O."""
        index = segment.sequence * self.work.kv_heads + segment.head
        of_k, of_v = (
            ptx.load(f32, ptx.addr(self.call[name].pointer() + index.to(u64) * f32.bytes))
            for name in ("k_scale", "v_scale")
        )
        of_scores = self.call["scale"] if self.inner is None else self.call["inner"]
        (self.scale if self.inner is None else self.inner).set(of_scores * of_k)
        if self.inner is not None:
            self.scale.set(self.call["scale"])
        self.v_factor.set(of_v)

    def _tile(self, stage: Stage, segment: Segment, queries: list[RegisterArray], start: Register) -> None:
        keys = segment.keys
        for register in self.scores:
            register.set(0.0)
        if self.of.fp8_kv:
            for step in range(len(queries) // 2):
                words = ptx.ldmatrix(self._step(stage.k, self.of_keys, step))
                for at in range(2):
                    both = [part for word in (words[at], words[2 + at]) for part in widened(word)]
                    self._multiply(self.scores, queries[2 * step + at], RegisterArray(both))
        else:
            for step, query in enumerate(queries):
                words = ptx.ldmatrix(self._step(stage.k, self.of_keys, step))
                self._multiply(self.scores, query, words)
        if self.inner is not None:
            for score in self.scores:
                ptx.inst("tanh.approx.f32", score, score * self.inner)
        edge = start + WARP_KEYS > keys.least
        if self.left is not None:
            edge = edge | (start < keys.length - 1 - self.left)
        with ptx.if_(edge):
            self._mask_scores(segment, start)
        self.softmax.update(self.p, masked=True)
        self.softmax.rescale(Fragment(self.out))
        wide = 2 * BLOCK_K if self.of.fp8_kv else BLOCK_K
        steps = range(self.of.columns // wide)
        for first in steps[:: self.config.value_steps]:
            some = steps[first : first + self.config.value_steps]
            values = [ptx.ldmatrix(self._step(stage.v, self.of_values, step), trans=True) for step in some]
            with ptx.if_(edge):
                self._mask_values(segment, start, values)
            for step, words in zip(some, values, strict=True):
                for at, part in enumerate(self._of_values(words)):
                    begin = (step * wide // BLOCK_N + 2 * at) * ACC_REGS
                    self._multiply(self.out[begin : begin + 2 * ACC_REGS], self.p, part)

    def _of_values(self, words: RegisterArray) -> list[RegisterArray]:
        """B operands of 16 columns each. In 8 bits, a word has two columns of two keys: the even columns of 16
        become one atom, the odd ones the next."""
        if not self.of.fp8_kv:
            return [words]
        found = []
        for at in range(2):
            (even, odd), (even_next, odd_next) = (
                widened(_bytes(word, 0x3120)) for word in words[2 * at : 2 * at + 2]
            )  # fmt: skip
            found.append(RegisterArray([even, even_next, odd, odd_next]))
        return found

    def _step(self, tile: TileSlice, place: Register, step: int) -> Any:
        """The address of 32 bytes of this warp's keys."""
        panel, inside = divmod(step, _PER_PANEL)
        moved = place ^ (inside * _STEP_BYTES) if inside else place
        return tile + panel * tile.layout.panel_bytes + moved

    def _multiply(self, d: RegisterArray, a: RegisterArray, b: RegisterArray) -> None:
        """d += a @ b for 16 columns, two instructions."""
        for at in range(2):
            ptx.mma_sync(
                shape=(BLOCK_M, BLOCK_N, BLOCK_K), dtype_d=f32, dtype_a=self.of.mma_dtype, dtype_b=self.of.mma_dtype,
                d=d[ACC_REGS * at : ACC_REGS * (at + 1)], a=a, b=b[2 * at : 2 * at + 2],
            )  # fmt: skip

    # -- edges -------------------------------------------------------------------------------------------------------

    def _mask_scores(self, segment: Segment, start: Register) -> None:
        """Set -inf where a row does not see a key."""
        stops, firsts = [], []
        for own in self.rows:
            query = (own + segment.row) // self.queries.group
            stop = segment.keys.least + self.work.causal * query.view(s32)
            stops.append(ptx.math.min(stop, segment.keys.length) - start)
            if self.left is not None:
                firsts.append(stop - 1 - self.left - start)
        self.columns.keep_columns(stops, firsts or None)

    def _mask_values(self, segment: Segment, start: Register, values: list[RegisterArray]) -> None:
        """Zero the values of keys that no row sees; a register holds two adjacent keys."""
        own = start + ((self.lane & 3) << 1).view(s32)
        masks = []
        for half in (0, HALF_ROWS):
            seen = [
                ptx.select((own + (half + at) >= segment.keys.first) & (own + (half + at) < segment.keys.length),
                           reg.scalar(u32, init=bits), 0)
                for at, bits in ((0, 0xFFFF), (1, 0xFFFF0000))
            ]  # fmt: skip
            masks.append((seen[0] | seen[1]).view(b32))
        for words in values:
            for index, word in enumerate(words):
                word.set(word & masks[index % 2])


def widened(word: Register) -> tuple[Register, Register]:
    """Convert four e4m3 to two registers of two f16 (cvt.rn.f16x2.e4m3x2), exactly."""
    halves = reg.scalar(b16), reg.scalar(b16)
    ptx.inst.mov.b32(list(halves), word)
    found = []
    for half in halves:
        pair = reg.scalar(b32)
        ptx.inst("cvt.rn.f16x2.e4m3x2", pair, half)
        found.append(pair)
    return found[0], found[1]


def _bytes(word: Register, selector: int) -> Register:
    """Permute the bytes of a word (prmt.b32)."""
    result = reg.scalar(b32)
    ptx.inst("prmt.b32", result, word, 0, selector)
    return result
