"""The constants of an H200 and an H100, each with the measurement it comes from.

A source is an expression over `m(name, field)`, a row of benchmarks/results/nvidia-h200/microbenchmarks.json, over
`c.name`, another constant, and over `h`, a row of the H100's file; a test recomputes it. A constant without a
microbenchmark is "published" or "fitted", and a test limits the number of fitted ones. Rows that only
benchmarks/results/nvidia-h100/microbenchmarks.json has are clocks within one SM, which both GPUs share (of the rows
that both files have, all such clocks agree within 1 %), ratios, or the energy of bytes in L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .constants import Constant, Hardware


def _c(value: float, source: str) -> Constant:
    return Constant(value, source)


def _clocks(value: float, name: str, then: str = "") -> Constant:
    return Constant(value, f'm("{name}", "clocks"){then}')


LATENCY: Mapping[str, Constant] = {
    "none": _c(0, "published: register moves and constants are folded into other instructions"),
    "ffma": _clocks(4.23, "latency.ffma"),
    "hfma2": _clocks(8.17, "latency.hfma2"),
    "alu": _clocks(5.2, "latency.alu"),
    "imad": _clocks(4.23, "latency.imad"),
    "mufu": _clocks(17.0, "latency.mufu"),
    "convert": _clocks(18.1, "latency.convert", ' * 2 - m("latency.alu", "clocks")'),
    "divide": _clocks(90.0, "rate.divide.w4"),
    "root": _clocks(65.8, "rate.root.w4", ' * 2 - m("latency.fadd", "clocks")'),
    "reciprocal": _clocks(95.3, "rate.reciprocal.w4", ' * 2 - m("latency.fadd", "clocks")'),
    "divide64": _clocks(166.2, "rate.divide64.w4"),
    "divide_full": _clocks(45.2, "latency.divide_full"),
    "quotient": _clocks(57.1, "latency.quotient", ' * 2 - m("latency.shift", "clocks")'),
    "ffma64": _clocks(8.2, "latency.ffma64"),
    "div_called": _c(150.0, "published: stalls in the code of ptxas 13, from the call to the return, for a zero"),
    "rcp_called": _c(79.0, "published: as div_called"),
    "sqrt_called": _c(49.0, "published: as div_called"),
    "atom": _clocks(518.5, "latency.atom"),
    "shuffle": _clocks(24.0, "latency.shuffle"),
    "lds": _clocks(23.1, "latency.lds"),
    "shared_loop": _clocks(70.1, "latency.lds", " * 2 + 6 + 13 + 5"),
    "ldmatrix": _clocks(29.2, "latency.ldmatrix", ' - m("latency.alu", "clocks")'),
    "ldg": _clocks(282, "latency.ldg.l2"),
    "mma_sync": _clocks(24.0, "latency.mma_sync"),
}
"""Clocks until a dependent instruction may start. `shared_loop` is a round of an update by compare-and-swap: a load, a
swap, and the stalls that ptxas encodes around them."""

RATE: Mapping[str, Constant] = {
    "fma": _clocks(1.004, "rate.ffma.w16", " / 4 * 32 / 35"),
    "alu": _clocks(2.0, "rate.shift.w16", " / 4 * 32 / 33"),
    "either": _clocks(2.0, "rate.imad.w16", " / 4"),
    "imad": _clocks(2.0, "rate.imad.w16", " / 4"),
    "imad_wide": _clocks(4.01, "rate.product_high.w16", " / 4"),
    "half": _clocks(1.13, "rate.hfma2.w16", " / 4"),
    "mufu": _clocks(8.0, "rate.mufu.w16", " / 4"),
    "convert": _clocks(8.07, "rate.convert.w16", " / 2"),
    "fp64": _clocks(2.01, "rate.ffma64.w16", " / 4 * 32 / 35"),
    "tensor": _clocks(6.0, "rate.mma_sync.w8", " / 2"),
    "control": _c(1.0, "published: a branch a clock, CUDA programming guide"),
}
"""Clocks of a quarter's pipe per warp instruction; a measured loop of 32 has three extra instructions, one on the
ALU. A measured conversion is a pair, to an integer (F2I) and back (I2FP, which the ALU executes meanwhile)."""

MEMORY: Mapping[str, Constant] = {
    "shared_load_clocks": _clocks(1.014, "rate.lds32.w8", " / 4"),
    "branch_clocks": _c(13.0, "published: stalls in the code of ptxas 13: 13 before (the ALU: 5), 5 after"),
    "issue_clocks": _c(1.22, "fitted: a slot of the scheduler where instructions of all pipes mix"),
    "shared_store_clocks": _clocks(1.01, "rate.sts32.w8", " / 8"),
    "global_load_clocks": _clocks(1.03, "rate.ldg32.w16", " / 16"),
    "missed_sector_clocks": _c(0.5368, '(m("rate.ldg32.cg.w16", "clocks") - m("rate.ldg32.w16", "clocks")) / 16 / 4'),
    "global_store_clocks": _clocks(1.99, "rate.stg32.ctas1", " / 8"),
    "shuffle_clocks": _clocks(1.0, "rate.shuffle.w16", " / 16"),
    "l1_latency": _c(34.0, "published: 33 to 38 clocks, arXiv 2402.13499"),
    "dram_latency": _clocks(850.0, "rate.ldg.walk.down.dram.ctas1.w1", " * 4"),
    "dram_chase_latency": _clocks(675.7, "latency.ldg.dram"),
    "fill_bytes_per_ns": _c(164.6, 'm("rate.product.stages8.ctas12", "bytes_per_ns")'),
    "fill_alone_bytes_per_ns": _c(126.1, 'm("rate.product.own.ctas33", "bytes_per_ns")'),
    "pressed_half_bytes_per_ns": _c(38.8, 'm("launch.stream.pdl.ctas80", "bytes") / 80 '
                                          '/ m("launch.stream.pdl.ctas80", "us") / 1000'),
    "pressed_third_bytes_per_ns": _c(65.4, 'm("launch.stream.pdl.ctas48", "bytes") / 48 '
                                           '/ m("launch.stream.pdl.ctas48", "us") / 1000'),
    "received_bytes_per_ns": _c(13163.0, 'm("rate.tma.multicast2.rows128.ctas132", "bytes_per_ns_all")'),
    "l2_own_bytes_per_ns": _c(9158.0, 'm("power.product.own", "tb_per_s") * 1000'),
    "l2_lanes_bytes_per_ns": _c(8350.0, 'm("rate.l2.read.per_sm4.vectors4", "bytes_per_ns_all")'),
    "in_step_bytes": _c(13107200.0, 'm("rate.product.stages8.ctas132", "repetitions") * 8 * 16384'),
    "drifting_bytes": _c(52428800.0, 'm("rate.product.long400.ctas132", "repetitions") * 8 * 16384'),
    "drifting_share": _c(0.5486, '(m("rate.product.long400.ctas132", "bytes_per_ns_all") - c.l2_own_bytes_per_ns) '
                                 '/ (m("rate.product.stages8.ctas132", "bytes_per_ns_all") - c.l2_own_bytes_per_ns)'),
    "drifted_bytes": _c(546.7e6, 'm("power.product", "ms") * m("power.product", "tb_per_s") * 1e9 / 132'),
    "drifted_share": _c(0.2135, '(m("power.product", "tb_per_s") * 1000 - c.l2_own_bytes_per_ns) '
                                '/ (m("rate.product.stages8.ctas132", "bytes_per_ns_all") - c.l2_own_bytes_per_ns)'),
    "l2_across2_bytes_per_ns": _c(13577.9, 'm("rate.product.across2.long100", "bytes_per_ns_all")'),
    "l2_across4_bytes_per_ns": _c(14902.8, 'm("rate.product.across4.long100", "bytes_per_ns_all")'),
    "l2_across12_bytes_per_ns": _c(13003.0, 'm("rate.product.stages8.ctas132", "bytes_per_ns_all")'),
    "l2_across33_bytes_per_ns": _c(11675.1, 'm("rate.product.across33.long100", "bytes_per_ns_all")'),
    "l2_across66_bytes_per_ns": _c(9825.0, 'm("rate.product.across66.long100", "bytes_per_ns_all")'),
    "l2_across132_bytes_per_ns": _c(8234.4, 'm("rate.product.across132.long100", "bytes_per_ns_all")'),
    "short_bytes": _c(1572864.0, 'm("rate.product.long12.ctas132", "repetitions") * 8 * 16384'),
    "l2_short_across2_bytes_per_ns": _c(13187.1, 'm("rate.product.across2.long12", "bytes_per_ns_all")'),
    "l2_short_across4_bytes_per_ns": _c(17873.5, 'm("rate.product.across4.long12", "bytes_per_ns_all")'),
    "l2_short_across12_bytes_per_ns": _c(14043.4, 'm("rate.product.long12.ctas132", "bytes_per_ns_all")'),
    "l2_short_across33_bytes_per_ns": _c(11225.0, 'm("rate.product.across33.long12", "bytes_per_ns_all")'),
    "l2_short_across66_bytes_per_ns": _c(10201.4, 'm("rate.product.across66.long12", "bytes_per_ns_all")'),
    "l2_short_across132_bytes_per_ns": _c(7788.8, 'm("rate.product.across132.long12", "bytes_per_ns_all")'),
    "queue_sharpness": _c(3.0, "fitted: how far two queues in a row fall short of the slower one"),
    "dram_bytes_per_ns": _c(4635.0, 'm("power.dram.read", "tb_per_s") * 1000'),
    "dram_turn_ns_per_byte": _c(7.32e-5, '2 / m("power.dram.copy", "tb_per_s") / 1000 '
                                        '- 2 / m("power.dram.read", "tb_per_s") / 1000'),
    "tma_latency_ns": _c(184.8, 'm("latency.tma.l2.rows64", "ns") - m("latency.mbarrier.ping_pong", "ns") / 4 '
                                '- 64 * 128 / c.fill_bytes_per_ns'),
    "tma_least_ns": _c(225.2, 'm("latency.tma.l2.rows8", "ns") - m("latency.mbarrier.ping_pong", "ns") / 4'),
    "tma_dram_ns": _c(216.8, 'm("latency.tma.dram.rows8", "ns") - m("latency.tma.l2.rows8", "ns")'),
    "tma_issue_clocks": _c(26.65, 'm("rate.tma.l2.rows8.ctas1", "clocks") '
                                  '- m("latency.mbarrier.passed_wait", "clocks")'),
    "tma_repeated_clocks": _c(63.2, '(64 * m("rate.tma.issue.rows1.many64.w1", "clocks") '
                                 '- 16 * m("rate.tma.issue.rows1.many16.w1", "clocks")) / 48'),
    "tma_row_clocks": _clocks(1.25, "rate.tma.l2.rows64.ctas1", " / 64"),
    "tma_outside_row_clocks": _c(1.225, 'm("rate.tma.l2.outside128.ctas1", "clocks") / 128'),
    "tma_outside_crowd_clocks": _c(0.0292, '(m("rate.tma.l2.outside128.ctas132", "clocks") / 128 '
                                           '- c.tma_outside_row_clocks) / 131'),
    "store_bytes_per_clock": _c(31.7, 'm("rate.tma_store.rows64.ctas1", "bytes_per_clock")'),
    "store_bytes_per_ns": _c(4849.0, 'm("rate.tma_store.rows64.ctas132", "bytes_per_ns_all")'),
    "store_read_latency": _c(149.0, 'm("latency.tma_store.read.rows64", "clocks") '
                                    '- m("rate.tma_store.rows64.ctas1", "clocks")'),
    "store_latency": _c(150.0, 'm("latency.tma_store.done.rows64", "clocks") '
                               '- m("rate.tma_store.rows64.ctas1", "clocks")'),
    "written_bytes_per_ns": _c(7228.0, 'm("rate.stg.words.ctas528", "bytes_per_ns") * 4 * 132'),
    "written_lines_per_ns": _c(74.75, 'm("rate.stg.lines.ctas528", "bytes_per_ns_all") / 4'),
    "update_store_ratio": _c(2.173, 'm("rate.stg.words.ctas528", "bytes_per_ns") * 528 '
                                    '/ (m("rate.red.lines.ctas528", "bytes_per_ns_all") * 8)'),
    "update_line_ns": _c(0.646, 'm("rate.red.same.ctas132", "ns") / 8 / 132'),
    "update_float_ns": _c(1.731, 'm("rate.red_f32.same.ctas132", "ns") / 8 / 132 / 32'),
    "update_few1_ns": _c(6.21, '1 * 128 / (m("rate.red.few1.ctas528", "bytes_per_ns_all") * 1.0)'),
    "update_few8_ns": _c(9.62, '8 * 128 / (m("rate.red.few8.ctas528", "bytes_per_ns_all") * 8.0)'),
    "update_few32_ns": _c(3.94, '32 * 128 / (m("rate.red.few32.ctas528", "bytes_per_ns_all") * 23.86)'),
    "update_few128_ns": _c(4.95, '128 * 128 / (m("rate.red.few128.ctas528", "bytes_per_ns_all") * 23.86)'),
    "dram_first_ns": _c(317.3, '1000 * (m("launch.first.read.far.ctas132", "us") * 2 '
                               '- m("launch.first.read.warm.ctas132", "us") * 2 '
                               '- m("launch.first.twice.far.ctas132", "us") '
                               '+ m("launch.first.twice.warm.ctas132", "us"))'),
    "dram_crowding": _c(0.207, '(16384 / m("rate.dram.read.one_cta", "bytes_per_ns") / m("latency.ldg.dram", "ns") - 1)'
                               ' * (c.dram_bytes_per_ns / (132 * m("rate.dram.read.one_cta", "bytes_per_ns")) - 1)'),
    "box_crowding_ns": _c(369.6, '(3 * m("rate.tma.dram.rows32.stages3.ctas132", "ns") '
                                 '- m("latency.tma.dram.rows8", "ns") '
                                 '- 24 / 56 * (m("latency.tma.dram.rows64", "ns") - m("latency.tma.dram.rows8", "ns")) '
                                 '- 32 * 128 * (132 / h("power.dram.read", "tb_per_s") / 1000 '
                                 '- 1 / c.fill_bytes_per_ns)'
                                 ') * (h("power.dram.read", "tb_per_s") * 1000 '
                                 '/ m("rate.tma.dram.rows32.stages3.ctas132", "bytes_per_ns_all") - 1)'),
    "bulk_add_ratio": _c(1.249, 'm("rate.bulk.add.ctas1", "clocks") / m("rate.bulk.store.ctas1", "clocks")'),
    "bulk_add_shared_ratio": _c(1.506, 'h("rate.bulk.store.ctas132", "bytes_per_ns_all") '
                                       '/ h("rate.bulk.add.shared.ctas132", "bytes_per_ns_all")'),
    "store_queue_bytes": _c(16384.0, "published: none; the stores of a warp that wait in the memory pipe"),
}  # fmt: skip
"""Memory: clocks of the SM's memory pipe per wavefront (of loads and stores), latencies, rates.

In one microbenchmark of shared-memory loads ptxas kept half of the loads: eight warps, four passes.

`branch_clocks` is what a conditional branch costs besides its comparison: nothing after it starts before the condition
is known. It is a published value. `rate.clear`, loops of few stores, is predicted 42 to 63 % too fast with it: ptxas
unrolls the inner loop, and the rest of its trips, predicated, costs nearly nothing here (docs/measured-facts.md).

`tma_outside_crowd_clocks` is what a row outside of an array costs more for each other SM that also asks for such rows.
They go to one place, so one CTA has them as fast as any others, and 132 get 26 of them in a clock together.

`missed_sector_clocks` is the extra time of a load per sector requested from L2. The cost is not per load or per line:
the 1024 loads of rate.ldg.pending.again4.w32, of which one in four misses a sector of its own line, take 1.23 clocks
each. There is no cost if another warp has requested the sector before: the loads of rate.ldg.pending.w32.ctas264, two
CTAs per SM, take 1.86.

`update_few32_ns` is the time of a warp's request per line, for 32 lines whose words are updated in mixed order: the
lanes of a warp touch 23.86 lines there, and as many of 128. Updates of one word of a line take `update_line_ns`."""

TENSOR: Mapping[str, Constant] = {
    "mma_clocks_per_column": _clocks(0.5, "rate.wgmma.bf16.n256.ss.g2", " / 512"),
    "mma_shared_bytes_per_clock": _c(127.0, '2 * (64 + 64) * 32 / m("rate.wgmma.bf16.n64.ss.g2", "clocks")'),
    "mma_f64_flops_per_clock": _c(62.45, '2 * 2 * 16 * 8 * 16 / m("rate.mma_f64.w8", "clocks")'),
    "mma_least_clocks": _clocks(11.9, "rate.wgmma.bf16.n8.rs", " - 4"),
    "umma_clocks_per_column": _c(0.5, "published: B200 data sheet; a column of 128 rows, 32 bytes of k"),
    "tensor_memory_bytes_per_clock": _c(128.0, "published: none; 32 lanes of 32 bits in a clock, for each quarter"),
    "tensor_memory_latency": _clocks(23.1, "latency.lds"),
    "mufu_beside_ratio": _c(1.285, '2048 / (2 * 192 * 8 - (m("rate.beside.ss.mufu.192", "clocks") '
                                   '- m("rate.beside.ss.ffma.0", "clocks")) * 16)'),
    "beside_issue_clocks": _c(5.04, '2048 / (2 * 288 - (m("rate.softmax.pair.all.overlap", "clocks") - 2048))'),
    "moved_turn_clocks": _c(5.35, '(m("rate.ring.lanes.c2.n32", "clocks") - m("rate.ring.uniform.c2.n32", "clocks") '
                                  '+ m("rate.ring.lanes.c2.n128", "clocks") '
                                  '- m("rate.ring.uniform.c2.n128", "clocks")) / 16'),
    "mma_start": _c(31.9, '(m("latency.wgmma.group4.n256.ss", "clocks") * 4 - 512) / 2'),
    "mma_drain": _c(31.9, '(m("latency.wgmma.group4.n256.ss", "clocks") * 4 - 512) / 2'),
}  # fmt: skip

_EXPOSED = '(m("launch.prologue.spin.ctas{0}", "us") - m("launch.prologue.none.ctas{0}", "us")) / 2000 * 1980'

SYNCHRONISATION: Mapping[str, Constant] = {
    "mbarrier_arrive": _clocks(43.5, "latency.mbarrier.ping_pong", " / 4"),
    "mbarrier_wait": _clocks(43.5, "latency.mbarrier.ping_pong", " / 4"),
    "remote_bytes_per_clock": _c(16.93, '32768 / (64 * (m("rate.st_async.w8.cluster2.ctas132", "clocks") '
                                 '+ m("rate.st_async.w8.cluster2.ctas2", "clocks") '
                                 '- m("rate.st_async.w4.cluster2.ctas2", "clocks")))'),
    "remote_latency": _clocks(189.3, "latency.lds_remote"),
    "remote_arrive": _c(94.4, 'm("latency.mbarrier.remote_relaxed", "clocks") / 2 '
                              '- m("latency.mbarrier.ping_pong", "clocks") / 4'),
    "bar": _clocks(16.5, "latency.bar_sync.w1"),
    "bar_warp": _c(2.0, '(m("latency.bar_sync.w32", "clocks") - m("latency.bar_sync.w1", "clocks")) / 31'),
    "cluster_arrive_clocks": _clocks(17.9, "latency.cluster_barrier.w8.ctas1056", " / 64"),
    "remote_load_bytes_per_clock": _c(13.2, 'm("rate.lds_remote.w8.cluster4.ctas132", "bytes_per_clock")'),
    "cluster_bar": _clocks(338, "latency.cluster_barrier"),
    "fence_proxy": _clocks(16.36, "latency.fence.proxy_async"),
    "fence_proxy_all": _clocks(148, "latency.fence.proxy_async_all"),
    "fence_gpu": _clocks(275, "latency.fence.gpu"),
    "fence_cta": _clocks(13.0, "latency.fence.cta"),
    "cta_start": _c(451.8, '(m("launch.waves8", "us") - m("launch.one_wave", "us")) / 7 * 1980'),
    "cta_every": _c(155.7, '(m("launch.rate.threads256", "us") - m("launch.one_cta", "us")) / 256 * 1980'),
    "cluster2_cta_every": _c(233.9, 'c.cluster4_cta_every + (m("launch.short.empty.cluster2", "us") '
                                    '- m("launch.short.empty.cluster4", "us")) / 64 * 1980'),
    "cluster4_cta_every": _c(196.5, '(m("launch.rate.cluster4", "us") - m("launch.one_cta", "us")) / 256 * 1980'),
    "cluster8_cta_every": _c(174.0, 'c.cluster4_cta_every - (m("launch.short.empty.cluster4", "us") '
                                    '- m("launch.short.empty.cluster8", "us")) / 64 * 1980'),
    "warp_every": _c(7.21, '(m("launch.rate.threads1024", "us") - m("launch.one_cta", "us")) / 256 * 1980 / 32'),
    "exposed72": _c(0.4019, _EXPOSED.format(72)),
    "exposed80": _c(0.4188, _EXPOSED.format(80)),
    "exposed108": _c(0.6074, _EXPOSED.format(108)),
    "exposed132": _c(0.9194, _EXPOSED.format(132)),
    "launch_us": _c(0.6873, 'm("launch.spin", "us") - (5000 + c.cta_start) / 1980'),
    "launch_pdl_us": _c(0.3604, 'm("launch.pdl.late", "us") - (5000 + c.cta_start) / 1980'),
}  # fmt: skip

# A load that runs below the ceiling of its clock draws the cap, which NVML's mean misses by a few per cent. So the
# energy of `power.mma_sync` counts `cap_watts` instead of the row's watts, and that of f16 products compares two rows.
FOUR_ROWS = "fitted: base + energy x (clock / 1.8)^exponent to the rows power.wgmma.n256.ctas33, 66, 99 and 132"

POWER: Mapping[str, Constant] = {
    "cap_watts": _c(700.0, "published: H200 SXM data sheet"),
    "burst_watts": _c(856.0, 'c.base_watts + c.mma_pj_per_flop * m("power.wgmma.n256.ctas132", "tflops") '
                            '* m("burst.wgmma.n256.ctas132", "clock_mhz") / m("power.wgmma.n256.ctas132", "clock_mhz") '
                            '* (m("burst.wgmma.n256.ctas132", "clock_mhz") / 1800) ** c.voltage_exponent'),
    "base_watts": _c(119.7, FOUR_ROWS),
    "mma_pj_per_flop": _c(0.842, FOUR_ROWS),
    "mma_zeros_pj_per_flop": _c(0.1742, '(m("power.wgmma.n256.zeros", "watts") - c.base_watts) '
                                         '/ m("power.wgmma.n256.zeros", "tflops") * (c.tensor_ghz / c.tensor_full_ghz) '
                                         '** c.voltage_exponent'),
    "narrow_energy_ratio": _c(0.5378, '(m("power.wgmma.e4m3.n256", "watts") - c.base_watts) '
                              '/ m("power.wgmma.e4m3.n256", "tflops")'
                              ' / c.mma_pj_per_flop '
                              '* (1.8 / m("power.wgmma.e4m3.n256", "clock_mhz") * 1000) ** c.voltage_exponent'),
    "f16_energy_ratio": _c(1.118, 'm("power.wgmma.n256.ctas132", "tflops") / m("power.wgmma.f16.n256", "tflops") '
                           '* (m("power.wgmma.n256.ctas132", "clock_mhz") / m("power.wgmma.f16.n256", "clock_mhz")) '
                           '** c.voltage_exponent'),
    "sparse_energy_ratio": _c(1.26, '((m("power.wgmma_sp.bf16.n192", "watts") - c.base_watts) '
                             '/ m("power.wgmma_sp.bf16.n192", "tflops") '
                             '* (1800 / m("power.wgmma_sp.bf16.n192", "clock_mhz")) ** c.voltage_exponent '
                             '+ (m("power.wgmma_sp.bf16.n256", "watts") - c.base_watts) '
                             '/ m("power.wgmma_sp.bf16.n256", "tflops") '
                             '* (1800 / m("power.wgmma_sp.bf16.n256", "clock_mhz")) ** c.voltage_exponent) '
                             '/ 2 / c.mma_pj_per_flop'),
    "mma_f64_pj_per_flop": _c(6.93, '(m("power.mma_f64", "watts") - c.base_watts) / m("power.mma_f64", "tflops") '
                             '* (1800 / m("power.mma_f64", "clock_mhz")) ** c.voltage_exponent'),
    "mma_sync_pj_per_flop": _c(1.038, '(c.cap_watts - c.base_watts) / m("power.mma_sync", "tflops") '
                                      '* (1800 / m("power.mma_sync", "clock_mhz")) ** c.voltage_exponent'),
    "instruction_nj": _c(0.2165, '(m("power.alu", "watts") - c.base_watts) * m("power.alu", "clocks") '
                                '/ (132 * m("power.alu", "clock_mhz") / 1000) '
                                '* (c.tensor_ghz / c.nominal_ghz) ** c.voltage_exponent'),
    "mufu_nj": _c(0.75, '((m("power.chaos.exponentials", "watts") - c.base_watts) '
                        '* m("power.chaos.exponentials", "clocks") * 4 '
                        '- (m("power.chaos.floats", "watts") - c.base_watts) * m("power.chaos.floats", "clocks") * 3) '
                        '/ (132 * c.nominal_ghz) * (c.tensor_ghz / c.nominal_ghz) ** c.voltage_exponent'),
    "shared_watts_per_tb": _c(3.37, '(m("power.lds128", "watts") - c.base_watts) / m("power.lds128", "tb_per_s") * 2 '
                                   '* (c.tensor_ghz / c.nominal_ghz) ** c.voltage_exponent'),
    "read_watts_per_tb": _c(21.7, '4 / 3 * ((m("power.product.own", "watts") - c.base_watts) '
                                  '/ m("power.product.own", "tb_per_s") '
                                  '- (m("power.multicast4", "watts") - c.base_watts) '
                                  '/ m("power.multicast4", "tb_per_s"))'),
    "received_watts_per_tb": _c(8.4, '(m("power.product.own", "watts") - c.base_watts) '
                                     '/ m("power.product.own", "tb_per_s") - c.read_watts_per_tb'),
    "moved_zeros_ratio": _c(0.6285, '(m("power.product.zeros", "watts") - c.base_watts) '
                                    '/ m("power.product.zeros", "tb_per_s") * m("power.product", "tb_per_s") '
                                    '/ (m("power.product", "watts") - c.base_watts)'),
    "dram_watts_per_tb": _c(60.1, '(m("power.dram.read", "watts") - c.base_watts) / m("power.dram.read", "tb_per_s") '
                                  '- c.read_watts_per_tb - c.received_watts_per_tb'),
    "stored_watts_per_tb": _c(23.6, '2 * (m("power.dram.copy", "watts") - c.base_watts) '
                                    '/ m("power.dram.copy", "tb_per_s") '
                                    '- (m("power.dram.read", "watts") - c.base_watts) '
                                    '/ m("power.dram.read", "tb_per_s")'),
    "sent_watts_per_tb": _c(41.2, '(m("power.bulk.store", "watts") - c.base_watts) '
                                  '/ m("power.bulk.store", "tb_per_s")'),
    "added_watts_per_tb": _c(52.8, '(m("power.bulk.add", "watts") - c.base_watts) / m("power.bulk.add", "tb_per_s")'),
    "voltage_exponent": _c(1.9, FOUR_ROWS),
    "tensor_ghz": _c(1.8, 'm("power.wgmma.n256.ctas33", "clock_mhz") / 1000'),
    "tensor_full_ghz": _c(1.755, 'm("power.wgmma.n256.zeros", "clock_mhz") / 1000'),
    "nominal_ghz": _c(1.98, 'm("power.ffma", "clock_mhz") / 1000'),
}  # fmt: skip

H200 = Hardware(
    "H200", sms=132, shared_per_sm=233472, registers_per_sm=65536, warps_per_sm=64, ctas_per_sm=32,
    latency=LATENCY, rate=RATE, values={**MEMORY, **TENSOR, **SYNCHRONISATION, **POWER},
)  # fmt: skip

# -- the H100 ------------------------------------------------------------------------------------------------------

_OWN = 'h("power.product.own", "tb_per_s") / m("power.product.own", "tb_per_s")'
_SLOWER = 7.793 / 9.158
_RATES_OF_L2 = ("l2_", "received_bytes", "written_")

_MEASURED = {
    "dram_bytes_per_ns": Constant(3110.0, 'h("power.dram.read", "tb_per_s") * 1000'),
    "dram_turn_ns_per_byte": Constant(2.18e-5, '2 / h("power.dram.copy", "tb_per_s") / 1000 '
                                               '- 2 / h("power.dram.read", "tb_per_s") / 1000'),
    "dram_latency": Constant(824.0, 'h("rate.ldg.walk.down.dram.ctas1.w1", "clocks") * 4'),
    "dram_chase_latency": Constant(686.8, 'h("latency.ldg.dram", "clocks")'),
    "dram_crowding": Constant(0.1146, '(16384 / h("rate.dram.read.one_cta", "bytes_per_ns") '
                                      '/ h("latency.ldg.dram", "ns") - 1) * (h("power.dram.read", "tb_per_s") * 1000 '
                                      '/ (132 * h("rate.dram.read.one_cta", "bytes_per_ns")) - 1)'),
    "tma_dram_ns": Constant(209.3, 'h("latency.tma.dram.rows8", "ns") - h("latency.tma.l2.rows8", "ns")'),
    "pressed_half_bytes_per_ns": Constant(30.7, 'm("launch.stream.pdl.ctas80", "bytes") / 80 '
                                                '/ h("launch.stream.pdl.ctas80", "us") / 1000'),
    "pressed_third_bytes_per_ns": Constant(52.3, 'm("launch.stream.pdl.ctas48", "bytes") / 48 '
                                                 '/ h("launch.stream.pdl.ctas48", "us") / 1000'),
    "store_bytes_per_ns": Constant(4131.0, 'h("rate.tma_store.rows64.ctas132", "bytes_per_ns_all")'),
    "remote_bytes_per_clock": Constant(12.14, '32768 / (64 * (h("rate.st_async.w8.cluster2.ctas132", "clocks") '
                                              '+ h("rate.st_async.w8.cluster2.ctas2", "clocks") '
                                              '- h("rate.st_async.w4.cluster2.ctas2", "clocks")))'),
    "cap_watts": Constant(728.2, 'h("power.wgmma.n256.ctas132", "watts")'),
    "mma_pj_per_flop": Constant(0.918, '(h("power.wgmma.n256.ctas132", "watts") - c.base_watts) '
                                       '/ h("power.wgmma.n256.ctas132", "tflops") '
                                       '* (1800 / h("power.wgmma.n256.ctas132", "clock_mhz")) ** c.voltage_exponent'),
    "moved_zeros_ratio": Constant(0.664, '(h("power.product.zeros", "watts") - c.base_watts) '
                                         '/ h("power.product.zeros", "tb_per_s") * h("power.product", "tb_per_s") '
                                         '/ (h("power.product", "watts") - c.base_watts)'),
    "dram_watts_per_tb": Constant(87.7, '(h("power.dram.read", "watts") - c.base_watts) '
                                        '/ h("power.dram.read", "tb_per_s") - c.read_watts_per_tb '
                                        '- c.received_watts_per_tb'),
    "stored_watts_per_tb": Constant(40.0, '2 * (h("power.dram.copy", "watts") - c.base_watts) '
                                          '/ h("power.dram.copy", "tb_per_s") - (h("power.dram.read", "watts") '
                                          '- c.base_watts) / h("power.dram.read", "tb_per_s")'),
}  # fmt: skip
_SCALED = {
    name: Constant(one.value * _SLOWER, f"c.{name} * {_OWN}")
    for name, one in H200.values.items() if name.startswith(_RATES_OF_L2)
}  # fmt: skip

H100 = replace(H200, name="H100", values={**H200.values, **_SCALED, **_MEASURED})
"""An H100 of 80 GB with HBM3: the H200's SM with less DRAM, a slower L2 and more power per FLOP.

L2's rates that were not measured are those of the H200 times the ratio of `power.product.own`, in which each SM reads
for itself."""
