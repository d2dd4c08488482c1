"""Accumulators in tensor memory, passed between the thread that multiplies and the warps that store.

    full[i]    one arrival of the MMA's commit, in every CTA of the pair       MMA -> epilogue
    empty[i]   one arrival per epilogue warp (of a pair: in the leader CTA)    epilogue -> MMA

With two buffers, the MMAs of the next tile run while the previous tile is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...isa.dtypes import DType, f32, u32
from ...lang import ptx, reg, smem
from ...lang.accumulator import Accumulator, AccumulatorBuffer
from ...lang.tensor_memory import TensorMemory
from ..pipeline.tma import State, advance
from ..pipeline.umma import BOTH
from ..tile.sizes import EPILOGUE_WARPS


class AccumulatorRing:
    """`buffers` accumulators of `m` x `n`; see the module's docstring.

    Create it before the CTA synchronises (its barriers are initialised there), and `open` it once tensor memory is
    allocated.
    """

    def __init__(self, m: int, n: int, dtype: DType = f32, *, buffers: int = 2, group: int = 1) -> None:
        self.m, self.n, self.dtype, self.buffers, self.ctas = m, n, dtype, buffers, group
        self.full = smem.mbarrier(buffers, name="accumulator.full")
        self.empty = smem.mbarrier(buffers, name="accumulator.empty")
        self._accumulator: Accumulator | None = None

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for buffer in range(self.buffers):
            ptx.mbarrier.init(self.full[buffer], 1)
            ptx.mbarrier.init(self.empty[buffer], EPILOGUE_WARPS * self.ctas)

    def open(self, memory: TensorMemory) -> None:
        """Allocate the columns of tensor memory."""
        self._accumulator = memory.accumulator(self.m, self.n, self.dtype, buffers=self.buffers, name="accumulator")

    def _at(self, state: State) -> AccumulatorBuffer:
        assert self._accumulator is not None
        return self._accumulator[state.index if self.buffers > 1 else 0]

    def advance(self, state: State) -> None:
        advance(state, self.buffers)

    # -- the thread that multiplies --------------------------------------------------------------------------------

    def producer_state(self) -> State:
        """The initial state of the MMA thread: every buffer is empty."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))

    @contextmanager
    def produce(self, state: State) -> Iterator[AccumulatorBuffer]:
        """Wait until the epilogue has read the buffer, run the block, and commit its MMAs to the epilogue's barrier."""
        scope = "cluster" if self.ctas > 1 else "cta"
        ptx.mbarrier.wait(self.empty[state.index], state.phase, scope=scope)
        ptx.tcgen05.fence_after_thread_sync()
        yield self._at(state)
        ptx.tcgen05.commit(self.full[state.index], group=self.ctas, multicast=BOTH if self.ctas > 1 else None)
        self.advance(state)

    # -- the warps that store --------------------------------------------------------------------------------------

    def consumer_state(self) -> State:
        """The initial state of the epilogue: no buffer is full."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=0))

    def consumer_wait(self, state: State) -> AccumulatorBuffer:
        """Wait until the MMAs are complete."""
        ptx.mbarrier.wait(self.full[state.index], state.phase)
        ptx.tcgen05.fence_after_thread_sync()
        return self._at(state)

    def consumer_release(self, state: State) -> None:
        """Free the buffer for the next MMAs, after `tcgen05.wait::ld`, which its warp executes as a whole."""
        ptx.tcgen05.fence_before_thread_sync()
        first = (ptx.special.tid.x() & 31) == 0
        if self.ctas > 1:
            ptx.mbarrier.arrive_remote(self.empty[state.index], 0, pred=first)
        else:
            ptx.mbarrier.arrive(self.empty[state.index], pred=first)
        self.advance(state)
