"""Rules about what is legal and slow."""

from __future__ import annotations

from .schema import FILL, PERFORMANCE, STORE, STORED, Example, Rule

_LOOP = "mov.u32 %r3, 0;\nturn:\nBODY\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 4;\n@%p2 bra turn;\n"


def _turns(body: str) -> str:
    return _LOOP.replace("BODY", body)


def _strided(shift: int) -> str:
    return f"""
shl.b32 %r0, %tid, {shift};
and.b32 %r0, %r0, 4095;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
""" + _turns("ld.shared.u32 %r2, [%r1];")


def _gather(shift: int) -> str:
    return f"""
shl.b32 %r0, %tid, {shift};
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
""" + _turns("ld.global.u32 %r2, [%d2];")


RULES = (
    Rule(
        "bank-conflict",
        "P1",
        PERFORMANCE,
        "The lanes of a warp meet in the same banks of shared memory",
        "Shared memory has 32 banks of 4 bytes. Lanes that want different words of one bank are served one after the "
        "other.",
        "5.1.6",
        "pad rows, swizzle the tile, or let neighbouring lanes take neighbouring words",
        Example(_strided(7)),
        Example(_strided(2)),
    ),
    Rule(
        "uncoalesced-access",
        "P2",
        PERFORMANCE,
        "The lanes of a warp touch more sectors of global memory than they need",
        "Global memory moves in sectors of 32 bytes. Lanes that are far apart fetch a sector each.",
        "5.1.3",
        "let neighbouring lanes take neighbouring addresses, or go through shared memory",
        Example(_gather(6)),
        Example(_gather(2)),
    ),
    Rule(
        "redundant-proxy-fence",
        "P3",
        PERFORMANCE,
        "A fence.proxy.async carries nothing",
        "The fence waits for the thread's memory accesses. Where there are none since the last one it only costs.",
        "9.7.13.4",
        "leave it out",
        Example(FILL + "fence.proxy.async;\nfence.proxy.async;\nbar.sync 0;" + STORE + STORED),
        Example(FILL + "fence.proxy.async;\nbar.sync 0;" + STORE + STORED),
    ),
)
