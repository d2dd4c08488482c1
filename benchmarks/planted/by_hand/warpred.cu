#include "common.cuh"
//arch sm_80
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 2,64 normal
//@ y f32 2 zeros
//@? y = x.sum(1) ;1e-4
K warpred(const float* x, float* y) {
  __shared__ float s[64]; int t = threadIdx.x; s[t] = x[blockIdx.x * 64 + t];
  B(1, __syncthreads(), __syncwarp());
  if (t < 32) {
    float v = s[t] + s[t + 32]; 
    s[t] = v; B(2, __syncwarp(), );
    if (t < 16) v += s[t + 16]; B(3, __syncwarp(), ); s[t] = v; B(4, __syncwarp(), );
    if (t < 8) { v += s[t + 8]; } B(5, __syncwarp(), ); if (t < 8) s[t] = v; B(6, __syncwarp(), if (t < 4) __syncwarp(0xf));
    if (t == 0) { float a = 0; for (int i = 0; i < 8; ++i) a += s[i]; y[blockIdx.x] = a; }
  }
}
