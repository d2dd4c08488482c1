#include "common.cuh"
#include <cuda/barrier>
//@ grid=[1,1,1];block=[96,1,1]
//@ x f32 5,64 normal
//@ y f32 64 zeros
//@? y = x.sum(0)*2 ;1e-4
// cuda::barrier producer/consumer with arrive tokens
K mbroles(const float* x, float* y) {
  using bar_t = cuda::barrier<cuda::thread_scope_block>;
  __shared__ bar_t ready, filled; __shared__ float s[64]; int t = threadIdx.x;
  if (t == 0) { init(&ready, 96); init(&filled, E(1, 96, 95)); }
  B(2, __syncthreads(), );
  if (t < 32) for (int i = 0; i < 5; ++i) { 
    B(3, ready.arrive_and_wait(), (void)ready.arrive());
    s[t] = 2 * x[i * 64 + t]; s[t + 32] = 2 * x[i * 64 + t + 32];
    (void)filled.arrive();
  } else {
    float a = 0; int c = t - 32;
    (void)ready.arrive();
    for (int i = 0; i < 5; ++i) {
      B(4, filled.arrive_and_wait(), if (c != 7) filled.arrive_and_wait(); else (void)filled.arrive());
      if (BUG == 5) { if (i < 4) (void)ready.arrive(); a += s[c]; }
      else { a += s[c]; if (i < 4) (void)ready.arrive(); }
      if (BUG == 6 && i == 2) s[c] = 0;
    }
    y[c] = a;
  }
}
