#include "common.cuh"
//@ grid=[2,2,1];block=[128,1,1]
//@ x f32 64,64 normal box=32,32
//@ y f32 64,64 zeros box=32,32
//@? y = x.T * 3 ;1e-5
struct alignas(64) Map { char x[128]; };
K tmatile(const __grid_constant__ Map x, const __grid_constant__ Map y) {
  __shared__ alignas(128) float in[32][32]; __shared__ alignas(128) float out[32][32]; __shared__ u64 bar; int t = threadIdx.x;
  int bx = blockIdx.x * 32, by = blockIdx.y * 32;
  if (t == 0) { mb_init(&bar, 1); mb_fence(); B(1, , mb_expect(&bar, 4096)); 
    if (BUG != 1) mb_expect(&bar, 4096); tma2(in, &x, E(2, bx, by), E(2, by, bx), &bar); }
  B(3, __syncthreads(), __syncwarp());
  mb_wait(&bar, E(4, 0, 1));
  for (int i = t; i < 1024; i += 128) out[i % 32][i / 32] = 3 * in[i / 32][i % 32];
  if (BUG == 5) { __syncthreads(); fence_async(); } else if (BUG == 6) { fence_async(); if (t >= 64) __syncthreads(); else __syncthreads(); } else { fence_async(); __syncthreads(); }
  if (t == 0) { tma2_store(&y, E(7, &out[0][0], &in[0][0]), by, bx); bulk_commit(); B(8, bulk_wait<0>(), ); }
}
