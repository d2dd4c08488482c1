#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 2,6,64 normal
//@ y f32 2,64 zeros
//@? y = (x*x).sum(1) ;1e-4
// one warp loads, two add; two named barriers for each of two stages (bar.sync and bar.arrive)
K named(const float* x, float* y) {
  __shared__ float s[2][64]; int t = threadIdx.x; x += blockIdx.x * 384;
  if (t < 32) {
    for (int i = 0; i < 6; ++i) { int k = i & 1;
      if (i >= 2) B(1, nb_sync(3 + k, 96), nb_arrive(3 + k, 96));
      s[k][t] = x[i * 64 + t]; s[k][t + 32] = x[i * 64 + t + 32];
      B(2, nb_arrive(1 + k, 96), nb_arrive(1, 96)); }
  } else {
    float a = 0; int c = t - 32;
    for (int i = 0; i < 6; ++i) { int k = i & 1;
      B(3, nb_sync(1 + k, 96), if (i) nb_sync(1 + k, 96); else nb_arrive(1 + k, 96));
      float v = s[E(4, k, i / 2 & 1)][c]; a += v * v;
      if (BUG == 5) { if (i < 4) nb_arrive(3 + (k ^ 1), 96); } else if (i < E(6, 4, 3)) nb_arrive(3 + k, 96); }
    y[blockIdx.x * 64 + c] = a;
  }
}
