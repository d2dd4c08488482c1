"""`ptx.inst`: spelling, immediates, and the check against the instruction table."""

from __future__ import annotations

import pytest

from tests.errors import refused
from tests.lang.tools import emitted, line_of, make
from warploom.errors import VerificationError, WarploomError
from warploom.lang import ptx, reg, smem
from warploom.types import b32, bf16, f32, f64, u16, u32, u64


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: ptx.inst.and_.b32(x, x, 1), "and.b32 %r1, %r1, 1;"),
        (lambda x: ptx.inst.fence.proxy.async_.shared__cta(), "fence.proxy.async.shared::cta;"),
        (lambda x: ptx.inst.mad.lo.u32(x, x, 3, x), "mad.lo.u32 %r1, %r1, 3, %r1;"),
        (lambda x: ptx.inst("add.u32", x, x, 5), "add.u32 %r1, %r1, 5;"),
        (
            lambda x: ptx.inst.mbarrier.init.shared__cta.b64(smem.mbarrier(1)[0], 1),
            "mbarrier.init.shared::cta.b64 [smem], 1;",
        ),
        (
            lambda x: ptx.inst.ld.shared.v2.b32([x, reg.scalar(u32)], smem.array(b32, 2)[0]),
            "ld.shared.v2.b32 {%r1, %r2}, [smem];",
        ),
        (
            lambda x: ptx.inst.cp.async_.bulk.prefetch.L2.global_(ptx.addr(reg.scalar(u64)), 16),
            "cp.async.bulk.prefetch.L2.global [%rd1], 16;",
        ),
        (
            lambda x: ptx.inst.shfl.sync.bfly.b32(ptx.pair(x, reg.predicate()), x, 1, 31, -1),
            "shfl.sync.bfly.b32 %r1|%p1, %r1, 1, 31, -1;",
        ),
        (lambda x: ptx.inst.add.u32(x, x, 1, pred=reg.predicate()), "@%p1 add.u32 %r1, %r1, 1;"),
    ],
)  # fmt: skip
def test_a_call_is_the_instruction_it_spells(call, text):
    assert emitted(lambda: call(reg.scalar(u32)))[-1] == text


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: ptx.inst.mov.f32(reg.scalar(f32), 1), "mov.f32 %f1, 0f3F800000;"),
        (
            lambda: ptx.inst.fma.rn.f32(reg.scalar(f32), 0.1, -2, 0),
            "fma.rn.f32 %f1, 0f3DCCCCCD, 0fC0000000, 0f00000000;",
        ),
        (lambda: ptx.inst.add.f64(reg.scalar(f64), 1, 0.5), "add.f64 %fd1, 0d3FF0000000000000, 0d3FE0000000000000;"),
        (lambda: ptx.inst.mov.b32(reg.scalar(b32), 0xFFFFFFFF), "mov.b32 %r1, 4294967295;"),
    ],
)
def test_numbers_take_the_type_of_their_operand(call, text):
    assert emitted(call) == [text]


@pytest.mark.parametrize(
    "call",
    [
        lambda: ptx.inst.frobnicate.u99(reg.scalar(u32)),
        lambda: ptx.inst.add.u33(reg.scalar(u32), 1, 2),
        lambda: ptx.inst.add.u32(reg.scalar(u32), 1),
        lambda: ptx.inst.add.u32(reg.scalar(u32), 1, 2, 3),
        lambda: ptx.inst.add.u32(reg.scalar(f32), reg.scalar(u64), 3),
        lambda: ptx.inst.add.u32(reg.scalar(u32), reg.scalar(u64), 3),
        lambda: ptx.inst.add.f32(reg.scalar(f32), reg.scalar(u32), 3.0),
        lambda: ptx.inst.add.u32(reg.scalar(u32), reg.predicate(), 1),
        lambda: ptx.inst.add.u32(5, 1, 2),
        lambda: ptx.inst.add.u32(reg.scalar(u32), 1.5, 2),
        lambda: ptx.inst.add.u32(reg.scalar(u32), -1, 2),
        lambda: ptx.inst.ld.global_.u32(reg.scalar(u32), reg.scalar(u64)),
        lambda: ptx.inst.ld.global_.v2.u32(reg.scalar(u32), ptx.addr(reg.scalar(u64))),
        lambda: ptx.inst.ld.global_.v2.u32(reg.array(u32, 4), ptx.addr(reg.scalar(u64))),
        lambda: ptx.inst.mov.u32(reg.scalar(u32), "x"),
        lambda: ptx.inst.mov.u32(reg.scalar(u32), None),
        lambda: ptx.inst.add.u32(reg.scalar(u32), 1, 2, pred=reg.scalar(u32)),
        lambda: ptx.inst.setp.eq.u32(reg.scalar(u32), 1, 2),
        lambda: ptx.addr(reg.scalar(u16)),
        lambda: ptx.addr(reg.scalar(u64), reg.scalar(u32)),
        lambda: ptx.special.tid.q(),
        lambda: ptx.special.tid(),
    ],
)
def test_wrong_calls_are_refused_at_the_users_line(call):
    with pytest.raises(WarploomError) as caught:
        make(lambda: call()).ptx()  # the calling line
    assert caught.value.where is not None
    assert caught.value.where.file == "test_inst.py"


def test_the_error_names_line_and_nearest_spelling():
    def body():
        ptx.inst.mad.low.u32(reg.scalar(u32), 1, 2, 3)  # no such word

    with pytest.raises(VerificationError) as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("no such word", __file__)
    assert "mad.lo.u32" in caught.value.hint


def test_a_bare_register_in_place_of_an_address_says_ptx_addr():
    with refused("trace", got="Register(%rd1: u64)") as caught:
        make(lambda: ptx.inst.st.global_.u32(reg.scalar(u64), reg.scalar(u32))).ptx()
    assert "ptx.addr" in caught.value.hint


def test_half_constants_say_how_to_make_them():
    with refused("trace", got="1.0") as caught:
        make(lambda: ptx.inst.add.bf16(reg.scalar(bf16), reg.scalar(bf16), 1.0)).ptx()
    assert "reg.scalar(bf16, init=1.0)" in caught.value.hint


@pytest.mark.parametrize(
    "arch, call",
    [
        ("sm_80", lambda: ptx.fence.proxy_async()),
        ("sm_80", lambda: ptx.cluster.sync()),
        ("sm_90", lambda: ptx.wgmma.fence()),
        ("sm_90", lambda: ptx.setmaxnreg.dec(40)),
        ("sm_75", lambda: ptx.cp.async_.commit_group()),
        ("sm_80", lambda: ptx.special.cluster_ctarank()),
    ],
)
def test_an_instruction_the_target_lacks_is_refused_while_tracing(arch, call):
    with pytest.raises(WarploomError, match=arch) as caught:
        make(call, arch=arch).ptx()
    assert caught.value.where.file == "test_inst.py"


def test_the_plain_target_is_told_from_the_specific_one():
    with refused("verification", got="arch='sm_90'") as caught:
        make(lambda: ptx.wgmma.fence(), arch="sm_90").ptx()
    assert "sm_90a" in str(caught.value.expected)


def test_parameters_cannot_be_overwritten():
    from warploom.lang import Tile, kernel

    @kernel(out_specs=(Tile("N", u32),), grid=(1,), block=32)
    def subject(C):
        (n,) = C.shape
        ptx.inst.add.u32(n, n, 1)

    with refused("trace", got="a parameter, a dimension or an address of the prologue"):
        subject.ptx()
