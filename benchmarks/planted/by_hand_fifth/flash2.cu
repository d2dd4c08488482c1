#include "more.cuh"
//arch sm_80
//@ grid=[1,1,1];block=[64,1,1]
//@ q bf16 32,32 normal
//@ k bf16 64,32 normal
//@ v bf16 64,32 normal
//@ o f32 32,32 zeros
//@? o = np.exp(q @ k.T * 0.25) @ v / np.exp(q @ k.T * 0.25).sum(1)[:,None] ;3e-2
// attention as in FlashAttention-2: Q, K and V by cp.async in groups of their own; K of the next block is loaded under softmax, V under QK
D void rows(bf (*s)[40], const bf* g, int n) { int t = threadIdx.x; for (int i = t; i < n * 4; i += 64) cpa16(&s[i / 4][i % 4 * 8], g + i / 4 * 32 + i % 4 * 8); cpa_commit(); }
K __launch_bounds__(64) flash2(const bf* q, const bf* k, const bf* v, float* o) {
  __shared__ alignas(16) bf sQ[32][40], sK[16][40], sV[16][40]; int t = threadIdx.x, w = t / 32, l = t % 32; const int N = 4;
  rows(sQ, q, 32); rows(sK, k, 16);
  float d[4][4] = {}, m[2] = {-1e30f, -1e30f}, sum[2] = {0, 0}; u32 ra[2][4];
  B(1, cpa_wait<1>(), ); B(2, __syncthreads(), );
  for (int h = 0; h < 2; ++h) ldsm4(ra[h], &sQ[w * 16 + (l & 15)][h * 16 + (l >> 4) * 8]);
  for (int n = 0; n < N; ++n) { float s[2][4] = {};
    B(3, cpa_wait<0>(), if (n == 0) cpa_wait<0>());
    B(4, __syncthreads(), if (n != 2) __syncthreads());
    rows(sV, v + n * E(5, 512, 256), 16);
    for (int j = 0; j < 2; ++j) for (int h = 0; h < 2; ++h) { u32 rb[2];
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(sa(&sK[j * 8 + (l & 7)][h * 16 + (l >> 3 & 1) * 8])) : M);
      mma(s[j], ra[h], rb); }
    if (BUG == 6 && n + 1 < N) rows(sK, k + (n + 1) * 512, 16);
    B(7, cpa_wait<0>(), if (n & 1) cpa_wait<0>());
    B(8, __syncthreads(), __syncwarp());
    if (n + 1 < N && BUG != 6) rows(sK, k + (n + 1) * 512, 16);
    for (int h = 0; h < 2; ++h) { float x = m[h]; for (int j = 0; j < 2; ++j) x = fmaxf(x, fmaxf(s[j][h * 2], s[j][h * 2 + 1]));
      x = fmaxf(x, __shfl_xor_sync(~0u, x, 1)); x = fmaxf(x, __shfl_xor_sync(E(9, ~0u, 0x7fffffffu), x, 2));
      float f = __expf((m[h] - x) * 0.25f), y = 0; m[h] = x;
      for (int j = 0; j < 2; ++j) for (int i = 0; i < 2; ++i) { float& e = s[j][h * 2 + i]; e = __expf((e - x) * 0.25f); y += e; }
      sum[h] = sum[h] * f + y; for (int j = 0; j < 4; ++j) { d[j][h * 2] *= f; d[j][h * 2 + 1] *= f; } }
    u32 p[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])};
    for (int j = 0; j < 4; ++j) { u32 rb[2]; ldsm2t(rb, &sV[l & 15][E(10, j, j & 1) * 8]); mma(d[j], p, rb); }
  }
  for (int h = 0; h < 2; ++h) { sum[h] += __shfl_xor_sync(~0u, sum[h], 1); sum[h] += __shfl_xor_sync(~0u, sum[h], 2); }
  for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) o[(w * 16 + l / 4 + i / 2 * 8) * 32 + j * 8 + l % 4 * 2 + (i & 1)] = d[j][i] / sum[i / 2];
}
//! 1 Q is read before its group is there
//! 2 the other warp's part of Q may not be there
//! 3 K of later blocks is not waited for (it is the last group)
//! 4 K of the other warp, and V is overwritten while the other warp reads it
//! 5 rows of V twice
//! 6 K is overwritten while the other warp reads it, and V's wait covers K too
//! 7 V is read before its group is there in every other block
//! 8 the other warp's part of V, and K overwritten under it
//! 9 lane 31 executes a shuffle whose mask leaves it out
//! 10 the wrong columns
