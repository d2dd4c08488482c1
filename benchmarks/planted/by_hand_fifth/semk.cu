#include "more.cuh"
//@ grid=[2,3,1];block=[64,1,1]
//@ a bf16 64,96 normal
//@ b bf16 8,96 normal
//@ c f32 64,8 zeros
//@ lock u32 2 zeros
//@? c = a @ b.T ;3e-2
//@? lock = np.zeros(2)
// split-K with a semaphore as in CUTLASS: parts of a tile are added in order, the last one sets the semaphore back
K semk(const bf* a, const bf* b, float* c, u32* lock) {
  __shared__ alignas(16) bf sA[32][40], sB[8][40]; int t = threadIdx.x, w = t / 32, l = t % 32, m0 = blockIdx.x * 32, k0 = blockIdx.y * 32;
  for (int i = t; i < 128; i += 64) cpa16(&sA[i / 4][i % 4 * 8], a + (m0 + i / 4) * 96 + k0 + i % 4 * 8);
  if (t < 32) cpa16(&sB[t / 4][t % 4 * 8], b + t / 4 * 96 + k0 + t % 4 * 8);
  cpa_commit(); B(1, cpa_wait<0>(), cpa_wait<1>());
  B(2, __syncthreads(), __syncwarp());
  float d[4] = {0, 0, 0, 0}; u32* turn = lock + E(3, blockIdx.x, 0);
  for (int k = 0; k < 2; ++k) { u32 ra[4], rb[2];
    ldsm4(ra, &sA[w * 16 + (l & 15)][k * 16 + (l >> 4) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(sa(&sB[l & 7][k * 16 + (l >> 3 & 1) * 8])) : M);
    mma(d, ra, rb); }
  if (BUG == 4) { while (ld_relaxed(turn) != blockIdx.y); } else
  B(5, if (t == 0) while (ld_acquire(turn) != blockIdx.y) __nanosleep(20), if (t == 0) while (ld_acquire(turn) < min(blockIdx.y, 1)) __nanosleep(20));
  B(6, __syncthreads(), );
  for (int i = 0; i < 4; ++i) { float* p = c + (m0 + w * 16 + l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + (i & 1);
    *p = blockIdx.y ? *p + d[i] : d[i]; }
  if (BUG == 7) { if (t == 0) st_release(turn, (blockIdx.y + 1) % 3); return; }
  B(8, __syncthreads(), __syncwarp());
  if (t == 0) B(9, st_release(turn, (blockIdx.y + 1) % 3), st_relaxed(turn, (blockIdx.y + 1) % 3));
}
//! 1 the copies are not waited for
//! 2 the other warp's copies may not be there
//! 3 both tiles share a semaphore: a part is added out of turn, and it deadlocks
//! 4 relaxed polls acquire nothing
//! 5 the third part may be added with the second
//! 6 warp 1 adds before it is the CTA's turn
//! 7 thread 0 passes the turn on while warp 1 still adds
//! 8 the same, with the warp only
//! 9 a relaxed store releases nothing
