#include "common.cuh"
//@ grid=[4,1,1];block=[64,1,1]
//@ x f32 4,128 normal
//@ part f32 4 zeros
//@ count u32 1 zeros
//@ y f32 1 zeros
//@? y = x.sum().reshape(1) ;1e-3
K lastblock(const float* x, float* part, u32* count, float* y) {
  __shared__ float red[2]; __shared__ bool last;
  int t = threadIdx.x; float v = x[blockIdx.x * 128 + t] + x[blockIdx.x * 128 + 64 + t];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (t % 32 == 0) red[t / 32] = v;
  B(1, __syncthreads(), );
  if (t == 0) {
    B(2, *(volatile float*)(part + blockIdx.x) = red[0] + red[1]; __threadfence(), __threadfence(); part[blockIdx.x] = red[0] + red[1]);
    u32 k = E(3, atomicAdd(count, 1), (*count)++);
    last = k == E(4, gridDim.x - 1, gridDim.x - 2);
  }
  B(5, __syncthreads(), );
  if (last && t < 32) {
    __threadfence();
    float s = t < gridDim.x ? E(6, ((volatile float*)part)[t], ((volatile float*)part)[t + 1]) : 0;
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (t == 0) { *y = s; }
  }
}
