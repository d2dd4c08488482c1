"""Blackwell's primitives, fourth part: an A that moves, a column of pixels along W, a cluster that another takes over.

`PRIMITIVES` also has those of the other three files.
"""

from __future__ import annotations

import layout_primitives
import numpy as np
import primitives
from primitives import THREADS, Primitive, _first, _kernel, _products_of_tensor_memory

from warploom import Tile, kernel, ptx, reg, smem
from warploom.runtime import PixelBox
from warploom.types import b128, f32, u32, u64


def p45_moved_a(put):
    """.ashift moves A by a lane after a product: the second of a chain adds the next row, the third the one after."""
    _products_of_tensor_memory(put, 3)


IMAGES, WIDTH, CHANNELS = 4, 32, 16
FIRST, PIXELS, HALO, OFFSET = 27, 8, 2, 1
"""The copy walks 8 pixels from w = 27 on, into the next image, and 2 of its halo; each is read one further along W."""


@kernel(
    out_specs=(Tile(IMAGES, WIDTH, 2 * CHANNELS, u32, box=(CHANNELS, PIXELS), swizzle="64B",
                    pixels=PixelBox((0,), (0,), "im2col::w")),),
    grid=(1, 1, 1), block=THREADS, arch="sm_100a",
)  # fmt: skip
def p46_pixels_along_w(images):
    """.im2col::w over two images; each thread reads one of the ten pixels into the second half of its own."""
    tile, full = smem.array(u32, (PIXELS + HALO, CHANNELS), align=1024, name="tile"), smem.mbarrier(1, name="full")
    thread, start = ptx.special.tid.x(), images.pointer()
    mine = start + thread.to(u64) * (8 * CHANNELS)
    for channel in range(CHANNELS):
        ptx.store(ptx.addr(mine, 4 * channel), thread * 100 + channel)
    with ptx.if_(_first()):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.mbarrier_init()
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    with ptx.if_(_first()):
        ptx.mbarrier.arrive_expect_tx(full[0], 4 * CHANNELS * (PIXELS + HALO))
        ptx.cp.async_.bulk.im2col(tile[0], images.tma_desc(), (0, FIRST, 0), (HALO, OFFSET), full[0])
    ptx.mbarrier.wait(full[0], 0)
    row = thread % (PIXELS + HALO)
    for piece in range(CHANNELS // 4):
        words = ptx.load(u32, tile[0] + row * (4 * CHANNELS) + ((row >> 1 & 3) ^ piece) * 16, vector=4)
        ptx.store(ptx.addr(mine, 4 * CHANNELS + 16 * piece), words)


def _pixels() -> np.ndarray:
    """The images by their text: pixel w of image n is thread 32 n + w; those past the end of a line are zeros."""
    line = np.arange(IMAGES * WIDTH)[:, None] * 100 + np.arange(CHANNELS)
    walked = [divmod(FIRST + step, WIDTH) for step in range(PIXELS + HALO)]
    read = [line[WIDTH * image + w + OFFSET] if w + OFFSET < WIDTH else 0 * line[0] for image, w in walked]
    copied = np.array(read)[np.arange(THREADS) % (PIXELS + HALO)]
    return np.hstack([line, copied]).reshape(IMAGES, WIDTH, 2 * CHANNELS).astype(np.uint32)


CLUSTERS, CTAS = 24, 8
"""More clusters than a GPU with up to 191 SMs holds at one time: each CTA needs the shared memory of a whole SM."""
WHOLE_SM = 220 * 1024


@kernel(out_specs=(Tile(CLUSTERS + 1, 1, u32),), grid=(CLUSTERS * CTAS, 1, 1), block=32, cluster=(CTAS, 1, 1),
        arch="sm_100a")  # fmt: skip
def p47_a_cluster_taken_over(out):
    """Each cluster counts itself, and those that it takes over, once; the last row says that one was granted."""
    answer, full = smem.array(b128, 1, name="answer"), smem.mbarrier(1, name="full")
    smem.array(u32, WHOLE_SM // 4, name="no room for another CTA")
    start, row = out.pointer(), reg.scalar(u32, init=ptx.special.ctaid.x() // CTAS)
    phase = reg.scalar(u32, init=0)
    with ptx.if_(_first() & (ptx.special.cluster_ctarank() == 0)):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.mbarrier_init()
        with ptx.loop():
            ptx.mbarrier.arrive_expect_tx(full[0], ptx.clusterlaunchcontrol.bytes)
            ptx.clusterlaunchcontrol.try_cancel(answer[0], full[0])
            ptx.inst("red.relaxed.gpu.global.add.u32", ptx.addr(start + row.to(u64) * 4), reg.scalar(u32, init=1))
            ptx.mbarrier.wait(full[0], phase)
            response = ptx.clusterlaunchcontrol.response(answer[0])
            taken = ptx.clusterlaunchcontrol.is_canceled(response)
            ptx.break_(~taken)
            row.set(ptx.clusterlaunchcontrol.first_ctaid(response)[0] // CTAS)
            phase.set(phase ^ 1)
            ptx.fence.proxy_async()  # the next response overwrites this one
            ptx.inst("red.relaxed.gpu.global.max.u32", ptx.addr(start, 4 * CLUSTERS), reg.scalar(u32, init=1))
    ptx.cluster.sync()


_T = np.arange(THREADS)[:, None]
_MOVED = [_T // 32 * 32 + np.minimum(_T % 32 + by, 31) for by in range(3)]
PRIMITIVES = (
    *layout_primitives.PRIMITIVES,
    Primitive("45 moved A", _kernel(8, f32)(p45_moved_a), sum(_MOVED) + 3 * np.arange(8)),
    Primitive("46 pixels along W", p46_pixels_along_w, _pixels()),
    Primitive("47 a cluster taken over", p47_a_cluster_taken_over, np.ones((CLUSTERS + 1, 1), np.uint32)),
)  # fmt: skip


if __name__ == "__main__":
    primitives.main(PRIMITIVES)
