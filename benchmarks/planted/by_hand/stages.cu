#include "common.cuh"
//arch sm_80
//@ grid=[2,1,1];block=[128,1,1]
//@ a bf16 64,128 normal
//@ b bf16 128,32 normal
//@ c f32 64,32 zeros
//@? c = a @ b ;2e-2
// cp.async multistage GEMM, tile 32x32x32, 3 stages, 4 warps each 16x16
K __launch_bounds__(128) stages(const bf* a, const bf* b, float* c) {
  __shared__ __align__(16) bf sA[3][32][40]; __shared__ __align__(16) bf sB[3][32][40];
  const int KD = 128, NK = KD / 32; int t = threadIdx.x, w = t / 32, l = t % 32; int m0 = blockIdx.x * 32;
  int row = t / 4, col = (t % 4) * 8;
  auto load = [&](int k, int s) {
    cpa16(&sA[s][row][col], a + (m0 + row) * KD + k * 32 + col);
    cpa16(&sB[s][row][col], b + (k * 32 + row) * 32 + col);
  };
  load(0, 0); cpa_commit(); load(1, 1); B(1, cpa_commit(), );
  float acc[2][4] = {}; int wm = (w & 1) * 16, wn = (w >> 1) * 16;
  for (int k = 0; k < NK; ++k) {
    int s = k % 3;
    B(2, cpa_wait<1>(), cpa_wait<2>());
    B(3, __syncthreads(), __syncwarp());
    if (k + 2 < NK) load(k + 2, E(4, (k + 2) % 3, (k + 3) % 3));
    B(5, cpa_commit(), if (k + 2 < NK) cpa_commit());
    for (int kk = 0; kk < 32; kk += 16) {
      u32 ra[4], rb[2];
      ldsm4(ra, &sA[s][wm + l % 16][kk + (l / 16) * 8]);
      for (int j = 0; j < 2; ++j) { ldsm2t(rb, &sB[s][kk + l % 16][wn + E(6, j, 0) * 8]); mma(acc[j], ra, rb); }
    }
    if (BUG == 7 && k == 0) { __syncthreads(); sA[(k+1) % 3][row][col] = sA[k % 3][row][col]; }
  }
  for (int j = 0; j < 2; ++j) for (int i = 0; i < 4; ++i)
    c[(m0 + wm + l / 4 + (i / 2) * 8) * 32 + wn + j * 8 + (l % 4) * 2 + (i & 1)] = acc[j][i];
}
