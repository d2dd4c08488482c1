"""Cases of tensor copies in im2col mode: columns of pixels of every rank, across every edge of images and tensor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warploom.isa.im2col import PixelBox
from warploom.isa.tensor_map import TensorMapSpec

from .case import Argument, Array, Case, Map, output
from .pieces import Body
from .tma import tensor
from .values import Source

THREADS = 64
_POLICY = "createpolicy.fractional.L2::evict_last.b64 %rd9, 0f3F800000;"
_SHAPES = {
    # dims, lower, upper, steps, pixels, then places and offsets; innermost first
    "1 image wide": ((64, 9, 3), (-1,), (-1,), (1, 1, 1), 20, (0, -1, 0), (2,)),
    "padded": ((64, 9, 14, 3), (-1, -1), (-1, -1), (1, 1, 1, 1), 64, (0, 3, 4, 0), (0, 0)),
    "moved by the filter": ((64, 9, 14, 3), (0, 0), (-2, -2), (1, 1, 1, 1), 64, (0, 6, 4, 1), (2, 2)),
    "strides": ((64, 8, 14, 3), (-1, -1), (-1, -1), (1, 2, 2, 1), 32, (0, 5, 7, 0), (1, 1)),
    "off the strides": ((64, 8, 14, 3), (-1, -1), (-1, -1), (1, 2, 3, 1), 40, (0, 2, 3, 0), (1, 0)),
    "volumes": ((64, 4, 5, 3, 2), (-1, 0, -2), (1, -1, 0), (1, 1, 2, 3, 1), 60, (0, -1, 2, 1, 0), (1, 2, 3)),
    "past the last image": ((64, 3, 3, 2), (0, 0), (0, 0), (1, 1, 1, 1), 40, (0, 1, 2, 1), (0, 0)),
    "inside": ((64, 9, 14, 3), (1, 0), (0, -2), (1, 1, 1, 1), 64, (0, 3, 10, 0), (0, 0)),
    "inside with strides": ((64, 8, 14, 3), (1, 0), (-1, -1), (1, 2, 3, 1), 20, (0, 3, 9, 0), (0, 0)),
    "past the last channel": ((40, 3, 3, 2), (0, 0), (0, 0), (1, 1, 1, 1), 12, (32, 1, 1, 0), (0, 0)),
}
_WIDTHS = {"NONE": 64, "32B": 16, "64B": 32, "128B": 64}


def cases() -> Iterator[Case]:
    for name in _SHAPES:
        if "inside" not in name:
            yield _load(name, "128B")
    for swizzle in ("NONE", "32B", "64B"):
        yield _load("padded", swizzle)
    for key in ("load_im2col_hint", "load_im2col_multicast", "load_im2col_multicast_hint"):
        yield _load("moved by the filter", "64B", key)
    for key in ("prefetch_im2col", "prefetch_im2col_hint"):
        yield _prefetch(key)
    for key in ("store_im2col", "store_im2col_hint", "reduce_im2col", "reduce_im2col_hint"):
        yield _store(key, "inside")
    for name in ("inside with strides", "past the last image", "past the last channel"):
        yield _store("store_im2col", name)


def _shape(name: str, swizzle: str, kind: str = "u16") -> tuple[np.ndarray, TensorMapSpec, str, list[str]]:
    """The tensor, the map, its coordinates and the lines that put the offsets into %h0 and so on."""
    dims, lower, upper, steps, pixels, place, offsets = _SHAPES[name]
    data = tensor(kind, dims)
    spec = TensorMapSpec.tiled(
        data.shape, None, kind, (_WIDTHS[swizzle] * 2 // data.itemsize, pixels), swizzle=swizzle,
        element_strides=steps, pixels=PixelBox(lower, upper),
    )  # fmt: skip
    lines = [f"mov.b16 %h{axis}, {by};" for axis, by in enumerate(offsets)]
    return data, spec, "{" + ", ".join(map(str, place)) + "}", lines


def _load(name: str, swizzle: str, key: str = "load_im2col") -> Case:
    data, spec, coordinates, lines = _shape(name, swizzle)
    size = -(-spec.shared_bytes // 128) * 128
    names = ", ".join(f"%h{axis}" for axis in range(spec.rank - 2))
    several, hint = "multicast" in key, key.endswith("hint")
    opcode = f"cp.async.bulk.tensor.{spec.rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
    opcode += ".multicast::cluster" * several + ".L2::cache_hint" * hint
    operands = f"[%r60], [%a0, {coordinates}], [%r61], {{{names}}}" + ", %h7" * several + ", %rd9" * hint
    body = Body(THREADS).do(_POLICY, *lines, "mov.b16 %h7, 1;").init(1).paint(size).expect(spec.box_bytes)
    body.first(f"{opcode} {operands};").wait().dump("%a1", size)
    return Case(
        f"im2col/{key} {name} {swizzle}", (f"tensor.{key}",), body.text(),
        lambda: (Map(data, spec), output(size // 4, np.uint32)), ("map", "array"), threads=THREADS,
    )  # fmt: skip


def _prefetch(key: str) -> Case:
    """A prefetch shows nothing; the load behind it brings what it would have brought."""
    case = _load("padded", "64B")
    hint = key.endswith("hint")
    opcode = "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col" + ".L2::cache_hint" * hint
    line = f"{opcode} [%a0, {{0, 3, 4, 0}}], {{%h0, %h1}}{', %rd9' if hint else ''};"
    body = case.body.replace("mov.b16 %h7, 1;", f"mov.b16 %h7, 1;\n{line}")
    return Case(f"im2col/{key}", (f"tensor.{key}", *case.rows), body, case.arguments, case.kinds, threads=THREADS)


def _store(key: str, name: str) -> Case:
    """Base pixels of a column into a tensor. The box of pixels lies inside (PTX ISA 9.7.9.27.1.1)."""
    reduces, hint = key.startswith("reduce"), key.endswith("hint")
    data, spec, coordinates, _ = _shape(name, "64B", "u32")
    size = -(-spec.shared_bytes // 128) * 128
    opcode = "cp.reduce" if reduces else "cp"
    opcode += ".async.bulk.tensor.4d.global.shared::cta" + ".add" * reduces + ".im2col_no_offs.bulk_group"
    body = Body(THREADS).do(_POLICY).fill("%a1", size).first(
        f"{opcode}{'.L2::cache_hint' * hint} [%a0, {coordinates}], [%r60]{', %rd9' * hint};",
        "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;",
    )  # fmt: skip

    def arguments() -> tuple[Argument, ...]:
        return Map(data.copy(), spec, output=True), Array(Source("im2col/store").bits(size // 4, 32))

    return Case(f"im2col/{key} {name}", (f"tensor.{key}",), body.text(), arguments, ("map", "array"), threads=THREADS)
