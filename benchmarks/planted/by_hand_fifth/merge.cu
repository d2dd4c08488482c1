#include "more.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ x u32 2,128 arange
//@ y u32 2,16 zeros
//@? y = np.sort(x.astype(np.int64) * 53 % 251, axis=1)[:, ::-1][:, :16]
// the 16 largest: each warp sorts, then warps meet in pairs at named barriers of their own, then the two that are left
D u32 sorted(u32 v, u32 l) { for (u32 k = 2; k <= 32; k *= 2) for (u32 j = k / 2; j; j /= 2) { u32 o = __shfl_xor_sync(~0u, v, j); bool up = (l & k) == 0 || k == 32; v = ((l & j) == 0) == up ? max(v, o) : min(v, o); } return v; }
K merge(const u32* x, u32* y) {
  __shared__ u32 best[4][16]; u32 t = threadIdx.x, w = t / 32, l = t % 32, v = sorted(x[blockIdx.x * 128 + t] * 53 % 251, l);
  if (l < 16) best[w][l] = v;
  if (w & 1) B(1, nb_arrive(1 + w / 2, 64), nb_arrive(1, 64));
  else {
    B(2, nb_sync(1 + w / 2, 64), );
    v = sorted(l < 16 ? v : best[w + E(3, 1, 2)][l - 16], l);
    B(4, if (l < 16) best[w][l] = v, if (l < 16 && w) best[w][l] = v);
    if (w == 2) B(5, nb_arrive(3, 64), nb_arrive(4, 64));
    else { B(6, nb_sync(3, 64), nb_sync(3, 32));
      v = sorted(best[l / E(7, 16, 32) * 2][l % 16], l);
      if (l < 16) y[blockIdx.x * 16 + l] = v; } }
}
//! 1 both pairs arrive at one barrier
//! 2 the partner's keys are read before they are stored
//! 3 keys of a warp that may not have stored
//! 4 warp 0's keys stay the old ones
//! 5 nobody waits there: warp 0 waits for ever
//! 6 warp 0 does not wait for warp 2
//! 7 the first half twice
