#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 7,64 normal
//@ y f32 7,64 zeros
//@ next u32 1 zeros
//@? y = x+1 ;1e-5
//@? next = np.full(1, 9)
// a warp takes numbers of tiles from a counter and hands them to two others through a ring
K sched(const float* x, float* y, u32* next) {
  __shared__ int tile[2]; __shared__ u64 full[2], empty[2]; int t = threadIdx.x;
  if (t == 0) for (int i = 0; i < 2; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], E(1, 64, 32)); }
  __syncthreads();
  if (t < 32) {
    if (t == 0) for (int i = 0;; ++i) { int k = i & 1;
      B(2, mb_wait(&empty[k], ((i >> 1) & 1) ^ 1), );
      int n = E(3, atomicAdd(next, 1), (int)(*(volatile u32*)next)++);
      if (BUG == 4) mb_arrive(&full[k]);
      tile[k] = n;
      if (BUG != 4) mb_arrive(&full[k]);
      if (n >= E(5, 7, 6)) break; }
  } else for (int i = 0;; ++i) { int k = i & 1;
    mb_wait(&full[k], E(6, (i >> 1) & 1, i & 1));
    int n = tile[k];
    B(7, mb_arrive(&empty[k]), if (i & 1) mb_arrive(&empty[k]));
    if (n >= 7) break;
    y[n * 64 + t - 32] = x[n * 64 + t - 32] + 1; }
}
