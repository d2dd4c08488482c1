"""Cases of cluster features: barrier, remote addresses, copies, arrivals, multicast; register reallocation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warploom.isa.instructions import bulk_copy, mbarrier
from warploom.isa.tensor_map import TensorMapSpec

from . import values
from .case import Argument, Array, Case, Map, output
from .pieces import Body
from .spellings import spread
from .tma import tensor
from .values import Source

THREADS = 64
_FORMS = {form.key: form for form in (*bulk_copy.FORMS, *mbarrier.FORMS)}
_POLICY = "createpolicy.fractional.L2::evict_last.b64 %rd9, 0f3F800000;"
_PEER = """
    mov.u32 %r50, %cluster_ctarank;
    mov.u32 %r51, %cluster_nctarank;
    add.u32 %r52, %r50, 1;
    rem.u32 %r52, %r52, %r51;
    mapa.shared::cluster.u32 %r53, %r60, %r52;
    mapa.shared::cluster.u32 %r54, %r61, %r52;
    mov.u32 %r55, %ctaid.x;
"""
"""%r50: own rank; %r51: CTAs; %r52: the next rank, %r53 its tile and %r54 its barriers; %r55: the CTA in the grid."""


def cases() -> Iterator[Case]:
    yield from _addresses()
    yield _barrier()
    yield from _arrivals()
    yield from _sends()
    yield from _stores()
    yield from _multicast()
    yield _registers()
    yield _grid_order()


def _body() -> Body:
    return Body(THREADS).do(_PEER)


def _own_part(argument: int, size: int, register: str) -> str:
    """The CTA's part of a buffer."""
    return f"mad.wide.u32 {register}, %r55, {size}, %a{argument};"


def _addresses() -> Iterator[Case]:
    """Every CTA reads and changes words of its neighbour, by 32-bit and generic addresses, plain and atomic."""
    for size in (2, 4, 8):
        body = _body().do(
            "mad.lo.u32 %r1, %t, 4, %r60;", "mad.wide.u32 %rd1, %i, 4, %a0;", "ld.global.b32 %r2, [%rd1];",
            "st.shared.b32 [%r1], %r2;", "st.shared.b32 [%r1+512], %r2;",
        ).cluster_sync()  # fmt: skip
        body.do(
            "mad.lo.u32 %r3, %t, 4, %r53;", "ld.shared::cluster.b32 %r10, [%r3];",
            "cvt.u64.u32 %rd2, %r60;", "cvta.shared.u64 %rd2, %rd2;", "mapa.u64 %rd3, %rd2, %r52;",
            "mad.wide.u32 %rd4, %t, 4, %rd3;", "ld.b32 %r11, [%rd4];",
            "mapa.shared::cluster.u32 %r12, tile, %r52;", "sub.u32 %r12, %r12, %r53;",
            "getctarank.shared::cluster.u32 %r13, %r53;", "getctarank.u64 %r14, %rd3;",
            "getctarank.shared::cluster.u32 %r15, tile;", "mapa.u64 %rd5, %rd2, %r50;",
            "getctarank.u64 %r16, %rd5;", "atom.shared::cluster.add.u32 %r17, [%r3+512], 5;",
            "red.relaxed.cluster.shared::cluster.xor.b32 [%r3+512], 9;", "st.shared::cluster.b32 [%r3+1024], %r10;",
            "isspacep.shared::cluster %p1, %rd3;", "isspacep.shared %p2, %rd3;",
            "selp.u32 %r18, 1, 0, %p1;", "selp.u32 %r19, 1, 0, %p2;",
        ).cluster_sync()  # fmt: skip
        body.do("ld.shared.b32 %r20, [%r1+512];", "ld.shared.b32 %r21, [%r1+1024];", "mad.wide.u32 %rd1, %i, 4, %a1;")
        total = 2 * size * THREADS
        for at in range(12):
            body.do(f"st.global.b32 [%rd1+{4 * total * at}], %r{10 + at};")
        names = ("ld", "generic ld", "mapa of a name", "getctarank", "generic getctarank", "getctarank of a name",
                 "own getctarank", "atom", "in the cluster's window", "in the own window", "red", "st")  # fmt: skip
        yield Case(
            f"cluster/addresses {size}",
            ("cluster.mapa", "cluster.getctarank", "cluster.arrive", "cluster.wait", "ld.weak", "st.weak",
             "atom.scalar", "red.scalar", "isspacep"),
            body.text(),
            lambda total=total: (Array(Source("addresses").bits(total, 32)), output((12, total), np.uint32)),  # type: ignore[misc]
            ("array", "array"), threads=THREADS, grid=2 * size, cluster=size, labels=names,
        )  # fmt: skip


def _barrier() -> Case:
    """The four ways to arrive and the two to wait, aligned or not, each before a look at the neighbour."""
    body = _body().do("mad.lo.u32 %r1, %t, 4, %r60;", "mad.lo.u32 %r3, %t, 4, %r53;", "mad.wide.u32 %rd1, %i, 4, %a0;")
    labels = []
    for arrive in ("", ".release", ".relaxed"):
        for wait in ("", ".acquire"):
            for aligned in ("", ".aligned"):
                labels.append(f"arrive{arrive}{aligned} wait{wait}{aligned}")
                body.do(
                    f"mad.lo.u32 %r4, %i, 3, {len(labels)};", "st.shared.b32 [%r1], %r4;",
                    *(["fence.acq_rel.cluster;"] if arrive == ".relaxed" else []),
                    f"barrier.cluster.arrive{arrive}{aligned};", f"barrier.cluster.wait{wait}{aligned};",
                    "ld.shared::cluster.b32 %r5, [%r3];", f"st.global.b32 [%rd1+{4 * 256 * (len(labels) - 1)}], %r5;",
                )  # fmt: skip
                body.cluster_sync()
    return Case(
        "cluster/barrier", ("cluster.arrive", "cluster.wait"), body.text(),
        lambda: (output((len(labels), 256), np.uint32),), ("array",), threads=THREADS, grid=4, cluster=4,
        labels=tuple(labels),
    )  # fmt: skip


def _arrivals() -> Iterator[Case]:
    """Every spelling of an arrival on the neighbour's barrier, each a phase of its own."""
    for key in (
        "mbarrier.arrive_remote", "mbarrier.arrive_expect_tx_remote",
        "mbarrier.arrive_drop_remote", "mbarrier.arrive_drop_expect_tx_remote",
    ):  # fmt: skip
        form = _FORMS[key]
        spelled = list(spread(form, ("sem", "scope", "space")))
        body = _body()
        drop = "drop" in key
        counted = "expect_tx" not in key
        lines = [(opcode, count) for opcode, _ in spelled for count in ((", 2", "") if counted else (", 16",))]
        body.init(*[4 if drop else 3 for _ in lines][:8]).cluster_sync()
        lines = lines[:8]
        for at, (opcode, rest) in enumerate(lines):
            place = f"%r54+{8 * at}"
            arrivals = 2 if rest == ", 2" else 1
            body.first(f"{opcode} _, [{place}]{rest};")
            if not counted:
                body.first(f"mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [{place}], 16;")
            missing = (4 if drop else 3) - arrivals
            body.first(f"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{place}], {missing};")
            body.wait(0, at)
            if drop:
                # what was dropped is not expected any more: the rest alone ends the next phase
                body.cluster_sync()
                body.first(f"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{place}], {missing};").wait(1, at)
        body.do("mad.wide.u32 %rd1, %i, 4, %a0;", "add.u32 %r1, %i, 11;")
        for at in range(len(lines)):
            body.do(
                f"mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r61+{8 * at}], {1 if drop else 0};",
                f"selp.u32 %r2, {100 + at}, 7, %p1;", "mad.lo.u32 %r1, %r1, 3, %r2;",
            )  # fmt: skip
        body.do("st.global.b32 [%rd1], %r1;").cluster_sync()
        yield Case(
            f"cluster/{key}", (key, "mbarrier.complete_tx"), body.text(), lambda: (output(128, np.uint32),), ("array",),
            threads=THREADS, grid=2, cluster=2,
        )  # fmt: skip


def _sends() -> Iterator[Case]:
    """Bulk copies and reductions from the own shared memory into the neighbour's."""
    body = _body().init(1).do(_own_part(0, 512, "%rd1"), _own_part(1, 512, "%rd2")).fill("%rd1", 512)
    body.paint(512, start=4096).expect(512).cluster_sync()
    opcode = next(spread(_FORMS["bulk.send"], ()))[0]
    body.first(f"{opcode} [%r53+4096], [%r60], 512, [%r54];").wait().dump("%rd2", 512, start=4096).cluster_sync()
    yield Case(
        "cluster/bulk.send", ("bulk.send",), body.text(),
        lambda: (Array(Source("send").bits(512, 32)), output(512, np.uint32)), ("array", "array"), threads=THREADS,
        grid=4, cluster=4,
    )  # fmt: skip
    found = list(spread(_FORMS["bulk.reduce_send"], ("op", "type")))
    size = 256 * len(found)
    body = _body().init(1).do(_own_part(0, size, "%rd1"), _own_part(1, size, "%rd2"))
    body.fill("%rd1", size).fill("%rd2", size, start=8192).expect(size).cluster_sync()
    body.first(*(
        f"{opcode} [%r53+{8192 + 256 * at}], [%r60+{256 * at}], 256, [%r54];" for at, (opcode, _) in enumerate(found)
    )).wait().dump("%rd2", size, start=8192).cluster_sync()  # fmt: skip

    def arguments() -> tuple[Argument, ...]:
        new, old = [], []
        for rank in range(2):
            for _, chosen in found:
                kind = chosen["type"] or ""
                pair = values.operands(Source(f"send/{rank}/{kind}"), [kind, kind], 2048 // values.width_of(kind))
                new.append(pair[0].view(np.uint32))
                old.append(pair[1].view(np.uint32))
        return (Array(np.concatenate(new)), Array(np.concatenate(old), output=True))

    yield Case(
        "cluster/bulk.reduce_send", ("bulk.reduce_send",), body.text(), arguments, ("array", "array"),
        threads=THREADS, grid=2, cluster=2,
    )  # fmt: skip


def _stores() -> Iterator[Case]:
    """st.async and red.async of every type, one row of 16 bytes of each thread for each spelling."""
    for key, full in (("async_store.store", ("vec", "type")), ("async_store.reduce", ("op", "type"))):
        found = list(spread(_FORMS[key], full))
        # twelve rows at a time: 64 threads x 16 bytes
        for part in range(0, len(found), 12):
            chunk = found[part : part + 12]
            size = 1024 * len(chunk)
            sizes = [values.width_of(c["type"] or "") // 8 * int((c.get("vec") or "v1")[1:]) for _, c in chunk]
            body = _body().init(1).do(_own_part(1, size, "%rd2"), _own_part(0, 1024, "%rd1"))
            body.fill("%rd2", size).expect(sum(sizes) * THREADS).cluster_sync()
            body.do("mad.wide.u32 %rd3, %t, 16, %rd1;", "mad.lo.u32 %r1, %t, 16, %r53;")
            body.do("ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd3];", "ld.global.v2.b64 {%rd10, %rd11}, [%rd3];")
            # without a space the addresses are generic
            body.do("cvt.u64.u32 %rd4, %r60;", "cvta.shared.u64 %rd4, %rd4;", "mapa.u64 %rd4, %rd4, %r52;")
            body.do("cvt.u64.u32 %rd5, %r61;", "cvta.shared.u64 %rd5, %rd5;", "mapa.u64 %rd5, %rd5, %r52;")
            body.do("mad.wide.u32 %rd4, %t, 16, %rd4;")
            for at, (opcode, chosen) in enumerate(chunk):
                vector = chosen.get("vec")
                count = int(vector[1:]) if vector else 1
                prefix = "%rd" if values.width_of(chosen["type"] or "") == 64 else "%r"
                registers = ", ".join(f"{prefix}{10 + n}" for n in range(count))
                operand = f"{{{registers}}}" if vector else registers
                place, signal = ("%r1", "%r54") if chosen["space"] else ("%rd4", "%rd5")
                body.do(f"{opcode} [{place}+{1024 * at}], {operand}, [{signal}];")
            body.wait().dump("%rd2", size).cluster_sync()
            yield Case(
                f"cluster/{key}/{part // 12}", (key,), body.text(),
                lambda size=size: (  # type: ignore[misc]
                    Array(Source("async").bits(512, 32)), Array(Source("async old").bits(size // 2, 32), output=True)
                ),
                ("array", "array"), threads=THREADS, grid=2, cluster=2,
            )  # fmt: skip


def _multicast() -> Iterator[Case]:
    """Rank 0, or each CTA its own slice, to the CTAs of a mask."""
    for key in ("bulk.load_multicast", "bulk.load_multicast_hint"):
        for size, mask in ((2, 0b11), (4, 0b1011)):
            opcode = next(spread(_FORMS[key], ()))[0]
            body = _multicast_body(opcode, "[%a0+64]", size, mask, 1024, ", 1024")
            yield Case(
                f"cluster/{key} {size}", (key,), body.text(),
                lambda size=size: (Array(Source("multicast").bits(512, 32)), output(256 * size, np.uint32)),  # type: ignore[misc]
                ("array", "array"), threads=THREADS, grid=size, cluster=size,
            )  # fmt: skip
    for key in ("tensor.load_multicast", "tensor.load_multicast_hint"):
        for opcode, chosen in spread(_FORMS[key], ("dim",)):
            rank = int((chosen["dim"] or "1d")[0])
            data = tensor("u16", (64, 6, 5, 3, 2)[:rank])
            spec = TensorMapSpec.tiled(data.shape, None, "u16", (64, 4, 2, 2, 1)[:rank], swizzle="128B")
            zeros = ", ".join(f"%r{axis}" for axis in range(rank))
            size, mask = (4, 0b1101) if rank == 2 else (2, 0b10) if rank == 3 else (2, 0b11)
            body = _multicast_body(opcode, f"[%a0, {{{zeros}}}]", size, mask, spec.box_bytes, "")
            yield Case(
                f"cluster/{opcode}", (key,), body.text(),
                lambda data=data, spec=spec, size=size: (  # type: ignore[misc]
                    Map(data, spec), output(spec.box_bytes // 4 * size, np.uint32)
                ),
                ("map", "array"), threads=THREADS, grid=size, cluster=size,
            )  # fmt: skip
    yield _slices()


def _multicast_body(opcode: str, source: str, size: int, mask: int, count: int, length: str) -> Body:
    body = _body().do(_POLICY, f"mov.u16 %h0, {mask};", _own_part(1, count, "%rd2"))
    body.do(f"shr.u32 %r40, {mask}, %r50;", "and.b32 %r40, %r40, 1;", "setp.eq.u32 %p5, %r40, 0;")
    body.init(1).paint(count).expect(count).cluster_sync()
    body.do(*(f"mov.b32 %r{axis}, 1;" for axis in range(5)), "mov.b32 %r0, 0;")
    body.do("setp.eq.u32 %p6, %r50, 0;", "and.pred %p6, %p6, %p30;")
    hint = ", %rd9" if "cache_hint" in opcode else ""
    body.do(f"@%p6 {opcode} [%r60], {source}{length}, [%r61], %h0{hint};")
    body.do("@%p5 bra OUTSIDE;").wait().do("OUTSIDE:", "bar.sync 0;").cluster_sync()
    return body.dump("%rd2", count).cluster_sync()


def _slices() -> Case:
    """Each of four CTAs loads a quarter and gives it to all: every barrier gets the whole."""
    body = _body().do("mov.u16 %h0, 15;", _own_part(1, 2048, "%rd2")).init(1).paint(2048).expect(2048).cluster_sync()
    body.do("mad.lo.u32 %r1, %r50, 512, %r60;", "mul.lo.u32 %r2, %r50, 4;", "mov.b32 %r3, 0;")
    opcode = next(spread(_FORMS["tensor.load_multicast"], ("dim",)))[0].replace(".1d.", ".2d.")
    body.first(f"{opcode} [%r1], [%a0, {{%r3, %r2}}], [%r61], %h0;").wait().dump("%rd2", 2048).cluster_sync()
    data = tensor("u16", (64, 16))
    spec = TensorMapSpec.tiled(data.shape, None, "u16", (64, 4))
    return Case(
        "cluster/slices", ("tensor.load_multicast",), body.text(),
        lambda: (Map(data, spec), output(2048, np.uint32)), ("map", "array"), threads=THREADS, grid=4, cluster=4,
    )  # fmt: skip


def _registers() -> Case:
    """A warpgroup gives registers back, two others take them."""
    body = """
    setp.ge.u32 %p1, %t, 128;
    @%p1 bra CONSUMER;
    setmaxnreg.dec.sync.aligned.u32 40;
    bra END;
CONSUMER:
    setmaxnreg.inc.sync.aligned.u32 232;
END:
    mad.wide.u32 %rd1, %t, 4, %a0;
    mad.lo.u32 %r1, %t, 3, 1;
    st.global.b32 [%rd1], %r1;
    """
    return Case(
        "cluster/setmaxnreg", ("cluster.setmaxnreg",), body, lambda: (output(384, np.uint32),), ("array",),
        threads=384, directives=".maxntid 384, 1, 1 .minnctapersm 1",
    )  # fmt: skip


def _grid_order() -> Case:
    """Without a programmatic launch both let the kernel go on at once."""
    body = """
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    mad.wide.u32 %rd1, %t, 4, %a0;
    st.global.b32 [%rd1], %t;
    """
    return Case(
        "cluster/griddepcontrol", ("cluster.griddepcontrol",), body, lambda: (output(32, np.uint32),), ("array",)
    )
