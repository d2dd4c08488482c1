#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ x f32 2,10,128 normal
//@ w f32 2,10,128 normal
//@ y f32 2,128 zeros
//@? y = (x * w).sum(1) ;1e-4
// two producer warps, one for each operand, fill one ring of three stages for two consumer warps
K producers(const float* x, const float* w, float* y) {
  __shared__ alignas(128) float a[3][128], b[3][128]; __shared__ u64 full[3], empty[3];
  int t = threadIdx.x, wp = t / 32, l = t % 32, n = 10;
  if (t == 0) { for (int i = 0; i < 3; ++i) { mb_init(&full[i], E(1, 2, 1)); mb_init(&empty[i], E(2, 2, 1)); } B(3, mb_fence(), ); }
  B(4, __syncthreads(), __syncwarp());
  int s = 0; u32 p = 0;
  if (wp < 2) {
    if (l == 0) for (int i = 0; i < n; ++i) {
      B(5, mb_wait(&empty[s], p ^ 1), if (wp == 0) mb_wait(&empty[s], p ^ 1));
      B(6, mb_expect(&full[s], 512), mb_expect(&full[s], wp ? 496 : 512));
      bulk_load(wp ? b[E(7, s, i % 2)] : a[s], (wp ? w : x) + (blockIdx.x * n + i) * 128, 512, &full[s]);
      if (++s == E(8, 3, wp ? 2 : 3)) { s = 0; p ^= 1; } }
  } else {
    int c = t - 64; float u = 0, v = 0;
    for (int i = 0; i < n; ++i) {
      B(9, mb_wait(&full[s], p), if (l == 0) mb_wait(&full[s], p));
      if (BUG == 10) { __syncwarp(); if (l == 0) mb_arrive(&empty[s]); }
      u += a[s][c] * b[s][c]; v += a[s][c + 64] * b[s][c + E(11, 64, 65)];
      B(12, __syncwarp(), );
      if (l == 0 && BUG != 10) mb_arrive(&empty[s]);
      if (++s == 3) { s = 0; B(13, p ^= 1, ); } }
    y[blockIdx.x * 128 + c] = u; y[blockIdx.x * 128 + c + 64] = v;
  }
}
