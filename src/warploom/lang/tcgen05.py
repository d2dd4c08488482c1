"""`ptx.tcgen05`: Blackwell's matrix unit and tensor memory (PTX ISA 9.7.16), one method per instruction.

Operands are tiles of `smem.umma_tile` and of a `tmem` allocation, which determine shapes, types and descriptors;
explicit arguments are checked against them (`umma_operands`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.instructions.tcgen05_mma import SCALED_D
from ..isa.tensor_memory import LANES
from . import tcgen05_copies
from .accumulator import AccumulatorBuffer
from .arrays import RegisterArray
from .copies import multicast_mask
from .emit import Operand, issue
from .operand_tile import OperandTile, TileSlice
from .predicate import Predicate
from .shared import SharedAddress
from .tensor_address import TensorAddress, in_tensor_memory
from .trace import Trace
from .typed import typed
from .umma_operands import Scales, describe, shared_descriptor, stage_of
from .values import Register

_COLLECTORS = ("fill", "use", "lastuse", "discard")


class Tcgen05:
    """`ptx.tcgen05`."""

    # -- allocation ------------------------------------------------------------------------------------------------

    @typed
    def alloc(self, slot: SharedAddress, columns: int | Register, *, group: int = 1) -> None:
        """tcgen05.alloc, by one warp: wait for free columns and write their address (u32) to shared memory."""
        issue(f"tcgen05.alloc.{_group(group)}.sync.aligned.shared::cta.b32", slot, columns)

    @typed
    def dealloc(self, address: Any, columns: int | Register, *, group: int = 1) -> None:
        """tcgen05.dealloc, by one warp: free columns."""
        issue(f"tcgen05.dealloc.{_group(group)}.sync.aligned.b32", address, columns)

    @typed
    def relinquish_alloc_permit(self, *, group: int = 1) -> None:
        """tcgen05.relinquish_alloc_permit, by one warp: the CTA makes no further allocations."""
        issue(f"tcgen05.relinquish_alloc_permit.{_group(group)}.sync.aligned")

    # -- registers ---------------------------------------------------------------------------------------------------

    @typed
    def ld(
        self, address: TensorAddress | Register, count: int, *, shape: str = "32x32b", dtype: DType = dtypes.b32,
        pack: bool = False, split: int | None = None,
    ) -> RegisterArray:  # fmt: skip
        """tcgen05.ld.sync.aligned.<shape>: load `count` new registers per thread of a warp, from its quarter of the
        lanes.

        Args:
            address: of the quarter's first lane (`acc[0].load()` and `tile[i].mine()` compute it), the same in all
                threads; a register holds an address as `alloc` wrote it, with the lane in its upper 16 bits.
            count: registers; one instruction per power of two, up to 128.
            shape: "32x32b", "16x64b", "16x128b", "16x256b".
            pack: .pack::16b: two cells of 16 bits per register.
            split: .16x32bx2 instead: the upper 16 threads read this many columns further.

        Asynchronous: call `wait_ld` before other threads may overwrite the cells.
        """
        where = in_tensor_memory(address)
        return tcgen05_copies.load(where, count, dtypes.of(dtype), shape=shape, packed=pack, split=split)

    @typed
    def st(
        self, address: TensorAddress | Register, values: RegisterArray | Sequence[Register], *, shape: str = "32x32b",
        unpack: bool = False, split: int | None = None,
    ) -> None:  # fmt: skip
        """tcgen05.st.sync.aligned.<shape>: the inverse of `ld`; call `wait_st` before others may read the cells."""
        tcgen05_copies.store(in_tensor_memory(address), values, shape=shape, packed=unpack, split=split)

    def wait_ld(self) -> None:
        """tcgen05.wait::ld.sync.aligned: wait until this thread's loads are complete."""
        issue("tcgen05.wait::ld.sync.aligned")

    def wait_st(self) -> None:
        """tcgen05.wait::st.sync.aligned: wait until this thread's stores are complete."""
        issue("tcgen05.wait::st.sync.aligned")

    # -- MMAs --------------------------------------------------------------------------------------------------------

    @typed
    def mma(
        self, d: Any, a: Any, b: Any, *, accumulate: bool | Predicate = True, kind: str = "",
        scales: Scales | None = None, collector: str = "", lanes: Sequence[Register] | None = None,
        scale_d: int = 0, ashift: bool = False, ws: bool = False, metadata: TensorAddress | None = None,
        selector: int = 0, negate: tuple[bool, bool] = (False, False), idesc: int | Register | None = None,
        pred: Predicate | None = None,
    ) -> None:  # fmt: skip
        """tcgen05.mma: d = a @ b + (d if accumulate else 0), one instruction deep, issued by one thread.

        Args:
            d: a buffer of `memory.accumulator(m, n)`; its group determines whether a CTA pair multiplies.
            a: a slice of `smem.umma_tile` with this CTA's rows, one instruction deep (`tile[stage].k(i)`), or an
                address in tensor memory.
            b: a slice of `smem.umma_tile` with this CTA's columns: n, or n / 2 in a pair.
            accumulate: a Python bool or a predicate.
            kind: "f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"; by default derived from the types of a
                and b and from `scales`.
            scales: the scale factors of a and b, `tcgen05.Scales`.
            collector: use of A in the collector buffer: "fill", "use", "lastuse", "discard"; with `ws`, of B:
                "b0::fill" …
            lanes: 32-bit registers that disable lanes of D: 4 (8 in a pair).
            scale_d: d is divided by two to this power before the addition.
            ashift: A, in tensor memory, is moved by one lane after the product has read it: in each quarter of 32 lanes
                every row but the last gets the next one.
            ws: .ws: allows M = 32, and columns that are taken as zero.
            metadata: for a sparse A: a holds half of its elements, b is twice as deep (`tile[stage].k(i, 2)`).
            selector: 1 if the metadata of 16- and 32-bit types is in the column after `metadata`.
            negate: whether to negate a, and b.
            idesc: the instruction descriptor, instead of the derived one.

        Asynchronous: `commit` before any thread reads d or overwrites a and b. PTX ISA 9.7.16.10.9.
        """
        trace = Trace.current()
        found = describe(
            trace, d, a, b, kind=kind, scales=scales, ws=ws, sparse=metadata is not None, selector=selector,
            negate=negate, given=idesc,
        )  # fmt: skip
        if not isinstance(accumulate, bool | Predicate):
            raise trace.error("whether a product adds to D is a yes or no, or a predicate",
                              expected="True, False or a comparison of registers", got=repr(accumulate))  # fmt: skip
        if scale_d and found.kind not in SCALED_D:
            raise trace.error(
                f"D of .kind::{found.kind} cannot be divided", expected=f"scale_d=0, or .kind::{' or '.join(SCALED_D)}",
                got=f"scale_d={scale_d}",
            )  # fmt: skip
        if lanes is not None:
            _check_lanes(trace, lanes, 4 * d.of.memory.group)
        words = f"tcgen05.mma{'.ws' * ws}{'.sp' * (metadata is not None)}.{_group(d.of.memory.group)}"
        words += f".kind::{found.kind}"
        if scales is not None:
            words += f".block_scale.{scales.vector}"
        if ashift:
            _check_shift(trace, d, found.a, block_scaled=scales is not None, ws=ws)
            words += ".ashift"
        words += _collector(trace, collector, ws)
        operands: list[Any] = [d, found.a, found.b, *([metadata] if metadata is not None else []), found.idesc]
        if scales is not None:
            operands += [scales.a, scales.b]
        if lanes is not None:
            operands.append(list(lanes))
        operands.append(accumulate if isinstance(accumulate, Predicate) else int(accumulate))
        if scale_d:
            operands.append(scale_d)
        issue(words, *operands, pred=pred, trace=trace)

    def multiply(
        self,
        d: AccumulatorBuffer,
        a: Any,
        b: TileSlice | OperandTile,
        *,
        accumulate: bool | Predicate = True,
        **more: Any,
    ) -> None:
        """`mma` for each slice of k of tiles `a` and `b`, stage 0 of a ring; only the first may overwrite d.

        `a` may be in tensor memory: 8 columns per slice. Options as in `mma`. The metadata of a sparse A is in
        consecutive columns: two per slice, or one if elements have 16 or 32 bits.
        """
        trace = Trace.current()
        a = a if isinstance(a, TensorAddress) else stage_of(trace, "a", a)
        b = stage_of(trace, "b", b)
        metadata = more.pop("metadata", None)
        width = 1 if metadata is None else 2
        if isinstance(a, TileSlice) and a.k_slices * width != b.k_slices:
            raise trace.error(
                "a and b of an MMA differ in k", expected=f"{b.k_size // width} elements of k, as b holds them",
                got=f"{a.k_size} of {a.tile.buffer.name}", code="matrix-shape",
                consequence="part of one of them would not be multiplied",
            )  # fmt: skip
        for step in range(b.k_slices // width):
            part = a + 8 * step if isinstance(a, TensorAddress) else a.k(step)
            if metadata is not None:
                column, selector = (step // 2 * 2, step % 2) if b.layout.dtype.bits > 8 else (2 * step, 0)
                more |= {"metadata": metadata + column, "selector": selector}
            self.mma(d, part, b.k(step, width), accumulate=accumulate if step == 0 else True, **more)

    # -- copies into tensor memory -----------------------------------------------------------------------------------

    @typed
    def cp(
        self, to: TensorAddress, source: Any, *, shape: str = "32x128b", multicast: str = "", formats: str = "",
        group: int = 1,
    ) -> None:  # fmt: skip
        """tcgen05.cp: copy rows from shared memory into lanes, by one thread; ordered before a later `mma` of that
        thread.

        Args:
            to: address of the first column.
            source: a slice of `smem.umma_tile` or a matrix descriptor (b64).
            shape: "128x256b", "128x128b", "64x128b", "32x128b", "4x256b".
            multicast: "warpx4" for 32x128b (its default), "warpx2::02_13" or "warpx2::01_23" for 64x128b.
            formats: "b8x16.b6x16_p32" or "b8x16.b4x16_p64": elements are unpacked to bytes.
        """
        multicast = multicast or ("warpx4" if shape == "32x128b" else "")
        words = ".".join(word for word in (f"tcgen05.cp.{_group(group)}.{shape}", multicast, formats) if word)
        issue(words, to, shared_descriptor(Trace.current(), "the source", source))

    @typed
    def shift(self, address: TensorAddress, *, group: int = 1) -> None:
        """tcgen05.shift.down: move rows of 32 bytes down by one lane."""
        issue(f"tcgen05.shift.{_group(group)}.down", address)

    # -- completion and order ----------------------------------------------------------------------------------------

    @typed
    def commit(self, bar: Any, *, group: int = 1, multicast: Any = None, pred: Predicate | None = None) -> None:
        """tcgen05.commit: arrive on `bar` when all MMAs and copies of this thread so far are complete.

        `multicast`: a mask of CTAs of the cluster; the barrier at the same offset in each of them receives an arrival.
        """
        trace = Trace.current()
        words = f"tcgen05.commit.{_group(group)}.mbarrier::arrive::one.shared::cluster"
        if not isinstance(bar, Operand):
            raise trace.error("an mbarrier is an address in shared memory", got=repr(bar), hint="index it: bars[0]")
        if multicast is None:
            issue(f"{words}.b64", bar, pred=pred, trace=trace)
        else:
            mask = multicast_mask(trace, multicast)
            issue(f"{words}.multicast::cluster.b64", bar, mask, pred=pred, trace=trace)

    def fence_before_thread_sync(self) -> None:
        """tcgen05.fence::before_thread_sync: before this thread arrives at a barrier."""
        issue("tcgen05.fence::before_thread_sync")

    def fence_after_thread_sync(self) -> None:
        """tcgen05.fence::after_thread_sync: after this thread has waited at a barrier."""
        issue("tcgen05.fence::after_thread_sync")

    Scales = Scales
    """The scale factors of an MMA."""


def _group(group: int) -> str:
    if group not in (1, 2):
        raise Trace.current().error("an operation is for one CTA or for a pair", expected="group=1 or 2", got=group)
    return f"cta_group::{group}"


def _check_lanes(trace: Trace, lanes: Sequence[Register], count: int) -> None:
    if len(lanes) != count or not all(isinstance(each, Register) for each in lanes):
        raise trace.error("lanes of D are disabled by one register for each 32 of them",
                          expected=f"{count} registers of 32 bits", got=repr(list(lanes)))  # fmt: skip


def _check_shift(trace: Trace, d: Any, a: Any, *, block_scaled: bool, ws: bool) -> None:
    """Raise TraceError for a product that cannot move its A."""
    for wrong, expected, got in (
        (ws or block_scaled, "a product without .ws and without scale factors", ".ws" if ws else "scale factors"),
        (not isinstance(a, TensorAddress), "an A in tensor memory, memory.matrix_a(...)", repr(a)),
        (d.of.path.rows != LANES, f"{LANES} rows in each CTA", d.of.path.rows),
    ):
        if wrong:
            raise trace.error("this tcgen05.mma cannot move its A", expected=expected, got=got)


def _collector(trace: Trace, collector: str, ws: bool) -> str:
    if not collector:
        return ""
    which, _, use = collector.rpartition("::")
    buffers = ("b0", "b1", "b2", "b3") if ws else ("a", "")
    if use not in _COLLECTORS or which not in buffers:
        expected = ", ".join(f"{buffers[0]}::{use}" if ws else use for use in _COLLECTORS)
        raise trace.error("unknown use of the collector", expected=expected, got=collector)
    return f".collector::{which or 'a'}::{use}"


tcgen05 = Tcgen05()

__all__ = ["OperandTile", "Scales", "Tcgen05", "tcgen05"]
