#include "more.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ x u32 2,128 arange
//@ y u32 2,128 zeros
//@? y = np.sort(x.astype(np.int64) * 37 % 256, axis=1)
// radix sort of 128 keys by two passes of 4 bits: ranks in a warp by match_any, offsets over warps by a scan in shared memory
K radix(const u32* x, u32* y) {
  __shared__ u32 key[128], count[16][4], base[64]; u32 t = threadIdx.x, w = t / 32, l = t % 32, v = x[blockIdx.x * 128 + t] * 37 % 256;
  for (int pass = 0; pass < 2; ++pass) { u32 digit = v >> pass * 4 & 15;
    if (t < 64) count[t / 4][t % 4] = 0;
    B(1, __syncthreads(), __syncwarp());
    u32 same = __match_any_sync(~0u, digit), rank = __popc(same & ((1u << l) - 1));
    if (E(2, rank == 0, rank == 0 && l)) count[digit][w] = __popc(same);
    B(3, __syncthreads(), );
    if (w == 0) { u32 a = count[l / 2][l % 2 * 2], b = count[l / 2][l % 2 * 2 + 1], s = a + b, all = s;
      for (int o = 1; o < 32; o *= 2) { u32 up = __shfl_up_sync(~0u, s, o); if (l >= E(4, o, o + 1)) s += up; }
      base[l * 2] = s - all; base[l * 2 + 1] = s - all + E(5, a, b); }
    B(6, __syncthreads(), );
    u32 at = base[digit * 4 + w] + rank;
    key[E(7, at, at & 127 & ~(rank > 0))] = v;
    B(8, __syncthreads(), __syncwarp());
    v = key[t];
    B(9, , if (pass) v = key[t + (t == 127)]); }
  y[blockIdx.x * 128 + t] = v;
}
//! 1 a warp counts before another warp's zeros are stored
//! 2 counts are lost where lane 0 is the first of its digit
//! 3 counts of other warps are read too early
//! 4 the scan leaves out a lane
//! 5 the wrong one of two counts
//! 6 offsets are read before warp 0 has stored them
//! 7 two keys at one place
//! 8 keys of other warps are read too early
//! 9 one word past the array
