#include "more.cuh"
//@ grid=[2,1,1];block=[96,1,1];dependent=["x","total"]
//@ x f32 2,4,64 normal
//@ w f32 4,64 normal
//@ total f32 1 ones
//@ y f32 2,64 zeros
//@? y = (x * w).sum(1) + 1 ;1e-4
// programmatic dependent launch: weights are loaded before griddepcontrol.wait, activations of the previous grid after it
K prefetch(const float* x, const float* w, const float* total, float* y) {
  __shared__ alignas(128) float sw[4][64], sx[4][64]; __shared__ u64 bw[4], bx[4]; int t = threadIdx.x;
  float one = BUG == 1 ? *total : 0;
  if (t == 0) { for (int i = 0; i < 4; ++i) { mb_init(&bw[i], 1); mb_init(&bx[i], 1); } mb_fence(); }
  B(2, __syncthreads(), );
  if (t >= 64) {
    if (t == 64) {
      for (int i = 0; i < 4; ++i) { mb_expect(&bw[i], 256); bulk_load(sw[i], w + i * 64, 256, &bw[i]); }
      B(3, asm volatile("griddepcontrol.wait;" ::: M), );
      for (int i = 0; i < 4; ++i) { mb_expect(&bx[i], E(4, 256, 272)); bulk_load(sx[i], x + (blockIdx.x * 4 + i) * 64, 256, &bx[i]); } }
    asm volatile("griddepcontrol.launch_dependents;" ::: M);
  } else {
    float s = 0;
    for (int i = 0; i < 4; ++i) { B(5, mb_wait(&bw[i], 0), ); B(6, mb_wait(&bx[i], 0), mb_wait(&bx[i & 2], 0)); s += sw[i][t] * sx[i][t]; }
    B(7, asm volatile("griddepcontrol.wait;" ::: M), );
    if (BUG != 1) one = *total;
    y[blockIdx.x * 64 + t] = s + one;
  }
}
//! 1 the previous grid's result before the wait
//! 2 barriers are used before their initialisation is visible
//! 3 the loader reads the previous grid's x before it is done
//! 4 more bytes expected than come
//! 5 weights are read before the copy is there
//! 6 an odd row is not waited for
//! 7 these threads read total, and write y, without having waited
