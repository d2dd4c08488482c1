"""Mutants that are as correct as their kernel, and the edge that makes them so.

A mutant counts as equivalent only if nothing at all is found in it under any schedule and it is listed here.
"""

from __future__ import annotations

from fnmatch import fnmatch

from .mutate import Mutant

PARITY = "mbarrier.try_wait.parity.shared::cta.b64"
FENCE, GROUP = "fence.proxy.async.shared::cta#0", "wgmma.wait_group.sync.aligned"
GENERIC = (
    "barriers are used through the generic proxy, by copies that complete bytes too (PTX ISA 9.7.9.25.2): bar.sync "
    "alone orders their initialisation"
)
CHAIN = (
    "the accumulators are a chain of one shape and nothing else touches them, so a fence in front of the first wgmma "
    "is enough (PTX ISA 9.7.15.7.1)"
)
OWN_WAIT = (
    "the thread that starts the copies has itself waited for the warpgroup's wgmmas (wgmma.wait_group), which are one "
    "operation of all four warps: nobody reads the stage any more"
)
IN_CTA = "only threads of the CTA use the barriers before they meet again: bar.sync orders their initialisation"
CLUSTER = "barrier.cluster.arrive.release orders the initialisation by itself"
LAST = "one tile for each CTA: behind the loop nobody fills the stage again, so nobody waits for its release"
TOGETHER = "the two groups become one, and the first wait covers both either way"
DRAINED = (
    "the wait guards a ring that only wgmmas have read, and they have finished before the other CTA arrives: that is "
    "known behind a wait of any scope"
)
LAST_TAIL = "behind the split tail nobody fills a stage again, so nobody waits for its release"
READ = "the exit needs the sources to have been read, and nobody in the kernel reads C"
ALL_HERE = "each CTA has waited for the bytes of both halves, so no copy is on its way to one that exits"
ALONE = "a cluster of one CTA: nobody reaches into it, and it reaches nobody"
ITSELF = (
    "each thread has waited for the box by itself and reads only what it will overwrite: nothing passes between the "
    "threads of the warp here, it only brings them together"
)
GRID_KNOWN = (
    "the consumers touch global memory only behind the last full barrier, whose producer has arrived there after its "
    "own griddepcontrol.wait: what the grid in front wrote is visible to the whole grid by then (PTX ISA 9.7.13.13)"
)
ONCE = "the operands of the whole block are loaded once, into memory that is empty: the wait passes at once"
BYTES = (
    "nothing but the bytes of st.async is behind the wait, and their complete_tx releases at cluster scope whatever "
    "the wait's scope (PTX ISA 9.7.9.12), as all multicast kernels rely on"
)
FENCED = (
    "nothing touches the registers of these wgmmas between the fence in front of the products before and here: that "
    "fence orders them too (PTX ISA 9.7.15.7.1)"
)
TURNED = (
    "the consumer before has waited for the stage before it passed the turn on (bar.arrive), and this one multiplies "
    "in its turn only"
)
FRESH = "the first number goes into a slot that nobody has used: the wait passes at once"
MEET_AGAIN = "all threads meet twice more before one uses the barriers that are initialised in front of this meeting"
KEYS_TELL = (
    "only products with keys read the queries, and the producer has just waited until those of this slot were over for "
    "the stage of the keys; O leaves through memory of its own"
)
SAME_STAGE = (
    "all blocks have the same number of tiles, an even one where the step for an odd number of whole ones is taken: it "
    "goes on from the first of two stages each time, and the ring does not turn over here"
)
LAST_INDEX = "behind the last load nobody uses the index of its ring"
READ_BEFORE = "behind each store stands a wait for its reads (wait_group.read), and nobody in the kernel reads O"
TOLD_ITSELF = "the thread that has waited for the reads is the one that releases the queries"
MET_BEHIND = "bar.sync follows before anybody writes the memory"
MET_BEFORE = (
    "both consumers have met (bar.sync 3) since their last wgmma that read the memory, and nothing touches it between "
    "the two meetings"
)
IMPLICIT = (
    "only bulk copies access the sums, and an implicit generic-async proxy fence follows their completion (PTX ISA "
    "9.7.9.25.2), which wait_group 0 has observed before st.release passes the turn on and ld.acquire takes it"
)
TURN_WAITED = "before it passed the turn of a tile on, this thread waited until its additions were complete"

EQUIVALENT: tuple[tuple[str, str, str, str], ...] = (
    ("walkthrough*", "drop-proxy-fence", FENCE, GENERIC),
    ("fp8_tile", "drop-proxy-fence", FENCE, GENERIC),
    ("tf32_tile", "drop-proxy-fence", FENCE, GENERIC),
    ("walkthrough*", "drop-barrier", "bar.sync#[1-9]", OWN_WAIT),
    ("walkthrough*", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[1-9]", CHAIN),
    ("r0[89]_*", "drop-barrier", "bar.sync#1", OWN_WAIT),
    ("r10_*", "drop-barrier", "bar.sync#1", OWN_WAIT),
    ("warp_specialised", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("r0[89]_*", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("r1[0-4]_*", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("multicast", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", CLUSTER),
    ("multicast", "drop-cluster-barrier", "barrier.cluster.arrive.release.aligned#1", ALL_HERE),
    ("multicast", "drop-cluster-wait", "barrier.cluster.wait.acquire.aligned#1", ALL_HERE),
    ("r11_*", "release-before-wait", f"{GROUP}#1", LAST),
    ("r11_*", "drop-arrival", "mbarrier.arrive.shared::cta.b64#2", LAST),
    ("r12_*", "release-before-wait", f"{GROUP}#[13]", LAST),
    ("r12_*", "drop-arrival", "mbarrier.arrive.shared::cta.b64#[25]", LAST),
    ("r1[789]_*", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("r2[01]_*", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("grouped", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("block_scaled", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("fused", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("ping_pong", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("constant_weights", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("fused", "drop-barrier", "bar.warp.sync#[01]", ITSELF),
    ("fused", "drop-grid-wait", "griddepcontrol.wait#[12]", GRID_KNOWN),
    ("ping_pong", "drop-cluster-barrier", "barrier.cluster.arrive.release.aligned#0", ALONE),
    ("constant_weights", "drop-cluster-barrier", "barrier.cluster.arrive.release.aligned#0", ALONE),
    ("ping_pong", "drop-cluster-wait", "barrier.cluster.wait.acquire.aligned#0", ALONE),
    ("constant_weights", "drop-cluster-wait", "barrier.cluster.wait.acquire.aligned#0", ALONE),
    ("fused", "drop-cluster-barrier", "barrier.cluster.arrive.release.aligned#0", ALONE),
    ("fused", "drop-cluster-wait", "barrier.cluster.wait.acquire.aligned#0", ALONE),
    ("ping_pong", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("constant_weights", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("fused", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("grouped", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("block_scaled", "wait-for-reads-only", "cp.async.bulk.wait_group#[01]", READ),
    ("r22_*", "release-before-wait", f"{GROUP}#7", LAST_TAIL),
    ("r23_*", "drop-commit", "wgmma.commit_group.sync.aligned#0", TOGETHER),
    ("r23_*", "drop-wgmma-fence", "wgmma.fence.sync.aligned#5", CHAIN),
    ("r23_*", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[06]", CHAIN),
    ("r23_*", "narrow-scope", "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64#3", DRAINED),
    ("r2[23]_*", "wait-for-reads-only", "cp.async.bulk.wait_group#*", READ),
    ("attention_decode", "drop-barrier", "bar.sync#0", MEET_AGAIN),
    ("decode_last", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("decode_streamed", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("decode_*", "drop-grid-wait", "griddepcontrol.wait#1", GRID_KNOWN),
    ("decode_[cl]*", "drop-arrival", "mbarrier.arrive.shared::cta.b64#1", LAST),
    ("decode_[cl]*", "release-before-wait", f"{GROUP}#1", LAST),
    ("decode_cluster", "narrow-scope", "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64#1", BYTES),
    ("attention_backward", "change-count", "mbarrier.init.shared::cta.b64#1", ONCE),
    ("attention_backward", "drop-wait", "mbarrier.try_wait.parity.shared::cta.b64#0", ONCE),
    ("attention_backward", "drop-wait-loop", "mbarrier.try_wait.parity.shared::cta.b64#0", ONCE),
    ("attention_backward", "drop-proxy-fence", "fence.proxy.async.global#[0-3]", IMPLICIT),
    ("attention_backward", "drop-store-wait", "cp.async.bulk.wait_group#[13]", TURN_WAITED),
    ("attention_backward", "wait-for-*", "cp.async.bulk.wait_group#[13]", TURN_WAITED),
    ("attention_backward", "wait-for-reads-only", "cp.async.bulk.wait_group#[4567]", READ),
    ("attention_backward", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[134689]", FENCED),
    ("attention_backward", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[134689]", FENCED),
    ("attention_backward", "drop-commit", "wgmma.commit_group.sync.aligned#[27]", TOGETHER),
    ("attention_backward", "drop-commit", "wgmma.commit_group.sync.aligned#1[27]", TOGETHER),
    ("attention_backward", "commit-too-early", "wgmma.commit_group.sync.aligned#[27]", TOGETHER),
    ("attention_backward", "commit-too-early", "wgmma.commit_group.sync.aligned#1[27]", TOGETHER),
    ("attention_backward", "drop-barrier", "bar.sync#8", MET_BEFORE),
    ("attention_backward", "drop-barrier", "bar.sync#1[079]", MET_BEFORE),
    ("attention_[!b]*", "wait-for-reads-only", "cp.async.bulk.wait_group*", READ),
    ("attention*", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("attention_forward", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[2468]", FENCED),
    ("attention_forward", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[1357]", FENCED),
    ("attention_e4m3", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[2468]", FENCED),
    ("attention_e4m3", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[1357]", FENCED),
    ("attention_*_causal", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[2468]", FENCED),
    ("attention_*_causal", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[03579]", FENCED),
    ("attention_*_causal", "drop-wgmma-fence", "wgmma.fence.sync.aligned#21", FENCED),
    ("attention_varlen", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[2468]", FENCED),
    ("attention_varlen", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[03579]", FENCED),
    ("attention_varlen", "drop-wgmma-fence", "wgmma.fence.sync.aligned#21", FENCED),
    ("attention_window", "drop-wgmma-fence", "wgmma.fence.sync.aligned#[2468]", FENCED),
    ("attention_window", "drop-wgmma-fence", "wgmma.fence.sync.aligned#1[02579]", FENCED),
    ("attention_window", "drop-wgmma-fence", "wgmma.fence.sync.aligned#2[135]", FENCED),
    ("attention_[vw]*", "drop-wait*", f"{PARITY}#0", FRESH),
    ("attention_varlen", "drop-wait*", f"{PARITY}#28", TURNED),
    ("attention_varlen", "drop-wait*", f"{PARITY}#3[024]", TURNED),
    ("attention_window", "drop-wait*", f"{PARITY}#3[02468]", TURNED),
    ("attention_[vw]*", "drop-barrier", "bar.warp.sync#[01]", TOLD_ITSELF),
    ("attention_varlen", "next-stage", "mad.lo.u32#132", f"{TURNED}; what it waits for instead comes anyway"),
    ("attention_varlen", "ring-length", "setp.eq.u32#1[78]", LAST_INDEX),
    ("attention_window", "ring-length", "setp.eq.u32#1[01]", LAST_INDEX),
    ("attention_[vw]*", "drop-store-wait", "cp.async.bulk.wait_group#[01]", READ_BEFORE),
    ("attention_[vw]*", "wait-for-less", "cp.async.bulk.wait_group#[01]", READ_BEFORE),
    ("attention_forward*", "drop-wait*", f"{PARITY}#0", FRESH),
    ("attention_e4m3*", "drop-wait*", f"{PARITY}#4", FRESH),
    ("attention_e4m3*", "drop-wait*", f"{PARITY}#12", KEYS_TELL),
    ("attention_forward", "drop-wait*", f"{PARITY}#2[68]", TURNED),
    ("attention_forward", "drop-wait*", f"{PARITY}#29", TURNED),
    ("attention_forward", "drop-wait*", f"{PARITY}#30", TURNED),
    ("attention_forward_causal", "drop-wait*", f"{PARITY}#28", TURNED),
    ("attention_forward_causal", "drop-wait*", f"{PARITY}#3[0234]", TURNED),
    ("attention_e4m3", "drop-wait*", f"{PARITY}#3[0234]", TURNED),
    ("attention_e4m3_causal", "drop-wait*", f"{PARITY}#3[24678]", TURNED),
    ("attention_e4m3*", "next-stage", "mad.lo.u32#119", f"{TURNED}; what it waits for instead comes anyway"),
    ("attention_forward", "drop-barrier", "bar.sync#[49]", OWN_WAIT),
    ("attention_forward_causal", "drop-barrier", "bar.sync#5", OWN_WAIT),
    ("attention_forward_causal", "drop-barrier", "bar.sync#11", OWN_WAIT),
    ("attention_forward*", "drop-barrier", "bar.warp.sync#[01]", TOLD_ITSELF),
    ("attention_e4m3*", "drop-barrier", "bar.warp.sync#[12]", MET_BEHIND),
    ("attention_e4m3", "ring-length", "setp.eq.u32#22", SAME_STAGE),
    ("attention_e4m3", "ring-length", "setp.eq.u32#37", SAME_STAGE),
    ("attention_forward*", "ring-length", "setp.eq.u32#1[01]", LAST_INDEX),
    ("attention_e4m3*", "ring-length", "setp.eq.u32#1[45]", LAST_INDEX),
    ("attention_forward*", "drop-store-wait", "cp.async.bulk.wait_group#[01]", READ_BEFORE),
    ("attention_forward*", "wait-for-less", "cp.async.bulk.wait_group#[01]", READ_BEFORE),
    ("free_tile_persistent", "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA),
    ("free_tile_*", "drop-grid-wait", "griddepcontrol.wait#1", GRID_KNOWN),
    ("free_tile_split", "drop-arrival", "mbarrier.arrive.shared::cta.b64#1", LAST),
    ("free_tile_split", "release-before-wait", f"{GROUP}#1", LAST),
    ("free_tile_split", "narrow-scope", "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64#[01]", BYTES),
)  # fmt: skip
"""(kernel, kind, site, reason); the first three may be patterns."""


def reason(kernel: str, mutant: Mutant) -> str:
    """Why a mutant is equivalent; "" if it is not known to be."""
    for name, kind, site, why in EQUIVALENT:
        if fnmatch(kernel, name) and fnmatch(mutant.kind, kind) and fnmatch(mutant.site, site):
            return why
    return ""
