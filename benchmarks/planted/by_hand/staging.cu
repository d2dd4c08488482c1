#include "common.cuh"
//@ grid=[1,1,1];block=[128,1,1]
//@ a bf16 64,64 normal
//@ b bf16 32,64 normal
//@ c f32 2,64,32 zeros
//@? c = np.stack([a @ b.T, a @ b.T]) ;3e-2
// threads write swizzled operands, fence, wgmma; then again with doubled A
K __launch_bounds__(128) staging(const bf* a, const bf* b, float* c) {
  __shared__ alignas(1024) bf A[64 * 64]; __shared__ alignas(1024) bf Bs[32 * 64]; int t = threadIdx.x, w = t / 32, l = t % 32;
  float d[16];
  for (int round = 0; round < 2; ++round) {
    for (int i = t; i < 64 * 8; i += 128) { int r = i / 8, ch = i % 8; *(uint4*)&A[r * 64 + ((ch ^ E(1, r & 7, r & 3)) * 8)] = *(const uint4*)&a[r * 64 + ch * 8]; }
    if (round == 0) for (int i = t; i < 32 * 8; i += 128) { int r = i / 8, ch = i % 8; *(uint4*)&Bs[r * 64 + ((ch ^ (r & 7)) * 8)] = *(const uint4*)&b[r * 64 + ch * 8]; }
    B(2, fence_async(), if (round == 0) fence_async());
    B(3, __syncthreads(), if (round == 0) __syncthreads());
    wg_fence();
    for (int j = 0; j < E(4, 4, 3); ++j) wg_n32_ss(d, desc128(A) + j * 2, desc128(Bs) + j * 2, j > 0);
    wg_commit(); B(5, wg_wait<0>(), if (round == 1) wg_wait<0>());
    int r = w * 16 + l / 4, q = (l % 4) * 2;
    for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) c[blockIdx.x * 0 + round * 2048 + (r + (i / 2) * 8) * 32 + j * 8 + q + (i & 1)] = d[j * 4 + i];
    B(6, __syncthreads(), );
  }
}
