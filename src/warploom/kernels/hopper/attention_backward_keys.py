"""dK and dV: a block of keys and values stays in shared memory; tiles of queries and dO of all query heads stream past.

Roles      producer    warpgroup 0, one thread      TMA of K and V once, then of Q, dO, lse2 and delta, tile by tile
           consumer    warpgroups 1, 2              64 keys each; dK and dV in registers
Memory     K, V        the CTA's keys, one stage; each consumer's rows become its dK and dV at the end
           Q, dO       a ring of tiles of queries, and with each tile its lse2 and delta
Barriers   k.full           1 arrival + bytes of K and V              producer -> consumers, once
           q.full[s]        1 arrival + bytes of a tile               producer -> consumers
           q.empty[s]       1 arrival of each consumer                consumers -> producer
           1, 2 (named)     the warps of one consumer: all have read lse2 and delta before one releases the stage
Timeline   a consumer, while the other one multiplies

           Sᵀ = K Qᵀ | dPᵀ = V dOᵀ | Pᵀ, dSᵀ in registers | dV += Pᵀ dO | dK += dSᵀ Q

Q and dO are loaded once and read twice: as n x k, and as k x n (`OperandTile.transposed`). lse2 and delta belong to the
columns of Sᵀ; they are loaded with the tile and read from shared memory where needed. Query heads that share a key head
are processed one after the other, so their sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...collective import TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import ACC_REGS, Fragment, half_of
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_block
from ...collective.pipeline.tma import State
from ...collective.tile.groups import Offsets
from ...collective.tile.roles import WARPGROUP
from ...collective.tile.sizes import ACC_ATOM_N
from ...isa.dtypes import f32, s32, u32, u64
from ...lang import Kernel, kernel, ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import TileSlice
from ...lang.smem import SharedArray
from ...lang.values import Register
from ..fields import builder
from .attention_backward import (
    BackwardConfig,
    BlockGrid,
    BlockIndex,
    arguments,
    keys_config,
    modified,
    padded_begin,
    stored,
    weight,
)
from .attention_backward_functions import ScoreFunctions, ScorePosition, weighted
from .attention_config import QUERY_ROWS, REGISTERS, Attention
from .attention_rows import Rows, store_part
from .attention_tiles import Sequence, Sequences


@builder()
def build(of: Attention, config: BackwardConfig | None = None, parts: str = "both") -> Kernel:
    """The kernel of dK (B, T, G, D) and dV (B, T, G, E), with the arguments of the dQ kernel.

    parts: "both", "dK" or "dV": if a thread's registers do not hold both, each has its own kernel.
    """
    config = config or keys_config(of)
    chosen = config
    few, many, at_launch = REGISTERS[config.consumers]
    grid = BlockGrid("T", "G", config.rows, of.varlen, config.folded)

    def attention_keys(**call: Any) -> None:
        fixed = TmaPipeline(
            stages=1, consumers=chosen.consumers, name="k",
            k=smem.wgmma_tile(of.dtype, (chosen.rows, of.key_columns), name="K"),
            v=smem.wgmma_tile(of.dtype, (chosen.rows, of.value_columns), name="V"),
        )  # fmt: skip
        ring = TmaPipeline(
            stages=chosen.stages, consumers=chosen.consumers, name="q", more_bytes=2 * chosen.tile * f32.bytes,
            q=smem.wgmma_tile(of.dtype, (chosen.tile, of.key_columns), stages=chosen.stages, name="Q"),
            o=smem.wgmma_tile(of.dtype, (chosen.tile, of.value_columns), stages=chosen.stages, name="dO"),
        )  # fmt: skip
        vectors = {name: smem.array(f32, (chosen.stages, chosen.tile), name=name) for name in ("lse2", "delta")}

        def roles(block: KeyBlock, own: Callable[[], PackedSequence] | None = None) -> None:
            warpgroup = warpgroup_index()
            with producer(warpgroup, few):
                load(chosen, call, fixed, ring, vectors, block)
            for me in each_consumer(warpgroup, chosen.consumers, many):
                Consumer(of, chosen, call, fixed, ring, vectors, block, me, parts, own).run()

        index = BlockIndex(grid, call["K"], ends=call.get("k_ends"))
        if not of.varlen:
            fixed.initialise(ring)
            roles(KeyBlock.of_cta(of, chosen, call, index))
            return
        lengths = call["K"].shape[1], call["Q"].shape[1]
        sequences = Sequences(Offsets(call["k_ends"]), Offsets(call["q_ends"]), *lengths, chosen.rows)
        sequences.initialise()
        fixed.initialise(ring)
        number = index.block()
        with ptx.if_(number < sequences.total()):
            block = KeyBlock.sequence_block(of, chosen, call, sequences.find(number), index)
            roles(block, lambda: PackedSequence.of(sequences.find(index.block()), index))

    return kernel(
        in_specs=arguments(of, config.tile, config.rows),
        out_specs={
            **({"dK": stored(of, "T", "G", of.head_dim)} if parts != "dV" else {}),
            **({"dV": stored(of, "T", "G", of.value_dim)} if parts != "dK" else {}),
        },
        grid=grid, block=WARPGROUP * (1 + config.consumers), arch="sm_90a",
        registers=at_launch, name="attention_keys",
    )(attention_keys)  # fmt: skip


@dataclass
class PackedSequence:
    """A packed sequence: the first index of its keys, its queries and its lse2 and delta, its number of keys, and this
    CTA's first key (`row`) and grid position."""

    key_begin: Register
    query_begin: Register
    keys: Register
    sums: Register
    row: Register
    index: BlockIndex

    @classmethod
    def of(cls, sequence: Sequence, index: BlockIndex) -> PackedSequence:
        """Bounds of a sequence whose "queries" are keys, because its blocks are blocks of keys."""
        keys = sequence.query_end - sequence.query_begin
        sums = padded_begin(sequence.key_begin, sequence.number)
        return cls(sequence.query_begin, sequence.key_begin, keys, sums, sequence.row, index)


@dataclass
class KeyBlock:
    """A block of keys, and the tiles of queries that see it: from `begin` masked, from `clear` full, from `low` to
    `end` masked again. Tile indices are s32. Query i sees keys i + first to i + last."""

    row: Register
    kv_head: Register
    batch: Register
    group: Register
    begin: Register
    clear: Register
    low: Register
    end: Register

    last: Register | None
    first: Register | None
    own: PackedSequence | None = None

    @classmethod
    def of_cta(cls, of: Attention, config: BackwardConfig, call: dict[str, Any], index: BlockIndex) -> KeyBlock:
        """The block of this CTA."""
        _, queries, heads, _ = call["Q"].shape
        group = heads // call["K"].shape[2]
        row = (index.block() * config.rows).view(s32)
        edges = call.get("last"), call.get("first")
        return cls._with_tiles(of, config, row, queries, edges, index.head, index.batch, group)

    @classmethod
    def sequence_block(
        cls, of: Attention, config: BackwardConfig, call: dict[str, Any], sequence: Sequence, index: BlockIndex
    ) -> KeyBlock:  # fmt: skip
        """The block of this CTA in a sequence whose "queries" are keys, because its blocks are blocks of keys."""
        group = call["Q"].shape[2] // call["K"].shape[2]
        keys, queries = sequence.query_end - sequence.query_begin, sequence.key_end - sequence.key_begin
        last, first = (call[name] + (keys - queries) if name in call else None for name in ("last", "first"))
        block = cls._with_tiles(of, config, sequence.row, queries.view(u32), (last, first), index.head,
                          lambda: reg.scalar(u32, init=0), group)  # fmt: skip
        block.own = PackedSequence.of(sequence, index)
        return block

    @classmethod
    def _with_tiles(
        cls, of: Attention, config: BackwardConfig, row: Register, queries: Register,
        edges: tuple[Register | None, Register | None], head: Callable[[], Register], batch: Callable[[], Register],
        group: Register,
    ) -> KeyBlock:  # fmt: skip
        """The block whose first key is `row`, with the range of query tiles that see it."""
        rows, tile, (last, first) = config.rows, config.tile, edges
        total = ((queries + (tile - 1)) // tile).view(s32)
        begin = clear = ptx.math.min(total, 0)
        end = low = total
        if last is not None:  # query i sees keys up to i + last
            begin = ptx.math.min(total, _tiles(row - last, tile))
            clear = ptx.math.min(total, _tiles(row - last + (rows - 1 + tile - 1), tile))
        if first is not None:  # and no keys before i + first
            end = ptx.math.min(total, _tiles(row - first + (rows - 1 + tile), tile))
            end = ptx.math.max(end, begin)
            clear = ptx.math.min(clear, end)
            low = ptx.math.min(ptx.math.max(_tiles(row - first + 1, tile), clear), end)
        return cls(row, head(), batch(), group, begin, clear, low, end, last, first)


def _tiles(query: Register, size: int) -> Register:
    """The number of full tiles before a query, at least 0."""
    return (ptx.math.max(query, 0).view(u32) // size).view(s32)


def load(
    config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, ring: TmaPipeline,
    vectors: dict[str, SharedArray], block: KeyBlock,
) -> None:  # fmt: skip
    """The producer: loads K and V once, then every tile of queries."""
    with fixed.produce(fixed.producer_state()) as stage:
        for name in ("k", "v"):
            row = block.row if block.own is None else block.row + block.own.key_begin
            at = (0, block.kv_head, row, block.batch)
            ptx.tma.load(stage.tiles[name], call[name.upper()].tma_desc(), at, stage.full)
    state, heads = ring.producer_state(), call["Q"].shape[2]
    for member in ptx.range(block.group):
        head = block.kv_head * block.group + member
        line = (block.batch * heads + head).to(u64) * call["delta"].shape[2]
        line = line if block.own is None else line + block.own.sums
        for number in ptx.range(block.begin, block.end):
            query = number * config.tile
            row = query if block.own is None else query + block.own.query_begin
            with ring.produce(state) as stage:
                for name, array in (("q", "Q"), ("o", "dO")):
                    ptx.tma.load(stage.tiles[name], call[array].tma_desc(), (0, head, row, block.batch), stage.full)
                for name, vector in vectors.items():
                    source = ptx.addr(call[name].pointer() + (line + query.view(u32)) * f32.bytes)
                    ptx.cp.async_.bulk.load(vector[state.index, 0], source, config.tile * f32.bytes, stage.full)


def column_vector(vector: SharedArray, state: State, fragment: Fragment) -> Iterator[tuple[int, Register]]:
    """Yield each register's index in a fragment, with the element of a stage's vector for the register's column."""
    begin = (vector[state.index, 0] + fragment.column_of(0) * f32.bytes).register()
    for atom in range(0, len(fragment.registers), ACC_REGS):
        address = ptx.addr(begin, atom // ACC_REGS * ACC_ATOM_N * f32.bytes)
        pair = ptx.load(f32, address, space="shared", vector=2)
        for index in range(ACC_REGS):
            yield atom + index, pair[index % 2]


class Consumer:
    """A consumer: dK and dV of 64 keys of a block.

    Args:
        parts: gradients to compute: "both", "dK" or "dV".
        own: finds the sequence again in the epilogue, because accumulators need the registers until then.
    """

    def __init__(
        self, of: Attention, config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, ring: TmaPipeline,
        vectors: dict[str, SharedArray], block: KeyBlock, me: int, parts: str, own: Callable[[], PackedSequence] | None,
    ) -> None:  # fmt: skip
        self.of, self.config, self.call, self.ring, self.vectors = of, config, call, ring, vectors
        self.block, self.me, self.own = block, me, own
        self.with_dk, self.with_dv = parts != "dV", parts != "dK"
        self.leader, self.state = ring.leader(), ring.consumer_state()
        (self.scores,) = wgmma_accumulators(QUERY_ROWS, config.tile)
        (self.gradients,) = wgmma_accumulators(QUERY_ROWS, config.tile)
        (self.dv,) = wgmma_accumulators(QUERY_ROWS, of.columns, zero=True)
        (self.dk,) = wgmma_accumulators(QUERY_ROWS, of.depth, zero=True)
        self.s, self.ds = Fragment(self.scores), Fragment(self.gradients)
        self.turned = {name: ring.tiles[name].transposed() for name in ("q", "o")}
        held = fixed.consumer_wait(fixed.consumer_state())
        self.k, self.v = (held.tiles[name].rows(QUERY_ROWS * me, QUERY_ROWS) for name in ("k", "v"))
        self.key = block.row + QUERY_ROWS * me
        self.keys = [row.view(s32) + self.key for row in self.s.rows]
        self.functions = ScoreFunctions(of, call, block.batch.view(s32)) if modified(of) else None

    def run(self) -> None:
        """Process all tiles of queries that see the block, one query head after the other."""
        block, phases = self.block, self.phases()
        for member in ptx.range(block.group):
            head = (block.kv_head * block.group + member).view(s32) if self.functions is not None else None
            for begin, end, masked in phases:
                for number in ptx.range(begin, end):
                    self.step(number * self.config.tile, masked, head)
        if self.with_dk:
            Fragment(self.dk).scale_rows([self.call["factor"]] * 2)
        for name, acc, memory, wanted in (
            ("dV", self.dv, self.v, self.with_dv), ("dK", self.dk, self.k, self.with_dk)
        ):  # fmt: skip
            if wanted:
                self.store(name, acc, memory)

    def phases(self) -> list[tuple[Register, Register, bool]]:
        """Ranges of query tiles: first, end, and whether the range is masked."""
        block, of = self.block, self.of
        if self.own is not None and (of.above or of.below):  # no registers left for the ranges' bounds
            return [(block.begin, block.end, True)]
        return [*([(block.begin, block.clear, True)] if of.above else []), (block.clear, block.low, False),
                *([(block.low, block.end, True)] if of.below else [])]  # fmt: skip

    def step(self, query: Register, masked: bool, head: Register | None) -> None:
        """Process a tile of queries that starts at `query`."""
        self.multiply(self.ring.consumer_wait(self.state))
        ptx.wgmma.wait_group(1 if self.with_dk and self.functions is None else 0)
        if self.functions is not None:
            assert head is not None
            self.apply_functions(self.functions, query, head)
        if masked:
            self.hide(query)
        for at, lse2 in column_vector(self.vectors["lse2"], self.state, self.s):
            self.scores[at].set(weight(self.scores[at], self.call["scale"], lse2))
        p = self.s.as_a(self.of.dtype) if self.with_dv else []
        ptx.wgmma.wait_group(0)
        if self.with_dv:
            self.add(self.dv, p, "o", self.of.columns)
        if self.with_dk:
            self.differentiate()
            self.add(self.dk, self.ds.as_a(self.of.dtype), "q", self.of.depth)
        ptx.wgmma.wait_group(0)
        ptx.fence.proxy_async_shared_cta()  # every thread has read lse2 and delta; one thread arrives for all
        ptx.bar.sync(1 + self.me, WARPGROUP)
        self.ring.consumer_release(self.state, leader=self.leader)
        self.ring.advance(self.state, branch=False)

    def multiply(self, stage: Any) -> None:
        """Issue Sᵀ = K Qᵀ and dPᵀ = V dOᵀ, one group of wgmmas each."""
        ptx.wgmma.fence()
        wgmma_block(self.scores, self.k.first_k(self.of.depth), stage.q.first_k(self.of.depth), accumulate=False)
        ptx.wgmma.commit_group()
        if self.with_dk:
            columns = self.of.columns
            wgmma_block(self.gradients, self.v.first_k(columns), stage.o.first_k(columns), accumulate=False)
            ptx.wgmma.commit_group()

    def apply_functions(self, functions: ScoreFunctions, query: Register, head: Register) -> None:
        """Apply the caller's functions to Sᵀ and their derivatives to dPᵀ."""
        deltas = dict(column_vector(self.vectors["delta"], self.state, self.ds)) if self.with_dk else {}
        functions.apply(
            self.scores, self.gradients, head,
            lambda index: ScorePosition(self.s.column_of(index).view(s32) + query, self.keys[half_of(index)]),
            deltas.__getitem__ if self.with_dk else None,
        )  # fmt: skip

    def hide(self, query: Register) -> None:
        """Set -inf where a query does not see a key. Rows are keys here: query i sees key j if i >= j - last and
        i <= j - first."""
        last, first = self.block.last, self.block.first
        stop = [reg.scalar(s32, init=self.config.tile)] * 2
        if first is not None:
            stop = [row - first + 1 - query for row in self.keys]
        self.s.keep_columns(stop, [row - last - query for row in self.keys] if last is not None else None)

    def differentiate(self) -> None:
        """Overwrite dPᵀ with dSᵀ = Pᵀ (dPᵀ - delta)."""
        if self.functions is not None:
            for score, gradient in zip(self.scores, self.gradients, strict=True):
                gradient.set(weighted(score, gradient))
        else:
            for at, delta in column_vector(self.vectors["delta"], self.state, self.ds):
                self.gradients[at].set(self.scores[at] * (self.gradients[at] - delta))

    def add(self, sums: RegisterArray, parts: list[Any], ring: str, columns: int) -> None:
        """Issue dV += Pᵀ dO or dK += dSᵀ Q, one group of wgmmas."""
        ptx.wgmma.fence()
        wgmma_block(sums, parts, self.turned[ring][self.state.index].rows(0, columns))
        ptx.wgmma.commit_group()

    def store(self, name: str, acc: RegisterArray, memory: TileSlice) -> None:
        """Store 64 rows of dK or dV through the shared memory of their keys or values."""
        call, block = self.call, self.block
        store, heads = WholeStore(call[name], 1 + self.me), call["K"].shape[2]
        if self.own is None:
            store.store(acc, memory, lambda column: (column, block.kv_head, self.key, block.batch))
        else:
            own = self.own()
            rows = Rows(own.row + QUERY_ROWS * self.me, own.key_begin, own.keys, own.index.head(), heads)
            row, batch = rows.first + own.key_begin, reg.scalar(u32, init=0)

            def whole() -> None:
                store.store(acc, memory, lambda column: (column, rows.head, row, batch))

            store_part(whole, call[name], Fragment(acc), rows, call[name].shape[3])
        store.finish()
