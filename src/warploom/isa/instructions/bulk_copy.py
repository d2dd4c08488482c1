"""Rows of the bulk copies (the TMA unit): plain, tensor, reducing, prefetching, groups, tensor maps, remote stores.

PTX ISA 9.7.9.25.4 (bulk), 9.7.9.27 (tensor, groups), 9.7.9.28 (tensormap.replace), 9.7.13.16 (cp_fenceproxy),
9.7.9.12 (st.async), 9.7.13.7 (red.async). An operand that only occurs with a modifier (cache policy, CTA mask) has its
own row, so that the number of operands follows from the opcode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..effects import (
    ASYNC,
    READS,
    RUN,
    TENSORMAP,
    UPDATES,
    WEAK,
    WRITES,
    Access,
    Bytes,
    Changes,
    Choice,
    Commits,
    Fences,
    Group,
    Operand,
    Order,
    Starts,
    Value,
    Waits,
)
from .schema import Form, Modifiers

SM90: dict[str, Any] = {"arch": "sm_90", "ptx": (8, 0)}
_HINT = ".L2::cache_hint"
BYTES = ".mbarrier::complete_tx::bytes"
MULTICAST = ".multicast::cluster"
_DIMENSIONS = {"dim": "1d 2d 3d 4d 5d"}
CTA_DESTINATION = {"shared::cta": ("sm_90", (8, 6))}
PAIR = {"cta_group": "cta_group::1 cta_group::2"}
"""With `.cta_group::2`, the mbarrier may be in the other CTA of the pair."""
OF_PAIRS = {group: ("sm_100f sm_101f sm_110f", (8, 6)) for group in PAIR["cta_group"].split()}
ANY_OF_PAIR = Choice("cta_group", "receiver", {"cta_group::1": "receiver", "cta_group::2": "pair"})


_REDUCED = Order("relaxed", "gpu")
"""Elements of a bulk reduction are atomic, also with other reductions to the same address."""
_SOURCE = Access(READS, "src", "shared", ASYNC, "bytes", at=RUN)
_FROM_GLOBAL = Access(READS, "src", "global", ASYNC, "bytes", at=RUN)
_TO_GLOBAL = Access(WRITES, "dst", "global", ASYNC, "bytes", at=RUN)
_COPIED = (_SOURCE, _TO_GLOBAL)
_REDUCE = Access(UPDATES, "dst", "global", ASYNC, "bytes", _REDUCED, at=RUN, returns=False)
BOX = Access(READS, "map", "global", ASYNC, "box", at=RUN)
TILE = Access(READS, "src", "shared", ASYNC, "shared_box", at=RUN)
TO_BOX = Access(WRITES, "map", "global", ASYNC, "box", at=RUN)
REDUCE_BOX = Access(UPDATES, "map", "global", ASYNC, "box", _REDUCED, at=RUN, returns=False)
_MAP = Access(READS, "map", "", TENSORMAP, "object128")


def loads(
    source: Access, footprint: str = "bytes", rank: str = "any", how: str = WRITES, barrier: Value = "receiver"
) -> dict[str, Any]:
    """The effects of a copy into shared memory whose bytes complete on an mbarrier of each receiver."""
    target = Access(how, "dst", "shared", ASYNC, footprint, at=RUN, rank=rank, returns=False)
    return {"effects": (Starts("tma", (Bytes("mbar", barrier),)), source, target), "noun": "bulk copy", "narrow": True}


def stores(source: Access, target: Access) -> dict[str, Any]:
    """The effects of a copy out of shared memory, which its thread commits to a bulk group."""
    return {"effects": (Starts("tma", (Group("bulk"),)), source, target), "noun": "bulk store", "narrow": True}


def through_map(made: dict[str, Any]) -> dict[str, Any]:
    """The same effects through a tensor map, which the tensormap proxy reads."""
    return {**made, "effects": (*made["effects"], _MAP), "bare": True}


def with_hint(key: str, opcode: str, operands: str, tail: str = "", **rest: Any) -> tuple[Form, Form]:
    """A row and its variant with a cache policy as last operand. `tail`: modifiers after `.L2::cache_hint`."""
    example = str(rest.pop("example", ""))
    hinted = ""
    if example:
        written, _, arguments = example.rstrip(";").partition(" ")
        if tail:  # the hint precedes the tail's modifiers
            stem = written.split(".bulk_group")[0] + ".bulk_group"
            hinted = f"{stem}{_HINT}{written.removeprefix(stem)} {arguments}, %rd2;"
        else:
            hinted = f"{written}{_HINT} {arguments}, %rd2;"
    return (
        Form(key, f"{opcode}{tail}", operands, example=example, **rest),
        Form(f"{key}_hint", f"{opcode}{_HINT}{tail}", f"{operands}, policy:b64~", example=hinted, **rest),
    )


# -- plain bulk copies -------------------------------------------------------------------------------------------

_PLAIN = (
    *with_hint(
        "bulk.load", f"cp.async.bulk.to.global{BYTES}",
        "[dst@shared::cluster], [src@global], size:u32, [mbar@shared::cluster]",
        slots={"to": "shared::cluster shared::cta"}, **SM90, needs=CTA_DESTINATION, section="9.7.9.25.4.1",
        **loads(_FROM_GLOBAL),
        example=f"cp.async.bulk.shared::cluster.global{BYTES} [%r0], [%rd0], %r1, [%r2];",
    ),
    *with_hint(
        "bulk.load_multicast", f"cp.async.bulk.shared::cluster.global{BYTES}{MULTICAST}",
        "[dst@shared::cluster], [src@global], size:u32, [mbar@shared::cluster], mask:u16",
        **SM90, section="9.7.9.25.4.1",
        **loads(_FROM_GLOBAL, rank="mask:mask"),
        example=f"cp.async.bulk.shared::cluster.global{BYTES}{MULTICAST} [%r0], [%rd0], %r1, [%r2], %h0;",
    ),
    Form(
        "bulk.send", f"cp.async.bulk.shared::cluster.shared::cta{BYTES}",
        "[dst@shared::cluster], [src@shared], size:u32, [mbar@shared::cluster]", **SM90, section="9.7.9.25.4.1",
        **loads(_SOURCE),
        example=f"cp.async.bulk.shared::cluster.shared::cta{BYTES} [%r0], [%r1], %r2, [%r3];",
    ),
    *with_hint(
        "bulk.store", "cp.async.bulk.global.shared::cta.bulk_group", "[dst@global], [src@shared], size:u32",
        **SM90, section="9.7.9.25.4.1",
        **stores(_SOURCE, _TO_GLOBAL), example="cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r0], %r1;",
    ),
    *(
        Form(
            f"bulk.store_masked{name}", f"cp.async.bulk.global.shared::cta.bulk_group{hint}.cp_mask",
            f"[dst@global], [src@shared], size:u32, {policy}bytes:u16", arch="sm_100", ptx=(8, 6),
            section="9.7.9.25.4.1", ranges={"bytes": (range(-1 << 15, 1 << 16), "a mask of 16 bits")},
            **stores(*(replace(access, footprint="masked_bytes") for access in _COPIED)),
            example=f"cp.async.bulk.global.shared::cta.bulk_group{hint}.cp_mask [%rd0], [%r0], %r1, {register}%h0;",
        )
        for name, hint, policy, register in (("", "", "", ""), ("_hint", _HINT, "policy:b64~, ", "%rd1, "))
    ),
    *with_hint(
        "bulk.prefetch", "cp.async.bulk.prefetch.L2.global", "[src@global], size:u32", **SM90, section="9.7.9.25.4.3",
        example="cp.async.bulk.prefetch.L2.global [%rd0], %r1;", narrow=True,
    ),
)  # fmt: skip

# -- plain reductions --------------------------------------------------------------------------------------------


def _remote_reduction(modifiers: Modifiers) -> str | None:
    operation, kind = modifiers["op"], modifiers["type"]
    allowed = {
        "add": "u32 s32 u64", "min": "u32 s32", "max": "u32 s32", "inc": "u32", "dec": "u32",
        "and": "b32", "or": "b32", "xor": "b32",
    }[str(operation)]  # fmt: skip
    if kind not in allowed.split():
        return f".{operation} into shared memory takes .{allowed.replace(' ', ', .')}, not .{kind}"
    return None


def _global_reduction(modifiers: Modifiers) -> str | None:
    operation, kind = modifiers["op"], modifiers["type"]
    allowed = {
        "add": "u32 s32 u64 f32 f64", "min": "u32 s32 u64 s64 f16 bf16", "max": "u32 s32 u64 s64 f16 bf16",
        "inc": "u32", "dec": "u32", "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64",
    }[str(operation)]  # fmt: skip
    if kind not in allowed.split():
        return f".{operation} into global memory takes .{allowed.replace(' ', ', .')}, not .{kind}"
    return None


OPERATIONS = "add min max inc dec and or xor"
_REDUCTIONS = (
    Form(
        "bulk.reduce_send", f"cp.reduce.async.bulk.shared::cluster.shared::cta{BYTES}.op.type",
        "[dst@shared::cluster], [src@shared], size:u32, [mbar@shared::cluster]",
        {"op": OPERATIONS, "type": "u32 s32 u64 b32"}, **SM90, check=_remote_reduction, section="9.7.9.25.4.2",
        **loads(_SOURCE, how=UPDATES),
        example=f"cp.reduce.async.bulk.shared::cluster.shared::cta{BYTES}.add.u32 [%r0], [%r1], %r2, [%r3];",
    ),
    *with_hint(
        "bulk.reduce", "cp.reduce.async.bulk.global.shared::cta.bulk_group", "[dst@global], [src@shared], size:u32",
        ".op.type", slots={"op": OPERATIONS, "type": "u32 s32 u64 s64 b32 b64 f16 bf16 f32 f64"}, **SM90,
        check=_global_reduction, section="9.7.9.25.4.2",
        **stores(_SOURCE, _REDUCE),
        example="cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r0], %r1;",
    ),
    *with_hint(
        "bulk.reduce_noftz", "cp.reduce.async.bulk.global.shared::cta.bulk_group",
        "[dst@global], [src@shared], size:u32",
        ".op.noftz.type", slots={"op": "add", "type": "f16 bf16"}, **SM90, section="9.7.9.25.4.2",
        **stores(_SOURCE, _REDUCE),
        example="cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd0], [%r0], %r1;",
    ),
)  # fmt: skip

# -- tensor copies -----------------------------------------------------------------------------------------------

_TENSOR = (
    *with_hint(
        "tensor.load", f"cp.async.bulk.tensor.dim.to.global{{.tile}}{BYTES}{{.cta_group}}",
        "[dst@shared::cluster], [map,c], [mbar@shared::cluster]",
        slots={**_DIMENSIONS, **PAIR, "to": "shared::cluster shared::cta"}, **SM90,
        needs={**CTA_DESTINATION, **OF_PAIRS}, section="9.7.9.27.1.2",
        **through_map(loads(BOX, "shared_box", barrier=ANY_OF_PAIR)),
        example=f"cp.async.bulk.tensor.2d.shared::cluster.global{BYTES} [%r0], [%rd0, {{%r1, %r2}}], [%r3];",
    ),
    *with_hint(
        "tensor.load_multicast",
        f"cp.async.bulk.tensor.dim.shared::cluster.global{{.tile}}{BYTES}{MULTICAST}{{.cta_group}}",
        "[dst@shared::cluster], [map,c], [mbar@shared::cluster], mask:u16", slots={**_DIMENSIONS, **PAIR}, **SM90,
        needs=OF_PAIRS, section="9.7.9.27.1.2",
        **through_map(loads(BOX, "shared_box", "mask:mask", barrier=ANY_OF_PAIR)),
        example=(
            f"cp.async.bulk.tensor.2d.shared::cluster.global{BYTES}{MULTICAST} "
            "[%r0], [%rd0, {%r1, %r2}], [%r3], %h0;"
        ),
    ),
    *with_hint(
        "tensor.store", "cp.async.bulk.tensor.dim.global.shared::cta{.tile}.bulk_group", "[map,c], [src@shared]",
        slots=_DIMENSIONS, **SM90, section="9.7.9.27.1.2",
        **through_map(stores(TILE, TO_BOX)),
        example="cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {%r1, %r2}], [%r3];",
    ),
    *with_hint(
        "tensor.reduce", "cp.reduce.async.bulk.tensor.dim.global.shared::cta.op{.tile}.bulk_group",
        "[map,c], [src@shared]", slots={**_DIMENSIONS, "op": OPERATIONS}, **SM90, section="9.7.9.27.1.3",
        **through_map(stores(TILE, REDUCE_BOX)),
        example="cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd0, {%r1, %r2}], [%r3];",
    ),
    *with_hint(
        "tensor.prefetch", "cp.async.bulk.prefetch.tensor.dim.L2.global{.tile}", "[map,c]",
        slots=_DIMENSIONS, **SM90, section="9.7.9.27.1.4",
        example="cp.async.bulk.prefetch.tensor.2d.L2.global [%rd0, {%r1, %r2}];",
    ),
)  # fmt: skip

# -- groups ------------------------------------------------------------------------------------------------------

_GROUPS = (
    Form(
        "bulk.commit_group", "cp.async.bulk.commit_group", "", **SM90, section="9.7.9.27.2.1",
        effects=(Commits("bulk"),),
    ),
    Form(
        "bulk.wait_group", "cp.async.bulk.wait_group{.read}", "n:imm", **SM90, section="9.7.9.27.2.2",
        effects=(Waits("group:bulk", newest=Operand("n"), proves=Choice("read", "done", {"read": "reads"})),),
    ),
)  # fmt: skip

# -- tensor maps in memory ---------------------------------------------------------------------------------------

_OBJECT = "tensormap"
_TARGETS = "sm_90a sm_100f sm_101f sm_110f sm_120f"
_REPLACE: dict[str, Any] = {
    "arch": _TARGETS, "ptx": (8, 3), "section": "9.7.9.28", "effects": (Changes(_OBJECT, "a"),), "narrow": True,
}  # fmt: skip
_SPACES = {"space": "global shared::cta"}

_ORDINAL = {"index": (range(5), "0 to 4")}
MODES = {"elemtype": range(13), "interleave_layout": range(3), "swizzle_mode": range(4), "fill_mode": range(2)}
"""Values of the tensor map's fields that have a name for each number."""
LATER_MODES = {
    "elemtype": (range(13, 16), "sm_100f sm_101f sm_110f sm_120f", (8, 7)),  # 4 and 6 bits in 16
    "swizzle_mode": (range(4, 5), "sm_103a", (8, 8)),  # 96 bytes
}
"""Numbers that were added later, with their targets and PTX version."""


def _mode(field: str, numbers: range, suffix: str = "", arch: str = _TARGETS, ptx: tuple[int, int] = (8, 3)) -> Form:
    return Form(
        f"tensormap.replace_{field}{suffix}", f"tensormap.replace.tile.{field}{{.space}}.b1024.b32", "[a], value:imm",
        _SPACES, **{**_REPLACE, "arch": arch, "ptx": ptx},
        ranges={"value": (numbers, f"{numbers[0]} to {numbers[-1]}")},
        example=f"tensormap.replace.tile.{field}.global.b1024.b32 [%rd0], {numbers[-1]};",
    )  # fmt: skip


_MAPS = (
    Form(
        "tensormap.replace_address", "tensormap.replace.tile.global_address{.space}.b1024.b64", "[a], value:b64",
        _SPACES, **_REPLACE, example="tensormap.replace.tile.global_address.global.b1024.b64 [%rd0], %rd1;",
    ),
    Form(
        "tensormap.replace_rank", "tensormap.replace.tile.rank{.space}.b1024.b32", "[a], value:b32",
        _SPACES, **_REPLACE, example="tensormap.replace.tile.rank.global.b1024.b32 [%rd0], 1;",
    ),
    Form(
        "tensormap.replace_dimension", "tensormap.replace.tile.field{.space}.b1024.b32", "[a], index:imm, value:b32~",
        {"field": "box_dim global_dim element_stride", **_SPACES}, **_REPLACE, ranges=_ORDINAL,
        example="tensormap.replace.tile.box_dim.global.b1024.b32 [%rd0], 0, %r1;",
    ),
    Form(
        "tensormap.replace_stride", "tensormap.replace.tile.global_stride{.space}.b1024.b64",
        "[a], index:imm, value:b64",
        _SPACES, **_REPLACE, ranges=_ORDINAL,
        example="tensormap.replace.tile.global_stride.global.b1024.b64 [%rd0], 0, %rd1;",
    ),
    *(_mode(field, numbers) for field, numbers in MODES.items()),
    *(_mode(field, numbers, "_later", arch, ptx) for field, (numbers, arch, ptx) in LATER_MODES.items()),
    Form(
        "tensormap.replace_atomicity", "tensormap.replace.tile.swizzle_atomicity{.space}.b1024.b32", "[a], value:imm",
        _SPACES, **{**_REPLACE, "arch": "sm_100f sm_101f sm_110f sm_120f", "ptx": (8, 6)},
        ranges={"value": (range(4), "0 to 3")},
        example="tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%rd0], 1;",
    ),
    Form(
        "tensormap.cp_fenceproxy",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned",
        "[dst@global], [src@shared], size:imm", {"scope": "cta cluster gpu sys"}, arch="sm_90", ptx=(8, 3),
        section="9.7.13.16", converged="warp", narrow=True,
        effects=(
            Access(READS, "src", "shared", footprint="object128", lanes="any"),
            Changes(_OBJECT, "dst"),
            Fences("proxy:tensormap", direction="release", order=Order("release", Choice("scope")), object="dst"),
        ),
        ranges={"size": (range(128, 129), "128")},
        example="tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
        " [%rd0], [%r0], 128;",
    ),
)  # fmt: skip

# -- asynchronous stores to another CTA --------------------------------------------------------------------------


def _vector_width(modifiers: Modifiers) -> str | None:
    if modifiers.get("vec") == "v4" and str(modifiers["type"]).endswith("64"):
        return f".v4.{modifiers['type']} is 256 bits wide; st.async stores at most 128"
    return None


def _remote(how: str, order: Order = WEAK) -> dict[str, Any]:
    """The effects of st.async and red.async: their single element arrives later, by the generic proxy."""
    target = Access(how, "a", "shared", footprint="value", order=order, at=RUN, rank="any", returns=False)
    return {"effects": (Starts("remote", (Bytes("mbar"),)), target), "noun": "asynchronous store", "narrow": True}


def _async_reduction(modifiers: Modifiers) -> str | None:
    operation, kind = modifiers["op"], modifiers["type"]
    allowed = {
        "add": "u32 s32 u64", "min": "u32 s32", "max": "u32 s32", "inc": "u32", "dec": "u32",
        "and": "b32", "or": "b32", "xor": "b32",
    }[str(operation)]  # fmt: skip
    return (
        None if kind in allowed.split() else f"red.async.{operation} takes .{allowed.replace(' ', ', .')}, not .{kind}"
    )


_REMOTE_STORES = (
    Form(
        "async_store.store", f"st.async{{.weak}}{{.space}}{BYTES}{{.vec}}.type", "[a], b:type*vec, [mbar]",
        {"space": "shared::cluster", "vec": "v2 v4", "type": "b32 b64 u32 u64 s32 s64 f32 f64"},
        arch="sm_90", ptx=(8, 1), check=_vector_width, section="9.7.9.12",
        **_remote(WRITES),
        example=f"st.async.shared::cluster{BYTES}.u32 [%r0], %r1, [%r2];",
    ),
    Form(
        "async_store.reduce", f"red.async.relaxed.cluster{{.space}}{BYTES}.op.type", "[a], b:type, [mbar]",
        {"space": "shared::cluster", "op": OPERATIONS, "type": "u32 s32 u64 b32"},
        arch="sm_90", ptx=(8, 1), check=_async_reduction, section="9.7.13.7",
        **_remote(UPDATES, Order("relaxed", "cluster")),
        example=f"red.async.relaxed.cluster.shared::cluster{BYTES}.add.u32 [%r0], %r1, [%r2];",
    ),
    Form(
        "async_store.global", "st.async{.mmio}.release.scope{.global}.type", "[a], b:type",
        {"scope": "gpu sys", "type": "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"}, arch="sm_100", ptx=(8, 7),
        section="9.7.9.12", effects=(Access(WRITES, "a", "global", order=Order("release", Choice("scope"))),),
        example="st.async.release.gpu.global.b32 [%rd0], %r1;", narrow=True,
    ),
    Form(
        "async_store.global_reduce", "red.async{.mmio}.release.scope{.global}.op.type", "[a], b:type",
        {"scope": "gpu sys", "op": OPERATIONS, "type": "u32 s32 u64 b32"}, arch="sm_100", ptx=(8, 7),
        check=_async_reduction, section="9.7.13.7",
        effects=(Access(UPDATES, "a", "global", order=Order("release", Choice("scope")), returns=False),),
        example="red.async.release.gpu.global.add.u32 [%rd0], %r1;", narrow=True,
    ),
    Form(
        "async_store.fill", "st.bulk{.weak}{.space}", "[a], size:b64~, value:imm", {"space": "shared::cta"},
        arch="sm_100", ptx=(8, 6), section="9.7.9.13", ranges={"value": (range(1), "0: nothing else is filled in")},
        effects=(Access(WRITES, "a", "shared", footprint="bytes"),),
        example="st.bulk.weak.shared::cta [%rd0], %rd1, 0;", narrow=True,
    ),
)  # fmt: skip

FORMS: tuple[Form, ...] = (*_PLAIN, *_REDUCTIONS, *_TENSOR, *_GROUPS, *_MAPS, *_REMOTE_STORES)
