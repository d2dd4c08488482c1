"""Blackwell's primitives in isolation: numbered tiny kernels, each with its expected result.

    python examples/blackwell/primitives.py          runs them in the emulator, with the sanitizer
    python examples/blackwell/moving_primitives.py   and those of the other three files: all 47
    python examples/blackwell/check.py               runs all on a GPU of sm_100, and writes a report to send back

The authors have not run them on hardware. If you have a B200, please do.
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
    """A kernel without inputs, and its output: (128, n), row t from thread t."""

    name: str
    kernel: Any
    expected: np.ndarray

    def __post_init__(self) -> None:
        dtype = np.uint32 if self.expected.dtype == np.uint32 else np.float32
        object.__setattr__(self, "expected", self.expected.astype(dtype))


def _kernel(
    columns: int, dtype: Any, cluster: int = 1, *, arch: str = "sm_100a", box: tuple[int, int] | None = None
) -> Callable[[Callable[..., None]], Any]:
    """A kernel of one cluster; `body(put)` calls put(index, register) for column `index` of the thread's row.

    With a box, `body(put, map)` also gets a tensor map of the output, with boxes of that shape, innermost first.
    """

    def decorate(body: Callable[..., None]) -> Any:
        @kernel(
            out_specs=(Tile(THREADS * cluster, columns, dtype, box=box),), grid=(cluster, 1, 1), block=THREADS,
            cluster=(cluster, 1, 1), arch=arch, name=body.__name__,
        )  # fmt: skip
        def made(out):
            row = ptx.special.ctaid.x() * THREADS + ptx.special.tid.x()
            start = out.pointer() + row.to(u64) * (columns * 4)
            maps = (out.tma_desc(),) if box else ()
            body(lambda index, value: ptx.store(ptx.addr(start, 4 * index), value), *maps)

        return made

    return decorate


def _first() -> Any:
    return ptx.special.tid.x() == 0


def _barrier() -> Any:
    """An mbarrier with one arrival, initialised; the allocation that follows synchronises the CTA."""
    done = smem.mbarrier(1, name="done")
    with ptx.if_(_first()):
        ptx.mbarrier.init(done[0], 1)
        ptx.fence.mbarrier_init()
    return done


def _ones(rows: int = THREADS) -> Any:
    """A tile of ones, rows x 64 bf16, written by threads and passed to the matrix unit."""
    tile = smem.umma_tile(bf16, (rows, 64), name="ones")
    word = reg.scalar(b32, init=ONE)
    with ptx.if_(ptx.special.tid.x() < rows):
        place = tile[0] + ptx.special.tid.x() * 128
        for piece in range(8):
            ptx.store(place + 16 * piece, [word] * 4)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    return tile


def _tile(name: str, rows: int, element: Callable[[Any, int], Any]) -> Any:
    """A tile rows x 64 bf16 of element(row, k), f32; each thread writes its row in the 128-byte swizzle."""
    tile = smem.umma_tile(bf16, (rows, 64), name=name)
    row = ptx.special.tid.x()
    with ptx.if_(row < rows):
        place = tile[0] + row * 128
        for piece in range(8):
            words = []
            for pair in range(4):
                word = reg.scalar(b32)
                low, high = (element(row, 8 * piece + 2 * pair + odd) for odd in range(2))
                ptx.inst.cvt.rn.bf16x2.f32(word, high, low)
                words.append(word)
            ptx.store(place + (((row & 7) ^ piece) << 4), words)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    return tile


def _number(value: float) -> Any:
    return reg.scalar(f32, init=value)


def _wait(done: Any, phase: int = 0) -> None:
    ptx.mbarrier.wait(done[0], phase)
    ptx.tcgen05.fence_after_thread_sync()


def _put_all(put: Any, registers: Any, first: int = 0) -> None:
    for index, value in enumerate(registers):
        put(first + index, value)


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
    """`products` slices of 16 ones, one after the other, into one accumulator."""
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
    """Sixteen products into one accumulator, in the order of issue: 256."""
    _multiply(put, 16)


def p05_copy_to_all_quarters(put):
    """tcgen05.cp 32x128b.warpx4: each of the four quarters gets 32 rows of 16 bytes."""
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
    found = ptx.tcgen05.ld(cells[0].mine(), 4, dtype=u32)
    ptx.tcgen05.wait_ld()
    for index, value in enumerate(found):
        put(index, value)
    memory.dealloc()


def p06_pair(put):
    """A pair of CTAs: 256 x 32 x 16 ones, half of A and of B in each CTA: 16 in both."""
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


def p07_two_allocations(put):
    """Allocate 32 columns, then 64: the second allocation begins where the first ends, whoever else is on the SM."""
    first = tmem.alloc(32, relinquish=False)
    second = tmem.reserve(32, name="second")
    with ptx.if_(ptx.special.tid.x() >> 5 == 0):
        second.alloc()
    ptx.bar.sync(0)
    second.open()
    cells = [memory.accumulator(128, 32) for memory in (first, second)]
    for number, acc in enumerate(cells):
        acc[0].store([_number(number + 1.0)])
    ptx.tcgen05.wait_st()
    found = [acc[0].load(0, 1).registers[0] for acc in cells]
    ptx.tcgen05.wait_ld()
    _put_all(put, found)
    second.dealloc()
    with ptx.if_(ptx.special.tid.x() >> 5 == 0):
        first.dealloc(warp=None)


def p08_replace(put):
    """Two products; the second does not accumulate: 16."""
    done = _barrier()
    a, b = _ones(), _ones(COLUMNS)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, COLUMNS)
    with ptx.if_(_first()):
        for number in range(2):
            ptx.tcgen05.mma(acc[0], a[0].k(number), b[0].k(number), accumulate=False)
        ptx.tcgen05.commit(done[0])
    _wait(done)
    found = acc[0].load(0, 8).registers
    ptx.tcgen05.wait_ld()
    _put_all(put, found)
    memory.dealloc()


def p09_two_commits(put):
    """Four products in two commits: a commit covers the products before it, 32 and then 64."""
    done = _barrier()
    a, b = _ones(), _ones(COLUMNS)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, COLUMNS)
    for half in range(2):
        with ptx.if_(_first()):
            for number in (2 * half, 2 * half + 1):
                ptx.tcgen05.mma(acc[0], a[0].k(number), b[0].k(number), accumulate=number > 0)
            ptx.tcgen05.commit(done[0])
        _wait(done, half)
        found = acc[0].load(0, 4).registers
        ptx.tcgen05.wait_ld()
        _put_all(put, found, 4 * half)
        ptx.tcgen05.fence_before_thread_sync()
        ptx.bar.sync(0)
        ptx.tcgen05.fence_after_thread_sync()
    memory.dealloc()


def _identify(put, element_a, element_b, depth):
    """A product of tiles that encode their coordinates; the first 8 columns of each row."""
    done = _barrier()
    a, b = _tile("a", THREADS, element_a), _tile("b", COLUMNS, element_b)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, COLUMNS)
    with ptx.if_(_first()):
        for step in range(depth // 16):
            ptx.tcgen05.mma(acc[0], a[0].k(step), b[0].k(step), accumulate=step > 0)
        ptx.tcgen05.commit(done[0])
    _wait(done)
    found = acc[0].load(0, 8).registers
    ptx.tcgen05.wait_ld()
    _put_all(put, found)
    memory.dealloc()


def p10_rows_and_columns(put):
    """A has (row, 1, 0 ...), B (1, column, 0 ...): row + column."""

    def of_a(row, k):
        return row.to(f32) if k == 0 else _number(float(k == 1))

    def of_b(row, k):
        return row.to(f32) if k == 1 else _number(float(k == 0))

    _identify(put, of_a, of_b, 16)


def p11_where_k_is(put):
    """Row m of A has a one at k = m % 64, B has k + 1 at k: 1 to 64, twice. A wrong swizzle or step in k shows."""
    one, zero = _number(1.0), _number(0.0)
    _identify(
        put, lambda row, k: ptx.select((row & 63) == k, one, zero), lambda row, k: _number(k + 1.0), 64
    )  # fmt: skip


def p12_shapes_of_loads(put):
    """The cells 1000 lane + column by .16x64b, .16x128b and .16x256b: which thread gets which."""
    memory = tmem.alloc(COLUMNS)
    cells = memory.tile(COLUMNS)
    lane = ptx.special.tid.x()
    ptx.tcgen05.st(cells[0].mine(), [lane * 1000 + column for column in range(COLUMNS)])
    ptx.tcgen05.wait_st()
    first = 0
    for shape, count in SHAPES:
        found = ptx.tcgen05.ld(cells[0].mine(), count, shape=shape, dtype=u32)
        ptx.tcgen05.wait_ld()
        _put_all(put, found, first)
        first += count
    memory.dealloc()


SHAPES = (("16x64b", 4), ("16x128b", 4), ("16x256b", 8))


def _cells_of_shapes() -> np.ndarray:
    """By PTX ISA 9.7.16.2.3: the cells of thread t of a warp, in the first 16 lanes of its quarter."""
    thread = np.arange(THREADS)
    quarter, t = thread // 32 * 32, thread % 32
    columns = []
    for r in range(4):
        columns.append((quarter + 8 * (t % 2) + t // 4, t // 2 % 2 + 2 * r))
    for r in range(4):
        columns.append((quarter + t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2)))
    for r in range(8):
        columns.append((quarter + t // 4 + 8 * (r // 2 % 2), 2 * (t % 4) + r % 2 + 8 * (r // 4)))
    return np.stack([1000 * lane + column for lane, column in columns], 1).astype(np.uint32)


def p13_a_in_tensor_memory(put):
    """A row of A in each lane, two bf16 per cell: (row, 1, 0 ...) times (1, column, 0 ...) again."""
    _products_of_tensor_memory(put, 1)


def _products_of_tensor_memory(put, products):
    """Products of an A in tensor memory, added up; all but the last move A by a lane (.ashift)."""
    done = _barrier()
    b = _tile("b", COLUMNS, lambda row, k: row.to(f32) if k == 1 else _number(float(k == 0)))
    memory = tmem.alloc(64)
    acc, a = memory.accumulator(128, COLUMNS), memory.matrix_a(16, bf16)
    words = [reg.scalar(b32, init=0) for _ in range(8)]
    ptx.inst.cvt.rn.bf16x2.f32(words[0], _number(1.0), ptx.special.tid.x().to(f32))
    ptx.tcgen05.st(a[0].mine(), words)
    ptx.tcgen05.wait_st()
    ptx.tcgen05.fence_before_thread_sync()
    ptx.bar.sync(0)
    ptx.tcgen05.fence_after_thread_sync()
    with ptx.if_(_first()):
        for product in range(products):
            ptx.tcgen05.mma(acc[0], a[0], b[0].k(0), accumulate=product > 0, ashift=product < products - 1)
        ptx.tcgen05.commit(done[0])
    _wait(done)
    found = acc[0].load(0, 8).registers
    ptx.tcgen05.wait_ld()
    _put_all(put, found)
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
    Primitive("07 two allocations", _kernel(2, f32)(p07_two_allocations), _constant(1)[:, :2] + [[0, 1]]),
    Primitive("08 replace", _kernel(8, f32)(p08_replace), _constant(16)),
    Primitive("09 two commits", _kernel(8, f32)(p09_two_commits), np.repeat(_constant(32)[:, :2] * [[1, 2]], 4, 1)),
    Primitive("10 rows and columns", _kernel(8, f32)(p10_rows_and_columns), _ROW + np.arange(8)),
    Primitive("11 where k is", _kernel(8, f32)(p11_where_k_is), _constant(1) + _ROW % 64),
    Primitive("12 shapes of loads", _kernel(16, u32)(p12_shapes_of_loads), _cells_of_shapes()),
    Primitive("13 A in tensor memory", _kernel(8, f32)(p13_a_in_tensor_memory), _ROW + np.arange(8)),
)  # fmt: skip


def main(chosen: tuple[Primitive, ...] = PRIMITIVES) -> None:
    for primitive in chosen:
        report = primitive.kernel.emulate(out=np.zeros_like(primitive.expected))
        right = np.array_equal(report.outputs[-1], primitive.expected)
        found = [finding.rule for finding in report.findings if finding.severity != "performance"]
        print(f"{primitive.name:24} {'right' if right else 'WRONG'}, found: {', '.join(found) or 'nothing'}")


if __name__ == "__main__":
    main()
