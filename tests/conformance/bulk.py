"""Cases of the plain bulk copies and reductions inside one CTA and with global memory, and of their groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warploom.isa.instructions import bulk_copy
from warploom.isa.instructions.schema import Form

from . import values
from .case import Argument, Array, Case, output
from .pieces import Body
from .spellings import spread
from .values import Source

THREADS = 64
_POLICY = "createpolicy.fractional.L2::evict_last.b64 %rd9, 0f3F800000;"
_FORMS = {form.key: form for form in bulk_copy.FORMS}


def cases() -> Iterator[Case]:
    for key in ("bulk.load", "bulk.load_hint"):
        yield _loads(_FORMS[key])
    for key in ("bulk.store", "bulk.store_hint", "bulk.prefetch", "bulk.prefetch_hint"):
        yield _stores(_FORMS[key])
    for key in ("bulk.reduce", "bulk.reduce_hint", "bulk.reduce_noftz", "bulk.reduce_noftz_hint"):
        yield _reductions(_FORMS[key])
    yield _groups()


def _hint(opcode: str) -> str:
    return ", %rd9" if "cache_hint" in opcode else ""


def _loads(form: Form) -> Case:
    """Sizes from 16 bytes to 4 KiB; each copy has a barrier of its own."""
    copies = [(opcode, size) for opcode, _ in spread(form, ("to",)) for size in (16, 1040, 4096)]
    body = Body(THREADS).do(_POLICY).init(*[1] * len(copies)).paint(8192)
    for at, (opcode, size) in enumerate(copies):
        start = at * 5 % 8 * 512
        body.expect(size, at).first(
            f"{opcode} [%r60+{start}], [%a0+{16 * at}], {size}, [%r61+{8 * at}]{_hint(opcode)};"
        )
        body.wait(0, at).dump("%a1", 8192, offset=8192 * at)
    return Case(
        f"bulk/{form.key}", (form.key,), body.text(),
        lambda: (Array(Source("bulk").bits(2048, 32)), output((len(copies), 2048), np.uint32)), ("array", "array"),
        threads=THREADS, labels=tuple(f"{opcode} {size}" for opcode, size in copies),
    )  # fmt: skip


def _stores(form: Form) -> Case:
    """Stores of several sizes; a prefetch is followed by a store that it must not change."""
    body = Body(THREADS).do(_POLICY).fill("%a0", 4096)
    opcode = next(spread(form, ()))[0]
    for start, size in ((0, 16), (64, 2048), (3072, 1024)):
        if "prefetch" in form.key:
            body.first(f"{opcode} [%a0+{start}], {size}{_hint(opcode)};")
            line = f"cp.async.bulk.global.shared::cta.bulk_group [%a1+{start}], [%r60+{start}], {size};"
        else:
            line = f"{opcode} [%a1+{start}], [%r60+{start}], {size}{_hint(opcode)};"
        body.first(line, "cp.async.bulk.commit_group;")
    body.first("cp.async.bulk.wait_group 0;")
    return Case(
        f"bulk/{form.key}", (form.key, "bulk.commit_group", "bulk.wait_group"), body.text(),
        lambda: (Array(Source("bulk").bits(1024, 32)), output(1024, np.uint32)), ("array", "array"), threads=THREADS,
    )  # fmt: skip


def _reductions(form: Form) -> Case:
    """Every operation and type on 256 bytes of edges and random values in each place."""
    size = 256
    found = list(spread(form, ("op", "type")))
    body = Body(THREADS).do(_POLICY)
    for at in range(len(found)):
        body.do(f"add.u64 %rd8, %a0, {size * at};").fill("%rd8", size, start=size * at)
    body.first(*(
        f"{opcode} [%a1+{size * at}], [%r60+{size * at}], {size}{_hint(opcode)};"
        for at, (opcode, _) in enumerate(found)
    )).first("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;")  # fmt: skip

    def arguments() -> tuple[Argument, ...]:
        new, old = [], []
        for _, chosen in found:
            kind = chosen["type"] or ""
            pair = values.operands(Source(f"bulk/{kind}"), [kind, kind], size * 8 // values.width_of(kind))
            new.append(pair[0].view(np.uint32))
            old.append(pair[1].view(np.uint32))
        return (Array(np.stack(new)), Array(np.stack(old), output=True))

    return Case(
        f"bulk/{form.key}", (form.key,), body.text(), arguments, ("array", "array"), threads=THREADS,
        labels=tuple(opcode for opcode, _ in found),
    )  # fmt: skip


def _groups() -> Case:
    """Thread 0 waits for the older of two groups, then reads what it wrote; `.read` lets the tile be written again."""
    body = Body(THREADS).fill("%a0", 512)
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    body.first(
        f"{store} [%a1], [%r60], 256;", "cp.async.bulk.commit_group;", f"{store} [%a1+256], [%r60+256], 256;",
        "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 1;", "ld.global.b32 %r1, [%a1+128];",
        "st.global.b32 [%a2], %r1;", "cp.async.bulk.wait_group.read 0;", "st.shared.b32 [%r60+256], 77;",
        "fence.proxy.async;", f"{store} [%a1+512], [%r60+256], 16;", "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group 0;", "ld.global.b32 %r1, [%a1+512];", "st.global.b32 [%a2+4], %r1;",
    )  # fmt: skip
    return Case(
        "bulk/groups", ("bulk.store", "bulk.commit_group", "bulk.wait_group"), body.text(),
        lambda: (Array(Source("bulk").bits(128, 32)), output(132, np.uint32), output(2, np.uint32)),
        ("array", "array", "array"), threads=THREADS,
    )  # fmt: skip
