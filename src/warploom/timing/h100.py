"""The H100 (80 GB, HBM3): the H200's SM with less DRAM, a slower L2 and more power per FLOP.

A source is an expression as in `hopper`, in which `h(name, field)` is a row of
benchmarks/results/nvidia-h100/microbenchmarks.json. L2's rates that were not measured are those of the H200 times the
ratio of `power.product.own`, in which each SM reads for itself.
"""

from __future__ import annotations

from dataclasses import replace

from .constants import Constant
from .hopper import H200

_L2 = 'h("power.product.own", "tb_per_s") / m("power.product.own", "tb_per_s")'
_SLOWER = 7.793 / 9.158
_OF_L2 = ("l2_", "received_bytes", "written_")

_MEASURED = {
    "dram_bytes_per_ns": Constant(3110.0, 'h("power.dram.read", "tb_per_s") * 1000'),
    "dram_turn_ns_per_byte": Constant(2.18e-5, '2 / h("power.dram.copy", "tb_per_s") / 1000 '
                                               '- 2 / h("power.dram.read", "tb_per_s") / 1000'),
    "dram_latency": Constant(824.0, 'h("rate.ldg.walk.down.dram.ctas1.w1", "clocks") * 4'),
    "dram_crowding": Constant(0.1146, '(16384 / h("rate.dram.read.one_cta", "bytes_per_ns") '
                                      '/ h("latency.ldg.dram", "ns") - 1) * (h("power.dram.read", "tb_per_s") * 1000 '
                                      '/ (132 * h("rate.dram.read.one_cta", "bytes_per_ns")) - 1)'),
    "tma_dram_ns": Constant(209.3, 'h("latency.tma.dram.rows8", "ns") - h("latency.tma.l2.rows8", "ns")'),
    "pressed_half_bytes_per_ns": Constant(30.7, 'm("launch.stream.pdl.ctas80", "bytes") / 80 '
                                                '/ h("launch.stream.pdl.ctas80", "us") / 1000'),
    "pressed_third_bytes_per_ns": Constant(52.3, 'm("launch.stream.pdl.ctas48", "bytes") / 48 '
                                                 '/ h("launch.stream.pdl.ctas48", "us") / 1000'),
    "store_bytes_per_ns": Constant(4131.0, 'h("rate.tma_store.rows64.ctas132", "bytes_per_ns_all")'),
    "cap_watts": Constant(728.2, 'h("power.wgmma.n256.ctas132", "watts")'),
    "mma_pj_per_flop": Constant(0.918, '(h("power.wgmma.n256.ctas132", "watts") - c.base_watts) '
                                       '/ h("power.wgmma.n256.ctas132", "tflops") '
                                       '* (1800 / h("power.wgmma.n256.ctas132", "clock_mhz")) ** c.voltage_exponent'),
    "dram_watts_per_tb": Constant(89.7, '(h("power.dram.read", "watts") - c.base_watts) '
                                        '/ h("power.dram.read", "tb_per_s") - c.fill_watts_per_tb'),
    "stored_watts_per_tb": Constant(40.0, '2 * (h("power.dram.copy", "watts") - c.base_watts) '
                                          '/ h("power.dram.copy", "tb_per_s") - (h("power.dram.read", "watts") '
                                          '- c.base_watts) / h("power.dram.read", "tb_per_s")'),
}  # fmt: skip
_SCALED = {
    name: Constant(one.value * _SLOWER, f"c.{name} * {_L2}")
    for name, one in H200.values.items() if name.startswith(_OF_L2)
}  # fmt: skip

H100 = replace(H200, name="H100", values={**H200.values, **_SCALED, **_MEASURED})
