#include "../by_hand/common.cuh"
//@ grid=[5,1,1];block=[64,1,1]
//@ x s32 5,64 arange
//@ y s32 5,64 zeros
//@ sums s32 5 zeros
//@ totals s32 5 zeros
//@ flags u32 5 zeros
//@ ticket u32 1 zeros
//@? y = np.cumsum(x).reshape(5,64)
// decoupled look-back: tile numbers by ticket, sums and prefixes published behind flags
D u32 ld_flag(const u32* p) { u32 v; if (BUG == 1) asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : M); else if (BUG == 2) asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(p) : M); else asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : M); return v; }
D void st_flag(u32* p, u32 v) { if (BUG == 3) asm volatile("st.relaxed.gpu.u32 [%0], %1;" :: "l"(p), "r"(v) : M); else if (BUG == 4) asm volatile("st.release.cta.u32 [%0], %1;" :: "l"(p), "r"(v) : M); else asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(p), "r"(v) : M); }
K backscan(const int* x, int* y, int* sums, int* totals, u32* flags, u32* ticket) {
  __shared__ int tile, part[2], before; int t = threadIdx.x, l = t % 32, w = t / 32;
  if (t == 0) tile = atomicAdd(ticket, 1);
  B(5, __syncthreads(), );
  int k = tile, v = x[k * 64 + t];
  for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, v, o); if (l >= o) v += u; }
  if (l == E(6, 31, 30)) part[w] = v;
  B(7, __syncthreads(), __syncwarp());
  if (w) v += part[0];
  if (t == 63) {
    int sum = v, run = 0;
    if (BUG == 8) { st_flag(flags + k, 1); sums[k] = sum; } else { sums[k] = sum; st_flag(flags + k, 1); }
    for (int j = k - 1; j >= 0; --j) {
      u32 f; do f = ld_flag(flags + j); while (BUG == 9 ? false : f == 0);
      if (f == 2) { run += E(10, totals[j], sums[j]); break; }
      run += sums[j]; }
    if (BUG == 11) { st_flag(flags + k, 2); totals[k] = run + sum; } else { totals[k] = run + sum; st_flag(flags + k, 2); }
    before = run;
  }
  B(12, __syncthreads(), );
  y[k * 64 + t] = v + before;
}
