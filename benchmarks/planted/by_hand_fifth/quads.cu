#include "more.cuh"
//@ grid=[2,2,1];block=[160,1,1];cluster=[2,2,1]
//@ a bf16 128,256 normal box=64,32 swizzle=128B
//@ b bf16 64,256 normal box=64,16 swizzle=128B
//@ c f32 128,64 zeros
//@? c = a @ b.T ;3e-2
// a 2 x 2 cluster: each CTA loads half of its A for its row of CTAs and half of its B for its column, by multicast; two stages
D void cast(void* s, const void* map, int x, int y, u64* b, uint16_t mask) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" :: "r"(sa(s)), "l"(map), "r"(x), "r"(y), "r"(sa(b)), "h"(mask) : M); }
K __cluster_dims__(2, 2, 1) quads(const __grid_constant__ Map a, const __grid_constant__ Map b, float* c) {
  __shared__ alignas(1024) bf sA[2][64 * 64]; __shared__ alignas(1024) bf sB[2][32 * 64]; __shared__ u64 full[2], empty[2];
  int t = threadIdx.x, r = rank(), i = r & 1, j = r >> 1; const int N = 4;  // CTA (i, j): rows i * 64, columns j * 32
  if (t == 0) { for (int s = 0; s < 2; ++s) { mb_init(&full[s], 1); mb_init(&empty[s], E(1, 3, 2)); } mb_fence(); }
  B(2, cl_sync(), { cl_arrive(); if (t >= 128) cl_wait(); });
  if (t >= 128) {
    if (elect()) for (int n = 0; n < N; ++n) { int s = n & 1;
      B(3, mb_wait_cluster(&empty[s], n >> 1 & 1 ^ 1), if (r) mb_wait_cluster(&empty[s], n >> 1 & 1 ^ 1));
      mb_expect(&full[s], E(4, 8192 + 4096, 4096 + 4096));
      cast(sA[s] + j * 2048, &a, n * 64, i * 64 + j * 32, &full[s], E(5, 1 << i | 4 << i, 3));
      cast(sB[s] + i * 1024, &b, n * 64, j * 32 + i * 16, &full[s], E(6, 3 << j * 2, 1 << r)); }
  } else { float d[16];
    for (int n = 0; n < N; ++n) { int s = n & 1;
      mb_wait_cluster(&full[s], n >> 1 & 1);
      wg_fence();
      for (int k = 0; k < 4; ++k) wg_n32_ss(d, desc128(sA[s]) + k * 2, desc128(sB[s]) + k * 2, n + k > 0);
      wg_commit(); B(7, wg_wait<0>(), if (n == N - 1) wg_wait<0>());
      if (t < 4 && (BUG == 8 ? t != 3 - r : (t & 1) == i || t >> 1 == j)) B(9, mb_arrive_remote(&empty[s], t), if (n != 1 || t != r) mb_arrive_remote(&empty[s], t)); }
    int w = t / 32, l = t % 32, row = i * 64 + w * 16 + l / 4, q = j * 32 + l % 4 * 2;
    for (int k = 0; k < 4; ++k) for (int e = 0; e < 4; ++e) c[(row + e / 2 * 8) * 64 + k * 8 + q + (e & 1)] = d[k * 4 + e]; }
  B(10, cl_sync(), if (r) cl_sync());
}
//! 1 two of three releases free a stage
//! 2 the consumers never wait for the cluster: the aligned barrier is left unmatched, and they use barriers that may not be initialised
//! 3 CTA 0 overwrites other CTAs' stages without waiting
//! 4 fewer bytes expected
//! 5 A goes to the wrong CTA
//! 6 B goes to the own CTA only
//! 7 stages are released while wgmma reads
//! 8 the same CTAs by another condition (no harm)
//! 9 one release is missing
//! 10 CTA 0 exits without the barrier that the others wait at
