#include "common.cuh"
//@ grid=[4,1,1];block=[32,1,1]
//@ x s32 128 arange
//@ y s32 128 zeros
//@ st u64 4 zeros
//@ ticket u32 1 zeros
//@? y = np.cumsum(x)
K lookback(const int* x, int* y, unsigned long long* st, u32* ticket) {
  int l = threadIdx.x; u32 b = 0; if (l == 0) b = E(1, atomicAdd(ticket, 1), blockIdx.x * 0 + (*ticket)++);
  b = __shfl_sync(~0u, b, E(2, 0, 1));
  int v = x[b * 32 + l];
  for (int o = 1; o < 32; o <<= 1) { int u = __shfl_up_sync(~0u, v, o); if (E(3, l >= o, l > o)) v += u; }
  int total = __shfl_sync(~0u, v, 31), pre = 0;
  if (l == 0) { if (b == 0) { atomicExch(st, (2ull << 32) | (u32)total); }
    else { atomicExch(st + b, (1ull << 32) | (u32)total);
      for (int i = (int)b - 1; i >= 0;) { unsigned long long s; do { s = *(volatile unsigned long long*)(st + i); } while (!(s >> 32)); pre += (int)(u32)s; if ((s >> 32) == 2) break; B(4, --i, i -= 2); }
      B(5, atomicExch(st + b, (2ull << 32) | (u32)(pre + total)), atomicExch(st + b, (2ull << 32) | (u32)(total))); } }
  pre = E(6, __shfl_sync(~0u, pre, 0), pre);
  y[b * 32 + l] = v + pre;
}
