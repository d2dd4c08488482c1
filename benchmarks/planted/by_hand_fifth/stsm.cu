#include "more.cuh"
//@ grid=[1,1,1];block=[128,1,1]
//@ a bf16 256,64 normal box=64,64 swizzle=128B
//@ b bf16 32,64 normal box=64,32 swizzle=128B
//@ c bf16 256,32 zeros box=32,64
//@? c = a @ b.T ;8e-2
// four tiles in a row: wgmma, stmatrix into two staging buffers, TMA stores; the next tile's load runs under the epilogue
K __launch_bounds__(128) stsm(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c) {
  __shared__ alignas(1024) bf sA[64 * 64]; __shared__ alignas(1024) bf sB[32 * 64]; __shared__ alignas(128) bf out[2][64 * 32]; __shared__ u64 full;
  int t = threadIdx.x, w = t / 32, l = t % 32; const int N = 4;
  if (t == 0) { mb_init(&full, 1); mb_fence(); mb_expect(&full, 8192 + 4096); tma2(sA, &a, 0, 0, &full); tma2(sB, &b, 0, 0, &full); }
  B(1, __syncthreads(), );
  for (int n = 0; n < N; ++n) { float d[16];
    B(2, mb_wait(&full, n & 1), mb_wait(&full, 0));
    B(3, wg_fence(), if (n) wg_fence());
    for (int j = 0; j < 4; ++j) wg_n32_ss(d, desc128(sA) + j * 2, desc128(sB) + j * 2, j > 0);
    wg_commit(); B(4, wg_wait<0>(), if (w) wg_wait<0>());
    if (t == 0) B(5, bulk_wait_read<1>(), );
    B(6, __syncthreads(), );
    if (t == 0 && n + 1 < N) { mb_expect(&full, 8192); tma2(sA, &a, 0, (n + E(7, 1, 0)) * 64, &full); }
    bf* to = out[E(8, n & 1, 0)];
    for (int h = 0; h < 2; ++h) stsm4(to + (w * 16 + (l & 15)) * 32 + h * 16 + E(9, l >> 4, 1 - (l >> 4)) * 8,
      pack(d[h * 8], d[h * 8 + 1]), pack(d[h * 8 + 2], d[h * 8 + 3]), pack(d[h * 8 + 4], d[h * 8 + 5]), pack(d[h * 8 + 6], d[h * 8 + 7]));
    B(10, fence_async(), asm volatile("fence.proxy.async.global;" ::: M));
    B(11, __syncthreads(), __syncwarp());
    if (t == E(12, 0, n & 1)) { tma2_store(&c, to, 0, n * 64); bulk_commit(); } }
  if (t == 0) B(13, bulk_wait<0>(), );
}
//! 1 other threads wait on a barrier whose initialisation they may not see
//! 2 tile 1 and 3 do not wait for their load
//! 3 the first tile's accumulators without wgmma.fence (they are not read: scale-d is 0)
//! 4 warp 0 stores accumulators in flight
//! 5 the buffer is overwritten while TMA reads it
//! 6 other warps' wgmma may still read A; the wait of thread 0 is not passed on
//! 7 the same tile again
//! 8 one buffer for all: overwritten while TMA reads it
//! 9 halves swapped
//! 10 a fence for the other memory
//! 11 other warps' part of the tile may not be written
//! 12 the wait of thread 0 does not cover thread 1's stores
//! 13 the CTA ends while TMA may read its shared memory
