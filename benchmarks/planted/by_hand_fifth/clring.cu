#include "more.cuh"
//@ grid=[4,1,1];block=[64,1,1];cluster=[4,1,1]
//@ x f32 4,4,64 normal
//@ y f32 4,4,64 zeros
//@? y = np.broadcast_to(x.sum(0), (4,4,64)) ;1e-4
// all-reduce around a ring of CTAs: each passes a slice on by a bulk copy from shared memory to its neighbour's (reduce-scatter, then all-gather)
D void bulk_next(u32 to, const void* s, u32 n, u32 bar) { asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(to), "r"(sa(s)), "r"(n), "r"(bar) : M); }
K __cluster_dims__(4, 1, 1) clring(const float* x, float* y) {
  __shared__ alignas(128) float mine[4][64], in[6][64]; __shared__ u64 full[6]; int t = threadIdx.x, r = rank(), next = (r + 1) % 4;
  for (int i = 0; i < 4; ++i) mine[i][t] = x[(r * 4 + i) * 64 + t];
  if (t == 0) { for (int i = 0; i < 6; ++i) { mb_init(&full[i], 1); if (BUG != 1) mb_expect(&full[i], E(2, 256, i == 4 ? 128 : 256)); } mb_fence(); }
  B(3, cl_sync(), __syncthreads());
  for (int i = 0; i < 6; ++i) {
    const float* out = i < 4 ? mine[(r - i + 4) % 4] : in[i - E(4, 1, 2)];
    B(5, fence_async(), if (i) fence_async());
    B(6, __syncthreads(), __syncwarp());
    if (t == 0) { if (BUG == 1) mb_expect(&full[i], 256);
      bulk_next(mapa(sa(in[E(7, i, i % 5)]), next), out, 256, mapa(sa(&full[E(8, i, i ^ 1)]), E(9, next, r))); }
    B(10, mb_wait_cluster(&full[i], 0), if (t < 32) mb_wait_cluster(&full[i], 0));
    int slice = (r - i + 7) % 4;
    if (i < 3) mine[slice][t] += in[i][t]; else y[(r * 4 + slice) * 64 + t] = in[i][t]; }
  y[(r * 4 + (r + 1) % 4) * 64 + t] = mine[(r + 1) % 4][t];
  B(11, cl_sync(), );
}
//! 1 the expectation comes with the step: bytes may come before it, which the ISA allows (no harm)
//! 2 half of the bytes are expected
//! 3 copies into a CTA that may not have started, whose barriers may not be initialised
//! 4 the slice before is passed on again
//! 5 the first slice without a proxy fence
//! 6 the other warp's part may not be written
//! 7 two steps share a buffer: the second copy comes while the first is read
//! 8 the bytes complete another step's barrier
//! 9 the barrier must be in the destination's CTA
//! 10 a warp reads bytes that it has not waited for
//! 11 a CTA exits while its neighbour may copy into it or its own copies read
