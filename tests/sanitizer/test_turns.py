"""Flags, tickets and locks between CTAs: the default schedule lets each state of them be seen."""

from __future__ import annotations

import pytest

from warploom.sanitizer.rules import Example

from .running import rules

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
    ],
    ids=["a flag before its data", "nobody waits"],
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
