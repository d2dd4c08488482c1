"""Synchronisation: mbarriers, named barriers, clusters, fences, register reallocation, dependent grids.

Each helper documents the instructions it emits; `kernel.protocol()` lists their effects on barriers (`notes`).
"""

from __future__ import annotations

from typing import Any

from ..asm import nodes
from ..isa import arch as isa_arch
from ..isa import dtypes
from .emit import Sink, issue
from .predicate import Predicate
from .smem import BarrierAddress, SharedAddress
from .trace import Trace
from .values import Register

_SINK = Sink()


def _barrier(bar: object) -> SharedAddress | Any:
    if isinstance(bar, SharedAddress) or getattr(bar, "code", None) and bar.code[0] == "[":  # type: ignore[attr-defined]
        return bar
    hint = "index it: bars[0]" if hasattr(bar, "__getitem__") else "make one with smem.mbarrier(n)"
    raise Trace.current().error("an mbarrier is an address in shared memory", got=repr(bar), hint=hint)


def _phase(phase: Any) -> Any:
    if isinstance(phase, Predicate):
        result = Register(phase.trace, dtypes.u32)
        issue("selp.b32", result, 1, 0, phase)
        return result
    if isinstance(phase, int) and phase not in (0, 1):
        raise Trace.current().error("the parity of a phase is 0 or 1", got=phase)
    return phase


class MBarrier:
    """`ptx.mbarrier`: barriers in shared memory that count arrivals and bytes (PTX ISA 9.7.13.15)."""

    def init(self, bar: SharedAddress, count: int | Register) -> None:
        """mbarrier.init.shared::cta.b64: a phase completes after `count` arrivals (1 to 2^20 - 1)."""
        trace = Trace.current()
        if isinstance(count, int) and not 1 <= count < 1 << 20:
            raise trace.error("an mbarrier expects 1 to 1048575 arrivals", got=count)
        issue("mbarrier.init.shared::cta.b64", _barrier(bar), count)

    def inval(self, bar: SharedAddress) -> None:
        """mbarrier.inval.shared::cta.b64: the memory may be reused."""
        issue("mbarrier.inval.shared::cta.b64", _barrier(bar))

    def arrive(self, bar: SharedAddress, count: int | Register | None = None, pred: Predicate | None = None) -> None:
        """mbarrier.arrive.shared::cta.b64 (release, CTA scope): one arrival of this thread, or `count`."""
        extra = () if count is None else (count,)
        issue("mbarrier.arrive.shared::cta.b64", _SINK, _barrier(bar), *extra, pred=pred)

    def arrive_expect_tx(self, bar: SharedAddress, bytes: int | Register, pred: Predicate | None = None) -> None:
        """mbarrier.arrive.expect_tx.shared::cta.b64: expect `bytes` more bytes of copies, then arrive once."""
        issue("mbarrier.arrive.expect_tx.shared::cta.b64", _SINK, _barrier(bar), bytes, pred=pred)

    def expect_tx(self, bar: SharedAddress, bytes: int | Register, pred: Predicate | None = None) -> None:
        """mbarrier.expect_tx.relaxed.cta.shared::cta.b64: expect `bytes` more bytes of copies, without an arrival."""
        issue("mbarrier.expect_tx.relaxed.cta.shared::cta.b64", _barrier(bar), bytes, pred=pred)

    def arrive_remote(
        self, bar: SharedAddress, cta: int | Register, pred: Predicate | None = None, *, relaxed: bool = False
    ) -> None:
        """Arrive on the same barrier of another CTA of the cluster: mapa, then mbarrier.arrive.shared::cluster.b64.

        Release at cluster scope is a memory barrier for the whole GPU on sm_90. `relaxed` omits it, for arrivals after
        which no thread has to see earlier writes. PTX ISA 9.7.13.15.13. `cta` is the rank in the cluster.
        """
        remote = cluster.map_shared(_barrier(bar), cta)
        order = "relaxed" if relaxed else "release"
        issue(f"mbarrier.arrive.{order}.cluster.shared::cluster.b64", _SINK, remote, pred=pred)

    def try_wait(self, bar: SharedAddress, phase: int | Register | Predicate, *, scope: str = "cta") -> Predicate:
        """mbarrier.try_wait.parity.shared::cta.b64: true if the phase of that parity has completed; may suspend.

        Targets before sm_90 get mbarrier.test_wait.parity, which never suspends. `scope` "cluster" acquires what other
        CTAs of the cluster wrote before they arrived (.acquire.cluster).
        """
        trace = Trace.current()
        done = Predicate(trace)
        word = "try_wait" if isa_arch.get(trace.arch).number >= 90 else "test_wait"
        order = "" if scope == "cta" else f".acquire.{scope}"
        issue(f"mbarrier.{word}.parity{order}.shared::cta.b64", done, _barrier(bar), _phase(phase))
        return done

    def wait(self, bar: SharedAddress, phase: int | Register | Predicate, *, scope: str = "cta") -> None:
        """Wait until the phase of that parity has completed: `try_wait` in a loop (acquire at `scope`)."""
        trace = Trace.current()
        (again,) = trace.new_labels("wait", "")
        phase = _phase(phase)
        trace.place(again)
        done = self.try_wait(bar, phase, scope=scope)
        trace.branch(again, nodes.Guard(done.name, negated=True))


class NamedBarrier:
    """`ptx.bar`: the 16 barriers of a CTA (PTX ISA 9.7.13.1)."""

    def sync(self, barrier: int | Register = 0, threads: int | Register | None = None) -> None:
        """bar.sync: wait until all threads of the CTA, or `threads` of them (a multiple of 32), have arrived."""
        self._issue("bar.sync", barrier, threads)

    def arrive(self, barrier: int | Register, threads: int | Register) -> None:
        """bar.arrive: arrive without waiting; `threads` includes the threads that wait."""
        self._issue("bar.arrive", barrier, threads)

    def _issue(self, opcode: str, barrier: int | Register, threads: int | Register | None) -> None:
        trace = Trace.current()
        if isinstance(barrier, int) and not 0 <= barrier < 16:
            raise trace.error("a CTA has 16 named barriers", expected="0 to 15", got=barrier)
        if isinstance(threads, int) and (threads < 32 or threads % 32):
            raise trace.error("the thread count of a barrier is a multiple of 32", got=threads)
        extra = () if threads is None else (threads,)
        issue(opcode, barrier, *extra)


_EVEN = 0xFEFFFFFF


class Cluster:
    """`ptx.cluster`: the barrier of a cluster and the shared memory of its other CTAs (PTX ISA 9.7.13.3, 9.7.9.23)."""

    def arrive(self, *, relaxed: bool = False) -> None:
        """barrier.cluster.arrive.aligned, with release semantics unless `relaxed`."""
        issue(f"barrier.cluster.arrive{'.relaxed' if relaxed else '.release'}.aligned")

    def wait(self) -> None:
        """barrier.cluster.wait.acquire.aligned."""
        issue("barrier.cluster.wait.acquire.aligned")

    def sync(self) -> None:
        """`arrive` and `wait`: synchronise all threads of all CTAs of the cluster."""
        self.arrive()
        self.wait()

    def map_shared(self, address: SharedAddress | Register, cta: int | Register) -> SharedAddress:
        """mapa.shared::cluster.u32: the address of the same location in another CTA of the cluster."""
        trace = Trace.current()
        result = Register(trace, dtypes.u32)
        local = address.register() if isinstance(address, SharedAddress) else address
        issue("mapa.shared::cluster.u32", result, local, cta)
        if isinstance(address, BarrierAddress):
            return BarrierAddress(trace, 0, result, address.buffer, address.index)
        return SharedAddress(trace, 0, result)

    def leader_of(self, address: SharedAddress) -> SharedAddress:
        """The same location in the even CTA of the pair (and.b32: bit 24 of a shared address is the rank's lowest
        bit)."""
        trace = Trace.current()
        result = Register(trace, dtypes.u32)
        issue("and.b32", result, address.register(), _EVEN)
        if isinstance(address, BarrierAddress):
            return BarrierAddress(trace, 0, result, address.buffer, address.index)
        return SharedAddress(trace, 0, result)


class Fence:
    """`ptx.fence`: memory order, and order between the generic and the async proxy (PTX ISA 9.7.13.4)."""

    def proxy_async_shared_cta(self) -> None:
        """fence.proxy.async.shared::cta: make this thread's writes to shared memory visible to TMA and MMAs."""
        issue("fence.proxy.async.shared::cta")

    def proxy_async(self) -> None:
        """fence.proxy.async: the same for all memory."""
        issue("fence.proxy.async")

    def proxy_async_global(self) -> None:
        """fence.proxy.async.global: the same for global memory."""
        issue("fence.proxy.async.global")

    def mbarrier_init(self) -> None:
        """fence.mbarrier_init.release.cluster: order this thread's mbarrier.init before a following cluster barrier."""
        issue("fence.mbarrier_init.release.cluster")

    def acq_rel(self, scope: str = "gpu") -> None:
        """fence.acq_rel.<scope>; scope: cta, cluster, gpu or sys."""
        issue(f"fence.acq_rel.{scope}")


class SetMaxNReg:
    """`ptx.setmaxnreg`: move registers between warpgroups (PTX ISA 9.7.19.5)."""

    def inc(self, registers: int) -> None:
        """setmaxnreg.inc.sync.aligned.u32: raise the registers per thread to `registers`; waits until they are free."""
        self._issue("inc", registers)

    def dec(self, registers: int) -> None:
        """setmaxnreg.dec.sync.aligned.u32: lower the registers per thread to `registers`."""
        self._issue("dec", registers)

    def _issue(self, action: str, registers: int) -> None:
        trace = Trace.current()
        if not isinstance(registers, int) or not 24 <= registers <= 256 or registers % 8:
            raise trace.error("setmaxnreg takes a multiple of 8 from 24 to 256", got=registers)
        issue(f"setmaxnreg.{action}.sync.aligned.u32", registers)


class GridDependency:
    """`ptx.griddepcontrol`: programmatic dependent launch (PTX ISA 9.7.13.13)."""

    def wait(self) -> None:
        """griddepcontrol.wait: wait until the prerequisite grids have completed and their writes are visible."""
        issue("griddepcontrol.wait")

    def launch_dependents(self) -> None:
        """griddepcontrol.launch_dependents: the next grid may start its CTAs."""
        issue("griddepcontrol.launch_dependents")


mbarrier, bar, cluster, fence = MBarrier(), NamedBarrier(), Cluster(), Fence()
setmaxnreg, griddepcontrol = SetMaxNReg(), GridDependency()
