#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ a bf16 128,32 normal
//@ b bf16 8,32 normal
//@ bias f32 8 normal
//@ c f32 128,8 zeros
//@? c = a @ b.T + bias ;3e-2
// two warps copy with cp.async, which arrives at mbarriers; one multiplies; one adds the bias and stores
D void cpa_arrive(u64* b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(sa(b)) : M); }
D void cpa_arrive_inc(u64* b) { asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" :: "r"(sa(b)) : M); }
K epilogue(const bf* a, const bf* b, const float* bias, float* c) {
  __shared__ alignas(16) bf sA[2][16 * 40], sB[2][8 * 40]; __shared__ float out[16][8]; __shared__ u64 full[2], empty[2];
  int t = threadIdx.x, w = t / 32, l = t % 32; const int N = 4;
  if (t == 0) for (int i = 0; i < 2; ++i) { mb_init(&full[i], E(1, 64, 63)); mb_init(&empty[i], 1); }
  B(2, __syncthreads(), );
  if (w < 2) {
    for (int i = 0; i < N; ++i) { int s = i & 1, m = (blockIdx.x * N + i) * 16;
      B(3, mb_wait(&empty[s], (i >> 1 & 1) ^ 1), mb_wait(&empty[s], (i & 1) ^ 1));
      cpa16(&sA[s][t / 4 * 40 + t % 4 * 8], a + (m + t / 4) * 32 + t % 4 * 8);
      if (t < E(4, 32, 31)) cpa16(&sB[s][t / 4 * 40 + t % 4 * 8], b + t / 4 * 32 + t % 4 * 8);
      if (BUG == 5) mb_arrive(&full[s]); else B(6, cpa_arrive(&full[s]), cpa_arrive_inc(&full[s])); }
  } else if (w == 2) {
    for (int i = 0; i < N; ++i) { int s = i & 1; float d[4] = {0, 0, 0, 0};
      B(7, mb_wait(&full[s], i >> 1 & 1), mb_wait(&full[s], 0));
      if (BUG == 8 && l == 0) mb_arrive(&empty[s]);
      for (int k = 0; k < 2; ++k) { u32 ra[4], rb[2];
        ldsm4(ra, &sA[s][(l & 15) * 40 + k * 16 + (l >> 4) * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(sa(&sB[s][(l & 7) * 40 + k * 16 + ((l >> 3) & 1) * 8])) : M);
        mma(d, ra, rb); }
      __syncwarp();
      if (BUG != 8 && l == 0) mb_arrive(&empty[s]);
      if (i) B(9, nb_sync(2, 64), );
      if (BUG == 10) nb_arrive(1, 64);
      for (int j = 0; j < 4; ++j) out[l / 4 + j / 2 * 8][l % 4 * 2 + (j & 1) + E(11, 0, 1)] = d[j];
      if (BUG != 10) nb_arrive(1, 64); }
  } else {
    for (int i = 0; i < N; ++i) { int m = (blockIdx.x * N + i) * 16;
      B(12, nb_sync(1, 64), nb_sync(3, 32));
      if (BUG == 13 && i < N - 1) nb_arrive(2, 64);
      for (int j = l; j < 128; j += 32) c[m * 8 + j] = out[j / 8][j % 8] + bias[j % 8];
      if (BUG != 13 && i < N - 1) nb_arrive(2, E(14, 64, 96)); }
  }
}
