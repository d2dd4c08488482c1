"""Asynchronous copies: `ptx.cp.async_` (per thread), `ptx.cp.async_.bulk` (one TMA instruction), `ptx.tma`.

`ptx.cp…` emits exactly the instruction that it is named after. `ptx.tma` handles a whole tile: one copy per panel of
its layout. Tensor copies take `A.tma_desc()` and an address in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..isa import dtypes
from ..plural import counted
from .emit import Operand, issue
from .pointers import TensorMap, tensor_address
from .predicate import Predicate
from .smem import OperandTile, SharedAddress, TileSlice
from .trace import Trace
from .typed import typed
from .values import Register, new

Coordinate = Register | int
_COMPLETE = "mbarrier::complete_tx::bytes"


def multicast_mask(trace: Trace, mask: int | Register) -> Register:
    """The CTA mask of a multicast, in the 16-bit register that the instruction takes."""
    if isinstance(mask, Register):
        return mask if mask.dtype.bits == 16 else mask.to(dtypes.u16)
    ctas = math.prod(trace.protocol.cluster)
    if type(mask) is not int or not 0 < mask < 1 << ctas:
        raise trace.error("a multicast goes to CTAs of the cluster", expected=f"a mask from 1 to {(1 << ctas) - 1}",
                          got=repr(mask), consequence="a CTA that is not there would be waited for")  # fmt: skip
    return new(trace, dtypes.u16, mask)


def _shared(address: Any, what: str) -> Any:
    if isinstance(address, OperandTile):
        raise Trace.current().error(
            f"{what} is one stage of a tile", got=f"the whole tile {address.buffer.name}", hint="index it: tile[0]"
        )
    if not isinstance(address, Operand):
        raise Trace.current().error(f"{what} is an address in shared memory", got=repr(address))
    return address


def _of_rank(rank: int) -> Callable[..., None]:
    """`Bulk.tensor` for arrays of `rank` dimensions, under the instruction's name."""

    def tensor(self: Bulk, dst: Any, src: TensorMap, coord: Any, mbar: Any, multicast: Any = None,
               cache_hint: Any = None, pred: Predicate | None = None, group: int = 0) -> None:  # fmt: skip
        actual = src.array.rank if isinstance(src, TensorMap) else rank
        if actual != rank:
            raise Trace.current().error(
                f"{src.array.name} has {actual} dimensions", hint=f"use tensor_{actual}d", got=f"tensor_{rank}d"
            )
        self.tensor(dst, src, coord, mbar, multicast, cache_hint, pred, group)

    tensor.__doc__ = f"As `tensor`, of an array of {rank} dimension{'s' * (rank > 1)}."
    return tensor


class Bulk:
    """`ptx.cp.async_.bulk` (PTX ISA 9.7.9.25.4, 9.7.9.27)."""

    def tensor(self, dst: Any, src: TensorMap, coord: Any, mbar: Any, multicast: Any = None, cache_hint: Any = None,
               pred: Predicate | None = None, group: int = 0) -> None:  # fmt: skip
        """cp.async.bulk.tensor.<n>d.shared::cluster.global.tile.mbarrier::complete_tx::bytes: one box to shared memory.

        Args:
            dst: address in shared memory (aligned for the map's swizzle).
            src: tensor map of an array of 1 to 5 dimensions; its box is copied.
            coord: coordinates of the box's first element, innermost dimension first.
            mbar: barrier that counts the bytes of the whole box, including parts outside the array (filled with zeros).
            multicast: mask of the CTAs of the cluster that receive the box, at the same offset, each on its own
                barrier.
            cache_hint: an L2 policy (64-bit register or number).
            group: 2 allows a barrier in the other CTA of the pair (.cta_group::2, sm_100).

        `tensor_1d` to `tensor_5d` are the same for arrays of that many dimensions.
        """
        trace = Trace.current()
        place = tensor_address(src, coord)
        _check_box(dst, src)
        words = f"cp.async.bulk.tensor.{src.array.rank}d.shared::cluster.global.tile.{_COMPLETE}"
        extra: list[Any] = []
        if multicast is not None:
            words += ".multicast::cluster"
            extra.append(multicast_mask(trace, multicast))
        if group:
            words += f".cta_group::{group}"
        if cache_hint is not None:
            words += ".L2::cache_hint"
            extra.append(_policy(cache_hint))
        into, barrier = _shared(dst, "the destination"), _shared(mbar, "mbar")
        issue(words, into, place, barrier, *extra, pred=pred)

    tensor_1d, tensor_2d, tensor_3d, tensor_4d, tensor_5d = (_of_rank(rank) for rank in range(1, 6))

    def tensor_store(
        self, dst: TensorMap, src: SharedAddress, coord: Any, cache_hint: Any = None, pred: Predicate | None = None
    ) -> None:
        """cp.async.bulk.tensor.<n>d.global.shared::cta.tile.bulk_group: one box to global memory, part of a bulk group.

        Elements outside the array are not written. But if the length of its rows is not a multiple of 16 bytes, the
        bytes after them, up to a multiple of 16, are written too (docs/measured-facts.md). Writes to `src` need a
        fence.proxy.async before the store.
        """
        place = tensor_address(dst, coord)
        words = f"cp.async.bulk.tensor.{dst.array.rank}d.global.shared::cta.tile.bulk_group"
        extra = [] if cache_hint is None else [_policy(cache_hint)]
        words += ".L2::cache_hint" if extra else ""
        issue(words, place, _shared(src, "the source"), *extra, pred=pred)

    def tensor_reduce(
        self, op: str, dst: TensorMap, src: SharedAddress, coord: Any, pred: Predicate | None = None
    ) -> None:
        """cp.reduce.async.bulk.tensor.<n>d.global.shared::cta.<op>.tile.bulk_group: combine a box into global.

        If rows are not a multiple of 16 bytes long, it writes past them as `tensor_store` does.
        """
        place = tensor_address(dst, coord)
        words = f"cp.reduce.async.bulk.tensor.{dst.array.rank}d.global.shared::cta.{op}.tile.bulk_group"
        issue(words, place, _shared(src, "the source"), pred=pred)

    def gather4(self, dst: Any, src: TensorMap, column: Coordinate, rows: Sequence[Coordinate], mbar: Any,
                pred: Predicate | None = None) -> None:  # fmt: skip
        """cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4 (sm_100): four rows of a matrix to shared memory,
        one after the other, from `column` on. The map's box is one row; rows outside the array are zeros, and counted.
        """
        place = tensor_address(src, (column, *rows), four_rows=True)
        words = f"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{_COMPLETE}"
        into, barrier = _shared(dst, "the destination"), _shared(mbar, "mbar")
        issue(words, into, place, barrier, pred=pred)

    def scatter4(self, dst: TensorMap, src: Any, column: Coordinate, rows: Sequence[Coordinate],
                 pred: Predicate | None = None) -> None:  # fmt: skip
        """cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group (sm_100): the inverse of `gather4`, part
        of a bulk group. Rows outside the array are not written."""
        place = tensor_address(dst, (column, *rows), four_rows=True)
        words = "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
        issue(words, place, _shared(src, "the source"), pred=pred)

    def im2col(self, dst: Any, src: TensorMap, coord: Any, offsets: Sequence[int | Register], mbar: Any,
               pred: Predicate | None = None) -> None:  # fmt: skip
        """cp.async.bulk.tensor.<n>d.shared::cta.global.im2col…: a column of pixels to shared memory, in the mode
        of the map's box of pixels (`Tile(..., pixels=PixelBox(...))`).

        Args:
            coord: channel, base pixel (w, …) and image from which the column starts.
            offsets: added to each base pixel: (w, …), one per spatial dimension. In the modes along W of sm_100,
                (halo, offset): the pixels that follow the column, and an offset along W.
            mbar: counts the bytes of all its pixels, with halos, including parts outside the image (filled with zeros).
        """
        trace = Trace.current()
        place = tensor_address(src, coord)
        box = src.array.spec.pixels
        if box is None:
            raise trace.error(f"{src.array.name} has a tensor map of tiles", got="im2col",
                              expected="Tile(..., box=(channels, pixels), pixels=PixelBox(...))")  # fmt: skip
        count = 2 if box.wide else src.array.rank - 2
        if len(offsets) != count:
            raise trace.error(f"a copy of mode {box.mode} has {counted(count, 'offset')}", got=len(offsets),
                              expected="(halo, offset)" if box.wide else "one per spatial dimension")  # fmt: skip
        words = f"cp.async.bulk.tensor.{src.array.rank}d.shared::cta.global.{box.mode}.{_COMPLETE}"
        into, barrier = _shared(dst, "the destination"), _shared(mbar, "mbar")
        narrow = [each if isinstance(each, Register) else new(trace, dtypes.u16, each) for each in offsets]
        issue(words, into, place, barrier, narrow, pred=pred)

    def load(self, dst: Any, src: Any, bytes: Any, mbar: Any, pred: Predicate | None = None) -> None:
        """cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes: contiguous bytes (a multiple of 16)."""
        issue(f"cp.async.bulk.shared::cluster.global.{_COMPLETE}", _shared(dst, "the destination"), src, bytes,
              _shared(mbar, "mbar"), pred=pred)  # fmt: skip

    def store(self, dst: Any, src: Any, bytes: Any, pred: Predicate | None = None) -> None:
        """cp.async.bulk.global.shared::cta.bulk_group: contiguous bytes (a multiple of 16) to global memory."""
        issue("cp.async.bulk.global.shared::cta.bulk_group", dst, _shared(src, "the source"), bytes, pred=pred)

    def commit_group(self) -> None:
        """cp.async.bulk.commit_group: group this thread's bulk stores since the last commit."""
        issue("cp.async.bulk.commit_group")

    def wait_group(self, n: int = 0) -> None:
        """cp.async.bulk.wait_group: wait until at most the `n` newest groups of this thread are incomplete."""
        issue("cp.async.bulk.wait_group", n)

    def wait_group_read(self, n: int = 0) -> None:
        """cp.async.bulk.wait_group.read: wait until all but the `n` newest groups have read their shared memory."""
        issue("cp.async.bulk.wait_group.read", n)


class CopyAsync:
    """`ptx.cp.async_`: copies of 4, 8 or 16 bytes by each thread (PTX ISA 9.7.9.25.3)."""

    bulk = Bulk()

    def ca(self, dst: Any, src: Any, bytes: int, src_bytes: Any = None, pred: Predicate | None = None) -> None:
        """cp.async.ca.shared.global: 4, 8 or 16 bytes through L1; bytes from `src_bytes` on are zeros."""
        self._issue("ca", dst, src, bytes, src_bytes, pred)

    def cg(self, dst: Any, src: Any, bytes: int = 16, src_bytes: Any = None, pred: Predicate | None = None) -> None:
        """cp.async.cg.shared.global: 16 bytes, bypassing L1; bytes from `src_bytes` on are zeros."""
        self._issue("cg", dst, src, bytes, src_bytes, pred)

    def _issue(self, cache: str, dst: Any, src: Any, bytes: int, src_bytes: Any, pred: Predicate | None) -> None:
        trace = Trace.current()
        if bytes not in ((16,) if cache == "cg" else (4, 8, 16)):
            raise trace.error(f"cp.async.{cache} copies {'16' if cache == 'cg' else '4, 8 or 16'} bytes", got=bytes)
        extra = () if src_bytes is None else (src_bytes,)
        issue(f"cp.async.{cache}.shared.global", _shared(dst, "the destination"), src, bytes, *extra, pred=pred)

    def commit_group(self) -> None:
        """cp.async.commit_group: group this thread's copies since the last commit."""
        issue("cp.async.commit_group")

    def wait_group(self, n: int = 0) -> None:
        """cp.async.wait_group: wait until at most the `n` newest groups of this thread are incomplete."""
        issue("cp.async.wait_group", n)

    def wait_all(self) -> None:
        """cp.async.wait_all: wait until all copies of this thread are complete."""
        issue("cp.async.wait_all")


class Copy:
    """`ptx.cp`."""

    async_ = CopyAsync()


class Tma:
    """`ptx.tma`: whole tiles, with one copy per panel of their layout."""

    @typed
    def load(
        self, dst: Any, src: TensorMap, coord: Sequence[Coordinate], mbar: Any, multicast: Any = None,
        cache_hint: Any = None, pred: Predicate | None = None, group: int = 0,
    ) -> None:  # fmt: skip
        """Fill one stage of an operand tile: one cp.async.bulk.tensor.<n>d per box of its layout.

        `coord` is the tile's first element, innermost dimension first; the map is that of `Tile.wgmma_a/_b` or
        `Tile.operand` with the same tile shape. The barrier receives `dst.bytes` in total. `group`: as in `tensor`.
        """
        trace = Trace.current()
        if not isinstance(dst, TileSlice):
            raise trace.error(
                "ptx.tma.load fills one stage of an operand tile",
                expected="a stage of a tile of smem: tile[stage]",
                got=repr(dst),
                hint="ptx.cp.async_.bulk.tensor_2d copies into any shared memory",
            )
        layout = dst.layout
        mapped = src.array.spec.layout
        if mapped is not None and (mapped.box, mapped.swizzle) != (layout.box, layout.swizzle):
            raise trace.error(
                f"the box of {src.array.name}'s tensor map is not that of the tile in shared memory",
                expected=f"box {layout.box} of {layout.dtype}, swizzle {layout.swizzle.value}",
                got=f"box {mapped.box}, swizzle {mapped.swizzle.value}",
                hint="give the Tile and its tile in smem the same tile shape and major",
            )
        for box in layout.boxes:
            place = src.moved(coord, box.coordinates)
            CopyAsync.bulk.tensor(dst + box.offset, src, place, mbar, multicast, cache_hint, pred, group)

    @typed
    def store(
        self, dst: TensorMap, src: Any, coord: Sequence[Coordinate] | Coordinate, pred: Predicate | None = None,
        cache_hint: Any = None,
    ) -> None:  # fmt: skip
        """Store one box to global memory: a cp.async.bulk.tensor store in the thread's current bulk group. cache_hint:
        an L2 policy."""
        CopyAsync.bulk.tensor_store(dst, src, coord, cache_hint, pred)

    @typed
    def prefetch(
        self, dst: TileSlice, src: TensorMap, coord: Sequence[Coordinate], pred: Predicate | None = None
    ) -> None:
        """Prefetch into L2 what `load` with the same arguments reads: a hint, without completion.

        Emits cp.async.bulk.prefetch.tensor.<n>d.L2.global.tile for each box of the tile's layout.
        """
        opcode = f"cp.async.bulk.prefetch.tensor.{src.array.rank}d.L2.global.tile"
        for box in dst.layout.boxes:
            issue(opcode, tensor_address(src, src.moved(coord, box.coordinates)), pred=pred)

    def prefetch_descriptor(self, tensor_map: TensorMap, pred: Predicate | None = None) -> None:
        """prefetch.tensormap: prefetch the 128-byte tensor map itself."""
        issue("prefetch.tensormap", tensor_map, pred=pred)


def _check_box(dst: Any, tensor_map: TensorMap) -> None:
    """Check that a copy that fills a tile moves all of the tile's bytes; otherwise its barrier would wait forever."""
    if not isinstance(dst, TileSlice):
        return
    box = tensor_map.box
    moved = math.prod(box) * tensor_map.array.dtype.bytes
    if moved != dst.bytes:
        raise Trace.current().error(
            f"one copy of {tensor_map.array.name} does not fill {dst.tile.buffer.name}",
            expected=f"a box of {dst.bytes} bytes",
            got=f"box {box} of {tensor_map.array.dtype}: {moved} bytes",
            consequence="part of the tile would stay unwritten, and its barrier would wait for the missing bytes",
            hint="ptx.tma.load issues one copy per panel of a tile",
        )


def _policy(hint: int | Register) -> Register:
    return hint if isinstance(hint, Register) else new(Trace.current(), dtypes.b64, hint)


cp, tma = Copy(), Tma()
