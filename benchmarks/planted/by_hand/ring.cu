#include "common.cuh"
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 2,12,64 normal
//@ y f32 2,64 zeros
//@ n s32 =12
//@? y = x.sum(1) ;1e-4
K __launch_bounds__(96) ring(const float* x, float* y, int n) {
  __shared__ float buf[2][64];
  int w = threadIdx.x / 32, t = threadIdx.x;
  x += blockIdx.x * n * 64;
  if (w == 0) {
    for (int i = 0; i < n; ++i) {
      int s = i & 1;
      if (i >= E(1, 2, 3)) nb_sync(E(2, 3 + s, 3), 96);
      buf[s][t] = x[i * 64 + t]; buf[s][t + 32] = x[i * 64 + t + 32];
      B(3, nb_arrive(1 + s, 96), nb_arrive(1 + (s ^ 1), 96));
    }
  } else {
    float acc = 0; int c = t - 32;
    for (int i = 0; i < n; ++i) {
      int s = i & 1;
      if (BUG == 4) { if (i) nb_sync(1 + s, 96); else nb_arrive(1 + s, 96); } else nb_sync(1 + s, 96);
      if (BUG == 5) { if (i + 2 < n) nb_arrive(3 + s, 96); acc += buf[s][c]; }
      else { acc += buf[s][BUG == 6 && c == 63 ? c + 1 : c]; if (i + 2 < n) nb_arrive(3 + s, 96); }
    }
    y[blockIdx.x * 64 + c] = acc;
  }
}
