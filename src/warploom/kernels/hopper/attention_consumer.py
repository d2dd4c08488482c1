"""A consumer of the attention kernel: S, its softmax and O of 64 queries, one tile of keys after the other.

S of a tile and P V of the previous tile are in flight at the same time. The guard's vote and the loop that waits for
the next values are placed so that ptxas cannot sink the exponentials below a wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...collective import OrderedBarrier, TileQueue, TmaPipeline
from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import Fragment, half_of
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_block
from ...collective.pipeline.tma import State
from ...collective.tile.roles import WARPGROUP
from ...isa.dtypes import b32, f32, s32, u32, u64
from ...lang import Tile, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import OperandTile, TileSlice
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_config import QUERY_ROWS, Attention, Config
from .attention_rows import Rows, store_rows
from .attention_softmax import Softmax
from .attention_tiles import BlockScheduler, KeyTileIterator, QueryBlock


@dataclass
class Arguments:
    """The kernel's arguments."""

    Q: ArrayHandle
    K: ArrayHandle
    V: ArrayHandle
    counter: ArrayHandle
    scale: Register
    section: Register
    O: ArrayHandle  # noqa: E741 - the field's name
    LSE: ArrayHandle
    sinks: ArrayHandle | None = None
    q_scale: ArrayHandle | None = None
    k_scale: ArrayHandle | None = None
    v_scale: ArrayHandle | None = None
    v_factor: Register | None = None
    tiles: ArrayHandle | None = None
    counts: ArrayHandle | None = None
    q_ends: ArrayHandle | None = None
    k_ends: ArrayHandle | None = None
    inner: Register | None = None
    last: Register | None = None
    first: Register | None = None
    functions: dict[str, ArrayHandle] = field(default_factory=dict)


def function_arrays(of: Attention) -> dict[str, Tile]:
    """The arrays that the functions of scores and masks capture, by name."""
    found: dict[str, Tile] = {}
    for name, function in (("score", of.score_mod), ("mask", of.mask_mod)):
        for number, (size, dtype) in enumerate(function.sizes() if function is not None else ()):
            found[f"{name}_{number}"] = Tile(size, dtype)
    return found


@dataclass
class Rings:
    """The rings; in 8 bits also the ring of transposed values and the buffer through which O is stored."""

    queries: TmaPipeline
    keys: TmaPipeline
    values: TmaPipeline
    transposed: TmaPipeline | None = None
    out: OperandTile | None = None


class Consumer:
    """One consumer warpgroup: 64 queries of each block."""

    def __init__(
        self,
        of: Attention,
        config: Config,
        call: Arguments,
        tiles: Rings,
        blocks: BlockScheduler,
        queue: TileQueue,
        me: int,
    ) -> None:
        self.of, self.config, self.call, self.blocks, self.queue, self.me = of, config, call, blocks, queue, me
        self.queries, self.keys, self.values = tiles.queries, tiles.keys, tiles.transposed or tiles.values
        self.out_tile = tiles.out
        self.at_q, self.at_k, self.at_v = (
            ring.consumer_state() for ring in (self.queries, self.keys, self.values)
        )  # fmt: skip
        self.leader = self.keys.leader()
        (self.scores,) = wgmma_accumulators(QUERY_ROWS, config.tile_n)
        (self.out,) = wgmma_accumulators(QUERY_ROWS, of.columns)
        self.out_rows = Fragment(self.out)
        self.promoted = wgmma_accumulators(QUERY_ROWS, config.promoted_columns)[0] if config.promoted_columns else None
        self.p = [reg.array(b32, config.tile_n * of.dtype.bytes // 8) for _ in range(1 if config.pv_first else 2)]
        self.scale, self.inner, self.v_factor = call.scale, call.inner, call.v_factor
        if of.scaled:  # changes with each block
            self.v_factor = reg.scalar(f32)
            if call.inner is None:
                self.scale = reg.scalar(f32)
            else:
                self.inner = reg.scalar(f32)
        self.softmax = Softmax(
            self.scores, self.scale, of.dtype, guarded=config.guarded, hidden=of.score_mod is not None,
            raise_all_maxima=config.raise_all_maxima, rounded_row_sum=config.rounded_row_sum,
        )  # fmt: skip
        self.accumulate = reg.predicate()
        self.store = WholeStore(call.O, 1 + me)
        self.turns = None
        if config.ping_pong and config.consumers > 1:
            self.turns = OrderedBarrier(1 + config.consumers, config.consumers)

    def run(self) -> None:
        """Compute all blocks that the queue gives to this CTA."""
        state, early = self.queue.consumer_state(), self.config.query_stages > 1
        if self.turns:
            self.turns.begin(self.me)
        number = self.queue.next(state).copy()
        with ptx.if_(number < self.queue.tiles):
            if early:
                self.begin()
            with ptx.do_while(lambda: number < self.queue.tiles):
                if not early:
                    self.begin()
                block = self.blocks.block_at(number)
                self.all_but_last_values(block)
                number.set(self.queue.next(state))
                slot = State(self.at_q.index.copy(), self.at_q.phase)
                self.add_values(self.p[0])
                if early:
                    self.queries.advance(self.at_q, branch=False)
                    self.begin()
                ptx.wgmma.wait_group(1 if early else 0)
                if self.config.pv_first:
                    self.softmax.rescale(self.out_rows)
                self.promote(self.p[0], self.at_v.index)
                self.release(self.values, self.at_v)
                self.finish(block, slot)
                if not early:
                    self.queries.advance(self.at_q, branch=False)
            if early:
                ptx.wgmma.wait_group(0)
        self.store.finish()

    # -- products ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Wait for the queries and the first keys of a block, and issue their product."""
        self.queries.wait(self.at_q)
        self.keys.wait(self.at_k)
        self.multiply_keys()

    def multiply_keys(self) -> None:
        """Issue S = Q Kᵀ for the tile of keys that has arrived, as one group of wgmmas."""
        query = self.queries.stage(self.at_q).q.rows(QUERY_ROWS * self.me, QUERY_ROWS)
        ptx.wgmma.fence()
        keys = self.keys.stage(self.at_k).k
        wgmma_block(self.scores, query.first_k(self.of.depth), keys.first_k(self.of.depth), accumulate=False)
        ptx.wgmma.commit_group()

    def add_values(self, p: RegisterArray) -> None:
        """Issue O += P V for the tile of values that has arrived, or the first columns of `promoted`, as one group."""
        ptx.wgmma.fence()
        parts = _fragments(p)
        if self.promoted is not None:
            wgmma_block(self.promoted, parts, self._transposed_rows(self.at_v.index, 0), accumulate=False)
        else:
            stage = self.values.stage(self.at_v)
            values = stage.t.first_k(self.config.tile_n) if self.of.fp8 else stage.v.rows(0, self.of.columns)
            wgmma_block(self.out, parts, values, accumulate=self.accumulate)
        ptx.wgmma.commit_group()

    def promote(self, p: RegisterArray, stage: Register, *, last: bool = False) -> None:
        """Add the complete product in `promoted` to O; then compute and add its other columns, a part at a time."""
        if self.promoted is None:
            return
        parts, width = _fragments(p), self.config.promoted_columns
        for column in range(0, self.of.columns, width):
            if column:
                ptx.wgmma.fence()
                wgmma_block(self.promoted, parts, self._transposed_rows(stage, column), accumulate=False)
                ptx.wgmma.commit_group()
                ptx.wgmma.wait_group(0)
            for out, found in zip(self.out[column // 2 : (column + width) // 2], self.promoted, strict=True):
                out += found

    def _transposed_rows(self, stage: Register, column: int) -> TileSlice:
        tile = self.values.tiles["t"][stage]
        return tile.rows(column, self.config.promoted_columns).first_k(self.config.tile_n)

    def release(self, ring: TmaPipeline, state: State) -> None:
        ring.consumer_release(state, leader=self.leader)
        ring.advance(state, branch=False)

    # -- a block -----------------------------------------------------------------------------------------------------

    def all_but_last_values(self, block: QueryBlock) -> None:
        """All of a block but its last P V: P of the last tile is left in `p[0]`, and its values have arrived."""
        if self.of.scaled:
            self.load_scales(block)
        ptx.wgmma.wait_group(0)
        self.release(self.keys, self.at_k)
        walk = KeyTileIterator(block, block.start.copy(), self.config.tile_n)
        self.modify(block, walk.start, masked=True, whole=block.whole)
        self.softmax.start(self.p[0])
        if self.config.pv_first:
            self.softmax.needed.set(False)
        self.accumulate.set(False)
        if self.promoted is not None:
            for out in self.out:
                out.set(0.0)
        self.values.wait(self.at_v)
        read, start = self.of.score_mod is not None, walk.start
        if self.of.window_right or self.of.block_mask:
            for _ in ptx.range(block.above):
                walk.next()
                self.single(block, start, masked=True)
        with ptx.if_((block.full & 1) != 0):
            walk.next(read=read)
            self.single(block, start)
        for _ in ptx.range(block.full.view(u32) >> 1):
            walk.next(read=read)
            self.step(block, start, self.p[0], self.p[-1])
            walk.next(read=read)
            self.step(block, start, self.p[-1], self.p[0])
        if self.of.window_left:
            for _ in ptx.range(block.low):
                walk.next()
                self.single(block, start, masked=True)

    def single(self, block: QueryBlock, start: Register, *, masked: bool = False) -> None:
        """One step, with P in `p[0]` before and after it."""
        self.step(block, start, self.p[0], self.p[-1], masked=masked)
        for to, came in zip(*self.p, strict=True) if len(self.p) > 1 else ():
            to.set(came)

    def step(
        self, block: QueryBlock, start: Register, p: RegisterArray, following: RegisterArray, *, masked: bool = False
    ) -> None:
        """S of the tile at `start` and P V of the previous tile; this tile's P is left in `following`."""
        some = masked or (self.of.mask_mod is not None and not self.of.block_mask)  # some scores may be -inf
        if self.config.pv_first:
            self.step_values_first(block, start, masked=masked, some=some)
            return
        if self.turns:
            self.turns.wait(self.me)
        self.keys.wait(self.at_k)
        self.multiply_keys()
        self.add_values(p)
        if self.turns:
            self.turns.pass_on(self.me)
        ptx.wgmma.wait_group(1)
        self.release(self.keys, self.at_k)
        self.modify(block, start, masked=masked)
        self.softmax.update(following, masked=some)
        read = self.at_v.index.copy()
        self.values.advance(self.at_v, branch=False)
        self.values.wait(self.at_v)  # a loop, across which ptxas does not sink the exponentials
        ptx.wgmma.wait_group(0)
        self.promote(p, read)
        self.values.consumer_release(read, leader=self.leader)
        self.softmax.rescale(self.out_rows)
        self.accumulate.set(True)

    def step_values_first(self, block: QueryBlock, start: Register, *, masked: bool, some: bool) -> None:
        """A step that adds P V to O, rescaled only now, while S is computed, and leaves this tile's P in `p[0]`."""
        (p,) = self.p
        if self.turns:
            self.turns.wait(self.me)
        self.add_values(p)
        self.keys.wait(self.at_k)
        self.multiply_keys()
        if self.turns:
            self.turns.pass_on(self.me)
        self.softmax.rescale(self.out_rows)
        ptx.wgmma.wait_group(1)
        self.promote(p, self.at_v.index)
        self.release(self.values, self.at_v)
        ptx.wgmma.wait_group(0)
        self.release(self.keys, self.at_k)
        self.modify(block, start, masked=masked)
        self.softmax.update(p, masked=some)
        self.values.wait(self.at_v)  # a loop, as above

    def modify(self, block: QueryBlock, start: Register, *, masked: bool, whole: Predicate | None = None) -> None:
        """Modify the scores before the softmax: apply the softcap and set -inf where a query does not see a key. If
        `whole` is true, the mask function does not apply."""
        mask_mod = self.of.mask_mod if masked or not self.of.block_mask else None
        if self.of.softcap and self.inner is not None:
            for score in self.scores:
                ptx.inst("tanh.approx.f32", score, score * self.inner)
        if self.of.score_mod is not None or mask_mod is not None:
            self.apply_functions(block, start, mask_mod, whole)
        if not masked:
            return
        rows = [row.view(s32) + (block.row + QUERY_ROWS * self.me) for row in self.out_rows.rows]
        stop = [block.keys] * 2
        if block.last is not None:
            stop = [ptx.math.min(block.keys, row + block.last + 1) for row in rows]
        from_ = None
        if block.first is not None:
            from_ = [row + block.first - start for row in rows]
        self.softmax.scores.keep_columns([bound - start for bound in stop], from_)

    def apply_functions(
        self, block: QueryBlock, start: Register, mask_mod: Any, whole: Predicate | None = None
    ) -> None:  # fmt: skip
        """Apply the caller's functions to each score; indices outside the arrays are clamped to their edges."""
        score_mod = self.of.score_mod
        handles = self.call.functions
        of_score = [handle for name, handle in handles.items() if name.startswith("score")]
        of_mask = [handle for name, handle in handles.items() if name.startswith("mask")]
        batch, head = block.batch.view(s32), block.head.view(s32)
        first = block.row + QUERY_ROWS * self.me
        rows = [ptx.math.min(row.view(s32) + first, block.queries - 1) for row in self.out_rows.rows]
        keys = self.blocks.keys.view(s32) if self.of.block_mask else block.keys
        for index, score in enumerate(self.scores):
            row = rows[half_of(index)]
            key = ptx.math.min(self.softmax.scores.column_of(index).view(s32) + start, keys - 1)
            if score_mod is not None:
                assert self.inner is not None
                score.set(score_mod.apply(of_score, score * self.inner, batch, head, row, key).floating())
            if mask_mod is not None:
                seen = mask_mod.sees(of_mask, batch, head, row, key)
                seen = seen if whole is None else seen | whole
                score.set(ptx.select(seen, score, float("-inf")))

    def finish(self, block: QueryBlock, slot: State) -> None:
        """Store O divided by the sums of P, and the logarithms of the sums; then release the queries' slot."""
        sink = None
        if self.call.sinks is not None:
            place = self.call.sinks.pointer() + block.head.to(u64) * f32.bytes
            sink = ptx.load(f32, ptx.addr(place))
        factors, logarithms = self.softmax.finish(sink)
        if self.v_factor is not None:
            factors = [factor * self.v_factor for factor in factors]
        self.out_rows.scale_rows(factors)
        first = block.row + QUERY_ROWS * self.me
        self.store_logarithms(block, first, logarithms)
        where = self.queries.stage(slot).q if self.out_tile is None else self.out_tile[0]
        memory = where.rows(QUERY_ROWS * self.me, QUERY_ROWS)
        row = first + block.query_begin

        def whole() -> None:
            if self.out_tile is not None:
                self.store.wait_read()
            self.store.store(self.out, memory, lambda column: (column, block.head, row, block.batch))
            if self.out_tile is None:
                self.store.wait_read()

        if not self.of.varlen:
            whole()
        else:  # rows after the end of a sequence belong to the next sequence
            with ptx.if_(first + QUERY_ROWS <= block.queries):
                whole()
            with ptx.else_():
                self.store_some(block, first)
        self.queries.consumer_release(slot, leader=self.leader)

    def load_scales(self, block: QueryBlock) -> None:
        """Load the factors of a block's heads: those of Q and K are multiplied into the scores' scale, V's into O."""
        of_q, of_k, of_v = self.call.q_scale, self.call.k_scale, self.call.v_scale
        assert of_q is not None and of_k is not None and of_v is not None and self.v_factor is not None
        q, k, v = (
            ptx.load(f32, ptx.addr(array.pointer() + (block.batch * array.shape[1] + head).to(u64) * f32.bytes))
            for array, head in ((of_q, block.head), (of_k, block.kv_head), (of_v, block.kv_head))
        )
        both = q * k
        if self.call.inner is not None and self.inner is not None:
            self.inner.set(self.call.inner * both)
        else:
            self.scale.set(self.call.scale * both)
        self.v_factor.set(v)

    def store_logarithms(self, block: QueryBlock, first: Register, logarithms: list[Register]) -> None:
        """Store the logarithms of existing rows, with the first lane of each quad."""
        one: Predicate = (ptx.special.tid.x() & 3) == 0
        line = (block.batch * self.blocks.heads + block.head).to(u64) * self.blocks.queries
        for row, value in zip(self.out_rows.rows, logarithms, strict=True):
            here = row.view(s32) + first
            place = self.call.LSE.pointer() + (line + (here + block.query_begin).view(u32)) * f32.bytes
            ptx.store(ptx.addr(place), value, pred=one & (here < block.queries))

    def store_some(self, block: QueryBlock, first: Register) -> None:
        """Store the rows of O that belong to the sequence, two columns at a time."""
        rows = Rows(first, block.query_begin, block.queries, block.head, self.blocks.heads)
        store_rows(self.call.O, self.out_rows, rows, self.of.value_dim)
        ptx.bar.sync(self.store.barrier, WARPGROUP)


def _fragments(registers: RegisterArray) -> list[RegisterArray]:
    """A operands in registers, four per 32 bytes of k."""
    return [registers[at : at + 4] for at in range(0, len(registers), 4)]
