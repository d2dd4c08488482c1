"""The parts of `collective` that attention needs, together in a small kernel and individually."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.collective import attention
from warploom.collective import (
    OrderedBarrier,
    TileQueue,
    TmaPipeline,
    each_consumer,
    producer,
    swizzled,
    warpgroup_index,
)
from warploom.collective.mma.wgmma import wgmma_accumulators, wgmma_block
from warploom.collective.tile import cluster
from warploom.errors import ArgumentTypeError, TraceError
from warploom.isa.swizzle import Swizzle
from warploom.lang import Tile, kernel, ptx, reg, smem
from warploom.runtime.machine import H200
from warploom.types import b32, bf16, f32, u32, u64


def expected(q, k, v, causal: bool) -> np.ndarray:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s = np.einsum("bihd,bjhd->bhij", q, k) / 8
    if causal:
        s = np.where(np.arange(k.shape[1])[None] <= np.arange(q.shape[1])[:, None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("causal, queries, keys", [(False, 64, 128), (False, 100, 150), (True, 128, 128)])
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_an_attention_kernel_is_right_and_clean(causal: bool, queries: int, keys: int, schedule: str):
    random = np.random.default_rng(queries + keys)

    def operand(length: int) -> np.ndarray:
        return (random.standard_normal((2, length, 2, 64)) * 1.5).astype(ml_dtypes.bfloat16)

    q, k, v = operand(queries), operand(keys), operand(keys)
    report = attention.build(causal=causal).emulate(q, k, v, schedule=schedule, seed=2)
    report.raise_on_findings()
    found = np.asarray(report.outputs[0], np.float64)
    # bf16 has 8 bits: P and O are rounded to it once each
    np.testing.assert_allclose(found, expected(q, k, v, causal), rtol=0, atol=4 * 2.0**-8)


def test_the_protocol_names_the_rings():
    protocol = attention.build(causal=False).protocol()
    for name in ("q.full", "k.full", "k.empty", "v.full", "v.empty"):
        assert name in protocol


def test_a_pin_keeps_the_exponentials_before_the_products_that_follow():
    """Between the waits for S and for O, all 32 exponentials of P come before the wgmmas that read P."""
    kernel_ = attention.build(causal=False, pinned=True)
    assert "nanosleep" in kernel_.ptx()
    found = kernel_.resources(sass=True)
    assert not found.serialisation_notes
    assert any(part.get("MUFU", 0) >= 32 and part.get("HGMMA", 0) for part in found.between_waits)


def test_turns_of_three_come_in_their_order():
    rounds = 3

    @kernel(out_specs=(Tile(3 * rounds, u32),), grid=(1,), block=384, arch="sm_90a")
    def subject(order):
        turns, count = OrderedBarrier(1, consumers=3), smem.array(u32, 1, name="count")
        with ptx.if_(ptx.special.tid.x() == 0):
            ptx.store(count[0], 0, dtype=u32)
        ptx.bar.sync(0)
        warpgroup = warpgroup_index()
        with ptx.if_(warpgroup > 2):
            pass
        for me in each_consumer(warpgroup, 3, first=0):
            turns.begin(me)
            for _ in range(rounds):
                turns.wait(me)
                with ptx.if_(ptx.special.tid.x() == me * 128):
                    now = ptx.load(u32, count[0])
                    ptx.store(ptx.addr(order.pointer() + now.to(u64) * 4), reg.scalar(u32, init=me))
                    ptx.store(count[0], now + 1)
                turns.pass_on(me)

    for schedule in ("lazy", "eager", "random"):
        report = subject.emulate(np.zeros(3 * rounds, np.uint32), schedule=schedule, seed=5)
        report.raise_on_findings()
        np.testing.assert_array_equal(report.outputs[0], [0, 1, 2] * rounds)


def test_turns_need_a_named_barrier_each():
    def traced(first: int, consumers: int):
        @kernel(out_specs=(Tile(1, u32),), grid=(1,), block=128, arch="sm_90a")
        def subject(out):
            OrderedBarrier(first, consumers)
            ptx.store(ptx.addr(out.pointer()), 0, dtype=u32)

        return subject.ptx()

    assert traced(13, 3)
    for first, consumers in ((14, 3), (0, 2), (1, 1)):
        with pytest.raises(TraceError):
            traced(first, consumers)


@pytest.mark.parametrize("sms, schedule", [(1, "lazy"), (3, "random"), (4, "eager")])
def test_a_queue_gives_each_tile_to_one_cta_and_resets_its_counter(sms: int, schedule: str):
    tiles, consumers = 11, 2

    @kernel(
        in_specs=(Tile(1, u32, inout=True),), out_specs=(Tile(consumers, tiles, u32),), grid=(4,), block=384,
        arch="sm_90a",
    )  # fmt: skip
    def subject(counter, out):
        queue = TileQueue(counter, reg.scalar(u32, init=tiles), consumers, order=lambda number: tiles - 1 - number)
        with ptx.if_(ptx.special.tid.x() == 0):
            queue.init_barriers()
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        warpgroup = warpgroup_index()
        with producer(warpgroup):
            for _ in queue.produce():
                pass
        for me in each_consumer(warpgroup, consumers):
            for number in queue.consume():
                with ptx.if_(ptx.special.tid.x() == 128 * (1 + me)):
                    place = out.pointer() + (queue.coordinates(number) + me * tiles).to(u64) * 4
                    ptx.atomic.add(ptx.addr(place), number + 1)

    counter, out = np.zeros(1, np.uint32), np.zeros((consumers, tiles), np.uint32)
    for launch in (1, 2):
        subject.emulate(counter, out=out, schedule=schedule, seed=launch, machine=H200(sms=sms)).raise_on_findings()
        assert counter[0] == 0
        np.testing.assert_array_equal(out, launch * np.arange(tiles, 0, -1)[None].repeat(consumers, 0))


def test_roles_that_ask_for_more_registers_than_there_are_are_refused():
    def traced(consumer_registers: int) -> str:
        @kernel(out_specs=(Tile(1, u32),), grid=(1,), block=384, registers=168, arch="sm_90a")
        def subject(out):
            warpgroup = warpgroup_index()
            with producer(warpgroup, 32):
                ptx.store(ptx.addr(out.pointer()), 0, dtype=u32)
            for _ in each_consumer(warpgroup, 2, consumer_registers):
                pass

        return subject.ptx()

    assert traced(232)
    with pytest.raises(TraceError) as refused:
        traced(240)
    assert str(168 * 384) in str(refused.value) and str(128 * (32 + 2 * 240)) in str(refused.value)


def test_expressions_are_their_instructions():
    @kernel(in_specs=(Tile(32, f32),), out_specs=(Tile(8, 32, f32),), grid=(1,), block=32, arch="sm_90a")
    def subject(x, out):
        lane = ptx.special.tid.x()
        value = ptx.load(f32, ptx.addr(x.pointer() + lane.to(u64) * 4))
        positive, kept = value > 0.0, reg.predicate(False)
        kept.set(True)
        results = [
            ptx.math.fma(value, 2.0, 1.0), ptx.math.ex2(value), ptx.math.rcp(ptx.math.abs(value)),
            ptx.math.max(value, 0.5), ptx.warp.shuffle_xor(value, 3), ptx.warp.shuffle_up(value, 1),
            ptx.select(ptx.warp.any(positive) & ~ptx.warp.all(positive) & kept, value, -1.0),
            ptx.math.lg2(ptx.math.abs(value)),
        ]  # fmt: skip
        for index, result in enumerate(results):
            ptx.store(ptx.addr(out.pointer() + (lane + index * 32).to(u64) * 4), result)

    x = np.linspace(-4, 3.9, 32, dtype=np.float32)
    report = subject.emulate(x)
    report.raise_on_findings()
    lanes = np.arange(32)
    right = [2 * x + 1, np.exp2(x), 1 / abs(x), np.maximum(x, 0.5), x[lanes ^ 3], x[np.maximum(lanes - 1, 0)], x,
             np.log2(abs(x))]  # fmt: skip
    np.testing.assert_allclose(report.outputs[0], right, rtol=1e-5, atol=1e-6)


def test_an_atomic_counter_wraps_at_its_last_value():
    @kernel(in_specs=(Tile(1, u32, inout=True),), out_specs=(Tile(6, u32),), grid=(1,), block=1, arch="sm_90a")
    def subject(counter, out):
        for index in range(6):
            ptx.store(ptx.addr(out.pointer() + index * 4), ptx.atomic.inc(ptx.addr(counter.pointer()), 2))

    counter = np.zeros(1, np.uint32)
    report = subject.emulate(counter)
    np.testing.assert_array_equal(report.outputs[0], [0, 1, 2, 0, 1, 2])


def test_a_in_registers_is_as_deep_as_b():
    @kernel(out_specs=(Tile(1, u32),), grid=(1,), block=128, arch="sm_90a")
    def subject(out):
        (acc,) = wgmma_accumulators(64, 64)
        tile = smem.wgmma_tile(bf16, (64, 64))[0]
        wgmma_block(acc, [reg.array(b32, 4) for _ in range(3)], tile)

    with pytest.raises(TraceError):
        subject.ptx()


def test_a_workspace_is_zero_at_first_and_passed_by_nobody():
    @kernel(
        in_specs={"x": Tile("N", u32), "counter": Tile(1, u32, workspace=True)}, out_specs={"out": Tile("N", u32)},
        grid=(2,), block=32, arch="sm_90a",
    )  # fmt: skip
    def subject(x, counter, out):
        lane, ctas = ptx.special.tid.x(), ptx.special.nctaid.x()
        with ptx.if_(lane == 0):
            number = ptx.atomic.inc(ptx.addr(counter.pointer()), ctas - 1)
            value = ptx.load(u32, ptx.addr(x.pointer() + number.to(u64) * 4))
            ptx.store(ptx.addr(out.pointer() + number.to(u64) * 4), value + number)

    x = np.array([10, 20], np.uint32)
    np.testing.assert_array_equal(subject(x), [10, 21])
    out = np.zeros(2, np.uint32)
    subject.emulate(x, out).raise_on_findings()
    np.testing.assert_array_equal(out, [10, 21])
    with pytest.raises(ArgumentTypeError):
        subject(x, np.zeros(1, np.uint32), out)


def test_slices_of_an_operand_of_rank_four_are_multicast():
    """Two CTAs load half of a tile of one head each, for both."""

    @kernel(
        in_specs=(Tile.operand("B", "S", "H", 64, bf16, along=1, tile=(32, 64)),), out_specs=(Tile(2, 64, 64, bf16),),
        grid=(2,), block=128, cluster=(2, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def subject(x, out):
        ring = TmaPipeline(stages=1, consumers=1, ctas=2, a=smem.wgmma_tile(bf16, (64, 64)))
        ring.initialise()
        with ptx.if_(ptx.special.tid.x() == 0):
            load = cluster.Multicast(2)
            with ring.produce(ring.producer_state()) as stage:
                load(stage.a, x, (0, 1, 0, 0), stage.full)
        stage = ring.consumer_wait(ring.consumer_state())
        row = ptx.special.tid.x() & 63
        base = (ptx.special.cluster_ctarank() * 64 + row).to(u64) * 128
        for chunk in range(8):
            place = stage.a + swizzled(row * 128 + chunk * 16, Swizzle.B128)
            ptx.store(ptx.addr(out.pointer() + base, chunk * 16), ptx.load(b32, place, vector=4))
        cluster.leave()

    x = np.random.default_rng(0).standard_normal((1, 64, 2, 64)).astype(ml_dtypes.bfloat16)
    report = subject.emulate(x)
    report.raise_on_findings()
    for cta in range(2):
        np.testing.assert_array_equal(report.outputs[0][cta], x[0, :, 1])
