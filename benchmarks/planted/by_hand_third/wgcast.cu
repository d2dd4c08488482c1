#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[160,1,1]
//@ a bf16 128,384 normal box=64,64 swizzle=128B
//@ b bf16 32,384 normal box=64,16 swizzle=128B
//@ c f32 128,32 zeros
//@? c = a @ b.T ;3e-2
// wgmma with three stages; each CTA of the cluster loads half of B's tile for both
struct alignas(64) Map { char x[128]; };
D void tma2_cast(void* s, const void* map, int x, int y, u64* b, uint16_t mask) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" :: "r"(sa(s)), "l"(map), "r"(x), "r"(y), "r"(sa(b)), "h"(mask) : M); }
K __cluster_dims__(2, 1, 1) wgcast(const __grid_constant__ Map a, const __grid_constant__ Map b, float* c) {
  __shared__ alignas(1024) bf sA[3][64 * 64]; __shared__ alignas(1024) bf sB[3][32 * 64]; __shared__ u64 full[3], empty[3];
  int t = threadIdx.x, r = rank(), m0 = blockIdx.x * 64; const int NK = 6;
  if (t == 0) { for (int i = 0; i < 3; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], E(1, 8, 4)); } mb_fence(); }
  B(2, cl_sync(), __syncthreads());
  if (t >= 128) {
    if (t == 128) for (int k = 0; k < NK; ++k) { int s = k % 3; u32 p = k / 3 & 1;
      B(3, mb_wait_cluster(&empty[s], p ^ 1), );
      mb_expect(&full[s], E(4, 8192 + 4096, 8192 + 2048));
      tma2(sA[s], &a, k * 64, m0, &full[s]);
      tma2_cast(sB[E(5, s, k & 1)] + E(6, r, 0) * 1024, &b, k * 64, r * 16, &full[E(7, s, 0)], E(8, 3, 1)); }
  } else {
    float d[16];
    for (int k = 0; k < NK; ++k) { int s = k % 3;
      B(9, mb_wait_cluster(&full[s], k / 3 & 1), mb_wait_cluster(&full[s], k & 1));
      B(10, wg_fence(), );
      for (int j = 0; j < 4; ++j) wg_n32_ss(d, desc128(sA[s]) + j * 2, desc128(sB[s]) + j * 2, k + j > 0);
      wg_commit();
      B(11, wg_wait<0>(), wg_wait<1>());
      if (t % 32 == 0) { B(12, mb_arrive_remote(&empty[s], 0), mb_arrive(&empty[s])); B(13, mb_arrive_remote(&empty[s], 1), mb_arrive_remote(&empty[s], 0)); }
    }
    wg_wait<0>();
    int w = t / 32, l = t % 32, row = m0 + w * 16 + l / 4, q = (l % 4) * 2;
    for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) c[(row + (i / 2) * 8) * 32 + j * 8 + q + (i & 1)] = d[j * 4 + i];
  }
  B(14, cl_sync(), );
}
