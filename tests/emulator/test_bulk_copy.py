"""Plain bulk copies, reductions, groups, asynchronous stores through PTX. PTX ISA 9.7.9.25.4, 9.7.9.27.2, 9.7.9.12."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, cluster_sync, dump, emulate, fill, init, wait, words
from tests.errors import refused
from warploom.emulator.numerics.reductions import combine
from warploom.isa import dtypes

LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def load(size: int, offset: int = 0, source: str = "%a0") -> str:
    return f"""
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    @%first {LOAD} [tile+{offset}], [{source}], {size}, [bar];
    """


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("size", [16, 48, 4096])
def test_a_bulk_load_brings_its_bytes(size, schedule, seed):
    source, out = words(1024), np.zeros(1024, np.uint32)
    emulate(init(1) + load(size) + wait(0) + dump("%a1", size), source, out, schedule=schedule, seed=seed)
    assert np.array_equal(out[: size // 4], source[: size // 4])


def test_without_the_wait_the_destination_is_poison():
    out = np.zeros(256, np.uint32)
    emulate(init(1) + load(1024) + "bar.sync 0;" + dump("%a1", 1024), words(256), out)
    assert (out == 0xFFFFFFFF).all()


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_a_bulk_store_writes_its_bytes(schedule, seed):
    source, out = words(256), np.zeros(256, np.uint32)
    store = """
    @%first cp.async.bulk.global.shared::cta.bulk_group [%a1], [tile], 512;
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group 0;
    """
    emulate(fill("%a0", 1024) + store, source, out, schedule=schedule, seed=seed)
    assert np.array_equal(out[:128], source[:128]) and not out[128:].any()


def test_wait_group_leaves_the_newest_groups_pending():
    """Thread 0 stores twice in two groups and waits for all but one: the first is visible, the second may not be."""
    out, seen = np.zeros(8, np.uint32), np.zeros(2, np.uint32)
    body = """
    @!%first bra end;
    st.shared.u32 [tile], 5;
    fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [tile], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%a0+16], [tile], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group {newest};
    ld.global.u32 %r1, [%a0];
    ld.global.u32 %r2, [%a0+16];
    st.global.u32 [%a1], %r1;
    st.global.u32 [%a1+4], %r2;
    end:
    """
    emulate(body.replace("{newest}", "1"), out, seen)
    assert seen.tolist() == [5, 0]
    out[...] = 0
    emulate(body.replace("{newest}", "0"), out, seen)
    assert seen.tolist() == [5, 5]


def test_wait_group_read_does_not_wait_for_the_writes():
    out, seen = np.zeros(4, np.uint32), np.zeros(1, np.uint32)
    body = """
    @!%first bra end;
    st.shared.u32 [tile], 5;
    fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [tile], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    st.shared.u32 [tile], 6;
    ld.global.u32 %r1, [%a0];
    st.global.u32 [%a1], %r1;
    end:
    """
    emulate(body, out, seen)
    assert seen[0] == 0
    assert out[0] == 5


def test_groups_belong_to_their_thread():
    """Thread 1 waits for groups that thread 0 committed: it has none, so it waits for nothing."""
    out, seen = np.zeros(4, np.uint32), np.full(1, 9, np.uint32)
    body = """
    @%first st.shared.u32 [tile], 5;
    @%first cp.async.bulk.global.shared::cta.bulk_group [%a0], [tile], 16;
    @%first cp.async.bulk.commit_group;
    @!%first cp.async.bulk.wait_group 0;
    setp.eq.u32 %p1, %idx, 1;
    @%p1 ld.global.u32 %r1, [%a0];
    @%p1 st.global.u32 [%a1], %r1;
    """
    emulate(body, out, seen)
    assert seen[0] == 0 and out[0] == 5


REDUCE = [
    ("add.u32", np.uint32), ("add.s32", np.int32), ("add.u64", np.uint64), ("add.f32", np.float32),
    ("add.f64", np.float64), ("add.noftz.f16", np.float16), ("add.noftz.bf16", ml_dtypes.bfloat16),
    ("min.s64", np.int64), ("max.u32", np.uint32), ("max.bf16", ml_dtypes.bfloat16), ("and.b64", np.uint64),
    ("xor.b32", np.uint32), ("inc.u32", np.uint32), ("dec.u32", np.uint32),
]  # fmt: skip


@pytest.mark.parametrize("opcode, dtype", REDUCE, ids=[opcode for opcode, _ in REDUCE])
def test_a_bulk_reduction_into_global_memory(opcode, dtype):
    kind = np.dtype(dtype)
    rng = np.random.default_rng(5)
    count = 256 // kind.itemsize
    old, new = rng.integers(0, 90, count).astype(kind), rng.integers(0, 90, count).astype(kind)
    result = old.copy()
    body = f"""
    @%first cp.reduce.async.bulk.global.shared::cta.bulk_group.{opcode} [%a1], [tile], 256;
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group 0;
    """
    emulate(fill("%a0", 256) + body, new.view(np.uint8), result.view(np.uint8))
    operation = opcode.split(".")[0]
    rule = {
        "add": lambda: old + new, "min": lambda: np.minimum(old, new), "max": lambda: np.maximum(old, new),
        "and": lambda: old & new, "xor": lambda: old ^ new, "inc": lambda: np.where(old >= new, 0, old + 1),
        "dec": lambda: np.where((old == 0) | (old > new), new, old - 1),
    }[operation]  # fmt: skip
    assert np.array_equal(result, rule().astype(kind))


def test_additions_keep_subnormals_as_an_h200_does():
    tiny = np.full(1, 1e-40, np.float32)
    assert combine("add", dtypes.f32, tiny, np.zeros(1, np.float32))[0] == tiny[0]
    half = np.full(1, 6e-8, np.float16)
    assert combine("add", dtypes.f16, half, np.zeros(1, np.float16))[0] == half[0] != 0


def test_the_smaller_of_a_number_and_nan_is_the_number():
    for dtype in (dtypes.f16, dtypes.bf16):
        pair = np.array([np.nan, 2], dtype.numpy), np.array([1, np.nan], dtype.numpy)
        assert combine("min", dtype, *pair).astype(float).tolist() == [1, 2]
        assert combine("max", dtype, *pair).astype(float).tolist() == [1, 2]


# -- between CTAs ------------------------------------------------------------------------------------------------

TO_THE_OTHER = """
    mov.u32 %r1, %cluster_ctarank;
    xor.b32 %r2, %r1, 1;
    mapa.shared::cluster.u32 %r3, %tile, %r2;
    mapa.shared::cluster.u32 %r4, %bar, %r2;
    mul.wide.u32 %rd1, %r1, 256;
    add.u64 %rd2, %rd1, %a0;
    add.u64 %rd3, %rd1, %a1;
"""


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_a_copy_to_the_other_ctas_shared_memory(schedule, seed):
    source, out = words(128), np.zeros(128, np.uint32)
    emulate(
        init(1) + TO_THE_OTHER + fill("%rd2", 256)
        + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;\n" + cluster_sync()
        + """
        @%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
            [%r3+8192], [tile], 256, [%r4];
        """
        + wait(0) + dump("%rd3", 256, start=8192) + cluster_sync(),
        source, out, grid=2, cluster=2, schedule=schedule, seed=seed,
    )  # fmt: skip
    assert np.array_equal(out, np.roll(source, 64))


def test_a_reduction_into_the_other_ctas_shared_memory():
    source, out = words(128) >> 1, np.zeros(128, np.uint32)
    emulate(
        init(1) + TO_THE_OTHER + fill("%rd2", 256)
        + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;\n" + cluster_sync()
        + "setp.eq.u32 %p3, %r1, 0;\nand.pred %p3, %p3, %first;\n"
        + "@%p3 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
        + "[%r3], [tile], 256, [%r4];\n@!%first bra go;\nsetp.eq.u32 %p3, %r1, 0;\n@%p3 bra go;\n" + wait(0)
        + "go:\nbar.sync 0;\n" + dump("%rd3", 256) + cluster_sync(),
        source, out, grid=2, cluster=2,
    )  # fmt: skip
    assert np.array_equal(out[:64], source[:64])
    assert np.array_equal(out[64:], source[:64] + source[64:])


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_st_async_stores_registers_and_signals_their_bytes(schedule, seed):
    source, out = words(128), np.zeros(128, np.uint32)
    emulate(
        init(1) + TO_THE_OTHER
        + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;\n" + cluster_sync()
        + """
        shl.b32 %r5, %idx, 3;
        cvt.u64.u32 %rd4, %r5;
        add.u64 %rd4, %rd4, %rd2;
        ld.global.v2.u32 {%r6, %r7}, [%rd4];
        add.u32 %r3, %r3, %r5;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r3], {%r6, %r7}, [%r4];
        """
        + wait(0) + dump("%rd3", 256) + cluster_sync(),
        source, out, grid=2, cluster=2, schedule=schedule, seed=seed,
    )  # fmt: skip
    assert np.array_equal(out, np.roll(source, 64))


def test_red_async_adds_in_the_other_cta():
    out = np.zeros(2, np.uint32)
    emulate(
        init(1) + TO_THE_OTHER
        + "@%first st.shared.u32 [tile], 100;\n@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;\n"
        + cluster_sync()
        + "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3], %idx, [%r4];\n"
        + wait(0) + "mul.wide.u32 %rd5, %r1, 4;\nadd.u64 %rd5, %rd5, %a1;\nld.shared.u32 %r6, [tile];\n"
        + "@%first st.global.u32 [%rd5], %r6;\n" + cluster_sync(),
        words(128), out, grid=2, cluster=2,
    )  # fmt: skip
    assert out.tolist() == [100 + 31 * 32 // 2] * 2


# -- misuse ------------------------------------------------------------------------------------------------------

MISUSE = {
    "size of 24": (
        init(1) + "mov.u32 %r9, 24;\n" + load(24).replace("], 24,", "], %r9,"),  # ptxas refuses the constant itself
        ("invalid-operand", "24"),
    ),
    "misaligned source": (init(1) + load(16, source="%a0+8"), ("misaligned", "8 bytes past one")),
    "misaligned destination": (init(1) + load(16, offset=8), ("misaligned", "8 bytes past one")),
    "source too short": (init(1) + load(2048), ("out-of-bounds", "byte 0 of argument0, which has 1024")),
    "destination too short": (init(1) + load(1024, offset=16000), ("out-of-bounds",)),
    "no barrier": (load(16).split(";", 1)[1], ("no-mbarrier", "has not been initialised")),
    "copy into the own CTA": (
        init(1)
        + "@%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [tile], [tile], 16, [bar];",
        ("invalid-operand", None, "a destination in another CTA of the cluster"),
    ),
    "asynchronous store without a cluster": (
        init(1) + "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%tile], %idx, [%bar];",
        ("invalid-operand",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("body, said", MISUSE.values(), ids=MISUSE)
def test_misuse_is_an_error(body, said):
    source = np.zeros(256, np.uint32)
    with refused(*said):
        emulate(body, source)
