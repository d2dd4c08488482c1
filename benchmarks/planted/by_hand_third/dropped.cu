#include "../by_hand/common.cuh"
//arch sm_90a
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 2,96 normal
//@ y f32 2,96 zeros
//@? y = np.concatenate([x[:,:32], x[:,:64][:,32:]+x[:,:32], x[:,64:]+x[:,32:64]+2*x[:,:32]],1) ;1e-5
// warps leave the mbarrier with arrive_drop, one after each round; the others add what the left ones wrote
D void mb_drop(u64* b) { asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" :: "r"(sa(b)) : M); }
K dropped(const float* x, float* y) {
  __shared__ float s[2][32]; __shared__ u64 bar; int t = threadIdx.x, w = t / 32, l = t % 32; float v = x[blockIdx.x * 96 + t];
  if (t == 0) mb_init(&bar, E(1, 96, 97));
  B(2, __syncthreads(), );
  for (int i = 0; i < 2; ++i) {
    if (w == i) { if (BUG == 4) mb_drop(&bar); s[E(3, i, 0)][l] = v; if (BUG != 4) B(5, mb_drop(&bar), mb_arrive(&bar)); break; }
    if (BUG == 6) { if (l) mb_arrive(&bar); else mb_drop(&bar); } else mb_arrive(&bar);
    B(7, mb_wait(&bar, i), mb_wait(&bar, 0));
    v += s[i][E(8, l, l + 1)];
  }
  y[blockIdx.x * 96 + t] = v;
}
