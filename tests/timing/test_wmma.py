"""wmma of compiled CUDA: loads and stores of fragments pass through the memory pipe, and only wmma.mma is a product."""

import numpy as np
import pytest

from warploom.runtime.on_clock import predict, record


def registers(name: str, first: int) -> str:
    """Eight registers in braces."""
    return "{" + ", ".join(f"%{name}{number}" for number in range(first, first + 8)) + "}"


def text(turns: int) -> str:
    """The sum of `turns` products of 16 x 16 x 16, f16 in, f32 out."""
    every = "".join(
        f"""
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {registers("h", 0)}, [%p0+{512 * turn}], %n;
wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {registers("h", 8)}, [%p1+{512 * turn}], %n;
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {registers("f", 0)}, {registers("h", 0)}, {registers("h", 8)},
    {registers("f", 0)};"""
        for turn in range(turns)
    )
    zeros = "\n".join(f"mov.f32 %f{number}, 0f00000000;" for number in range(8))
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c)
{{
.reg .b32 %h<16>, %n;
.reg .f32 %f<8>;
.reg .b64 %p<3>;
ld.param.u64 %p0, [a];
ld.param.u64 %p1, [b];
ld.param.u64 %p2, [c];
mov.b32 %n, 16;
{zeros}
{every}
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%p2], {registers("f", 0)}, %n;
ret;
}}
"""


A, C = np.zeros((12, 16, 16), np.float16), np.zeros((16, 16), np.float32)


def test_only_the_product_counts_as_one():
    recording, _ = record(text(1), A, A, C, grid=1, block=32, registers=64)
    flops = {facts.opcode.split(".")[1]: facts.flops for facts in recording.pcs if facts.opcode.startswith("wmma")}
    assert flops == {"load": 0, "mma": 2 * 16**3, "store": 0}


@pytest.mark.full
def test_loads_of_fragments_take_the_memory_pipe_longer_than_products_take_the_tensor_core():
    few, many = (predict(text(turns), A, A, C, grid=132, block=32, registers=64) for turns in (4, 12))
    assert many.clocks > few.clocks
    assert many.roofs["memory pipe"] > many.roofs["tensor"] > 0
