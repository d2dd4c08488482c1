#include "more.cuh"
//@ grid=[2,1,1];block=[288,1,1]
//@ a bf16 128,384 normal box=64,64 swizzle=128B
//@ w s8 6,32,64 arange
//@ c f32 128,32 zeros
//@? c = a @ w.astype(np.float64).transpose(1,0,2).reshape(32,384).T ;0.5
// mixed input: a warp loads bf16 by TMA and int8 by bulk copies, a warpgroup converts the int8 for another that multiplies
K __launch_bounds__(288, 1) mixed(const __grid_constant__ Map a, const signed char* w, float* c) {
  __shared__ alignas(1024) bf sA[4][64 * 64]; __shared__ alignas(1024) bf sB[2][32 * 64]; __shared__ alignas(128) signed char raw[2][2048];
  __shared__ u64 fullA[4], fullW[2], fullB[2], emptyA[4], emptyW[2], emptyB[2]; const int N = 6;
  int t = threadIdx.x, g = t / 128, u = t % 128;
  if (t == 0) { for (int i = 0; i < 4; ++i) { mb_init(&fullA[i], 1); mb_init(&emptyA[i], 1); }
    for (int i = 0; i < 2; ++i) { mb_init(&fullW[i], 1); mb_init(&fullB[i], E(1, 128, 96)); mb_init(&emptyW[i], 128); mb_init(&emptyB[i], 1); } mb_fence(); }
  __syncthreads();
  if (g == 2) {
    if (elect()) for (int n = 0; n < N; ++n) { int s = n & 1, p = n >> 1 & 1;
      int h = n & 3; mb_wait(&emptyA[h], n >> 2 & 1 ^ 1); mb_expect(&fullA[h], 8192); tma2(sA[h], &a, n * 64, blockIdx.x * 64, &fullA[h]);
      B(2, mb_wait(&emptyW[s], p ^ 1), ); mb_expect(&fullW[s], 2048); bulk_load(raw[s], w + n * 2048, 2048, &fullW[s]); }
  } else if (g == 1) {
    for (int n = 0; n < N; ++n) { int s = n & 1, p = n >> 1 & 1, r = u / 4, q = u % 4;
      B(3, mb_wait(&fullW[s], p), mb_wait(&fullW[s], p ^ 1));
      if (BUG == 4) mb_arrive(&emptyW[s]);
      char4 v[4]; for (int i = 0; i < 4; ++i) v[i] = *(char4*)(raw[s] + r * 64 + q * 16 + i * 4);
      if (BUG != 4) mb_arrive(&emptyW[s]);
      B(5, mb_wait(&emptyB[s], p ^ 1), if (u < 64) mb_wait(&emptyB[s], p ^ 1));
      for (int i = 0; i < 4; ++i) { int byte = q * 32 + i * 8; u32* to = (u32*)((char*)sB[s] + r * 128 + ((byte & ~15) ^ E(6, r % 8 * 16, 0)) + (byte & 15));
        to[0] = pack(v[i].x, v[i].y); to[1] = pack(v[i].z, v[i].w); }
      if (BUG == 7) { mb_arrive(&fullB[s]); fence_async(); }
      else { B(8, fence_async(), if (u % 32 == 0) fence_async()); mb_arrive(&fullB[s]); } }
  } else {
    float d[16];
    for (int n = 0; n < N; ++n) { int s = n & 1, p = n >> 1 & 1;
      int h = n & 3; B(9, mb_wait(&fullA[h], n >> 2 & 1), ); B(10, mb_wait(&fullB[s], p), if (u == 0) mb_wait(&fullB[s], p));
      wg_fence();
      for (int j = 0; j < 4; ++j) wg_n32_ss(d, desc128(sA[h]) + j * 2, desc128(sB[s]) + j * 2, n + j > 0);
      wg_commit(); wg_wait<0>();
      if (u == 0) { mb_arrive(&emptyA[h]); B(11, mb_arrive(&emptyB[s]), mb_arrive(&emptyB[s ^ 1])); } }
    int wp = u / 32, l = u % 32, r = blockIdx.x * 64 + wp * 16 + l / 4, q = l % 4 * 2;
    for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) c[(r + i / 2 * 8) * 32 + j * 8 + q + (i & 1)] = d[j * 4 + i];
  }
}
//! 1 the phase completes with a quarter of B not converted
//! 2 raw bytes are overwritten while threads read them
//! 3 raw bytes are read before the copy is there
//! 4 raw bytes are released before they are read
//! 5 half of the warpgroup writes B while wgmma may read it
//! 6 B is written in another layout than the descriptor's
//! 7 the fence comes after the signal
//! 8 a thread's fence covers its own writes only
//! 9 A is not waited for
//! 10 three warps start wgmma without having waited
//! 11 the other buffer is released
