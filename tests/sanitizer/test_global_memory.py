"""Global memory: what orders accesses of different CTAs, and what does not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests.sanitizer.pieces import COMMIT, DESCRIPTORS, FENCE_MMA, WAIT_MMA, ZERO, multiply
from tests.sanitizer.running import SCHEDULES, findings, rules, run
from warploom.sanitizer import EXPLORED, Sanitizer
from warploom.sanitizer.rules import Example

schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])
RACES = {"global-data-race", "global-hand-off", "global-proxy-fence", "copy-to-global-not-complete"}
CTA = "mov.u32 %r6, %ctaid.x;\n"
OWN_WORD = """
shl.b32 %r0, %idx, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
"""
OWN_WORD_OF_THE_GRID = """
mad.lo.u32 %r0, %r6, 128, %idx;
shl.b32 %r0, %r0, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
"""
STORE = "st.global.u32 [%d2], %idx;\n"


def hand_over(release: str, acquire: str, read: str = "ld.global.u32 %r3, [%data];") -> Example:
    """Thread 0 of CTA 0 writes a word and raises a flag; thread 0 of CTA 1 spins on the flag and reads the word."""
    return Example(
        f"""
        @!%first bra done;
        {CTA}
        setp.eq.u32 %p2, %r6, 0;
        @!%p2 bra reader;
        st.global.u32 [%data], 7;
        {release}
        bra done;
        reader:
        {acquire}
        setp.ne.u32 %p3, %r2, 77;
        @%p3 bra reader;
        FENCE
        {read}
        done:
        """.replace("FENCE", ""),
        grid=2,
    )


RELEASE, ACQUIRE = "st.release.gpu.global.u32 [%data+512], 77;", "ld.acquire.gpu.global.u32 %r2, [%data+512];"
RELAXED_STORE, RELAXED_LOAD = RELEASE.replace("release", "relaxed"), ACQUIRE.replace("acquire", "relaxed")
FENCE = "fence.acq_rel.gpu;\n"


@schedules
@pytest.mark.parametrize(
    ("release", "acquire", "read"),
    [
        (RELEASE, ACQUIRE, ""),
        (FENCE + RELAXED_STORE, RELAXED_LOAD, FENCE),
        (
            "membar.gl;\nst.volatile.global.u32 [%data+512], 77;",
            "ld.volatile.global.u32 %r2, [%data+512];",
            "membar.gl;\n",
        ),
        (FENCE + "red.relaxed.gpu.global.max.u32 [%data+512], 77;", ACQUIRE, ""),
        (
            "atom.release.gpu.global.exch.b32 %r4, [%data+512], 77;",
            "atom.acquire.gpu.global.cas.b32 %r2, [%data+512], 77, 77;",
            "",
        ),
    ],
    ids=["release-acquire", "fences", "membar and volatile", "a reduction behind a fence", "atomics"],
)
def test_a_flag_hands_over(release: str, acquire: str, read: str, schedule: str, seed: int):
    example = hand_over(release, acquire, read + "ld.global.u32 %r3, [%data];")
    assert not rules(example, schedule, seed) & RACES


@pytest.mark.parametrize(
    ("release", "acquire", "read"),
    [
        (RELAXED_STORE, ACQUIRE, ""),
        (RELEASE, RELAXED_LOAD, ""),
        (RELEASE.replace("gpu", "cta"), ACQUIRE, ""),
        (RELEASE, ACQUIRE.replace("gpu", "cluster"), ""),
        ("fence.acq_rel.cta;\n" + RELAXED_STORE, RELAXED_LOAD, FENCE),
        (FENCE + RELAXED_STORE, RELAXED_LOAD, "fence.acq_rel.cta;\n"),
    ],
    ids=[
        "relaxed store",
        "relaxed load",
        "narrow release",
        "narrow acquire",
        "narrow release fence",
        "narrow acquire fence",
    ],
)
def test_a_flag_with_too_little_is_named_as_such(release: str, acquire: str, read: str):
    assert "global-hand-off" in rules(hand_over(release, acquire, read + "ld.global.u32 %r3, [%data];"))


DATA, LATER = "st.global.u32 [%data], 7;", "st.global.u32 [%data+4], 8;"
PLACES = [
    (RELAXED_STORE, ACQUIRE, DATA),
    (LATER + "\n" + RELAXED_STORE, ACQUIRE, LATER),
    (LATER + "\nld.global.u32 %r4, [%data+64];\n" + RELAXED_STORE, ACQUIRE, LATER),
    ("red.relaxed.gpu.global.add.u32 [%data+512], -51;", ACQUIRE, DATA),
    (RELEASE, RELAXED_LOAD, RELAXED_LOAD),
    (FENCE + RELAXED_STORE, RELAXED_LOAD, RELAXED_LOAD),
    (RELEASE.replace("gpu", "cluster"), ACQUIRE, RELEASE.replace("gpu", "cluster")),
    (FENCE.replace("gpu", "cta") + RELAXED_STORE, ACQUIRE, RELAXED_STORE),
    (RELEASE, ACQUIRE.replace("gpu", "cta"), ACQUIRE.replace("gpu", "cta")),
]


@pytest.mark.parametrize(("release", "acquire", "place"), PLACES)
def test_the_report_of_a_flag_with_too_little_names_the_line_behind_which_the_fence_belongs(
    release: str, acquire: str, place: str
):
    """In the writer its last write in front of the flag, in the reader the load of the flag, or what is too narrow."""
    example = hand_over(release, acquire)
    line = next(number for number, text in enumerate(example.text().splitlines(), 1) if text.strip() == place)
    (found,) = [one for one in findings(example) if one.rule == "global-hand-off" and "at byte 0" in one.address]
    assert [one.line for one in found.locations][1] == line and f":{line}" in found.missing
    assert len(found.sides) == 2


def test_data_that_do_not_race_need_their_fence_at_the_same_place():
    """Volatile data: the two sides do not race, but the flag does not order them."""
    strong = DATA.replace("st.", "st.relaxed.gpu.")
    example = hand_over(RELAXED_STORE, ACQUIRE, "ld.relaxed.gpu.global.u32 %r3, [%data];")
    text = example.body.replace(DATA, strong)
    (found,) = [one for one in findings(Example(text, grid=2)) if one.rule == "global-hand-off"]
    assert [one.line for one in found.locations][1:] == [
        number for number, line in enumerate(Example(text).text().splitlines(), 1) if line.strip() == strong
    ]
    assert "in front of `st.relaxed.gpu.global.u32`" in found.missing


def test_a_plain_flag_races_itself():
    found = rules(hand_over("st.global.u32 [%data+512], 77;", "ld.global.u32 %r2, [%data+512];"), "random", 1)
    assert "global-data-race" in found


def test_what_a_barrier_gathered_is_released_with_it():
    """All threads of CTA 0 write, meet, and thread 0 raises the flag; all of CTA 1 read behind their own barrier."""
    body = f"""
    {CTA}{OWN_WORD}
    setp.eq.u32 %p2, %r6, 0;
    @!%p2 bra reader;
    {STORE}
    bar.sync 0;
    @%first {RELEASE}
    bra done;
    reader:
    @!%first bra meet;
    look:
    {ACQUIRE}
    setp.ne.u32 %p3, %r2, 77;
    @%p3 bra look;
    meet:
    MEET
    ld.global.u32 %r3, [%d2];
    done:
    """
    assert not rules(Example(body.replace("MEET", "bar.sync 0;"), grid=2)) & RACES
    assert "global-data-race" in rules(Example(body.replace("MEET", ""), grid=2))


LAST_BLOCK = f"""
{CTA}{OWN_WORD_OF_THE_GRID}
add.u64 %d2, %d2, 1024;
{STORE}
FENCE
bar.sync 0;
@!%first bra done;
atom.global.add.u32 %r2, [%data], 1;
setp.ne.u32 %p3, %r2, LAST;
@%p3 bra done;
FENCE
ld.global.u32 %r3, [%data+1024];
ld.global.u32 %r3, [%data+1536];
ld.global.u32 %r3, [%data+2048];
st.global.u32 [%data], 0;
done:
"""


@schedules
def test_the_last_cta_reads_what_all_have_written_and_resets_the_counter(schedule: str, seed: int):
    """The counter starts at 0 (the first word of the example's data is 0)."""
    body = LAST_BLOCK.replace("LAST", "2").replace("FENCE", "fence.acq_rel.gpu;")
    assert not rules(Example(body, grid=3), schedule, seed) & RACES


OF_ANOTHER_WARP = LAST_BLOCK.replace("LAST", "2").replace("+1024]", "+1520]").replace("FENCE", "{}")
"""The last CTA reads a word of warp 3, whose fence is in front of the barrier; thread 0 has none behind it."""


@schedules
@pytest.mark.parametrize("fence", ["membar.gl;", "fence.sc.gpu;", "fence.sc.sys;"])
def test_fences_sc_of_all_threads_in_front_of_a_barrier_reach_who_sees_the_atomic_behind_it(
    fence: str, schedule: str, seed: int
):
    assert not rules(Example(OF_ANOTHER_WARP.format(fence, fence), grid=3), schedule, seed) & RACES


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"),
        ("fence.sc.gpu;", "fence.acq_rel.gpu;"),
        ("fence.acq_rel.gpu;", "fence.sc.gpu;"),
        ("fence.sc.cta;", "fence.sc.gpu;"),
        ("fence.sc.gpu;", "fence.sc.cluster;"),
        ("fence.sc.gpu;", ""),
    ],
)
def test_a_pair_of_fences_that_are_not_both_sc_and_wide_orders_only_their_own_threads(before: str, behind: str):
    assert rules(Example(OF_ANOTHER_WARP.format(before, behind), grid=3)) & RACES


def test_a_fence_sc_hands_on_what_its_thread_has_heard_of_others():
    """CTA 1 hears of CTA 0 and raises a flag of its own, which CTA 2 sees: all by volatile accesses and membar.gl."""
    body = f"""
    {CTA}
    @!%first bra done;
    setp.eq.u32 %p2, %r6, 0;
    setp.eq.u32 %p3, %r6, 1;
    @%p2 st.global.u32 [%data+1024], 5;
    @%p2 bra raise;
    look:
    @%p3 ld.volatile.global.u32 %r2, [%data+512];
    @!%p3 ld.volatile.global.u32 %r2, [%data+516];
    setp.ne.u32 %p1, %r2, 77;
    @%p1 bra look;
    raise:
    membar.gl;
    @%p2 st.volatile.global.u32 [%data+512], 77;
    @%p3 st.volatile.global.u32 [%data+516], 77;
    setp.eq.u32 %p1, %r6, 2;
    @%p1 ld.global.u32 %r3, [%data+1024];
    done:
    """
    assert not rules(Example(body, grid=3)) & RACES
    assert rules(Example(body.replace("membar.gl;", "membar.cta;"), grid=3)) & RACES


def test_without_fences_the_last_cta_does_not():
    assert rules(Example(LAST_BLOCK.replace("LAST", "2").replace("FENCE", ""), grid=3)) & RACES


def test_ctas_that_write_the_same_words_race_and_those_that_write_their_own_do_not():
    assert "global-data-race" in rules(Example(CTA + OWN_WORD + "st.global.u32 [%d2], %r6;", grid=2))
    assert not rules(Example(CTA + OWN_WORD_OF_THE_GRID + STORE, grid=2)) & RACES


def test_a_write_behind_the_reads_of_two_other_ctas_is_compared_with_both():
    body = f"""
    {CTA}{OWN_WORD}
    setp.eq.u32 %p2, %r6, 2;
    @%p2 bra writer;
    ld.global.u32 %r3, [%d2];
    bra done;
    writer:
    {STORE}
    done:
    """
    assert "global-data-race" in rules(Example(body, grid=3))


def test_reductions_of_all_ctas_do_not_race():
    assert not rules(Example(OWN_WORD + "red.global.add.u32 [%d2], 1;", grid=3)) & RACES
    narrow = OWN_WORD + "red.relaxed.cta.global.add.u32 [%d2], 1;"
    assert "global-hand-off" in rules(Example(narrow, grid=2))
    assert not rules(Example(narrow)) & RACES


def test_an_atomic_and_a_plain_access_race():
    body = CTA + "setp.eq.u32 %p2, %r6, 0;\n@!%first bra done;\n@%p2 red.global.add.u32 [%data], 1;\n"
    assert "global-data-race" in rules(Example(body + "@!%p2 st.global.u32 [%data], 1;\ndone:", grid=2))


REDUCED = (
    OWN_WORD.replace("%d2", "%d5")
    + """
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.u32 [%r1], 1;
fence.proxy.async;
bar.sync 0;
@%first COPY [%data], [tile], 512;
@%first cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group 0;
"""
)


def test_bulk_reductions_of_all_ctas_do_not_race():
    reduce = REDUCED.replace("COPY", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32")
    assert not rules(Example(reduce, grid=3)) & RACES


@pytest.mark.parametrize(("wait", "release", "clean"), [
    ("wait_group 0", RELEASE, True), ("wait_group.read 0", RELEASE, False), ("wait_group 0", RELAXED_STORE, False),
])  # fmt: skip
@pytest.mark.parametrize("later", [
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%data], [tile], 512;\n"
    "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;",
    "st.global.u32 [%data], 1;",
])  # fmt: skip
def test_a_complete_bulk_store_is_handed_over_without_a_proxy_fence(wait: str, release: str, clean: bool, later: str):
    """An implicit one follows its completion (PTX ISA 9.7.9.25.2), whichever proxy the other CTA uses."""
    filled, issued = REDUCED.split("@%first COPY")
    store = "cp.async.bulk.global.shared::cta.bulk_group" + issued.replace("@%first ", "").replace("wait_group 0", wait)
    example = hand_over(release, ACQUIRE, later)
    body = filled + example.body.replace("st.global.u32 [%data], 7;", store, 1)
    found = rules(replace(example, body=body)) & RACES
    assert found == (set() if clean else {"copy-to-global-not-complete"})


@schedules
@pytest.mark.parametrize(("value", "found"), [("1", "same-value-race"), ("%r6", "copy-to-global-not-complete")])
def test_bulk_stores_of_two_ctas_to_one_place_race_unless_their_bytes_are_equal(
    value: str, found: str, schedule: str, seed: int
):
    store = CTA + REDUCED.replace("COPY", "cp.async.bulk.global.shared::cta.bulk_group")
    store = store.replace("st.shared.u32 [%r1], 1;", f"st.shared.u32 [%r1], {value};")
    assert rules(Example(store, grid=2), schedule, seed) & (RACES | {"same-value-race"}) == {found}


@pytest.mark.parametrize(("fence", "clean"), [
    ("fence.proxy.async;", True), ("fence.proxy.async.global;", True), ("fence.proxy.async.shared::cta;", False),
])  # fmt: skip
def test_a_proxy_fence_covers_the_space_it_names(fence: str, clean: bool):
    body = f"""
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    {OWN_WORD}{STORE}
    {fence}
    bar.sync 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 512, [bar];
    wait_0:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra wait_0;
    """
    assert ("global-proxy-fence" in rules(Example(body))) is not clean


def test_what_a_copy_has_read_may_be_overwritten_once_it_was_waited_for():
    body = """
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    bar.sync 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 512, [bar];
    EARLY
    wait_0:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra wait_0;
    LATE
    """
    write = "@%first st.global.u32 [%data], 1;"
    assert rules(Example(body.replace("EARLY", "").replace("LATE", write))) == set()
    assert "copy-to-global-not-complete" in rules(Example(body.replace("EARLY", write).replace("LATE", "")))


def test_a_cluster_barrier_orders_global_memory_of_the_cluster_only():
    body = (
        "@%first st.global.u32 [%d3], 1;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
        "ld.global.u32 %r3, [%d4];"
    )
    rank = (
        "mul.wide.u32 %d3, %rank, 256;\nadd.u64 %d3, %d3, %data;\nxor.b32 %r4, %rank, 1;\nmul.wide.u32 %d4, %r4, 256;\n"
    )
    rank += "add.u64 %d4, %d4, %data;\n"
    assert not rules(Example(rank + body, cluster=2)) & RACES
    assert "global-data-race" in rules(Example(rank + body, cluster=2, grid=4))


def test_narrow_stores_side_by_side_are_no_race():
    body = CTA + "shl.b32 %r0, %idx, 2;\nshl.b32 %r7, %r6, 1;\nadd.u32 %r0, %r0, %r7;\ncvt.u64.u32 %d2, %r0;\n"
    assert not rules(Example(body + "add.u64 %d2, %d2, %data;\nst.global.u16 [%d2], 0;", grid=2)) & RACES


@schedules
def test_that_a_wgmma_is_done_says_nothing_about_stores_behind_it(schedule: str, seed: int):
    """All four warps have issued it, so what they did before has begun; what they store later has not."""
    multiplied = DESCRIPTORS + ZERO + FENCE_MMA + multiply(adds=0) + COMMIT + WAIT_MMA
    other = "xor.b32 %r0, %r0, 256;\ncvt.u64.u32 %d2, %r0;\nadd.u64 %d2, %d2, %data;\nld.global.u32 %r3, [%d2];"
    body = multiplied + OWN_WORD + STORE + "MEET" + other
    assert "global-data-race" in rules(Example(body.replace("MEET", "")), schedule, seed)
    assert not RACES & rules(Example(body.replace("MEET", "bar.sync 0;\n")), schedule, seed)


LOCKED = """
@!%first bra done;
take:
atom.relaxed.gpu.global.cas.b32 %r2, [%data+256], 64, 1;
setp.ne.u32 %p3, %r2, 64;
@%p3 bra take;
TAKEN
ld.volatile.global.u32 %r3, [%data];
add.u32 %r3, %r3, 1;
st.volatile.global.u32 [%data], %r3;
FREEING
st.relaxed.gpu.global.u32 [%data+256], 64;
done:
"""
HANDED_BACK = """
@!%first bra done;
mov.u32 %r6, %ctaid.x;
st.relaxed.gpu.global.u32 [%data+128], %r6;
turn:
ld.relaxed.gpu.global.u32 %r2, [%data];
and.b32 %r3, %r2, 1;
setp.ne.u32 %p3, %r3, %r6;
@%p3 bra turn;
add.u32 %r2, %r2, 1;
st.relaxed.gpu.global.u32 [%data], %r2;
done:
"""


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("freeing", [True, False])
def test_a_lock_without_a_fence_does_not_order_strong_words(taken: bool, freeing: bool, schedule: str, seed: int):
    fence = "fence.acq_rel.gpu;"
    body = LOCKED.replace("TAKEN", fence if taken else "").replace("FREEING", fence if freeing else "")
    missing = {"global-hand-off"} if not freeing else {"lost-update"} if not taken else set()
    assert rules(Example(body, grid=3), schedule, seed) == missing


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
def test_a_word_that_says_itself_whose_turn_it_is_needs_no_fence(schedule: str, seed: int):
    assert rules(Example(HANDED_BACK, grid=2), schedule, seed) == set()


SENT = """
@!%first bra done;
mov.u32 %r6, %ctaid.x;
setp.ne.u32 %p3, %r6, 0;
@%p3 bra receive;
st.relaxed.gpu.global.u32 [%data], 9;
st.relaxed.gpu.global.u32 [%data+4], 9;
bra done;
receive:
ld.relaxed.gpu.global.u32 %r2, [%data+4];
setp.ne.u32 %p3, %r2, 9;
@%p3 bra receive;
LOADED
st.relaxed.gpu.global.u32 [%data], 0;
done:
"""
"""A word that is sent, and cleared by its receiver, who has seen a later word of the sender."""
LOAD = "ld.relaxed.gpu.global.u32 %r3, [%data];\n"
LOOK = "look:\n" + LOAD + "END\n@%p3 bra look;\n"
COMPUTED = "sub.u32 %r2, %r3, 9;\nsetp.ne.u32 %p3, %r2, 0;"
COUNTED = "add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p3, %r2, 10;"
LOADS = {
    "once": (LOAD, {"global-hand-off"}),
    "until it has come": (LOOK.replace("END", "setp.ne.u32 %p3, %r3, 9;"), set()),
    "until something computed from it is zero": (LOOK.replace("END", COMPUTED), set()),
    "in a loop that counts": ("mov.u32 %r2, 9;\n" + LOOK.replace("END", COUNTED), {"global-hand-off"}),
}


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
@pytest.mark.parametrize("loaded, found", LOADS.values(), ids=LOADS)
def test_a_word_that_a_loop_waits_for_may_be_cleared(loaded: str, found: set[str], schedule: str, seed: int):
    assert rules(Example(SENT.replace("LOADED", loaded), grid=2), schedule, seed) == found


TAKEN = "ld.volatile.global.u32 %r3, [%data];\n"
ADDED = "add.u32 %r3, %r3, 1;\nst.volatile.global.u32 [%data], %r3;\n"
COUNTS = {
    "a load and a store": (TAKEN + ADDED, {"lost-update"}),
    "one atomic": ("atom.relaxed.gpu.global.add.u32 %r3, [%data], 1;\n", set()),
    "a number that was not loaded": (TAKEN + "mov.u32 %r3, 5;\n" + ADDED, set()),
    "another word": (TAKEN + ADDED.replace("[%data]", "[%data+4]"), set()),
    "a branch on the value": (TAKEN + "setp.gt.u32 %p3, %r3, 9;\n@%p3 bra done;\n" + ADDED, set()),
    "a word that was looked at": (TAKEN + "setp.gt.u32 %p3, %r3, 9;\n@%p3 bra done;\n" + TAKEN + ADDED, set()),
}


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
@pytest.mark.parametrize("body, found", COUNTS.values(), ids=COUNTS)
def test_two_ctas_that_add_by_a_load_and_a_store_lose_one(body: str, found: set[str], schedule: str, seed: int):
    assert rules(Example(f"@!%first bra done;\n{body}\ndone:\n", grid=2), schedule, seed) == found


LAST_OF_TWO = """
mov.u32 %r6, %ctaid.x;
mad.lo.u32 %r0, %r6, 64, %idx;
shl.b32 %r0, %r0, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
st.global.u32 [%d2], %idx;
BEFORE
bar.sync 0;
@%first atom.relaxed.gpu.global.add.u32 %r2, [%data+4096], 1;
@%first st.shared.u32 [tile], %r2;
bar.sync 0;
ld.shared.u32 %r2, [tile];
setp.ne.u32 %p2, %r2, 1025;
@%p2 bra done;
BEHIND
ld.global.u32 %r3, [%data+160];
ld.global.u32 %r4, [%data+416];
done:
"""
"""The second CTA to count reads what warps 1 of both have written. The word of the counter is 1024 before."""


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
@pytest.mark.parametrize(
    "before, behind, ordered",
    [
        ("membar.gl;", "membar.gl;", True),
        ("fence.sc.gpu;", "fence.sc.sys;", True),
        ("membar.gl;", "", False),
        ("", "membar.gl;", False),
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu;", False),
        ("membar.cta;", "membar.gl;", False),
        ("@%first membar.gl;", "membar.gl;", False),
    ],
)
def test_fences_of_all_threads_order_them_over_one_threads_atomic(before, behind, ordered, schedule, seed):
    """Each thread has fences.sc of its own, and one thread of each CTA counts: a fence after the barrier comes after
    the fences in front of what that thread has observed."""
    body = LAST_OF_TWO.replace("BEFORE", before).replace("BEHIND", behind)
    found = rules(Example(body, threads=64, grid=2), schedule, seed)
    assert found == set() if ordered else found & {"global-data-race", "global-hand-off"}


def by_way_of_another_cta(first: str) -> Example:
    """Warp 1 of CTA 0 tells CTA 1 that it has written a word, and CTA 1 tells warp 0 of CTA 0, which reads the word."""
    tells = RELEASE.replace("512", "640")
    return Example(
        f"""
        {CTA}
        setp.eq.u32 %p2, %r6, 0;
        setp.eq.u32 %p3, %idx, 32;
        setp.eq.and.u32 %p4, %idx, 32, %p2;
        @%p4 st.global.u32 [%data], 7;
        @%p4 {first}
        @!%first bra done;
        @%p2 bra reader;
        between:
        {ACQUIRE}
        setp.ne.u32 %p3, %r2, 77;
        @%p3 bra between;
        {tells}
        bra done;
        reader:
        {ACQUIRE.replace("512", "640")}
        setp.ne.u32 %p3, %r2, 77;
        @%p3 bra reader;
        ld.global.u32 %r3, [%data];
        done:
        """,
        grid=2, threads=64,
    )  # fmt: skip


@schedules
@pytest.mark.parametrize(("first", "found"), [(RELEASE, set()), (RELAXED_STORE, {"global-data-race"})])
def test_what_a_cta_hears_of_its_own_warps_from_another_cta_orders_them(first, found, schedule, seed):
    report = run(by_way_of_another_cta(first), schedule, seed)
    assert {finding.rule for finding in report.findings if finding.rule in RACES} == found


@schedules
@pytest.mark.parametrize(
    ("read", "severity"),
    [("ld.global.nc.u32", {"error"}), ("ld.global.nc.L1::no_allocate.u32", {"warning"}), ("ld.global.u32", set())],
)
def test_a_flag_does_not_order_a_non_coherent_load(read: str, severity: set[str], schedule: str, seed: int):
    found = findings(hand_over(RELEASE, ACQUIRE, f"{read} %r3, [%data];"), schedule, seed)
    assert {one.severity for one in found if one.rule == "non-coherent-load"} == severity


def test_a_non_coherent_load_that_leaves_l1_alone_is_an_error_in_strict_mode():
    read = "ld.global.nc.L1::no_allocate.u32 %r3, [%data];"
    report = run(hand_over(RELEASE, ACQUIRE, read), watch=partial(Sanitizer, strict=True))
    assert {one.severity for one in report.findings if one.rule == "non-coherent-load"} == {"error"}


def test_a_non_coherent_load_may_read_what_its_thread_writes_later():
    example = Example(OWN_WORD + "ld.global.nc.u32 %r3, [%d2];\nst.global.u32 [%d2], %r3;\n")
    assert rules(example) == set()


@schedules
@pytest.mark.parametrize("wait", ["cp.async.wait_all;\nbar.sync 0;\n", "bar.sync 0;\ncp.async.wait_all;\n", ""])
@pytest.mark.parametrize("other", [0, 256])
def test_what_cp_async_reads_is_written_only_after_its_wait(other: int, wait: str, schedule: str, seed: int):
    start = "mov.u32 %r1, tile;\nadd.u32 %r1, %r1, %r0;\ncp.async.ca.shared.global [%r1], [%d2], 4;\n"
    write = f"xor.b32 %r0, %r0, {other};\ncvt.u64.u32 %d3, %r0;\nadd.u64 %d3, %d3, %data;\nst.global.u32 [%d3], 0;\n"
    found = rules(Example(OWN_WORD + start + wait + write + "cp.async.wait_all;\n"), schedule, seed)
    waited = wait.startswith("cp") or (not other and bool(wait))
    assert (found & RACES == set()) is waited


def test_a_non_coherent_load_may_read_what_an_earlier_launch_wrote():
    body = OWN_WORD + "ld.global.nc.u32 %r3, [%d2];\nadd.u32 %r3, %r3, 1;\nst.global.u32 [%d2], %r3;\n"
    assert rules(Example(body, calls=2)) == set()
