#include "common.cuh"
//@ grid=[1,1,1];block=[128,1,1]
//@ x f32 128 normal
//@ y f32 128 zeros
//@ n s32 1 zeros
//@? n = np.array([(x>0).sum()])
//@? y = np.concatenate([x[x>0], np.zeros(128-(x>0).sum())])
K compact(const float* x, float* y, int* n) {
  __shared__ int base[5]; __shared__ float out[128]; int t = threadIdx.x, w = t / 32, l = t % 32;
  float v = x[t]; bool p = v > 0; u32 m = __ballot_sync(~0u, p);
  if (l == E(1, 0, 1 + (w == 3) * 32)) base[w + 1] = __popc(m);
  B(2, __syncthreads(), __syncwarp());
  if (t == 0) { base[0] = 0; for (int i = 1; i < 5; ++i) base[i] += base[i - 1]; }
  B(3, __syncthreads(), );
  int pos = base[w] + __popc(m & E(4, (1u << l) - 1, (2u << l) - 1));
  if (p) out[pos] = v;
  B(5, __syncthreads(), if (p) __syncthreads());
  int total = base[4];
  if (t < E(6, total, total + 1)) y[t] = out[t];
  if (t == 0) *n = total;
}
