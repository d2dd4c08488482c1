#include "more.cuh"
//@ grid=[4,1,1];block=[64,1,1];cluster=[2,1,1]
//@ x f32 2,6,64 normal
//@ y f32 2,6,64 zeros
//@? y = x * 2 - x[:, :, ::-1] ;1e-5
// CTA 0 of a pair stores rows into CTA 1's shared memory by plain stores and arrives there; CTA 1 gives the stages back
D void put(u32 to, float v) { asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(to), "f"(v) : M); }
D void arrive_relaxed(u64* b, u32 r) { asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" :: "r"(mapa(sa(b), r)) : M); }
K __cluster_dims__(2, 1, 1) remote(const float* x, float* y) {
  __shared__ float buf[2][64]; __shared__ u64 full[2], empty[2]; int t = threadIdx.x, r = rank(), c = blockIdx.x / 2;
  if (t == 0) { for (int i = 0; i < 2; ++i) { mb_init(&full[i], E(1, 64, 2)); mb_init(&empty[i], 2); } mb_fence(); }
  B(2, cl_sync(), { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: M); cl_wait(); if (t == 0) __nanosleep(20); });
  if (r == 0) {
    for (int i = 0; i < 6; ++i) { int s = i & 1;
      B(3, mb_wait_cluster(&empty[s], i >> 1 & 1 ^ 1), mb_wait_cluster(&empty[s], 1));
      if (BUG == 4) mb_arrive_remote(&full[s], 1);
      put(mapa(sa(&buf[s][E(5, t, t & 62)]), 1), x[(c * 6 + i) * 64 + t]);
      if (BUG == 6) arrive_relaxed(&full[s], 1); else if (BUG != 4) B(7, mb_arrive_remote(&full[s], 1), mb_arrive_remote(&full[s], 0)); }
  } else {
    for (int i = 0; i < 6; ++i) { int s = i & 1;
      B(8, mb_wait_cluster(&full[s], i >> 1 & 1), if (i != 5) mb_wait_cluster(&full[s], i >> 1 & 1));
      float v = buf[s][t] * 2 - buf[s][63 - t];
      B(9, __syncwarp(), );
      if (t % 32 == 0) B(10, mb_arrive_remote(&empty[s], 0), if (t == 0) { mb_arrive_remote(&empty[s], 0); mb_arrive_remote(&empty[s], 0); });
      y[(c * 6 + i) * 64 + t] = v; } }
  B(11, cl_sync(), );
}
//! 1 the phase completes after two threads
//! 2 a relaxed cluster barrier does not publish the initialisation of other threads (only thread 0 has fenced; see 9.7.13.3: no harm for it)
//! 3 the wait passes always, or only when odd phases are current
//! 4 the signal comes before the store
//! 5 half of the words are not written, and two threads write one
//! 6 a relaxed arrival publishes nothing
//! 7 the arrivals go to the wrong CTA
//! 8 the last row is not waited for
//! 9 lane 0 releases what other lanes of its warp may not have read
//! 10 warp 0 releases for warp 1
//! 11 CTA 0 may exit while arrivals come
