#include "common.cuh"
//@ grid=[1,1,1];block=[64,1,1]
//@ x f32 4,2,64 normal
//@ y f32 4,64 zeros
//@? y = x[:,0]+x[:,1] ;1e-5
// four warps' worth of rows, each elected lane copies by itself and waits on the same barrier
K rows(const float* x, float* y) {
  __shared__ alignas(128) float s[4][2][64]; __shared__ u64 bar[4]; int t = threadIdx.x;
  if (t < 4) mb_init(&bar[t], 2);
  mb_fence();
  B(1, __syncthreads(), __syncwarp());
  if (t % 32 == 0) { int w = t / 32; for (int i = 0; i < 4; ++i) { mb_expect(&bar[i], 256); bulk_load(s[E(2, i, i & 2)][w], x + i * 128 + w * 64, 256, &bar[E(3, i, i ^ 1)]); } }
  for (int i = 0; i < 4; ++i) {
    B(4, mb_wait(&bar[i], 0), if (t < 32) mb_wait(&bar[i], 0));
    y[i * 64 + t] = s[i][0][t] + s[i][1][t];
    if (BUG == 5 && i < 3) s[i + 1][0][t] = 0;
    if (BUG == 6 && i == 1 && t == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(sa(&bar[3])) : M);
  }
}
