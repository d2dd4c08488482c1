"""Launch overheads: between kernels, with and without programmatic dependent launch, and between CTAs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warploom.isa.dtypes import u32
from warploom.lang import Kernel, Tile, kernel, ptx, smem

SMS = 132


@dataclass(frozen=True)
class Launch:
    """A kernel launched many times from one CUDA graph; a row has microseconds per launch.

    elements, written: sizes of its input and of its output; by default a few words.
    apart: bytes between the arrays of successive launches; 0: all launches have the same.
    """

    name: str
    build: Callable[[], Kernel]
    of: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    elements: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    apart: int = 0


def empty(name: str, ctas: int, threads: int, shared: int, *, cluster: int = 1, pdl: str = "", spin: int = 0) -> Kernel:
    """CTAs that exit at once, or after `spin` clocks. pdl: "early" lets the next grid start at once."""

    @kernel(
        in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(ctas, 1, 1), block=threads,
        cluster=(cluster, 1, 1), arch="sm_90a", pdl=bool(pdl), name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        if shared:
            smem.array(u32, shared // 4, align=128, name="occupied")
        if pdl == "early":
            ptx.griddepcontrol.launch_dependents()
        if pdl:
            ptx.griddepcontrol.wait()
        if spin:
            start = ptx.special.clock64()
            with ptx.while_(lambda: ptx.special.clock64() - start < spin):
                pass
        (pointer,) = ptx.global_ptrs(out)
        with ptx.if_((ptx.special.ctaid.x() + ptx.special.tid.x()) == 0):
            ptx.store(ptx.addr(pointer), ptx.special.tid.x())

    return program


def _launch(name: str, of: str, **shape: Any) -> Launch:
    return Launch(name, lambda: empty(name, **shape), of, shape)


def launches() -> Iterator[Launch]:
    whole = {"threads": 384, "shared": 200 << 10}
    yield _launch("launch.one_cta", "a kernel of one CTA in a graph", ctas=1, threads=32, shared=0)
    yield _launch("launch.one_wave", "a CTA of 384 threads and 200 KiB on each SM", ctas=SMS, **whole)
    yield _launch("launch.one_wave.cluster2", "the same in clusters of two", ctas=SMS, cluster=2, **whole)
    for waves in (2, 4, 8):
        yield _launch(f"launch.waves{waves}", f"{waves} such CTAs on each SM in turn", ctas=waves * SMS, **whole)
    yield _launch("launch.waves8.small", "eight CTAs of 128 threads on each SM at a time, 8 waves", ctas=64 * SMS,
                  threads=128, shared=24 << 10)  # fmt: skip
    for threads in (32, 256, 1024):
        yield _launch(f"launch.rate.threads{threads}", "CTAs that end at once, 256 for each SM", ctas=256 * SMS,
                      threads=threads, shared=0)  # fmt: skip
    yield _launch("launch.rate.cluster4", "the same in clusters of four", ctas=256 * SMS, threads=256, shared=0,
                  cluster=4)  # fmt: skip
    yield _launch("launch.spin", "a CTA on each SM that spins for 5000 clocks", ctas=SMS, spin=5000, **whole)
    yield _launch("launch.spin2", "the same twice as long", ctas=SMS, spin=10000, **whole)
    yield _launch("launch.pdl.early", "spinning, the next grid may begin at once", ctas=SMS, spin=5000, pdl="early",
                  threads=384, shared=100 << 10)  # fmt: skip
    yield _launch("launch.pdl.late", "spinning, the next grid begins at the end", ctas=SMS, spin=5000, pdl="late",
                  **whole)  # fmt: skip
    yield _launch("launch.serial.half", "spinning, half of the shared memory", ctas=SMS, spin=5000, threads=384,
                  shared=100 << 10)  # fmt: skip
