#include "../by_hand/common.cuh"
//@ grid=[1,1,1];block=[384,1,1]
//@ a bf16 128,256 normal box=64,64 swizzle=128B
//@ b bf16 32,256 normal box=64,32 swizzle=128B
//@ c f32 128,32 zeros box=32,64
//@? c = a @ b.T ;3e-2
struct alignas(64) Map { char x[128]; };
// two consumer warpgroups, one stage of B for both; C leaves by TMA
K __launch_bounds__(384) twowg(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c) {
  __shared__ alignas(1024) bf sA[2][128 * 64]; __shared__ alignas(1024) bf sB[2][32 * 64]; __shared__ u64 full[2], empty[2];
  int t = threadIdx.x, g = t / 128, u = t % 128;
  if (t == 0) { for (int i = 0; i < 2; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], E(1, 2, 1)); } mb_fence(); }
  __syncthreads();
  if (g == 2) {
    if (u == 0) for (int k = 0; k < 4; ++k) { int s = k & 1; mb_wait(&empty[s], ((k >> 1) & 1) ^ 1);
      mb_expect(&full[s], 16384 + 4096);
      tma2(sA[s], &a, k * 64, 0, &full[s]); tma2(sA[s] + 64 * 64, &a, k * 64, E(2, 64, 0), &full[s]); tma2(sB[s], &b, E(3, k, 0) * 64, 0, &full[s]); }
    return;
  }
  float d[16];
  for (int k = 0; k < 4; ++k) { int s = k & 1;
    mb_wait(&full[s], (k >> 1) & 1);
    B(4, wg_fence(), );
    for (int j = 0; j < 4; ++j) wg_n32_ss(d, desc128(sA[s] + g * 64 * 64) + j * 2, desc128(sB[s]) + j * 2, k + j > 0);
    wg_commit();
    B(5, wg_wait<0>(), wg_wait<1>());
    if (u == 0) B(6, mb_arrive(&empty[s]), if (g == 0 || k < 2) mb_arrive(&empty[s])); }
  B(7, nb_sync(1, 256), );
  float* out = (float*)(g ? (void*)sA[1] : (void*)sA[0]);
  int w = u / 32, l = u % 32, r = w * 16 + l / 4, q = (l % 4) * 2;
  for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) out[(r + (i / 2) * 8) * 32 + j * 8 + q + (i & 1)] = d[j * 4 + i];
  B(8, fence_async(), );
  B(9, nb_sync(2 + g, 128), nb_sync(2, 128));
  if (u == 0) { tma2_store(&c, out, 0, g * 64); bulk_commit(); bulk_wait_read<0>(); }
}
