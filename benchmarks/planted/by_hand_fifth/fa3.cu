#include "more.cuh"
//@ grid=[1,1,1];block=[288,1,1]
//@ q bf16 128,64 normal box=64,64 swizzle=128B
//@ k bf16 256,64 normal box=64,64 swizzle=128B
//@ vt bf16 32,256 normal box=64,32 swizzle=128B
//@ o f32 128,32 zeros
//@? o = np.exp(q @ k.T * 0.125) @ vt.T / np.exp(q @ k.T * 0.125).sum(1)[:,None] ;3e-2
// attention as in FlashAttention-3: two consumer warpgroups in turns by named barriers, QK of the next block under PV of this one
K __launch_bounds__(288, 1) fa3(const __grid_constant__ Map q, const __grid_constant__ Map k, const __grid_constant__ Map vt, float* o) {
  __shared__ alignas(1024) bf sQ[2][64 * 64]; __shared__ alignas(1024) bf sK[2][64 * 64]; __shared__ alignas(1024) bf sV[2][32 * 64];
  __shared__ u64 fullQ, fullK[2], fullV[2], emptyK[2], emptyV[2]; const int N = 4; const float S2 = 0.125f * 1.44269504f;
  int t = threadIdx.x, g = t / 128, u = t % 128;
  if (t == 0) { mb_init(&fullQ, 1); for (int i = 0; i < 2; ++i) { mb_init(&fullK[i], 1); mb_init(&fullV[i], 1); mb_init(&emptyK[i], E(1, 2, 1)); mb_init(&emptyV[i], 2); } mb_fence(); }
  __syncthreads();
  if (g == 2) {
    if (u == 0) {
      mb_expect(&fullQ, E(2, 16384, 8192)); for (int i = 0; i < 2; ++i) tma2(sQ[i], &q, 0, i * 64, &fullQ);
      for (int n = 0; n < N; ++n) { int s = n & 1;
        mb_wait(&emptyK[s], n >> 1 & 1 ^ 1); mb_expect(&fullK[s], 8192); tma2(sK[s], &k, 0, n * 64, &fullK[s]);
        B(3, mb_wait(&emptyV[s], n >> 1 & 1 ^ 1), mb_wait(&emptyK[s], n >> 1 & 1 ^ 1)); mb_expect(&fullV[s], 4096); tma2(sV[s], &vt, n * 64, 0, &fullV[s]); } }
    return;
  }
  float s[32], d[16], m[2] = {-1e30f, -1e30f}, sum[2] = {0, 0}; u32 p[16];
  auto qk = [&](int b) {
    for (int j = 0; j < 4; ++j) wg_n32_ss(s, desc128(sQ[g]) + j * 2, desc128(sK[b]) + j * 2, j > 0);
    for (int j = 0; j < 4; ++j) wg_n32_ss(s + 16, desc128(sQ[g]) + j * 2, desc128(sK[b] + 32 * 64) + j * 2, j > 0);
    wg_commit(); };
  auto pv = [&](int b, int first) {
    for (int j = 0; j < 4; ++j) wg_n32_rs(d, p + j * 4, desc128(sV[b]) + j * 2, j > 0 || !first);
    wg_commit(); };
  float f[2];
  auto soft = [&]() {
    for (int h = 0; h < 2; ++h) { float x = m[h];
      for (int i = 0; i < 16; ++i) x = fmaxf(x, s[i * 2 - i % 2 + h * 2]);
      x = fmaxf(x, __shfl_xor_sync(~0u, x, 1)); x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
      f[h] = exp2f((m[h] - x) * S2); m[h] = x; float y = 0;
      for (int i = 0; i < 16; ++i) { float& e = s[i * 2 - i % 2 + h * 2]; e = exp2f((e - x) * S2); y += e; }
      sum[h] = sum[h] * f[h] + y; } };
  auto packed = [&]() { for (int i = 0; i < 16; ++i) p[i] = pack(s[i * 2], s[i * 2 + 1]); };
  if (g == 1) B(4, nb_arrive(2, 256), );
  B(5, mb_wait(&fullQ, 0), if (u < 32) mb_wait(&fullQ, 0));
  mb_wait(&fullK[0], 0);
  nb_sync(2 + g, 256); wg_fence(); qk(0); nb_arrive(2 + (g ^ 1), 256);
  B(6, wg_wait<0>(), );
  if (u == 0) mb_arrive(&emptyK[0]);
  soft(); packed();
  for (int n = 1; n < N; ++n) { int b = n & 1, c = b ^ 1;
    B(7, mb_wait(&fullK[b], n >> 1 & 1), mb_wait(&fullK[b], n & 1));
    nb_sync(2 + g, 256);
    wg_fence(); qk(b);
    B(8, mb_wait(&fullV[c], (n - 1) >> 1 & 1), if (n > 1) mb_wait(&fullV[c], (n - 1) >> 1 & 1));
    pv(c, n == 1);
    if (g == 0 || n < N - 1) B(9, nb_arrive(2 + (g ^ 1), 256), nb_arrive(2 + (g ^ 1), 128));
    B(10, wg_wait<1>(), );
    if (u == 0) B(11, mb_arrive(&emptyK[b]), mb_arrive(&emptyK[c]));
    if (BUG == 12 && u == 0) mb_arrive(&emptyV[c]);
    if (BUG == 13) { soft(); packed(); wg_wait<0>(); }
    else { soft(); B(14, wg_wait<0>(), wg_wait<1>()); }
    if (BUG != 12 && u == 0) mb_arrive(&emptyV[c]);
    for (int i = 0; i < 16; ++i) d[i] *= f[i / 2 & 1];
    if (BUG != 13) packed(); }
  mb_wait(&fullV[N - 1 & 1], (N - 1) >> 1 & 1);
  B(15, wg_fence(), ); pv(N - 1 & 1, 0); wg_wait<0>();
  for (int h = 0; h < 2; ++h) { sum[h] += __shfl_xor_sync(~0u, sum[h], 1); sum[h] += __shfl_xor_sync(~0u, sum[h], 2); }
  int w = u / 32, l = u % 32, r = g * 64 + w * 16 + l / 4, c = l % 4 * 2;
  for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) o[(r + i / 2 * 8) * 32 + j * 8 + c + (i & 1)] = d[j * 4 + i] / sum[i / 2];
}
//! 1 one group's release frees a stage of K that the other reads
//! 2 the wait for Q ends when half is there
//! 3 a stage of V is refilled when K's is free
//! 4 group 0 waits for ever
//! 5 three warps start wgmma on Q that may not be there
//! 6 S is read before the wait
//! 7 the wrong parity: the previous contents of the stage
//! 8 the first V is not waited for
//! 9 an arrive with another count than the sync
//! 10 S is read while QK may run
//! 11 the other stage of K is released: read by PV's group in flight or not yet filled
//! 12 V's stage is released while PV may read it
//! 13 P's registers are overwritten while PV may read them
//! 14 O is scaled while PV may run
//! 15 registers of A and the sums are written without wgmma.fence
