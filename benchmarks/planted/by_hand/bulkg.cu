#include "common.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ x f32 2,6,128 normal
//@ y f32 2,6,128 zeros
//@? y = 2*x+1 ;1e-5
// double-buffered bulk in and out
K bulkg(const float* x, float* y) {
  __shared__ alignas(128) float in[2][128], out[2][128]; __shared__ u64 full[2]; int t = threadIdx.x;
  x += blockIdx.x * 768; y += blockIdx.x * 768;
  if (t == 0) { mb_init(&full[0], 1); mb_init(&full[1], 1); mb_fence();
    for (int i = 0; i < 2; ++i) { mb_expect(&full[i], 512); bulk_load(in[i], x + i * 128, 512, &full[i]); } }
  __syncthreads();
  for (int i = 0; i < 6; ++i) { int s = i & 1;
    mb_wait(&full[s], E(1, (i >> 1) & 1, 0));
    if (t == 0) { B(2, bulk_wait_read<1>(), bulk_wait_read<2>()); }
    B(3, __syncthreads(), );
    out[s][t] = 2 * in[s][t] + 1;
    B(4, fence_async(), );
    B(5, __syncthreads(), __syncwarp());
    if (t == 0) { bulk_store(y + i * 128, out[s], 512); bulk_commit();
      if (i + 2 < 6) { mb_expect(&full[s], 512); bulk_load(in[E(6, s, s ^ 1)], x + (i + 2) * 128, E(7, 512, 256), &full[s]); } }
  }
  if (t == E(8, 0, 1)) bulk_wait<0>();
}
