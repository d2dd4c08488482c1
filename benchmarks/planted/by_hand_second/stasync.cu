#include "../by_hand/common.cuh"
//@ grid=[4,1,1];block=[32,1,1];cluster=[2,1,1]
//@ x s32 4,4,32 arange
//@ y s32 4,4,32 zeros
//@? y = x.reshape(2,2,4,32)[:,::-1].reshape(4,4,32)
// each CTA sends rows to its neighbour with st.async, which counts bytes there
D void st_async(u32 to, u32 v, u32 bar) { asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" :: "r"(to), "r"(v), "r"(bar) : M); }
K __cluster_dims__(2, 1, 1) stasync(const u32* x, u32* y) {
  __shared__ u32 s[2][32]; __shared__ alignas(8) u64 full[2], empty[2]; int t = threadIdx.x, o = rank() ^ 1;
  if (t == 0) { for (int i = 0; i < 2; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], E(1, 1, 2)); } mb_fence(); }
  B(2, cl_sync(), __syncwarp());
  for (int i = 0; i < 4; ++i) { int k = i & 1; u32 p = (i >> 1) & 1;
    B(3, mb_wait_cluster(&empty[k], p ^ 1), );
    if (t == 0) mb_expect(&full[k], E(4, 128, 124));
    st_async(mapa(sa(&s[k][t]), o), x[blockIdx.x * 128 + i * 32 + t], mapa(sa(&full[E(5, k, 0)]), o));
    B(6, mb_wait_cluster(&full[k], p), mb_wait_cluster(&full[k], p ^ 1));
    y[blockIdx.x * 128 + i * 32 + t] = s[k][t];
    B(7, __syncwarp(), );
    if (t == 0) mb_arrive_remote(&empty[k], o);
  }
  B(8, cl_sync(), );
}
