"""A consumer of the kernel that computes dQ, dK and dV together: 64 keys of a block, and a part of each tile of dQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...collective import TmaPipeline
from ...collective.epilogue.transposed_panel import TransposedPanel
from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import ACC_REGS, Fragment, half_of
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_block
from ...collective.pipeline.tma import State
from ...collective.tile.roles import WARPGROUP
from ...collective.tile.sizes import ACC_ATOM_N
from ...isa.dtypes import f32, s32, u32
from ...lang import ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import OperandTile, TileSlice
from ...lang.predicate import Predicate
from ...lang.smem import SharedArray
from ...lang.values import Register
from .attention_backward_config import SUM_ROWS, BackwardConfig, modified
from .attention_backward_functions import ScoreFunctions, ScorePosition
from .attention_backward_reads import weighted, workspace
from .attention_backward_rows import weight
from .attention_backward_sums import SumBuffer
from .attention_config import QUERY_ROWS, Attention
from .attention_key_blocks import KeyBlock, KeyBlocks
from .attention_rows import from_, store_part

_NEVER = 1 << 30


@dataclass
class Rings:
    """The rings of tiles of queries and of dO, with lse2 and delta."""

    q: TmaPipeline
    o: TmaPipeline
    lse2: SharedArray
    delta: SharedArray


@dataclass
class Memory:
    """The shared memory of a CTA: K and V, the rings, dS and the parts of dQ."""

    fixed: TmaPipeline
    rings: Rings
    ds: OperandTile | None
    sums: SumBuffer | None

    @classmethod
    def allocate(cls, of: Attention, config: BackwardConfig) -> Memory:
        """Allocate it: first the tiles, which are aligned, then vectors and barriers."""
        stages, tile, rows = config.stages, config.tile_m, config.tile_n
        k = smem.wgmma_tile(of.dtype, (rows, of.key_columns), name="K")
        v = smem.wgmma_tile(of.dtype, (rows, of.value_columns), name="V")
        q = smem.wgmma_tile(of.dtype, (tile, of.key_columns), stages=stages, name="Q")
        o = smem.wgmma_tile(of.dtype, (tile, of.value_columns), stages=stages, name="dO")
        ds, sums = None, None
        if config.compute_dk_dq:
            ds = smem.wgmma_tile(of.dtype, (tile, rows), stages=config.ds_stages, swizzle="128B", name="dS")
            sums = SumBuffer.allocate(of, config, 2 + config.consumers)
        lse2, delta = (smem.array(f32, (stages, tile), name=name) for name in ("lse2", "delta"))
        fixed = TmaPipeline(stages=1, consumers=config.consumers, name="k", k=k, v=v)
        more = tile * f32.bytes
        q_ring = TmaPipeline(stages=stages, consumers=config.consumers, name="q", more_bytes=more, q=q)
        o_ring = TmaPipeline(stages=stages, consumers=config.consumers, name="o", more_bytes=more, o=o)
        return cls(fixed, Rings(q_ring, o_ring, lse2, delta), ds, sums)


class Consumer:
    """Consumer `me` of a CTA; see the kernel's docstring."""

    def __init__(
        self, of: Attention, config: BackwardConfig, call: dict[str, Any], memory: Memory, blocks: KeyBlocks,
        block: KeyBlock, me: int,
    ) -> None:  # fmt: skip
        fixed, rings = memory.fixed, memory.rings
        self.of, self.config, self.call, self.rings = of, config, call, rings
        self.memory, self.blocks, self.block, self.me, self.fixed = memory, blocks, block, me, fixed
        self.both = 1 + config.consumers
        (self.scores,) = wgmma_accumulators(QUERY_ROWS, config.tile_m)
        self.s = Fragment(self.scores)
        if config.compute_dv:
            (self.dv,) = wgmma_accumulators(QUERY_ROWS, of.columns, zero=True)
        if config.compute_dk_dq:
            (self.gradients,) = wgmma_accumulators(QUERY_ROWS, config.tile_m)
            (self.dk,) = wgmma_accumulators(QUERY_ROWS, of.depth, zero=True)
            (self.dq,) = wgmma_accumulators(SUM_ROWS, config.part(of, me, 0)[2])
            self.dp, self.panel = Fragment(self.gradients), TransposedPanel()
        self.state, self.leader = rings.q.consumer_state(), rings.q.leader()
        self.turn = reg.scalar(u32, init=0)
        self.turned = {"q": rings.q.tiles["q"].transposed(), "o": rings.o.tiles["o"].transposed()}
        k, v = (fixed.tiles[name][0] for name in ("k", "v"))
        self.k, self.v = (tile.rows(QUERY_ROWS * me, QUERY_ROWS) for tile in (k, v))
        self.key_columns = fixed.tiles["k"].transposed()[0]
        key = block.row + QUERY_ROWS * me
        self.key = key
        self.keys = [row.view(s32) + key for row in self.s.rows]
        self.functions = ScoreFunctions(of, call, block.batch.view(s32)) if modified(of) else None
        self.reads = config.compute_dk_dq and bool(workspace(of))

    def run(self) -> None:
        """Process all tiles of queries that see the block, one query head after the other."""
        block, tile = self.block, self.config.tile_m
        self.fixed.wait(self.fixed.consumer_state())
        for member in ptx.range(block.group):
            if block.visits is not None:
                number = block.kv_head * block.group + member
                for visit in block.visits.walk(number):
                    self.step(visit.tile * tile, visit.partly, number.view(s32))
            else:
                head = None if self.functions is None else (block.kv_head * block.group + member).view(s32)
                query = (block.end - 1) * tile
                for begin, end, masked in self.phases():
                    for _ in ptx.range(begin, end):
                        self.step(query, masked, head)
                        query -= tile
        self.finish()

    def phases(self) -> list[tuple[Register, Register, bool]]:
        """Ranges of tiles, the last one first: first, end, and whether the range is masked."""
        block, below = self.block, self.of.window_left
        return [
            *([(block.low, block.end, True)] if below else []), (block.clear, block.low if below else block.end, False),
            (block.begin, block.clear, True),
        ]  # fmt: skip

    def step(self, query: Register, masked: bool | Predicate, head: Register | None) -> None:
        """Process the tile of queries that starts at `query`. masked: whether a mask applies to it."""
        of, rings, state, config = self.of, self.rings, self.state, self.config
        self.multiply(self.scores, self.k.first_k(of.depth), rings.q, "q", of.depth)
        if config.compute_dk_dq:
            self.multiply(self.gradients, self.v.first_k(of.columns), rings.o, "o", of.columns)
        else:
            rings.o.consumer_wait(state)
        ptx.wgmma.wait_group(1 if config.compute_dk_dq and self.functions is None else 0)
        if self.functions is not None:
            self.apply_functions(self.functions, query, masked, head)
        if not self.reads:
            self.weigh(query, masked, head)
        p = self.s.as_a(of.dtype) if config.compute_dv else []
        if config.compute_dk_dq:
            self.add_keys(p)
        else:
            self.accumulate(self.dv, p, "o", of.columns)
            ptx.wgmma.wait_group(0)
            ptx.fence.proxy_async_shared_cta()  # for lse2, which TMA will overwrite
            ptx.bar.sync(1 + self.me, WARPGROUP)
        for ring in (rings.q, rings.o):
            ring.consumer_release(state, leader=self.leader)
        rings.q.advance(state, branch=False)

    def add_keys(self, p: list[Any]) -> None:
        """Compute dS, then add to dV, dK and dQ."""
        of, config, early, sums = self.of, self.config, self.config.dv_overlaps_ds, self.memory.sums
        assert sums is not None
        if early:
            self.accumulate(self.dv, p, "o", of.columns)
        ptx.wgmma.wait_group(1 if early else 0)
        self.differentiate()
        ds = self.dp.as_a(of.dtype)
        stage = self.share(ds)
        if config.compute_dv and not early:
            self.accumulate(self.dv, p, "o", of.columns)
        ptx.fence.proxy_async_shared_cta()  # for dS, and for lse2 and delta, which TMA will overwrite
        self.meet()
        self.multiply_part(stage, 0)
        self.accumulate(self.dk, ds, "q", of.depth)
        for part in range(config.parts(of)):
            if part:
                self.multiply_part(stage, part)
            ptx.wgmma.wait_group(0 if part else 1)
            sums.write(self.dq, self.me, part)
        if config.parts(of) == 1:
            ptx.wgmma.wait_group(0)

    def multiply_part(self, stage: TileSlice, number: int) -> None:
        """Issue a part of dQᵀ = Kᵀ dSᵀ, one group of wgmmas."""
        column, first, count = self.config.part(self.of, self.me, number)
        ptx.wgmma.fence()
        wgmma_block(self.dq, self.key_columns.rows(column, SUM_ROWS), stage.rows(first, count), accumulate=False)
        ptx.wgmma.commit_group()

    def weigh(self, query: Register, masked: bool | Predicate, head: Register | None) -> None:
        """Overwrite Sᵀ with Pᵀ."""
        if isinstance(masked, Predicate):
            with ptx.if_(masked):
                if self.functions is not None and head is not None:
                    self.functions.hide(self.scores, head, self.positions(query))
                self.s.keep_columns(*self.seen(query))
        elif masked:
            self.s.keep_columns(*self.seen(query))
        for at, lse2 in column_vector(self.rings.lse2, self.state, self.s):
            self.scores[at].set(weight(self.scores[at], self.call["scale"], lse2))

    def positions(self, query: Register) -> Callable[[int], ScorePosition]:
        """The query and key of each register of Sᵀ."""
        return lambda index: ScorePosition(self.s.column_of(index).view(s32) + query, self.keys[half_of(index)])

    def apply_functions(
        self, functions: ScoreFunctions, query: Register, masked: bool | Predicate, head: Register | None
    ) -> None:
        """Apply the caller's functions to Sᵀ and their derivatives to dPᵀ. If gradients of captured arrays are wanted,
        Pᵀ takes the place of Sᵀ. With lists, the function of masks is left to `weigh`."""
        assert head is not None
        config, place = self.config, self.positions(query)
        if self.reads:
            vectors = [column_vector(vector, self.state, self.s) for vector in (self.rings.lse2, self.rings.delta)]
            rows = ((lse2, delta) for (_, lse2), (_, delta) in zip(*vectors, strict=True))
            partly = masked if isinstance(masked, Predicate) else None
            sees = self.s.inside_columns(*self.seen(query)) if partly is not None or masked else None
            functions.weigh(self.scores, self.gradients, head, place, rows, sees, partly)
            return
        deltas = dict(column_vector(self.rings.delta, self.state, self.dp)) if config.compute_dk_dq else {}
        functions.apply(
            self.scores, self.gradients if config.compute_dk_dq else None, head, place,
            deltas.__getitem__ if config.compute_dk_dq else None,
        )  # fmt: skip

    def differentiate(self) -> None:
        """Overwrite dPᵀ with dSᵀ = Pᵀ (dPᵀ - delta)."""
        if self.functions is not None:
            for score, gradient in zip(self.scores, self.gradients, strict=True):
                gradient.set(weighted(score, gradient))
            return
        for at, delta in column_vector(self.rings.delta, self.state, self.dp):
            self.gradients[at].set(self.scores[at] * (self.gradients[at] - delta))

    def multiply(self, acc: RegisterArray, kept: TileSlice, ring: TmaPipeline, name: str, depth: int) -> None:
        """Issue Sᵀ = K Qᵀ or dPᵀ = V dOᵀ, one group of wgmmas."""
        stage = ring.consumer_wait(self.state)
        ptx.wgmma.fence()
        wgmma_block(acc, kept, stage.tiles[name].first_k(depth), accumulate=False)
        ptx.wgmma.commit_group()

    def accumulate(self, acc: RegisterArray, parts: list[Any], name: str, columns: int) -> None:
        """Issue dV += Pᵀ dO or dK += dSᵀ Q, one group of wgmmas."""
        ptx.wgmma.fence()
        wgmma_block(acc, parts, self.turned[name][self.state.index].rows(0, columns))
        ptx.wgmma.commit_group()

    def share(self, ds: list[Any]) -> TileSlice:
        """Write dS of this consumer's keys to shared memory; returns the tile that all consumers write."""
        memory = self.memory.ds
        assert memory is not None
        if self.config.ds_stages == 1:
            stage = memory[0]
            self.meet()  # the other consumer has read dS of the tile before
        else:
            stage = memory[self.turn]
            self.turn ^= 1
        self.panel.write(ds, stage + self.me * stage.layout.panel_bytes)
        return stage

    def meet(self) -> None:
        """Wait for the other consumer."""
        ptx.bar.sync(self.both, self.config.consumers * WARPGROUP)

    def seen(self, query: Register) -> tuple[list[Register], list[Register]]:
        """The columns that see the thread's keys, end and begin: query i sees key j if j - last <= i <= j - first and
        the key exists."""
        exist, last, first = self.block.keys, self.block.last, self.block.first
        never = reg.scalar(s32, init=_NEVER)
        start = [ptx.select(row < exist, 0 if last is None else row - last - query, never) for row in self.keys]
        return [never if first is None else row - first + 1 - query for row in self.keys], start

    def finish(self) -> None:
        """Store dV and dK through the shared memory of their values and keys."""
        if self.config.compute_dk_dq:
            Fragment(self.dk).scale_rows([self.call["factor"]] * 2)
            self.meet()  # the other consumer has read K for its part of dQ
        if self.config.compute_dv:
            self.store("dV", self.dv, self.v)
        if self.config.compute_dk_dq:
            self.store("dK", self.dk, self.k)

    def store(self, name: str, acc: RegisterArray, memory: TileSlice) -> None:
        """Store 64 rows of dK or dV, or those that belong to the packed sequence."""
        block, array = self.block, self.call[name]
        store = WholeStore(array, 1 + self.me)
        if not self.of.varlen:
            store.store(acc, memory, lambda column: (column, block.kv_head, self.key, block.batch))
        else:
            rows, batch = self.blocks.rows_of(self.me), reg.scalar(u32, init=0)
            row = from_(rows.begin, rows.first)

            def whole() -> None:
                store.store(acc, memory, lambda column: (column, rows.head, row, batch))

            store_part(whole, array, Fragment(acc), rows, array.shape[3])
        store.finish()


def column_vector(vector: SharedArray, state: State, fragment: Fragment) -> Iterator[tuple[int, Register]]:
    """Yield each register's index in a fragment, with the element of a stage's vector for the register's column."""
    begin = (vector[state.index, 0] + fragment.column_of(0) * f32.bytes).register()
    for atom in range(0, len(fragment.registers), ACC_REGS):
        address = ptx.addr(begin, atom // ACC_REGS * ACC_ATOM_N * f32.bytes)
        pair = ptx.load(f32, address, space="shared", vector=2)
        for index in range(ACC_REGS):
            yield atom + index, pair[index % 2]
