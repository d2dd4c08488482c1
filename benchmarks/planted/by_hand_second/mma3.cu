#include "../by_hand/common.cuh"
//arch sm_80
//@ grid=[2,1,1];block=[64,1,1]
//@ a bf16 64,64 normal
//@ b bf16 8,64 normal
//@ c f32 64,8 zeros
//@? c = a @ b.T ;3e-2
// two warps, each with 16 rows; three stages of cp.async, mma.sync
K mma3(const bf* a, const bf* b, float* c) {
  __shared__ alignas(16) bf sA[3][32 * 24], sB[3][8 * 24]; int t = threadIdx.x, w = t / 32, l = t % 32, m = blockIdx.x * 32;
  auto load = [&](int k) { int s = k % 3; cpa16(&sA[s][(t / 2) * 24 + (t & 1) * 8], a + (m + t / 2) * 64 + k * 16 + (t & 1) * 8);
    if (t < 16) cpa16(&sB[s][(t / 2) * 24 + (t & 1) * 8], b + (t / 2) * 64 + k * 16 + (t & 1) * 8); };
  float d[4] = {0, 0, 0, 0};
  load(0); cpa_commit(); load(1); B(1, cpa_commit(), );
  for (int k = 0; k < 4; ++k) {
    B(2, cpa_wait<1>(), cpa_wait<2>());
    B(3, __syncthreads(), __syncwarp());
    if (k + 2 < 4) load(E(4, k + 2, k + 2 - (k == 1))); 
    B(5, cpa_commit(), if (k < 2) cpa_commit());
    u32 ra[4], rb[2]; int s = k % 3;
    ldsm4(ra, &sA[s][(w * 16 + (l & 15)) * 24 + (l >> 4) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(sa(&sB[E(6, s, (k + 1) % 3)][(l & 7) * 24 + ((l >> 3) & 1) * 8])) : M);
    mma(d, ra, rb);
  }
  int r = m + w * 16 + l / 4, q = (l % 4) * 2;
  for (int i = 0; i < 4; ++i) c[(r + (i / 2) * 8) * 8 + q + (i & 1)] = d[i];
}
