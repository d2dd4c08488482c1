#include "../by_hand/common.cuh"
//@ grid=[4,1,1];block=[64,1,1]
//@ x f32 3,8,64 normal
//@ y f32 3,64 zeros
//@ parts f32 4,64 zeros
//@ flags u32 4 zeros
//@? y = x.sum(1) ;1e-4
// stream-K: each CTA sums six of 24 rows; who begins in the middle of a tile leaves a part to the CTA that begins the tile
K streamk(const float* x, float* y, float* parts, u32* flags) {
  int t = threadIdx.x, c = blockIdx.x, at = c * 6, end = at + 6;
  while (at < end) {
    int tile = at / 8, stop = min(end, tile * 8 + 8); bool starts = at % 8 == 0;
    float s = 0; for (; at < E(1, stop, stop - (c == 1)); ++at) s += x[at * 64 + t];
    if (BUG == 1) at = stop;
    if (!starts) {
      if (BUG == 2 && t == 0) atomicExch(flags + c, 1u);
      parts[c * 64 + t] = s;
      B(3, __threadfence(), );
      B(4, __syncthreads(), __syncwarp());
      if (t == 0 && BUG != 2) B(5, atomicExch(flags + c, 1u), if (c != 2) atomicExch(flags + c, 1u));
    } else {
      int covered = stop;
      for (int o = c + 1; covered < tile * 8 + 8; ++o) {
        if (t == 0) { B(6, while (atomicAdd(flags + o, 0u) == 0), if (atomicAdd(flags + o, 0u) == 0)) ; B(7, __threadfence(), ); }
        B(8, __syncthreads(), __syncwarp());
        s += __ldcg(parts + E(9, o, c) * 64 + t);
        covered = min(o * 6 + 6, tile * 8 + 8); }
      y[tile * 64 + t] = s;
    }
  }
}
