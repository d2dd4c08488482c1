"""Cases of a CTA's barriers: `bar`, `barrier`, mbarrier objects, fences, and cp.async with its groups.

Every thread of an mbarrier case has its own barrier, or works on one that only thread 0 touches, so that each test has
one result; cases with waits test the state after the wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warploom.isa.instructions import async_copy, fences

from .case import Array, Case, output
from .spellings import spread
from .values import Source
from .warp import rows


def cases() -> Iterator[Case]:
    yield from _named_barriers()
    yield _one_by_one()
    yield from _mbarriers()
    yield _waiting()
    yield from _copies()
    yield _fences()


# -- bar and barrier -----------------------------------------------------------------------------------------------


def _named_barriers() -> Iterator[Case]:
    start = (
        ".shared .b32 shared_words[128];\nmov.u32 %r8, shared_words;\nmad.lo.u32 %r9, %t, 4, %r8;\n"
        "xor.b32 %r10, %t, 97;\n"
        "mad.lo.u32 %r10, %r10, 4, %r8;\nsetp.lt.u32 %p1, %r2, 50;\nsetp.lt.u32 %p2, %t, 64;\nsetp.ge.u32 %p3, %r2, 0;"
    )
    lines = []
    for opcode, rest in (
        ("bar.sync", "0"), ("bar.cta.sync", "1"), ("bar.sync", "2, 128"), ("barrier.sync", "3"),
        ("barrier.cta.sync", "4"),
        ("barrier.sync.aligned", "5"), ("barrier.sync", "6, 128"), ("barrier.cta.sync.aligned", "%r11"),
    ):  # fmt: skip
        text = f"{opcode} {rest};"
        # everybody reads what another warp wrote before the barrier
        lines.append((text, f"mov.b32 %r11, 7;\nadd.u32 %r12, %r1, {len(lines)};\nst.shared.b32 [%r9], %r12;\n{text}\n"
                            "ld.shared.b32 %r20, [%r10];\nbar.sync 15;"))  # fmt: skip
    for base, tail in (
        ("bar", ""),
        ("bar.cta", ""),
        ("barrier", ""),
        ("barrier", ".aligned"),
        ("barrier.cta", ".aligned"),
    ):
        for predicate in ("%p1", "!%p1", "%p3"):
            for count in ("", "128, "):
                text = f"{base}.red.popc{tail}.u32 %r20, 1, {count}{predicate};"
                lines.append((text, text))
                for operation in ("and", "or"):
                    text = f"{base}.red.{operation}{tail}.pred %p4, 2, {count}{predicate};"
                    lines.append((text, f"{text}\nselp.u32 %r20, 1, 0, %p4;"))
    for number, base in enumerate(
        ("bar.{}", "bar.cta.{}", "barrier.{}", "barrier.cta.{}.aligned", "barrier.{}.aligned")
    ):
        # half of the warps only arrive, the other half waits for them and reads what they wrote
        arrive, sync = base.format("arrive"), base.format("sync")
        lines.append((
            arrive,
            f"add.u32 %r12, %r1, {77 + number};\nst.shared.b32 [%r9], %r12;\nmov.b32 %r20, 0;\n@%p2 bra WAIT{number};\n"
            f"{arrive} 8, 128;\nbra BOTH{number};\nWAIT{number}:\n{sync} 8, 128;\nadd.u32 %r13, %r9, 256;\n"
            f"ld.shared.b32 %r20, [%r13];\nBOTH{number}:\nbar.sync 15;",
        ))  # fmt: skip
    of = [f"{base}.{what}" for base in ("bar", "barrier")
          for what in ("sync", "arrive", "red_popc", "red_popc_count", "red", "red_count")]  # fmt: skip
    for part in range(0, len(lines), 24):
        yield rows(f"barriers/bar/{part // 24}", of, lines[part : part + 24], start=start)


def _one_by_one() -> Case:
    """Threads of a warp come to a barrier without .aligned at different instructions, by guards and by branches."""
    start = (
        ".shared .b32 shared_words[128];\nmov.u32 %r8, shared_words;\nmad.lo.u32 %r9, %t, 4, %r8;\n"
        "xor.b32 %r10, %t, 97;\nmad.lo.u32 %r10, %r10, 4, %r8;\nand.b32 %r11, %t, 3;\nsetp.eq.u32 %p1, %r11, 1;"
    )
    lines = []
    for number, one in enumerate(("barrier.sync 0", "barrier.cta.sync 1, 128", "barrier.red.or.pred %p2, 2, %p1")):
        for way, text in (
            ("guard", f"@%p1 {one};\n@!%p1 {one};"),
            ("branch", f"@%p1 bra APART{number};\n{one};\nbra BOTH{number};\nAPART{number}:\n{one};\nBOTH{number}:"),
        ):
            lines.append((f"{one} by {way}", f"add.u32 %r12, %r1, {len(lines)};\nst.shared.b32 [%r9], %r12;\n{text}\n"
                                             "ld.shared.b32 %r20, [%r10];\nbarrier.sync 15;"))  # fmt: skip
    return rows("barriers/one-by-one", ("barrier.sync", "barrier.red"), lines, start=start)


# -- mbarrier ------------------------------------------------------------------------------------------------------

_TEST = "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r8], {parity};\nselp.u32 %r20, 1, 0, %p1;"


def _mbarriers() -> Iterator[Case]:
    """Each thread drives a barrier of its own; its count is 6 or, every second thread, 7. The last
    arrival before the waits ends the second barrier's first phase."""
    start = (
        ".shared .align 8 .b64 bars[128];\nmov.u32 %r8, bars;\nmad.lo.u32 %r8, %t, 8, %r8;\nand.b32 %r9, %t, 1;\n"
        "add.u32 %r9, %r9, 6;\ncvt.u64.u32 %rd8, %r8;\ncvta.shared.u64 %rd9, %rd8;"
    )
    spaces = (("", "%rd9"), (".shared", "%r8"), (".shared::cta", "%r8"))
    tests = [("phase 0", _TEST.format(parity=0)), ("phase 1", _TEST.format(parity=1))]
    pending = "mbarrier.pending_count.b64 %r20, %rd10;"
    for number, (space, at) in enumerate(spaces):
        lines: list[tuple[str, str]] = []

        def do(text: str, counted: bool = False, lines: list[tuple[str, str]] = lines) -> None:
            lines.append((text, f"{text}\n{pending}" if counted else f"{text}\nmov.b32 %r20, 0;"))
            lines.extend((f"{name} after {text}", test) for name, test in tests)

        do(f"mbarrier.init{space}.b64 [{at}], %r9;")
        do(f"mbarrier.arrive{space}.b64 %rd10, [{at}];")
        do(f"mbarrier.arrive{space}.b64 %rd10, [{at}], 2;")
        do(f"mbarrier.arrive.release.cta{space}.b64 %rd10, [{at}];")
        do(f"mbarrier.arrive.noComplete{space}.b64 %rd10, [{at}], 1;", True)
        do(f"mbarrier.expect_tx.relaxed.cta{space}.b64 [{at}], 64;")
        do(f"mbarrier.arrive_drop{space}.b64 %rd10, [{at}];")
        do(f"mbarrier.complete_tx.relaxed.cta{space}.b64 [{at}], 48;")
        do(f"mbarrier.complete_tx.relaxed.cta{space}.b64 [{at}], 16;")
        do(f"mbarrier.arrive{space}.b64 %rd10, [{at}];")
        do(f"mbarrier.arrive.expect_tx{space}.b64 %rd10, [{at}], 32;")
        do(f"mbarrier.complete_tx.relaxed.cta{space}.b64 [{at}], 32;")
        do(f"mbarrier.arrive_drop.noComplete{space}.b64 %rd10, [{at}], 1;", True)
        do(f"mbarrier.arrive.release.cluster{space}.b64 %rd10, [{at}], 1;")
        do(f"mbarrier.inval{space}.b64 [{at}];\nmbarrier.init{space}.b64 [{at}], 4;")
        do(f"mbarrier.arrive_drop{space}.b64 %rd10, [{at}], 2;")
        do(f"mbarrier.arrive_drop.expect_tx{space}.b64 %rd10, [{at}], 16;")
        do(f"mbarrier.complete_tx.relaxed.cta{space}.b64 [{at}], 16;")
        do(f"mbarrier.arrive{space}.b64 %rd10, [{at}];")
        for what in ("test_wait", "try_wait"):
            for scope in ("", ".acquire.cta", ".relaxed.cta"):
                text = f"mbarrier.{what}{scope}{space}.b64 %p1, [{at}], %rd10;"
                lines.append((text, f"{text}\nselp.u32 %r20, 1, 0, %p1;"))
                text = f"mbarrier.{what}.parity{scope}{space}.b64 %p1, [{at}], 1;"
                lines.append((text, f"{text}\nselp.u32 %r20, 1, 0, %p1;"))
        text = f"mbarrier.try_wait{space}.b64 %p1, [{at}], %rd10, 100;"
        lines.append((text, f"{text}\nselp.u32 %r20, 1, 0, %p1;"))
        of = [
            "mbarrier.init", "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx", "mbarrier.arrive",
            "mbarrier.arrive_count", "mbarrier.arrive_expect_tx", "mbarrier.arrive_no_complete",
            "mbarrier.arrive_drop", "mbarrier.arrive_drop_count", "mbarrier.arrive_drop_expect_tx",
            "mbarrier.arrive_drop_no_complete", "mbarrier.test_wait", "mbarrier.test_wait_parity",
            "mbarrier.try_wait", "mbarrier.try_wait_parity", "mbarrier.pending_count",
        ]  # fmt: skip
        yield rows(f"mbarrier/{number}", of, lines, start=start)


def _waiting() -> Case:
    """Two warps hand a buffer to and fro over two barriers for eight rounds; parity turns each time."""
    body = """
    .shared .align 8 .b64 bars[2];
    .shared .b32 tile[32];
    and.b32 %r5, %t, 31;
    mov.u32 %r0, tile;
    mad.lo.u32 %r0, %r5, 4, %r0;
    mov.u32 %r8, bars;
    setp.eq.u32 %p0, %t, 0;
    @%p0 mbarrier.init.shared::cta.b64 [%r8], 32;
    @%p0 mbarrier.init.shared::cta.b64 [%r8+8], 32;
    bar.sync 0;
    mad.wide.u32 %rd0, %r5, 4, %a0;
    mad.wide.u32 %rd1, %r5, 4, %a1;
    mov.u32 %r1, 0;
    setp.ge.u32 %p1, %t, 32;
    @%p1 bra READ;
WRITE:
    and.b32 %r2, %r1, 1;
    xor.b32 %r3, %r2, 1;
EMPTY:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8+8], %r3;
    @!%p2 bra EMPTY;
    ld.global.b32 %r4, [%rd0];
    st.shared.b32 [%r0], %r4;
    mbarrier.arrive.shared::cta.b64 _, [%r8];
    add.u64 %rd0, %rd0, 128;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 8;
    @%p2 bra WRITE;
    bra END;
READ:
    and.b32 %r2, %r1, 1;
FULL:
    mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r8], %r2;
    @!%p2 bra FULL;
    ld.shared.b32 %r4, [%r0];
    not.b32 %r4, %r4;
    st.global.b32 [%rd1], %r4;
    mbarrier.arrive.shared::cta.b64 _, [%r8+8];
    add.u64 %rd1, %rd1, 128;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 8;
    @%p2 bra READ;
END:
    """
    return Case(
        "mbarrier/waiting", ("mbarrier.try_wait_parity", "mbarrier.test_wait_parity", "mbarrier.arrive"), body,
        lambda: (Array(Source("waiting").bits(256, 32)), output(256, np.uint32)), ("array", "array"), threads=64,
    )  # fmt: skip


# -- cp.async ------------------------------------------------------------------------------------------------------


def _copies() -> Iterator[Case]:
    """Each spelling copies 4, 8 and 16 bytes of each thread into a tile of 0xA5 bytes, which is the result."""
    for form in async_copy.FORMS[:5]:
        sizes = {"src_size": ("0", "3", "4"), "ignore": ("%p1", "!%p1")}
        lines = [
            ".shared .align 16 .b8 tile[512];", "mov.u32 %r0, tile;", "mad.lo.u32 %r0, %t, 16, %r0;",
            "mad.wide.u32 %rd0, %t, 16, %a0;", "mad.wide.u32 %rd1, %t, 16, %a1;", "mov.b32 %r1, 0xA5A5A5A5;",
            "createpolicy.fractional.L2::evict_last.b64 %rd9, 0f3F800000;", "and.b32 %r2, %t, 1;",
            "setp.eq.u32 %p1, %r2, 1;", "and.b32 %r3, %t, 3;",
        ]  # fmt: skip
        labels: list[str] = []
        for opcode, chosen in spread(form, ("cache", "to")):
            for size in (16,) if chosen["cache"] == "cg" else (4, 8, 16):
                words = [str(size)]
                if "src_size" in form.operand_text:
                    words.append("%r3" if size == 4 else "%r4")
                elif "ignore" in form.operand_text:
                    words.append(sizes["ignore"][len(labels) % 2])
                if "policy" in form.operand_text:
                    words.append("%rd9")
                text = f"{opcode} [%r0], [%rd0], {', '.join(words)};"
                lines += [
                    f"mad.lo.u32 %r4, %t, {max(size // 8, 1)}, 0;", f"min.u32 %r4, %r4, {size};",
                    "st.shared.v4.b32 [%r0], {%r1, %r1, %r1, %r1};", text,
                    "cp.async.wait_all;" if len(labels) % 2 else "cp.async.commit_group;\ncp.async.wait_group 0;",
                    "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r0];",
                    f"st.global.v4.b32 [%rd1+{512 * len(labels)}], {{%r10, %r11, %r12, %r13}};",
                ]  # fmt: skip
                labels.append(text)
        count = len(labels)
        yield Case(
            f"cp_async/{form.key}", (form.key, "cp_async.commit_group", "cp_async.wait_group", "cp_async.wait_all"),
            "\n".join(lines),
            lambda count=count: (Array(Source("cp_async").bits(128, 32)), output((count, 128), np.uint32)),  # type: ignore[misc]
            ("array", "array"), labels=tuple(labels),
        )  # fmt: skip
    yield _groups()
    yield _arrival()


def _groups() -> Case:
    """Four groups; after each wait the ones it waited for are there."""
    lines = [
        ".shared .align 16 .b8 tile[2048];", "mov.u32 %r0, tile;", "mad.lo.u32 %r0, %t, 16, %r0;",
        "mad.wide.u32 %rd0, %t, 16, %a0;", "mad.wide.u32 %rd1, %t, 16, %a1;",
    ]  # fmt: skip
    for at in range(4):
        lines += [f"cp.async.cg.shared.global [%r0+{at * 512}], [%rd0+{at * 512}], 16;", "cp.async.commit_group;"]
    for at in range(4):
        lines += [f"cp.async.wait_group {3 - at};", f"ld.shared.v4.b32 {{%r1, %r2, %r3, %r4}}, [%r0+{at * 512}];",
                  f"st.global.v4.b32 [%rd1+{at * 512}], {{%r4, %r3, %r2, %r1}};"]  # fmt: skip
    return Case(
        "cp_async/groups", ("cp_async.copy", "cp_async.commit_group", "cp_async.wait_group"), "\n".join(lines),
        lambda: (Array(Source("groups").bits(512, 32)), output(512, np.uint32)), ("array", "array"),
    )  # fmt: skip


def _arrival() -> Case:
    """A copy arrives on an mbarrier, with `.noinc` as one of its arrivals and without as none."""
    body = """
    .shared .align 16 .b8 tile[1024];
    .shared .align 8 .b64 bars[3];
    mov.u32 %r0, tile;
    mad.lo.u32 %r0, %t, 16, %r0;
    mov.u32 %r8, bars;
    cvt.u64.u32 %rd8, %r8;
    cvta.shared.u64 %rd9, %rd8;
    mad.wide.u32 %rd0, %t, 16, %a0;
    mad.wide.u32 %rd1, %t, 16, %a1;
    setp.eq.u32 %p0, %t, 0;
    @%p0 mbarrier.init.shared.b64 [%r8], 32;
    @%p0 mbarrier.init.shared.b64 [%r8+8], 32;
    @%p0 mbarrier.init.shared.b64 [%r8+16], 32;
    bar.sync 0;
    cp.async.ca.shared.global [%r0], [%rd0], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];
FIRST:
    mbarrier.test_wait.parity.shared.b64 %p1, [%r8], 0;
    @!%p1 bra FIRST;
    xor.b32 %r9, %t, 5;
    mov.u32 %r10, tile;
    mad.lo.u32 %r9, %r9, 16, %r10;
    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r9];
    st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};
    cp.async.ca.shared.global [%r0+512], [%rd0+512], 16;
    cp.async.mbarrier.arrive.shared::cta.b64 [%r8+8];
    mbarrier.arrive.shared.b64 _, [%r8+8];
SECOND:
    mbarrier.test_wait.parity.shared.b64 %p1, [%r8+8], 0;
    @!%p1 bra SECOND;
    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r9+512];
    st.global.v4.b32 [%rd1+512], {%r1, %r2, %r3, %r4};
    cp.async.mbarrier.arrive.noinc.b64 [%rd9+16];
THIRD:
    mbarrier.test_wait.parity.shared.b64 %p1, [%r8+16], 0;
    @!%p1 bra THIRD;
    """
    return Case(
        "cp_async/arrival", ("cp_async.mbarrier_arrive",), body,
        lambda: (Array(Source("arrival").bits(256, 32)), output(256, np.uint32)), ("array", "array"),
    )  # fmt: skip


# -- fences --------------------------------------------------------------------------------------------------------


def _fences() -> Case:
    """Fences change no value: between a store and the load of it stand all that need no operand."""
    lines = [".shared .b32 word;", "mad.wide.u32 %rd1, %t, 4, %a0;", "mov.u32 %r1, %t;", "mov.u32 %r0, word;"]
    of = []
    for form in fences.FORMS:
        if form.operands:
            continue
        of.append(form.key)
        for opcode, _ in spread(form, ("sem", "scope", "space", "level")):
            lines += ["st.global.b32 [%rd1], %r1;", f"{opcode};", "ld.global.b32 %r2, [%rd1];", "add.u32 %r1, %r2, 3;"]
    lines.append("st.global.b32 [%rd1], %r1;")
    return Case(
        "fences/0", tuple(of), "\n".join(lines), lambda: (output(32, np.uint32),), ("array",),
    )  # fmt: skip
