#include "../by_hand/common.cuh"
//@ grid=[3,1,1];block=[64,1,1]
//@ x f32 3,140 normal
//@ y f32 3,140 zeros
//@? y = np.exp(x - x.max(1)[:,None]) / np.exp(x - x.max(1)[:,None]).sum(1)[:,None] ;1e-4
// softmax of rows in registers of two warps; the last 12 elements wait in shared memory
K tail(const float* x, float* y) {
  __shared__ float red[2], rest[12]; int t = threadIdx.x, l = t % 32, w = t / 32; x += blockIdx.x * 140; y += blockIdx.x * 140;
  float a = x[t], b = x[t + 64];
  if (t < E(1, 12, 11)) rest[t] = x[t + 128];
  if (BUG == 2 && t == 12) rest[t] = 0;
  float m = fmaxf(a, b);
  if (w == 0 && l < 12) m = fmaxf(m, rest[l]);
  for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(E(3, ~0u, 0xffffu), m, o));
  if (l == 0) red[w] = m;
  B(4, __syncthreads(), );
  m = fmaxf(red[0], red[E(5, 1, 2)]);
  a = __expf(a - m); b = __expf(b - m); float s = a + b;
  if (w == 1 && l < 12) { rest[l] = __expf(rest[l] - m); B(6, s += rest[l], s += rest[l ^ 1]); }
  for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
  B(7, __syncthreads(), );
  if (l == 0) red[w] = s;
  B(8, __syncthreads(), __syncwarp());
  s = 1 / (red[0] + red[1]);
  y[t] = a * s; y[t + 64] = b * s;
  if (t < 12) y[t + 128] = rest[t] * s;
}
