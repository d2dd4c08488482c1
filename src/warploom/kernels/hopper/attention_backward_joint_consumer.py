"""A consumer of the kernel that computes dQ, dK and dV together: 64 keys of a block, and a part of each tile of dQ."""

from __future__ import annotations

from typing import Any, Protocol

from ...collective import TmaPipeline
from ...collective.epilogue.transposed_panel import TransposedPanel
from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import Fragment
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_block
from ...collective.tile.roles import WARPGROUP
from ...isa.dtypes import s32, u32
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import OperandTile, TileSlice
from ...lang.smem import SharedArray
from ...lang.values import Register
from .attention_backward import weight
from .attention_backward_joint_config import SUM_ROWS, JointConfig
from .attention_backward_keys import KeyBlock, column_vector
from .attention_backward_sums import SumBuffer
from .attention_config import QUERY_ROWS, Attention

_NEVER = 1 << 30


class Rings(Protocol):
    """The rings of a kernel: tiles of queries with lse2, and of dO with delta."""

    q: TmaPipeline
    o: TmaPipeline
    lse2: SharedArray
    delta: SharedArray


class Consumer:
    """Consumer `me` of a CTA; see the kernel's docstring."""

    def __init__(
        self, of: Attention, config: JointConfig, call: dict[str, Any], fixed: TmaPipeline, rings: Rings,
        ds: OperandTile, buffer: SumBuffer, block: KeyBlock, me: int,
    ) -> None:  # fmt: skip
        self.of, self.config, self.call, self.rings, self.ds = of, config, call, rings, ds
        self.buffer, self.block, self.me, self.fixed = buffer, block, me, fixed
        self.both = 1 + config.consumers
        (self.scores,) = wgmma_accumulators(QUERY_ROWS, config.tile)
        (self.gradients,) = wgmma_accumulators(QUERY_ROWS, config.tile)
        (self.dv,) = wgmma_accumulators(QUERY_ROWS, of.columns, zero=True)
        (self.dk,) = wgmma_accumulators(QUERY_ROWS, of.depth, zero=True)
        self.column, self.query, queries = config.part(of, me)
        (self.dq,) = wgmma_accumulators(SUM_ROWS, queries)
        self.s, self.dp, self.panel = Fragment(self.scores), Fragment(self.gradients), TransposedPanel()
        self.state, self.leader = rings.q.consumer_state(), rings.q.leader()
        self.turn = reg.scalar(u32, init=0)
        self.turned = {"q": rings.q.tiles["q"].transposed(), "o": rings.o.tiles["o"].transposed()}
        k, v = (fixed.tiles[name][0] for name in ("k", "v"))
        self.k, self.v = (tile.rows(QUERY_ROWS * me, QUERY_ROWS) for tile in (k, v))
        self.columns = fixed.tiles["k"].transposed()[0].rows(self.column, SUM_ROWS)
        key = block.row + QUERY_ROWS * me
        self.key = key
        self.keys = [row.view(s32) + key for row in self.s.rows]

    def run(self) -> None:
        """Process all tiles of queries that see the block, one query head after the other."""
        block, tile = self.block, self.config.tile
        self.fixed.wait(self.fixed.consumer_state())
        for _ in ptx.range(block.group):
            query = (block.end - 1) * tile
            for begin, end, masked in self.phases():
                for _ in ptx.range(begin, end):
                    self.step(query, masked)
                    query -= tile
        self.finish()

    def phases(self) -> list[tuple[Register, Register, bool]]:
        """Ranges of tiles, the last one first: first, end, and whether the range is masked."""
        block, below = self.block, self.of.below
        return [
            *([(block.low, block.end, True)] if below else []), (block.clear, block.low if below else block.end, False),
            (block.begin, block.clear, True),
        ]  # fmt: skip

    def step(self, query: Register, masked: bool) -> None:
        """Process the tile of queries that starts at `query`."""
        of, rings, state, early = self.of, self.rings, self.state, self.config.early
        self.multiply(self.scores, self.k.first_k(of.depth), rings.q, "q", of.depth)
        self.multiply(self.gradients, self.v.first_k(of.columns), rings.o, "o", of.columns)
        ptx.wgmma.wait_group(1)
        if masked:
            self.hide(query)
        for at, lse2 in column_vector(rings.lse2, state, self.s):
            self.scores[at].set(weight(self.scores[at], self.call["scale"], lse2))
        p = self.s.as_a(of.dtype)
        if early:
            self.accumulate(self.dv, p, "o", of.columns)
        ptx.wgmma.wait_group(1 if early else 0)
        for at, delta in column_vector(rings.delta, state, self.dp):
            self.gradients[at].set(self.scores[at] * (self.gradients[at] - delta))
        ds = self.dp.as_a(of.dtype)
        stage = self.share(ds)
        if not early:
            self.accumulate(self.dv, p, "o", of.columns)
        ptx.fence.proxy_async_shared_cta()  # for dS, and for lse2 and delta, which TMA will overwrite
        self.meet()
        ptx.wgmma.fence()
        _, first, count = self.config.part(of, self.me)
        wgmma_block(self.dq, self.columns, stage.rows(first, count), accumulate=False)
        ptx.wgmma.commit_group()
        self.accumulate(self.dk, ds, "q", of.depth)
        ptx.wgmma.wait_group(1)
        self.buffer.write(self.dq, self.me)
        ptx.wgmma.wait_group(0)
        for ring in (rings.q, rings.o):
            ring.consumer_release(state, leader=self.leader)
        rings.q.advance(state, branch=False)

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
        if self.config.ds_stages == 1:
            stage = self.ds[0]
            self.meet()  # the other consumer has read dS of the tile before
        else:
            stage = self.ds[self.turn]
            self.turn ^= 1
        self.panel.write(ds, stage + self.me * stage.layout.panel_bytes)
        return stage

    def meet(self) -> None:
        """Wait for the other consumer."""
        ptx.bar.sync(self.both, self.config.consumers * WARPGROUP)

    def hide(self, query: Register) -> None:
        """Set -inf where a query does not see a key: query i sees key j if j - last <= i <= j - first and the key
        exists."""
        exist, last, first = self.call["K"].shape[1].view(s32), self.block.last, self.block.first
        never = reg.scalar(s32, init=_NEVER)
        start = [ptx.select(row < exist, 0 if last is None else row - last - query, never) for row in self.keys]
        self.s.keep_columns([never if first is None else row - first + 1 - query for row in self.keys], start)

    def finish(self) -> None:
        """Store dV and dK through the shared memory of their values and keys."""
        Fragment(self.dk).scale_rows([self.call["factor"]] * 2)
        block, key = self.block, self.key
        self.meet()  # the other consumer has read K for its part of dQ
        for name, acc, memory in (("dV", self.dv, self.v), ("dK", self.dk, self.k)):
            store = WholeStore(self.call[name], 1 + self.me)
            store.store(acc, memory, lambda column: (column, block.kv_head, key, block.batch))
        store.finish()
