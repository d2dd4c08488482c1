#include "more.cuh"
//@ grid=[4,1,1];block=[64,1,1];cluster=[2,1,1]
//@ x f32 4,2,2,64 normal
//@ y f32 4,2,2,64 zeros
//@? y = (np.exp(x) / np.exp(x).sum((2,3))[:,:,None,None]) ;1e-4
// softmax of four rows over a pair of CTAs: maximum and sum are sent to both with st.async; two mailboxes with a barrier each
D void send(u32 to, float a, float b, u32 bar) { asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" :: "r"(to), "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(bar) : M); }
K __cluster_dims__(2, 1, 1) clsoft(const float* x, float* y) {
  __shared__ alignas(16) float2 box[2][2][2]; __shared__ u64 full[2], empty[2];
  int t = threadIdx.x, w = t / 32, l = t % 32, r = rank();
  if (t == 0) { for (int i = 0; i < 2; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], E(1, 4, 2)); } B(2, mb_fence(), ); }
  B(3, cl_sync(), __syncthreads());
  for (int n = 0; n < 4; ++n) { int k = n & 1, at = ((n * 2 + blockIdx.x / 2) * 2 + r) * 64 + t; float v = x[at], m = v;
    for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    float e = __expf(v - m), s = e; for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
    if (t == 0) mb_expect(&full[k], E(4, 32, 24));
    if (l == 0) { B(5, mb_wait_cluster(&empty[k], n >> 1 & 1 ^ 1), );
      for (int c = 0; c < 2; ++c) send(mapa(sa(&box[k][E(6, r, 0)][w]), c), m, s, mapa(sa(&full[E(7, k, 0)]), c)); }
    B(8, mb_wait_cluster(&full[k], n >> 1 & 1), if (l == 0) mb_wait_cluster(&full[k], n >> 1 & 1));
    float2 p[4]; for (int i = 0; i < 4; ++i) p[i] = box[k][i / 2][i % 2];
    B(9, __syncwarp(), );
    if (l == 0) B(10, { mb_arrive_remote(&empty[k], 0); mb_arrive_remote(&empty[k], 1); }, { mb_arrive(&empty[k]); mb_arrive(&empty[k]); });
    float top = fmaxf(fmaxf(p[0].x, p[1].x), fmaxf(p[2].x, p[3].x)), all = 0;
    for (int i = 0; i < 4; ++i) all += p[i].y * __expf(p[i].x - top);
    y[at] = e * __expf(m - top) / all; }
  B(11, cl_sync(), );
}
//! 1 two arrivals free a mailbox that four warps read
//! 2 another CTA's st.async may signal a barrier that is not visible there
//! 3 the other CTA may not have started, nor its barriers be initialised
//! 4 fewer bytes expected than arrive
//! 5 a mailbox is overwritten while it is read
//! 6 both CTAs write one place
//! 7 the bytes complete the other barrier
//! 8 31 lanes have not waited for the bytes
//! 9 lane 0 releases what the other lanes may not have read
//! 10 the other CTA's warps never release
//! 11 a CTA exits while remote arrivals may come
