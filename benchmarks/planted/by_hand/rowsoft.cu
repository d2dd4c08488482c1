#include "common.cuh"
//arch sm_80
//@ grid=[3,1,1];block=[96,1,1]
//@ x f32 3,90 normal
//@ y f32 3,90 zeros
//@? y = np.exp(x - x.max(1,keepdims=True)) / np.exp(x - x.max(1,keepdims=True)).sum(1,keepdims=True) ;1e-4
K rowsoft(const float* x, float* y) {
  __shared__ float red[3]; __shared__ float tot; int t = threadIdx.x, w = t / 32, l = t % 32;
  float v = t < 90 ? x[blockIdx.x * 90 + t] : -INFINITY, m = v;
  for (int o = 16; o; o >>= 1) m = fmaxf(m, E(1, __shfl_xor_sync(~0u, m, o), __shfl_down_sync(~0u, m, o)));
  if (l == 0) red[w] = m;
  __syncthreads();
  m = fmaxf(red[0], fmaxf(red[1], red[2]));
  B(2, __syncthreads(), );
  float e = t < E(3, 90, 96) ? expf(v - m) : 0, s = e;
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(E(4, ~0u, 0x3ffffff), s, o);
  if (l == 0) red[w] = s;
  __syncthreads();
  if (t == 0) tot = red[0] + red[1] + red[2];
  B(5, __syncthreads(), __syncwarp());
  if (t < E(6, 90, 91)) y[blockIdx.x * 90 + t] = e / tot;
}
