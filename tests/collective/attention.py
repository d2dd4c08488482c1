"""A small attention kernel built from parts of `collective`, to test them in an operation other than a GEMM.

One consumer warpgroup computes 64 queries of one head: S = Q Kᵀ, a mask, the softmax with running maxima, O = P V with
P in registers. K and V have separate rings. Arrays are (batch, sequence, head, dimension).
"""

from __future__ import annotations

from warploom.collective import TmaPipeline, TmaStore, each_consumer, producer, warpgroup_index
from warploom.collective.mma.fragment import Fragment, across_quad
from warploom.collective.mma.wgmma import wgmma_accumulators, wgmma_block
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32

ROWS, KEYS, DEPTH, STAGES = 64, 64, 64, 2
LOG2_E = 1.4426950408889634


def build(*, causal: bool, pinned: bool = False) -> Kernel:
    """O (B, S, H, 64) = softmax(Q Kᵀ / 8) V with K and V (B, T, H, 64), bf16."""
    scale = LOG2_E / DEPTH**0.5

    @kernel(
        in_specs=(
            Tile.operand("B", "S", "H", DEPTH, bf16, along=1, tile=(ROWS, DEPTH)),
            Tile.operand("B", "T", "H", DEPTH, bf16, along=1, tile=(KEYS, DEPTH)),
            Tile.operand("B", "T", "H", DEPTH, bf16, along=1, tile=(KEYS, DEPTH), major="MN"),
        ),
        out_specs=(Tile("B", "S", "H", DEPTH, bf16, box=(DEPTH, 1, ROWS, 1), swizzle="128B", order="rows"),),
        grid=(tiles("S", ROWS), "H", "B"),
        block=256,
        arch="sm_90a",
    )
    def attention(Q, K, V, O):  # noqa: E741 - the field's name
        row, head, batch = ptx.special.ctaid.x() * ROWS, ptx.special.ctaid.y(), ptx.special.ctaid.z()
        queries = TmaPipeline(stages=1, consumers=1, name="q", q=smem.wgmma_tile(bf16, (ROWS, DEPTH), name="Q"))
        keys = TmaPipeline(
            stages=STAGES, consumers=1, name="k", k=smem.wgmma_tile(bf16, (KEYS, DEPTH), stages=STAGES, name="K")
        )
        values = TmaPipeline(
            stages=STAGES, consumers=1, name="v",
            v=smem.wgmma_tile(bf16, (KEYS, DEPTH), major="MN", stages=STAGES, name="V"),
        )  # fmt: skip
        out = TmaStore(O, 1, epi_stages=1)
        queries.initialise(keys, values)
        blocks = (K.shape[1] + (KEYS - 1)) // KEYS
        warpgroup = warpgroup_index()
        with producer(warpgroup):
            with queries.produce(queries.producer_state()) as stage:
                ptx.tma.load(stage.q, Q.tma_desc(), (0, head, row, batch), stage.full)
            at_k, at_v = keys.producer_state(), values.producer_state()
            for block in ptx.range(blocks):
                with keys.produce(at_k) as stage:
                    ptx.tma.load(stage.k, K.tma_desc(), (0, head, block * KEYS, batch), stage.full)
                with values.produce(at_v) as stage:
                    ptx.tma.load(stage.v, V.tma_desc(), (0, head, block * KEYS, batch), stage.full)
        for me in each_consumer(warpgroup, 1):
            leader = keys.leader()
            at_k, at_v = keys.consumer_state(), values.consumer_state()
            (acc,) = wgmma_accumulators(ROWS, DEPTH, zero=True)
            (scores,) = wgmma_accumulators(ROWS, KEYS)
            largest = [reg.scalar(f32, init=float("-inf")) for _ in range(2)]
            total = [reg.scalar(f32, init=0.0) for _ in range(2)]
            query = queries.consumer_wait(queries.consumer_state())
            for block in ptx.range(blocks):
                keys.wait(at_k)
                ptx.wgmma.fence()
                wgmma_block(scores, query.q, keys.stage(at_k).k, accumulate=False)
                ptx.wgmma.commit_group()
                ptx.wgmma.wait_group(0)
                keys.consumer_release(at_k, leader=leader)
                keys.advance(at_k, branch=False)

                s = Fragment(scores, row, block * KEYS)
                s.mask(lambda i, j: (j < K.shape[1]) & (j <= i) if causal else j < K.shape[1])
                newest = s.row_max(largest)
                # a row whose keys are all masked so far has no maximum: subtract 0 instead of -inf
                base = [ptx.select(m == float("-inf"), 0.0, m * scale) for m in newest]
                shrink = [ptx.math.ex2(ptx.math.fma(old, scale, -b)) for old, b in zip(largest, base, strict=True)]
                for index, score in enumerate(scores):
                    score.set(ptx.math.ex2(ptx.math.fma(score, scale, -base[index // 2 % 2])))
                if pinned:
                    ptx.pin(*scores)
                for half, part in enumerate(s.row_sum(quad=False)):
                    total[half].set(ptx.math.fma(total[half], shrink[half], part))
                    largest[half].set(newest[half])
                Fragment(acc).scale_rows(shrink)
                probabilities = s.as_a(bf16)

                values.wait(at_v)
                ptx.wgmma.fence()
                wgmma_block(acc, probabilities, values.stage(at_v).v)
                ptx.wgmma.commit_group()
                ptx.wgmma.wait_group(0)
                values.consumer_release(at_v, leader=leader)
                values.advance(at_v, branch=False)
            Fragment(acc).scale_rows([ptx.math.rcp(across_quad(ptx.math.add, part)) for part in total])
            out.store([acc], me, row, reg.scalar(row.dtype, init=0), at=lambda i, j: (j, head, i, batch))
            out.finish()

    return attention
