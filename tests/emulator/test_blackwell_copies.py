"""sm_100's additions to copies: masked bulk stores, asynchronous stores to global memory, atomicity in tensor maps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, TILE_BYTES, dump, emulate, fill, init, wait
from warploom.emulator.engines import tma
from warploom.emulator.engines.tma import TensorMapArgument
from warploom.errors import InvalidOperandError
from warploom.isa.swizzle import Swizzle
from warploom.isa.tensor_map import TensorMapSpec
from warploom.sanitizer import Sanitizer

ATOMS = ("128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")


# -- cp.async.bulk with .cp_mask -----------------------------------------------------------------------------------


def masked(mask: str, size: int) -> str:
    return f"""
    mov.b16 %h0, {mask};
    @!%first bra end;
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a0], [tile], {size}, %h0;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    end:
    """


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:4], ids=str)
@pytest.mark.parametrize("mask", [0xFFFF, 0x0001, 0x8000, 0x0FF0, 0xA5C3, 0x0000])
def test_a_masked_store_writes_the_bytes_of_the_mask_in_each_16(mask, schedule, seed):
    new, out = np.arange(1, 97).astype(np.uint8), np.full(128, 200, np.uint8)
    emulate(
        fill("%a1", 96) + masked(hex(mask), 96), out, new.view(np.uint32), target="sm_100a", schedule=schedule,
        seed=seed,
    )  # fmt: skip
    chosen = np.array([mask >> at % 16 & 1 for at in range(96)], bool)
    np.testing.assert_array_equal(out[:96], np.where(chosen, new, 200))
    assert (out[96:] == 200).all()


@pytest.mark.parametrize("mask", ["0x0FF0", "-2"])
def test_the_mask_may_be_a_constant(mask):
    new, outs = np.arange(1, 97).astype(np.uint8), [np.full(96, 200, np.uint8) for _ in range(2)]
    for out, text in zip(outs, (masked(mask, 96), masked(mask, 96).replace("96, %h0", f"96, {mask}")), strict=True):
        emulate(fill("%a1", 96) + text, out, new.view(np.uint32), target="sm_100a")
    np.testing.assert_array_equal(*outs)
    assert (outs[0] == 200).any() and (outs[0] != 200).any()


@pytest.mark.parametrize("masks, races", [(("0x1FF", "0xFE00"), False), (("0xFFF", "0xFF00"), True)])
def test_two_ctas_may_write_different_bytes_of_the_same_16(masks, races):
    body = (
        fill("%a1", 32)
        + f"""
    mov.u32 %r0, %ctaid.x;
    setp.eq.u32 %p1, %r0, 0;
    selp.b32 %r1, {masks[0]}, {masks[1]}, %p1;
    cvt.u16.u32 %h0, %r1;
    @!%first bra end;
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a0], [tile], 32, %h0;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    end:
    """
    )
    out, new = np.zeros(32, np.uint8), np.arange(8, dtype=np.uint32)
    report = emulate(body, out, new, grid=2, target="sm_100a", detailed=True, watch=[Sanitizer])
    assert any("race" in finding.rule for finding in report.findings) == races


# -- st.async and red.async to global memory ----------------------------------------------------------------------


def test_asynchronous_stores_and_reductions_reach_global_memory():
    out = np.zeros(33, np.uint32)
    body = """
    mul.wide.u32 %rd0, %idx, 4;
    add.u64 %rd0, %rd0, %a0;
    st.async.release.gpu.global.b32 [%rd0], %idx;
    red.async.release.sys.global.add.u32 [%a0+128], %idx;
    """
    emulate(body, out, target="sm_100a")
    np.testing.assert_array_equal(out, [*range(32), sum(range(32))])


@pytest.mark.parametrize(
    "store, sees", [("st.async.release.gpu.global.u32", True), ("st.relaxed.gpu.global.u32", False)]
)
def test_an_asynchronous_store_releases_what_was_written_before(store, sees):
    """CTA 0 writes and raises a flag, CTA 1 waits for it and reads."""
    body = f"""
    @!%first bra end;
    mov.u32 %r0, %ctaid.x;
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra reader;
    st.global.u32 [%a0], 7;
    {store} [%a0+128], 1;
    bra end;
    reader:
    ld.acquire.gpu.global.u32 %r1, [%a0+128];
    setp.ne.u32 %p2, %r1, 1;
    @%p2 bra reader;
    ld.global.u32 %r2, [%a0];
    st.global.u32 [%a0+4], %r2;
    end:
    """
    out = np.zeros(64, np.uint32)
    report = emulate(body, out, grid=2, target="sm_100a", detailed=True, watch=[Sanitizer])
    assert out[1] == 7
    assert (not [finding for finding in report.findings if finding.severity == "error"]) == sees


# -- tensormap.replace.tile.swizzle_atomicity ----------------------------------------------------------------------


@pytest.mark.parametrize("code, swizzle", [*enumerate(ATOMS)])
@pytest.mark.parametrize("start", ["NONE", "32B", *ATOMS])
def test_mode_and_atomicity_of_a_map_are_replaced_in_any_order(start, code, swizzle):
    def encoded(name: str) -> bytes:
        return tma.encode(tma.BoundMap(TensorMapSpec.tiled((16, 64), None, "u8", (16, 4), swizzle=name), 512))

    steps = [("swizzle_mode", 3), ("swizzle_atomicity", code)]
    for order in itertools.permutations(steps):
        raw = encoded(start)
        for field, value in order:
            raw = tma.replace_field(raw, field, 0, value)
        assert tma.decode(raw).spec.swizzle == swizzle
        assert raw == encoded(swizzle)
    narrow = tma.replace_field(tma.replace_field(encoded(start), "swizzle_atomicity", 0, code), "swizzle_mode", 0, 1)
    assert tma.decode(narrow).spec.swizzle == "32B"


@pytest.mark.parametrize("code", [1, 3])
def test_a_map_whose_atomicity_was_replaced_loads_as_one_that_has_it(code):
    array = np.random.default_rng(0).integers(1, 255, (16, 128)).astype(np.uint8)
    load = """
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
    @%first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [tile], [MAP, {0, 0}], [bar];
    """ + wait(0) + dump("%a1", 2048)  # fmt: skip
    found = []
    for swizzle in ("128B", ATOMS[code]):
        out, room = np.zeros(TILE_BYTES, np.uint8), np.zeros(256, np.uint8)
        spec = TensorMapSpec.tiled(array.shape, None, "u8", (128, 16), swizzle=swizzle)
        body = init(1)
        if swizzle == "128B":
            body += f"""
            mul.wide.u32 %rd0, %idx, 4;
            add.u64 %rd1, %a0, %rd0;
            ld.b32 %r0, [%rd1];
            add.u64 %rd1, %a2, %rd0;
            st.global.b32 [%rd1], %r0;
            bar.sync 0;
            @%first tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%a2], {code};
            @%first fence.proxy.tensormap::generic.release.gpu;
            bar.sync 0;
            fence.proxy.tensormap::generic.acquire.gpu [%a2], 128;
            """
        body += load.replace("MAP", "%a2" if swizzle == "128B" else "%a0")
        emulate(body, TensorMapArgument(spec, array), out, room, target="sm_100a")
        found.append(out)
    np.testing.assert_array_equal(*found)
    assert found[0].any()


# -- the swizzle that exchanges 8 bytes ----------------------------------------------------------------------------


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:3], ids=str)
@pytest.mark.parametrize("start", [0, 128, 384])
@pytest.mark.parametrize("name", ATOMS)
def test_a_load_puts_every_8_bytes_where_the_swizzle_says(name, start, schedule, seed):
    """Row r, byte b of a box goes to the address that the swizzle makes of start + 128 r + b."""
    array = np.random.default_rng(0).integers(1, 255, (20, 128)).astype(np.uint8)
    spec = TensorMapSpec.tiled(array.shape, None, "u8", (128, 16), swizzle=name)
    out = np.zeros(4096, np.uint8)
    body = init(1) + f"""
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
    @%first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
        [tile+{start}], [%a0, {{0, 2}}], [bar];
    """ + wait(0) + dump("%a1", 4096)  # fmt: skip
    emulate(body, TensorMapArgument(spec, array), out, target="sm_100a", schedule=schedule, seed=seed)
    addresses = start + np.arange(0, 2048, 8)
    words = out.view(np.uint64)[np.asarray(Swizzle(name).apply(addresses)) // 8]
    np.testing.assert_array_equal(words.view(np.uint8).reshape(16, 128), array[2:18])


def test_a_map_with_a_flip_is_not_stored_through():
    array = np.zeros((16, 128), np.uint8)
    spec = TensorMapSpec.tiled(array.shape, None, "u8", (128, 16), swizzle="128B_ATOM_32B_FLIP_8B")
    with pytest.raises(InvalidOperandError):
        emulate(
            "@%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%a0, {0, 0}], [tile];",
            TensorMapArgument(spec, array), target="sm_100a",
        )  # fmt: skip
