"""Cases of warp-level operations, control flow, and the special registers that are the same on every machine.

Each kernel runs a list of lines, each of which leaves a word in %r20 that goes to its row of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from .case import Argument, Array, Case, output
from .values import Source

THREADS = 128
_START = (
    "mad.wide.u32 %rd0, %i, 16, %a0;\nld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0];\n"
    "mad.wide.u32 %rd1, %i, 4, %a1;\nand.b32 %r5, %t, 31;"
)
"""%r1 … %r4: any bits; %rd1: the thread's place in the result; %r5: its lane."""


def cases() -> Iterator[Case]:
    yield from _shuffles()
    yield from _votes()
    yield from _matches()
    yield from _reductions()
    yield from _divergent()
    yield from _special_registers()
    yield from _control()


def words(threads: int = THREADS, name: str = "warp") -> np.ndarray:
    """Four words for each thread: any bits, small numbers, few different ones, mostly one number."""
    source = Source(name)
    found = source.bits(4 * threads, 32).reshape(threads, 4)
    found[:, 1] %= 97
    found[:, 2] %= 5
    found[:, 3] = np.where(found[:, 3] % 8 == 0, found[:, 3], 7)
    found[::16, 3] = 7
    return found


def rows(
    name: str, of: Sequence[str], lines: Sequence[tuple[str, str]], threads: int = THREADS, start: str = "",
    arguments: Callable[[], np.ndarray] | None = None, **launch: object,
) -> Case:  # fmt: skip
    """A kernel of labelled lines. of: the table's rows; lines: (label, text that leaves its result in %r20)."""
    body = [_START, start]
    total = threads * int(launch.get("grid", 1))  # type: ignore[call-overload]
    for at, (_, text) in enumerate(lines):
        body += [text, f"st.global.b32 [%rd1+{at * 4 * total}], %r20;"]

    def make() -> tuple[Argument, ...]:
        data = arguments() if arguments else words(total)
        return (Array(data.reshape(-1)), output((len(lines), total), np.uint32))

    return Case(
        name, tuple(of), "\n".join(body), make, ("array", "array"), threads=threads,
        labels=tuple(label for label, _ in lines), **launch,
    )  # type: ignore[arg-type]  # fmt: skip


# -- the lanes of a warp -------------------------------------------------------------------------------------------


def _shuffles() -> Iterator[Case]:
    """Every mode, with source operand, clamp and segments fixed or different in each lane."""
    for mode in ("up", "down", "bfly", "idx"):
        lines = []
        for distance in ("0", "1", "5", "16", "31", "33", "%r2"):
            for clamp in ["0", "0x1800", "0x1C00", "0x1010"] if mode == "up" else ["0x1f", "0x181f", "0x1c1f", "0xf"]:
                text = f"shfl.sync.{mode}.b32 %r20, %r1, {distance}, {clamp}, 0xffffffff;"
                lines.append((text, text))
        pair = f"shfl.sync.{mode}.b32 %r21|%p1, %r1, %r2, {'0' if mode == 'up' else '0x181f'}, 0xffffffff;"
        lines.append((pair, f"{pair}\nselp.u32 %r20, 1, 0, %p1;"))
        lines.append((f"{pair} value", f"{pair}\nselp.b32 %r20, %r21, 99, %p1;"))
        yield rows(f"warp/shfl.{mode}", ["shfl.sync"], lines)


def _votes() -> Iterator[Case]:
    start = (
        "setp.lt.u32 %p1, %r2, 50;\nsetp.ne.u32 %p2, %r4, 7;\nsetp.lt.u32 %p3, %t, 64;\nsetp.ge.u32 %p4, %r5, 0;\n"
        "not.pred %p5, %p4;"
    )
    lines = []
    for predicate in ("%p1", "!%p1", "%p2", "%p3", "%p4", "%p5"):
        for mode in ("all", "any", "uni"):
            text = f"vote.sync.{mode}.pred %p6, {predicate}, 0xffffffff;"
            lines.append((text, f"{text}\nselp.u32 %r20, 1, 0, %p6;"))
        text = f"vote.sync.ballot.b32 %r20, {predicate}, 0xffffffff;"
        lines.append((text, text))
    lines.append(("activemask.b32 %r20;", "activemask.b32 %r20;"))
    yield rows("warp/vote", ["vote.predicate", "vote.ballot", "activemask"], lines, start=start)


def _matches() -> Iterator[Case]:
    start = "mov.b64 %rd2, {%r3, %r4};\nmov.b64 %rd3, {%r4, %r3};\nmov.b64 %rd4, {7, 9};\nshr.u32 %r6, %t, 5;"
    lines = []
    for kind, operands in (("b32", ("%r1", "%r2", "%r3", "%r4", "%r6")), ("b64", ("%rd2", "%rd3", "%rd4"))):
        for operand in operands:
            text = f"match.any.sync.{kind} %r20, {operand}, 0xffffffff;"
            lines.append((text, text))
            text = f"match.all.sync.{kind} %r20, {operand}, 0xffffffff;"
            lines.append((text, text))
            text = f"match.all.sync.{kind} %r21|%p1, {operand}, 0xffffffff;"
            lines.append((text, f"{text}\nselp.b32 %r20, %r21, 12345, %p1;"))
    yield rows("warp/match", ["match.any", "match.all"], lines, start=start)


def _reductions() -> Iterator[Case]:
    lines = []
    for operand in ("%r1", "%r2", "%r4"):
        for operation in (
            "add.u32",
            "add.s32",
            "min.u32",
            "min.s32",
            "max.u32",
            "max.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
        ):
            text = f"redux.sync.{operation} %r20, {operand}, 0xffffffff;"
            lines.append((text, text))
    yield rows("warp/redux", ["redux.integer", "redux.bits"], lines)
    elected = "elect.sync %r21|%p1, 0xffffffff;"
    lines = [
        (elected, f"{elected}\nselp.u32 %r20, 1, 0, %p1;"),
        (f"{elected} value", f"{elected}\nmov.b32 %r20, %r21;"),
    ]
    text = "elect.sync _|%p1, 0xffffffff;"
    lines.append((text, f"{text}\nselp.u32 %r20, 1, 0, %p1;"))
    yield rows("warp/elect", ["elect.sync"], lines)


def _divergent() -> Iterator[Case]:
    """The lanes at odd places and those at even ones, each part with its own mask."""
    lines = []
    parts = [
        ("shfl", "shfl.sync.bfly.b32 %r20, %r1, 2, 0x1f, {mask};"),
        ("shfl idx", "and.b32 %r6, %r5, 1;\nadd.u32 %r6, %r6, 8;\nshfl.sync.idx.b32 %r20, %r1, %r6, 0x1f, {mask};"),
        ("ballot", "setp.lt.u32 %p1, %r2, 50;\nvote.sync.ballot.b32 %r20, %p1, {mask};"),
        ("any", "setp.ne.u32 %p1, %r4, 7;\nvote.sync.any.pred %p2, %p1, {mask};\nselp.u32 %r20, 1, 0, %p2;"),
        ("match any", "match.any.sync.b32 %r20, %r3, {mask};"),
        ("match all", "match.all.sync.b32 %r20, %r4, {mask};"),
        ("redux add", "redux.sync.add.u32 %r20, %r1, {mask};"),
        ("redux min", "redux.sync.min.s32 %r20, %r1, {mask};"),
        ("redux xor", "redux.sync.xor.b32 %r20, %r1, {mask};"),
        ("elect", "elect.sync %r20|%p1, {mask};"),
        ("bar.warp", "bar.warp.sync {mask};\nmov.b32 %r20, {mask};"),
    ]
    for number, (label, text) in enumerate(parts):
        lines.append((
            f"{label} in halves",
            f"@%p0 bra ODD{number};\n{text.format(mask='0x55555555')}\nbra JOIN{number};\n"
            f"ODD{number}:\n{text.format(mask='0xAAAAAAAA')}\nJOIN{number}:\nbar.warp.sync 0xffffffff;",
        ))  # fmt: skip
    of = ["shfl.sync", "vote.ballot", "vote.predicate", "match.any", "match.all", "redux.integer", "redux.bits",
          "elect.sync", "bar.warp"]  # fmt: skip
    yield rows("warp/divergent", of, lines, start="and.b32 %r7, %t, 1;\nsetp.eq.u32 %p0, %r7, 1;")


# -- special registers ---------------------------------------------------------------------------------------------

_PLAIN = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    "%laneid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
    "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size", "%nwarpid",
    "%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap",
)  # fmt: skip
_CLUSTERED = (
    *(f"%{name}.{axis}" for name in ("ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
      for axis in "xyz"),
    "%cluster_ctarank", "%cluster_nctarank",
)  # fmt: skip


def _special_registers() -> Iterator[Case]:
    block, grid = (8, 6, 2), (2, 3, 2)
    yield _registers("block", _PLAIN, block, grid, None, 256)
    yield _registers("cluster", _CLUSTERED, (32, 1, 1), (4, 6, 2), (2, 3, 1), 0)
    yield _registers("no cluster", _CLUSTERED, (32, 1, 1), (3, 2, 1), None, 0)


def _registers(
    name: str, which: Sequence[str], block: tuple[int, int, int], grid: tuple[int, int, int],
    cluster: tuple[int, int, int] | None, dynamic: int,
) -> Case:  # fmt: skip
    """Every register of every thread. Threads count along x, then y, then z, CTAs likewise."""
    threads, total = int(np.prod(block)), int(np.prod(block) * np.prod(grid))
    lines = [
        ".shared .align 16 .b8 tile[48];", "mov.u32 %r0, tile;", "st.shared.b32 [%r0], %r0;",
        "mov.u32 %r1, %tid.z;", "mov.u32 %r2, %tid.y;", f"mad.lo.u32 %r1, %r1, {block[1]}, %r2;",
        "mov.u32 %r2, %tid.x;", f"mad.lo.u32 %r1, %r1, {block[0]}, %r2;",
        "mov.u32 %r3, %ctaid.z;", "mov.u32 %r2, %ctaid.y;", f"mad.lo.u32 %r3, %r3, {grid[1]}, %r2;",
        "mov.u32 %r2, %ctaid.x;", f"mad.lo.u32 %r3, %r3, {grid[0]}, %r2;", f"mad.lo.u32 %r1, %r3, {threads}, %r1;",
        "mad.wide.u32 %rd1, %r1, 4, %a0;",
    ]  # fmt: skip
    for at, register in enumerate(which):
        lines += [f"mov.u32 %r4, {register};", f"st.global.b32 [%rd1+{4 * total * at}], %r4;"]
    labels = list(which)
    if dynamic == 0:
        lines += ["mov.pred %p1, %is_explicit_cluster;", "selp.u32 %r4, 1, 0, %p1;"]
        lines += [f"st.global.b32 [%rd1+{4 * total * len(labels)}], %r4;"]
        labels.append("%is_explicit_cluster")
    return Case(
        f"special/registers/{name}", ("mov",), "\n".join(lines),
        lambda: (output((len(labels), total), np.uint32),), ("array",), threads=threads, extent=block,
        grid_extent=grid, cluster_extent=cluster, dynamic_smem=dynamic, labels=tuple(labels),
    )  # fmt: skip


# -- control -------------------------------------------------------------------------------------------------------

_FUNCTIONS = """
.func (.param .b32 back) @@_square_plus(.param .b32 first, .param .b32 second)
{
    .reg .b32 %r<4>;
    .reg .pred %p<1>;
    ld.param.b32 %r1, [first];
    ld.param.b32 %r2, [second];
    mad.lo.u32 %r3, %r1, %r1, %r2;
    setp.lt.u32 %p0, %r2, 40;
    st.param.b32 [back], %r3;
    @%p0 ret;
    add.u32 %r3, %r3, 1000;
    st.param.b32 [back], %r3;
    ret;
}
"""


def _control() -> Iterator[Case]:
    lines = [
        ("loop", "mov.b32 %r20, 0;\nmov.b32 %r6, %r2;\nLOOP:\nadd.u32 %r20, %r20, %r6;\nsub.u32 %r6, %r6, 3;\n"
                 "setp.gt.s32 %p1, %r6, 0;\n@%p1 bra LOOP;"),
        ("nested", "mov.b32 %r20, 0;\nand.b32 %r6, %r2, 7;\nOUTER:\nmov.b32 %r7, %r6;\nINNER:\n"
                   "mad.lo.u32 %r20, %r20, 3, %r7;\nsub.u32 %r7, %r7, 1;\nsetp.gt.s32 %p1, %r7, 0;\n@%p1 bra INNER;\n"
                   "sub.u32 %r6, %r6, 1;\nsetp.gt.s32 %p1, %r6, 0;\n@%p1 bra OUTER2;\nbra END;\nOUTER2:\n"
                   "bra OUTER;\nEND:"),
        ("choice", "targets: .branchtargets CASE0, CASE1, CASE2, CASE3, CASE4;\nbrx.idx %r3, targets;\n"
                   "CASE0:\nmov.b32 %r20, 10;\nbra CHOSEN;\nCASE1:\nmov.b32 %r20, 11;\nbra CHOSEN;\n"
                   "CASE2:\nmov.b32 %r20, 12;\nbra CHOSEN;\nCASE3:\nmov.b32 %r20, 13;\nCASE4:\n"
                   "add.u32 %r20, %r3, 70;\nCHOSEN:"),
        ("call", "{\n.param .b32 first, second, back;\nst.param.b32 [first], %r1;\nst.param.b32 [second], %r2;\n"
                 "call (back), @@_square_plus, (first, second);\nld.param.b32 %r20, [back];\n}"),
        ("guard", "mov.b32 %r20, 5;\nsetp.lt.u32 %p1, %r2, 50;\n@%p1 add.u32 %r20, %r20, %r1;\n"
                  "@!%p1 mul.lo.u32 %r20, %r20, %r1;"),
        ("sleep", "nanosleep.u32 20;\npmevent 3;\npmevent.mask 5;\nmov.b32 %r20, 1;"),
    ]  # fmt: skip
    control = rows("control/flow", ["bra", "brx.idx", "call", "nanosleep", "pmevent.index", "pmevent.mask"], lines)
    yield replace(control, before=_FUNCTIONS)
    ends = (
        "st.global.b32 [%rd1], 1;\nsetp.lt.u32 %p1, %r2, 30;\n@%p1 exit;\nst.global.b32 [%rd1], 2;\n"
        "setp.lt.u32 %p1, %r2, 60;\n@%p1 ret;\nmov.b32 %r20, 3;"
    )
    yield rows("control/ends", ["exit", "ret"], [("exit and ret", ends)])
    # Addresses are a machine's own: the results are what was stored, alignment, and that room given back comes again.
    room = "stacksave.u64 %rd6;\nadd.u32 %r6, %r3, 1;\nmul.wide.u32 %rd2, %r6, 8;\nalloca.u64 %rd3, %rd2, 8;\n"
    stack = [
        ("two rooms", f"{room}st.local.v2.b32 [%rd3], {{%r1, %r2}};\nalloca.u64 %rd4, 32, 16;\n"
                      "st.local.v4.b32 [%rd4+16], {%r4, %r3, %r2, %r1};\nld.local.b32 %r20, [%rd3+4];\n"
                      "ld.local.b32 %r6, [%rd4+28];\nxor.b32 %r20, %r20, %r6;"),
        ("aligned", "cvt.u32.u64 %r20, %rd4;\nand.b32 %r20, %r20, 15;"),
        ("given back", "stackrestore.u64 %rd6;\nalloca.u64 %rd5, %rd2, 8;\nst.local.b32 [%rd5+4], %r4;\n"
                       "ld.local.b32 %r20, [%rd5+4];\nsetp.eq.u64 %p1, %rd3, %rd5;\n@%p1 add.u32 %r20, %r20, 1;"),
    ]  # fmt: skip
    yield rows("control/stack", ["stack.save", "stack.alloca", "stack.restore"], stack)
