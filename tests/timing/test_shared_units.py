"""Resources that all SMs share: the rates of L2 and DRAM, and the share of a launch in the recorded clusters."""

import pytest

from warploom.timing import H200, Launch
from warploom.timing.prediction import Predictor
from warploom.timing.recording import Operation, Recording
from warploom.timing.runs import Cost
from warploom.timing.tensor import done_flops, mma_clocks
from warploom.timing.units import Chip, Sm, together


def test_two_queues_that_are_equally_busy_give_less_than_each():
    assert together(3.0, 100.0, 100.0) == pytest.approx(79.37, rel=1e-3)
    assert together(3.0, 100.0, 1000.0) == pytest.approx(100.0, rel=1e-3)


def test_sms_that_have_drifted_apart_read_for_themselves():
    """rate.product.stages8 with 100 and with 400 repetitions, power.product, and none that shares."""
    lengths = (1e6, 13.1e6, 52.43e6, 546.7e6, 1e12)
    few, some, more, many, endless = (Chip(H200, 1.5, 132, asked=asked).network for asked in lengths)
    assert few == pytest.approx(H200["l2_short_across12_bytes_per_ns"])
    assert some == pytest.approx(H200["l2_across12_bytes_per_ns"], rel=1e-3)
    assert more == pytest.approx(11266.9, rel=1e-3)
    assert many == endless == pytest.approx(9979.0, rel=1e-3)
    assert endless > H200["l2_own_bytes_per_ns"]


def test_the_shape_of_a_wave_decides_how_many_sms_one_reading_of_l2_serves():
    """rate.product.across: two readers of each row, four, twelve, 33, 66 and all."""
    rates = [Chip(H200, 1.5, 132, asked=14e6, across=across).network for across in (4, 12, 33, 66, 132)]
    assert rates == sorted(rates, reverse=True)
    assert rates[3] == pytest.approx(9825.0, rel=0.01)
    assert rates[2] > Chip(H200, 1.5, 132, asked=14e6, across=50).network > rates[3]


def test_bytes_from_dram_and_hits_slow_each_other_down():
    mixed, streamed, hits = (Chip(H200, 1.5, 132, share, 1e6).fetch for share in (0.5, 1.0, 0.0))
    assert streamed < mixed < hits
    assert mixed < 2 * streamed


def test_a_grid_that_begins_early_gets_less_of_dram_from_a_third_and_from_a_half_of_the_sms_on():
    """launch.stream.pdl: 48 CTAs take as long as 66 do, 67 half as long again; without overlap neither is so."""
    few, third, half, more, every = (Chip(H200, 1.5, active, early=True).of_dram for active in (44, 48, 66, 67, 132))
    assert few > 1.5 * third
    assert third == half > 1.5 * more > every
    assert every == pytest.approx(H200["dram_bytes_per_ns"] / 132)
    assert Chip(H200, 1.5, 67).of_dram == pytest.approx(H200["dram_bytes_per_ns"] / 67)


def test_clusters_that_leave_sms_of_a_gpc_idle_share_its_dram_among_fewer():
    """launch.short_stream.late: 78 CTAs in clusters of three have 42 bytes per nanosecond each, single ones 39."""
    one, three, four = (Chip(H200, 1.5, 78, early=True, cluster=many).of_dram for many in (1, 3, 4))
    assert one == four
    assert three == pytest.approx(16 / 15 * one)


def test_lanes_of_all_sms_get_less_from_l2_than_copies():
    """rate.l2.read"""
    few, every = (Chip(H200, 1.98, active) for active in (1, 132))
    assert every.lanes * 1.98 * 132 == pytest.approx(H200["l2_lanes_bytes_per_ns"])
    assert few.lanes == few.fetch


def _predictor(ctas: int, written: float, out: float, loaded: float = 0.0) -> Predictor:
    recording = Recording("k", (ctas, 1, 1), (128, 1, 1), (1, 1, 1), clusters={0: [0]})
    recording.written = recording.stored = written
    recording.fetched = recording.received = recording.distant = loaded
    return Predictor(recording, H200, Launch(output_bytes=out, input_bytes=loaded))


def test_a_mean_cluster_does_less_than_the_first_where_tiles_do_not_divide():
    assert _predictor(132, 3e5, 132 * 2.58e5).scale == pytest.approx(132 * 0.86)


def test_an_output_that_is_written_twice_or_in_part_says_nothing():
    assert _predictor(132, 3e5, 132 * 1.5e5).scale == 132
    assert _predictor(132, 3e5, 132 * 9e5).scale == 132


def test_what_fits_into_l2_is_read_once():
    assert _predictor(132, 1.0, 0.0, loaded=1e5).dram_bytes == 1e5
    assert _predictor(132, 1.0, 0.0, loaded=1e8).dram_bytes > 1e8


def _product(opcode: str, n: int, k: int) -> Operation:
    return Operation("warpgroup_mma", 0, 0, 0, flops=2 * 64 * n * k, n=n, k=k, text=opcode)


def test_a_sparse_product_reads_twice_the_columns_and_does_half_of_its_flops():
    """As many clocks as a dense one of half the depth where A and B come fast enough; 64 + 2 n rows of 32 bytes do
    not."""
    dense, sparse = _product("wgmma.mma_async.sync", 256, 16), _product("wgmma.mma_async.sp.sync", 256, 32)
    assert done_flops(sparse) == done_flops(dense) == dense.flops
    assert mma_clocks(dense, H200) == 256 * H200["mma_clocks_per_column"]
    assert mma_clocks(sparse, H200) == (64 + 2 * 256) * 32 / H200["mma_shared_bytes_per_clock"]


def test_clusters_without_a_tile_do_nothing():
    """64 tiles for 132 CTAs, of which the recorded one has the first; nothing but the output can be written."""
    recording = Recording("k", (132, 1, 1), (128, 1, 1), (1, 1, 1), clusters={0: [0]})
    recording.written, recording.flops = 3e5, 1e9
    tiles = Launch(output_bytes=64 * 3e5, writable_bytes=64 * 3e5)
    assert Predictor(recording, H200, tiles).scale == pytest.approx(64)
    parts = Launch(output_bytes=64 * 3e5, writable_bytes=200 * 3e5)
    assert Predictor(recording, H200, parts).scale == 132


def test_what_is_pushed_to_another_cta_queues_up():
    """st.async of one CTA's warps: the second waits until the network has taken the first."""
    sm, chip = Sm(H200), Chip(H200, 1.5, 132)
    pushed = Operation("remote", 0, 0, 0, bytes=512)
    first, second = (sm.begin(pushed, 100.0, chip, None) for _ in range(2))
    clocks = 512 / H200["remote_bytes_per_clock"]
    assert first == (100.0, pytest.approx(100.0 + clocks), pytest.approx(100.0 + clocks + H200["remote_arrive"]))
    assert second[0] == first[1]


def _served(*streams, moved=False):
    """The warpgroups of products that were issued in this order, in the order in which they begin, and the clocks."""
    sm, product = Sm(H200), _product("wgmma.mma_async.sync", 128, 16)
    product.moved = moved
    for stream in streams:
        sm.queue(stream, product, 0.0, stream)
    order = []
    while sm.products:
        order.append(sm.serve(sm.next_product)[3])
    return "".join(order), pytest.approx(sm.free - H200["mma_start"])


def test_warpgroups_take_turns_at_the_tensor_core():
    assert _served(*"aaabbb") == ("ababab", 6 * 64)
    assert _served(*"aaab") == ("abaa", 4 * 64)


def test_a_turn_costs_more_where_the_descriptors_are_moved():
    """rate.ring.lanes with one consumer and with two."""
    assert _served(*"aaaa", moved=True)[1] == 4 * 64 + H200["moved_turn_clocks"]
    assert _served(*"abab", moved=True)[1] == 4 * (64 + H200["moved_turn_clocks"])


@pytest.mark.parametrize(("ordinary", "extra"), [(8, 0), (100, 100 * 5.04 - 64 - 100), (1000, 640 - 140)])
def test_ordinary_instructions_beside_products_get_a_slot_in_five_clocks(ordinary, extra):
    """Few find the slots of the last product; many go on at their own pace when the products are done."""
    sm, chip = Sm(H200), Chip(H200, 1.5, 132)
    for _ in range(10):
        sm.queue("a", _product("wgmma.mma_async.sync", 128, 16), 1000.0 - H200["mma_start"], None)
    sm.serve(1000.0)
    cost = Cost(ordinary, (), 0.0, 0.0, 0.0, 0.0, 0.0, (), frozenset(), ordinary, 0.0, 0.0, ordinary=ordinary)
    assert sm.execute(0, 1000.0, cost, chip) - 1000.0 == pytest.approx(ordinary + extra, rel=0.01)


def test_warps_arrive_at_their_clusters_barriers_one_after_the_other():
    """latency.cluster_barrier.w8 with eight CTAs per SM."""
    sm = Sm(H200)
    times = [sm.arrive(100.0) for _ in range(64)]
    assert times[0] == 100.0
    assert times[-1] - times[0] == pytest.approx(63 * H200["cluster_arrive_clocks"])
    assert sm.arrive(1e6) == 1e6


def test_an_sm_counts_the_arrivals_of_all_its_ctas_at_barriers_one_after_the_other():
    sm = Sm(H200)
    every = H200["bar_warp"]
    assert [sm.meet(0.0) for _ in range(3)] == [every, 2 * every, 3 * every]
    assert sm.meet(100.0) == 100.0 + every


def test_additions_of_several_ctas_to_the_same_lines_take_longer():
    """rate.bulk.add.shared: 2.6 TB/s, 3.2 if each CTA has lines of its own, and 3.9 for stores."""
    done = []
    for text, adds in (("store", "bulk_add_ratio"), (".reduce.add", "bulk_add_ratio"),
                       (".reduce.add", "bulk_add_shared_ratio")):  # fmt: skip
        operation = Operation("tma", 0, 0, 0, stores=True, bytes=1 << 20, text=text)
        _, read, _ = Sm(H200).begin(operation, 0.0, Chip(H200, 1.98, 132, adds=adds), None)
        done.append(read - H200["store_read_latency"])
    store, own, shared = done
    assert own / store == pytest.approx(H200["bulk_add_ratio"])
    assert shared / store == pytest.approx(H200["bulk_add_shared_ratio"])
