#include "common.cuh"
//@ grid=[2,1,1];block=[256,1,1]
//@ a bf16 128,512 normal box=64,64 swizzle=128B
//@ b bf16 32,512 normal box=64,32 swizzle=128B
//@ c f32 128,32 zeros
//@? c = a @ b.T ;3e-2
struct alignas(64) Map { char x[128]; };
K __launch_bounds__(256) wgring(const __grid_constant__ Map a, const __grid_constant__ Map b, float* c) {
  __shared__ alignas(1024) bf sA[2][64 * 64]; __shared__ alignas(1024) bf sB[2][32 * 64]; __shared__ u64 full[2], empty[2];
  int t = threadIdx.x, m0 = blockIdx.x * 64; const int NK = 8;
  if (t == 0) { for (int i = 0; i < 2; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], E(1, 4, 3)); } B(2, mb_fence(), ); }
  __syncthreads();
  if (t >= 128) {
    if (t == 128) for (int k = 0; k < NK; ++k) { int s = k & 1;
      B(3, mb_wait(&empty[s], ((k >> 1) & 1) ^ 1), mb_wait(&empty[s], (k & 1) ^ 1));
      B(4, mb_expect(&full[s], 8192 + 4096), mb_expect(&full[s], 8192));
      tma2(sA[s], &a, k * 64, m0, &full[s]); tma2(E(5, sB[s], sB[0]), &b, k * 64, 0, &full[s]); }
  } else {
    float d[16]; 
    for (int k = 0; k < NK; ++k) { int s = k & 1;
      B(6, mb_wait(&full[s], (k >> 1) & 1), if (k != 7) mb_wait(&full[s], (k >> 1) & 1));
      wg_fence();
      for (int j = 0; j < 4; ++j) wg_n32_ss(d, desc128(sA[s]) + j * 2, desc128(sB[s]) + j * 2, E(7, k + j > 0, k > 0));
      wg_commit();
      B(8, wg_wait<0>(), if (k == NK - 1) wg_wait<0>());
      B(9, if (t % 32 == 0) mb_arrive(&empty[s]), if (t % 32 == 0 && t) mb_arrive(&empty[s]); if (t == 96 && k < 2) mb_arrive(&empty[s]));
    }
    int w = t / 32, l = t % 32, r = m0 + w * 16 + l / 4, q = (l % 4) * 2;
    for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) c[(r + (i / 2) * 8) * 32 + j * 8 + q + (i & 1)] = d[j * 4 + i];
  }
}
