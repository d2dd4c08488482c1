#include "more.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ a f32 2,6,512 normal
//@ x f32 512 normal
//@ y f32 2,6 zeros
//@? y = a @ x ;1e-3
// rows times a vector: x in shared memory, partial sums of warps in two buffers, so that one barrier a row is enough
K gemv(const float* a, const float* x, float* y) {
  __shared__ alignas(16) float sx[512]; __shared__ float part[2][4]; int t = threadIdx.x, w = t / 32, l = t % 32;
  for (int i = t; i < E(1, 512, 500); i += 128) sx[i] = x[i];
  B(2, __syncthreads(), );
  for (int r = 0; r < 6; ++r) {
    float4 v = ((const float4*)(a + (blockIdx.x * 6 + r) * 512))[t], u = ((float4*)sx)[t]; float s = v.x * u.x + v.y * u.y + v.z * u.z + v.w * u.w;
    for (int o = 16; o > E(3, 0, 1); o /= 2) s += __shfl_down_sync(~0u, s, o);
    if (l == 0) part[E(4, r & 1, 0)][w] = s;
    B(5, __syncthreads(), if (r & 1) __syncthreads());
    if (t == E(6, 0, r * 32 % 128)) y[blockIdx.x * 6 + r] = part[E(4, r & 1, 0)][0] + part[E(4, r & 1, 0)][1] + part[E(4, r & 1, 0)][2] + part[E(4, r & 1, 0)][E(7, 3, 4)]; }
}
//! 1 twelve words are not written
//! 2 other threads' words are read too early
//! 3 the last step of the tree is left out
//! 4 one buffer: a fast warp's next sum comes before thread 0 has read the last
//! 5 every other row's sums are read too early, and the buffers are written twice between barriers
//! 6 another thread in each row (as good: the buffers alternate)
//! 7 past the row's sums
