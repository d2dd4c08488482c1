#include "../by_hand/common.cuh"
//arch sm_80
//@ grid=[4,1,1];block=[64,1,1];calls=2
//@ x f32 2,2,64 normal
//@ part f32 2,2,64 zeros
//@ y f32 2,64 zeros
//@ cnt u32 2 zeros
//@? y = x.sum(1) ;1e-5
//@? cnt = np.zeros(2)
// split-K: the last CTA of a tile adds the parts and sets the counter back for the next launch
K split(const float* x, float* part, float* y, u32* cnt) {
  __shared__ u32 last; int t = threadIdx.x, tile = blockIdx.x / 2, k = blockIdx.x % 2;
  part[(tile * 2 + k) * 64 + t] = x[(tile * 2 + k) * 64 + t];
  B(1, __threadfence(), );
  B(2, __syncthreads(), );
  if (t == 0) last = atomicAdd(cnt + tile, 1) == E(3, 1, 0);
  B(4, __syncthreads(), );
  if (!last) return;
  B(5, __threadfence(), );
  y[tile * 64 + t] = part[tile * 128 + t] + part[tile * 128 + 64 + t];
  if (t == 0) B(6, cnt[tile] = 0, );
}
