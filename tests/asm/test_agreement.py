"""Operands, constants and word orders: the verifier accepts and refuses the same as ptxas."""

from __future__ import annotations

import pytest

from tests.isa.assembling import find_ptxas, refused
from tests.isa.test_instruction_table import refused_by_verifier
from warploom import asm

pytestmark = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")

_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd1,"
_REPLACE = "tensormap.replace.tile"
_F, _R = "{%f0, %f1, %f2, %f3}", "{%r0, %r1, %r2, %r3}"
_SPARSE = f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {_F}, {_R}, {_R}, {_F},"
_WGMMA_SPARSE = f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {_F}, %rd0, %rd1, {{}}, 0, 1, 1, 1, 0, 0"
_WGMMA_SPARSE = _WGMMA_SPARSE.replace(_F, _F.replace("{", "{{").replace("}", "}}"))

_HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}}, {{{}}}, {{%r5, %r6}}, "
_HALF += "{{%f0, %f1, %f2, %f3}}"
_BYTES = _HALF.replace("m16n8k16", "m16n8k32").replace("f16.f16", "e4m3.e4m3")
_TF32 = "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1}}, {{%r2}}, "
_TF32 += "{{{0}, {0}, {0}, {0}}}"
TAKEN = {
    "orders": (
        "mad.hi.sat.s32 %r0, %r1, %r2, %r3", "mad.hi.s32.sat %r0, %r1, %r2, %r3",
        "mad24.hi.sat.s32 %r0, %r1, %r2, %r3", "mad.lo.s32.cc %r0, %r1, %r2, %r3", "div.full.f32.ftz %f0, %f1, %f2",
        "div.ftz.approx.f32 %f0, %f1, %f2",
    ),
    "lanes": (
        "match.any.sync.b32 %r0, %f1, %r2", "match.any.sync.b64 %r0, %f64_1, %r2", "elect.sync %s32_0|%p0, %u32_1",
        "vote.sync.ballot.b32 %f0, %p1, %r2", "shfl.sync.idx.b32 %f0, %f1, %f2, %f3, %r4",
        "redux.sync.or.b32 %s32_0, %u32_1, %r2",
    ),
    "integers": (
        "dp4a.u32.u32 %s32_0, %r1, %r2, %s32_3", "dp4a.s32.u32 %u32_0, 1, %r2, 3", "add.s16x2 %r0, %r1, %r2",
        "cvt.pack.sat.u8.s32.b32 %s32_0, %r1, %r2, %u32_3",
    ),
    "conversions": (
        "cvt.rna.tf32.f32 %r0, %r1", "cvt.rna.tf32.f32 %r0, 0f3f800000", "cvt.rn.tf32.f32 %r0, 1.0",
        "cvt.rn.f16.f32 %h0, %rd1", "cvt.rn.f16x2.f32 %r0, %rd1, %f1",
        "cvt.rn.relu.satfinite.f16x2.f32 %rd0, %f0, %f1",
    ),
    "cluster": (
        "getctarank.s32 %r0, %r1", "getctarank.shared::cluster.u32 %r0, smem+4", "getctarank.u64 %r0, 5",
        "getctarank.u64 %r0, %rd1+4", "mapa.shared::cluster.s64 %rd0, %rd1, %r2", "mapa.u64 %rd0, 4, %r2",
        "mapa.shared::cluster.u32 %r0, smem, 2", "mapa.u64 %rd0, %s32_0+4, %r2", "getctarank.u32 %r0, %rd1+-4",
    ),
    "wgmma": (
        f"{_MMA} %p0, -1, 1, 0, 1", f"{_MMA} 1, 1, 1, 0, 0", "wgmma.wait_group.sync.aligned 100",
    ),
    "tensor maps": (
        f"{_REPLACE}.box_dim.global.b1024.b32 [%rd0], 4, %r1",
        f"{_REPLACE}.global_stride.global.b1024.b64 [%rd0], 4, %rd1",
        f"{_REPLACE}.global_address.global.b1024.b64 [%r0], %rd1",
    ),
    "moves": (
        "mov.b32 %r0, smem+4", "mov.b64 %rd0, buffer", "mov.u32 %r0, callee", "mov.b32 {%h0, %h1}, 33",
        "mov.b64 {%r0, %r1}, %rd1+1", "mov.b128 %b128_0, 16", "mov.b64 {%r0, %r1}, 1.0",
        "cvta.shared.u64 %rd0, smem", "mov.b16 %h0, {%b8_0, 0}", "mov.b16 {%b8_0, _}, %h0", "mov.b16 %h0, {511, %b8_1}",
        "mov.b32 %r0, {%b8_0, %b8_1, %b8_0, %b8_1}", "mov.b32 {%b8_0, %b8_1, _, _}, %r0",
    ),
    "more than 64 bits": (
        "mov.u32 %r0, 18446744073709551616", "mov.u64 %rd0, 36893488147419103233", "mov.u32 %r0, 0x1ffffffffffffffff",
        "ld.global.u32 %r0, [%rd1+18446744073709551616]", "bar.sync 18446744073709551616",
        "bar.sync 1, 18446744073709551648", "mov.u64 %rd0, 90000000000000000000", "mov.u64 %rd0, 0x7ffffffffffffffff",
        f"mov.u64 %rd0, 0x1{'0' * 40}", "mov.u64 %rd0, 01777777777777777777777",
    ),
    "counts of threads": (
        "bar.arrive 1, -32", "barrier.arrive 1, 4294967264", "bar.arrive 1, 4294967296", "bar.sync 1, -64",
        "bar.sync 1, 0", "bar.sync 4294967296", "bar.sync -4294967296",
    ),
    "braces around one": (
        "mov.b32 %r0, {%r1}", "mov.b32 {%r0}, %r1", "mov.b64 %rd0, {%rd1}", "mov.b16 {%h0}, %h1", "mov.b32 {%r0}, 5",
        "ld.global.u32 {%r0}, [%rd1]", "st.shared.u32 [smem], {%r1}",
        "ld.global.L2::cache_hint.b32 {%r0}, [%rd1], %rd2",
        "sust.b.1d.b32.trap [%rd1, {%r1}], {%r3}", "sust.p.1d.b32.trap [%rd1, {%r1}], {%r3}",
        "suld.b.1d.b32.trap {%r3}, [%rd1, {%r1}]", f"tex.level.1d.v4.f32.f32 {_F}, [%rd1, {{%f0}}], {{%f1}}",
        "txq.level.width.b32 %r1, [%rd1], {%r2}", "multimem.st.relaxed.sys.global.f16x2 [%rd1], {%r3}",
        "multimem.ld_reduce.relaxed.sys.global.add.f32 {%f3}, [%rd1]",
        f"{_SPARSE} {{%r0}}, 0", f"{_SPARSE} %r0, 0", _WGMMA_SPARSE.format("{%r0}"), _WGMMA_SPARSE.format("%r0"),
    ),
    "addresses": (
        f"{_LOAD} %r0, [%rd1, {{%r1, %r2}}], %r3", f"{_LOAD} smem, [%rd1, {{%r1, %r2}}], %r3+8",
        f"{_LOAD} [%r0], [buffer, {{%r1, %r2}}], [%r3]",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd0, {%r1, %r2}], %r4",
        "cp.async.ca.shared.global [%r0], [%r1], 4", f"{_BULK} [%r0], [%r1], %r2, [%r3]",
        "cp.async.bulk.global.shared::cta.bulk_group [%r0], [%r1], 64", "prefetch.tensormap [%r0]",
        "st.async.mbarrier::complete_tx::bytes.u32 [%r0], %r1, [%r2]",
        "ld.u32 %r0, [buffer]", "atom.add.u32 %r0, [smem], 1", "mbarrier.init.b64 [smem], 1",
        "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%r1]", "fence.proxy.tensormap::generic.acquire.gpu [%r1], 128",
    ),
    "states and policies": (
        "mbarrier.test_wait.shared.b64 %p0, [%r0], 5", "mbarrier.try_wait.shared.b64 %p0, [%r0], %rd1+1",
        "mbarrier.pending_count.b64 %r0, -1", "mbarrier.arrive.shared.b64 %rd0, [%r0], 1048576",
        f"{_BULK}.L2::cache_hint [%r0], [%rd1], %r2, [%r3], 5",
        "cp.async.cg.shared.global.L2::cache_hint [%r0], [%rd1], 16, 0x1000000000000000",
        "createpolicy.fractional.L2::evict_first.b64 %rd0, 0f00000001",
    ),
    "fragments": (
        _HALF.format("%u32_1, %b32_2, %s32_3, %r4"), _BYTES.format("%u32_1, %u32_2, %u32_3, %u32_4"),
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%u32_0, %r1}, %rd1, %rd2, %p0, 1, 1, 0, 0",
        "wmma.load.a.sync.aligned.row.m16n16k16.u8 {%u32_4, %u32_5}, [%rd1]",
        "wmma.load.a.sync.aligned.row.m8n8k4.f64 {%f64_0}, [%rd1]",
        "wmma.load.a.sync.aligned.row.m8n8k32.s4 {%f0}, [%rd1]",
        "wmma.mma.sync.aligned.satfinite.row.col.m8n8k32.s32.u4.u4.s32 {%r0, %u32_1}, {%s32_2}, {%r3}, {%r4, %r5}",
        "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32.and.popc {%r0, %r1}, {%r2}, {%r3}, {-4, 5}",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r0, %r1}, {7}, {-1}, {0, %r5}",
        "wmma.store.d.sync.aligned.row.m8n8k32.s32 [%rd1], {5, 6}",
        "wmma.store.d.sync.aligned.row.m8n8k4.f64 [%rd1], {1.0, 0d3FF0000000000000}",
        _TF32.format("0f3F800000"),
    ),
    "predicates": ("set.eq.and.u32.f32 %r0, %f0, %f1, 32", "setp.eq.and.bf16 %p0, %h0, %h1, !%p2"),
    "register types": (
        "set.lt.bf16.f32 %u16_0, %f1, %f2", "set.lt.bf16x2.bf16x2 %f0, %r1, %r2",
    ),
    "minus": (
        "vmad.u32.s32.u32 %r0, - %r1.h0, %r2, 5", "vmad.s32.s32.s32 %r0, -%r1, -%r2, -%r3",
        "vmad.s32.s32.s32.po %r0, -%r1, -%r2, -5",
    ),
    "istypep": ("istypep.texref %p0, %rd1", "istypep.samplerref %p0, 255", "istypep.surfref %p0, %rd1+4"),
}  # fmt: skip

REFUSED = {
    "orders": (
        "mad.sat.hi.s32 %r0, %r1, %r2, %r3", "mad24.sat.hi.s32 %r0, %r1, %r2, %r3", "mad.cc.lo.s32 %r0, %r1, %r2, %r3",
        "div.ftz.full.f32 %f0, %f1, %f2",
    ),
    "lanes": (
        "match.any.sync.b64 %f1, %rd1, %r2", "match.any.sync.b32 %r0, %r1, %f2", "elect.sync %r0|%p0, %f1",
        "vote.sync.any.pred %p0, %p1, %f1", "shfl.sync.idx.b32 %f0, %f1, %r2, %r3, %f4", "bar.warp.sync %f0",
        "redux.sync.or.b32 %f0, %r1, %r2",
    ),
    "integers": (
        "dp4a.u32.u32 %f0, %r1, %r2, %r3", "dp2a.lo.u32.s32 %r0, %r1, %r2, %f3", "add.s16x2 %r0, %r1, 5",
        "max.u16x2 %r0, %s32_1, %r2", "min.relu.s16x2 %f0, %r1, %r2", "bmsk.clamp.b32 %f0, %r1, %r2",
    ),
    "conversions": (
        "cvt.rna.tf32.f32 %f0, %f1", "cvt.rna.tf32.f32 %s32_0, %f1", "cvt.rna.tf32.f32 %r0, %rd1",
        "cvt.rna.tf32.f32 %r0, 1.0", "cvt.rn.bf16.f32 %h0, %rd1", "cvt.f32.bf16 %rd0, %h1",
        "cvt.rn.satfinite.e4m3x2.f32 %s16_0, %f1, %f1",
    ),
    "cluster": (
        "getctarank.shared::cluster.u32 %r0, %rd1", "getctarank.u64 %r0, buffer", "mapa.u64 %rd0, buffer, %r2",
        "mapa.shared::cluster.u32 %r0, %f1, %r2", "mapa.shared::cluster.u32 %r0, %r1, smem",
        "mapa.u64 %rd0, %r1, %r2", "getctarank.u32 %r0, %f0+4", "mapa.u32 %r0, %tid.x+4, %r2",
    ),
    "wgmma": (
        f"{_MMA} %p0, 0, 1, 0, 0", f"{_MMA} %p0, 1, 4294967295, 0, 0", f"{_MMA} %p0, 1, 1, 2, 0",
        f"{_MMA} %p0, 1, 1, 0, -1", f"{_MMA} 2, 1, 1, 0, 0", "wgmma.wait_group.sync.aligned -1",
    ),
    "tensor maps": (
        f"{_REPLACE}.box_dim.global.b1024.b32 [%rd0], 5, %r1", f"{_REPLACE}.box_dim.global.b1024.b32 [%rd0], -1, %r1",
        f"{_REPLACE}.global_stride.global.b1024.b64 [%rd0], 5, %rd1",
    ),
    "moves": (
        "mov.b32 %r0, buffer", "mov.f32 %f0, smem", "mov.pred %p0, smem", "mov.b64 %rd0, {smem, %r2}",
        "mov.u64 %rd0, targets", "cvta.to.shared.u64 %rd0, smem", "cvta.shared.u64 %rd0, buffer",
        "mov.b16 %h0, {%h0, %h1}", "mov.b16 %h0, {_, %b8_1}", "mov.b8 %b8_0, %b8_1", "mov.b16 {%h0, %h1}, %h1",
    ),
    "more than 64 bits": (
        "bar.sync 1, 18446744073709551617", "bar.arrive 1, 18446744073709551616",
    ),
    "counts of threads": (
        "bar.arrive 1, -31", "bar.arrive 1, 0", "bar.sync 1, -1", "bar.sync -1", "bar.sync 8192", "bar.sync -32",
    ),
    "braces around one": (
        "mov.u32 {%r0}, %r1", "mov.b32 {%r0}, {%r1}", "mov.f32 {%f0}, %f1", "mov.pred %p0, {%p1}",
        "add.u32 {%r0}, %r1, %r2", "cvt.u32.u16 %r0, {%h1}", "movmatrix.sync.aligned.m8n8.trans.b16 {%r0}, %r1",
        "atom.global.add.u32 {%r0}, [%rd1], 1", "ld.global.L2::cache_hint.b32 %r0, [%rd1], {%rd2}",
        "st.global.L2::cache_hint.b32 [%rd1], {%r0}, {%rd2}", "multimem.st.relaxed.sys.global.u32 [%rd1], {%r3}",
        "multimem.ld_reduce.relaxed.sys.global.add.u32 {%r3}, [%rd1]",
        "multimem.red.relaxed.sys.global.add.f32 [%rd1], {%f3}",
    ),
    "addresses": (
        f"{_LOAD} 5, [%rd1, {{%r1, %r2}}], [%r3]", f"{_LOAD} [%r0], [smem, {{%r1, %r2}}], [%r3]",
        f"{_BULK} %r0, [%rd1], %r2, [%r3]", "cp.async.ca.shared.global %r0, [%rd1], 4", "ld.global.u32 %r0, [%r1]",
        "ld.u64 %rd0, [pointer]", "mbarrier.init.b64 [buffer], 1", "prefetch.L2 [pointer]",
        "prefetchu.L1 [%r1]", "mbarrier.inval.b64 [%r1]",
    ),
    "states and policies": (
        "mbarrier.test_wait.shared.b64 %p0, [%r0], %f64_1", "mbarrier.arrive.shared.b64 %f64_0, [%r0]",
        "mbarrier.arrive.shared.b64 %rd0, [%r0], 0", "mbarrier.arrive_drop.shared.b64 %rd0, [%r0], -1",
        "ld.global.L2::cache_hint.u32 %r0, [%rd1], %f64_2", "createpolicy.fractional.L2::evict_first.b64 %rd0, 2.0",
        "createpolicy.fractional.L2::evict_first.b64 %rd0, 0.0",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd0, [%rd1], 64, 32",
    ),
    "fragments": (
        _HALF.format("%u32_1, %u32_2, %u32_3, %u32_4"),
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%u32_0, %u32_1}, %rd1, %rd2, %p0, 1, 1, 0, 0",
        "wmma.load.a.sync.aligned.row.m16n16k16.u8 {%f4, %f5}, [%rd1]",
        "wmma.store.d.sync.aligned.row.m16n16k16.f16 [%rd1], {%u32_4, %u32_5, %u32_6, %u32_7}",
        "wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r0}, [%rd1]",
        "wmma.load.b.sync.aligned.row.m8n8k128.b1 {%r0}, [%rd1]",
        "wmma.load.a.sync.aligned.row.m8n8k32.b1 {%r0}, [%rd1]",
        "wmma.load.a.sync.aligned.row.m8n8k128.s4 {%r0}, [%rd1]",
        _TF32.format("1.0"),
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.u4.s32 {%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r0, %r1}, {%f2}, {%r3}, {%r4, %r5}",
        "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0, %r1}, {5}, {%r3}, {%r4, %r5}",
        "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32.satfinite {%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}",
    ),
    "predicates": ("set.eq.and.u32.bf16 %r0, %h0, %h1, 1", "setp.eq.and.bf16 %p0, %h0, %h1, 1"),
    "values": (
        "vmin4.u32.s32.s32 %r0, %r1, 2, %r3", "vadd2.u32.s32.s32 %r0, %f1, %r2, %r3", "alloca.u64 %rd0, %rd1, 7",
        "ld.global.L2::cache_hint.b32 %r0, [%rd1], %b128_1", "membar.alias.proxy",
    ),
    "register types": (
        "set.lt.bf16.f32 %f16_0, %f1, %f2", "set.lt.bf16x2.bf16x2 %rd0, %r1, %r2",
    ),
    "barriers": ("bar.arrive 1, 0", "barrier.cta.arrive 1, 0"),
    "minus": (
        "vmad.s32.s32.s32 %r0, -%r1, %r2, -%r3", "vmad.s32.s32.s32.po %r0, %r1, %r2, -%r3", "add.s32 %r0, -%r1, %r2",
        "vmad.s32.s32.s32 -%r0, %r1, %r2, %r3", "vadd.s32.s32.s32 %r0, -%r1, %r2", "not.pred %p0, -%p1",
    ),
    "istypep": ("istypep.texref %p0, %f64_1", "istypep.texref %r0, %rd1"),
}  # fmt: skip

WE_REFUSE = {
    "mov.u64 %rd0, %r1+1": "a sum as wide as its register, not as the type",
    "mov.b64 %rd0, {1.0, %r0}": "a number of 64 bits where a half of them stands",
    "mapa.shared::cluster.u32 %r0, callee, %r2": "a function is not in shared memory",
    "isspacep.global %p0, %r1": "a generic address has 64 bits",
    "fns.b32 %r0, %r1, %r2, %f3": "the offset is an integer (9.7.1.17)",
    f"{_LOAD} %f0, [%rd1, {{%r1, %r2}}], [%r3]": "a float register is no address",
    f"{_LOAD} [%r0], [%f1, {{%r1, %r2}}], [%r3]": "a float register is no address",
    f"{_LOAD} [%r0], [%rd1, {{%r1, %f2}}], [%r3]": "coordinates are integers (9.7.9.27.1.2)",
}  # fmt: skip
"""What ptxas accepts and we refuse on purpose, with the reason."""

TARGET, VERSION = "sm_90a", (8, 8)


@pytest.mark.parametrize("group", TAKEN)
def test_what_ptxas_takes_is_taken(group: str) -> None:
    texts = [f"{text};" for text in TAKEN[group]]
    assert refused(texts, TARGET, VERSION) == {}
    assert refused_by_verifier(texts, TARGET, VERSION) == {}


@pytest.mark.parametrize("group", REFUSED)
def test_what_ptxas_refuses_is_refused(group: str) -> None:
    texts = [f"{text};" for text in REFUSED[group]]
    assert sorted(refused(texts, TARGET, VERSION)) == list(range(len(texts)))
    assert sorted(refused_by_verifier(texts, TARGET, VERSION)) == list(range(len(texts)))


def test_the_exceptions_are_still_exceptions() -> None:
    texts = [f"{text};" for text in WE_REFUSE]
    assert refused(texts, TARGET, VERSION) == {}
    assert sorted(refused_by_verifier(texts, TARGET, VERSION)) == list(range(len(texts)))


def test_each_constant_is_judged_though_instructions_of_its_form_were_right() -> None:
    lines = ("bar.sync 1;", "bar.sync 2;", "bar.sync 1;", "bar.sync 17;")
    body = "\n".join(lines)
    text = f".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n{body}\nret;\n}}\n"
    assert [error.got for error in asm.verify(asm.parse(text))] == ["17"]


_FACTORS = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
_FACTORS += f" {_F}, {_R}, {{%r4, %r5}}, {_F},"


def test_factors_may_stand_in_braces_of_their_own() -> None:
    """CUTLASS writes them so for sm_120a."""
    texts = [f"{_FACTORS} {a}, {{0, 1}}, {b}, {{0, 1}};" for a in ("%r6", "{%r6}") for b in ("%r7", "{%r7}")]
    assert refused(texts, "sm_120a", VERSION) == {}
    assert refused_by_verifier(texts, "sm_120a", VERSION) == {}
