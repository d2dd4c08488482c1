#include "more.cuh"
//@ grid=[3,1,1];block=[64,1,1];calls=2
//@ x f32 8,128 normal
//@ y f32 8,128 zeros
//@ next u32 2 zeros
//@? y = x[:, ::-1] * 3 ;1e-5
//@? next = np.zeros(2)
// persistent CTAs take tiles from a counter; the next tile is loaded while this one is worked on; the last CTA sets the counters back
K tiles(const float* x, float* y, u32* next) {
  __shared__ alignas(128) float in[2][128]; __shared__ u64 full[2]; __shared__ u32 tile[2]; u32 t = threadIdx.x, last = 0;
  if (t == 0) { mb_init(&full[0], 1); mb_init(&full[1], 1); mb_fence(); }
  auto fetch = [&](int k) { if (t == 0) { u32 n = tile[k] = E(1, atomicAdd(next, 1), (*(volatile u32*)next)++); if (n < 8) { mb_expect(&full[k], 512); bulk_load(in[k], x + n * 128, 512, &full[k]); } } };
  fetch(0); B(2, __syncthreads(), );
  for (int i = 0;; ++i) { int k = i & 1; u32 n = tile[k];
    if (n >= 8) break;
    B(3, fetch(k ^ 1), fetch(k));
    B(4, mb_wait(&full[k], i >> 1 & 1), if (i) mb_wait(&full[k], i >> 1 & 1));
    for (int j = t; j < 128; j += 64) y[n * 128 + j] = in[k][E(5, 127, 128) - j] * 3;
    B(6, __syncthreads(), __syncwarp()); }
  if (t == 0) { B(9, __threadfence(), ); last = atomicAdd(next + 1, 1);
    if (last == E(7, 2, 1)) { B(10, __threadfence(), ); next[1] = 0; B(8, next[0] = 0, ); } }
}
//! 1 two CTAs may take one tile
//! 2 threads read the tile's number before it is stored
//! 3 the tile that is being read is loaded again
//! 4 the first tile is not waited for
//! 5 off by one
//! 6 thread 0 overwrites number and tile while warp 1 reads them
//! 7 the counters are set back while a CTA still takes tiles
//! 9 nothing releases the CTA's additions before the counter is set to zero by a plain store
//! 10 nothing acquires them
//! 8 the second launch finds no tiles
