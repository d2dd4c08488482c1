#include "common.cuh"
//@ grid=[1,1,1];block=[64,1,1]
//@ x f32 8,32 normal
//@ y f32 8,32 zeros
//@? y = x*2 ;1e-5
// two warps take turns (ordered barrier) on one shared staging buffer
K pingpong(const float* x, float* y) {
  __shared__ float s[32]; __shared__ u64 turn[2]; int t = threadIdx.x, w = t / 32, l = t % 32;
  if (t == 0) { mb_init(&turn[0], 32); mb_init(&turn[1], 32); }
  __syncthreads();
  if (w == 1) mb_arrive(&turn[E(1, 0, 1)]);
  for (int i = 0; i < 4; ++i) {
    mb_wait(&turn[E(2, w, 0)], E(3, i & 1, 0));
    int row = i * 2 + w;
    s[31 - l] = x[row * 32 + l];
    B(4, __syncwarp(), );
    y[row * 32 + l] = 2 * s[31 - l] + 0 * s[l];
    B(5, , mb_arrive(&turn[w ^ 1]));
    if (BUG == 6) { if (l) mb_arrive(&turn[w ^ 1]); if (l == 1) mb_arrive(&turn[w ^ 1]); }
    else if (i < 3 || w == 0) mb_arrive(&turn[w ^ 1]);
  }
}
