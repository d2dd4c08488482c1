#include "common.cuh"
//@ grid=[4,1,1];block=[32,1,1]
//@ x f32 4,32 normal
//@ y f32 32 zeros
//@ turn u32 1 zeros
//@? y = x.sum(0) ;1e-4
// CTAs add in a fixed order (a semaphore as in deterministic split-K)
K sem(const float* x, float* y, u32* turn) {
  int t = threadIdx.x;
  if (t == 0) { u32 v; do { if (BUG == 1) asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(turn) : M); else asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(turn) : M); } while (E(2, v != blockIdx.x, v + 1 < blockIdx.x)); }
  B(3, __syncwarp(), );
  y[t] += x[blockIdx.x * 32 + t];
  B(4, __syncwarp(), );
  if (t == 0) { if (BUG == 5) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(turn), "r"(blockIdx.x + 1) : M); else if (BUG == 6) { asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" :: "l"(turn) : M); } else asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(turn), "r"(blockIdx.x + 1) : M); }
}
