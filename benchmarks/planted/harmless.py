"""Planted changes that leave a text as correct as before, and the edge that makes them so.

A change counts as harmless only if `check` finds no error and it is listed here.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from ..zoo.mutate import Mutant

LAST = "the last access to the pipeline's state: nothing behind it depends on its order"
ONE_WARP = "only the threads of one warp get there, and one of them acts for all"
ONE_THREAD = "each word is changed by one thread alone"
OWN = "the thread that reads is the one that wrote"
GUARDED = "the lock and its fences, or the counter and its fences, order these accesses: they need not be strong"
IN_CTA = "only threads of the CTA use the barriers before they meet again: bar.sync orders their initialisation"
READ = "the exit needs the sources to have been read, and nobody in the kernel reads the result"
NEVER_AGAIN = "nobody writes the array again after it has been read"
ONCE_MORE = "the sort goes over bits that no key has once more, which changes nothing"
ALONE = "all threads that use the barrier use it by this instruction: it has another number, and that is all"

SAME_WAIT = "the wait behind it covers the group that the last copy now belongs to as well"
TWICE = "the head of the loop repeats the wait and the barrier that stand in front of the loop and at its end"
BEHIND = "behind the loop nobody touches shared memory again, and every copy has been waited for in it"
ELECTED = "the thread that announces the bytes starts the copies too: nothing passes between threads there"
NO_COPY = "no bulk copy is in flight there: tensormap.cp_fenceproxy, behind which it stands, is not asynchronous"
SAME_CTA = "all who reach it are threads of one CTA"
TIES = "a comparison of the sort: exchanging equal keys changes nothing"
UNUSED = "the barrier guards a broadcast of the atomic's result, which nobody uses"
ONE_UNIT = "a wgmma is one operation of its four warps: each has waited for it before it overwrites the operand"
ONE_TILE = "a CTA has one tile: the staging buffer is not written again"
LATER_FENCE = (
    "the same thread fences again behind the initialisation of the other pipelines, which covers these barriers"
)
FLAG_SET = "a later product of a tile: its flag is a constant, always set"
LAST_TILE = "a program has one tile: nobody waits for an empty accumulator again"
THREE_STEPS = "there are three steps of k and three stages: none is filled a second time"
ARMED_BEFORE = "one thread arms the barrier behind it, and another bar.sync stands before the copies"
STORES_WAIT_AGAIN = "the same warp waits for its stores once more before anybody reads them"
FENCED_BY_EACH = "each thread waits for its own copies and fences them in front of the bar.sync behind it"
STORED_IN_TIME = (
    "all loaded values are stored before the signal: the machine code is the same "
    "(tests/driver/test_waits_for_loads.py)"
)
LAST_GIVEN_BACK = "the arrival of a program's last tile: nobody waits for an empty accumulator again"
COMMITS_ITS_OWN = "the thread that multiplied commits: nothing passes between threads there"
ONLY_WAITS = "threads do nothing between it and the wait for the commit in front of it"
NOTHING_NEW = "no barrier has been initialised since the fence in front of the loop"
BOTH_FREE = "columns of a pair are freed when both CTAs have come to tcgen05.dealloc, each behind its own loads"
OWN_LANES = "warps load and store only their own lanes there, and another bar.sync stands before the products"
NOTHING_THERE = "no thread has accessed the stage before the copy"
TWO_IN_A_ROW = "the bar.sync in front of it has brought the same threads together"
NONE_IN_FLIGHT = "on both ways there all groups have been waited for"

FIRST_ROUND = "the stage has not been used before, so the wait passes at once"

OF_THE_MAXIMUM = "the shuffle is one of the row's maximum: softmax is the same for any number near it"
SAME_VALUE = "every thread has the value, and another one stores it to the same place"
AT_THE_END = "nothing follows the barrier, and threads that have exited are not waited for"
NO_BYTES = "the copies that use the address take no bytes: the tile lies behind the last one"
EACH_WAITS = "every thread commits and waits, each for its own copy, before they meet; all copies store the same bytes"
OTHER_LANES = "it stands behind the barrier: the other lanes of the warp, which take part in the same wgmma, execute it"
SAME_COPIES = "the loop's first fence covers the same copies, and no thread has written shared memory since"
RANDOM_NUMBER = "the XOR is one of a random number, not of an address"

HARMLESS: tuple[tuple[str, str, str, str], ...] = (
    ("barriers_*", "drop-fence", "fence.sc.cta#0", LAST),
    ("barriers_*", "relaxed-flag", "atom.add.acquire.cta.u32#0", LAST),
    ("barriers_*.roles", "atomic-in-two-steps", "atom.add.relaxed.cta.u32#0", ONE_WARP),
    ("barriers_*.roles", "drop-barrier", "barrier.sync#1", OWN),
    ("cluster_*.histogram", "atomic-in-two-steps", "atom.global.add.u32#0", ONE_THREAD),
    ("grid_*.chained", "drop-barrier", "bar.sync#0", OWN),
    ("grid_*", "plain-flag", "*.volatile.global.f*", GUARDED),
    ("hopper_gemm_*", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("hopper_gemm_*", "wait-for-reads-only", "cp.async.bulk.wait_group#0", READ),
    ("hopper_gemm_*", "wrong-barrier", "bar.sync#1", ALONE),
    ("library_*.block_wide", "off-by-one", "setp.lt.u32#0", ONCE_MORE),
    ("rows_*.softmax", "drop-barrier", "bar.sync#[13]", NEVER_AGAIN),
    ("attention_sm80", "commit-too-early", "cp.async.commit_group#2", SAME_WAIT),
    ("causal_attention_sm90", "commit-too-early", "cp.async.commit_group#2", SAME_WAIT),
    ("product_sm80", "commit-too-early", "cp.async.commit_group#0", SAME_WAIT),
    ("product_sm80", "drop-barrier", "bar.sync#1", TWICE),
    ("product_sm80", "wait-for-less", "cp.async.wait_group#1", TWICE),
    ("*attention_sm90", "drop-barrier", "bar.sync#2", BEHIND),
    ("*attention_sm90", "wait-for-less", "cp.async.wait_group#1", BEHIND),
    ("fp8_product_sm90", "drop-barrier", "bar.sync#0", ONE_UNIT),
    ("ragged_product_sm90", "drop-barrier", "bar.sync#0", ONE_UNIT),
    ("device_descriptors_sm90", "drop-barrier", "bar.sync#11", ELECTED),
    ("host_descriptors_sm90", "drop-barrier", "bar.sync#3", ELECTED),
    ("device_descriptors_sm90", "drop-store-wait", "cp.async.bulk.wait_group.read#1", NO_COPY),
    ("device_descriptors_sm90", "wait-for-less", "cp.async.bulk.wait_group.read#1", NO_COPY),
    ("device_descriptors_sm90", "narrow-flag", "fence.proxy.tensormap::generic.acquire.gpu#*", SAME_CTA),
    ("*_descriptors_sm90", "wait-for-reads-only", "cp.async.bulk.wait_group#0", READ),
    ("scans_*", "narrow-flag", "atom.*", SAME_CTA),
    ("scans_*", "relaxed-flag", "atom.global.gpu.acq_rel.add.u32#0", LAST),
    ("scans_*", "off-by-one", "setp.gt.s32#48", TIES),
    ("scans_sm90", "drop-barrier", "bar.sync#17", UNUSED),
    ("row_softmax_*", "other-lane", "shfl.sync.bfly.b32#2", OF_THE_MAXIMUM),
    ("layer_norm_*", "negate-guard", "st.global.b32#1", SAME_VALUE),
    ("host_descriptors_sm90", "thread-leaves-early", "bar.sync#13", AT_THE_END),
    ("causal_attention_sm80", "other-stride", "mul.wide.s32#3", NO_BYTES),
    ("device_descriptors_sm90", "drop-guard", "cp.async.bulk.tensor.2d.global.*", EACH_WAITS),
    ("scans_*", "drop-swizzle", "xor.b32#17", RANDOM_NUMBER),
    ("product_sm90", "lane-goes-round", "fence.proxy.async.shared::cta#0", OTHER_LANES),
    ("causal_attention_sm90", "lane-goes-round", "fence.proxy.async.shared::cta#0", OTHER_LANES),
    ("causal_attention_sm90", "other-fence", "fence.proxy.async.shared::cta#1", SAME_COPIES),
    ("biasrelu", "drop-barrier", "bar.sync#3", ONE_TILE),
    ("biasrelu", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", LATER_FENCE),
    ("biasrelu", "drop-wait-loop", "mbarrier.try_wait.parity.shared::cta.b64#16", FIRST_ROUND),
    ("specialised_f16", "accumulate-first", "tcgen05.mma.cta_group::1.kind::f16#[1-7]", FLAG_SET),
    ("specialised_f16", "drop-arrival", "mbarrier.arrive.shared::cta.b64#0", LAST_TILE),
    ("specialised_f16", "release-before-load", "tcgen05.wait::ld.sync.aligned#0", LAST_TILE),
    ("specialised_f16", "drop-tensor-commit", "tcgen05.commit.*#0", THREE_STEPS),
    ("specialised_f16", "drop-wait-loop", "mbarrier.try_wait.parity.shared::cta.b64#0", FIRST_ROUND),
    ("persistent_f16", "drop-arrival", "mbarrier.arrive.shared::cta.b64#1", LAST_GIVEN_BACK),
    ("pointers_bf16", "drop-barrier", "bar.sync#5", FENCED_BY_EACH),
    ("attention", "accumulate-first", "tcgen05.mma.cta_group::1.kind::f16#[15]", FLAG_SET),
    ("attention", "drop-barrier", "bar.sync#16", OWN_LANES),
    ("attention", "drop-barrier", "bar.sync#25", ARMED_BEFORE),
    ("attention", "drop-proxy-fence", "fence.proxy.async.shared::cta#0", NOTHING_THERE),
    ("attention", "drop-tensor-wait", "tcgen05.wait::st.sync.aligned#1", STORES_WAIT_AGAIN),
    ("specialised_f16", "wrong-barrier", "bar.sync#6", ALONE),
    *(
        (name, "wait-for-reads-only", "cp.async.bulk.wait_group#0", READ)
        for name in ("specialised_f16", "persistent_f16", "descriptors_*", "mxfp8", "nvfp4", "*attention*")
    ),
    ("mxfp8", "accumulate-first", "tcgen05.mma.*#[1-35-7]", FLAG_SET),
    ("mxfp8", "drop-copy-wait", "cp.async.wait_group#2", NONE_IN_FLIGHT),
    ("nvfp4", "accumulate-first", "tcgen05.mma.*#[1-35-7]", FLAG_SET),
    ("nvfp4", "commit-too-early", "cp.async.commit_group#0", SAME_WAIT),
    ("nvfp4", "drop-commit", "cp.async.commit_group#2", SAME_WAIT),
    *(
        (name, "accumulate-first", "tcgen05.mma.*#[1-7]", FLAG_SET)
        for name in ("descriptors_*", "persistent_f16", "pointers_bf16")
    ),
    *(
        (name, "drop-tensor-wait", "tcgen05.wait::ld.sync.aligned#0", STORED_IN_TIME)
        for name in ("descriptors_e4m3", "nvfp4", "gluon_launch_control")
    ),
    ("descriptors_f16", "drop-barrier", "bar.sync#5", ARMED_BEFORE),
    ("descriptors_e4m3", "drop-barrier", "barrier.sync#0", TWO_IN_A_ROW),
    ("gluon_launch_control", "accumulate-first", "tcgen05.mma.*#[1-7]", FLAG_SET),
    ("gluon_launch_control", "drop-barrier", "bar.sync#6", ARMED_BEFORE),
    ("gluon_pair_*", "accumulate-first", "tcgen05.mma.*#[1-7]", FLAG_SET),
    ("gluon_pair_128x128", "drop-barrier", "bar.sync#7", ONLY_WAITS),
    ("gluon_pair_256x128", "drop-barrier", "bar.sync#8", COMMITS_ITS_OWN),
    ("gluon_pair_*", "drop-cluster-barrier", "barrier.cluster.arrive.aligned#2", BOTH_FREE),
    ("gluon_pair_*", "drop-init-fence", "fence.mbarrier_init.release.cluster#1", NOTHING_NEW),
)
"""Text, kind and site as patterns, and the reason."""


@cache
def beside(folder: Path) -> tuple[tuple[str, str, str, str], ...]:
    """The contents of `harmless.toml` in a folder of other texts: tables [[harmless]] with text, kind, site and why."""
    file = folder / "harmless.toml"
    tables = tomllib.loads(file.read_text())["harmless"] if file.is_file() else []
    return tuple((one["text"], one["kind"], one["site"], one["why"]) for one in tables)


def reason(text: str, mutant: Mutant, folder: Path) -> str:
    """Why a change of a text in a folder is harmless; "" if that is not known."""
    for of_text, of_kind, at, why in (*HARMLESS, *beside(folder)):
        if fnmatch(text, of_text) and fnmatch(mutant.kind, of_kind) and fnmatch(mutant.site, at):
            return why
    return ""
