"""Misuses of tcgen05 (T1 to T30) and published bugs, one by one, as `warploom check` sees them.

    python -m tests.sanitizer.misuse_blackwell [--write]    what is found of each; into docs/published-bugs.md

Each has a text that commits it and one that does not. Both are checked under a launch description with the default
options: one run, schedule lazy. `expected` is the rule or the code that says so and its severity. Not run on hardware.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.sanitizer.pieces import CLUSTER_SYNC, INIT, load, wait
from tests.sanitizer.published_bugs import BUGS as HOPPER
from tests.sanitizer.tensor_pieces import (
    ALLOC,
    COMMIT,
    DESCRIPTOR,
    DONE,
    FREE,
    LOAD,
    PAIR_ALLOC,
    PAIR_FREE,
    READ,
    READY,
    USE,
    WAIT_LOAD,
    multiply,
)
from warploom.isa.instruction_descriptor import InstructionDescriptor
from warploom.sanitizer.rules import Example
from warploom.testing import Checked, check_text

PAGE = Path(__file__).parents[2] / "docs" / "published-bugs.md"
MARK = "<!-- misuses -->\n"
"""What stands in front of the table."""
Body = partial(Example, target="sm_100a")


@dataclass(frozen=True)
class Case:
    """One misuse: its number, in words, what commits it, what does not, and what says so how loudly.

    maps: what the kernel takes in front of `data`, as parts of a launch description; top: lines at the head of that.
    """

    number: str
    what: str
    bad: Example
    good: Example
    expected: str
    severity: str = "error"
    maps: tuple[tuple[str, str], ...] = ()
    top: str = ""

    def text(self, example: Example) -> str:
        """The PTX text."""
        parameters = "".join(f".param .align 64 .b8 {name}[128], " for name, _ in self.maps)
        text = example.text().replace(".version 8.7", ".version 9.0")
        return text.replace("(.param .u64 data)", f"({parameters}.param .u64 data)")

    def launch(self, example: Example) -> str:
        """Its launch description."""
        head = (
            f"grid = [{example.grid or example.cluster}, 1, 1]\nblock = [{example.threads}, 1, 1]\n"
            f"cluster = [{example.cluster}, 1, 1]\n{self.top}\n"
        )
        maps = "".join(f'[[parameter]]\nas = "{name}"\nkind = "tensor_map"\n{what}\n' for name, what in self.maps)
        return head + maps + '[[parameter]]\nas = "data"\ndtype = "u32"\nshape = [2048]\nfill = "arange"\n'


def checked(case: Case, example: Example) -> Checked:
    """As `warploom check` is called by default."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "k.ptx"
        text.write_text(case.text(example))
        text.with_suffix(".launch.toml").write_text(case.launch(example))
        return check_text(text)


# -- pieces ------------------------------------------------------------------------------------------------------------

WARP_1 = "setp.eq.u32 %p4, %idx, 32;\n"
"""%p4: the first thread of warp 1."""
INIT_2 = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [more], {count};
bar.sync 0;
"""
MORE = ".shared .align 8 .b64 more[2];\n"
BIG = ".shared .align 1024 .b8 big[32768];\n"
KEEP = "shl.b32 %r0, %idx, 2;\ncvt.u64.u32 %d2, %r0;\nadd.u64 %d2, %data, %d2;\nst.global.u32 [%d2], %r12;\n"
"""Behind READ: stores the last column that a thread has read."""
READY_2 = MORE + INIT_2.format(count=4) + ALLOC + load(4096) + wait() + DESCRIPTOR
LEADS = "setp.eq.u32 %p5, %rank, 0;\nand.pred %p5, %p5, %first;\n"
"""%p5: the thread that issues for a pair."""
PAIR_TILE = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [more], 1;
@%first fence.mbarrier_init.release.cluster;
"""
PAIR_READY = MORE + ".reg .b16 %h0;\nmov.u16 %h0, 3;\n" + LEADS + PAIR_TILE + CLUSTER_SYNC + PAIR_ALLOC
"""Barriers and columns of a pair."""
PAIR_LOADS = """
mov.u32 %r6, bar;
and.b32 %r6, %r6, 0xFEFFFFFF;
mapa.shared::cluster.u32 %r6, %r6, 0;
@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected};
@%first cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%map, {{0, 0}}], [%r6];
"""  # noqa: E501
A_TILE = ("a", 'dtype = "u8"\nshape = [128, 32]\nfill = "ones"\nbox = [32, 128]\nswizzle = "{}"\n')
MAP = "mov.u64 %map, a;\ncvta.param.u64 %map, %map;\n"
PAIR_MULTIPLY = """
setp.ne.u32 %p3, 0, 0;
@%p5 tcgen05.mma.cta_group::2.kind::f16 [%r8], %d0, %d0, 0x10040490, %p3;
"""
"""256 x 16 by both CTAs."""
PAIR_COMMIT = """
@%p5 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [more], %h0;
"""
PAIR_END = CLUSTER_SYNC + PAIR_FREE
PAIR_DONE = PAIR_COMMIT + wait(0, "9", "more", ".acquire.cluster")


def leader_waits(scope: str = "", parity: int = 0) -> str:
    """Only the thread that issues waits for the operands."""
    return f"""
    @!%p5 bra waited;
    wait_leader:
    mbarrier.try_wait.parity{scope}.shared::cta.b64 %p0, [bar], {parity};
    @!%p0 bra wait_leader;
    waited:
    """


STORE_4 = """
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8+16], {%idx, %idx, %idx, %idx, %idx, %idx, %idx, %idx};
"""
WAIT_STORE = "tcgen05.wait::st.sync.aligned;\n"
FROM_MEMORY = """
setp.ne.u32 %p3, 0, 0;
@%first tcgen05.mma.cta_group::1.kind::f16 [%r8], [%r8+16], %d0, 0x8040490, %p3;
"""
"""A from columns 16 to 23."""
FILL_TILE = """
shl.b32 %r0, %idx, 5;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.v4.b32 [%r1], {%idx, %idx, %idx, %idx};
st.shared.v4.b32 [%r1+16], {%idx, %idx, %idx, %idx};
"""
ANSWER = "ld.shared.b128 %q, [tile];\nclusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q;\n"
ASK = """
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
@%first clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [tile], [bar];
"""
QUERY = ".reg .b128 %q;\n"
SCALES = """
mov.u32 %r3, tile;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d0, %r3;
or.b64 %d0, %d0, 0x0000400800800000;
"""
"""%d0: 128 x 32 bytes without swizzle, as A, B and factors."""
SF = "@%first tcgen05.cp.cta_group::1.32x128b.warpx4 [%r8+16], %d0;\n"


def scaled(n: int = 16, where: str = "%r8+16") -> str:
    """A block-scaled product, 128 x n; both operands' factors are in the same columns."""
    bits = InstructionDescriptor("mxf8f6f4", 128, n, "e4m3", "e4m3", scale="ue8m0").encode()
    return f"""
    setp.ne.u32 %p3, 0, 0;
    @%first tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r8], %d0, %d0, {bits:#x}, [{where}], [{where}], %p3;
    """


def mma(descriptor: int, kind: str = "f16", d: str = "%r8", more: str = "", adds: int = 0) -> str:
    """A product with that instruction descriptor."""
    return f"""
    setp.ne.u32 %p3, {adds}, 0;
    @%first tcgen05.mma.cta_group::1.kind::{kind}{more} [{d}], %d0, %d0, {descriptor:#x}, %p3;
    """


def body(*parts: str, **options: int) -> Example:
    return Body("".join(parts), **options)


def changed(bits: str, to: str) -> str:
    """The descriptor of A and B with other upper bits."""
    return DESCRIPTOR.replace(bits, to)


GOOD = body(READY, multiply(), DONE, READ, FREE)
PLAIN = "0x0000401000080000"


def cases() -> Iterator[Case]:
    """All of them, in the order of the table."""
    yield from _completion()
    yield from _operands()
    yield from _columns()
    yield from _pairs()
    yield from _control()
    yield from _published()


def _completion() -> Iterator[Case]:
    other = wait(0, "1", "more")
    yield Case("T1", "D is loaded after a wait for a barrier other than the commit's",
               body(MORE, INIT_2.format(count=1), ALLOC, load(4096), wait(), DESCRIPTOR, multiply(), COMMIT,
                    "@%first mbarrier.arrive.shared::cta.b64 _, [more];\n", other, READ, wait(1, "2"), FREE),
               body(MORE, INIT_2.format(count=1), ALLOC, load(4096), wait(), DESCRIPTOR, multiply(), COMMIT,
                    "@%first mbarrier.arrive.shared::cta.b64 _, [more];\n", other, wait(1, "2"), READ, FREE),
               "tensor-memory-race")  # fmt: skip
    yield Case(
        "T2",
        "the wait names the parity of the previous phase, and passes at once",
        body(READY, multiply(), COMMIT, wait(0, "1"), READ, wait(1, "2"), FREE),
        GOOD,
        "tensor-memory-race",
    )
    yield Case("T3", "the next product overwrites an accumulator that other warps still load",
               body(READY, multiply(), DONE, READ, multiply(), COMMIT, wait(0, "2"), FREE),
               body(READY, multiply(), DONE, READ, "bar.sync 0;\n", multiply(), COMMIT, wait(0, "2"), FREE),
               "tensor-memory-overwritten")  # fmt: skip
    released = "elect.sync _|%p6, 0xffffffff;\n@%p6 mbarrier.arrive.shared::cta.b64 _, [more];\n"
    again = wait(0, "2", "more") + multiply() + COMMIT + wait(0, "3")
    yield Case("T4", "each warp releases the accumulator before its wait::ld",
               body(READY_2, multiply(), DONE, LOAD, released, WAIT_LOAD, USE, again, FREE),
               body(READY_2, multiply(), DONE, LOAD, WAIT_LOAD, released, USE, again, FREE),
               "tensor-memory-overwritten")  # fmt: skip
    yield Case(
        "T5",
        "a product takes A from tensor memory that tcgen05.st still writes",
        body(READY, STORE_4, "bar.sync 0;\n", FROM_MEMORY, DONE, READ, WAIT_STORE, FREE),
        body(READY, STORE_4, WAIT_STORE, "bar.sync 0;\n", FROM_MEMORY, DONE, READ, FREE),
        "tensor-memory-race",
    )
    by_warp_1 = f"{WARP_1}{multiply(who='%p4')}"
    yield Case("T6", "the thread that commits is not the one that multiplies",
               body(READY, by_warp_1, DONE, READ, FREE),
               body(READY, by_warp_1, COMMIT.replace("%first", "%p4"), wait(1, "1"), READ, FREE),
               "commit-by-another-thread")  # fmt: skip
    both = multiply() + WARP_1 + multiply(who="%p4").replace("[%r8]", "[%r8+16]")
    second = READ.replace("[%r8]", "[%r8+16]")
    tell = "@%p4 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [more];\n"
    one = MORE + INIT_2.format(count=1) + ALLOC + load(4096) + wait() + DESCRIPTOR
    yield Case("T6", "as before, and the thread that commits has a product of its own",
               body(one, both, DONE, second, tell, wait(0, "2", "more"), FREE),
               body(one, both, DONE, tell, wait(0, "2", "more"), second, FREE), "tensor-memory-race")  # fmt: skip
    refill = load(4096)
    yield Case("T7", "TMA refills an operand whose product has not been committed",
               body(READY, multiply(), refill, wait(1, "1"), COMMIT, wait(0, "2"), FREE),
               body(READY, multiply(), DONE, refill, wait(0, "2"), FREE), "operand-overwritten")  # fmt: skip
    yield Case("T7", "threads overwrite an operand whose product has not been committed",
               body(READY, multiply(), FILL_TILE, DONE, READ, FREE),
               body(READY, multiply(), DONE, READ, FILL_TILE, FREE), "operand-overwritten")  # fmt: skip
    yield Case("T8", "threads write the operand, and none has a proxy fence",
               body(INIT, ALLOC, FILL_TILE, "bar.sync 0;\n", DESCRIPTOR, multiply(), COMMIT, wait(), READ, FREE),
               body(INIT, ALLOC, FILL_TILE, "fence.proxy.async;\nbar.sync 0;\n", DESCRIPTOR, multiply(), COMMIT, wait(),
                    READ, FREE), "generic-write-before-async-read")  # fmt: skip
    yield Case("T8", "the fence is before the stores",
               body(INIT, ALLOC, "fence.proxy.async;\n", FILL_TILE, "bar.sync 0;\n", DESCRIPTOR, multiply(), COMMIT,
                    wait(), READ, FREE),
               body(INIT, ALLOC, FILL_TILE, "fence.proxy.async;\nbar.sync 0;\n", DESCRIPTOR, multiply(), COMMIT, wait(),
                    READ, FREE), "generic-write-before-async-read")  # fmt: skip


def _operands() -> Iterator[Case]:
    start = INIT + ALLOC + load(4096) + wait()

    def of(bits: str) -> Example:
        return body(start, changed(PLAIN, bits), multiply(), DONE, READ, FREE)

    for what, bits in (
        ("a matrix descriptor of wgmma: version 0", "0x0000001000080000"),
        ("a matrix descriptor with the swizzle code of sm_90", "0x6000401000080000"),
        ("a matrix descriptor with a reserved bit", "0x0020401000080000"),
        ("a matrix descriptor that reaches past shared memory", "0x0000480000080000"),
    ):
        yield Case("T9", what, of(bits), GOOD, "InvalidOperandError")
    swizzled = A_TILE[0], A_TILE[1].format("32B")
    shared = ".reg .b64 %map;\n" + INIT + ALLOC + MAP + """
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
    @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [TO], [%map, {0, 0}], [bar];
    """ + wait()  # fmt: skip
    loaded = shared.replace("TO", "tile")
    yield Case("T10", "TMA swizzles by 32 bytes, the descriptor says none",
               body(loaded, DESCRIPTOR, multiply(), DONE, READ, FREE),
               body(loaded, changed(PLAIN, "0xC000401000000000"), multiply(), DONE, READ, FREE),
               "layout-mismatch", maps=(swizzled,))  # fmt: skip
    wide = "a", 'dtype = "u8"\nshape = [128, 128]\nfill = "ones"\nbox = [128, 128]\nswizzle = "128B"\n'
    tile = BIG + shared.replace("TO", "big").replace("4096", "16384")
    at_big = DESCRIPTOR.replace("tile", "big").replace(PLAIN, "{}")
    yield Case("T10", "the stride between groups of eight rows is twice the box's",
               body(tile, at_big.format("0x4000408000000000"), multiply(), DONE, READ, FREE),
               body(tile, at_big.format("0x4000404000000000"), multiply(), DONE, READ, FREE),
               "layout-mismatch", maps=(wide,))  # fmt: skip
    for what, bits, kind in (
        ("128 rows less 32", 0x6040490, "f16"),
        ("N of 264 columns", 0x8420490, "f16"),
        ("D of integers", 0x80404A0, "f16"),
        ("type code 6", 0x8040710, "f16"),
        ("the sparse bit without .sp", 0x8040494, "f16"),
        ("D of f16 from bf16", 0x8040480, "f16"),
    ):
        yield Case("T11", f"an instruction descriptor that .kind::{kind} does not have: {what}",
                   body(READY, mma(bits, kind), DONE, READ, FREE), GOOD, "InvalidOperandError")  # fmt: skip
    yield Case("T11", "4 bits and MN-major",
               body(INIT + ALLOC + load(4096) + wait() + SCALES, mma(0x8050290 & ~0x1C00 | 5 << 10, "f8f6f4"), DONE,
                    READ, FREE),
               body(INIT + ALLOC + load(4096) + wait() + SCALES, mma(0x8040010, "f8f6f4"), DONE, READ, FREE),
               "InvalidOperandError")  # fmt: skip


def _columns() -> Iterator[Case]:
    yield Case(
        "T12",
        "a product into columns next to the allocation",
        body(READY, multiply().replace("[%r8]", "[%r8+24]"), DONE, READ, FREE),
        GOOD,
        "InvalidOperandError",
    )
    yield Case(
        "T12",
        "a load of columns that have been freed",
        body(READY, multiply(), DONE, FREE, "bar.sync 0;\n", READ),
        GOOD,
        "InvalidOperandError",
    )
    yield Case("T13", "D over the columns of A",
               body(READY, STORE_4, WAIT_STORE, "bar.sync 0;\n", FROM_MEMORY.replace("[%r8]", "[%r8+8]"), DONE,
                    READ.replace("[%r8]", "[%r8+8]"), FREE),
               body(READY, STORE_4, WAIT_STORE, "bar.sync 0;\n", FROM_MEMORY, DONE, READ, FREE),
               "InvalidOperandError")  # fmt: skip
    factors = INIT + ALLOC + load(4096) + wait() + SCALES + SF
    yield Case("T13", "D over the columns of scale factors",
               body(factors.replace("%r8+16", "%r8+12"), scaled(where="%r8+12"), DONE, READ, FREE),
               body(factors, scaled(), DONE, READ, FREE), "InvalidOperandError")  # fmt: skip
    yield Case("T13", "a second accumulator over one that has not been read",
               body(READY, multiply(), multiply(n=32), DONE, READ, FREE),
               body(READY, multiply(), DONE, READ, "bar.sync 0;\n", multiply(n=32), COMMIT, wait(0, "2"), FREE),
               "tensor-memory-order", "warning")  # fmt: skip
    yield Case(
        "T14",
        "the first product accumulates onto uninitialised cells",
        body(READY, multiply(1), DONE, READ, KEEP, FREE),
        GOOD,
        "tensor-memory-uninitialised",
    )
    yield Case("T14", "scale factors in one quarter of the lanes",
               body(INIT + ALLOC + load(4096) + wait() + SCALES,
                    "mov.u32 %r9, 0x7f7f7f7f;\n@%p2 tcgen05.st.sync.aligned.32x32b.x4.b32 [%r8+16], {%r9, %r9, %r9, "
                    "%r9};\n@%p2 tcgen05.wait::st.sync.aligned;\nbar.sync 0;\n", scaled(), DONE, READ, KEEP, FREE),
               body(factors, scaled(), DONE, READ, KEEP, FREE), "tensor-memory-uninitialised")  # fmt: skip
    yield Case("T14", "a load of more columns than the product has written",
               body(READY, multiply(), DONE, READ.replace("[%r8]", "[%r8+14]"), KEEP, FREE), GOOD,
               "tensor-memory-uninitialised")  # fmt: skip
    quarter = "add.u32 %r0, %idx, 32;\nand.b32 %r0, %r0, 96;\nshl.b32 %r0, %r0, 16;\nadd.u32 %r8, %r8, %r0;\n"
    yield Case("T15", "each warp names the lanes of the next", body(READY, multiply(), DONE, quarter, READ,
               "and.b32 %r8, %r8, 0xffff;\n", FREE), GOOD, "tensor-address-of-another-warp", "warning")  # fmt: skip
    lanes = "and.b32 %r0, %idx, 31;\nshl.b32 %r0, %r0, 16;\nadd.u32 %r8, %r8, %r0;\n"
    yield Case(
        "T16",
        "each lane passes a different address",
        body(READY, multiply(), DONE, lanes, READ, FREE),
        GOOD,
        "InvalidOperandError",
    )
    half = "and.b32 %r0, %idx, 16;\nsetp.eq.u32 %p6, %r0, 0;\n@!%p6 bra apart;\n" + READ + "apart:\nbar.warp.sync -1;\n"
    yield Case("T16", "half a warp loads", body(READY, multiply(), DONE, half, FREE), GOOD, "DeadlockError")
    yield Case(
        "T16",
        "all lanes of a warp issue the product",
        body(READY, multiply(who="%p2"), DONE, READ, FREE),
        GOOD,
        "product-by-several-lanes",
    )
    yield Case("T17", "columns that are not freed", body(READY, multiply(), DONE, READ), GOOD, "columns-not-freed")
    yield Case(
        "T17",
        "columns freed with another size",
        body(READY, multiply(), DONE, READ, FREE.replace("%r8, 32", "%r8, 64")),
        GOOD,
        "InvalidOperandError",
    )
    yield Case(
        "T17", "columns freed twice", body(READY, multiply(), DONE, READ, FREE, FREE), GOOD, "InvalidOperandError"
    )
    relinquish = "@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
    more = ALLOC.replace("[bar+8]", "[more]").replace("%r8", "%r9").replace("setp.lt.u32 %p2, %idx, 32;\n", "")
    yield Case(
        "T17",
        "an allocation after the permit was relinquished",
        body(MORE, ALLOC, relinquish, more, FREE, FREE.replace("%r8", "%r9")),
        body(MORE, ALLOC, more, relinquish, FREE, FREE.replace("%r8", "%r9")),
        "InvalidOperandError",
    )
    yield Case("T17", "a second allocation that is larger",
               body(MORE, ALLOC, more.replace(", 32;", ", 64;"), FREE, FREE.replace("%r8, 32", "%r9, 64")),
               body(MORE, ALLOC.replace(", 32;\nbar", ", 64;\nbar"), more, FREE.replace("%r8, 32", "%r8, 64"),
                    FREE.replace("%r8", "%r9")), "growing-allocation")  # fmt: skip
    yield Case("T23", "products on accumulators of two shapes in the same columns",
               body(READY, multiply(n=32), multiply(), DONE, READ, FREE),
               body(READY, multiply(), multiply(1), DONE, READ, FREE), "tensor-memory-order", "warning")  # fmt: skip
    yield Case("T24", "a register that a load will write is used for something else",
               body(READY, multiply(), DONE, LOAD, "mov.u32 %r9, 7;\n", WAIT_LOAD, USE, FREE), GOOD,
               "tensor-load-not-waited")  # fmt: skip
    filled, used = mma(0x8040490, more=".collector::a::fill"), mma(0x8040490, more=".collector::a::lastuse", adds=1)
    yield Case("T26", "a collector that is empty", body(READY, multiply(), used, DONE, READ, FREE),
               body(READY, filled, used, DONE, READ, FREE), "collector-without-fill")  # fmt: skip
    yield Case("T26", "an operand that is overwritten while the collector keeps it",
               body(READY, filled, DONE, FILL_TILE, "fence.proxy.async;\nbar.sync 0;\n", used, COMMIT, wait(0, "2"),
                    READ, FREE),
               body(READY, filled, DONE, FILL_TILE, "fence.proxy.async;\nbar.sync 0;\n", multiply(1), COMMIT,
                    wait(0, "2"), READ, FREE), "collector-without-fill")  # fmt: skip
    yield Case("T27", "scaling of D where the kind has none",
               body(READY, mma(0x8040010, "f8f6f4").replace("%p3;\n    ", "%p3, 1;\n"), DONE, READ, FREE), GOOD,
               "VerificationError")  # fmt: skip
    yield Case(
        "T27",
        "integers on sm_103a",
        replace(body(READY, mma(0x80404A0, "i8"), DONE, READ, FREE), target="sm_103a"),
        GOOD,
        "VerificationError",
    )
    shift = ("setp.ne.u32 %p3, 0, 0;\n@%first tcgen05.mma.cta_group::1.kind::f16.ashift [%r8], [%r8+16], %d0, {:#x}, "
             "%p3;\n")  # fmt: skip
    store = STORE_4 + WAIT_STORE + "bar.sync 0;\n"
    yield Case("T27", ".ashift with 64 rows", body(READY, store, shift.format(0x4040490), DONE, READ, FREE),
               body(READY, store, shift.format(0x8040490), DONE, READ, FREE), "InvalidOperandError")  # fmt: skip
    at_32 = ALLOC.replace(", 32;\nbar", ", 256;\nbar")
    wide = MORE + INIT + at_32 + load(4096) + wait() + SCALES + SF.replace("+16", "+240")
    deep = FREE.replace("%r8, 32", "%r8, 256")
    yield Case(
        "T28",
        "block scales with N an odd multiple of 32",
        body(wide, scaled(96, "%r8+240"), DONE, READ, deep),
        body(wide, scaled(128, "%r8+240"), DONE, READ, deep),
        "unusual-tensor-shape",
        "warning",
    )
    off = (
        BIG
        + ".reg .b64 %map;\n"
        + INIT
        + ALLOC
        + MAP
        + """
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16384;
    @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [big+AT], [%map, {0, 0}], [bar];
    """
        + wait()
        + DESCRIPTOR.replace("tile", "big")
        .replace("shr.u32", "add.u32 %r3, %r3, AT;\nshr.u32")
        .replace(PLAIN, "0x4000404000000000")
        + multiply()
        + DONE
        + READ
        + FREE
    )
    # fmt: skip
    wide_map = "a", 'dtype = "u8"\nshape = [128, 128]\nfill = "ones"\nbox = [128, 128]\nswizzle = "128B"\n'
    yield Case("T29", "a swizzled tile that begins inside its pattern, while threads assume that it begins at one",
               body(off.replace("AT", "128"), "ld.shared.u32 %r2, [big+128];\n"),
               body(off.replace("AT", "0"), "ld.shared.u32 %r2, [big];\n"),
               "swizzle-base", "warning", maps=(wide_map,))  # fmt: skip


def _pairs() -> Iterator[Case]:
    pair = A_TILE[0], A_TILE[1].format("32B")

    def loaded(expected: int = 8192) -> str:
        of_pair = PAIR_LOADS.replace("{expected}", str(expected)).replace("{{", "{").replace("}}", "}")
        return ".reg .b64 %map;\n" + PAIR_READY + MAP + of_pair + leader_waits() + DESCRIPTOR.replace(PLAIN, SWIZZLED)

    def whole(*, expected: int = 8192, done: str = PAIR_DONE, end: str = PAIR_END, **options: int) -> Example:
        return body(loaded(expected), PAIR_MULTIPLY, done, READ, end, **{"cluster": 2, **options})

    good = whole()
    one_allocates = PAIR_ALLOC.replace(
        "%p2, %idx, 32;\n", "%p2, %idx, 32;\nsetp.eq.u32 %p6, %rank, 0;\nand.pred %p6, %p6, %p2;\n"
    ).replace("@%p2", "@%p6")
    yield Case("T18", "one CTA of a pair allocates", body(CLUSTER_SYNC, one_allocates, CLUSTER_SYNC, cluster=2),
               body(CLUSTER_SYNC, PAIR_ALLOC, PAIR_END, cluster=2), "DeadlockError")  # fmt: skip
    crossed = f"""
    setp.eq.u32 %p6, %rank, 0;
    @!%p6 bra other;
    {CLUSTER_SYNC}{PAIR_FREE}
    bra.uni end;
    other:
    {PAIR_FREE}{CLUSTER_SYNC}
    end:
    """
    yield Case("T18", "one CTA frees before a cluster barrier, the other after it",
               body(CLUSTER_SYNC, PAIR_ALLOC, CLUSTER_SYNC, crossed, cluster=2),
               body(CLUSTER_SYNC, PAIR_ALLOC, PAIR_END, cluster=2), "DeadlockError")  # fmt: skip
    remote = """
    setp.eq.u32 %p6, %rank, 1;
    and.pred %p6, %p6, %first;
    mov.u32 %r5, more;
    mapa.shared::cluster.u32 %r5, %r5, 0;
    @%p6 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
    """
    yield Case(
        "T19",
        "a CTA of the pair arrives at the other, which may have exited",
        whole(end=PAIR_END + remote),
        whole(end=remote + PAIR_END),
        "cta-may-have-exited",
        maps=(pair,),
    )
    yield Case("T19", "a CTA of the pair exits while the product reads its shared memory",
               whole(done=PAIR_COMMIT + "setp.eq.u32 %p6, %rank, 1;\n@%p6 bra.uni left;\n" +
                     wait(0, "9", "more", ".acquire.cluster"), end="left:\n"),
               good, "cta-may-have-exited", maps=(pair,))  # fmt: skip
    wrong = PAIR_DONE.replace("%h0;", "%h1;")
    yield Case(
        "T20",
        "a commit's mask names a CTA that the cluster lacks",
        whole(done=".reg .b16 %h1;\nmov.u16 %h1, 12;\n" + wrong),
        good,
        "InvalidOperandError",
        maps=(pair,),
    )
    yield Case(
        "T20",
        "a commit's mask omits the other CTA of the pair",
        whole(done=".reg .b16 %h1;\nmov.u16 %h1, 1;\n" + wrong),
        good,
        "DeadlockError",
        maps=(pair,),
    )
    both = PAIR_READY.replace("%p5, %rank, 0", "%p5, %r15, 0").replace("setp.eq", "and.b32 %r15, %rank, 1;\nsetp.eq", 1)
    cast = "mov.u32 %r14, 3;\nand.b32 %r13, %rank, 2;\nshl.b32 %r14, %r14, %r13;\ncvt.u16.u32 %h0, %r14;\n"
    own = (
        PAIR_LOADS.replace("{expected}", "8192")
        .replace("{{", "{")
        .replace("}}", "}")
        .replace(
            "mapa.shared::cluster.u32 %r6, %r6, 0;", "and.b32 %r12, %rank, 2;\nmapa.shared::cluster.u32 %r6, %r6, %r12;"
        )
    )
    four = ".reg .b64 %map;\n" + both + MAP + own + leader_waits() + DESCRIPTOR.replace(PLAIN, SWIZZLED) + PAIR_MULTIPLY
    yield Case("T20", "in a cluster of two pairs both commits go to the first",
               body(four, PAIR_DONE, READ, PAIR_END, cluster=4), body(four, cast, PAIR_DONE, READ, PAIR_END, cluster=4),
               "DeadlockError", maps=(pair,))  # fmt: skip
    yield Case("T21", "the leader expects the bytes of one CTA", whole(expected=4096), good, "copy-not-waited",
               maps=(pair,))  # fmt: skip
    yield Case("T21", "the leader expects the pair's bytes twice", whole(expected=16384), good, "byte-count-mismatch",
               maps=(pair,))  # fmt: skip
    mixed = PAIR_MULTIPLY.replace("cta_group::2", "cta_group::1").replace("0x10040490", "0x8040490")
    yield Case(
        "D10",
        "cccl 4037, triton 644: groups of one and of two CTAs in one kernel",
        body(loaded(), mixed, PAIR_DONE, READ, PAIR_END, cluster=2),
        good,
        "VerificationError",
        maps=(pair,),
    )
    fill = FILL_TILE + "fence.proxy.async;\nbar.sync 0;\n"
    tell = """
    mov.u32 %r5, bar;
    mapa.shared::cluster.u32 %r5, %r5, 0;
    @%first mbarrier.arrive.release.SCOPE.shared::cluster.b64 _, [%r5];
    """
    ready = PAIR_READY.replace("[bar], 1", "[bar], 2")

    def handed(scope: str, waits: str) -> Example:
        return body(ready, fill, tell.replace("SCOPE", scope), leader_waits(waits), DESCRIPTOR, PAIR_MULTIPLY,
                    PAIR_DONE, READ, PAIR_END, cluster=2)  # fmt: skip

    fine = handed("cluster", ".acquire.cluster")
    yield Case("T22", "a CTA signals operands in its memory to the other with .cta scope",
               handed("cta", ".acquire.cluster"), fine, "hand-off-scope")  # fmt: skip
    yield Case("T22", "the thread that multiplies for the pair waits with .cta scope",
               handed("cluster", ".acquire.cta"), fine, "hand-off-scope")  # fmt: skip
    yield Case("T30", "a tensor map is changed while a load of a pair uses it",
               *_map_changed(), "tensor-map-in-use")  # fmt: skip


SWIZZLED = "0xC000401000000000"
_OF_GROUP_1 = ".shared::cluster.global.tile", ".cta_group::1.shared::cluster.global.tile"
"""How a load of a CTA that may be of a pair is spelled."""


def _map_changed() -> Iterator[Example]:
    """The published bug of Hopper, with loads as sm_100 has them: as it is, and mended."""
    bug = next(one for one in HOPPER if one.name == "a tensor map rewritten under its loads")
    for example in (bug.bad, bug.fixed):
        yield replace(example, body=example.body.replace(*_OF_GROUP_1), target="sm_100a")


def _control() -> Iterator[Case]:
    start, three = QUERY + INIT, 'multiprocessors = 1\nlaunch_control = "grant"'
    asked = ASK + wait()
    guarded = ASK.replace("%first", "%p6").replace("@%p6 mb", "and.pred %p6, %p4, %first;\n@%p6 mb", 1)
    yield Case("T25", "a request after a declined one",
               body(start, asked, ANSWER, "fence.proxy.async;\nbar.sync 0;\n", ASK, wait(1, "1")),
               body(start, asked, ANSWER, "fence.proxy.async;\nbar.sync 0;\n", guarded,
                    "@!%p4 bra over;\n", wait(1, "1"), "over:\n"), "InvalidOperandError")  # fmt: skip
    yield Case("T25", "an exit with a request in flight", body(start, ASK), body(start, asked, ANSWER),
               "exit-with-pending-work")  # fmt: skip
    yield Case("T25", "the answer is read before it has arrived", body(start, ASK, ANSWER, wait()),
               body(start, asked, ANSWER), "copy-not-waited")  # fmt: skip
    rest = "@!%p4 bra over;\n" + wait(1, "1") + ANSWER + "over:\n"
    yield Case("T25", "the next answer may arrive while threads read this one: no proxy fence",
               body(start, asked, ANSWER, "bar.sync 0;\n", guarded, rest, grid=40),
               body(start, asked, ANSWER, "fence.proxy.async;\nbar.sync 0;\n", guarded, rest, grid=40),
               "generic-access-before-async-write", top=three)  # fmt: skip
    yield Case("T25", "the next answer overwrites this one before all have read it: no barrier",
               body(start, asked, ANSWER, "fence.proxy.async;\n", guarded, rest, grid=40),
               body(start, asked, ANSWER, "fence.proxy.async;\nbar.sync 0;\n", guarded, rest, grid=40),
               "data-race", top=three)  # fmt: skip
    place = """
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r9, %r10, %r11, %r12}, %q;
    mul.wide.u32 %d2, %r9, 4;
    add.u64 %d2, %data, %d2;
    """
    yield Case("T25", "the tile of a declined answer",
               body(start, asked, ANSWER, place, "@%first st.global.u32 [%d2], %idx;\n"),
               body(start, asked, ANSWER, place, "and.pred %p6, %p4, %first;\n@%p6 st.global.u32 [%d2], %idx;\n"),
               "OutOfBoundsError")  # fmt: skip
    unannounced = ASK.replace("arrive.expect_tx.shared::cta.b64 _, [bar], 16", "arrive.shared::cta.b64 _, [bar]")
    yield Case("T25", "no thread expects the 16 bytes", body(start, unannounced, wait(), ANSWER),
               body(start, asked, ANSWER), "byte-count-mismatch")  # fmt: skip


def _published() -> Iterator[Case]:
    relaxed = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n"
    peer = """
    mov.u32 %r6, tile;
    xor.b32 %r5, %rank, 1;
    mapa.shared::cluster.u32 %r6, %r6, %r5;
    ld.shared::cluster.u32 %r7, [%r6];
    """
    fill = "@%first st.shared.u32 [tile], %rank;\n"
    yield Case("D10", "cluster_tmem_reduce: shared memory of the other CTA read after a relaxed cluster barrier",
               body(fill, relaxed, peer, CLUSTER_SYNC, cluster=2),
               body(fill, CLUSTER_SYNC, peer, CLUSTER_SYNC, cluster=2),
               "data-race")  # fmt: skip
    all_lanes = MORE + INIT_2.format(count=1)
    yield Case("D10", "triton 9498: 32 lanes arrive at a barrier for one",
               body(all_lanes, "setp.lt.u32 %p2, %idx, 32;\n@%p2 mbarrier.arrive.shared::cta.b64 _, [more];\n",
                    wait(0, "1", "more")),
               body(all_lanes, "@%first mbarrier.arrive.shared::cta.b64 _, [more];\n", wait(0, "1", "more")),
               "surplus-arrival")  # fmt: skip
    empty = PAIR_READY + PAIR_COMMIT + wait(0, "9", "more", ".acquire.cluster") + PAIR_END
    yield Case("D10", "FlashAttention DEBUG_2CTA: a multicast commit with nothing to commit",
               body(empty, cluster=2),
               body(PAIR_READY, PAIR_COMMIT.replace("tcgen05.commit.cta_group::2.mbarrier::"
                    "arrive::one.shared::cluster.multicast::cluster.b64 [more], %h0",
                    "mbarrier.arrive.shared::cta.b64 _, [more]"), PAIR_END, cluster=2),
               "empty-multicast-commit", "warning")  # fmt: skip


# -- the page ----------------------------------------------------------------------------------------------------------


def table() -> str:
    """What is found of each, as the page has it."""
    lines = ["| no. | misuse | reported by | severity | other findings |", "|---|---|---|---|---|"]
    for case in cases():
        result = checked(case, case.bad)
        found = {one.rule: one.severity for one in result.findings if one.severity != "performance"}
        severity = found.pop(case.expected, "not found")
        others = ", ".join(f"`{rule}`" for rule in sorted(found))
        lines.append(f"| {case.number} | {case.what} | `{case.expected}` | {severity} | {others} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = table()
    print(text)
    if "--write" in sys.argv:
        page = PAGE.read_text()
        head, mark, _ = page.partition(MARK)
        PAGE.write_text(head + mark + "\n" + text)


if __name__ == "__main__":
    main()
