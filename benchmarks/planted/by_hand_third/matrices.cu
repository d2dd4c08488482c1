#include "../by_hand/common.cuh"
//@ grid=[2,2,1];block=[64,1,1]
//@ x bf16 64,64 normal box=32,32
//@ y bf16 64,64 zeros box=32,32
//@? y = x.T
// a tile comes by TMA, is transposed by ldmatrix and stmatrix.trans, and leaves by TMA
struct alignas(64) Map { char x[128]; };
K matrices(const __grid_constant__ Map x, const __grid_constant__ Map y) {
  __shared__ alignas(128) bf in[32 * 32], out[32 * 32]; __shared__ u64 bar; int t = threadIdx.x, w = t / 32, l = t % 32;
  if (t == 0) { mb_init(&bar, 1); B(1, mb_fence(), ); B(2, mb_expect(&bar, 2048), mb_expect(&bar, 4096)); tma2(in, &x, blockIdx.x * 32, blockIdx.y * 32, &bar); }
  B(3, __syncthreads(), );
  B(4, mb_wait(&bar, 0), );
  for (int h = 0; h < 2; ++h) { u32 r[4]; int row = w * 16 + (l & 15), col = h * 16 + (l >> 4) * 8;
    ldsm4(r, &in[row * 32 + col]);
    int orow = h * 16 + (l >> 4) * 8 + (l & 7), ocol = w * 16 + (l >> 3 & 1) * 8;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" :: "r"(sa(&out[orow * 32 + E(5, ocol, ocol ^ 8) + E(6, 0, 32)])), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : M); }
  if (BUG == 7) { if (t == 0) fence_async(); __syncthreads(); } else { B(8, fence_async(), ); B(9, __syncthreads(), ); }
  if (t == 0) { tma2_store(&y, out, blockIdx.y * 32, E(10, blockIdx.x * 32, blockIdx.x * 16)); B(11, bulk_commit(), ); B(12, bulk_wait<0>(), bulk_wait<1>()); }
}
