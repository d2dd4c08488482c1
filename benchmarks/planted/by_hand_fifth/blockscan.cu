#include "more.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ x s32 2,3,512 arange
//@ y s32 2,3,512 zeros
//@? y = (x % 7).reshape(2,1536).cumsum(1).reshape(2,3,512)
// an inclusive scan of tiles of 512, four items a thread; warps by shuffles, warp sums by one warp, a running prefix
K blockscan(const int* x, int* y) {
  __shared__ int sums[4], carry; int t = threadIdx.x, w = t / 32, l = t % 32;
  if (t == 0) carry = 0;
  for (int n = 0; n < 3; ++n) { int4 v = ((const int4*)(x + (blockIdx.x * 3 + n) * 512))[t];
    v.x %= 7; v.y = v.x + v.y % 7; v.z = v.y + v.z % 7; v.w = v.z + v.w % 7; int s = v.w;
    for (int o = 1; o < 32; o *= 2) { int up = __shfl_up_sync(~0u, s, o); if (l >= o) s += up; }
    if (l == E(1, 31, 30)) sums[w] = s;
    B(2, __syncthreads(), );
    if (w == 0 && l < 4) { int a = sums[l], all = a;
      for (int o = 1; o < 4; o *= 2) { int up = __shfl_up_sync(E(3, 0xfu, ~0u), a, o); if (l >= o) a += up; }
      sums[l] = a - all + E(4, carry, 0); __syncwarp(0xf);
      B(5, if (l == 3) carry += a, if (l == 0) carry += a); }
    B(6, __syncthreads(), __syncwarp());
    int before = sums[w] + s - v.w;
    ((int4*)(y + (blockIdx.x * 3 + n) * 512))[E(7, t, t ^ (n == 1))] = make_int4(v.x + before, v.y + before, v.z + before, v.w + before);
    B(8, __syncthreads(), ); }
}
//! 1 the sum of 31 lanes
//! 2 sums of other warps are read too early
//! 3 lanes named in the mask never come
//! 4 the prefix is left out
//! 5 the first warp's sum only
//! 6 offsets are read before they are stored
//! 7 two threads' items swapped
//! 8 the next tile's sums are stored while a slow warp reads its offset
