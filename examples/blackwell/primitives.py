"""Blackwell's primitives in isolation: numbered tiny kernels, each with what it must give.

    python examples/blackwell/primitives.py          runs them in the emulator, with the sanitizer
    pytest -m blackwell                              runs them on a GPU of sm_100, against the emulator bit for bit

None was run on hardware by the authors. Whoever has a B200 can turn that into a fact: send the report of pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom import Tile, kernel, ptx, reg, smem, tmem
from warploom.types import b32, bf16, f32, u8, u32, u64

THREADS, COLUMNS = 128, 32
ONE = 0x3F803F80
"""Two ones, bf16."""


@dataclass(frozen=True)
class Primitive:
    """A kernel without inputs, and its output: (128, n), row t by thread t."""

    name: str
    kernel: Any
    expected: np.ndarray


def _kernel(columns: int, dtype: Any, cluster: int = 1) -> Callable[[Callable[..., None]], Any]:
    """A kernel of one cluster; `body(put)` calls put(index, register) for column `index` of the thread's row."""

    def decorate(body: Callable[..., None]) -> Any:
        @kernel(
            out_specs=(Tile(THREADS * cluster, columns, dtype),), grid=(cluster, 1, 1), block=THREADS,
            cluster=(cluster, 1, 1), arch="sm_100a", name=body.__name__,
        )  # fmt: skip
        def made(out):
            row = ptx.special.ctaid.x() * THREADS + ptx.special.tid.x()
            start = out.pointer() + row.to(u64) * (columns * 4)
            body(lambda index, value: ptx.store(ptx.addr(start, 4 * index), value))

        return made

    return decorate


def _first() -> Any:
    return ptx.special.tid.x() == 0


def _barrier() -> Any:
    """An mbarrier of one arrival, initialised; the allocation behind it brings the CTA together."""
    done = smem.mbarrier(1, name="done")
    with ptx.if_(_first()):
        ptx.mbarrier.init(done[0], 1)
        ptx.fence.mbarrier_init()
    return done


def _ones(rows: int = THREADS) -> Any:
    """A tile of ones, rows x 64 bf16, written by threads and handed to the matrix unit."""
    tile = smem.umma_tile(bf16, (rows, 64), name="ones")
    word = reg.scalar(b32, init=ONE)
    with ptx.if_(ptx.special.tid.x() < rows):
        place = tile[0] + ptx.special.tid.x() * 128
        for piece in range(8):
            ptx.store(place + 16 * piece, [word] * 4)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    return tile


def p01_store_and_load(put):
    """Registers to tensor memory and back: each thread finds its own row."""
    memory = tmem.alloc(COLUMNS)
    cells = memory.accumulator(128, COLUMNS, f32)
    row = ptx.special.tid.x()
    cells[0].store([(row * 100 + column).to(f32) for column in range(8)])
    ptx.tcgen05.wait_st()
    fragment = cells[0].load(0, 8)
    ptx.tcgen05.wait_ld()
    for index, value in enumerate(fragment.registers):
        put(index, value)
    memory.dealloc()


def _multiply(put, products, columns=COLUMNS, commits=1):
    """`products` slices of 16 ones, one behind the other, on one accumulator."""
    done = _barrier()
    a, b = _ones(), _ones(columns)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, columns)
    with ptx.if_(_first()):
        for number in range(products):
            ptx.tcgen05.mma(acc[0], a[0].k(number % 4), b[0].k(number % 4), accumulate=number > 0)
        ptx.tcgen05.commit(done[0])
    ptx.mbarrier.wait(done[0], 0)
    ptx.tcgen05.fence_after_thread_sync()
    fragment = acc[0].load(0, 8)
    ptx.tcgen05.wait_ld()
    for index, value in enumerate(fragment.registers):
        put(index, value)
    memory.dealloc()


def p02_one_product(put):
    """128 x 32 x 16 ones: 16 everywhere."""
    _multiply(put, 1)


def p03_four_products(put):
    """Four products, one commit: 64."""
    _multiply(put, 4)


def p04_sixteen_products(put):
    """Sixteen products on one accumulator, in the order of issue: 256."""
    _multiply(put, 16)


def p05_copy_to_all_quarters(put):
    """tcgen05.cp 32x128b.warpx4: 32 rows of 16 bytes stand in each of the four quarters."""
    done = _barrier()
    atom = smem.umma_tile(u8, (32, 16), swizzle="NONE", name="atom")
    with ptx.if_(ptx.special.tid.x() < 32):
        words = [ptx.special.tid.x() * 4 + word for word in range(4)]
        ptx.store(atom[0] + ptx.special.tid.x() * 16, words)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    memory = tmem.alloc(COLUMNS)
    cells = memory.tile(4)
    with ptx.if_(_first()):
        ptx.tcgen05.cp(cells[0], atom[0])
        ptx.tcgen05.commit(done[0])
    ptx.mbarrier.wait(done[0], 0)
    ptx.tcgen05.fence_after_thread_sync()
    found = ptx.tcgen05.ld(cells[0], 4, dtype=u32)
    ptx.tcgen05.wait_ld()
    for index, value in enumerate(found):
        put(index, value)
    memory.dealloc()


def p06_pair(put):
    """A pair of CTAs: 256 x 32 x 16 ones, half of A and of B in each: 16 in both."""
    done = _barrier()
    a, b = _ones(), _ones(16)
    memory = tmem.alloc(COLUMNS, group=2)
    acc = memory.accumulator(256, 32)
    leads = ptx.special.cluster_ctarank() == 0
    with ptx.if_(_first() & leads):
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False)
        ptx.tcgen05.commit(done[0], group=2, multicast=3)
    ptx.mbarrier.wait(done[0], 0)
    ptx.tcgen05.fence_after_thread_sync()
    fragment = acc[0].load(0, 8)
    ptx.tcgen05.wait_ld()
    for index, value in enumerate(fragment.registers):
        put(index, value)
    memory.dealloc()


def _constant(value: float, rows: int = THREADS) -> np.ndarray:
    return np.full((rows, 8), value, np.float32)


_ROW = np.arange(THREADS)[:, None]
PRIMITIVES = (
    Primitive("01 store and load", _kernel(8, f32)(p01_store_and_load), (_ROW * 100 + np.arange(8)).astype(np.float32)),
    Primitive("02 one product", _kernel(8, f32)(p02_one_product), _constant(16)),
    Primitive("03 four products", _kernel(8, f32)(p03_four_products), _constant(64)),
    Primitive("04 sixteen products", _kernel(8, f32)(p04_sixteen_products), _constant(256)),
    Primitive(
        "05 copy to all quarters", _kernel(4, u32)(p05_copy_to_all_quarters),
        (_ROW % 32 * 4 + np.arange(4)).astype(np.uint32),
    ),
    Primitive("06 pair", _kernel(8, f32, cluster=2)(p06_pair), _constant(16, 2 * THREADS)),
)  # fmt: skip


def main() -> None:
    for primitive in PRIMITIVES:
        report = primitive.kernel.emulate(out=np.zeros_like(primitive.expected))
        right = np.array_equal(report.outputs[-1], primitive.expected)
        found = [finding.rule for finding in report.findings if finding.severity != "performance"]
        print(f"{primitive.name:24} {'right' if right else 'WRONG'}, found: {', '.join(found) or 'nothing'}")


if __name__ == "__main__":
    main()
