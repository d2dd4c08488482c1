"""Cases of the tensor copies: loads and stores of every rank, swizzle and type, across every edge; reductions; maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from warploom.isa.instructions import bulk_copy
from warploom.isa.tensor_map import TensorMapSpec

from . import values
from .case import Argument, Array, Case, Map, output
from .pieces import Body
from .spellings import spread
from .values import Source

THREADS = 64
_POLICY = "createpolicy.fractional.L2::evict_last.b64 %rd9, 0f3F800000;"
_FORMS = {form.key: form for form in bulk_copy.FORMS}
_LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
_STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group"
_WIDTHS = {"NONE": 128, "32B": 32, "64B": 64, "128B": 128}
_DIMS = (80, 9, 5, 3, 2)
_BOX = (0, 4, 2, 2, 2)
_PLACES = ((16, 2, 1, 0, 0), (-16, -1, 3, 1, 0), (-1, 6, -1, 2, 1))
"""Inside; across the low edges; across the high ones. The first number in bytes, for TMA boxes start at multiples of
16 bytes of their rows; -1: the last such place of a row."""


def cases() -> Iterator[Case]:
    for rank in range(1, 6):
        for swizzle in _WIDTHS:
            yield _load(f"rank {rank} {swizzle}", "u16", rank, swizzle)
            yield _store(rank, swizzle)
    for kind in ("u8", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"):
        yield _load(f"type {kind}", kind, 2, "128B")
    for kind in ("f16", "bf16", "f32", "f64"):
        yield _load(f"nan {kind}", kind, 2, "NONE", oob_fill="NAN")
    for swizzle, width in (("128B", 32), ("128B", 64), ("64B", 16), ("NONE", 48)):
        yield _load(f"narrow {swizzle} {width}", "u16", 3, swizzle, width=width)
    for steps in ((1, 2, 1), (1, 3, 2), (2, 2, 1)):
        yield _load(f"steps {steps}", "u16", 3, "64B", element_strides=steps)
    yield _load("promotion", "u16", 2, "128B", l2_promotion="256B")
    yield from _spellings()
    yield from _reductions()
    yield from _maps()
    yield from _ragged()


def tensor(kind: str, dims: Sequence[int]) -> np.ndarray:
    """Elements that number themselves, so that a wrong place shows; dims innermost first."""
    width = values.width_of(kind)
    count = int(np.prod(dims))
    return (np.arange(count, dtype=np.uint64) + np.uint64(257)).astype(f"u{width // 8}").reshape(tuple(dims)[::-1])


def _spec(kind: str, rank: int, swizzle: str, width: int = 0, **options: object) -> tuple[np.ndarray, TensorMapSpec]:
    size = values.width_of(kind) // 8
    data = tensor(kind, _DIMS[:rank])
    box = ((width or _WIDTHS[swizzle]) // size, *_BOX[1:rank])
    return data, TensorMapSpec.tiled(data.shape, None, kind, box, swizzle=swizzle, **options)  # type: ignore[arg-type]


def _region(spec: TensorMapSpec) -> int:
    """Bytes of shared memory that a box covers, rows of a swizzle's span where it is narrower."""
    rows = 1
    for extent, step in zip(spec.box[1:], spec.steps[1:], strict=True):
        rows *= -(-extent // step)
    inner = spec.box[0] * spec.dtype.bytes
    return rows * (inner if spec.swizzle == "NONE" else int(spec.swizzle[:-1]))


def _coordinates(place: Sequence[int], first: int = 0) -> tuple[list[str], str]:
    lines = [f"mov.b32 %r{first + axis}, {at};" for axis, at in enumerate(place)]
    return lines, "{" + ", ".join(f"%r{first + axis}" for axis in range(len(place))) + "}"


def _places(spec: TensorMapSpec) -> list[tuple[int, ...]]:
    size = spec.dtype.bytes
    firsts = [(spec.dims[0] * size - 16 if place[0] == -1 else place[0]) // size for place in _PLACES]
    return [(first, *place[1 : spec.rank]) for first, place in zip(firsts, _PLACES, strict=True)]


def _load(name: str, kind: str, rank: int, swizzle: str, width: int = 0, **options: object) -> Case:
    """Three boxes of one map, one after the other, each into a freshly painted tile."""
    data, spec = _spec(kind, rank, swizzle, width, **options)
    size = -(-_region(spec) // 128) * 128
    body = Body(THREADS).init(1)
    for at, place in enumerate(_places(spec)):
        lines, coordinates = _coordinates(place)
        start = 1024 * (at % 2)
        body.paint(size, start=start).do(*lines).expect(spec.box_bytes)
        body.first(f"{_LOAD.format(rank)} [%r60+{start}], [%a0, {coordinates}], [%r61];")
        body.wait(at % 2).dump("%a1", size, start=start, offset=size * at)
    return Case(
        f"tma/load {name}", ("tensor.load",), body.text(),
        lambda: (Map(data, spec), output((len(_PLACES), size // 4), np.uint32)), ("map", "array"), threads=THREADS,
        labels=tuple(f"at {place}" for place in _places(spec)),
    )  # fmt: skip


def _store(rank: int, swizzle: str) -> Case:
    """A box inside and one across the high edges, out of a tile of random bytes."""
    data, spec = _spec("u16", rank, swizzle)
    size = -(-_region(spec) // 128) * 128
    body = Body(THREADS).fill("%a1", size)
    for place in ((8, 2, 1, 0, 0), (72, 6, 4, 2, 1)):
        lines, coordinates = _coordinates(place[:rank])
        body.do(*lines).first(f"{_STORE.format(rank)} [%a0, {coordinates}], [%r60];", "cp.async.bulk.commit_group;")
        body.first("cp.async.bulk.wait_group 0;")
    return Case(
        f"tma/store rank {rank} {swizzle}", ("tensor.store", "bulk.commit_group", "bulk.wait_group"), body.text(),
        lambda: (Map(data.copy(), spec, output=True), Array(Source("tma/store").bits(size // 4, 32))),
        ("map", "array"), threads=THREADS,
    )  # fmt: skip


def _spellings() -> Iterator[Case]:
    """Every way to write a load, with hints and prefetches, each of one box."""
    for key in ("tensor.load", "tensor.load_hint", "tensor.prefetch", "tensor.prefetch_hint", "tensor.store_hint"):
        form = _FORMS[key]
        for opcode, chosen in spread(form, ("to",)):
            rank = int((chosen["dim"] or "1d")[0])
            data, spec = _spec("u16", rank, "64B")
            size = -(-_region(spec) // 128) * 128
            lines, coordinates = _coordinates((8, 2, 1, 0, 0)[:rank])
            hint = ", %rd9" if "cache_hint" in opcode else ""
            body = Body(THREADS).do(_POLICY, "prefetch.tensormap [%a0];").init(1).paint(size).do(*lines)
            loading = _LOAD.format(rank)
            if "prefetch" in key:
                body.first(f"{opcode} [%a0, {coordinates}]{hint};")
            elif "store" in key:
                body.first(
                    f"{opcode} [%a0, {coordinates}], [%r60]{hint};", "cp.async.bulk.commit_group;",
                    "cp.async.bulk.wait_group 0;", "fence.proxy.async;",
                )  # fmt: skip
            else:
                loading = opcode
            body.expect(spec.box_bytes).first(
                f"{loading} [%r60], [%a0, {coordinates}], [%r61]{hint if loading == opcode else ''};"
            )
            body.wait().dump("%a1", size)
            yield Case(
                f"tma/{opcode}", (key, "prefetch.tensormap"), body.text(),
                lambda data=data, spec=spec, size=size: (Map(data.copy(), spec), output(size // 4, np.uint32)),  # type: ignore[misc]
                ("map", "array"), threads=THREADS,
            )  # fmt: skip


_REDUCED = {
    "add": "u32 s32 u64 f32 f16 bf16", "min": "u32 s32 u64 s64 f16 bf16", "max": "u32 s32 u64 s64 f16 bf16",
    "inc": "u32", "dec": "u32", "and": "u32 u64", "or": "u32 u64", "xor": "u32 u64",
}  # fmt: skip


def _reductions() -> Iterator[Case]:
    for operation, kinds in _REDUCED.items():
        for kind in kinds.split():
            yield _reduction(operation, kind, "tensor.reduce", 2)
    for rank in (1, 3, 4, 5):
        yield _reduction("add", "u32", "tensor.reduce", rank)
    yield _reduction("max", "s32", "tensor.reduce_hint", 3)


def _reduction(operation: str, kind: str, key: str, rank: int) -> Case:
    """A box of edge values and random ones, reduced into a tensor of others; it hangs over the high edges."""
    width = values.width_of(kind) // 8
    hint = ".L2::cache_hint" if "hint" in key else ""
    dims = (256 // width, 5, 3, 2, 2)[:rank]
    count = int(np.prod(dims))
    spec = TensorMapSpec.tiled(dims[::-1], None, kind, (256 // width, 4, 2, 2, 1)[:rank])
    lines, coordinates = _coordinates((16 // width, 2, 1, 1, 1)[:rank])
    opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.bulk_group{hint}"
    body = Body(THREADS).do(_POLICY, *lines).fill("%a1", spec.box_bytes)
    body.first(
        f"{opcode} [%a0, {coordinates}], [%r60]{', %rd9' if hint else ''};", "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group 0;",
    )  # fmt: skip

    def arguments() -> tuple[Argument, ...]:
        new, old = values.operands(Source(f"tma/{kind}"), [kind, kind], max(count, spec.box_bytes // width))
        return (
            Map(old[:count].reshape(dims[::-1]).copy(), spec, output=True), Array(new[: spec.box_bytes // width])
        )  # fmt: skip

    return Case(
        f"tma/{key} {operation} {kind} {rank}d", (key,), body.text(), arguments, ("map", "array"), threads=THREADS
    )


def _maps() -> Iterator[Case]:
    """A map copied to shared memory and changed there, and one made from zeros; both used from global memory."""
    changed = [
        ("global_address", "b64 [%r60], %a1"), ("box_dim", "b32 [%r60], 1, 4"), ("global_dim", "b32 [%r60], 1, 3"),
        ("swizzle_mode", "b32 [%r60], 3"),
    ]  # fmt: skip
    made = [
        ("global_address", "b64 [%r60], %a1"), ("rank", "b32 [%r60], 1"), ("box_dim", "b32 [%r60], 0, 64"),
        ("box_dim", "b32 [%r60], 1, 4"), ("global_dim", "b32 [%r60], 0, 64"), ("global_dim", "b32 [%r60], 1, 5"),
        ("global_stride", "b64 [%r60], 0, 128"), ("elemtype", "b32 [%r60], 1"), ("interleave_layout", "b32 [%r60], 0"),
        ("swizzle_mode", "b32 [%r60], 3"), ("fill_mode", "b32 [%r60], 0"), ("element_stride", "b32 [%r60], 0, 1"),
        ("element_stride", "b32 [%r60], 1, 1"),
    ]  # fmt: skip
    of = (
        "tensormap.replace_address", "tensormap.replace_rank", "tensormap.replace_dimension",
        "tensormap.replace_stride", *(f"tensormap.replace_{mode}" for mode in bulk_copy.MODES),
        "tensormap.cp_fenceproxy",
        "fence.proxy_tensormap_acquire", "fence.proxy_tensormap_release",
    )  # fmt: skip
    for name, fields in (("changed", changed), ("made", made)):
        body = Body(32).init(1).paint(128, 0)
        if name == "changed":
            body.do(
                "mad.wide.u32 %rd1, %t, 4, %a0;", "ld.b32 %r1, [%rd1];", "mad.lo.u32 %r2, %t, 4, %r60;",
                "st.shared.b32 [%r2], %r1;", "bar.sync 0;",
            )  # fmt: skip
        body.first(*(f"tensormap.replace.tile.{field}.shared::cta.b1024.{rest};" for field, rest in fields))
        body.do(
            "bar.warp.sync 0xffffffff;",
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
            " [%a3], [%r60], 128;",
            "fence.proxy.tensormap::generic.release.gpu;", "fence.proxy.tensormap::generic.acquire.gpu [%a3], 128;",
            "mov.b32 %r1, 0;",
        )  # fmt: skip
        body.paint(512, start=1024).expect(512)
        body.first(f"{_LOAD.format(2)} [%r60+1024], [%a3, {{%r1, %r1}}], [%r61];").wait()
        body.dump("%a2", 512, start=1024)
        data = tensor("u16", (64, 8))
        spec = TensorMapSpec.tiled(data.shape, None, "u16", (64, 8))
        yield Case(
            f"tma/map {name}", of, body.text(),
            lambda data=data, spec=spec: (  # type: ignore[misc]
                Map(data, spec), Array(data[::-1].copy()), output(128, np.uint32), Array(np.zeros(64, np.uint32)),
            ),
            ("map", "array", "array", "array"), threads=32,
        )  # fmt: skip


# -- rows that are not whole 16-byte pieces -------------------------------------------------------------------------

_ROW_BYTES = 256
"""From row to row of a ragged tensor: what lies behind its rows is there to be seen, changed or not."""


def _ragged() -> Iterator[Case]:
    """Inner extents that end in the first, the middle and the last elements of a 16-byte piece."""
    for kind in ("u8", "u16", "f32", "u64"):
        yield _ragged_load(kind)
    yield _ragged_load("f32", oob_fill="NAN")
    for kind in ("u8", "u16", "bf16", "u32", "f32", "u64", "f64"):
        yield _ragged_store("store", kind)
    for rank in (1, 3, 4, 5):
        yield _ragged_load("u16", rank)
        yield _ragged_store("store", "u16", rank)
        yield _ragged_store("add", "u32", rank)
    for swizzle in ("32B", "64B", "128B"):
        yield _ragged_load("u16", swizzle=swizzle)
        yield _ragged_store("store", "u16", swizzle=swizzle)
    for operation, kinds in _REDUCED.items():
        for kind in kinds.split():
            yield _ragged_store(operation, kind)


def _ragged_extents(kind: str) -> tuple[int, ...]:
    piece = 128 // values.width_of(kind)
    return piece + 1, 3 * piece - 1, 5 * piece + piece // 2


def _ragged_maps(kind: str, rank: int, swizzle: str, **options: object) -> tuple[tuple[int, ...], list[TensorMapSpec]]:
    """Dimensions of a whole array, innermost first, and a map of a part of it for each extent."""
    size = values.width_of(kind) // 8
    whole = (_ROW_BYTES // size, 6, 3, 3, 2)[:rank]
    strides, step = [], size
    for length in whole:
        strides.append(step)
        step *= length
    box = (_WIDTHS[swizzle] // size, 4, 2, 2, 1)[:rank]
    specs = [
        TensorMapSpec.tiled(
            (extent, 5, 2, 2, 2)[:rank][::-1], tuple(strides[::-1]), kind, box, swizzle=swizzle,
            **options,  # type: ignore[arg-type]
        )
        for extent in _ragged_extents(kind)
    ]  # fmt: skip
    return whole, specs


def _ragged_places(kind: str, rank: int) -> list[tuple[int, ...]]:
    """At the beginning; behind one piece, across the outer edges; behind three; after the end of all extents."""
    piece = 128 // values.width_of(kind)
    places = ((0, 0, 0, 0, 0), (piece, 3, 1, 1, 1), (3 * piece, 1, 0, 1, 0), (6 * piece, 0, 0, 0, 0))
    return [place[:rank] for place in places]


def _ragged_load(kind: str, rank: int = 2, swizzle: str = "NONE", **options: object) -> Case:
    """Boxes of each map, one after the other, each into a freshly painted tile."""
    whole, specs = _ragged_maps(kind, rank, swizzle, **options)
    size = -(-_region(specs[0]) // 128) * 128
    result, places = len(specs), _ragged_places(kind, rank)
    body = Body(THREADS).init(1)
    for at, (number, place) in enumerate((number, place) for number in range(len(specs)) for place in places):
        lines, coordinates = _coordinates(place)
        body.paint(size).do(*lines).expect(specs[number].box_bytes)
        body.first(f"{_LOAD.format(rank)} [%r60], [%a{number}, {coordinates}], [%r61];")
        body.wait(at % 2).dump(f"%a{result}", size, offset=size * at)
    labels = tuple(f"extent {spec.dims[0]} at {place}" for spec in specs for place in places)
    name = " ".join(["tma/ragged load", kind, f"{rank}d", swizzle, *map(str, options.values())])
    return Case(
        name, ("tensor.load",), body.text(),
        lambda: (
            *(Map(tensor(kind, whole), spec) for spec in specs), output((len(labels), size // 4), np.uint32),
        ),
        (*["map"] * len(specs), "array"), threads=THREADS, labels=labels,
    )  # fmt: skip


def _ragged_store(operation: str, kind: str, rank: int = 2, swizzle: str = "NONE") -> Case:
    """Boxes stored to (or reduced into) each map, one after the other, out of a tile of edge values and random ones."""
    whole, specs = _ragged_maps(kind, rank, swizzle)
    size, width = -(-_region(specs[0]) // 128) * 128, values.width_of(kind) // 8
    source, count = len(specs), int(np.prod(whole))
    opcode, row = _STORE.format(rank), "tensor.store"
    if operation != "store":
        opcode, row = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.bulk_group", "tensor.reduce"
    body = Body(THREADS).fill(f"%a{source}", size)
    for number in range(len(specs)):
        for place in _ragged_places(kind, rank):
            lines, coordinates = _coordinates(place)
            body.do(*lines).first(f"{opcode} [%a{number}, {coordinates}], [%r60];", "cp.async.bulk.commit_group;")
            body.first("cp.async.bulk.wait_group 0;")

    def arguments() -> tuple[Argument, ...]:
        new, old = values.operands(Source(f"tma/ragged {kind}"), [kind, kind], count + size // width)
        old = old[:count].reshape(whole[::-1])
        return (*(Map(old.copy(), spec, output=True) for spec in specs), Array(new[-(size // width) :].copy()))

    return Case(
        f"tma/ragged {operation} {kind} {rank}d {swizzle}", (row, "bulk.commit_group", "bulk.wait_group"), body.text(),
        arguments, (*["map"] * len(specs), "array"), threads=THREADS,
    )  # fmt: skip
