"""Flags, tickets and locks between CTAs: the default schedule lets each state of them be seen."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.emulator import api
from warploom.sanitizer import Sanitizer
from warploom.sanitizer.rules import Example
from warploom.sanitizer.rules.schema import DATA_BYTES

from .running import fresh, rules

CTA = "@!%first bra done;\nmov.u32 %r6, %ctaid.x;\nsetp.eq.u32 %p2, %r6, 0;\n"
RAISE = "st.release.gpu.global.u32 [%data+512], {};\n"
DATA = "st.global.u32 [%data{}], 7;\n"
LOOK = "look:\nld.acquire.gpu.global.u32 %r2, [%data+512];\nsetp.lt.u32 %p1, %r2, 1000;\n"
AGAIN = "@%p1 bra look;\n"
USE = """setp.eq.u32 %p3, %r2, 2000;
@%p3 bra final;
ld.global.u32 %r3, [%data];
bra done;
final:
ld.global.u32 %r3, [%data+4];
"""


def two_states(first: str, second: str, wait: str = AGAIN) -> Example:
    """CTA 0 raises a flag twice, for two words; CTA 1 waits for either and reads the word of that state."""
    raises = "@!%p2 bra look;\n" + first + second + "bra done;\n"
    return Example(CTA + raises + LOOK + wait + USE + "done:\n", grid=2)


RIGHT = DATA.format("") + RAISE.format(1000), DATA.format("+4") + RAISE.format(2000)


def test_a_flag_that_is_stored_behind_its_data_is_right():
    assert rules(two_states(*RIGHT)) == set()


@pytest.mark.parametrize(
    "example",
    [
        two_states(RAISE.format(1000) + DATA.format(""), RIGHT[1]),
        two_states(*RIGHT, wait=""),
        two_states("".join(map(RAISE.format, (200, 300, 400, 1000))) + DATA.format(""), RIGHT[1]),
    ],
    ids=["a flag before its data", "nobody waits", "behind three other flags"],
)
def test_a_flag_before_its_data_and_one_that_nobody_waits_for_are_errors(example: Example):
    assert "global-data-race" in rules(example)


LOCK = {
    "a load and a store": ("ld.volatile.global.u32 %r2, [%data+4];\n", "st.volatile.global.u32 [%data+4], 1;\n"),
    "one atomic": ("atom.acquire.gpu.global.cas.b32 %r2, [%data+4], 0, 1;\n", ""),
}


@pytest.mark.parametrize("how", LOCK)
def test_a_lock_that_two_ctas_can_take_at_once_is_an_error(how: str):
    load, store = LOCK[how]
    body = f"""
    @!%first bra done;
    again:
    {load}setp.ne.u32 %p1, %r2, 0;
    @%p1 bra again;
    {store}fence.acq_rel.gpu;
    ld.global.u32 %r3, [%data+512];
    add.u32 %r3, %r3, 1;
    st.global.u32 [%data+512], %r3;
    fence.acq_rel.gpu;
    st.volatile.global.u32 [%data+4], 0;
    done:
    """
    example = Example(body.replace("[%data+4]", "[%data]"), grid=2)
    assert ("global-data-race" in rules(example)) == (how == "a load and a store")


COUNTED = """
@!%first bra done;
mov.u32 %r6, %ctaid.x;
setp.eq.u32 %p2, %r6, 0;
red.relaxed.gpu.global.add.u32 [%data], 1;
%announced
@%p2 bra done;
%asked
ld.global.u32 %r3, [%data];
st.global.u32 [%data+256], %r3;
done:
"""
TOLD = """look:
ld.acquire.gpu.global.u32 %r2, [%data+512];
setp.lt.u32 %p1, %r2, 130;
@%p1 bra look;
"""


@pytest.mark.parametrize("told", [False, True])
def test_a_plain_load_races_with_another_cta_s_addition_even_if_its_own_came_last(told: bool):
    announced = "red.release.gpu.global.add.u32 [%data+512], 1;" if told else ""
    text = COUNTED.replace("%announced", announced).replace("%asked", TOLD if told else "")
    assert ("global-data-race" in rules(Example(text, grid=2))) is not told


READ_BY_TWO = """
mov.u32 %r6, %ctaid.x;
setp.eq.u32 %p2, %r6, 0;
@%p2 bra change;
setp.eq.u32 %p3, %idx, 32;
@%first st.global.u32 [%data+256], 1;
@%p3 ld.global.u32 %r3, [%data];
@%p3 st.global.u32 [%data+260], %r3;
@%first ld.global.u32 %r4, [%data];
@%first st.global.u32 [%data+264], %r4;
{}
@%first st.release.gpu.global.u32 [%data+512], 1000;
bra done;
change:
@!%first bra done;
look:
ld.acquire.gpu.global.u32 %r2, [%data+512];
setp.ne.u32 %p1, %r2, 1000;
@%p1 bra look;
st.global.u32 [%data], 7;
done:
"""


@pytest.mark.parametrize("met", [False, True])
def test_a_store_races_with_a_read_by_a_warp_that_did_not_read_last(met: bool):
    """The flag covers the first warp's read, and the second's if a barrier stands before it."""
    text = READ_BY_TWO.format("bar.sync 0;" if met else "")
    assert rules(Example(text, grid=2, threads=64)) == (set() if met else {"global-data-race"})


SEMAPHORE = """
@!%first bra done;
mov.u32 %r5, %ctaid.x;
mul.wide.u32 %d5, %r5, 4;
add.u64 %d5, %data, %d5;
mov.u32 %r6, %ctaid.y;
add.u32 %r7, %r6, %r5;
{}turn:
ld.acquire.gpu.global.u32 %r2, [%d5];
setp.lt.u32 %p1, %r2, %r7;
@%p1 bra turn;
st.global.u32 [%d5+512], %r6;
add.u32 %r6, %r6, %r5;
add.u32 %r6, %r6, 1;
st.release.gpu.global.u32 [%d5], %r6;
done:
"""


@pytest.mark.parametrize("early", [False, True])
def test_a_turn_that_comes_too_early_is_seen_also_where_the_turns_go_along_y(early: bool):
    """The third CTA of a column goes on with the second. A column's word begins with its number, as the data do."""
    text = SEMAPHORE.format("min.u32 %r7, %r6, 1;\nadd.u32 %r7, %r7, %r5;\n" if early else "")
    data, code = np.arange(DATA_BYTES // 4, dtype=np.uint32), fresh(Example(text).text())
    report = api.run(code, "k", [data], grid=(2, 3, 1), block=(128, 1, 1), detailed=True, watch=[Sanitizer])
    assert not report.findings
    assert (data[128:130].tolist() == [2, 2]) is not early
