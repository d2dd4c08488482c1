"""Tensor memory (sm_100): an allocation, and the tiles in its columns; no address is computed by hand.

    memory = tmem.alloc(512)                        one warp allocates, every thread reads the address
    acc = memory.accumulator(128, 256, buffers=2)   columns 0 to 511, two buffers of D
    ptx.tcgen05.mma(acc[0], a, b)                   by one thread
    values = acc[0].load()                          by the four warps of a warpgroup: one row of D per thread
    ptx.tcgen05.wait_ld()
    memory.dealloc()

Columns are assigned while the kernel is traced, one tile after the other; `kernel.protocol()` lists them.
"""

from __future__ import annotations

import math

from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.instruction_descriptor import KINDS, extents, kinds_with, shapes
from ..isa.launch import WARP
from ..isa.tensor_memory import COLUMNS, QUARTER, SIZES, data_path
from . import barriers
from .accumulator import Accumulator
from .control import if_
from .emit import issue
from .protocol import Columns
from .shared import SharedArray, array, assigned_to
from .special import special
from .tensor_address import TensorTile
from .trace import Trace
from .typed import typed
from .values import Register


class TensorMemory:
    """One allocation; made by `tmem.alloc` or `tmem.reserve`.

    Attributes:
        columns: the number of columns.
        group: 2 if the CTAs of a pair allocate and multiply together.
    """

    def __init__(self, trace: Trace, columns: int, group: int, slot: SharedArray, name: str) -> None:
        self.trace, self.columns, self.group, self.slot, self.name = trace, columns, group, slot, name
        self.used = 0
        self._base: Register | None = None
        self._held = False

    # -- allocation and release ----------------------------------------------------------------------------------

    @typed
    def alloc(self, *, relinquish: bool = True) -> None:
        """tcgen05.alloc by one warp: wait until the SM has the columns, and write their address to shared memory.

        With `relinquish` the CTA promises to make no further allocations, so that the next CTA on the SM may. Raises
        TraceError after such a promise, and if unfreed allocations together exceed the 512 columns.
        """
        protocol = self.trace.protocol
        if protocol.relinquished:
            raise self.trace.error(
                f"{self.name} is allocated after tcgen05.relinquish_alloc_permit",
                expected="the promise to allocate no more with the last allocation",
                got=f"given with {protocol.relinquished}", consequence="undefined behaviour",
                hint="pass relinquish=False to the allocations before the last",
            )  # fmt: skip
        if protocol.held + self.columns > COLUMNS:
            raise self.trace.error(
                f"{self.name} does not fit next to other allocations", expected=f"at most {COLUMNS} columns in all",
                got=f"{protocol.held} + {self.columns}", consequence="the allocation would wait forever",
                hint="free the first, or put tiles of both into one allocation", code="tensor-memory-full",
            )  # fmt: skip
        protocol.held += self.columns
        self._held = True
        words = f"cta_group::{self.group}.sync.aligned"
        issue(f"tcgen05.alloc.{words}.shared::cta.b32", self.slot[0], self.columns, trace=self.trace)
        if relinquish:
            protocol.relinquished = self.name
            issue(f"tcgen05.relinquish_alloc_permit.{words}", trace=self.trace)

    def open(self) -> None:
        """Read the address (ld.shared.b32) in every thread, after a barrier after `alloc`; tiles are usable after
        this."""
        base = Register(self.trace, dtypes.b32)
        issue("ld.shared.b32", base, self.slot[0], trace=self.trace)
        self._base = base

    @typed
    def dealloc(self, *, warp: int | None = 0) -> None:
        """Free the columns when all threads of the CTA (of the pair, for group 2) have arrived here.

        bar.sync 0 or a cluster barrier, then tcgen05.dealloc by warp number `warp`. None: the caller has synchronised
        and is a single warp.
        """
        if warp is None:
            words = f"tcgen05.dealloc.cta_group::{self.group}.sync.aligned.b32"
            issue(words, self.base, self.columns, trace=self.trace)
            self.trace.protocol.held -= self.columns * self._held
            self._held = False
            return
        _check_warp(self.trace, warp)
        _meet(self.group)
        with if_(special.tid.x() >> 5 == warp):
            self.dealloc(warp=None)

    @property
    def base(self) -> Register:
        """The address of column 0."""
        if self._base is None:
            raise self.trace.error(
                f"the address of {self.name} has not been read",
                hint="call open() in every thread, after the barrier after alloc()",
                consequence="no instruction could name its cells",
            )
        return self._base

    # -- tiles -----------------------------------------------------------------------------------------------------

    @typed
    def accumulator(
        self, m: int, n: int, dtype: DType = dtypes.f32, *, buffers: int = 1, ws: bool = False, sparse: bool = False,
        name: str = "",
    ) -> Accumulator:  # fmt: skip
        """Columns for the D of MMAs of `m` x `n`.

        Args:
            m: rows, of the whole pair for group 2: 64, 128 or 256 (32 with `ws`).
            n: columns of D.
            dtype: f32, f16 (in the low half of a cell) or s32.
            buffers: the number of buffers, one after the other: `acc[i]`.
            ws, sparse: properties of the MMAs that affect the layout.
        """
        kinds = kinds_with(result=dtypes.of(dtype).name)
        if not kinds:
            raise self.trace.error(
                f"no product adds up in {dtypes.of(dtype)}", code="matrix-shape", got=str(dtypes.of(dtype)),
                expected=" or ".join(dict.fromkeys(result for kind in KINDS.values() for result in kind.results)),
                hint="memory.tile(columns) is for cells of any content",
            )  # fmt: skip
        allowed = [extents(kind, self.group, sparse, ws) for kind in kinds]
        if not any(m in rows and n in columns for rows, columns in allowed):
            raise self.trace.error(
                f"no product of {'a pair of CTAs' if self.group == 2 else 'one CTA'} has an accumulator of this shape",
                expected=shapes(kinds, self.group, sparse, ws),
                got=f"m {m}, n {n}",
                code="matrix-shape",
            )
        path = data_path(m, self.group, sparse=sparse, ws=ws)
        detail = f"{dtype} {m} x {n}, layout {path.name}"
        start = self._take(path.columns(n), buffers, name or "accumulator", detail)
        return Accumulator(self, start, path, n, dtypes.of(dtype), buffers)

    @typed
    def tile(self, columns: int, *, buffers: int = 1, name: str = "", detail: str = "") -> TensorTile:
        """`columns` columns of all lanes, for any content: A, scale factors, metadata."""
        return TensorTile(self, self._take(columns, buffers, name or "tile", detail or "cells"), columns, buffers)

    @typed
    def matrix_a(self, k: int, dtype: DType, *, buffers: int = 1, name: str = "") -> TensorTile:
        """Columns for an A of depth `k`, K-major: row m in lane m, the elements of a row one after the other."""
        dtype = dtypes.of(dtype)
        columns = -(-k * dtype.bits // 32)
        start = self._take(columns, buffers, name or "A", f"{dtype} {k} deep, K-major")
        return TensorTile(self, start, columns, buffers, dtype)

    @typed
    def scales(self, rows: int, *, blocks: int = 1, buffers: int = 1, name: str = "") -> TensorTile:
        """Columns for the scale factors of `rows` rows of A or B, `blocks` times four factors each.

        Four factors of 32 rows fill a column, in all four quarters of the lanes (PTX ISA 9.7.16.10.7).
        """
        columns = -(-rows // QUARTER) * blocks
        start = self._take(columns, buffers, name or "scales", f"factors of {rows} rows, {4 * blocks} each")
        return TensorTile(self, start, columns, buffers, rows=rows)

    def _take(self, columns: int, buffers: int, default: str, detail: str) -> int:
        trace = self.trace
        for value in (columns, buffers):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise trace.error("tensor memory is allocated in whole columns", got=repr(value))
        start, wanted = self.used, columns * buffers
        if start + wanted > self.columns:
            raise trace.error(
                f"{self.name} has no space for these columns",
                expected=f"at most {self.columns - start} of its {self.columns}, after the {start} already taken",
                got=f"{buffers} x {columns} = {wanted}",
                hint="allocate more, use fewer buffers or a smaller tile"
                if self.columns < COLUMNS
                else "an SM has 512 columns: use fewer buffers or a smaller tile",
                code="tensor-memory-full",
            )
        self.used += wanted
        trace.protocol.columns.append(Columns(assigned_to(trace) or default, start, columns, detail, buffers))
        return start


def _check_warp(trace: Trace, warp: int) -> None:
    """Raise TraceError for a warp that the CTA does not have: it would never come to allocate or to free."""
    warps = -(-math.prod(trace.protocol.block) // WARP)
    if not 0 <= warp < warps:
        raise trace.error("no such warp in this block", expected=f"0 to {warps - 1}", got=warp,
                          consequence="nobody would allocate, or free, the columns")  # fmt: skip


def _meet(group: int) -> None:
    """Synchronise all threads of the CTA, or of the pair's cluster."""
    if group == 2:
        barriers.cluster.sync()
    else:
        barriers.bar.sync()


@typed
def reserve(columns: int, *, group: int = 1, name: str = "") -> TensorMemory:
    """An allocation of `columns` columns (32, 64, 128, 256 or 512), to be made later.

    Emits nothing; takes 4 bytes of shared memory for the address. Follow it with `alloc()` in one warp, a barrier, and
    `open()` in every thread. `tmem.alloc` does all that.
    """
    trace = Trace.current()
    if columns not in SIZES:
        raise trace.error(
            "tensor memory is allocated in powers of two",
            expected="32, 64, 128, 256 or 512 columns",
            got=columns,
            code="tensor-memory-full",
        )
    if group not in (1, 2):
        raise trace.error("tensor memory belongs to one CTA or to a pair", expected="group=1 or 2", got=group)
    size = trace.protocol.cluster[0] * trace.protocol.cluster[1] * trace.protocol.cluster[2]
    if group == 2 and size % 2:
        raise trace.error(
            "a pair of CTAs needs a cluster of an even size",
            expected="cluster=(2, 1, 1), or another even number",
            got=f"cluster={trace.protocol.cluster}",
            consequence="one CTA would wait for a peer that does not exist",
        )
    name = name or assigned_to(trace) or "memory"
    trace.protocol.allocated += columns
    slot = array(dtypes.u32, 1, align=4, name=f"{name}_address")
    return TensorMemory(trace, columns, group, slot, name)


@typed
def alloc(columns: int, *, group: int = 1, warp: int = 0, relinquish: bool = True, name: str = "") -> TensorMemory:
    """Allocate `columns` columns; every thread of the CTA calls this, warp number `warp` allocates.

    Emits, for group 1: tcgen05.alloc and relinquish_alloc_permit in that warp, tcgen05.fence::before_thread_sync,
    bar.sync 0, tcgen05.fence::after_thread_sync, ld.shared.b32. For a pair the barrier is the cluster's, and a second
    one precedes the allocation, because the peer CTA must be running.
    """
    memory = reserve(columns, group=group, name=name)
    _check_warp(memory.trace, warp)
    if group == 2:
        barriers.cluster.sync()
    with if_(special.tid.x() >> 5 == warp):
        memory.alloc(relinquish=relinquish)
    issue("tcgen05.fence::before_thread_sync")
    _meet(group)
    issue("tcgen05.fence::after_thread_sync")
    memory.open()
    return memory
