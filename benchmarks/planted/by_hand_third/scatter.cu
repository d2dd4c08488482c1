#include "../by_hand/common.cuh"
//@ grid=[4,1,1];block=[64,1,1];cluster=[4,1,1]
//@ x s32 3,4,4,32 arange
//@ y s32 3,4,32 zeros
//@? y = x.sum(1)
// x[round][cta][slice]: CTA r adds slice r of all (st.async); the sums go to CTA 0 by a bulk copy between CTAs
D void st_async(u32 to, u32 v, u32 bar) { asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" :: "r"(to), "r"(v), "r"(bar) : M); }
K __cluster_dims__(4, 1, 1) scatter(const u32* x, u32* y) {
  __shared__ u32 in[2][4][32]; __shared__ alignas(128) u32 sum[2][32], all[4][32]; __shared__ u64 full[2], got; int t = threadIdx.x, w = t / 32, l = t % 32; u32 r = rank();
  if (t == 0) { mb_init(&full[0], 1); mb_init(&full[1], 1); mb_init(&got, 1); mb_fence(); }
  B(1, cl_sync(), );
  for (int i = 0; i < 3; ++i) { int s = i & 1; u32 p = i >> 1 & 1;
    if (t == 0) { mb_expect(&full[s], E(2, 512, 384)); if (r == 0) mb_expect(&got, 384); }
    for (int j = w; j < 4; j += 2) st_async(mapa(sa(&in[s][E(3, r, j)][l]), j), x[((i * 4 + r) * 4 + j) * 32 + l], mapa(sa(&full[s]), E(4, j, r)));
    mb_wait_cluster(&full[s], E(5, p, p ^ 1));
    if (w == 0) { u32 v = 0; for (int j = 0; j < 4; ++j) v += in[s][j][l]; sum[s][l] = v; B(6, fence_async(), ); B(7, __syncwarp(), );
      if (r == 0) all[0][l] = sum[s][l];
      else if (l == 0) asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(mapa(sa(all[E(8, r, 0)]), 0)), "r"(sa(sum[s])), "r"(E(9, 128, 112)), "r"(mapa(sa(&got), 0)) : M); }
    if (r == 0) { __syncthreads(); B(10, mb_wait_cluster(&got, i & 1), if (t < 32) mb_wait_cluster(&got, i & 1)); for (int j = w; j < 4; j += 2) y[(i * 4 + j) * 32 + l] = all[j][l]; }
    B(11, cl_sync(), if (i == 2) cl_sync());
  }
}
