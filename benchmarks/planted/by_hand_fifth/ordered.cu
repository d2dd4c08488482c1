#include "more.cuh"
//@ grid=[1,1,1];block=[384,1,1]
//@ a bf16 256,128 normal box=64,64 swizzle=128B
//@ b bf16 32,128 normal box=64,32 swizzle=128B
//@ c f32 256,32 zeros box=32,64
//@? c = a @ b.T ;3e-2
// ping-pong: two consumer warpgroups take turns in the main loop and in the epilogue (ordered barriers), one ring of three stages
K __launch_bounds__(384, 1) ordered(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c) {
  __shared__ alignas(1024) bf sA[3][64 * 64]; __shared__ alignas(1024) bf sB[3][32 * 64]; __shared__ alignas(128) float out[64 * 32];
  __shared__ u64 full[3], empty[3], order[2][2];
  int t = threadIdx.x, g = t / 128, u = t % 128; const int NK = 2, NT = 4;
  if (t == 0) {
    for (int i = 0; i < 3; ++i) { mb_init(&full[i], 1); mb_init(&empty[i], 1); }
    for (int i = 0; i < 4; ++i) mb_init(&order[i / 2][i % 2], E(1, 128, 64));
    mb_fence(); }
  __syncthreads();
  if (g == 2) {
    regs_dec<40>();
    if (u == 0) for (int n = 0; n < NT * NK; ++n) { int s = n % 3;
      mb_wait(&empty[s], n / 3 & 1 ^ 1);
      mb_expect(&full[s], 8192 + 4096);
      tma2(sA[s], &a, n % NK * 64, n / NK * 64, &full[s]); tma2(sB[s], &b, n % NK * 64, 0, &full[s]); }
    return;
  }
  regs_inc<232>();
  for (int i = 0; i < 2; ++i) { int tile = i * 2 + g; float d[16];
    B(2, mb_wait(&order[0][g], i & 1 ^ (g == 0)), );
    for (int k = 0; k < NK; ++k) { int n = E(3, tile, i) * NK + k, s = n % 3;
      mb_wait(&full[s], n / 3 & 1);
      wg_fence();
      for (int j = 0; j < 4; ++j) wg_n32_ss(d, desc128(sA[s]) + j * 2, desc128(sB[s]) + j * 2, k + j > 0);
      wg_commit();
      if (k) { B(4, wg_wait<1>(), ); if (u == 0) mb_arrive(&empty[(n + 2) % 3]); } }
    if (BUG == 5 && u == 0) mb_arrive(&empty[(tile * NK + NK - 1) % 3]);
    B(6, mb_arrive(&order[0][g ^ 1]), mb_arrive(&order[0][g]));
    B(7, wg_wait<0>(), );
    if (BUG != 5 && u == 0) mb_arrive(&empty[(tile * NK + NK - 1) % 3]);
    B(8, mb_wait(&order[1][g], i & 1 ^ (g == 0)), );
    int w = u / 32, l = u % 32, r = w * 16 + l / 4, q = l % 4 * 2;
    for (int j = 0; j < 4; ++j) for (int e = 0; e < 4; ++e) out[(r + e / 2 * 8) * 32 + j * 8 + q + (e & 1)] = d[j * 4 + e];
    B(9, fence_async(), );
    B(10, nb_sync(1 + g, 128), nb_sync(1, 128));
    if (u == 0) { tma2_store(&c, out, 0, tile * 64); bulk_commit(); B(11, bulk_wait_read<0>(), bulk_wait_read<1>()); }
    B(12, nb_sync(1 + g, 128), );
    if (BUG == 13 ? u != 7 : true) mb_arrive(&order[1][g ^ 1]); }
  if (u == 0) bulk_wait<0>();
}
//! 1 the order barrier completes with half of the group: a phase too many
//! 2 both groups multiply at once: the stage of the other group's later step is waited for out of turn (values still right)
//! 3 group 1 multiplies group 0's stages
//! 4 the stage of the previous step is released while its wgmma may read it
//! 5 the last stage is released before the wait
//! 6 a group signals itself: the other waits for ever
//! 7 accumulators are stored before the wait
//! 8 a group writes the staging buffer while the other's TMA store may read it
//! 9 generic writes before a TMA store need a proxy fence
//! 10 both groups at one named barrier: warps of two groups mix
//! 11 the next group overwrites the buffer that TMA reads
//! 12 other threads arrive before thread 0 has waited for the store to read
//! 13 one arrival is missing
