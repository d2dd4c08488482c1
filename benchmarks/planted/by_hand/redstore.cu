#include "common.cuh"
//@ grid=[4,1,1];block=[64,1,1]
//@ x f32 4,256 normal
//@ y f32 256 zeros
//@? y = x.sum(0) ;1e-3
K redstore(const float* x, float* y) {
  __shared__ alignas(128) float s[2][128]; int t = threadIdx.x;
  for (int h = 0; h < 2; ++h) {
    
    for (int i = 0; i < 2; ++i) s[E(2, h, 0)][i * 64 + t] = x[blockIdx.x * 256 + h * 128 + i * 64 + t] * 1.0f;
    B(3, fence_async(), if (t == 0) fence_async());
    B(4, __syncthreads(), __syncwarp());
    if (t == 0) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(y + h * 128), "r"(sa(s[E(2, h, 0)])), "r"(E(5, 512, 528)) : M); B(6, bulk_commit(), if (h == 0) bulk_commit()); }
  }
  if (t == 0) { B(7, bulk_wait_read<0>(), bulk_wait_read<1>()); }
}
